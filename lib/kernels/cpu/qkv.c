/* SPDX-License-Identifier: MIT */
/* From projections to queries and cached keys and values: clamp, QK norm, rotary embedding. */
#include <math.h>
#include <stddef.h>

#include "base/error.h"
#include "kernels/cpu/kv.h"

STRATA__CPU_TASK(qkv);

enum { PIECE = 64 }; /* rotated pairs whose angles are held at once */

static void clamp_values(float *values, uint32_t n, float limit)
{
    if (limit > 0)
        for (uint32_t i = 0; i < n; i++)
            values[i] = values[i] > limit ? limit : values[i] < -limit ? -limit : values[i];
}

static float inverse_rms(const strata__cpu_kernels *cpu, const float *values, uint32_t n, float eps)
{
    return (float)(1.0 / sqrt(cpu->code->sum_squares(values, n) / n + (double)eps));
}

static void scale_values(float *values, uint32_t n, float factor, const float *weight)
{
    for (uint32_t i = 0; i < n; i++)
        values[i] = values[i] * factor * weight[i];
}

/*
 * Rotates the heads of a row; the angle is taken in double, since position times frequency is
 * large.
 */
static void rotate_heads(const strata__qkv_args *a, float *row, uint32_t heads, uint32_t position)
{
    uint32_t pairs = a->rope_width / 2, size = a->kv.head_size;
    uint32_t step = a->rope_style == STRATA__ROPE_NEOX ? 1 : 2;
    uint32_t other = a->rope_style == STRATA__ROPE_NEOX ? pairs : 1;
    for (uint32_t start = 0; start < pairs; start += PIECE) {
        uint32_t count = pairs - start < PIECE ? pairs - start : PIECE;
        float c[PIECE], s[PIECE];
        for (uint32_t i = 0; i < count; i++) {
            double angle = (double)position * (double)a->rope_frequencies[start + i];
            c[i] = (float)(cos(angle) * (double)a->rope_magnitude);
            s[i] = (float)(sin(angle) * (double)a->rope_magnitude);
        }
        for (uint32_t h = 0; h < heads; h++) {
            float *v = row + (size_t)h * size + (size_t)start * step;
            for (uint32_t i = 0; i < count; i++, v += step) {
                float x = v[0], y = v[other];
                v[0] = x * c[i] - y * s[i];
                v[other] = x * s[i] + y * c[i];
            }
        }
    }
}

static void norm_heads(const strata__cpu_kernels *cpu, const strata__qkv_args *a, float *row,
                       uint32_t heads, const float *weight)
{
    uint32_t size = a->kv.head_size;
    for (uint32_t h = 0; h < heads; h++) {
        float *head = row + (size_t)h * size;
        scale_values(head, size, inverse_rms(cpu, head, size, a->eps), weight);
    }
}

/* Clamp, norm and rotation of the `heads` heads of one row, in place. */
static void prepare_row(const strata__cpu_kernels *cpu, const strata__qkv_args *a, float *row,
                        uint32_t heads, const float *weight, uint32_t position)
{
    uint32_t width = heads * a->kv.head_size;
    clamp_values(row, width, a->clamp);
    if (a->qk_norm == STRATA__QK_NORM_ROW_BEFORE_ROPE)
        scale_values(row, width, inverse_rms(cpu, row, width, a->eps), weight);
    if (a->qk_norm == STRATA__QK_NORM_HEAD_BEFORE_ROPE)
        norm_heads(cpu, a, row, heads, weight);
    if (a->rope_style != STRATA__ROPE_NONE)
        rotate_heads(a, row, heads, position);
    if (a->qk_norm == STRATA__QK_NORM_HEAD_AFTER_ROPE)
        norm_heads(cpu, a, row, heads, weight);
}

static void copy_values(float *to, const float *from, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        to[i] = from[i];
}

static void qkv_row(const strata__cpu_kernels *cpu, const strata__qkv_args *a, uint32_t row,
                    float *work)
{
    const strata__segment *segment = a->segments;
    uint32_t size = a->kv.head_size, kv_width = a->kv.kv_heads * size, width = a->heads * size;
    float *q = (float *)a->q_out.data + (size_t)row * width;
    while (row - segment->first_row >= segment->rows)
        segment++;
    uint32_t position = segment->position + (row - segment->first_row);
    copy_values(q, a->q + (size_t)row * a->qkv_stride, width);
    prepare_row(cpu, a, q, a->heads, a->q_norm, position);
    copy_values(work, a->k + (size_t)row * a->qkv_stride, kv_width);
    prepare_row(cpu, a, work, a->kv.kv_heads, a->k_norm, position);
    copy_values(work + kv_width, a->v + (size_t)row * a->qkv_stride, kv_width);
    clamp_values(work + kv_width, kv_width, a->clamp);
    for (uint32_t h = 0; h < a->kv.kv_heads; h++) {
        strata__kv_row k = strata__kv_row_at(&a->kv, a->kv.k, segment->sequence, position, h);
        strata__kv_row v = strata__kv_row_at(&a->kv, a->kv.v, segment->sequence, position, h);
        strata__kv_store(cpu, &a->kv, k, work + (size_t)h * size);
        strata__kv_store(cpu, &a->kv, v, work + kv_width + (size_t)h * size);
    }
}

static void qkv_item(void *user_data, uint32_t item, uint32_t worker)
{
    const qkv_task *task = user_data;
    uint32_t first = item * STRATA__ROWS_PER_ITEM, end = first + STRATA__ROWS_PER_ITEM;
    end = end < task->args.rows ? end : task->args.rows;
    for (uint32_t row = first; row < end; row++)
        qkv_row(task->cpu, &task->args, row, strata__cpu_workspace(task->cpu, worker));
}

static void run_qkv(const void *arguments)
{
    qkv_task task = *(const qkv_task *)arguments;
    strata__pool_run(task.cpu->pool, strata__row_items(task.args.rows), qkv_item, &task);
}

strata_status strata__cpu_qkv(strata__kernels *kernels, void *stream, const strata__qkv_args *args)
{
    uint64_t kv_width = (uint64_t)args->kv.kv_heads * args->kv.head_size;
    strata_status status = strata__kv_check("qkv", &args->kv);
    if (!status && 2 * kv_width > STRATA__WORKSPACE_FLOATS)
        status = strata__fail(STRATA_ERR_UNSUPPORTED, "qkv: %u KV heads of %u values",
                              args->kv.kv_heads, args->kv.head_size);
    if (!status && (args->rope_width % 2 || args->rope_width > args->kv.head_size))
        status = strata__fail(STRATA_ERR_UNSUPPORTED, "qkv: %u of %u values of a head rotated",
                              args->rope_width, args->kv.head_size);
    return status || !args->rows ? status : qkv_enqueue(kernels, stream, args, run_qkv);
}
