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

/* BATCH: rows whose values an expert's block loads at once. */
constexpr uint32_t ROUTER_THREADS = 128, ROWS = STRATA__DIRECT_ROWS, AHEAD = 4, BATCH = 4,
                   CHOOSE_THREADS = ROWS * 32;
static_assert(CHOOSE_THREADS <= 1024, "a block has a warp for each row");

struct few_router_args {
    strata__norm_args norm;
    const float *weights;
    const float *bias;
    float *logits;
    uint32_t experts;
    strata__ahead ahead;
};

/* The sums of each warp, of a batch of rows; two batches in turn have places of their own. */
struct warp_sums {
    float2 of[BATCH][ROUTER_THREADS / 32];

    __device__ __forceinline__ void leave(uint32_t row, float2 own)
    {
        own.x = warp_sum(own.x);
        own.y = warp_sum(own.y);
        if (threadIdx.x % 32 == 0)
            of[row][threadIdx.x / 32] = own;
    }

    /* Sums of the block, in a fixed order; after a barrier. */
    __device__ __forceinline__ float2 total(uint32_t row) const
    {
        float2 sums = of[row][0];
        for (uint32_t w = 1; w < ROUTER_THREADS / 32; w++) {
            sums.x += of[row][w].x;
            sums.y += of[row][w].y;
        }
        return sums;
    }
};

__device__ __forceinline__ float inverse_rms(const strata__norm_args &norm, float squares)
{
    return 1.0f / sqrtf(squares / (float)norm.width + norm.eps);
}

/* sum += v . w */
__device__ __forceinline__ float add_products(float4 v, float4 w, float sum)
{
    return fmaf(v.w, w.w, fmaf(v.z, w.z, fmaf(v.y, w.y, fmaf(v.x, w.x, sum))));
}

/* What a thread has of a vector: of its pieces, which are ROUTER_THREADS apart, the first. */
struct pieces {
    float4 of[AHEAD];

    __device__ __forceinline__ void load_constant(const float4 *from, uint32_t fours)
    {
#pragma unroll
        for (uint32_t i = 0; i < AHEAD; i++)
            if (threadIdx.x + i * ROUTER_THREADS < fours)
                of[i] = __ldg(from + threadIdx.x + i * ROUTER_THREADS);
    }

    /* What an earlier kernel wrote; zeros where there is nothing. */
    __device__ __forceinline__ void load(const float4 *from, uint32_t fours)
    {
#pragma unroll
        for (uint32_t i = 0; i < AHEAD; i++) {
            of[i] = {};
            if (threadIdx.x + i * ROUTER_THREADS < fours)
                of[i] = from[threadIdx.x + i * ROUTER_THREADS];
        }
    }
};

/* A thread's part of the sums of one row. */
__device__ __forceinline__ float2 own_sums(const float4 *x, const pieces &v, const float4 *weights,
                                           const pieces &w, const float4 *gains, const pieces &g,
                                           uint32_t fours)
{
    float2 sums = {};
#pragma unroll
    for (uint32_t i = 0; i < AHEAD; i++) {
        if (threadIdx.x + i * ROUTER_THREADS >= fours)
            continue;
        sums.y = squares_of(v.of[i], sums.y);
        sums.x = add_products(products_of(v.of[i], g.of[i]), w.of[i], sums.x);
    }
    for (uint32_t at = threadIdx.x + AHEAD * ROUTER_THREADS; at < fours; at += ROUTER_THREADS) {
        float4 one = x[at];
        sums.y = squares_of(one, sums.y);
        sums.x = add_products(products_of(one, __ldg(gains + at)), __ldg(weights + at), sums.x);
    }
    return sums;
}

/*
 * The logits of one expert: weights and gains stay in registers for all rows as far as they fit,
 * and a batch of rows is on its way together.
 */
