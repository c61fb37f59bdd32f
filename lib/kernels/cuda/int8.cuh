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

/*
 * 1.5 * 2^23: a float less than 2^22 that it is added to is rounded to an integer, which then
 * stands in the low bits, and is the float that is left when BIAS is taken off.
 */
constexpr float BIAS = 12582912.0f;

/*
 * Division without a branch, by the steps that __fdiv_rn takes where nothing under- or overflows.
 * The reciprocal is 1 / b rounded; the quotient by it is off by less than two units in the last
 * place, and what then remains of `a` is exact, a multiple of one unit of b times one of the
 * quotient. So the sum that is rounded last is nearer to a / b than any middle between two floats
 * is, which a / b never is itself. All of that holds where 2^-100 <= |a|, 2^-100 <= |b| < 2^126 and
 * 2^-126 <= |a / b| < 2^128.
 */
static __device__ __forceinline__ float rounded_reciprocal(float b)
{
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(b));
    return __fmaf_rn(r, __fmaf_rn(-b, r, 1.0f), r);
}

static __device__ __forceinline__ float quotient(float a, float b, float reciprocal)
{
    float q = __fmul_rn(a, reciprocal);
    return __fmaf_rn(reciprocal, __fmaf_rn(-b, q, a), q);
}

/*
 * exp as the CPU kernels have it, of -87 to 88: n ln 2 is split off, a polynomial of degree 7 does
 * the rest.
 */
static __device__ __forceinline__ float exp_inside(float x)
{
    float shifted = __fadd_rn(__fmul_rn(x, 1.44269504f), BIAS), n = __fsub_rn(shifted, BIAS);
    float r = __fsub_rn(__fsub_rn(x, __fmul_rn(n, 0.693359375f)), __fmul_rn(n, -2.12194440e-4f));
    float p = 1.0f / 5040;
    p = __fadd_rn(__fmul_rn(p, r), 1.0f / 720);
    p = __fadd_rn(__fmul_rn(p, r), 1.0f / 120);
    p = __fadd_rn(__fmul_rn(p, r), 1.0f / 24);
    p = __fadd_rn(__fmul_rn(p, r), 1.0f / 6);
    p = __fadd_rn(__fmul_rn(p, r), 0.5f);
    p = __fadd_rn(__fadd_rn(__fmul_rn(p, __fmul_rn(r, r)), r), 1.0f);
    return __fmul_rn(p, __uint_as_float((__float_as_uint(shifted) << 23) + (127u << 23)));
}

static __device__ __forceinline__ float exp_exact(float x)
{
    float inside = exp_inside(x < -87.0f ? -87.0f : x > 88.0f ? 88.0f : x);
    return x < -87.0f ? 0.0f : x > 88.0f ? INFINITY : inside;
}

/* An activation is value / (1 + exp(x)) * factor. */
struct activation_terms {
    float x, value, factor;
};

static __device__ __forceinline__ activation_terms terms_of(uint32_t activation, float gate,
                                                            float up)
{
    if (activation == STRATA__ACT_SWIGLU)
        return {-gate, gate, up};
    if (activation == STRATA__ACT_GEGLU_TANH) {
        float cube = __fmul_rn(__fmul_rn(__fmul_rn(0.044715f, gate), gate), gate);
        float u = __fmul_rn(0.7978845608f, __fadd_rn(gate, cube));
        return {__fmul_rn(-2.0f, u), gate, up};
    }
    float g = gate > 7.0f ? 7.0f : gate;
    float u = up > 7.0f ? 7.0f : up < -7.0f ? -7.0f : up;
    return {__fmul_rn(-1.702f, g), g, __fadd_rn(u, 1.0f)};
}

static __device__ __forceinline__ float activate_exact(uint32_t activation, float gate, float up)
{
    activation_terms t = terms_of(activation, gate, up);
    return __fmul_rn(__fdiv_rn(t.value, __fadd_rn(1.0f, exp_exact(t.x))), t.factor);
}

/*
 * value / (1 + exp(x)) without a branch, and whether it is the one of activate_exact, but for the
 * sign of a zero. The divisor is 1 where x is at most -87, less than 2^126 where it is at most 87,
 * and infinite where it is more than 88: exp(88) takes its place, whose reciprocal comes as 0.
 * Values below 2^-26 have an x below 2^-25 and are halved, which the division does exactly; of all
 * others the quotient is in its range.
 */
struct gated_value {
    float value;
    bool safe;

    __device__ __forceinline__ explicit gated_value(const activation_terms &t)
    {
        float divisor = __fadd_rn(1.0f, exp_inside(fminf(fmaxf(t.x, -87.0f), 88.0f)));
        value = quotient(t.value, divisor, rounded_reciprocal(divisor));
        safe = ((t.x <= 87.0f) | (t.x > 88.0f)) & (fabsf(t.value) < INFINITY);
    }
};

/*
 * Hidden values in place of their gates. False and no change where one of them is out of the range
 * in which division needs no branch.
 */
template <uint32_t ACTIVATION, int COUNT>
static __device__ __forceinline__ bool activate_safely(float (&gate)[COUNT],
                                                       const float (&up)[COUNT])
{
    float value[COUNT], factor[COUNT];
    bool safe = true;
#pragma unroll
    for (int n = 0; n < COUNT; n++) {
        activation_terms t = terms_of(ACTIVATION, gate[n], up[n]);
        gated_value gated(t);
        value[n] = gated.value;
        factor[n] = t.factor;
        safe = safe & gated.safe;
    }
#pragma unroll
    for (int n = 0; n < COUNT; n++)
        if (safe)
            gate[n] = __fmul_rn(value[n], factor[n]);
    return safe;
}

