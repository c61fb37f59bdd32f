/* SPDX-License-Identifier: MIT */
/*
 * The experts' products on the int8 paths; the arithmetic is that of kernels/int8.h.
 *
 * An item is up to 128 rows of an expert against 64 outputs of one or two matrices: K_STEP values
 * of the rows are transposed into tiles, then every eight outputs are decoded and multiplied with
 * all tiles. Path fused takes gate and up at once and quantises what the activation leaves, path
 * mmq takes them one after the other through a float buffer. Both do the same operations on a
 * value.
 */
#include "kernels/cpu/experts_int8.h"

#include <stddef.h>
#include <string.h>

#include "base/error.h"
#include "kernels/cpu/product.h"
#include "kernels/int8.h"

enum {
    ITEM_OUTPUTS = 64, /* whole groups of h, whatever their size */
    ROWS = STRATA__GROUP_ROWS,
    STEP = STRATA__K_STEP,
    SCALES = STEP / STRATA__INT8_HALF /* most of an output in a step */
};

/* A thread's working memory. */
typedef struct work {
    float packed[STEP * ROWS];
    float wide[STRATA__TILE_ROWS * STEP];
    float row_scales[STEP / STRATA__INT8_BLOCK * ROWS];
    float row_sums[SCALES * ROWS];
    float weights[STRATA__TILE_OUTPUTS * STRATA__WEIGHT_STRIDE];
    float scales[STRATA__TILE_OUTPUTS * SCALES];
    float offsets[STRATA__TILE_OUTPUTS * SCALES];
    float sums[2][ITEM_OUTPUTS * ROWS]; /* [output][row] */
    float out[2][ROWS * ITEM_OUTPUTS];  /* [row][output] */
    int8_t codes[STRATA__TILE_OUTPUTS * STEP];
} work;

_Static_assert(sizeof(work) <= STRATA__WORKSPACE_FLOATS * sizeof(float), "a thread's memory");

typedef struct rows_group {
    const uint8_t *weights[2];
    uint32_t expert;
    uint32_t first_row; /* of the range */
    uint32_t rows;
} rows_group;

typedef struct int8_job {
    strata__cpu_kernels *cpu;
    const void *args;
    void (*finish)(const struct int8_job *job, const rows_group *group, uint32_t first,
                   uint32_t outputs, work *w);
    const uint8_t *rows; /* quantised */
    uint32_t inputs;
    uint32_t outputs;
    uint32_t matrices;
    uint32_t formats[2];
    uint32_t row_group;
    uint32_t group_count;
    rows_group groups[STRATA__BATCH_GROUPS];
} int8_job;

static uint32_t tile_width(uint32_t rows)
{
    return rows > 24 ? 32 : rows > 8 ? 16 : 8;
}

/* Sums of the values that share an offset: halves of the row's sums, or both together. */
static float row_sum(const uint8_t *sums, uint32_t k, uint32_t part)
{
    int16_t halves[4];
    int sum = 0;
    memcpy(halves, sums + k / STRATA__INT8_HALF * sizeof halves[0],
           part / STRATA__INT8_HALF * sizeof halves[0]);
    for (uint32_t i = 0; i < part / STRATA__INT8_HALF; i++)
        sum += halves[i];
    return (float)sum;
}

/* Scales, and sums of `part` values, of values [k, k + count) of a row, into columns of a tile. */
static void pack_scales(const int8_job *job, const uint8_t *row, uint32_t k, uint32_t count,
                        uint32_t width, float *scales)
{
    const uint8_t *plane = row + strata__quantised_codes_bytes(job->inputs);
    for (uint32_t i = 0; i < count; i += job->row_group)
        memcpy(scales + (size_t)(i / job->row_group) * width,
               plane + (k + i) / STRATA__INT8_BLOCK * sizeof(float), sizeof(float));
}

