/* SPDX-License-Identifier: MIT */
/* The one table of block formats: GGUF id, name, values and bytes of a block, form in int8. */
#ifndef STRATA_BASE_FORMAT_H
#define STRATA_BASE_FORMAT_H

#include <stdbool.h>
#include <stdint.h>

/* Values are the type ids of GGUF files. */
typedef enum strata__format {
    STRATA__F32 = 0,
    STRATA__F16 = 1,
    STRATA__Q4_0 = 2,
    STRATA__Q4_1 = 3,
    STRATA__Q5_0 = 6,
    STRATA__Q5_1 = 7,
    STRATA__Q8_0 = 8,
    STRATA__Q2_K = 10,
    STRATA__Q3_K = 11,
    STRATA__Q4_K = 12,
    STRATA__Q5_K = 13,
    STRATA__Q6_K = 14,
    STRATA__IQ2_XXS = 16,
    STRATA__IQ2_XS = 17,
    STRATA__IQ3_XXS = 18,
    STRATA__IQ1_S = 19,
    STRATA__IQ4_NL = 20,
    STRATA__IQ3_S = 21,
    STRATA__IQ2_S = 22,
    STRATA__IQ4_XS = 23,
    STRATA__IQ1_M = 29,
    STRATA__BF16 = 30,
    STRATA__MXFP4 = 39,
    STRATA__Q2_0 = 42
} strata__format;

enum { STRATA__FORMAT_LIMIT = 64 }; /* ids are below this; a bit set of formats is a uint64_t */

typedef struct strata__format_info {
    const char *name;
    uint32_t block_values;
    uint32_t block_bytes;
    uint32_t int8_group;         /* values that share a scale in the exact int8 form; 0: none */
    uint32_t int8_minimum_group; /* values that share an offset there; 0: it has none */
} strata__format_info;

/* NULL when the id is no format this library decodes. */
const strata__format_info *strata__format_find(uint32_t id);

/* As above by name ("IQ2_XS"), exact match; *out_id is set when found. */
const strata__format_info *strata__format_find_name(const char *name, uint32_t *out_id);

/* Name of a type id also for those that are known but not decoded ("TQ1_0"); NULL if unknown. */
const char *strata__format_name(uint32_t id);

/*
 * Bytes of a row of `values`. False when the id is not decoded, the row is no whole number of
 * blocks or the size overflows.
 */
bool strata__format_row_bytes(uint32_t id, uint64_t values, uint64_t *out_bytes);

/*
 * A row of activations as the int8 paths keep it: a plane of int8 codes, one of float32 scales and
 * one of sums, a scale and a sum for every 32 values. Planes are whole numbers of 16 bytes.
 */
static inline uint64_t strata__quantised_codes_bytes(uint64_t values)
{
    return (values + 15) / 16 * 16;
}

static inline uint64_t strata__quantised_scales_bytes(uint64_t values)
{
    return (4 * ((values + 31) / 32) + 15) / 16 * 16;
}

static inline uint64_t strata__quantised_row_bytes(uint64_t values)
{
    return strata__quantised_codes_bytes(values) + 2 * strata__quantised_scales_bytes(values);
}

#endif
