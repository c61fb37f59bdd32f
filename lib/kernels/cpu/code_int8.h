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

/* Offsets times sums of values [k, end), to what output n has of `width` rows. */
static inline void add_offsets(const strata__int8_step *s, uint32_t n, uint32_t k, uint32_t end,
                               const uint32_t width, float *to)
{
    for (; s->offsets && k < end; k += s->offset_group) {
        const float *sums = s->row_sums + k / s->offset_group * width;
        float o = s->offsets[n * s->scale_stride + k / s->offset_group];
        for (uint32_t r = 0; r < width; r++)
            to[r] = __builtin_fmaf(o, sums[r], to[r]);
    }
}

/*
 * One tile of `width` rows. The dots are formed by the float tile: code products of up to 64 values
 * stay below 2^24, so its sums are the integers.
 */
static inline void int8_step_of(const strata__int8_step *s, const uint32_t width)
{
    const uint32_t group = s->weight_group, part = group < s->row_group ? group : s->row_group;
    float dots[STRATA__TILE_OUTPUTS * STRATA__TILE_ROWS];
    float t[STRATA__TILE_OUTPUTS * STRATA__TILE_ROWS];
    for (uint32_t at = 0; at < s->count; at += s->row_group) {
        for (uint32_t k = at; k < at + s->row_group; k += part) {
            product(s->packed + (size_t)k * width, width, s->weights + k, s->weight_stride, part,
                    dots, width, 1);
            for (uint32_t n = 0; n < STRATA__TILE_OUTPUTS; n++) {
                float w = s->scales[n * s->scale_stride + k / group];
                const float *dot = dots + n * width;
                float *to = t + n * width;
                if (k == at)
                    for (uint32_t r = 0; r < width; r++)
                        to[r] = w * dot[r];
                else
                    for (uint32_t r = 0; r < width; r++)
                        to[r] = __builtin_fmaf(w, dot[r], to[r]);
                add_offsets(s, n, k, k + part, width, to);
            }
        }
        const float *scale = s->row_scales + at / s->row_group * width;
        for (uint32_t n = 0; n < STRATA__TILE_OUTPUTS; n++) {
            float *sum = s->sums + (size_t)n * s->sum_stride;
            for (uint32_t r = 0; r < width; r++)
                sum[r] = __builtin_fmaf(t[n * width + r], scale[r], sum[r]);
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