static void pack_sums(const int8_job *job, const uint8_t *row, uint32_t k, uint32_t count,
                      uint32_t part, uint32_t width, float *sums)
{
    const uint8_t *plane = row + strata__quantised_codes_bytes(job->inputs) +
                           strata__quantised_scales_bytes(job->inputs);
    for (uint32_t i = 0; i < count; i += part)
        sums[(size_t)(i / part) * width] = row_sum(plane, k + i, part);
}

static const uint8_t *row_of(const int8_job *job, const rows_group *group, uint32_t row)
{
    row = row < group->rows ? row : group->rows - 1;
    return job->rows + (group->first_row + row) * strata__quantised_row_bytes(job->inputs);
}

/* Values [k, k + count) of the group's rows, in tiles one after the other. */
static void pack_rows(const int8_job *job, const rows_group *group, uint32_t k, uint32_t count,
                      work *w)
{
    const strata__cpu_code *code = job->cpu->code;
    for (uint32_t row = 0, width; row < group->rows; row += width) {
        width = tile_width(group->rows - row);
        for (uint32_t r = 0; r < width; r++) {
            const uint8_t *from = row_of(job, group, row + r);
            code->widen((const int8_t *)from + k, count, w->wide + (size_t)r * count);
            pack_scales(job, from, k, count, width,
                        w->row_scales + (size_t)row * (STEP / STRATA__INT8_BLOCK) + r);
        }
        code->transpose(w->wide, count, width, count, w->packed + (size_t)row * STEP, width);
    }
}

static void pack_row_sums(const int8_job *job, const rows_group *group, uint32_t k, uint32_t count,
                          uint32_t part, work *w)
{
    for (uint32_t row = 0, width; row < group->rows; row += width) {
        width = tile_width(group->rows - row);
        for (uint32_t r = 0; r < width; r++)
            pack_sums(job, row_of(job, group, row + r), k, count, part, width,
                      w->row_sums + (size_t)row * SCALES + r);
    }
}

/* Eight outputs from `first` on, of which `outputs` exist; the others get zeros. */
static void decode_weights(const int8_job *job, uint32_t format, const uint8_t *weights,
                           uint32_t first, uint32_t outputs, uint32_t k, uint32_t count, work *w)
{
    const strata__format_info *info = strata__format_find(format);
    size_t row_bytes = (size_t)(job->inputs / info->block_values) * info->block_bytes;
    const uint8_t *block =
        weights + first * row_bytes + (size_t)(k / info->block_values) * info->block_bytes;
    for (uint32_t n = 0; n < STRATA__TILE_OUTPUTS; n++, block += row_bytes) {
        int8_t *codes = w->codes + (size_t)n * STEP;
        float *scales = w->scales + (size_t)n * SCALES, *offsets = w->offsets + (size_t)n * SCALES;
        if (n < outputs) {
            strata__decode_int8_level(job->cpu->level, format, block, count, codes, scales,
                                      offsets);
        } else {
            memset(codes, 0, count);
            memset(scales, 0, SCALES * sizeof *scales);
            memset(offsets, 0, SCALES * sizeof *offsets);
        }
        job->cpu->code->widen(codes, count, w->weights + (size_t)n * STRATA__WEIGHT_STRIDE);
    }
}

static void multiply_tiles(const int8_job *job, const rows_group *group, uint32_t format,
                           uint32_t count, float *sums, work *w)
{
    const strata__format_info *info = strata__format_find(format);
    strata__int8_step step = {
        .weights = w->weights,
        .scales = w->scales,
        .offsets = info->int8_minimum_group ? w->offsets : NULL,
        .count = count,
        .weight_group = info->int8_group,
        .offset_group = info->int8_minimum_group,
        .row_group = job->row_group,
        .weight_stride = STRATA__WEIGHT_STRIDE,
        .scale_stride = SCALES,
        .sum_stride = ROWS,
    };
    for (uint32_t row = 0; row < group->rows; row += step.width) {
        step.width = tile_width(group->rows - row);
        step.packed = w->packed + (size_t)row * STEP;
        step.row_scales = w->row_scales + (size_t)row * (STEP / STRATA__INT8_BLOCK);
        step.row_sums = w->row_sums + (size_t)row * SCALES;
        step.sums = sums + row;
        job->cpu->code->int8_step(&step);
    }
}

