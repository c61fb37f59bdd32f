/* SPDX-License-Identifier: MIT */
/* The decoders compiled once per instruction set; see decode_body.h. */
#ifndef STRATA_KERNELS_CPU_DECODE_LEVEL_H
#define STRATA_KERNELS_CPU_DECODE_LEVEL_H

#include <stdint.h>

#include "base/format.h"

typedef void (*strata__decode_fn)(const uint8_t *restrict block, uint64_t blocks,
                                  float *restrict out);

/*
 * To the int8 form: codes, a scale for each int8_group of the format and, where it has minimums, an
 * offset for each int8_minimum_group: value = scale * code + offset.
 */
typedef void (*strata__decode_int8_fn)(const uint8_t *restrict block, uint64_t blocks,
                                       int8_t *restrict codes, float *restrict scales,
                                       float *restrict offsets);

/*
 * sums[n] = the dot of a row with `blocks` blocks of weight row n, weight rows being row_bytes
 * apart: the bits that strata__cpu_code.dot gives of decoded weights.
 */
typedef void (*strata__dots_fn)(const uint8_t *weights, uint64_t row_bytes, uint64_t blocks,
                                uint32_t outputs, const float *row, float *sums);

/* Indexed by strata__format; NULL where the format does not exist or has no such form. */
extern const strata__decode_fn strata__decode_base[STRATA__FORMAT_LIMIT];
extern const strata__dots_fn strata__dots_base[STRATA__FORMAT_LIMIT];
extern const strata__decode_int8_fn strata__decode_int8_base[STRATA__FORMAT_LIMIT];
#if defined(STRATA__HAVE_X86_LEVELS)
extern const strata__decode_fn strata__decode_avx2[STRATA__FORMAT_LIMIT];
extern const strata__dots_fn strata__dots_avx2[STRATA__FORMAT_LIMIT];
extern const strata__decode_int8_fn strata__decode_int8_avx2[STRATA__FORMAT_LIMIT];
extern const strata__decode_fn strata__decode_avx512[STRATA__FORMAT_LIMIT];
extern const strata__dots_fn strata__dots_avx512[STRATA__FORMAT_LIMIT];
extern const strata__decode_int8_fn strata__decode_int8_avx512[STRATA__FORMAT_LIMIT];
#endif

#endif
