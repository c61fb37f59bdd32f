/* SPDX-License-Identifier: MIT */
/*
 * Gate and up of the routed experts: a thread block takes 16 outputs of both for all rows of an
 * expert and applies the activation. The blocks behind a sorted pair
 * of row and expert work if the pair is its expert's first, so that the grid needs no counts.
 */
#include "kernels/cuda/few.cuh"

namespace
{

/* Of both matrices' weights, so that the sums fit beside them in 99 KiB. */
constexpr uint32_t WEIGHTS_LIMIT = 48 * 1024;

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

/* What the warps leave: [warp][matrix][half] of SUMS floats. */
__device__ __forceinline__ float sum_of(const strata__few_gate_up_args &args, const float *sums,
                                        uint32_t matrix, uint32_t row, uint32_t at)
{
    const float *from = sums + (matrix * HALVES + row / COLUMNS) * SUMS + row % COLUMNS * TILE + at;
    float y = 0.0f;
    for (uint32_t w = 0; w < args.cut.warps; w++)
        y += from[w * 2 * HALVES * SUMS];
    return y;
}

__device__ __forceinline__ void store_tile(const strata__few_gate_up_args &args, const float *sums,
                                           const found_expert &found, uint32_t pair, uint32_t first)
{
    for (uint32_t i = threadIdx.x; i < TILE * found.rows; i += blockDim.x) {
        uint32_t row = i / TILE, at = i % TILE, output = first + at;
        if (output >= args.outputs)
            continue;
        uint64_t bias = (uint64_t)found.expert * args.outputs + output;
        float scale = args.in_scale ? args.in_scale[args.sorted_row[pair + row]] : 1.0f;
        float gate = sum_of(args, sums, 0, row, at) * scale;
        float up = sum_of(args, sums, 1, row, at) * scale;
        gate += args.bias[0] ? args.bias[0][bias] : 0.0f;
        up += args.bias[1] ? args.bias[1][bias] : 0.0f;
        args.h[(uint64_t)(pair + row) * args.outputs + output] =
            activate(args.activation, gate, up);
    }
}

/* Begins the copy of a chunk of both matrices, by all threads. */
template <int FORMAT>
__device__ __forceinline__ void copy_both(const strata__few_gate_up_args &args, uint8_t *stage,
                                          const weight_tile &gate, const weight_tile &up,
                                          uint32_t chunk)
{
    if (chunk < args.cut.chunks) {
        copy_weights<FORMAT>(stage, gate, args.cut, chunk, threadIdx.x, blockDim.x);
        copy_weights<FORMAT>(stage + args.cut.stage_bytes, up, args.cut, chunk, threadIdx.x,
                             blockDim.x);
    }
    copy_async_commit();
}

__device__ __forceinline__ weight_tile tile_of_expert(const strata__few_gate_up_args &args,
                                                      const void *const *blobs, uint32_t expert)
{
    return tile_of(blobs[expert], args.row_bytes, args.outputs, blockIdx.x);
}

/* Grid: tiles, pairs. */
template <int FORMAT>
__global__ void __maxnreg__(FEW_REGISTERS)
    few_gate_up(const __grid_constant__ strata__few_gate_up_args args)
{
    extern __shared__ __align__(16) uint8_t memory[];
    __shared__ __align__(16) unit_books<FORMAT> books;
    __shared__ found_expert found;
    __shared__ weight_tile tiles[2]; /* here, not in registers, which are scarce */
    uint32_t warp = threadIdx.x / 32, r = threadIdx.x % 32 / 4, pair = blockIdx.y;
    float *sums = reinterpret_cast<float *>(memory);
    uint8_t *stages = memory + args.cut.warps * 2 * HALVES * SUMS * 4;
    let_next_start();
    books.load();
    wait_for_earlier();
    find_expert(args, pair, found);
    if (found.rows == 0)
        return;
    if (threadIdx.x < 2)
        tiles[threadIdx.x] = tile_of_expert(args, args.blobs[threadIdx.x], found.expert);
    __syncthreads();
    const weight_tile &gate = tiles[0], &up = tiles[1];
    copy_both<FORMAT>(args, stages, gate, up, 0);
    copy_both<FORMAT>(args, stages + 2 * args.cut.stage_bytes, gate, up, 1);
    float sum[2][HALVES][4] = {};
    for (uint32_t chunk = 0; chunk < args.cut.chunks; chunk++) {
        uint8_t *stage = stages + chunk % 2 * 2 * args.cut.stage_bytes;
        bool ready = false;
        for (uint32_t slice = chunk * args.cut.chunk + warp; slice < chunk_end(args.cut, chunk);
             slice += args.cut.warps)
#pragma unroll
            for (uint32_t half = 0; half < HALVES; half++) {
                if (half * COLUMNS >= found.rows)
                    break;
                uint32_t row = half * COLUMNS + r, steps = steps_of<FORMAT>(args.inputs, slice);
                bool valid = row < found.rows;
                uint64_t start = valid ? (uint64_t)args.sorted_row[pair + row] * args.inputs : 0;
                uint4 b[STEPS];
                load_halves(b, args.in + start, slice, steps, valid);
                if (!ready) {
                    copy_async_wait<1>();
                    __syncthreads();
                    ready = true;
                }
                multiply_slice<FORMAT>(
                    sum[0][half], staged_row<FORMAT>(stage, gate, args.cut, slice, r),
                    staged_row<FORMAT>(stage, gate, args.cut, slice, r + 8), books, b, steps);
                stage += args.cut.stage_bytes;
                multiply_slice<FORMAT>(
                    sum[1][half], staged_row<FORMAT>(stage, up, args.cut, slice, r),
                    staged_row<FORMAT>(stage, up, args.cut, slice, r + 8), books, b, steps);
                stage -= args.cut.stage_bytes;
            }
        if (!ready) {
            copy_async_wait<1>();
            __syncthreads();
        }
        if (chunk + 2 < args.cut.chunks)
            __syncthreads();
        copy_both<FORMAT>(args, stage, gate, up, chunk + 2);
    }
#pragma unroll
    for (uint32_t i = 0; i < 2 * HALVES; i++)
        leave_sums(sums + (warp * 2 * HALVES + i) * SUMS, sum[i / HALVES][i % HALVES]);
    __syncthreads();
    store_tile(args, sums, found, pair, blockIdx.x * TILE);
}

template <int FORMAT> struct entry {
    static auto kernel()
    {
        return few_gate_up<FORMAT>;
    }
};

} /* namespace */

strata_status strata__few_gate_up_load(const strata__cuda_state *state)
{
    return load_kernels<entry>(state);
}

strata_status strata__few_gate_up(const strata__cuda_state *state, cudaStream_t stream,
                                  uint32_t format, uint32_t pairs, strata__few_gate_up_args *args)
{
    args->row_bytes = row_bytes_of(format, args->inputs);
    args->cut = cut_for(format, args->inputs, args->row_bytes, 2, WEIGHTS_LIMIT);
    uint32_t warps = args->cut.warps;
    uint32_t bytes =
        warps * 2 * HALVES * SUMS * 4 + 2 * (args->cut.chunks < 2 ? 1 : 2) * args->cut.stage_bytes;
    dim3 grid((args->outputs + TILE - 1) / TILE, pairs);
    return launch_overlapped(state, stream, kernel_of<entry>(format), grid, warps * 32, bytes,
                             *args, "multiplying gate and up of few rows");
}