static void multiply_item(void *user_data, uint32_t item, uint32_t worker)
{
    const int8_job *job = user_data;
    uint32_t per_group = (job->outputs + ITEM_OUTPUTS - 1) / ITEM_OUTPUTS;
    const rows_group *group = job->groups + item / per_group;
    uint32_t first = item % per_group * ITEM_OUTPUTS, left = job->outputs - first;
    uint32_t outputs = left < ITEM_OUTPUTS ? left : ITEM_OUTPUTS;
    work *w = (work *)(void *)strata__cpu_workspace(job->cpu, worker);
    memset(w->sums, 0, sizeof w->sums);
    for (uint32_t k = 0; k < job->inputs; k += STEP) {
        uint32_t count = job->inputs - k < STEP ? job->inputs - k : STEP;
        pack_rows(job, group, k, count, w);
        for (uint32_t m = 0; m < job->matrices; m++) {
            const strata__format_info *info = strata__format_find(job->formats[m]);
            if (info->int8_minimum_group)
                pack_row_sums(job, group, k, count, info->int8_minimum_group, w);
            for (uint32_t n = 0; n < outputs; n += STRATA__TILE_OUTPUTS) {
                decode_weights(job, job->formats[m], group->weights[m], first + n, outputs - n, k,
                               count, w);
                multiply_tiles(job, group, job->formats[m], count, w->sums[m] + (size_t)n * ROWS,
                               w);
            }
        }
    }
    for (uint32_t m = 0; m < job->matrices; m++)
        job->cpu->code->transpose(w->sums[m], ROWS, ITEM_OUTPUTS, group->rows, w->out[m],
                                  ITEM_OUTPUTS);
    job->finish(job, group, first, outputs, w);
}

static void flush(int8_job *job)
{
    uint32_t per_group = (job->outputs + ITEM_OUTPUTS - 1) / ITEM_OUTPUTS;
    strata__pool_run(job->cpu->pool, job->group_count * per_group, multiply_item, job);
    job->group_count = 0;
}

static void run_experts(int8_job *job, const strata__expert_range *range, const void *const *first,
                        const void *const *second)
{
    uint32_t end = range->first_row + range->rows;
    for (uint32_t e = range->first_expert; e <= range->last_expert; e++) {
        uint32_t from = range->offsets[e], to = range->offsets[e + 1];
        from = from > range->first_row ? from : range->first_row;
        to = to < end ? to : end;
        for (; from < to; from += ROWS) {
            if (job->group_count == STRATA__BATCH_GROUPS)
                flush(job);
            job->groups[job->group_count++] = (rows_group){
                .weights = {first[e], second ? second[e] : NULL},
                .expert = e,
                .first_row = from - range->first_row,
                .rows = to - from < ROWS ? to - from : ROWS,
            };
        }
    }
    flush(job);
}

/* Elementwise loops: of the rows that gate and up read, and of h on path mmq. */
typedef struct rows_job {
    strata__cpu_kernels *cpu;
    const strata__gate_up_args *args;
} rows_job;

static void quantise_inputs(void *user_data, uint32_t item, uint32_t worker)
{
    const rows_job *job = user_data;
    const strata__gate_up_args *a = job->args;
    uint32_t group = strata__int8_row_group(a->gate.format, a->up.format), end;
    (void)worker;
    end = (item + 1) * STRATA__ROWS_PER_ITEM;
    end = end < a->range.rows ? end : a->range.rows;
    for (uint32_t r = item * STRATA__ROWS_PER_ITEM; r < end; r++)
        job->cpu->code->quantise((const float *)a->in.data +
                                     (size_t)a->sorted_row[a->range.first_row + r] * a->gate.inputs,
                                 a->gate.inputs, group,
                                 (uint8_t *)a->quantised +
                                     r * strata__quantised_row_bytes(a->gate.inputs));
}

