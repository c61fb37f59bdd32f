/* SPDX-License-Identifier: MIT */
/* The part of an attention step between its two products: columns are pairs of a row and a head. */
#ifndef STRATA_KERNELS_CPU_CODE_SOFTMAX_H
#define STRATA_KERNELS_CPU_CODE_SOFTMAX_H

#include <math.h>

#include "kernels/cpu/code.h"
#include "kernels/cpu/code_math.h"

/* The columns of one vector-friendly width; `width` is a constant wherever this is inlined. */
static inline __attribute__((always_inline)) void softmax_columns(const strata__softmax_step *step,
                                                                  uint32_t width)
{
    float *restrict scores = step->scores;
    float top[STRATA__TILE_ROWS], base[STRATA__TILE_ROWS], sum[STRATA__TILE_ROWS];
    for (uint32_t c = 0; c < width; c++)
        top[c] = step->maximum[c];
    for (int32_t j = 0; j < STRATA__KEY_STEP; j++)
        for (uint32_t c = 0; c < width; c++) {
            float s = scores[(uint32_t)j * width + c] * step->scale;
            s = j < step->first[c] || j >= step->last[c] ? -INFINITY : s;
            scores[(uint32_t)j * width + c] = s;
            top[c] = s > top[c] ? s : top[c];
        }
    for (uint32_t c = 0; c < width; c++) {
        base[c] = top[c] == -INFINITY ? 0.0f : top[c]; /* a column that has seen no key yet */
        step->correction[c] = exp_fast(step->maximum[c] - base[c]);
        step->maximum[c] = top[c];
        sum[c] = 0;
    }
    for (uint32_t j = 0; j < STRATA__KEY_STEP; j++)
        for (uint32_t c = 0; c < width; c++) {
            float p = exp_fast(scores[j * width + c] - base[c]);
            scores[j * width + c] = p;
            sum[c] += p;
        }
    for (uint32_t c = 0; c < width; c++)
        step->sum[c] = step->sum[c] * step->correction[c] + sum[c];
}

static void softmax(const strata__softmax_step *step)
{
    if (step->width == 32)
        softmax_columns(step, 32);
    else if (step->width == 16)
        softmax_columns(step, 16);
    else
        softmax_columns(step, 8);
}

static void scale_columns(float *columns, uint32_t rows, uint32_t width, const float *factor)
{
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t c = 0; c < width; c++)
            columns[(size_t)r * width + c] *= factor[c];
}

#endif
