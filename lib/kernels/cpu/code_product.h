/* SPDX-License-Identifier: MIT */
/* The product tile of an instruction set. */
#ifndef STRATA_KERNELS_CPU_CODE_PRODUCT_H
#define STRATA_KERNELS_CPU_CODE_PRODUCT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kernels/cpu/code.h"

#if defined(__AVX512F__)

#include <immintrin.h>
typedef float tile_floats_16 __attribute__((vector_size(64)));
typedef float tile_floats_8 __attribute__((vector_size(32)));
#define TILE_NAME(x)              x##_512
#define TILE_VECTOR               tile_floats_16
#define TILE_LANES                16
#define TILE_ADD_PRODUCT(a, b, c) _mm512_fmadd_ps(a, b, c)
#include "kernels/cpu/product_tile.h"
#define TILE_NAME(x)              x##_256
#define TILE_VECTOR               tile_floats_8
#define TILE_LANES                8
#define TILE_ADD_PRODUCT(a, b, c) _mm256_fmadd_ps(a, b, c)
#include "kernels/cpu/product_tile.h"

static void product(const float *packed, uint32_t width, const float *weights,
                    uint32_t weight_stride, uint32_t k, float *sums, uint32_t sum_stride, int first)
{
    if (width == 32)
        eight_by_two_512(packed, width, weights, weight_stride, k, sums, sum_stride, first);
    else if (width == 16)
        eight_by_one_512(packed, width, weights, weight_stride, k, sums, sum_stride, first);
    else
        eight_by_one_256(packed, width, weights, weight_stride, k, sums, sum_stride, first);
}

#else

#if defined(__AVX2__)
#include <immintrin.h>
typedef float tile_floats_8 __attribute__((vector_size(32)));
#define TILE_NAME(x)              x##_256
#define TILE_VECTOR               tile_floats_8
#define TILE_LANES                8
#define TILE_ADD_PRODUCT(a, b, c) _mm256_fmadd_ps(a, b, c)
#include "kernels/cpu/product_tile.h"
#define FOUR_BY_TWO  four_by_two_256
#define EIGHT_BY_ONE eight_by_one_256
enum { LANES = 8 };
#else
typedef float tile_floats_4 __attribute__((vector_size(16)));
#define TILE_NAME(x)              x##_128
#define TILE_VECTOR               tile_floats_4
#define TILE_LANES                4
#define TILE_ADD_PRODUCT(a, b, c) ((a) * (b) + (c))
#include "kernels/cpu/product_tile.h"
#define FOUR_BY_TWO  four_by_two_128
#define EIGHT_BY_ONE eight_by_one_128
enum { LANES = 4 };
#endif

/* Rows of two vectors and then, where the width leaves one, of one vector. */
static void product(const float *packed, uint32_t width, const float *weights,
                    uint32_t weight_stride, uint32_t k, float *sums, uint32_t sum_stride, int first)
{
    const uint32_t pair = 2 * LANES;
    size_t stride = weight_stride, out = sum_stride;
    uint32_t r = 0;
    for (; r + pair <= width; r += pair) {
        FOUR_BY_TWO(packed + r, width, weights, stride, k, sums + r, out, first);
        FOUR_BY_TWO(packed + r, width, weights + 4 * stride, stride, k, sums + 4 * out + r, out,
                    first);
    }
    for (; r < width; r += pair / 2)
        EIGHT_BY_ONE(packed + r, width, weights, stride, k, sums + r, out, first);
}

#endif

#endif
