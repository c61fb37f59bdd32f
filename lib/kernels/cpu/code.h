/* SPDX-License-Identifier: MIT */
/* The inner loops that are compiled once per instruction set, behind one table. */
#ifndef STRATA_KERNELS_CPU_CODE_H
#define STRATA_KERNELS_CPU_CODE_H

#include <stdint.h>

#include "kernels/cpu/decode.h"

enum {
    STRATA__TILE_OUTPUTS = 8,  /* weight rows of a product tile */
    STRATA__TILE_ROWS = 32,    /* most activation rows of a product tile; also 16 and 8 */
    STRATA__TILE_MIN_ROWS = 8, /* what a row count is rounded up to */
    STRATA__K_STEP = 256,      /* values of K that are added up before they join the sum */
    STRATA__KEY_STEP = 64,     /* keys of an attention step */
    STRATA__DOT_LANES = 64     /* sums side by side of a dot */
};

/*
 * One step of attention for `width` columns (pairs of a row and a head) and STRATA__KEY_STEP keys.
 */
typedef struct strata__softmax_step {
    float *scores;        /* [KEY_STEP][width]: in logits, out exp(logit * scale - maximum) */
    float *maximum;       /* [width] running */
    float *sum;           /* [width] running */
    float *correction;    /* [width] out: what earlier outputs are multiplied with */
    const int32_t *first; /* [width] first key of the step that a column sees */
    const int32_t *last;  /* [width] one behind the last one */
    uint32_t width;       /* 8, 16 or 32 */
    float scale;
} strata__softmax_step;

/* Up to STRATA__K_STEP values of eight outputs and a tile of rows, in the int8 arithmetic. */
typedef struct strata__int8_step {
    const float *packed;     /* [count][width] codes of the rows */
    const float *row_scales; /* [count / row_group][width] */
    const float *row_sums;   /* [count / offset_group][width] */
    const float *weights;    /* [8][weight_stride] codes */
    const float *scales;     /* [8][scale_stride], one for each weight_group values */
    const float *offsets;    /* the same for each offset_group, or NULL */
    float *sums;             /* [8][sum_stride], added to */
    uint32_t width;          /* 8, 16 or 32 */
    uint32_t count;          /* a multiple of both groups */
    uint32_t weight_group;
    uint32_t offset_group; /* with offsets: weight_group or half of it */
    uint32_t row_group;    /* with offsets: weight_group; else up to twice that */
    uint32_t weight_stride;
    uint32_t scale_stride;
    uint32_t sum_stride;
} strata__int8_step;

typedef struct strata__cpu_code {
    /*
     * sums[n][r] (+)= sum over k ascending of weights[n][k] * packed[k][r], for 8 outputs n and
     * `width` rows r (8, 16 or 32). The products of a call are added from zero and then, unless
     * `first`, to what sums holds. A sum depends on its own row and output alone.
     */
    void (*product)(const float *packed, uint32_t width, const float *weights,
                    uint32_t weight_stride, uint32_t k, float *sums, uint32_t sum_stride,
                    int first);
    /*
     * lanes[l] (+)= sum over k ascending, of those that are l modulo STRATA__DOT_LANES, of
     * weights[k] * row[k]. Unless `first`, a call goes on from what lanes holds.
     */
    void (*dot)(const float *row, const float *weights, uint32_t k, float *lanes, int first);
    /* Lane i and lane i + n / 2 of n are added until one is left. */
    float (*add_lanes)(const float *lanes);
    /*
     * packed[k][r] = sources[r][k] * factor[r] * gain[k], or just the source when gain is NULL.
     * Columns from `rows` (at least 1) to `width` hold a copy of the last row.
     */
    void (*pack)(const float *const *sources, const float *factor, const float *gain, uint32_t rows,
                 uint32_t width, uint32_t k, float *packed);
    /* out[i] = activation(gate[i], up[i]); may be in place */
    void (*activate)(uint32_t activation, const float *gate, const float *up, uint32_t n,
                     float *out);
    void (*softmax)(const strata__softmax_step *step);
    /* columns[r][c] *= factor[c] for `rows` rows of `width` columns */
    void (*scale_columns)(float *columns, uint32_t rows, uint32_t width, const float *factor);
    /* out[c][r] = in[r][c]; rows is a multiple of 8 */
    void (*transpose)(const float *in, uint32_t in_stride, uint32_t rows, uint32_t columns,
                      float *out, uint32_t out_stride);
    double (*sum_squares)(const float *values, uint32_t n);
    /* Round to nearest even, beyond the largest half to the largest half; NaN stays NaN. */
    void (*to_half)(const float *values, uint32_t n, uint16_t *halves);
    /* A quantised row (base/format.h) of n values, a multiple of `group`, which is 32 or 64. */
    void (*quantise)(const float *values, uint32_t n, uint32_t group, void *row);
    void (*widen)(const int8_t *codes, uint32_t n, float *out);
    void (*int8_step)(const strata__int8_step *step);
} strata__cpu_code;

extern const strata__cpu_code strata__code_base;
#if defined(STRATA__HAVE_X86_LEVELS)
extern const strata__cpu_code strata__code_avx2;
extern const strata__cpu_code strata__code_avx512;
#endif

/* The table of a level, at most the best one. */
const strata__cpu_code *strata__cpu_code_of(strata__cpu_level level);

#endif
