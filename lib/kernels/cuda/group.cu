/* SPDX-License-Identifier: MIT */
/*
 * Groups the rows by expert, rows ascending within an expert, in three steps: blocks count the
 * experts of their rows, one block turns the counts into places, and the blocks place their rows.
 * Within a block a row's place follows from a set of bits per expert, so that nothing depends on
 * timing.
 */
#include "kernels/cuda/common.cuh"
#include "kernels/cuda/group.h"

namespace
{

constexpr uint32_t BLOCKS = STRATA__GROUP_BLOCKS, THREADS = 256, BATCH = 256, WORDS = BATCH / 32,
                   MAX_EXPERTS = 1024;

/* Rows of a block: [first, end). */
__device__ __forceinline__ void rows_of_block(uint32_t rows, uint32_t *first, uint32_t *end)
{
    uint32_t each = (rows + BLOCKS - 1) / BLOCKS;
    *first = min(blockIdx.x * each, rows);
    *end = min(*first + each, rows);
}

/* counts[block][expert] */
__global__ void __launch_bounds__(THREADS)
    count_rows(const __grid_constant__ strata__group_args args)
{
    extern __shared__ uint32_t counts[];
    uint32_t first, end;
    rows_of_block(args.rows, &first, &end);
    for (uint32_t e = threadIdx.x; e < args.experts; e += THREADS)
        counts[e] = 0;
    __syncthreads();
    for (uint64_t i = (uint64_t)first * args.top_k + threadIdx.x; i < (uint64_t)end * args.top_k;
         i += THREADS)
        atomicAdd(&counts[args.ids[i]], 1u);
    __syncthreads();
    uint32_t *out = static_cast<uint32_t *>(args.scratch) + (uint64_t)blockIdx.x * args.experts;
    for (uint32_t e = threadIdx.x; e < args.experts; e += THREADS)
        out[e] = counts[e];
}

/* One block of MAX_EXPERTS threads: counts become the first place of each block's rows. */
__global__ void __launch_bounds__(MAX_EXPERTS)
    place_blocks(const __grid_constant__ strata__group_args args)
{
    __shared__ uint32_t warp_sums[32];
    uint32_t *counts = static_cast<uint32_t *>(args.scratch);
    uint32_t e = threadIdx.x, lane = e % 32, total = 0;
    bool valid = e < args.experts;
    if (valid)
#pragma unroll 16
        for (uint32_t b = 0; b < BLOCKS; b++)
            total += counts[(uint64_t)b * args.experts + e];
    uint32_t sum = total;
#pragma unroll
    for (uint32_t step = 1; step < 32; step *= 2) {
        uint32_t other = __shfl_up_sync(0xffffffffu, sum, step);
        sum += lane >= step ? other : 0;
    }
    if (lane == 31)
        warp_sums[e / 32] = sum;
    __syncthreads();
    uint32_t place = sum - total;
    for (uint32_t w = 0; w < e / 32; w++)
        place += warp_sums[w];
    if (valid) {
        args.offsets[e] = place;
        if (args.host_offsets)
            args.host_offsets[e] = place;
        if (e + 1 == args.experts) {
            args.offsets[args.experts] = place + total;
            if (args.host_offsets)
                args.host_offsets[args.experts] = place + total;
        }
#pragma unroll 16
        for (uint32_t b = 0; b < BLOCKS; b++) {
            uint32_t count = counts[(uint64_t)b * args.experts + e];
            counts[(uint64_t)b * args.experts + e] = place;
            place += count;
        }
    }
    if (!args.host_flag)
        return;
    __threadfence_system();
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence_system();
        *static_cast<volatile uint32_t *>(args.host_flag) = args.flag_value;
    }
}

/* Places the block's rows, BATCH at a time. */
__global__ void __launch_bounds__(THREADS)
    place_rows(const __grid_constant__ strata__group_args args)
{
    extern __shared__ uint32_t shared[];
    uint32_t *place = shared, *bits = shared + args.experts; /* bits[expert][WORDS] */
    uint32_t first, end;
    rows_of_block(args.rows, &first, &end);
    const uint32_t *from =
        static_cast<const uint32_t *>(args.scratch) + (uint64_t)blockIdx.x * args.experts;
    for (uint32_t e = threadIdx.x; e < args.experts; e += THREADS)
        place[e] = from[e];
    for (uint32_t batch = first; batch < end; batch += BATCH) {
        uint32_t rows = min(BATCH, end - batch), pairs = rows * args.top_k;
        for (uint32_t i = threadIdx.x; i < args.experts * WORDS; i += THREADS)
            bits[i] = 0;
        __syncthreads();
        const int32_t *ids = args.ids + (uint64_t)batch * args.top_k;
        for (uint32_t i = threadIdx.x; i < pairs; i += THREADS) {
            uint32_t r = i / args.top_k;
            atomicOr(&bits[(uint32_t)ids[i] * WORDS + r / 32], 1u << r % 32);
        }
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < pairs; i += THREADS) {
            uint32_t r = i / args.top_k, e = (uint32_t)ids[i], at = place[e];
            for (uint32_t w = 0; w < r / 32; w++)
                at += __popc(bits[e * WORDS + w]);
            at += __popc(bits[e * WORDS + r / 32] & ((1u << r % 32) - 1));
            args.sorted_row[at] = batch + r;
            args.sorted_index[(uint64_t)batch * args.top_k + i] = at;
        }
        __syncthreads();
        for (uint32_t e = threadIdx.x; e < args.experts; e += THREADS)
            for (uint32_t w = 0; w < WORDS; w++)
                place[e] += __popc(bits[e * WORDS + w]);
        __syncthreads();
    }
}

constexpr uint32_t PLACE_BYTES_PER_EXPERT = (1 + WORDS) * 4;
static_assert(PLACE_BYTES_PER_EXPERT * MAX_EXPERTS <= 48 * 1024, "fits without asking for more");

} /* namespace */

strata_status strata__cuda_group_load(void)
{
    const void *kernels[] = {reinterpret_cast<const void *>(count_rows),
                             reinterpret_cast<const void *>(place_blocks),
                             reinterpret_cast<const void *>(place_rows)};
    return strata__cuda_load_kernels(kernels, 3, 0);
}

strata_status strata__cuda_group(const strata__cuda_state *state, cudaStream_t stream,
                                 const strata__group_args *args)
{
    (void)state;
    if (args->experts == 0 || args->experts > MAX_EXPERTS)
        return strata__fail(STRATA_ERR_UNSUPPORTED, "cuda: %u experts: at most %u", args->experts,
                            MAX_EXPERTS);
    count_rows<<<BLOCKS, THREADS, args->experts * 4, stream>>>(*args);
    place_blocks<<<1, MAX_EXPERTS, 0, stream>>>(*args);
    place_rows<<<BLOCKS, THREADS, args->experts * PLACE_BYTES_PER_EXPERT, stream>>>(*args);
    return strata__cuda_status(cudaGetLastError(), "grouping rows");
}
