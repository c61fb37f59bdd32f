/* SPDX-License-Identifier: MIT */
/* Where decoders put their values: here, memory. */
#ifndef STRATA_KERNELS_CPU_SINK_WRITE_H
#define STRATA_KERNELS_CPU_SINK_WRITE_H

#include "kernels/cpu/floats.h"

typedef struct sink {
    float *out;
} sink;

/* Sixteen values from `place` on: 0, 16, 32 or 48. */
static inline void put(sink *to, int place, floats_16 values)
{
    floats_store(values, to->out + place);
}

/* The last values of a row, fewer than sixteen; the other ones are zero. */
static inline void put_rest(sink *to, const float *values, uint64_t count)
{
    memcpy(to->out, values, count * sizeof *values);
}

/* Places count from `values` (16, 32 or 64) values further on. */
static inline void advance(sink *to, int values)
{
    to->out += values;
}

#endif
