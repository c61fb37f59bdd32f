/* SPDX-License-Identifier: MIT */
/* The inner loops of the int8 paths; the arithmetic is that of kernels/int8.h. */
#ifndef STRATA_KERNELS_CPU_CODE_INT8_H
#define STRATA_KERNELS_CPU_CODE_INT8_H

#include <math.h>

#include "kernels/cpu/code_product.h"
#include "kernels/cpu/decode_common.h"
#include "kernels/int8.h"

/* Largest magnitude as bits, which order as the numbers do, with NaN above infinity. */
static inline uint32_t magnitude_bits(const float *values, uint32_t n)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t bits = bits_of_float(values[i]) & 0x7fffffff;
        most = bits > most ? bits : most;
    }
    return most;
}

/* Codes of 16 values, and their sum. Adding 1.5 * 2^23 leaves the integer in the low bits. */
static inline int quantise_half(const float *values, float inverse, int8_t *codes)
{
    int sum = 0;
    for (uint32_t i = 0; i < STRATA__INT8_HALF; i++) {
        uint32_t bits = bits_of_float(values[i] * inverse + 12582912.0f);
        codes[i] = (int8_t)(bits & 255);
        sum += codes[i];
    }
    return sum;
}

static void quantise(const float *values, uint32_t n, uint32_t group, void *row)
{
    int8_t *codes = row;
    uint8_t *scales = (uint8_t *)row + strata__quantised_codes_bytes(n);
    uint8_t *sums = scales + strata__quantised_scales_bytes(n);
    for (uint32_t at = 0; at < n; at += group) {
        uint32_t bits = magnitude_bits(values + at, group);
        float most = float_of_bits(bits);
        bool usual = bits >= STRATA__INT8_LEAST && bits < STRATA__INT8_INFINITE;
        float scale = usual ? most / 127.0f : bits < STRATA__INT8_LEAST ? 0.0f : most;
        float inverse = usual ? 127.0f / most : 0.0f;
        for (uint32_t i = at; i < at + group; i += STRATA__INT8_HALF) {
            int sum = 0;
            if (usual)
                sum = quantise_half(values + i, inverse, codes + i);
            else
                memset(codes + i, 0, STRATA__INT8_HALF);
            int16_t half = (int16_t)sum;
            memcpy(sums + i / STRATA__INT8_HALF * sizeof half, &half, sizeof half);
        }
        for (uint32_t i = at; i < at + group; i += STRATA__INT8_BLOCK)
            memcpy(scales + i / STRATA__INT8_BLOCK * sizeof scale, &scale, sizeof scale);
    }
}

static void widen(const int8_t *codes, uint32_t n, float *out)
{
    for (uint32_t i = 0; i < n; i++)
        out[i] = (float)codes[i];
}

/*
 * What the dots of values from `at` on, in `parts` parts, add to the sums of output n: `offsets`
 * follow the last dot. Counts are constants where this is called, so that t stays in registers.
 */
static inline __attribute__((always_inline)) void
add_dots(const strata__int8_step *s, uint32_t at, uint32_t n, const float *dots,
         const uint32_t width, const uint32_t parts, const uint32_t offsets)
{
    const float *w = s->scales + n * s->scale_stride + at / s->weight_group;
    const float w0 = w[0], w1 = parts == 2 ? w[1] : 0;
    const float *restrict dot = dots + n * width;
    const float *restrict second = dot + (size_t)STRATA__TILE_OUTPUTS * width;
    const float *restrict scale = s->row_scales + at / s->row_group * width;
    const float *o = offsets ? s->offsets + n * s->scale_stride + at / s->offset_group : NULL;
    const float o0 = offsets ? o[0] : 0, o1 = offsets == 2 ? o[1] : 0;
    const float *restrict row_sums = offsets ? s->row_sums + at / s->offset_group * width : NULL;
    float *restrict sum = s->sums + (size_t)n * s->sum_stride;
    for (uint32_t r = 0; r < width; r++) {
        float t = w0 * dot[r];
        if (parts == 2)
            t = __builtin_fmaf(w1, second[r], t);
        if (offsets)
            t = __builtin_fmaf(o0, row_sums[r], t);
        if (offsets == 2)
            t = __builtin_fmaf(o1, row_sums[width + r], t);
        sum[r] = __builtin_fmaf(t, scale[r], sum[r]);
    }
}

/*
 * One tile of `width` rows. The dots are formed by the float tile: code products of up to 64 values
 * stay below 2^24, so its sums are the integers.
 */
static inline void int8_step_of(const strata__int8_step *s, const uint32_t width)
{
    const uint32_t group = s->weight_group, part = group < s->row_group ? group : s->row_group;
    const uint32_t parts = s->row_group / part, offsets = s->offsets ? part / s->offset_group : 0;
    float dots[2 * STRATA__TILE_OUTPUTS * STRATA__TILE_ROWS];
    for (uint32_t at = 0; at < s->count; at += s->row_group) {
        for (uint32_t p = 0; p < parts; p++)
            product(s->packed + (size_t)(at + p * part) * width, width, s->weights + at + p * part,
                    s->weight_stride, part, dots + p * STRATA__TILE_OUTPUTS * width, width, 1);
        for (uint32_t n = 0; n < STRATA__TILE_OUTPUTS; n++) {
            if (parts == 2)
                add_dots(s, at, n, dots, width, 2, 0);
            else if (offsets == 2)
                add_dots(s, at, n, dots, width, 1, 2);
            else if (offsets)
                add_dots(s, at, n, dots, width, 1, 1);
            else
                add_dots(s, at, n, dots, width, 1, 0);
        }
    }
}

static void int8_step(const strata__int8_step *s)
{
    if (s->width == 32)
        int8_step_of(s, 32);
    else if (s->width == 16)
        int8_step_of(s, 16);
    else
        int8_step_of(s, 8);
}

#endif
