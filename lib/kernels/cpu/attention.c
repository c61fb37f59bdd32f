/* SPDX-License-Identifier: MIT */
/*
 * Causal grouped-query attention with a running softmax (Milakov and Gimelshein, 2018).
 *
 * An item takes one KV head and a block of columns, pairs of a row and one of the query heads that
 * share the KV head. Keys are taken KEY_STEP positions at a time, at multiples of KEY_STEP:
 *   scores[key][column]  = keys as weights times the packed queries
 *   scores               -> exp(score - maximum), which are packed rows for
 *   outputs[d][column]  += transposed values as weights times scores
 * A column is one lane of all these and its keys come in ascending order, so its bits do not depend
 * on the columns beside it, and steps that a column does not see leave it as it is.
 */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "kernels/cpu/kv.h"

STRATA__CPU_TASK(attention);

enum { MAX_COLUMNS = 128, PADDING = 16, VALUE_STRIDE = STRATA__KEY_STEP + PADDING };

/* The parts of a thread's workspace. */
typedef struct tiles {
    float *queries; /* per tile [head_size][width] */
    float *outputs; /* per tile [head_size][width] */
    float *scores;  /* per tile [KEY_STEP][width] */
    float *rows;    /* [KEY_STEP][head_size + PADDING] decoded keys or values */
    float *values;  /* [head_size][VALUE_STRIDE] transposed */
    float maximum[MAX_COLUMNS], sum[MAX_COLUMNS];
    int32_t low[MAX_COLUMNS], high[MAX_COLUMNS]; /* keys a column sees, absolute */
    uint32_t columns;                            /* used */
    uint32_t head;                               /* the KV head */
    uint32_t first_column;                       /* of the segment */
} tiles;

static uint64_t workspace_floats(uint32_t head_size, uint32_t columns)
{
    return (uint64_t)columns * (2 * (uint64_t)head_size + STRATA__KEY_STEP) +
           (uint64_t)STRATA__KEY_STEP * (head_size + PADDING) + (uint64_t)head_size * VALUE_STRIDE;
}

/* Columns of an item: a multiple of 8 that fits the workspace, or 0. */
static uint32_t block_columns(uint32_t head_size)
{
    uint32_t columns = MAX_COLUMNS;
    while (columns && workspace_floats(head_size, columns) > STRATA__WORKSPACE_FLOATS)
        columns = columns > 32 ? columns - 32 : columns - 8;
    return columns;
}

static uint32_t tile_width(uint32_t columns)
{
    return columns > 24 ? 32 : columns > 8 ? 16 : 8;
}

static void place_tiles(tiles *t, float *workspace, uint32_t head_size, uint32_t columns)
{
    t->queries = workspace;
    t->outputs = t->queries + (size_t)columns * head_size;
    t->scores = t->outputs + (size_t)columns * head_size;
    t->rows = t->scores + (size_t)columns * STRATA__KEY_STEP;
    t->values = t->rows + (size_t)STRATA__KEY_STEP * (head_size + PADDING);
}

/* Row of the segment and query head of a column. */
static uint32_t column_row(const strata__attention_args *a, const tiles *t, uint32_t column)
{
    return (t->first_column + column) / (a->heads / a->kv.kv_heads);
}

static size_t column_offset(const strata__attention_args *a, const strata__segment *s,
                            const tiles *t, uint32_t column)
{
    uint32_t shared = a->heads / a->kv.kv_heads;
    uint32_t head = t->head * shared + (t->first_column + column) % shared;
    return ((size_t)(s->first_row + column_row(a, t, column)) * a->heads + head) * a->kv.head_size;
}

static void load_queries(const attention_task *task, const strata__segment *s, tiles *t)
{
    const strata__attention_args *a = &task->args;
    for (uint32_t start = 0; start < t->columns;) {
        uint32_t width = tile_width(t->columns - start);
        const float *sources[STRATA__TILE_ROWS];
        uint32_t used = t->columns - start < width ? t->columns - start : width;
        for (uint32_t c = 0; c < used; c++)
            sources[c] = (const float *)a->q.data + column_offset(a, s, t, start + c);
        task->cpu->code->pack(sources, NULL, NULL, used, width, a->kv.head_size,
                              t->queries + (size_t)start * a->kv.head_size);
        for (uint32_t c = start; c < start + width; c++) {
            uint32_t position = s->position + column_row(a, t, c);
            t->maximum[c] = -INFINITY;
            t->sum[c] = 0;
            t->high[c] = c < t->columns ? (int32_t)position + 1 : 0;
            t->low[c] =
                a->window && position >= a->window ? (int32_t)(position - a->window) + 1 : 0;
        }
        start += width;
    }
}

