/* SPDX-License-Identifier: MIT */
/*
 * Where decoders put their values: here, sums of products with a row, which stay in registers. Sum
 * l is of the values that are l modulo STRATA__DOT_LANES, as in dot().
 */
#ifndef STRATA_KERNELS_CPU_SINK_DOT_H
#define STRATA_KERNELS_CPU_SINK_DOT_H

#include "kernels/cpu/code.h"
#include "kernels/cpu/floats.h"

_Static_assert(STRATA__DOT_LANES == 64, "a sink has four times sixteen sums");

typedef struct sink {
    const float *row;
    floats_16 sums[4]; /* of the places 0, 16, 32 and 48: they turn as places advance */
} sink;

static inline void put(sink *to, int place, floats_16 values)
{
    floats_16 *sum = &to->sums[place / 16];
    *sum = floats_add_product(values, floats_load(to->row + place), *sum);
}

static inline void put_rest(sink *to, const float *values, uint64_t count)
{
    float row[16] = {0};
    memcpy(row, to->row, count * sizeof *row);
    to->sums[0] = floats_add_product(floats_load(values), floats_load(row), to->sums[0]);
}

static inline void advance(sink *to, int values)
{
    floats_16 first = to->sums[0], second = to->sums[1];
    to->row += values;
    if (values == 16) {
        to->sums[0] = second;
        to->sums[1] = to->sums[2];
        to->sums[2] = to->sums[3];
        to->sums[3] = first;
    } else if (values == 32) {
        to->sums[0] = to->sums[2];
        to->sums[1] = to->sums[3];
        to->sums[2] = first;
        to->sums[3] = second;
    }
}

#endif