/* Hidden values of any gates, in place of these. */
template <int COUNT>
static __device__ __forceinline__ void activate_gates(uint32_t activation, float (&gate)[COUNT],
                                                      const float (&up)[COUNT])
{
    bool done;
    if (activation == STRATA__ACT_SWIGLU)
        done = activate_safely<STRATA__ACT_SWIGLU>(gate, up);
    else if (activation == STRATA__ACT_GEGLU_TANH)
        done = activate_safely<STRATA__ACT_GEGLU_TANH>(gate, up);
    else
        done = activate_safely<STRATA__ACT_SWIGLU_CLAMPED>(gate, up);
#pragma unroll
    for (int n = 0; !done && n < COUNT; n++)
        gate[n] = activate_exact(activation, gate[n], up[n]);
}

/* Scale of a group whose largest magnitude has these bits, and the factor of its values. */
static __device__ __forceinline__ float group_scale(uint32_t bits, float *inverse)
{
    float most = __uint_as_float(bits);
    float scale = quotient(most, 127.0f, 1.0f / 127.0f);
    *inverse = quotient(127.0f, most, rounded_reciprocal(most));
    if (bits - STRATA__INT8_LEAST < (192u << 23)) /* 2^-96 to 2^96 */
        return scale;
    *inverse = 0.0f;
    if (bits < STRATA__INT8_LEAST)
        return 0.0f;
    if (bits >= STRATA__INT8_INFINITE)
        return most;
    *inverse = __fdiv_rn(127.0f, most);
    return __fdiv_rn(most, 127.0f);
}

static __device__ __forceinline__ uint32_t codes_bytes(uint32_t values)
{
    return (values + 15) / 16 * 16;
}

static __device__ __forceinline__ uint32_t scales_bytes(uint32_t values)
{
    return (4 * ((values + 31) / 32) + 15) / 16 * 16;
}

/* The greater magnitude, no number if one of both is none. */
static __device__ __forceinline__ float greater_magnitude(float a, float b)
{
    float most;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(most) : "f"(fabsf(a)), "f"(fabsf(b)));
    return most;
}

/* Codes of four values. Where the inverse is 0 they are 0. */
static __device__ __forceinline__ uint32_t rounded_codes(const float *v, float inverse)
{
    uint32_t bits[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        bits[i] = __float_as_uint(__fadd_rn(__fmul_rn(v[i], inverse), BIAS));
    uint32_t low = __byte_perm(bits[0], bits[1], 0x0040);
    uint32_t codes = __byte_perm(low, __byte_perm(bits[2], bits[3], 0x0040), 0x5410);
    return inverse == 0.0f ? 0 : codes;
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
    float largest = greater_magnitude(greater_magnitude(v[0], v[1]), greater_magnitude(v[2], v[3]));
    uint32_t most = __float_as_uint(largest);
    for (uint32_t lanes = 1; lanes < group / 4; lanes *= 2)
        most = max(most, __shfl_xor_sync(0xffffffffu, most, lanes));
    float inverse, scale = group_scale(most, &inverse);
    uint32_t word = rounded_codes(v, inverse);
    int sum = __dp4a((int)word, 0x01010101, 0);
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    if (!store)
        return;
    uint8_t *out = rows + row * (codes + 2 * scales);
    *reinterpret_cast<uint32_t *>(out + at) = word;
    if (at % STRATA__INT8_BLOCK == 0)
        *reinterpret_cast<float *>(out + codes + at / STRATA__INT8_BLOCK * 4) = scale;
    if (at % STRATA__INT8_HALF == 0)
        *reinterpret_cast<int16_t *>(out + codes + scales + at / STRATA__INT8_HALF * 2) =
            (int16_t)sum;
}

/*
 * Sixteen values of a quantised row from `at` on, by all lanes of a warp: the lanes of a group are
 * APART from each other.
 */
template <uint32_t APART>
static __device__ __forceinline__ void quantise_sixteen(const float (&v)[16], uint32_t group,
                                                        uint8_t *rows, uint32_t row, uint32_t at,
                                                        uint32_t width, bool store)
{
    uint32_t codes = codes_bytes(width), scales = scales_bytes(width), words[4];
    float largest[8];
#pragma unroll
    for (int i = 0; i < 8; i++)
        largest[i] = greater_magnitude(v[i], v[i + 8]);
#pragma unroll
    for (int count = 4; count; count /= 2)
#pragma unroll
        for (int i = 0; i < count; i++)
            largest[i] = greater_magnitude(largest[i], largest[i + count]);
    uint32_t most = __float_as_uint(largest[0]);
    most = max(most, __shfl_xor_sync(0xffffffffu, most, APART));
    if (group == 64)
        most = max(most, __shfl_xor_sync(0xffffffffu, most, 2 * APART));
    float inverse, scale = group_scale(most, &inverse);
    int sum = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        words[i] = rounded_codes(v + 4 * i, inverse);
        sum = __dp4a((int)words[i], 0x01010101, sum);
    }
    if (!store)
        return;
    uint8_t *out = rows + (uint64_t)row * (codes + 2 * scales);
    *reinterpret_cast<uint4 *>(out + at) = {words[0], words[1], words[2], words[3]};
    if (at % STRATA__INT8_BLOCK == 0)
        *reinterpret_cast<float *>(out + codes + at / STRATA__INT8_BLOCK * 4) = scale;
    *reinterpret_cast<int16_t *>(out + codes + scales + at / STRATA__INT8_HALF * 2) = (int16_t)sum;
}

#endif