/* Rows [key, key + count) of keys or values, zero up to KEY_STEP. */
static void load_rows(const attention_task *task, const strata__segment *s, const tiles *t,
                      void *base, uint32_t key, uint32_t count)
{
    const strata__kv_view *kv = &task->args.kv;
    uint32_t stride = kv->head_size + PADDING;
    strata__kv_row row = strata__kv_row_at(kv, base, s->sequence, key, t->head);
    strata__kv_load(task->cpu, kv, row, count, t->rows, stride);
    for (uint32_t r = count; r < STRATA__KEY_STEP; r++)
        memset(t->rows + (size_t)r * stride, 0, kv->head_size * sizeof(float));
}

static void score_tile(const attention_task *task, tiles *t, uint32_t start, uint32_t width,
                       uint32_t key)
{
    const strata__attention_args *a = &task->args;
    const strata__cpu_code *code = task->cpu->code;
    uint32_t size = a->kv.head_size, stride = size + PADDING;
    float correction[STRATA__TILE_ROWS];
    int32_t first[STRATA__TILE_ROWS], last[STRATA__TILE_ROWS];
    float *scores = t->scores + (size_t)start * STRATA__KEY_STEP;
    for (uint32_t n = 0; n < STRATA__KEY_STEP; n += STRATA__TILE_OUTPUTS)
        code->product(t->queries + (size_t)start * size, width, t->rows + (size_t)n * stride,
                      stride, size, scores + (size_t)n * width, width, 1);
    for (uint32_t c = 0; c < width; c++) {
        first[c] = t->low[start + c] - (int32_t)key;
        last[c] = t->high[start + c] - (int32_t)key;
    }
    code->softmax(&(strata__softmax_step){
        .scores = scores,
        .maximum = t->maximum + start,
        .sum = t->sum + start,
        .correction = correction,
        .first = first,
        .last = last,
        .width = width,
        .scale = a->scale,
    });
    code->scale_columns(t->outputs + (size_t)start * size, size, width, correction);
}

/*
 * All tiles against the keys and values of one step; `first` of the item's steps starts the sums.
 */
static void attend_step(const attention_task *task, const strata__segment *s, tiles *t,
                        uint32_t key, uint32_t count)
{
    const strata__attention_args *a = &task->args;
    const strata__cpu_code *code = task->cpu->code;
    uint32_t size = a->kv.head_size;
    load_rows(task, s, t, a->kv.k, key, count);
    for (uint32_t start = 0; start < t->columns;) {
        uint32_t width = tile_width(t->columns - start);
        score_tile(task, t, start, width, key);
        start += width;
    }
    load_rows(task, s, t, a->kv.v, key, count);
    code->transpose(t->rows, size + PADDING, STRATA__KEY_STEP, size, t->values, VALUE_STRIDE);
    for (uint32_t start = 0; start < t->columns;) {
        uint32_t width = tile_width(t->columns - start);
        for (uint32_t d = 0; d < size; d += STRATA__TILE_OUTPUTS)
            code->product(t->scores + (size_t)start * STRATA__KEY_STEP, width,
                          t->values + (size_t)d * VALUE_STRIDE, VALUE_STRIDE, STRATA__KEY_STEP,
                          t->outputs + ((size_t)start * size + (size_t)d * width), width, 0);
        start += width;
    }
}