__device__ __forceinline__ void expert_logits(const few_router_args &args, uint32_t expert,
                                              const pieces &w, const pieces &g,
                                              warp_sums (&partial)[2])
{
    const strata__norm_args &norm = args.norm;
    const float4 *x = reinterpret_cast<const float4 *>(norm.x);
    const float4 *weights =
        reinterpret_cast<const float4 *>(args.weights + (uint64_t)expert * norm.width);
    const float4 *gains = reinterpret_cast<const float4 *>(norm.weight);
    uint32_t fours = norm.width / 4;
    float bias = args.bias ? __ldg(args.bias + expert) : 0.0f;
    for (uint32_t row = 0; row < norm.rows; row += BATCH) {
        pieces v[BATCH];
        warp_sums &sums = partial[row / BATCH % 2];
#pragma unroll
        for (uint32_t n = 0; n < BATCH; n++)
            if (row + n < norm.rows)
                v[n].load(x + (uint64_t)(row + n) * fours, fours);
#pragma unroll
        for (uint32_t n = 0; n < BATCH; n++)
            if (row + n < norm.rows)
                sums.leave(n, own_sums(x + (uint64_t)(row + n) * fours, v[n], weights, w, gains, g,
                                       fours));
        __syncthreads();
        uint32_t own = row + threadIdx.x;
        if (threadIdx.x < BATCH && own < norm.rows) {
            float2 total = sums.total(threadIdx.x);
            args.logits[(uint64_t)own * args.experts + expert] =
                total.x * inverse_rms(norm, total.y) + bias;
        }
    }
}

__device__ __forceinline__ uint2 packed(float4 v, float factor)
{
    return {pack_halves(v.x * factor, v.y * factor), pack_halves(v.z * factor, v.w * factor)};
}

/* The activation row; what does not fit in registers is read again for its mean square. */
__device__ __forceinline__ void norm_row(const strata__norm_args &norm, uint32_t row,
                                         const pieces &g, warp_sums &partial)
{
    __shared__ float most[ROUTER_THREADS / 32];
    const float4 *x = reinterpret_cast<const float4 *>(norm.x + (uint64_t)row * norm.width);
    const float4 *gains = reinterpret_cast<const float4 *>(norm.weight);
    uint2 *out = reinterpret_cast<uint2 *>(static_cast<__half *>(norm.out.data) +
                                           (uint64_t)row * norm.width);
    uint32_t fours = norm.width / 4;
    float2 sums = {};
    float magnitude = 0.0f;
    pieces v;
    v.load(x, fours);
#pragma unroll
    for (uint32_t i = 0; i < AHEAD; i++) {
        if (threadIdx.x + i * ROUTER_THREADS >= fours)
            continue;
        sums.y = squares_of(v.of[i], sums.y);
        v.of[i] = products_of(v.of[i], g.of[i]);
        magnitude = fmaxf(magnitude, largest_of(v.of[i]));
    }
    for (uint32_t at = threadIdx.x + AHEAD * ROUTER_THREADS; at < fours; at += ROUTER_THREADS) {
        float4 one = x[at];
        sums.y = squares_of(one, sums.y);
        magnitude = fmaxf(magnitude, largest_of(products_of(one, __ldg(gains + at))));
    }
    magnitude = warp_max(magnitude);
    if (threadIdx.x % 32 == 0)
        most[threadIdx.x / 32] = magnitude;
    partial.leave(0, sums);
    __syncthreads();
    sums = partial.total(0);
    float inverse = inverse_rms(norm, sums.y);
    for (uint32_t w = 0; w < ROUTER_THREADS / 32; w++)
        magnitude = fmaxf(magnitude, most[w]);
    float scale = row_scale_of(magnitude * inverse), factor = inverse / scale;
#pragma unroll
    for (uint32_t i = 0; i < AHEAD; i++)
        if (threadIdx.x + i * ROUTER_THREADS < fours)
            out[threadIdx.x + i * ROUTER_THREADS] = packed(v.of[i], factor);
    for (uint32_t at = threadIdx.x + AHEAD * ROUTER_THREADS; at < fours; at += ROUTER_THREADS)
        out[at] = packed(products_of(x[at], __ldg(gains + at)), factor);
    if (threadIdx.x == 0) {
        norm.inv_rms[row] = inverse;
        norm.out.scale[row] = scale;
    }
}

