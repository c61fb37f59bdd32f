/* SPDX-License-Identifier: MIT */
/* Block formats to float32, bit for bit as the gguf package dequantises them. */
#ifndef STRATA_KERNELS_CPU_DECODE_H
#define STRATA_KERNELS_CPU_DECODE_H

#include <stdint.h>

#include "base/format.h"

/*
 * Instruction sets a build holds code for. What is decoded has the same bits in each; sums have
 * them where there is FMA.
 */
typedef enum strata__cpu_level {
    STRATA__CPU_BASE,  /* what the compiler's target guarantees */
    STRATA__CPU_AVX2,  /* AVX2, FMA and F16C */
    STRATA__CPU_AVX512 /* AVX-512 F, BW, DQ and VL */
} strata__cpu_level;

/* The best level that this build and this machine have. */
strata__cpu_level strata__cpu_best_level(void);

/*
 * Decodes `values` consecutive values, a whole number of blocks of a format that
 * strata__format_find() knows. `blocks` needs no alignment. The output must not overlap it.
 */
void strata__decode_row(uint32_t format, const void *blocks, uint64_t values, float *out);

/* As above with the code of one level, at most the best one. */
void strata__decode_row_level(strata__cpu_level level, uint32_t format, const void *blocks,
                              uint64_t values, float *out);

/*
 * sums[n] = the dot of a row with `values` values of weight row n, a whole number of blocks; weight
 * rows are row_bytes apart. What is decoded stays in registers; the sums have the bits that
 * strata__cpu_code.dot gives of decoded weights.
 */
void strata__dots_level(strata__cpu_level level, uint32_t format, const void *weights,
                        uint64_t row_bytes, uint64_t values, uint32_t outputs, const float *row,
                        float *sums);

/*
 * To the exact int8 form, for formats whose int8_group is not 0: `values` codes, a scale for every
 * int8_group of them and, where int8_minimum_group is not 0, an offset for every so many: value =
 * scale * code + offset.
 */
void strata__decode_int8_level(strata__cpu_level level, uint32_t format, const void *blocks,
                               uint64_t values, int8_t *codes, float *scales, float *offsets);

#endif
