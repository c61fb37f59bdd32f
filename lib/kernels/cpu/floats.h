/* SPDX-License-Identifier: MIT */
/*
 * Sixteen floats in as many registers as they take, and how they come from codes, halves and
 * memory. Every level rounds alike, but that only those with FMA fuse.
 */
#ifndef STRATA_KERNELS_CPU_FLOATS_H
#define STRATA_KERNELS_CPU_FLOATS_H

#include <stdint.h>
#include <string.h>

#include "kernels/cpu/codes.h"
#include "kernels/cpu/decode_common.h"

#if defined(__AVX512F__)
enum { FLOATS_PIECE = 16 };
typedef __m512 floats_piece;
#elif defined(__AVX2__)
enum { FLOATS_PIECE = 8 };
typedef __m256 floats_piece;
#else
enum { FLOATS_PIECE = 4 };
typedef float floats_piece __attribute__((vector_size(16)));
#endif

enum { FLOATS_PIECES = 16 / FLOATS_PIECE };

typedef struct floats_16 {
    floats_piece at[FLOATS_PIECES];
} floats_16;

static inline floats_16 floats_load(const void *p)
{
    floats_16 x;
    for (int i = 0; i < FLOATS_PIECES; i++)
        memcpy(&x.at[i], (const char *)p + i * sizeof x.at[i], sizeof x.at[i]);
    return x;
}

static inline void floats_store(floats_16 x, float *p)
{
    for (int i = 0; i < FLOATS_PIECES; i++)
        memcpy(p + i * FLOATS_PIECE, &x.at[i], sizeof x.at[i]);
}

static inline floats_16 floats_add(floats_16 x, floats_16 y)
{
    for (int i = 0; i < FLOATS_PIECES; i++)
        x.at[i] = x.at[i] + y.at[i];
    return x;
}

static inline floats_16 floats_multiply(floats_16 x, floats_16 y)
{
    for (int i = 0; i < FLOATS_PIECES; i++)
        x.at[i] = x.at[i] * y.at[i];
    return x;
}

#if defined(__AVX512F__)

static inline floats_16 floats_all(float value)
{
    return (floats_16){{_mm512_set1_ps(value)}};
}

/* The first value eight times, then the second. */
static inline floats_16 floats_halves(float low, float high)
{
    return (floats_16){{_mm512_mask_blend_ps(0xff00, _mm512_set1_ps(low), _mm512_set1_ps(high))}};
}

/* A half in memory, sixteen times. */
static inline floats_16 floats_all_half(const uint8_t *p)
{
    return (floats_16){{_mm512_cvtph_ps(_mm256_set1_epi16((short)load_u16(p)))}};
}

static inline floats_16 floats_of_halves(const uint8_t *p)
{
    return (floats_16){{_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p))}};
}

static inline floats_16 floats_of_bf16(const uint8_t *p)
{
    __m512i x = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p));
    return (floats_16){{_mm512_castsi512_ps(_mm512_slli_epi32(x, 16))}};
}

static inline floats_16 floats_of_codes(codes_16 x)
{
    return (floats_16){{_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(x))}};
}

static inline floats_16 floats_add_product(floats_16 x, floats_16 y, floats_16 sum)
{
    return (floats_16){{_mm512_fmadd_ps(x.at[0], y.at[0], sum.at[0])}};
}

static inline __m256 floats_add_eight(floats_16 x)
{
    return _mm512_castps512_ps256(x.at[0]) + _mm512_extractf32x8_ps(x.at[0], 1);
}

#elif defined(__AVX2__)

static inline floats_16 floats_all(float value)
{
    return (floats_16){{_mm256_set1_ps(value), _mm256_set1_ps(value)}};
}

static inline floats_16 floats_halves(float low, float high)
{
    return (floats_16){{_mm256_set1_ps(low), _mm256_set1_ps(high)}};
}

static inline floats_16 floats_all_half(const uint8_t *p)
{
    __m256 x = _mm256_cvtph_ps(_mm_set1_epi16((short)load_u16(p)));
    return (floats_16){{x, x}};
}

static inline floats_16 floats_of_halves(const uint8_t *p)
{
    return (floats_16){{_mm256_cvtph_ps(codes_load(p)), _mm256_cvtph_ps(codes_load(p + 16))}};
}

static inline floats_16 floats_of_bf16(const uint8_t *p)
{
    __m256i low = _mm256_slli_epi32(_mm256_cvtepu16_epi32(codes_load(p)), 16);
    __m256i high = _mm256_slli_epi32(_mm256_cvtepu16_epi32(codes_load(p + 16)), 16);
    return (floats_16){{_mm256_castsi256_ps(low), _mm256_castsi256_ps(high)}};
}

static inline floats_16 floats_of_codes(codes_16 x)
{
    return (floats_16){{_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(x)),
                        _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(x, 8)))}};
}

static inline floats_16 floats_add_product(floats_16 x, floats_16 y, floats_16 sum)
{
    return (floats_16){{_mm256_fmadd_ps(x.at[0], y.at[0], sum.at[0]),
                        _mm256_fmadd_ps(x.at[1], y.at[1], sum.at[1])}};
}

static inline __m256 floats_add_eight(floats_16 x)
{
    return x.at[0] + x.at[1];
}

#else

static inline floats_16 floats_halves(float low, float high)
{
    floats_piece first = {low, low, low, low}, second = {high, high, high, high};
    return (floats_16){{first, first, second, second}};
}

static inline floats_16 floats_all(float value)
{
    return floats_halves(value, value);
}

static inline floats_16 floats_all_half(const uint8_t *p)
{
    return floats_all(load_half(p));
}

static inline floats_16 floats_of_halves(const uint8_t *p)
{
    float values[16];
    for (int i = 0; i < 16; i++)
        values[i] = load_half(p + 2 * i);
    return floats_load(values);
}

static inline floats_16 floats_of_bf16(const uint8_t *p)
{
    float values[16];
    for (int i = 0; i < 16; i++)
        values[i] = float_of_bits((uint32_t)load_u16(p + 2 * i) << 16);
    return floats_load(values);
}

static inline floats_16 floats_of_codes(codes_16 x)
{
    signed_16 codes = (signed_16)x;
    float values[16];
    for (int i = 0; i < 16; i++)
        values[i] = (float)codes[i];
    return floats_load(values);
}

static inline floats_16 floats_add_product(floats_16 x, floats_16 y, floats_16 sum)
{
    return floats_add(floats_multiply(x, y), sum);
}

#endif

/* Lane i and lane i + n / 2 of n are added until one is left. */
static inline float floats_sum(floats_16 x)
{
#if defined(__AVX2__)
    __m256 eight = floats_add_eight(x);
    __m128 four = _mm256_castps256_ps128(eight) + _mm256_extractf128_ps(eight, 1);
    four = four + _mm_movehl_ps(four, four);
    return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
#else
    floats_piece four = (x.at[0] + x.at[2]) + (x.at[1] + x.at[3]);
    return (four[0] + four[2]) + (four[1] + four[3]);
#endif
}

#endif
