/* SPDX-License-Identifier: MIT */
#include "kernels/cpu/product.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "base/error.h"

/* Values of a weight row that are decoded before they are multiplied with few rows. */
enum { FEW_K_STEP = 2048 };

/* Parts that a thread's work is cut into, so that one which runs late has little left. */
enum { FEW_SHARES = 8 };

_Static_assert(FEW_K_STEP % STRATA__DOT_LANES == 0 && FEW_K_STEP % STRATA__K_STEP == 0,
               "a step ends with whole blocks and lanes");

/* Working memory of a thread for few rows. */
typedef struct few_workspace {
    float weights[FEW_K_STEP];
    float lanes[STRATA__GROUP_ROWS][STRATA__DOT_LANES];
    float sums[2][STRATA__GROUP_ROWS * STRATA__TILE_OUTPUTS]; /* by matrix */
} few_workspace;

_Static_assert(sizeof(few_workspace) <= STRATA__WORKSPACE_FLOATS * sizeof(float),
               "it must fit what a thread has");

/*
 * Width of the next tile of a group with `rows` rows left: never more than seven rows of padding.
 */
static uint32_t tile_width(uint32_t rows)
{
    return rows > 24 ? 32 : rows > 8 ? 16 : 8;
}

static uint32_t padded_rows(uint32_t rows)
{
    return (rows + STRATA__TILE_MIN_ROWS - 1) / STRATA__TILE_MIN_ROWS * STRATA__TILE_MIN_ROWS;
}

static uint32_t output_tiles(const strata__product_job *job)
{
    return (job->outputs + STRATA__TILE_OUTPUTS - 1) / STRATA__TILE_OUTPUTS;
}

static uint32_t tile_count(uint32_t rows)
{
    uint32_t count = 0;
    for (uint32_t row = 0; row < rows; row += tile_width(rows - row))
        count++;
    return count;
}

strata_status strata__product_check_scratch(const char *what, const strata__scratch *scratch,
                                            uint32_t inputs)
{
    uint64_t least = (uint64_t)STRATA__TILE_MIN_ROWS * inputs * sizeof(float);
    if (scratch->data && scratch->bytes >= least)
        return STRATA_OK;
    return strata__fail(STRATA_ERR_BUFFER_TOO_SMALL,
                        "%s: scratch of %" PRIu64 " bytes, at least %" PRIu64 " needed", what,
                        scratch->data ? scratch->bytes : 0, least);
}

static void pack_tile(void *user_data, uint32_t item, uint32_t worker)
{
    const strata__product_job *job = user_data;
    const strata__product_group *group = job->groups;
    const float *sources[STRATA__TILE_ROWS];
    float factors[STRATA__TILE_ROWS];
    uint32_t row = 0;
    (void)worker;
    while (group + 1 < job->groups + job->group_count && group[1].first_tile <= item)
        group++;
    for (uint32_t t = group->first_tile; t < item; t++)
        row += tile_width(group->rows - row);
    uint32_t width = tile_width(group->rows - row), rows = group->rows - row;
    rows = rows < width ? rows : width;
    for (uint32_t r = 0; r < rows; r++) {
        uint32_t source = group->first_row + row + r;
        if (job->row_index)
            source = job->row_index[source];
        sources[r] = job->rows + (size_t)source * job->inputs;
        factors[r] = job->row_factor ? job->row_factor[source] : 1.0f;
    }
    job->cpu->code->pack(sources, factors, job->gain, rows, width, job->inputs,
                         (float *)job->scratch.data +
                             (size_t)(group->packed_row + row) * job->inputs);
}

static size_t weight_row_bytes(const strata__product_job *job, uint32_t format)
{
    const strata__format_info *info = strata__format_find(format);
    return (size_t)(job->inputs / info->block_values) * info->block_bytes;
}

/* Values [k, k + count) of `outputs` weight rows, STRATA__WEIGHT_STRIDE apart. */
static void decode_weights(const strata__product_job *job, uint32_t format, const uint8_t *weights,
                           uint32_t first_output, uint32_t outputs, uint32_t k, uint32_t count,
                           float *out)
{
    const strata__format_info *info = strata__format_find(format);
    size_t row_bytes = weight_row_bytes(job, format);
    const uint8_t *block =
        weights + first_output * row_bytes + (size_t)(k / info->block_values) * info->block_bytes;
    for (uint32_t n = 0; n < outputs; n++, block += row_bytes)
        strata__decode_row_level(job->cpu->level, format, block, count,
                                 out + (size_t)n * STRATA__WEIGHT_STRIDE);
}

