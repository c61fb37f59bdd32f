/* SPDX-License-Identifier: MIT */
/*
 * Dense products of few rows, several matrices of the same rows in a launch, with or without the
 * RMS norm before them: a thread block has all values of a row, so that it learns the row's mean
 * square on the way and divides at the end.
 */
#include "kernels/cuda/few.cuh"

namespace
{

__device__ __forceinline__ const strata__few_part &part_of(const strata__few_dense_args &args,
                                                           uint32_t tile)
{
    uint32_t p = 0;
    while (p + 1 < args.parts && tile >= args.part[p + 1].first_tile)
        p++;
    return args.part[p];
}

/* What a warp left, its sums first, then the squares of its values of each row. */
__device__ __forceinline__ const float *left_by(const strata__few_dense_args &args,
                                                const uint8_t *stages, uint32_t warp, uint32_t half)
{
    return reinterpret_cast<const float *>(stages + warp * args.cut.stages * args.cut.stage_bytes) +
           half * SUMS;
}

__device__ __forceinline__ float inverse_rms(const strata__few_dense_args &args,
                                             const uint8_t *stages, uint32_t row)
{
    float squares = 0.0f;
    for (uint32_t w = 0; w < args.cut.warps; w++)
        squares += left_by(args, stages, w, row / COLUMNS)[COLUMNS * TILE + row % COLUMNS];
    return 1.0f / sqrtf(squares / (float)args.inputs + args.eps);
}

/* All outputs of the tile: one of a row by a thread. */
__device__ __forceinline__ void store_tile(const strata__few_dense_args &args,
                                           const strata__few_part &part, const uint8_t *stages,
                                           uint32_t first)
{
    for (uint32_t i = threadIdx.x; i < TILE * args.rows; i += blockDim.x) {
        uint32_t row = i / TILE, at = i % TILE, output = first + at;
        if (output >= part.outputs)
            continue;
        float y = 0.0f;
        for (uint32_t w = 0; w < args.cut.warps; w++)
            y += left_by(args, stages, w, row / COLUMNS)[row % COLUMNS * TILE + at];
        if (!args.in)
            y *= inverse_rms(args, stages, row);
        else if (args.in_scale)
            y *= args.in_scale[row];
        y = (y + (part.bias ? part.bias[output] : 0.0f)) * part.alpha *
            (part.row_factor ? part.row_factor[row] : 1.0f);
        float *out = part.out + (uint64_t)row * part.out_stride + output;
        *out = part.mode == STRATA__DENSE_ADD_F32 ? *out + y : y;
    }
}

/* Grid: tiles of all parts. */
template <int FORMAT>
__global__ void __maxnreg__(FEW_REGISTERS)
    few_dense(const __grid_constant__ strata__few_dense_args args)
{
    extern __shared__ __align__(16) uint8_t stages[];
    __shared__ __align__(16) uint4 grid[codebook<FORMAT>::WORDS];
    const strata__few_part &part = part_of(args, blockIdx.x);
    uint32_t warp = threadIdx.x / 32, r = threadIdx.x % 32 / 4, warps = args.cut.warps;
    uint8_t *stage = stages + warp * args.cut.stages * staged<FORMAT>::STAGE;
    tile_rows rows = {part.weights, part.weights + (uint64_t)part.outputs * args.row_bytes,
                      (blockIdx.x - part.first_tile) * TILE, part.outputs - 1, args.row_bytes};
    let_next_start();
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t slice = warp + i * warps;
        if (slice < args.cut.slices)
            copy_slice<FORMAT>(stage + i * staged<FORMAT>::STAGE, rows, slice,
                               bytes_of<FORMAT>(args.row_bytes, slice));
        copy_async_commit();
    }
    codebook<FORMAT>::load(grid);
    wait_for_earlier();
    float sum[HALVES][4] = {}, squares[HALVES] = {};
    uint32_t used = 0;
    for (uint32_t slice = warp; slice < args.cut.slices; slice += warps, used ^= 1) {
        uint8_t *own = stage + used * staged<FORMAT>::STAGE;
        uint32_t steps = steps_of(args.inputs, slice);
#pragma unroll
        for (uint32_t half = 0; half < HALVES; half++) {
            if (half * COLUMNS >= args.rows)
                break;
            uint32_t row = half * COLUMNS + r;
            bool valid = row < args.rows;
            uint64_t start = (uint64_t)(valid ? row : 0) * args.inputs;
            uint4 b[STEPS];
            float scale = 1.0f, sliced[4] = {};
            if (args.in)
                load_halves(b, args.in + start, slice, steps, valid);
            else
                scale =
                    load_scaled(b, args.x + start, args.gain, slice, steps, valid, squares[half]);
            copy_async_wait<1>();
            __syncwarp();
            multiply_slice<FORMAT>(sliced, staged_row<FORMAT>(own, rows, slice, r),
                                   staged_row<FORMAT>(own, rows, slice, r + 8), grid, b, steps);
            add_slice(sum[half], sliced, scale);
        }
        __syncwarp();
        uint32_t next = slice + 2 * warps;
        if (next < args.cut.slices)
            copy_slice<FORMAT>(own, rows, next, bytes_of<FORMAT>(args.row_bytes, next));
        copy_async_commit();
    }
#pragma unroll
    for (uint32_t half = 0; half < HALVES; half++) {
        float *left = reinterpret_cast<float *>(stage) + half * SUMS;
        leave_sums(left, sum[half]);
        if (threadIdx.x % 4 == 0)
            left[COLUMNS * TILE + r] = squares[half];
    }
    __syncthreads();
    store_tile(args, part, stages, rows.first);
}

typedef void (*dense_kernel)(strata__few_dense_args);

dense_kernel kernel_of(uint32_t format)
{
    switch (format) {
#define STRATA__CASE(f)                                                                            \
    case f:                                                                                        \
        return few_dense<f>;
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
        return cut_of<f>(inputs, 1);
        STRATA__FOR_EACH_UNIT_FORMAT(STRATA__CASE)
#undef STRATA__CASE
    default:
        return {};
    }
}

} /* namespace */

strata_status strata__few_dense_load(void)
{
    const void *kernels[] = {
#define STRATA__KERNEL(f) reinterpret_cast<const void *>(few_dense<f>),
        STRATA__FOR_EACH_UNIT_FORMAT(STRATA__KERNEL)
#undef STRATA__KERNEL
    };
    return strata__cuda_load_kernels(kernels, sizeof kernels / sizeof kernels[0],
                                     STRATA__FEW_STAGED_LIMIT);
}

strata_status strata__few_dense(const strata__cuda_state *state, cudaStream_t stream,
                                uint32_t format, strata__few_dense_args *args)
{
    const strata__format_info *info = strata__format_find(format);
    uint32_t tiles = 0;
    args->cut = cut_for(format, args->inputs);
    args->row_bytes = args->inputs / info->block_values * info->block_bytes;
    for (uint32_t p = 0; p < args->parts; p++) {
        args->part[p].first_tile = tiles;
        tiles += (args->part[p].outputs + TILE - 1) / TILE;
    }
    return launch_overlapped(state, stream, kernel_of(format), dim3(tiles), args->cut.warps * 32,
                             args->cut.warps * args->cut.stages * args->cut.stage_bytes, *args,
                             "multiplying few rows");
}
