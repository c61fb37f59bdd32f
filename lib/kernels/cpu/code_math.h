/* SPDX-License-Identifier: MIT */
/*
 * Elementwise functions written so that the compiler turns loops over them into vector code. They
 * use no fused operations, so a value has the same bits in a vector, in a loop's tail and at every
 * level.
 */
#ifndef STRATA_KERNELS_CPU_CODE_MATH_H
#define STRATA_KERNELS_CPU_CODE_MATH_H

#include <math.h>

#include "kernels/cpu/decode_common.h"
#include "kernels/kernels.h"

/*
 * exp to about one unit in the last place; zero below -87 and infinite above 88. The argument is
 * split into n ln 2 + r with |r| <= ln(2)/2, where the Taylor polynomial of degree 7 is exact to
 * 5e-9; ln 2 is held as a sum of a short and a small number so that n times the short one is exact.
 */
static inline float exp_fast(float x)
{
    const float round = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    float clamped = x < -87.0f ? -87.0f : x > 88.0f ? 88.0f : x;
    float finite = x == x ? clamped : 0.0f; /* a NaN has no integer, and stays in the remainder */
    float n = (finite * 1.44269504f + round) - round;
    float r = (clamped - n * 0.693359375f) - n * -2.12194440e-4f;
    float p = 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * (r * r) + r + 1.0f;
    float power = float_of_bits((uint32_t)((int32_t)n + 127) << 23);
    return x < -87.0f ? 0.0f : x > 88.0f ? INFINITY : p * power;
}

static inline float sigmoid_times(float x, float slope, float value)
{
    return value / (1.0f + exp_fast(-slope * x));
}

static inline float gelu_tanh(float x)
{
    /* x/2 (1 + tanh u) = x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3) */
    float u = 0.7978845608f * (x + 0.044715f * x * x * x);
    return sigmoid_times(u, 2.0f, x);
}

static void activate(uint32_t activation, const float *gate, const float *up, uint32_t n,
                     float *out)
{
    if (activation == STRATA__ACT_SWIGLU)
        for (uint32_t i = 0; i < n; i++)
            out[i] = sigmoid_times(gate[i], 1.0f, gate[i]) * up[i];
    else if (activation == STRATA__ACT_GEGLU_TANH)
        for (uint32_t i = 0; i < n; i++)
            out[i] = gelu_tanh(gate[i]) * up[i];
    else
        for (uint32_t i = 0; i < n; i++) {
            float g = gate[i] > 7.0f ? 7.0f : gate[i];
            float u = up[i] > 7.0f ? 7.0f : up[i] < -7.0f ? -7.0f : up[i];
            out[i] = sigmoid_times(g, 1.702f, g) * (u + 1.0f);
        }
}

/* Eight partial sums in double, added in ascending order. */
static double sum_squares(const float *values, uint32_t n)
{
    double lanes[8] = {0}, sum = 0;
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int l = 0; l < 8; l++)
            lanes[l] += (double)values[i + l] * (double)values[i + l];
    for (; i < n; i++)
        lanes[i % 8] += (double)values[i] * (double)values[i];
    for (int l = 0; l < 8; l++)
        sum += lanes[l];
    return sum;
}

static inline uint16_t half_of_float(float value)
{
    uint32_t bits = bits_of_float(value), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    /*
     * From 2^-14 on: rebias the exponent and round the fraction; below, the sum aligns the
     * fraction.
     */
    uint32_t normal = (magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
    uint32_t small = bits_of_float(float_of_bits(magnitude) + 0.5f) - bits_of_float(0.5f);
    uint32_t half = magnitude < 113u << 23 ? small : normal;
    half = magnitude > 0x477fe000 ? 0x7bff : half;
    half = magnitude > 0x7f800000 ? 0x7e00 : half;
    return (uint16_t)(sign | half);
}

static void to_half(const float *values, uint32_t n, uint16_t *halves)
{
    for (uint32_t i = 0; i < n; i++)
        halves[i] = half_of_float(values[i]);
}

#endif