/* All tiles of a group against the weights of one K step. */
static void multiply_tiles(const strata__product_job *job, const strata__product_group *group,
                           const float *weights, uint32_t k, uint32_t count, float *sums,
                           uint32_t stride)
{
    const float *packed =
        (const float *)job->scratch.data + (size_t)group->packed_row * job->inputs;
    for (uint32_t row = 0; row < group->rows;) {
        uint32_t width = tile_width(group->rows - row);
        job->cpu->code->product(packed + (size_t)row * job->inputs + (size_t)k * width, width,
                                weights, STRATA__WEIGHT_STRIDE, count, sums + row, stride, k == 0);
        row += width;
    }
}

static void multiply_item(void *user_data, uint32_t item, uint32_t worker)
{
    enum { ALL_SUMS = STRATA__TILE_OUTPUTS * STRATA__GROUP_ROWS };
    const strata__product_job *job = user_data;
    uint32_t per_group = output_tiles(job);
    const strata__product_group *group = job->groups + item / per_group;
    uint32_t rows = padded_rows(group->rows), first = item % per_group * STRATA__TILE_OUTPUTS;
    float *weights = strata__cpu_workspace(job->cpu, worker);
    float *sums = weights + STRATA__TILE_OUTPUTS * STRATA__WEIGHT_STRIDE;
    strata__product_sums out = {
        .group = group,
        .sums = {sums + 2 * ALL_SUMS, sums + 3 * ALL_SUMS},
        .stride = STRATA__TILE_OUTPUTS,
        .first_output = first,
        .outputs = job->outputs - first < STRATA__TILE_OUTPUTS ? job->outputs - first
                                                               : STRATA__TILE_OUTPUTS,
    };
    for (uint32_t k = 0; k < job->inputs; k += STRATA__K_STEP) {
        uint32_t count = job->inputs - k < STRATA__K_STEP ? job->inputs - k : STRATA__K_STEP;
        for (uint32_t m = 0; m < job->matrices; m++) {
            decode_weights(job, job->formats[m], group->weights[m], first, out.outputs, k, count,
                           weights);
            multiply_tiles(job, group, weights, k, count, sums + m * ALL_SUMS, rows);
        }
    }
    for (uint32_t m = 0; m < job->matrices; m++)
        job->cpu->code->transpose(sums + m * ALL_SUMS, rows, STRATA__TILE_OUTPUTS, rows,
                                  out.sums[m], STRATA__TILE_OUTPUTS);
    job->finish(job, &out);
}

static const float *source_row(const strata__product_job *job, uint32_t row)
{
    return job->rows + (size_t)(job->row_index ? job->row_index[row] : row) * job->inputs;
}

/* All rows of a group against a piece of a weight row. */
static void dot_rows(const strata__product_job *job, const strata__product_group *group, uint32_t k,
                     uint32_t count, few_workspace *space)
{
    for (uint32_t r = 0; r < group->rows; r++)
        job->cpu->code->dot(source_row(job, group->first_row + r) + k, space->weights, count,
                            space->lanes[r], k == 0);
}

/* Sums of all rows of a group with output `first` + n of matrix m. */
static void multiply_output(const strata__product_job *job, const strata__product_group *group,
                            uint32_t m, uint32_t first, uint32_t n, few_workspace *space)
{
    for (uint32_t k = 0; k < job->inputs; k += FEW_K_STEP) {
        uint32_t count = job->inputs - k < FEW_K_STEP ? job->inputs - k : FEW_K_STEP;
        decode_weights(job, job->formats[m], group->weights[m], first + n, 1, k, count,
                       space->weights);
        dot_rows(job, group, k, count, space);
    }
    for (uint32_t r = 0; r < group->rows; r++)
        space->sums[m][r * STRATA__TILE_OUTPUTS + n] = job->cpu->code->add_lanes(space->lanes[r]);
}

/* The sums of a single row. */
static void multiply_row(const strata__product_job *job, const strata__product_group *group,
                         uint32_t m, uint32_t first, uint32_t outputs, float *sums)
{
    size_t row_bytes = weight_row_bytes(job, job->formats[m]);
    strata__dots_level(job->cpu->level, job->formats[m], group->weights[m] + first * row_bytes,
                       row_bytes, job->inputs, outputs, source_row(job, group->first_row), sums);
}