/* Grid: rows, then experts. */
__global__ void __launch_bounds__(ROUTER_THREADS)
    few_router(const __grid_constant__ few_router_args args)
{
    __shared__ warp_sums partial[2];
    uint32_t rows = args.norm.rows, fours = args.norm.width / 4;
    uint32_t expert = blockIdx.x - rows;
    pieces w = {}, g = {};
    let_next_start();
    if (blockIdx.x >= rows)
        w.load_constant(
            reinterpret_cast<const float4 *>(args.weights + (uint64_t)expert * args.norm.width),
            fours);
    g.load_constant(reinterpret_cast<const float4 *>(args.norm.weight), fours);
    fetch_ahead(args.ahead);
    wait_for_earlier();
    if (blockIdx.x >= rows)
        expert_logits(args, expert, w, g, partial);
    else
        norm_row(args.norm, blockIdx.x, g, partial[0]);
}

struct few_choose_args {
    strata__select_args select;
    strata__group_args group;
};

/* Of the pairs in shared memory: of each the expert, and no expert up to a multiple of four. */
struct pair_ids {
    uint4 of[STRATA__FEW_MAX_PAIRS / 4];

    __device__ __forceinline__ uint32_t *words()
    {
        return reinterpret_cast<uint32_t *>(of);
    }

    /* Pairs before pair `own` in the order of experts, then of pairs; `own` has expert `e`. */
    __device__ __forceinline__ uint32_t count_before(uint32_t pairs, uint32_t e, uint32_t own) const
    {
        uint32_t count = 0;
#pragma unroll 4
        for (uint32_t j = 0; j < pairs; j += 4) {
            uint4 four = of[j / 4];
            count += four.x < e + (j < own);
            count += four.y < e + (j + 1 < own);
            count += four.z < e + (j + 2 < own);
            count += four.w < e + (j + 3 < own);
        }
        return count;
    }
};
static_assert(STRATA__FEW_MAX_PAIRS % 4 == 0, "pairs by fours");

/*
 * Sorts the pairs of at most ROWS rows; all threads of the block. There are so few that each place
 * is counted on its own.
 */
__device__ __forceinline__ void group_rows(const strata__group_args &args, pair_ids &ids)
{
    uint32_t pairs = args.rows * args.top_k;
    for (uint32_t i = threadIdx.x; i < pairs; i += CHOOSE_THREADS) {
        uint32_t at = ids.count_before(pairs, ids.words()[i], i);
        args.sorted_row[at] = i / args.top_k;
        args.sorted_index[i] = at;
    }
    /* From the other end, where threads have no pair. */
    for (uint32_t e = CHOOSE_THREADS - 1 - threadIdx.x; e <= args.experts; e += CHOOSE_THREADS) {
        uint32_t at = ids.count_before(pairs, e, 0);
        args.offsets[e] = at;
        if (args.host_offsets)
            args.host_offsets[e] = at;
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
    __shared__ pair_ids ids;
    uint32_t row = threadIdx.x / 32, pairs = args.select.rows * args.select.top_k;
    let_next_start();
    if (threadIdx.x < 3 && pairs + threadIdx.x < STRATA__FEW_MAX_PAIRS)
        ids.words()[pairs + threadIdx.x] = 0xffffffffu;
    wait_for_earlier();
    if (row < args.select.rows)
        select_row<COUNT>(args.select, row, scores + row * COUNT * 32, ids.words());
    __syncthreads();
    group_rows(args.group, ids);
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
                                 const strata__route_args *route)
{
    const strata__router_args *router = &route->router;
    few_router_args args = {route->norm,
                            static_cast<const float *>(router->weight.data),
                            router->weight.bias,
                            router->logits,
                            router->weight.outputs,
                            route->ahead};
    return launch_overlapped(state, stream, few_router, dim3(args.experts + args.norm.rows),
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
