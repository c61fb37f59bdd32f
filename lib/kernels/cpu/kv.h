/* SPDX-License-Identifier: MIT */
/* Rows of the KV cache: where they lie in a page, and their three formats. */
#ifndef STRATA_KERNELS_CPU_KV_H
#define STRATA_KERNELS_CPU_KV_H

#include "kernels/cpu/cpu.h"

/* Row `position` of one sequence and head; scales are used by q8_0 alone. */
typedef struct strata__kv_row {
    uint8_t *values;
    uint8_t *scales;
} strata__kv_row;

strata__kv_row strata__kv_row_at(const strata__kv_view *kv, void *base, uint32_t sequence,
                                 uint32_t position, uint32_t head);

/* Writes one row of head_size values. */
void strata__kv_store(const strata__cpu_kernels *cpu, const strata__kv_view *kv, strata__kv_row row,
                      const float *values);

/* Reads `rows` consecutive rows of a page, `stride` floats apart in `out`. */
void strata__kv_load(const strata__cpu_kernels *cpu, const strata__kv_view *kv, strata__kv_row row,
                     uint32_t rows, float *out, uint32_t stride);

/* Whether the view is one these functions take. */
strata_status strata__kv_check(const char *what, const strata__kv_view *kv);

#endif
