/* SPDX-License-Identifier: MIT */
/*
 * Operations on whole rows, a block of threads each: RMS norm, activation functions, and the sum of
 * the experts' outputs. A row that becomes an activation row is held in registers until its largest
 * magnitude, and so its scale, is known.
 */
#include "kernels/cuda/common.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/products.h"

namespace
{

constexpr uint32_t THREADS = 256, MAX_FOURS = 16;

__device__ __forceinline__ float largest(float4 v)
{
    return fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w)));
}

/*
 * Stores the block's row, of which a thread has every THREADS-th group of four. Only rows beyond
 * half's range need their largest magnitude.
 */
template <int FOURS>
__device__ __forceinline__ void store_row(const strata__rows &out, uint32_t width,
                                          const float4 (&values)[FOURS])
{
    float magnitude = 0.0f;
#pragma unroll
    for (int i = 0; i < FOURS; i++)
        if (threadIdx.x + i * THREADS < width / 4)
            magnitude = fmaxf(magnitude, largest(values[i]));
    float scale = 1.0f;
    if (__syncthreads_or(magnitude > HALF_MAX))
        scale = row_scale_of(block_reduce<true>(magnitude));
    float inverse = 1.0f / scale;
    uint2 *to =
        reinterpret_cast<uint2 *>(static_cast<__half *>(out.data) + (uint64_t)blockIdx.x * width);
#pragma unroll
    for (int i = 0; i < FOURS; i++) {
        uint32_t at = threadIdx.x + i * THREADS;
        float4 v = values[i];
        if (at < width / 4)
            to[at] = {pack_halves(v.x * inverse, v.y * inverse),
                      pack_halves(v.z * inverse, v.w * inverse)};
    }
    if (threadIdx.x == 0)
        out.scale[blockIdx.x] = scale;
}

template <int FOURS>
__global__ void __launch_bounds__(THREADS) norm(const __grid_constant__ strata__norm_args args)
{
    const float4 *x = reinterpret_cast<const float4 *>(args.x + (uint64_t)blockIdx.x * args.width);
    const float4 *weight = reinterpret_cast<const float4 *>(args.weight);
    float4 values[FOURS];
    float sum = 0.0f;
    wait_for_earlier();
    let_next_start();
#pragma unroll
    for (int i = 0; i < FOURS; i++) {
        uint32_t at = threadIdx.x + i * THREADS;
        values[i] = at < args.width / 4 ? x[at] : float4{0.0f, 0.0f, 0.0f, 0.0f};
        sum += values[i].x * values[i].x + values[i].y * values[i].y + values[i].z * values[i].z +
               values[i].w * values[i].w;
    }
    float inverse_rms = 1.0f / sqrtf(block_reduce<false>(sum) / (float)args.width + args.eps);
    if (threadIdx.x == 0 && args.inv_rms)
        args.inv_rms[blockIdx.x] = inverse_rms;
    if (!args.out.data)
        return;
#pragma unroll
    for (int i = 0; i < FOURS; i++) {
        uint32_t at = threadIdx.x + i * THREADS;
        float4 w = at < args.width / 4 ? __ldg(weight + at) : float4{0.0f, 0.0f, 0.0f, 0.0f};
        values[i] = {values[i].x * inverse_rms * w.x, values[i].y * inverse_rms * w.y,
                     values[i].z * inverse_rms * w.z, values[i].w * inverse_rms * w.w};
    }
    store_row(args.out, args.width, values);
}

template <int FOURS>
__global__ void __launch_bounds__(THREADS)
    activate_rows(const __grid_constant__ strata__activate_args args)
{
    const float *gate = args.gate + (uint64_t)blockIdx.x * args.stride;
    const float *up = args.up + (uint64_t)blockIdx.x * args.stride;
    float4 values[FOURS];
    wait_for_earlier();
    let_next_start();
#pragma unroll
    for (int i = 0; i < FOURS; i++) {
        uint32_t at = threadIdx.x + i * THREADS;
        values[i] = {0.0f, 0.0f, 0.0f, 0.0f};
        if (at >= args.width / 4)
            continue;
        values[i].x = activate(args.activation, gate[4 * at], up[4 * at]);
        values[i].y = activate(args.activation, gate[4 * at + 1], up[4 * at + 1]);
        values[i].z = activate(args.activation, gate[4 * at + 2], up[4 * at + 2]);
        values[i].w = activate(args.activation, gate[4 * at + 3], up[4 * at + 3]);
    }
    store_row(args.out, args.width, values);
}

/* What a row adds: the outputs in the range, in ascending order. */
struct row_parts {
    const float4 *y[STRATA__MAX_TOP_K];
    float factor[STRATA__MAX_TOP_K];
    uint32_t count;
};