/* One tile: eight outputs of a group. */
static void multiply_few(const strata__product_job *job, uint32_t tile, few_workspace *space)
{
    uint32_t per_group = output_tiles(job);
    const strata__product_group *group = job->groups + tile / per_group;
    uint32_t first = tile % per_group * STRATA__TILE_OUTPUTS, left = job->outputs - first;
    strata__product_sums out = {
        .group = group,
        .sums = {space->sums[0], space->sums[1]},
        .stride = STRATA__TILE_OUTPUTS,
        .first_output = first,
        .outputs = left < STRATA__TILE_OUTPUTS ? left : STRATA__TILE_OUTPUTS,
    };
    for (uint32_t m = 0; m < job->matrices; m++) {
        if (group->rows == 1)
            multiply_row(job, group, m, first, out.outputs, space->sums[m]);
        else
            for (uint32_t n = 0; n < out.outputs; n++)
                multiply_output(job, group, m, first, n, space);
    }
    job->finish(job, &out);
}

static void multiply_few_item(void *user_data, uint32_t item, uint32_t worker)
{
    const strata__product_job *job = user_data;
    uint32_t all = job->group_count * output_tiles(job), end = (item + 1) * job->few_span;
    few_workspace *space = (few_workspace *)(void *)strata__cpu_workspace(job->cpu, worker);
    for (uint32_t tile = item * job->few_span; tile < end && tile < all; tile++)
        multiply_few(job, tile, space);
}

/* Tiles that follow each other are a thread's: what it reads should be one long piece. */
static void run_few(strata__product_job *job)
{
    uint32_t all = job->group_count * output_tiles(job);
    job->few_span = all / (job->cpu->threads * FEW_SHARES) + 1;
    strata__pool_run(job->cpu->pool, (all + job->few_span - 1) / job->few_span, multiply_few_item,
                     job);
}

void strata__product_flush(strata__product_job *job)
{
    if (job->few && job->cpu->any_order) {
        run_few(job);
    } else if (strata__product_by_blas(job->cpu)) {
        for (uint32_t g = 0; g < job->group_count; g++)
            strata__product_run_blas(job, job->groups + g);
    } else {
        strata__pool_run(job->cpu->pool, job->tiles, pack_tile, job);
        strata__pool_run(job->cpu->pool, job->group_count * output_tiles(job), multiply_item, job);
    }
    job->group_count = 0;
    job->tiles = 0;
    job->packed_rows = 0;
}

/* Packed rows a batch holds. BLAS keeps decoded weights in the other half of the scratch. */
static uint32_t batch_rows(const strata__product_job *job)
{
    uint64_t rows = job->scratch.bytes / ((uint64_t)job->inputs * sizeof(float));
    if (strata__product_by_blas(job->cpu))
        return rows / 2 < STRATA__GROUP_ROWS ? (uint32_t)(rows / 2) : STRATA__GROUP_ROWS;
    rows = rows < UINT32_MAX ? rows : UINT32_MAX;
    return (uint32_t)(rows - rows % STRATA__TILE_MIN_ROWS);
}

void strata__product_add(strata__product_job *job, const void *first, const void *second,
                         uint32_t tag, uint32_t first_row, uint32_t rows)
{
    uint32_t capacity = batch_rows(job);
    while (rows) {
        if (job->group_count == STRATA__BATCH_GROUPS || job->packed_rows >= capacity)
            strata__product_flush(job);
        uint32_t left = capacity - job->packed_rows;
        uint32_t most = left < STRATA__GROUP_ROWS ? left : STRATA__GROUP_ROWS;
        uint32_t take = rows < most ? rows : most;
        /* An expert is cut only when it does not fit an empty scratch: a cut decodes twice. */
        if (take < rows && take < STRATA__GROUP_ROWS && job->packed_rows) {
            strata__product_flush(job);
            continue;
        }
        job->groups[job->group_count++] = (strata__product_group){
            .weights = {first, second},
            .tag = tag,
            .first_row = first_row,
            .rows = take,
            .first_tile = job->tiles,
            .packed_row = job->packed_rows,
        };
        job->tiles += tile_count(take);
        job->packed_rows += padded_rows(take);
        first_row += take;
        rows -= take;
    }
}
