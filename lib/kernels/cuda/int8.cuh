/* SPDX-License-Identifier: MIT */
/*
 * The float32 parts of the int8 arithmetic, with the bits of the CPU: every operation is written as
 * an intrinsic, which the compiler neither fuses nor replaces.
 */
#ifndef STRATA_KERNELS_CUDA_INT8_CUH
#define STRATA_KERNELS_CUDA_INT8_CUH

#include "kernels/cuda/common.cuh"
#include "kernels/cuda/int8.h"
#include "kernels/int8.h"

/* exp as the CPU kernels have it: n ln 2 is split off, a polynomial of degree 7 does the rest. */
static __device__ __forceinline__ float exp_exact(float x)
{
    const float round = 12582912.0f;
    float clamped = x < -87.0f ? -87.0f : x > 88.0f ? 88.0f : x;
    float n = __fsub_rn(__fadd_rn(__fmul_rn(clamped, 1.44269504f), round), round);
    float r =
        __fsub_rn(__fsub_rn(clamped, __fmul_rn(n, 0.693359375f)), __fmul_rn(n, -2.12194440e-4f));
    float p = 1.0f / 5040;
    p = __fadd_rn(__fmul_rn(p, r), 1.0f / 720);
    p = __fadd_rn(__fmul_rn(p, r), 1.0f / 120);
    p = __fadd_rn(__fmul_rn(p, r), 1.0f / 24);
    p = __fadd_rn(__fmul_rn(p, r), 1.0f / 6);
    p = __fadd_rn(__fmul_rn(p, r), 0.5f);
    p = __fadd_rn(__fadd_rn(__fmul_rn(p, __fmul_rn(r, r)), r), 1.0f);
    float power = __uint_as_float((uint32_t)((int32_t)n + 127) << 23);
    return x < -87.0f ? 0.0f : x > 88.0f ? INFINITY : __fmul_rn(p, power);
}

static __device__ __forceinline__ float sigmoid_times_exact(float x, float slope, float value)
{
    return __fdiv_rn(value, __fadd_rn(1.0f, exp_exact(__fmul_rn(-slope, x))));
}

static __device__ __forceinline__ float activate_exact(uint32_t activation, float gate, float up)
{
    if (activation == STRATA__ACT_SWIGLU)
        return __fmul_rn(sigmoid_times_exact(gate, 1.0f, gate), up);
    if (activation == STRATA__ACT_GEGLU_TANH) {
        float cube = __fmul_rn(__fmul_rn(__fmul_rn(0.044715f, gate), gate), gate);
        float u = __fmul_rn(0.7978845608f, __fadd_rn(gate, cube));
        return __fmul_rn(sigmoid_times_exact(u, 2.0f, gate), up);
    }
    float g = gate > 7.0f ? 7.0f : gate;
    float u = up > 7.0f ? 7.0f : up < -7.0f ? -7.0f : up;
    return __fmul_rn(sigmoid_times_exact(g, 1.702f, g), __fadd_rn(u, 1.0f));
}

static __device__ __forceinline__ uint32_t magnitude_bits(float value)
{
    return __float_as_uint(value) & 0x7fffffffu;
}

/* Scale of a group whose largest magnitude has these bits, and the factor of its values. */
static __device__ __forceinline__ float group_scale(uint32_t bits, float *inverse)
{
    float most = __uint_as_float(bits);
    *inverse = 0.0f;
    if (bits < STRATA__INT8_LEAST)
        return 0.0f;
    if (bits >= STRATA__INT8_INFINITE)
        return most;
    *inverse = __fdiv_rn(127.0f, most);
    return __fdiv_rn(most, 127.0f);
}

/* A group whose inverse is 0 has codes 0, whatever its values are. */
static __device__ __forceinline__ int quantised(float value, float inverse)
{
    return inverse == 0.0f ? 0 : __float2int_rn(__fmul_rn(value, inverse));
}

static __device__ __forceinline__ uint32_t pack_codes(int a, int b, int c, int d)
{
    return (uint32_t)(a & 255) | (uint32_t)(b & 255) << 8 | (uint32_t)(c & 255) << 16 |
           (uint32_t)(d & 255) << 24;
}

static __device__ __forceinline__ uint32_t codes_bytes(uint32_t values)
{
    return (values + 15) / 16 * 16;
}

static __device__ __forceinline__ uint32_t scales_bytes(uint32_t values)
{
    return (4 * ((values + 31) / 32) + 15) / 16 * 16;
}

/*
 * Four values of a quantised row from `at` on, by all lanes of a warp: groups lie in neighbouring
 * lanes. `group`: values per scale.
 */
static __device__ __forceinline__ void quantise_four(const float (&v)[4], uint32_t group,
                                                     uint8_t *rows, uint64_t row, uint32_t at,
                                                     uint32_t width, bool store)
{
    uint32_t codes = codes_bytes(width), scales = scales_bytes(width);
    uint32_t most = max(max(magnitude_bits(v[0]), magnitude_bits(v[1])),
                        max(magnitude_bits(v[2]), magnitude_bits(v[3])));
    for (uint32_t lanes = 1; lanes < group / 4; lanes *= 2)
        most = max(most, __shfl_xor_sync(0xffffffffu, most, lanes));
    float inverse, scale = group_scale(most, &inverse);
    int a = quantised(v[0], inverse), b = quantised(v[1], inverse);
    int c = quantised(v[2], inverse), d = quantised(v[3], inverse), sum = a + b + c + d;
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    if (!store)
        return;
    uint8_t *out = rows + row * (codes + 2 * scales);
    *reinterpret_cast<uint32_t *>(out + at) = pack_codes(a, b, c, d);
    if (at % STRATA__INT8_BLOCK == 0)
        *reinterpret_cast<float *>(out + codes + at / STRATA__INT8_BLOCK * 4) = scale;
    if (at % STRATA__INT8_HALF == 0)
        *reinterpret_cast<int16_t *>(out + codes + scales + at / STRATA__INT8_HALF * 2) =
            (int16_t)sum;
}

#endif
