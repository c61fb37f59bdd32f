/* SPDX-License-Identifier: MIT */
/* Operations on rows: embedding, norm, activation, combination of expert outputs. */
#include <math.h>
#include <stddef.h>

#include "base/error.h"
#include "kernels/cpu/cpu.h"

STRATA__CPU_TASK(embed);
STRATA__CPU_TASK(norm);
STRATA__CPU_TASK(activate);
STRATA__CPU_TASK(combine);

strata_status strata__cpu_check_weight(const char *what, uint32_t format, uint32_t inputs)
{
    const strata__format_info *info = strata__format_find(format);
    if (!info)
        return strata__fail(STRATA_ERR_UNSUPPORTED, "%s: format %u is not decoded", what, format);
    if (inputs == 0 || inputs % info->block_values)
        return strata__fail(STRATA_ERR_UNSUPPORTED, "%s: rows of %u values are no blocks of %s",
                            what, inputs, info->name);
    return STRATA_OK;
}

/* Rows [*first, the result) of an item. */
static uint32_t item_rows(uint32_t item, uint32_t rows, uint32_t *first)
{
    *first = item * STRATA__ROWS_PER_ITEM;
    uint32_t left = rows - *first;
    return *first + (left < STRATA__ROWS_PER_ITEM ? left : STRATA__ROWS_PER_ITEM);
}

static void embed_item(void *user_data, uint32_t item, uint32_t worker)
{
    const embed_task *task = user_data;
    const strata__embed_args *a = &task->args;
    const strata__format_info *info = strata__format_find(a->table.format);
    size_t row_bytes = (size_t)(a->table.inputs / info->block_values) * info->block_bytes;
    uint32_t row, end = item_rows(item, a->rows, &row);
    (void)worker;
    for (; row < end; row++) {
        float *x = a->x + (size_t)row * a->table.inputs;
        const uint8_t *source = (const uint8_t *)a->table.data + (size_t)a->tokens[row] * row_bytes;
        strata__decode_row_level(task->cpu->level, a->table.format, source, a->table.inputs, x);
        for (uint32_t i = 0; i < a->table.inputs; i++)
            x[i] *= a->scale;
    }
}

static void run_embed(const void *arguments)
{
    embed_task task = *(const embed_task *)arguments;
    strata__pool_run(task.cpu->pool, strata__row_items(task.args.rows), embed_item, &task);
}

strata_status strata__cpu_embed(strata__kernels *kernels, void *stream,
                                const strata__embed_args *args)
{
    strata_status status =
        strata__cpu_check_weight("embed", args->table.format, args->table.inputs);
    return status || !args->rows ? status : embed_enqueue(kernels, stream, args, run_embed);
}

static void norm_item(void *user_data, uint32_t item, uint32_t worker)
{
    const norm_task *task = user_data;
    const strata__norm_args *a = &task->args;
    uint32_t row, end = item_rows(item, a->rows, &row);
    (void)worker;
    for (; row < end; row++) {
        const float *x = a->x + (size_t)row * a->width;
        double mean = task->cpu->code->sum_squares(x, a->width) / a->width;
        float inverse = (float)(1.0 / sqrt(mean + (double)a->eps));
        if (a->inv_rms)
            a->inv_rms[row] = inverse;
        if (!a->out.data)
            continue;
        float *out = (float *)a->out.data + (size_t)row * a->width;
        for (uint32_t i = 0; i < a->width; i++)
            out[i] = x[i] * inverse * a->weight[i];
    }
}

static void run_norm(const void *arguments)
{
    norm_task task = *(const norm_task *)arguments;
    strata__pool_run(task.cpu->pool, strata__row_items(task.args.rows), norm_item, &task);
}

strata_status strata__cpu_norm(strata__kernels *kernels, void *stream,
                               const strata__norm_args *args)
{
    return args->rows && args->width ? norm_enqueue(kernels, stream, args, run_norm) : STRATA_OK;
}

static void activate_item(void *user_data, uint32_t item, uint32_t worker)
{
    const activate_task *task = user_data;
    const strata__activate_args *a = &task->args;
    uint32_t row, end = item_rows(item, a->rows, &row);
    (void)worker;
    for (; row < end; row++)
        task->cpu->code->activate(a->activation, a->gate + (size_t)row * a->stride,
                                  a->up + (size_t)row * a->stride, a->width,
                                  (float *)a->out.data + (size_t)row * a->width);
}

static void run_activate(const void *arguments)
{
    activate_task task = *(const activate_task *)arguments;
    strata__pool_run(task.cpu->pool, strata__row_items(task.args.rows), activate_item, &task);
}

strata_status strata__cpu_activate(strata__kernels *kernels, void *stream,
                                   const strata__activate_args *args)
{
    return args->rows ? activate_enqueue(kernels, stream, args, run_activate) : STRATA_OK;
}

static void combine_row(const strata__combine_args *a, uint32_t row)
{
    float *x = a->x + (size_t)row * a->width;
    for (uint32_t j = 0; j < a->top_k; j++) {
        uint32_t sorted = a->sorted_index[(size_t)row * a->top_k + j];
        if (sorted < a->first_row || sorted - a->first_row >= a->rows)
            continue;
        const float *y = a->y + (size_t)(sorted - a->first_row) * a->width;
        float weight = a->alpha * a->weights[(size_t)row * a->top_k + j];
        for (uint32_t i = 0; i < a->width; i++)
            x[i] += weight * y[i];
    }
}

static void combine_item(void *user_data, uint32_t item, uint32_t worker)
{
    const combine_task *task = user_data;
    uint32_t row, end = item_rows(item, task->args.tokens, &row);
    (void)worker;
    for (; row < end; row++)
        combine_row(&task->args, row);
}

static void run_combine(const void *arguments)
{
    combine_task task = *(const combine_task *)arguments;
    strata__pool_run(task.cpu->pool, strata__row_items(task.args.tokens), combine_item, &task);
}

strata_status strata__cpu_combine(strata__kernels *kernels, void *stream,
                                  const strata__combine_args *args)
{
    return args->tokens && args->rows ? combine_enqueue(kernels, stream, args, run_combine)
                                      : STRATA_OK;
}
