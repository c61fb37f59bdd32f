/* SPDX-License-Identifier: MIT */
/*
 * Dots of an activation row with a weight row, for products of few rows, where a tile of rows would
 * be mostly padding: K lies along the lanes of a vector. A step takes STRATA__DOT_LANES values, in
 * as many registers as that is, so that every instruction set adds in the same order.
 */
#ifndef STRATA_KERNELS_CPU_CODE_DOT_H
#define STRATA_KERNELS_CPU_CODE_DOT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kernels/cpu/code.h"

#if defined(__AVX512F__)

#include <immintrin.h>
enum { DOT_WIDTH = 16 };
typedef __m512 dot_vector;
#define DOT_ADD_PRODUCT(a, b, c) _mm512_fmadd_ps(a, b, c)

#elif defined(__AVX2__)

#include <immintrin.h>
enum { DOT_WIDTH = 8 };
typedef __m256 dot_vector;
#define DOT_ADD_PRODUCT(a, b, c) _mm256_fmadd_ps(a, b, c)

#else

enum { DOT_WIDTH = 4 };
typedef float dot_vector __attribute__((vector_size(16)));
#define DOT_ADD_PRODUCT(a, b, c) ((a) * (b) + (c))

#endif

enum { DOT_VECTORS = STRATA__DOT_LANES / DOT_WIDTH };
_Static_assert(STRATA__DOT_LANES == 64, "add_lanes() ends with four");

static inline dot_vector dot_load(const float *p)
{
    dot_vector v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline void dot_step(dot_vector *sums, const float *row, const float *weights)
{
    for (int v = 0; v < DOT_VECTORS; v++)
        sums[v] = DOT_ADD_PRODUCT(dot_load(weights + v * DOT_WIDTH), dot_load(row + v * DOT_WIDTH),
                                  sums[v]);
}

static void dot(const float *row, const float *weights, uint32_t k, float *lanes, int first)
{
    const uint32_t rest = k % STRATA__DOT_LANES, whole = k - rest;
    dot_vector sums[DOT_VECTORS] = {{0}};
    if (!first)
        memcpy(sums, lanes, sizeof sums);
    for (uint32_t at = 0; at < whole; at += STRATA__DOT_LANES)
        dot_step(sums, row + at, weights + at);
    if (rest) {
        float padded[2][STRATA__DOT_LANES] = {{0}};
        memcpy(padded[0], row + whole, rest * sizeof *row);
        memcpy(padded[1], weights + whole, rest * sizeof *weights);
        dot_step(sums, padded[0], padded[1]);
    }
    memcpy(lanes, sums, sizeof sums);
}

static float add_lanes(const float *lanes)
{
    float sums[STRATA__DOT_LANES / 2];
    for (int i = 0; i < STRATA__DOT_LANES / 2; i++)
        sums[i] = lanes[i] + lanes[STRATA__DOT_LANES / 2 + i];
    for (int i = 0; i < STRATA__DOT_LANES / 4; i++)
        sums[i] += sums[STRATA__DOT_LANES / 4 + i];
    for (int i = 0; i < STRATA__DOT_LANES / 8; i++)
        sums[i] += sums[STRATA__DOT_LANES / 8 + i];
    for (int i = 0; i < STRATA__DOT_LANES / 16; i++)
        sums[i] += sums[STRATA__DOT_LANES / 16 + i];
    return (sums[0] + sums[2]) + (sums[1] + sums[3]);
}

#undef DOT_ADD_PRODUCT

#endif
