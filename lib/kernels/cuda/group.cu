/* SPDX-License-Identifier: MIT */
/*
 * Groups the rows by expert, rows ascending within an expert, in three steps: blocks count the
 * experts of their rows, one block turns the counts into places, and the blocks place their rows.
 * Within a block a row's place follows from a set of bits per expert, so that nothing depends on
 * timing.
 */
#include "kernels/cuda/common.cuh"
#include "kernels/cuda/group.h"
#include "kernels/cuda/launch.cuh"

namespace
{

constexpr uint32_t BLOCKS = STRATA__GROUP_BLOCKS, THREADS = 256, BATCH = 256, WORDS = BATCH / 32,
                   MAX_EXPERTS = STRATA__MAX_EXPERTS;
static_assert(MAX_EXPERTS <= 1024, "a block has a thread for each expert");

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
    wait_for_earlier();
    let_next_start();
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

__device__ __forceinline__ void write_offset(const strata__group_args &args, uint32_t e,
                                             uint32_t offset)
{
    args.offsets[e] = offset;
    if (args.host_offsets)
        args.host_offsets[e] = offset;
}

/* Threads of an expert in place_blocks, each with as many of the blocks. */
constexpr uint32_t MOST_PARTS = 8;
static_assert(BLOCKS % MOST_PARTS == 0, "parts are equal");

/*
 * One block of MAX_EXPERTS threads: counts become the first place of each block's rows. Where there
 * are fewer experts, several threads share one.
 */
__global__ void __launch_bounds__(MAX_EXPERTS)
    place_blocks(const __grid_constant__ strata__group_args args)
{
    __shared__ uint32_t totals[MAX_EXPERTS], places[MAX_EXPERTS], warp_sums[32];
    uint32_t padded = (args.experts + 31) / 32 * 32, parts = 1;
    while (parts < MOST_PARTS && 2 * parts * padded <= MAX_EXPERTS)
        parts *= 2;
    uint32_t e = threadIdx.x % padded, part = threadIdx.x / padded, each = BLOCKS / parts;
    bool valid = e < args.experts && part < parts;
    uint32_t *counts =
        static_cast<uint32_t *>(args.scratch) + (uint64_t)part * each * args.experts + e;
    uint32_t total = 0, lane = threadIdx.x % 32;
    wait_for_earlier();
    let_next_start();
    if (valid)
#pragma unroll 16
        for (uint32_t b = 0; b < each; b++)
            total += counts[(uint64_t)b * args.experts];
    totals[threadIdx.x] = total;
    __syncthreads();
    total = 0;
    if (part == 0)
        for (uint32_t p = 0; p < parts; p++)
            total += totals[p * padded + e];
    uint32_t sum = total;
#pragma unroll
    for (uint32_t step = 1; step < 32; step *= 2) {
        uint32_t other = __shfl_up_sync(0xffffffffu, sum, step);
        sum += lane >= step ? other : 0;
    }
    if (part == 0 && lane == 31)
        warp_sums[e / 32] = sum;
    __syncthreads();
    if (part == 0) {
        uint32_t place = sum - total;
        for (uint32_t w = 0; w < e / 32; w++)
            place += warp_sums[w];
        places[e] = place;
        if (valid)
            write_offset(args, e, place);
        if (valid && e + 1 == args.experts)
            write_offset(args, args.experts, place + total);
    }
    __syncthreads();
    /* By a thread of the last warp, while the others go on. */
    if (args.host_flag && threadIdx.x == MAX_EXPERTS - 1) {
        __threadfence_system();
        *static_cast<volatile uint32_t *>(args.host_flag) = args.flag_value;
    }
    if (!valid)
        return;
    uint32_t place = places[e];
    for (uint32_t p = 0; p < part; p++)
        place += totals[p * padded + e];
#pragma unroll 16
    for (uint32_t b = 0; b < each; b++) {
        uint32_t count = counts[(uint64_t)b * args.experts];
        counts[(uint64_t)b * args.experts] = place;
        place += count;
    }
}

/* Places the block's rows, BATCH at a time. */
__global__ void __launch_bounds__(THREADS)
    place_rows(const __grid_constant__ strata__group_args args)
{
    extern __shared__ uint32_t shared[];
    uint32_t *place = shared, *bits = shared + args.experts; /* bits[expert][WORDS] */
    uint32_t first, end;
    wait_for_earlier();
    let_next_start();
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
    const char *what = "grouping rows";
    if (args->experts == 0 || args->experts > MAX_EXPERTS)
        return strata__fail(STRATA_ERR_UNSUPPORTED, "cuda: %u experts: at most %u", args->experts,
                            MAX_EXPERTS);
    strata_status status = launch_overlapped(state, stream, count_rows, dim3(BLOCKS), THREADS,
                                             args->experts * 4, *args, what);
    if (status == STRATA_OK)
        status =
            launch_overlapped(state, stream, place_blocks, dim3(1), MAX_EXPERTS, 0, *args, what);
    if (status == STRATA_OK)
        status = launch_overlapped(state, stream, place_rows, dim3(BLOCKS), THREADS,
                                   args->experts * PLACE_BYTES_PER_EXPERT, *args, what);
    return status;
}
