/* SPDX-License-Identifier: MIT */
/* Small pieces that several kernels share: reductions, activation functions, half rows. */
#ifndef STRATA_KERNELS_CUDA_COMMON_CUH
#define STRATA_KERNELS_CUDA_COMMON_CUH

#include <stdint.h>

#include <cuda_fp16.h>

#include "kernels/cuda/cuda_kernels.h"

static constexpr float HALF_MAX = 65504.0f;

static __device__ __forceinline__ float4 products_of(float4 a, float4 b)
{
    return {a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w};
}

static __device__ __forceinline__ float largest_of(float4 v)
{
    return fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w)));
}

/* sum += v . v */
static __device__ __forceinline__ float squares_of(float4 v, float sum)
{
    return fmaf(v.w, v.w, fmaf(v.z, v.z, fmaf(v.y, v.y, fmaf(v.x, v.x, sum))));
}

static __device__ __forceinline__ float warp_sum(float value)
{
#pragma unroll
    for (int lane = 16; lane > 0; lane /= 2)
        value += __shfl_xor_sync(0xffffffffu, value, lane);
    return value;
}

/* before[i] = the sum of own(0) ... own(i - 1), up to before[count]; by one warp. */
template <typename OWN>
static __device__ __forceinline__ void sums_before(uint32_t *before, uint32_t count, OWN own)
{
    uint32_t carried = 0;
    for (uint32_t base = 0; base < count; base += 32) {
        uint32_t i = base + threadIdx.x, value = i < count ? own(i) : 0, sum = value;
#pragma unroll
        for (uint32_t step = 1; step < 32; step *= 2) {
            uint32_t other = __shfl_up_sync(0xffffffffu, sum, step);
            sum += threadIdx.x >= step ? other : 0;
        }
        if (i < count)
            before[i] = carried + sum - value;
        carried += __shfl_sync(0xffffffffu, sum, 31);
    }
    if (threadIdx.x == 0)
        before[count] = carried;
}

static __device__ __forceinline__ float warp_max(float value)
{
#pragma unroll
    for (int lane = 16; lane > 0; lane /= 2)
        value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, lane));
    return value;
}

/*
 * Of a block of at most 1024 threads, a multiple of 32; every thread gets the result. A kernel uses
 * each kind once, or puts a barrier between.
 */
template <bool MAXIMUM> static __device__ __forceinline__ float block_reduce(float value)
{
    __shared__ float partial[32];
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
    value = MAXIMUM ? warp_max(value) : warp_sum(value);
    if (lane == 0)
        partial[warp] = value;
    __syncthreads();
    value = lane < warps ? partial[lane] : 0.0f;
    return MAXIMUM ? warp_max(value) : warp_sum(value);
}

/* The power of two that brings a magnitude beyond half's range to [2^14, 2^15); 1 within range. */
static __device__ __forceinline__ float row_scale_of(float magnitude)
{
    uint32_t exponent = __float_as_uint(magnitude) >> 23 & 255;
    if (!(magnitude > HALF_MAX))
        return 1.0f;
    return __uint_as_float((exponent - 14) << 23);
}

static __device__ __forceinline__ uint32_t pack_halves(float low, float high)
{
    __half2 pair = __floats2half2_rn(low, high);
    return *reinterpret_cast<uint32_t *>(&pair);
}

static __device__ __forceinline__ float2 unpack_halves(uint32_t word)
{
    return __half22float2(*reinterpret_cast<__half2 *>(&word));
}

static __device__ __forceinline__ float sigmoid_of(float x)
{
    return __fdividef(1.0f, 1.0f + __expf(-x));
}

static __device__ __forceinline__ float activate(uint32_t activation, float gate, float up)
{
    switch (activation) {
    case STRATA__ACT_SWIGLU:
        return gate * sigmoid_of(gate) * up;
    case STRATA__ACT_SWIGLU_CLAMPED:
        gate = fminf(gate, 7.0f);
        up = fminf(fmaxf(up, -7.0f), 7.0f);
        return gate * sigmoid_of(1.702f * gate) * (up + 1.0f);
    default: {
        float inner = 0.797884560802865356f * gate * (1.0f + 0.044715f * gate * gate);
        return gate * sigmoid_of(2.0f * inner) * up;
    }
    }
}

#endif
