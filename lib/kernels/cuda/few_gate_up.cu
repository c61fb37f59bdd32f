/* SPDX-License-Identifier: MIT */
/*
 * Gate and up of the routed experts: a thread block takes 16 outputs of both for all rows of an
 * expert and applies the activation. The blocks behind a sorted pair
 * of row and expert work if the pair is its expert's first, so that the grid needs no counts.
 */
#include "kernels/cuda/few.cuh"

namespace
{

struct found_expert {
    uint32_t expert, rows; /* rows 0: the block has nothing to do */
};

/* The expert whose first sorted row is `pair`; all threads of the block. */
__device__ __forceinline__ void find_expert(const strata__few_gate_up_args &args, uint32_t pair,
                                            found_expert &found)
{
    if (threadIdx.x == 0)
        found = {0, 0};
    __syncthreads();
    for (uint32_t e = threadIdx.x; e < args.experts; e += blockDim.x) {
        uint32_t first = args.offsets[e], end = args.offsets[e + 1];
        if (first == pair && first < end)
            found = {e, end - first};
    }
    __syncthreads();
}

/* What a warp leaves: [matrix][half] of SUMS floats. */
__device__ __forceinline__ float sum_of(const strata__few_gate_up_args &args, const uint8_t *stages,
                                        uint32_t matrix, uint32_t row, uint32_t at)
{
    uint32_t place = (matrix * HALVES + row / COLUMNS) * SUMS + row % COLUMNS * TILE + at;
    float y = 0.0f;
    for (uint32_t w = 0; w < args.cut.warps; w++)
        y += reinterpret_cast<const float *>(stages +
                                             w * args.cut.stages * 2 * args.cut.stage_bytes)[place];
    return y;
}

__device__ __forceinline__ void store_tile(const strata__few_gate_up_args &args,
                                           const uint8_t *stages, const found_expert &found,
                                           uint32_t pair, uint32_t first)
{
    for (uint32_t i = threadIdx.x; i < TILE * found.rows; i += blockDim.x) {
        uint32_t row = i / TILE, at = i % TILE, output = first + at;
        if (output >= args.outputs)
            continue;
        uint64_t bias = (uint64_t)found.expert * args.outputs + output;
        float scale = args.in_scale ? args.in_scale[args.sorted_row[pair + row]] : 1.0f;
        float gate = sum_of(args, stages, 0, row, at) * scale;
        float up = sum_of(args, stages, 1, row, at) * scale;
        gate += args.bias[0] ? args.bias[0][bias] : 0.0f;
        up += args.bias[1] ? args.bias[1][bias] : 0.0f;
        args.h[(uint64_t)(pair + row) * args.outputs + output] =
            activate(args.activation, gate, up);
    }
}

/* Begins the copy of a slice of both matrices. */
template <int FORMAT>
__device__ __forceinline__ void copy_both(const strata__few_gate_up_args &args, uint8_t *stage,
                                          const tile_rows (&rows)[2], uint32_t slice)
{
    if (slice < args.cut.slices) {
        uint32_t bytes = bytes_of<FORMAT>(args.row_bytes, slice);
        copy_slice<FORMAT>(stage, rows[0], slice, bytes);
        copy_slice<FORMAT>(stage + staged<FORMAT>::STAGE, rows[1], slice, bytes);
    }
    copy_async_commit();
}

__device__ __forceinline__ tile_rows rows_of(const strata__few_gate_up_args &args, uint32_t matrix,
                                             uint32_t expert)
{
    const uint8_t *weights = static_cast<const uint8_t *>(args.blobs[matrix][expert]);
    return {weights, weights + (uint64_t)args.outputs * args.row_bytes, blockIdx.x * TILE,
            args.outputs - 1, args.row_bytes};
}

/* Grid: tiles, pairs. */
template <int FORMAT>
__global__ void __maxnreg__(FEW_REGISTERS)
    few_gate_up(const __grid_constant__ strata__few_gate_up_args args)
{
    using form = staged<FORMAT>;
    extern __shared__ __align__(16) uint8_t stages[];
    __shared__ __align__(16) uint4 grid[codebook<FORMAT>::WORDS];
    __shared__ found_expert found;
    uint32_t warp = threadIdx.x / 32, r = threadIdx.x % 32 / 4, pair = blockIdx.y;
    let_next_start();
    codebook<FORMAT>::load(grid);
    wait_for_earlier();
    find_expert(args, pair, found);
    if (found.rows == 0)
        return;
    uint8_t *stage = stages + warp * args.cut.stages * 2 * form::STAGE;
    const tile_rows rows[2] = {rows_of(args, 0, found.expert), rows_of(args, 1, found.expert)};
    copy_both<FORMAT>(args, stage, rows, warp);
    copy_both<FORMAT>(args, stage + 2 * form::STAGE, rows, warp + args.cut.warps);
    float sum[2][HALVES][4] = {};
    uint32_t used = 0;
    for (uint32_t slice = warp; slice < args.cut.slices; slice += args.cut.warps, used ^= 1) {
        uint8_t *own = stage + used * 2 * form::STAGE;
        uint32_t steps = steps_of(args.inputs, slice);
#pragma unroll
        for (uint32_t half = 0; half < HALVES; half++) {
            if (half * COLUMNS >= found.rows)
                break;
            uint32_t row = half * COLUMNS + r;
            bool valid = row < found.rows;
            uint64_t start = valid ? (uint64_t)args.sorted_row[pair + row] * args.inputs : 0;
            uint4 b[STEPS];
            load_halves(b, args.in + start, slice, steps, valid);
            copy_async_wait<1>();
            __syncwarp();
#pragma unroll
            for (uint32_t m = 0; m < 2; m++)
                multiply_slice<FORMAT>(
                    sum[m][half], staged_row<FORMAT>(own + m * form::STAGE, rows[m], slice, r),
                    staged_row<FORMAT>(own + m * form::STAGE, rows[m], slice, r + 8), grid, b,
                    steps);
        }
        __syncwarp();
        copy_both<FORMAT>(args, own, rows, slice + 2 * args.cut.warps);
    }
#pragma unroll
    for (uint32_t i = 0; i < 2 * HALVES; i++)
        leave_sums(reinterpret_cast<float *>(stage) + i * SUMS, sum[i / HALVES][i % HALVES]);
    __syncthreads();
    store_tile(args, stages, found, pair, blockIdx.x * TILE);
}

typedef void (*gate_up_kernel)(strata__few_gate_up_args);

gate_up_kernel kernel_of(uint32_t format)
{
    switch (format) {
#define STRATA__CASE(f)                                                                            \
    case f:                                                                                        \
        return few_gate_up<f>;
        STRATA__FOR_EACH_UNIT_FORMAT(STRATA__CASE)
#undef STRATA__CASE
    default:
        return nullptr;
    }
}

strata__few_cut cut_for(uint32_t format, uint32_t inputs)
{
    switch (format) {
#define STRATA__CASE(f)                                                                            \
    case f:                                                                                        \
        return cut_of<f>(inputs, 2);
        STRATA__FOR_EACH_UNIT_FORMAT(STRATA__CASE)
#undef STRATA__CASE
    default:
        return {};
    }
}

} /* namespace */

strata_status strata__few_gate_up_load(void)
{
    const void *kernels[] = {
#define STRATA__KERNEL(f) reinterpret_cast<const void *>(few_gate_up<f>),
        STRATA__FOR_EACH_UNIT_FORMAT(STRATA__KERNEL)
#undef STRATA__KERNEL
    };
    return strata__cuda_load_kernels(kernels, sizeof kernels / sizeof kernels[0],
                                     STRATA__FEW_STAGED_LIMIT);
}

strata_status strata__few_gate_up(const strata__cuda_state *state, cudaStream_t stream,
                                  uint32_t format, uint32_t pairs, strata__few_gate_up_args *args)
{
    const strata__format_info *info = strata__format_find(format);
    args->cut = cut_for(format, args->inputs);
    args->row_bytes = args->inputs / info->block_values * info->block_bytes;
    dim3 grid((args->outputs + TILE - 1) / TILE, pairs);
    return launch_overlapped(state, stream, kernel_of(format), grid, args->cut.warps * 32,
                             2 * args->cut.warps * args->cut.stages * args->cut.stage_bytes, *args,
                             "multiplying gate and up of few rows");
}
