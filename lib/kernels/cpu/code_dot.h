/* SPDX-License-Identifier: MIT */
/*
 * Dots of an activation row with a decoded weight row, for products of few rows, where a tile of
 * rows would be mostly padding: K lies along the lanes of a vector. A step takes STRATA__DOT_LANES
 * values, in as many registers as that is, so that every instruction set adds in the same order.
 */
#ifndef STRATA_KERNELS_CPU_CODE_DOT_H
#define STRATA_KERNELS_CPU_CODE_DOT_H

#include "kernels/cpu/code.h"
#include "kernels/cpu/floats.h"

enum { DOT_SUMS = STRATA__DOT_LANES / 16 };
_Static_assert(DOT_SUMS == 4, "add_lanes() adds four");

static inline void dot_step(floats_16 *sums, const float *row, const float *weights)
{
    for (int i = 0; i < DOT_SUMS; i++)
        sums[i] =
            floats_add_product(floats_load(weights + 16 * i), floats_load(row + 16 * i), sums[i]);
}

static void dot(const float *row, const float *weights, uint32_t k, float *lanes, int first)
{
    const uint32_t rest = k % STRATA__DOT_LANES, whole = k - rest;
    floats_16 sums[DOT_SUMS] = {0};
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
    floats_16 first = floats_add(floats_load(lanes), floats_load(lanes + 32));
    floats_16 second = floats_add(floats_load(lanes + 16), floats_load(lanes + 48));
    return floats_sum(floats_add(first, second));
}

#endif