static void activate_rows(void *user_data, uint32_t item, uint32_t worker)
{
    const rows_job *job = user_data;
    const strata__gate_up_args *a = job->args;
    uint32_t width = a->gate.outputs, end = (item + 1) * STRATA__ROWS_PER_ITEM;
    (void)worker;
    end = end < a->range.rows ? end : a->range.rows;
    for (uint32_t r = item * STRATA__ROWS_PER_ITEM; r < end; r++) {
        float *gate = a->gate_up + (size_t)r * 2 * width;
        job->cpu->code->activate(a->activation, gate, gate + width, width, gate);
        job->cpu->code->quantise(gate, width,
                                 strata__int8_row_group(a->down_format, a->down_format),
                                 (uint8_t *)a->h.data + r * strata__quantised_row_bytes(width));
    }
}

static void add_bias(float *sums, uint32_t rows, uint32_t outputs, const float *bias)
{
    for (uint32_t r = 0; bias && r < rows; r++)
        for (uint32_t n = 0; n < outputs; n++)
            sums[(size_t)r * ITEM_OUTPUTS + n] += bias[n];
}

static const float *bias_of(const strata__expert_weight *weight, uint32_t expert, uint32_t first)
{
    return weight->bias ? weight->bias + (size_t)expert * weight->outputs + first : NULL;
}

/* Copies values [first, first + n) of a quantised row from a quantised piece that begins there. */
static void place_piece(const uint8_t *piece, uint32_t first, uint32_t n, uint32_t width,
                        uint8_t *row)
{
    const uint8_t *scales = piece + strata__quantised_codes_bytes(n);
    uint8_t *to = row + strata__quantised_codes_bytes(width);
    uint32_t blocks = n / STRATA__INT8_BLOCK, at = first / STRATA__INT8_BLOCK;
    memcpy(row + first, piece, n);
    memcpy(to + (size_t)at * 4, scales, (size_t)blocks * 4);
    memcpy(to + strata__quantised_scales_bytes(width) + (size_t)at * 4,
           scales + strata__quantised_scales_bytes(n), (size_t)blocks * 4);
}

static void finish_fused(const int8_job *job, const rows_group *group, uint32_t first,
                         uint32_t outputs, work *w)
{
    const strata__gate_up_args *a = job->args;
    uint32_t h_group = strata__int8_row_group(a->down_format, a->down_format);
    uint8_t piece[ITEM_OUTPUTS + 2 * 16];
    add_bias(w->out[0], group->rows, outputs, bias_of(&a->gate, group->expert, first));
    add_bias(w->out[1], group->rows, outputs, bias_of(&a->up, group->expert, first));
    for (uint32_t r = 0; r < group->rows; r++) {
        float *gate = w->out[0] + (size_t)r * ITEM_OUTPUTS;
        job->cpu->code->activate(a->activation, gate, w->out[1] + (size_t)r * ITEM_OUTPUTS, outputs,
                                 gate);
        job->cpu->code->quantise(gate, outputs, h_group, piece);
        place_piece(piece, first, outputs, job->outputs,
                    (uint8_t *)a->h.data +
                        (group->first_row + r) * strata__quantised_row_bytes(job->outputs));
    }
}

/* The gate's sums are the first half of a row of the float buffer, the up's the second. */
static void store_half(const int8_job *job, const rows_group *group, uint32_t first,
                       uint32_t outputs, const strata__expert_weight *weight, uint32_t half,
                       work *w)
{
    const strata__gate_up_args *a = job->args;
    add_bias(w->out[0], group->rows, outputs, bias_of(weight, group->expert, first));
    for (uint32_t r = 0; r < group->rows; r++)
        memcpy(a->gate_up + ((size_t)(group->first_row + r) * 2 + half) * job->outputs + first,
               w->out[0] + (size_t)r * ITEM_OUTPUTS, outputs * sizeof(float));
}

