/* SPDX-License-Identifier: MIT */
/* Plain loops of the arithmetic of kernels/int8.h, and the checks that are made with them. */
#ifndef STRATA_TEST_GPU_PLAIN_INT8_H
#define STRATA_TEST_GPU_PLAIN_INT8_H

#include <float.h>

#include "check.h"

#include "kernels/int8.h"

/* A quantised row as integers. */
struct plain_row {
    std::vector<int> codes;
    std::vector<float> scales; /* one for every 32 values */
};

inline plain_row quantise(const float *x, uint32_t n, uint32_t group)
{
    plain_row row = {std::vector<int>(n), std::vector<float>(n / 32)};
    for (uint32_t at = 0; at < n; at += group) {
        float most = 0;
        for (uint32_t i = at; i < at + group; i++)
            most = isnan(most) || fabsf(x[i]) < most ? most : fabsf(x[i]);
        bool some = most >= 0x1p-96f && most <= FLT_MAX;
        float scale = most < 0x1p-96f ? 0 : some ? most / 127.0f : most;
        float inverse = some ? 127.0f / most : 0;
        for (uint32_t i = at; i < at + group; i++) {
            volatile float scaled = x[i] * inverse;
            row.codes[i] = some ? (int)nearbyintf(scaled) : 0;
            row.scales[i / 32] = scale;
        }
    }
    return row;
}

inline void put_row(const plain_row &row, uint8_t *out)
{
    uint32_t n = (uint32_t)row.codes.size();
    uint8_t *scales = out + strata__quantised_codes_bytes(n);
    uint8_t *sums = scales + strata__quantised_scales_bytes(n);
    for (uint32_t i = 0; i < n; i++)
        out[i] = (uint8_t)row.codes[i];
    memcpy(scales, row.scales.data(), row.scales.size() * 4);
    for (uint32_t i = 0; i < n; i += 16) {
        int16_t sum = 0;
        for (uint32_t j = i; j < i + 16; j++)
            sum = (int16_t)(sum + row.codes[j]);
        memcpy(sums + i / 8, &sum, 2);
    }
}

inline float plain_exp(float x)
{
    const float round = 12582912.0f;
    float clamped = x < -87.0f ? -87.0f : x > 88.0f ? 88.0f : x;
    float n = (clamped * 1.44269504f + round) - round;
    float r = (clamped - n * 0.693359375f) - n * -2.12194440e-4f, p = 1.0f / 5040;
    const float terms[] = {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f};
    for (float term : terms)
        p = p * r + term;
    p = p * (r * r) + r + 1.0f;
    return x < -87.0f ? 0.0f : x > 88.0f ? INFINITY : ldexpf(p, (int)n);
}

inline float plain_activation(uint32_t activation, float g, float u)
{
    if (activation == STRATA__ACT_SWIGLU)
        return g / (1.0f + plain_exp(-1.0f * g)) * u;
    if (activation == STRATA__ACT_GEGLU_TANH) {
        float v = 0.7978845608f * (g + 0.044715f * g * g * g);
        return g / (1.0f + plain_exp(-2.0f * v)) * u;
    }
    g = g > 7.0f ? 7.0f : g;
    u = u > 7.0f ? 7.0f : u < -7.0f ? -7.0f : u;
    return g / (1.0f + plain_exp(-1.702f * g)) * (u + 1.0f);
}

/* What stands alone: division without a branch, and what becomes of the sums of a tile. */
int check_division(const suite &s);
int check_int8_out(const suite &s);

#endif