/* Divides by the sums, which a sink's logit joins last, and writes the rows. */
static void store_outputs(const attention_task *task, const strata__segment *s, const tiles *t)
{
    const strata__attention_args *a = &task->args;
    uint32_t size = a->kv.head_size, shared = a->heads / a->kv.kv_heads;
    for (uint32_t start = 0; start < t->columns;) {
        uint32_t width = tile_width(t->columns - start);
        for (uint32_t c = start; c < start + width && c < t->columns; c++) {
            double sum = t->sum[c];
            if (a->sinks) {
                uint32_t head = t->head * shared + (t->first_column + c) % shared;
                sum += exp((double)a->sinks[head] - (double)t->maximum[c]);
            }
            float factor = (float)(1.0 / sum);
            float *out = (float *)a->out.data + column_offset(a, s, t, c);
            const float *from = t->outputs + (size_t)start * size + (c - start);
            for (uint32_t d = 0; d < size; d++)
                out[d] = from[(size_t)d * width] * factor;
        }
        start += width;
    }
}

static void attend_block(const attention_task *task, const strata__segment *s, tiles *t)
{
    uint32_t size = task->args.kv.head_size;
    uint32_t from = UINT32_MAX, end = 0;
    load_queries(task, s, t);
    for (uint32_t c = 0; c < t->columns; c++) {
        from = (uint32_t)t->low[c] < from ? (uint32_t)t->low[c] : from;
        end = (uint32_t)t->high[c] > end ? (uint32_t)t->high[c] : end;
    }
    uint32_t padded =
        (t->columns + STRATA__TILE_MIN_ROWS - 1) / STRATA__TILE_MIN_ROWS * STRATA__TILE_MIN_ROWS;
    memset(t->outputs, 0, (size_t)padded * size * sizeof(float));
    from -= from % STRATA__KEY_STEP;
    for (uint32_t key = from; key < end; key += STRATA__KEY_STEP)
        attend_step(task, s, t, key, end - key < STRATA__KEY_STEP ? end - key : STRATA__KEY_STEP);
    store_outputs(task, s, t);
}

/* Column blocks of a segment for one KV head. */
static uint32_t segment_blocks(const strata__attention_args *a, const strata__segment *s,
                               uint32_t columns)
{
    uint64_t all = (uint64_t)s->rows * (a->heads / a->kv.kv_heads);
    return (uint32_t)strata__divide_up_u64(all, columns);
}

static void attention_item(void *user_data, uint32_t item, uint32_t worker)
{
    const attention_task *task = user_data;
    const strata__attention_args *a = &task->args;
    const strata__segment *s = a->segments;
    uint32_t size = a->kv.head_size, columns = block_columns(size);
    tiles t;
    for (; item >= segment_blocks(a, s, columns) * a->kv.kv_heads; s++)
        item -= segment_blocks(a, s, columns) * a->kv.kv_heads;
    uint32_t blocks = segment_blocks(a, s, columns);
    /* The longest blocks are the last ones; they are started first. */
    t.first_column = (blocks - 1 - item / a->kv.kv_heads) * columns;
    t.head = item % a->kv.kv_heads;
    uint32_t left = s->rows * (a->heads / a->kv.kv_heads) - t.first_column;
    t.columns = left < columns ? left : columns;
    place_tiles(&t, strata__cpu_workspace(task->cpu, worker), size, columns);
    attend_block(task, s, &t);
}

static void run_attention(const void *arguments)
{
    attention_task task = *(const attention_task *)arguments;
    const strata__attention_args *a = &task.args;
    uint32_t columns = block_columns(a->kv.head_size), items = 0;
    for (uint32_t i = 0; i < a->segment_count; i++)
        items += segment_blocks(a, a->segments + i, columns) * a->kv.kv_heads;
    strata__pool_run(task.cpu->pool, items, attention_item, &task);
}

strata_status strata__cpu_attention(strata__kernels *kernels, void *stream,
                                    const strata__attention_args *args)
{
    uint32_t size = args->kv.head_size;
    strata_status status = strata__kv_check("attention", &args->kv);
    if (!status && (size == 0 || size % STRATA__TILE_OUTPUTS || !block_columns(size)))
        status = strata__fail(STRATA_ERR_UNSUPPORTED, "attention: heads of %u values", size);
    if (!status && (args->kv.kv_heads == 0 || args->heads % args->kv.kv_heads))
        status = strata__fail(STRATA_ERR_UNSUPPORTED, "attention: %u heads share %u KV heads",
                              args->heads, args->kv.kv_heads);
    return status || !args->rows || !args->segment_count
               ? status
               : attention_enqueue(kernels, stream, args, run_attention);
}