static void finish_gate(const int8_job *job, const rows_group *group, uint32_t first,
                        uint32_t outputs, work *w)
{
    store_half(job, group, first, outputs, &((const strata__gate_up_args *)job->args)->gate, 0, w);
}

static void finish_up(const int8_job *job, const rows_group *group, uint32_t first,
                      uint32_t outputs, work *w)
{
    store_half(job, group, first, outputs, &((const strata__gate_up_args *)job->args)->up, 1, w);
}

void strata__int8_gate_up(strata__cpu_kernels *cpu, const strata__gate_up_args *args)
{
    rows_job rows = {cpu, args};
    int8_job job = {
        .cpu = cpu,
        .args = args,
        .finish = finish_fused,
        .rows = args->quantised,
        .inputs = args->gate.inputs,
        .outputs = args->gate.outputs,
        .matrices = 2,
        .formats = {args->gate.format, args->up.format},
        .row_group = strata__int8_row_group(args->gate.format, args->up.format),
    };
    strata__pool_run(cpu->pool, strata__row_items(args->range.rows), quantise_inputs, &rows);
    if (args->path == STRATA__PATH_FUSED) {
        run_experts(&job, &args->range, args->gate.blobs, args->up.blobs);
        return;
    }
    job.matrices = 1;
    job.finish = finish_gate;
    run_experts(&job, &args->range, args->gate.blobs, NULL);
    job.formats[0] = args->up.format;
    job.finish = finish_up;
    run_experts(&job, &args->range, args->up.blobs, NULL);
    strata__pool_run(cpu->pool, strata__row_items(args->range.rows), activate_rows, &rows);
}

static void finish_down(const int8_job *job, const rows_group *group, uint32_t first,
                        uint32_t outputs, work *w)
{
    const strata__down_args *a = job->args;
    float scale = a->expert_scale ? a->expert_scale[group->expert] : 1.0f;
    add_bias(w->out[0], group->rows, outputs, bias_of(&a->down, group->expert, first));
    for (uint32_t r = 0; r < group->rows; r++) {
        float *to = a->y + (size_t)(group->first_row + r) * job->outputs + first;
        for (uint32_t n = 0; n < outputs; n++)
            to[n] = w->out[0][(size_t)r * ITEM_OUTPUTS + n] * scale;
    }
}

void strata__int8_down(strata__cpu_kernels *cpu, const strata__down_args *args)
{
    int8_job job = {
        .cpu = cpu,
        .args = args,
        .finish = finish_down,
        .rows = args->h.data,
        .inputs = args->down.inputs,
        .outputs = args->down.outputs,
        .matrices = 1,
        .formats = {args->down.format},
        .row_group = strata__int8_row_group(args->down.format, args->down.format),
    };
    run_experts(&job, &args->range, args->down.blobs, NULL);
}

static strata_status check_format(const char *what, uint32_t format)
{
    const strata__format_info *info = strata__format_find(format);
    if (info && info->int8_group)
        return STRATA_OK;
    return strata__fail(STRATA_ERR_UNSUPPORTED, "%s: format %u has no int8 form", what, format);
}

strata_status strata__int8_check_gate_up(const strata__gate_up_args *args)
{
    strata_status status = check_format("gate_up", args->gate.format);
    if (!status)
        status = check_format("gate_up", args->up.format);
    if (!status)
        status = check_format("gate_up", args->down_format);
    if (!status &&
        args->gate.outputs % strata__int8_row_group(args->down_format, args->down_format))
        status = strata__fail(STRATA_ERR_UNSUPPORTED,
                              "gate_up: %u hidden values are no whole groups of the int8 paths",
                              args->gate.outputs);
    if (!status &&
        (!args->quantised || !args->h.data || (args->path == STRATA__PATH_MMQ && !args->gate_up)))
        status = strata__fail(STRATA_ERR_BUFFER_TOO_SMALL,
                              "gate_up: a buffer of the int8 paths is missing");
    return status;
}

strata_status strata__int8_check_down(const strata__down_args *args)
{
    return check_format("down", args->down.format);
}