__global__ void __launch_bounds__(THREADS)
    combine(const __grid_constant__ strata__combine_args args)
{
    __shared__ row_parts parts;
    wait_for_earlier();
    let_next_start();
    if (threadIdx.x == 0) {
        uint32_t count = 0;
        for (uint32_t j = 0; j < args.top_k; j++) {
            uint64_t at = (uint64_t)blockIdx.x * args.top_k + j;
            uint32_t row = args.sorted_index[at] - args.first_row;
            if (row >= args.rows)
                continue;
            parts.y[count] = reinterpret_cast<const float4 *>(args.y + (uint64_t)row * args.width);
            parts.factor[count++] = args.alpha * args.weights[at];
        }
        parts.count = count;
    }
    __syncthreads();
    if (parts.count == 0)
        return;
    float4 *x = reinterpret_cast<float4 *>(args.x + (uint64_t)blockIdx.x * args.width);
    for (uint32_t at = threadIdx.x; at < args.width / 4; at += THREADS) {
        float4 sum = x[at];
#pragma unroll 8
        for (uint32_t j = 0; j < parts.count; j++) {
            float4 y = __ldcs(parts.y[j] + at);
            float factor = parts.factor[j];
            sum.x = fmaf(factor, y.x, sum.x);
            sum.y = fmaf(factor, y.y, sum.y);
            sum.z = fmaf(factor, y.z, sum.z);
            sum.w = fmaf(factor, y.w, sum.w);
        }
        x[at] = sum;
    }
}

__global__ void __launch_bounds__(THREADS) fill(float *values, uint32_t count, float value)
{
    uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i < count)
        values[i] = value;
}

strata_status width_status(uint32_t width, const char *what)
{
    if (width % 8 == 0 && width <= 4 * THREADS * MAX_FOURS)
        return STRATA_OK;
    return strata__fail(STRATA_ERR_UNSUPPORTED,
                        "cuda: %s of %u values: a multiple of 8 up to %u is supported", what, width,
                        4 * THREADS * MAX_FOURS);
}

/* Groups of four a thread holds, as the kernels are made for. */
uint32_t fours_of(uint32_t width)
{
    uint32_t fours = 1;
    while (fours * 4 * THREADS < width)
        fours *= 2;
    return fours;
}

#define STRATA__BY_FOURS(width, kernel)                                                            \
    (fours_of(width) == 1   ? kernel<1>                                                            \
     : fours_of(width) == 2 ? kernel<2>                                                            \
     : fours_of(width) == 4 ? kernel<4>                                                            \
     : fours_of(width) == 8 ? kernel<8>                                                            \
                            : kernel<MAX_FOURS>)

} /* namespace */

strata_status strata__cuda_rows_load(void)
{
    const void *kernels[] = {
        reinterpret_cast<const void *>(norm<1>),
        reinterpret_cast<const void *>(norm<2>),
        reinterpret_cast<const void *>(norm<4>),
        reinterpret_cast<const void *>(norm<8>),
        reinterpret_cast<const void *>(norm<MAX_FOURS>),
        reinterpret_cast<const void *>(activate_rows<1>),
        reinterpret_cast<const void *>(activate_rows<2>),
        reinterpret_cast<const void *>(activate_rows<4>),
        reinterpret_cast<const void *>(activate_rows<8>),
        reinterpret_cast<const void *>(activate_rows<MAX_FOURS>),
        reinterpret_cast<const void *>(combine),
        reinterpret_cast<const void *>(fill),
    };
    return strata__cuda_load_kernels(kernels, sizeof kernels / sizeof kernels[0], 0);
}

strata_status strata__cuda_norm(const strata__cuda_state *state, cudaStream_t stream,
                                const strata__norm_args *args)
{
    strata_status status = width_status(args->width, "a norm");
    if (status != STRATA_OK || args->rows == 0)
        return status;
    return launch_overlapped(state, stream, STRATA__BY_FOURS(args->width, norm), dim3(args->rows),
                             THREADS, 0, *args, "RMS norm");
}

strata_status strata__cuda_activate(const strata__cuda_state *state, cudaStream_t stream,
                                    const strata__activate_args *args)
{
    strata_status status = width_status(args->width, "an activation");
    if (status != STRATA_OK || args->rows == 0)
        return status;
    return launch_overlapped(state, stream, STRATA__BY_FOURS(args->width, activate_rows),
                             dim3(args->rows), THREADS, 0, *args, "activation");
}

strata_status strata__cuda_combine(const strata__cuda_state *state, cudaStream_t stream,
                                   const strata__combine_args *args)
{
    strata_status status = width_status(args->width, "outputs");
    if (status == STRATA_OK && args->top_k > STRATA__MAX_TOP_K)
        status = strata__fail(STRATA_ERR_UNSUPPORTED, "cuda: %u experts a row: at most %u",
                              args->top_k, (uint32_t)STRATA__MAX_TOP_K);
    if (status != STRATA_OK || args->tokens == 0)
        return status;
    return launch_overlapped(state, stream, combine, dim3(args->tokens), THREADS, 0, *args,
                             "adding the experts");
}

strata_status strata__cuda_fill_values(cudaStream_t stream, float *values, uint32_t count,
                                       float value)
{
    if (count == 0)
        return STRATA_OK;
    fill<<<(count + THREADS - 1) / THREADS, THREADS, 0, stream>>>(values, count, value);
    return strata__cuda_status(cudaGetLastError(), "filling");
}
