/* SPDX-License-Identifier: MIT */
/*
 * Routing of few rows in two launches. The first has the norm and the router side by side: a thread
 * block takes one expert, and since logits are inv_rms times a sum that does not know it, it learns
 * the mean square on the way; other blocks make the activation rows. The second chooses and groups.
 */
#include "kernels/cuda/few.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/select.cuh"

namespace
{

constexpr uint32_t ROUTER_THREADS = 128, ROWS = STRATA__DIRECT_ROWS, AHEAD = 4,
                   CHOOSE_THREADS = ROWS * 32;
static_assert(CHOOSE_THREADS <= 1024, "a block has a warp for each row");

struct few_router_args {
    strata__norm_args norm;
    const float *weights;
    const float *bias;
    float *logits;
    uint32_t experts;
};

/* Sums of the block's threads, the same for all of them, in a fixed order. */
__device__ __forceinline__ float2 block_sums(float2 own, float2 *partial)
{
    own.x = warp_sum(own.x);
    own.y = warp_sum(own.y);
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        partial[threadIdx.x / 32] = own;
    __syncthreads();
    own = partial[0];
    for (uint32_t w = 1; w < ROUTER_THREADS / 32; w++) {
        own.x += partial[w].x;
        own.y += partial[w].y;
    }
    return own;
}

__device__ __forceinline__ float squares_of(float4 v, float sum)
{
    return fmaf(v.w, v.w, fmaf(v.z, v.z, fmaf(v.y, v.y, fmaf(v.x, v.x, sum))));
}

__device__ __forceinline__ float inverse_rms(const strata__norm_args &norm, float squares)
{
    return 1.0f / sqrtf(squares / (float)norm.width + norm.eps);
}

/* The logits of one expert: the weights stay in registers for all rows as far as they fit. */
__device__ __forceinline__ void expert_logits(const few_router_args &args, uint32_t expert,
                                              const float4 (&w)[AHEAD], float2 *partial)
{
    const strata__norm_args &norm = args.norm;
    const float4 *weights =
        reinterpret_cast<const float4 *>(args.weights + (uint64_t)expert * norm.width);
    const float4 *gains = reinterpret_cast<const float4 *>(norm.weight);
    uint32_t fours = norm.width / 4;
    for (uint32_t row = 0; row < norm.rows; row++) {
        const float4 *x = reinterpret_cast<const float4 *>(norm.x + (uint64_t)row * norm.width);
        float2 sums = {};
#pragma unroll
        for (uint32_t i = 0; i < AHEAD; i++) {
            uint32_t at = threadIdx.x + i * ROUTER_THREADS;
            if (at >= fours)
                continue;
            float4 v = x[at], g = __ldg(gains + at);
            sums.y = squares_of(v, sums.y);
            sums.x = fmaf(v.x * g.x, w[i].x, sums.x);
            sums.x = fmaf(v.y * g.y, w[i].y, sums.x);
            sums.x = fmaf(v.z * g.z, w[i].z, sums.x);
            sums.x = fmaf(v.w * g.w, w[i].w, sums.x);
        }
        for (uint32_t at = threadIdx.x + AHEAD * ROUTER_THREADS; at < fours; at += ROUTER_THREADS) {
            float4 v = x[at], g = __ldg(gains + at), u = __ldg(weights + at);
            sums.y = squares_of(v, sums.y);
            sums.x = fmaf(v.x * g.x, u.x, sums.x);
            sums.x = fmaf(v.y * g.y, u.y, sums.x);
            sums.x = fmaf(v.z * g.z, u.z, sums.x);
            sums.x = fmaf(v.w * g.w, u.w, sums.x);
        }
        sums = block_sums(sums, partial);
        if (threadIdx.x == 0)
            args.logits[(uint64_t)row * args.experts + expert] =
                sums.x * inverse_rms(norm, sums.y) + (args.bias ? args.bias[expert] : 0.0f);
    }
}

/* The activation row, whose values a thread reads twice more once their mean square is known. */
__device__ __forceinline__ void norm_row(const strata__norm_args &norm, uint32_t row,
                                         float2 *partial)
{
    __shared__ float most[ROUTER_THREADS / 32];
    const float4 *x = reinterpret_cast<const float4 *>(norm.x + (uint64_t)row * norm.width);
    const float4 *gains = reinterpret_cast<const float4 *>(norm.weight);
    uint2 *out = reinterpret_cast<uint2 *>(static_cast<__half *>(norm.out.data) +
                                           (uint64_t)row * norm.width);
    uint32_t fours = norm.width / 4;
    float2 sums = {};
    float magnitude = 0.0f;
    for (uint32_t at = threadIdx.x; at < fours; at += ROUTER_THREADS) {
        float4 v = x[at], g = __ldg(gains + at);
        sums.y = squares_of(v, sums.y);
        magnitude = fmaxf(magnitude, fmaxf(fmaxf(fabsf(v.x * g.x), fabsf(v.y * g.y)),
                                           fmaxf(fabsf(v.z * g.z), fabsf(v.w * g.w))));
    }
    magnitude = warp_max(magnitude);
    if (threadIdx.x % 32 == 0)
        most[threadIdx.x / 32] = magnitude;
    sums = block_sums(sums, partial);
    float inverse = inverse_rms(norm, sums.y);
    for (uint32_t w = 0; w < ROUTER_THREADS / 32; w++)
        magnitude = fmaxf(magnitude, most[w]);
    float scale = row_scale_of(magnitude * inverse), factor = inverse / scale;
    for (uint32_t at = threadIdx.x; at < fours; at += ROUTER_THREADS) {
        float4 v = x[at], g = __ldg(gains + at);
        out[at] = {pack_halves(v.x * g.x * factor, v.y * g.y * factor),
                   pack_halves(v.z * g.z * factor, v.w * g.w * factor)};
    }
    if (threadIdx.x == 0) {
        norm.inv_rms[row] = inverse;
        norm.out.scale[row] = scale;
    }
}

/* Grid: experts, then rows. */
__global__ void __launch_bounds__(ROUTER_THREADS)
    few_router(const __grid_constant__ few_router_args args)
{
    __shared__ float2 partial[ROUTER_THREADS / 32];
    uint32_t expert = blockIdx.x, fours = args.norm.width / 4;
    float4 w[AHEAD] = {};
    let_next_start();
    if (expert < args.experts) {
        const float4 *weights =
            reinterpret_cast<const float4 *>(args.weights + (uint64_t)expert * args.norm.width);
#pragma unroll
        for (uint32_t i = 0; i < AHEAD; i++)
            if (threadIdx.x + i * ROUTER_THREADS < fours)
                w[i] = __ldg(weights + threadIdx.x + i * ROUTER_THREADS);
    }
    wait_for_earlier();
    if (expert < args.experts)
        expert_logits(args, expert, w, partial);
    else
        norm_row(args.norm, expert - args.experts, partial);
}

struct few_choose_args {
    strata__select_args select;
    strata__group_args group;
};

/* Sorts the pairs of at most ROWS rows; all threads of the block. */
__device__ __forceinline__ void group_rows(const strata__group_args &args, uint32_t *rows_of,
                                           uint32_t *offsets, uint32_t *warp_sums)
{
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, base = 0;
    uint32_t pairs = args.rows * args.top_k;
    for (uint32_t e = threadIdx.x; e < args.experts; e += CHOOSE_THREADS)
        rows_of[e] = 0;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < pairs; i += CHOOSE_THREADS)
        atomicOr(&rows_of[args.ids[i]], 1u << i / args.top_k);
    __syncthreads();
    for (uint32_t first = 0; first < args.experts; first += CHOOSE_THREADS) {
        uint32_t e = first + threadIdx.x;
        uint32_t count = e < args.experts ? __popc(rows_of[e]) : 0, sum = count;
#pragma unroll
        for (uint32_t step = 1; step < 32; step *= 2) {
            uint32_t other = __shfl_up_sync(0xffffffffu, sum, step);
            sum += lane >= step ? other : 0;
        }
        if (lane == 31)
            warp_sums[warp] = sum;
        __syncthreads();
        uint32_t place = base + sum - count;
        for (uint32_t w = 0; w < CHOOSE_THREADS / 32; w++) {
            place += w < warp ? warp_sums[w] : 0;
            base += warp_sums[w];
        }
        if (e < args.experts) {
            offsets[e] = place;
            args.offsets[e] = place;
            if (args.host_offsets)
                args.host_offsets[e] = place;
        }
        __syncthreads();
    }
    for (uint32_t i = threadIdx.x; i < pairs; i += CHOOSE_THREADS) {
        uint32_t e = (uint32_t)args.ids[i], row = i / args.top_k;
        uint32_t at = offsets[e] + __popc(rows_of[e] & ((1u << row) - 1));
        args.sorted_row[at] = row;
        args.sorted_index[i] = at;
    }
    if (threadIdx.x == 0) {
        args.offsets[args.experts] = pairs;
        if (args.host_offsets)
            args.host_offsets[args.experts] = pairs;
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

/* One block, a warp a row. */
template <int COUNT>
__global__ void __launch_bounds__(CHOOSE_THREADS)
    few_choose(const __grid_constant__ few_choose_args args)
{
    extern __shared__ float scores[]; /* of rows with groups */
    __shared__ uint32_t rows_of[COUNT * 32], offsets[COUNT * 32], warp_sums[CHOOSE_THREADS / 32];
    uint32_t row = threadIdx.x / 32;
    let_next_start();
    wait_for_earlier();
    if (row < args.select.rows)
        select_row<COUNT>(args.select, row, scores + row * COUNT * 32);
    __syncthreads();
    group_rows(args.group, rows_of, offsets, warp_sums);
}

typedef void (*choose_kernel)(few_choose_args);

choose_kernel choose_of(uint32_t experts, uint32_t *count)
{
    static const choose_kernel kernels[] = {few_choose<2>, few_choose<4>, few_choose<8>,
                                            few_choose<16>, few_choose<32>};
    uint32_t i = 0;
    while (experts > 64u << i)
        i++;
    *count = 2u << i;
    return kernels[i];
}

} /* namespace */

strata_status strata__few_route_load(void)
{
    const void *kernels[] = {
        reinterpret_cast<const void *>(few_router),
        reinterpret_cast<const void *>(few_choose<2>),
        reinterpret_cast<const void *>(few_choose<4>),
        reinterpret_cast<const void *>(few_choose<8>),
        reinterpret_cast<const void *>(few_choose<16>),
        reinterpret_cast<const void *>(few_choose<32>),
    };
    strata_status status = strata__cuda_load_kernels(kernels, 4, 0);
    /* Scores of 16 rows of 512 and 1024 experts in groups are more than 48 KiB with the rest. */
    return status == STRATA_OK ? strata__cuda_load_kernels(kernels + 4, 2, 64 * 1024) : status;
}

strata_status strata__few_router(const strata__cuda_state *state, cudaStream_t stream,
                                 const strata__norm_args *norm, const strata__router_args *router)
{
    few_router_args args = {*norm, static_cast<const float *>(router->weight.data),
                            router->weight.bias, router->logits, router->weight.outputs};
    return launch_overlapped(state, stream, few_router, dim3(args.experts + norm->rows),
                             ROUTER_THREADS, 0, args, "router of few rows");
}

strata_status strata__few_choose(const strata__cuda_state *state, cudaStream_t stream,
                                 const strata__select_args *select, const strata__group_args *group)
{
    few_choose_args args = {*select, *group};
    uint32_t count;
    choose_kernel kernel = choose_of(select->experts, &count);
    uint32_t shared = select->groups > 1 ? select->rows * count * 32 * 4 : 0;
    return launch_overlapped(state, stream, kernel, dim3(1), CHOOSE_THREADS, shared, args,
                             "choosing experts of few rows");
}
