/* SPDX-License-Identifier: MIT */
/*
 * A batch through BLAS: rows are gathered and weights decoded by the pool, then one sgemm a group
 * and block of outputs is called from the launching thread, with whatever threads the application's
 * BLAS uses. Its thread count is global and the application's, so it is not touched.
 *
 * Only for machines that have no product tile of their own: with AVX2 or AVX-512 the tile reaches
 * 107 to 117 GFLOP/s a core where OpenBLAS 0.3.21 reaches 67 to 95 for the shapes of experts, and
 * it keeps the bits of a row independent of the rows beside it, which sgemm does not.
 */
#include "kernels/cpu/product.h"

#include <stddef.h>

#if defined(STRATA_HAVE_BLAS)

#include <cblas.h>

/* A part of the batch between two calls of sgemm. */
typedef struct blas_block {
    const strata__product_job *job;
    const strata__product_group *group;
    float *rows;    /* [group rows][inputs] */
    float *weights; /* [outputs][inputs] */
    float *sums[2]; /* [group rows][outputs] */
    uint32_t matrix;
    uint32_t first_output;
    uint32_t outputs;
} blas_block;

static void gather_row(void *user_data, uint32_t item, uint32_t worker)
{
    const blas_block *block = user_data;
    const strata__product_job *job = block->job;
    uint32_t source = block->group->first_row + item;
    float *out = block->rows + (size_t)item * job->inputs;
    (void)worker;
    if (job->row_index)
        source = job->row_index[source];
    const float *in = job->rows + (size_t)source * job->inputs;
    for (uint32_t i = 0; i < job->inputs; i++)
        out[i] = job->gain ? in[i] * job->row_factor[source] * job->gain[i] : in[i];
}

static void decode_output(void *user_data, uint32_t item, uint32_t worker)
{
    const blas_block *block = user_data;
    const strata__product_job *job = block->job;
    uint32_t format = job->formats[block->matrix];
    const strata__format_info *info = strata__format_find(format);
    size_t row_bytes = (size_t)(job->inputs / info->block_values) * info->block_bytes;
    (void)worker;
    strata__decode_row_level(job->cpu->level, format,
                             block->group->weights[block->matrix] +
                                 (block->first_output + item) * row_bytes,
                             job->inputs, block->weights + (size_t)item * job->inputs);
}

static void finish_outputs(void *user_data, uint32_t item, uint32_t worker)
{
    const blas_block *block = user_data;
    uint32_t first = item * STRATA__TILE_OUTPUTS, left = block->outputs - first;
    strata__product_sums sums = {
        .group = block->group,
        .sums = {block->sums[0] + first, block->sums[1] + first},
        .stride = block->outputs,
        .first_output = block->first_output + first,
        .outputs = left < STRATA__TILE_OUTPUTS ? left : STRATA__TILE_OUTPUTS,
    };
    (void)worker;
    block->job->finish(block->job, &sums);
}

static void multiply_block(blas_block *block)
{
    const strata__product_job *job = block->job;
    int rows = (int)block->group->rows, outputs = (int)block->outputs, inputs = (int)job->inputs;
    for (block->matrix = 0; block->matrix < job->matrices; block->matrix++) {
        strata__pool_run(job->cpu->pool, block->outputs, decode_output, block);
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, rows, outputs, inputs, 1.0f,
                    block->rows, inputs, block->weights, inputs, 0.0f, block->sums[block->matrix],
                    outputs);
    }
    strata__pool_run(job->cpu->pool,
                     (block->outputs + STRATA__TILE_OUTPUTS - 1) / STRATA__TILE_OUTPUTS,
                     finish_outputs, block);
}

bool strata__product_by_blas(const strata__cpu_kernels *cpu)
{
    return cpu->any_order && cpu->level == STRATA__CPU_BASE;
}

/* The rows of a group take at most half of the scratch, see strata__product_add(). */
void strata__product_run_blas(const strata__product_job *job, const strata__product_group *group)
{
    uint64_t held = job->scratch.bytes / ((uint64_t)job->inputs * sizeof(float)) - group->rows;
    uint64_t sums = (uint64_t)job->cpu->threads * STRATA__WORKSPACE_FLOATS / 2 / group->rows;
    uint32_t most = (uint32_t)(held < sums ? held : sums);
    blas_block block = {
        .job = job,
        .group = group,
        .rows = job->scratch.data,
        .weights = (float *)job->scratch.data + (size_t)group->rows * job->inputs,
        .sums = {job->cpu->workspaces,
                 job->cpu->workspaces + (size_t)job->cpu->threads * STRATA__WORKSPACE_FLOATS / 2},
    };
    strata__pool_run(job->cpu->pool, group->rows, gather_row, &block);
    for (; block.first_output < job->outputs; block.first_output += block.outputs) {
        uint32_t left = job->outputs - block.first_output;
        block.outputs = left < most ? left : most;
        multiply_block(&block);
    }
}

#else

bool strata__product_by_blas(const strata__cpu_kernels *cpu)
{
    (void)cpu;
    return false;
}

void strata__product_run_blas(const strata__product_job *job, const strata__product_group *group)
{
    (void)job;
    (void)group;
}

#endif
