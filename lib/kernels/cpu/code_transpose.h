/* SPDX-License-Identifier: MIT */
/* Transposition in blocks of eight by eight, and the packing of activation rows with it. */
#ifndef STRATA_KERNELS_CPU_CODE_TRANSPOSE_H
#define STRATA_KERNELS_CPU_CODE_TRANSPOSE_H

#include <stddef.h>
#include <stdint.h>

#if defined(__AVX2__)

#include <immintrin.h>

/* Eight vectors in place: vector i becomes the values i of all eight. */
static inline void turn_eight(__m256 *v)
{
    __m256 pairs[8], fours[8];
    for (int i = 0; i < 8; i += 2) {
        pairs[i] = _mm256_unpacklo_ps(v[i], v[i + 1]);
        pairs[i + 1] = _mm256_unpackhi_ps(v[i], v[i + 1]);
    }
    for (int i = 0; i < 8; i += 4)
        for (int j = 0; j < 2; j++) {
            fours[i + 2 * j] = _mm256_shuffle_ps(pairs[i + j], pairs[i + 2 + j], 0x44);
            fours[i + 2 * j + 1] = _mm256_shuffle_ps(pairs[i + j], pairs[i + 2 + j], 0xee);
        }
    for (int i = 0; i < 4; i++) {
        v[i] = _mm256_permute2f128_ps(fours[i], fours[i + 4], 0x20);
        v[i + 4] = _mm256_permute2f128_ps(fours[i], fours[i + 4], 0x31);
    }
}

/*
 * out[j * stride + i] = rows[i][j] * factor[i] * gain[j] for i, j < 8; no factors when gain is NULL
 */
static inline void turn_block(const float *const *rows, size_t at, const float *factor,
                              const float *gain, float *out, size_t stride)
{
    __m256 v[8];
    for (int i = 0; i < 8; i++) {
        v[i] = _mm256_loadu_ps(rows[i] + at);
        if (gain) {
            v[i] = _mm256_mul_ps(v[i], _mm256_set1_ps(factor[i]));
            v[i] = _mm256_mul_ps(v[i], _mm256_loadu_ps(gain + at));
        }
    }
    turn_eight(v);
    for (int j = 0; j < 8; j++)
        _mm256_storeu_ps(out + (size_t)j * stride, v[j]);
}

#else

static inline void turn_block(const float *const *rows, size_t at, const float *factor,
                              const float *gain, float *out, size_t stride)
{
    for (int j = 0; j < 8; j++)
        for (int i = 0; i < 8; i++) {
            float value = rows[i][at + (size_t)j];
            out[(size_t)j * stride + (size_t)i] =
                gain ? value * factor[i] * gain[at + (size_t)j] : value;
        }
}

#endif

/* The columns behind the last block of eight. */
static inline void turn_rest(const float *const *rows, size_t at, size_t end, const float *factor,
                             const float *gain, float *out, size_t stride)
{
    for (; at < end; at++, out += stride)
        for (int i = 0; i < 8; i++)
            out[i] = gain ? rows[i][at] * factor[i] * gain[at] : rows[i][at];
}

static void transpose(const float *in, uint32_t in_stride, uint32_t rows, uint32_t columns,
                      float *out, uint32_t out_stride)
{
    uint32_t whole = columns - columns % 8;
    for (uint32_t r = 0; r < rows; r += 8) {
        const float *sources[8];
        for (uint32_t i = 0; i < 8; i++)
            sources[i] = in + (size_t)(r + i) * in_stride;
        for (uint32_t c = 0; c < whole; c += 8)
            turn_block(sources, c, NULL, NULL, out + (size_t)c * out_stride + r, out_stride);
        turn_rest(sources, whole, columns, NULL, NULL, out + (size_t)whole * out_stride + r,
                  out_stride);
    }
}

/* Sources beyond `rows` repeat the last one: their sums are not used. */
static void pack(const float *const *sources, const float *factor, const float *gain, uint32_t rows,
                 uint32_t width, uint32_t k, float *packed)
{
    uint32_t whole = k - k % 8;
    for (uint32_t r = 0; r < width; r += 8) {
        const float *from[8];
        float factors[8];
        for (uint32_t i = 0; i < 8; i++) {
            uint32_t row = r + i < rows ? r + i : rows - 1;
            from[i] = sources[row];
            factors[i] = gain ? factor[row] : 1.0f;
        }
        for (uint32_t c = 0; c < whole; c += 8)
            turn_block(from, c, factors, gain, packed + (size_t)c * width + r, width);
        turn_rest(from, whole, k, factors, gain, packed + (size_t)whole * width + r, width);
    }
}

#endif
