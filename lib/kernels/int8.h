/* SPDX-License-Identifier: MIT */
/*
 * The arithmetic of the int8 paths, fused and mmq. Every implementation gives the same bits for the
 * same activations. All operations are float32, rounded to nearest even, none contracted; integers
 * are exact.
 *
 * Activations. A row is cut in groups of A values: A is 64 where every matrix that reads the row is
 * of a format with one scale per 64 values, else 32. In a group, with m the largest magnitude:
 *   m < 2^-96              scale 0, codes 0
 *   m infinite or NaN      scale m, codes 0, so that every product with the row is NaN
 *   else                   scale = m / 127, inverse = 127 / m, both rounded;
 *                          code = integer nearest to (value * inverse, rounded), ties to even
 * A row is stored in planes (base/format.h): codes; a scale for every 32 values, so that A = 64
 * stores each twice; and for every 32 values the sums of the codes of its two halves, as int16.
 *
 * Weights. A format with an int8 form is value = w * code + o, with a scale w for every G values
 * (int8_group) and, in formats with a minimum, an offset o for every M values (int8_minimum_group,
 * which is G or 16), each the format's own rounded once to float32. Where a format has integer
 * scales of groups of 16 whose products with its codes fit in int8, these products are the codes
 * here and G is 32.
 *
 * Products. A row of activations x and one of weights are summed over D = min(A, G) values at a
 * time. For each group of A values, with K ascending:
 *   t = w * float(dot)            of the first D values, dot = sum of code * code, exact
 *   t = fma(w, float(dot), t)     of every further D values
 *   t = fma(o, float(sum), t)     after each of the above, of every M of its D values, where the
 *                                 format has offsets
 *   y = fma(t, scale of x, y)     y starts at 0
 * Bias, activation and expert scale follow as on the other paths, then h is quantised as above.
 */
#ifndef STRATA_KERNELS_INT8_H
#define STRATA_KERNELS_INT8_H

#include <stdint.h>

#include "base/format.h"

enum {
    STRATA__INT8_BLOCK = 32,       /* values that have a scale and two sums in a quantised row */
    STRATA__INT8_HALF = 16,        /* values of a sum */
    STRATA__INT8_LEAST = 31 << 23, /* bits of 2^-96 */
    STRATA__INT8_INFINITE = 255 << 23
};

/* Activations per scale for a row that matrices of these two formats read. */
static inline uint32_t strata__int8_row_group(uint32_t first, uint32_t second)
{
    const strata__format_info *a = strata__format_find(first), *b = strata__format_find(second);
    return a && b && a->int8_group == 64 && b->int8_group == 64 ? 64 : 32;
}

#endif
