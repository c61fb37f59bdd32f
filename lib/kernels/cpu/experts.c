/* SPDX-License-Identifier: MIT */
/* Products of the experts' matrices with the rows sorted by expert. */
#include <stddef.h>

#include "base/error.h"
#include "kernels/cpu/experts_int8.h"
#include "kernels/cpu/product.h"

STRATA__CPU_TASK(gate_up);
STRATA__CPU_TASK(down);

static strata_status check_path(const char *what, uint32_t path)
{
    if (path < STRATA__PATH_COUNT)
        return STRATA_OK;
    return strata__fail(STRATA_ERR_UNSUPPORTED, "%s: path %u is not one the CPU takes", what, path);
}

/*
 * Adds the part of every expert's rows that lies in the range; rows count from the range's first.
 */
static void add_experts(strata__product_job *job, const strata__expert_range *range,
                        const void *const *first, const void *const *second)
{
    uint32_t end = range->first_row + range->rows;
    for (uint32_t e = range->first_expert; e <= range->last_expert; e++) {
        uint32_t from = range->offsets[e], to = range->offsets[e + 1];
        from = from > range->first_row ? from : range->first_row;
        to = to < end ? to : end;
        if (from < to)
            strata__product_add(job, first[e], second ? second[e] : NULL, e,
                                from - range->first_row, to - from);
    }
    strata__product_flush(job);
}

static void add_bias(float *sums, const strata__product_sums *shape, const float *bias)
{
    for (uint32_t r = 0; r < shape->group->rows; r++)
        for (uint32_t n = 0; n < shape->outputs; n++)
            sums[(size_t)r * shape->stride + n] += bias[n];
}

static void finish_gate_up(const strata__product_job *job, const strata__product_sums *sums)
{
    const strata__gate_up_args *a = job->args;
    uint32_t rows = sums->group->rows, width = sums->outputs, stride = sums->stride;
    size_t bias = (size_t)sums->group->tag * a->gate.outputs + sums->first_output;
    /* Rows that lie without gaps are one long row to an elementwise function. */
    uint32_t step = width == stride ? rows : 1;
    float *to =
        (float *)a->h.data + (size_t)sums->group->first_row * a->gate.outputs + sums->first_output;
    if (a->gate.bias)
        add_bias(sums->sums[0], sums, a->gate.bias + bias);
    if (a->up.bias)
        add_bias(sums->sums[1], sums, a->up.bias + bias);
    for (uint32_t r = 0; r < rows; r += step) {
        float *gate = sums->sums[0] + (size_t)r * stride;
        const float *up = sums->sums[1] + (size_t)r * stride;
        job->cpu->code->activate(a->activation, gate, up, step * width, gate);
    }
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t n = 0; n < width; n++)
            to[(size_t)r * a->gate.outputs + n] = sums->sums[0][(size_t)r * stride + n];
}

static void run_gate_up(const void *arguments)
{
    const gate_up_task *task = arguments;
    const strata__gate_up_args *a = &task->args;
    if (strata__int8_path(a->path)) {
        strata__int8_gate_up(task->cpu, a);
        return;
    }
    strata__product_job job = {
        .cpu = task->cpu,
        .args = a,
        .finish = finish_gate_up,
        .inputs = a->gate.inputs,
        .outputs = a->gate.outputs,
        .matrices = 2,
        .formats = {a->gate.format, a->up.format},
        .rows = a->in.data,
        .few = a->few,
        .row_index = a->sorted_row + a->range.first_row,
        .scratch = a->scratch,
    };
    add_experts(&job, &a->range, a->gate.blobs, a->up.blobs);
}

strata_status strata__cpu_gate_up(strata__kernels *kernels, void *stream,
                                  const strata__gate_up_args *args)
{
    strata_status status = check_path("gate_up", args->path);
    if (!status)
        status = strata__cpu_check_weight("gate_up", args->gate.format, args->gate.inputs);
    if (!status)
        status = strata__cpu_check_weight("gate_up", args->up.format, args->up.inputs);
    if (!status && (args->gate.inputs != args->up.inputs || args->gate.outputs != args->up.outputs))
        status =
            strata__fail(STRATA_ERR_UNSUPPORTED, "gate_up: gate is %u x %u, up is %u x %u",
                         args->gate.inputs, args->gate.outputs, args->up.inputs, args->up.outputs);
    if (!status)
        status = strata__int8_path(args->path)
                     ? strata__int8_check_gate_up(args)
                     : strata__product_check_scratch("gate_up", &args->scratch, args->gate.inputs);
    return status || !args->range.rows ? status
                                       : gate_up_enqueue(kernels, stream, args, run_gate_up);
}

static void finish_down(const strata__product_job *job, const strata__product_sums *sums)
{
    const strata__down_args *a = job->args;
    uint32_t expert = sums->group->tag;
    float scale = a->expert_scale ? a->expert_scale[expert] : 1.0f;
    const float *bias = a->down.bias;
    if (bias)
        bias += (size_t)expert * a->down.outputs + sums->first_output;
    for (uint32_t r = 0; r < sums->group->rows; r++) {
        float *to =
            a->y + (size_t)(sums->group->first_row + r) * a->down.outputs + sums->first_output;
        const float *in = sums->sums[0] + (size_t)r * sums->stride;
        for (uint32_t n = 0; n < sums->outputs; n++)
            to[n] = (bias ? in[n] + bias[n] : in[n]) * scale;
    }
}

static void run_down(const void *arguments)
{
    const down_task *task = arguments;
    const strata__down_args *a = &task->args;
    if (strata__int8_path(a->path)) {
        strata__int8_down(task->cpu, a);
        return;
    }
    strata__product_job job = {
        .cpu = task->cpu,
        .args = a,
        .finish = finish_down,
        .inputs = a->down.inputs,
        .outputs = a->down.outputs,
        .matrices = 1,
        .formats = {a->down.format},
        .rows = a->h.data,
        .few = a->few,
        .scratch = a->scratch,
    };
    add_experts(&job, &a->range, a->down.blobs, NULL);
}

strata_status strata__cpu_down(strata__kernels *kernels, void *stream,
                               const strata__down_args *args)
{
    strata_status status = check_path("down", args->path);
    if (!status)
        status = strata__cpu_check_weight("down", args->down.format, args->down.inputs);
    if (!status)
        status = strata__int8_path(args->path)
                     ? strata__int8_check_down(args)
                     : strata__product_check_scratch("down", &args->scratch, args->down.inputs);
    return status || !args->range.rows ? status : down_enqueue(kernels, stream, args, run_down);
}
