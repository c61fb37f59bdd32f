/* SPDX-License-Identifier: MIT */
/*
 * Inside lib/layout: predicted times. The model is coarse on purpose, and never decreases when less
 * is resident or the ring is smaller, so that a plan for more memory is never predicted to be
 * slower.
 */
#ifndef STRATA_LAYOUT_COST_H
#define STRATA_LAYOUT_COST_H

#include "layout/problem.h"

/*
 * One step of `rows` tokens: a layer's experts on a path; what one more launch of them takes; its
 * dense products and norms. Kernels are started for every launch and every filling of the scratch,
 * and the last round of a product leaves half of the device idle.
 */
double strata__layout_expert_seconds(const strata__layout_problem *problem,
                                     const strata__layout_spec *spec,
                                     const strata__layout_layer *layer, uint32_t path,
                                     uint32_t rows);
double strata__layout_launch_seconds(const strata__layout_problem *problem,
                                     const strata__layout_layer *layer, uint32_t path);
double strata__layout_dense_seconds(const strata__layout_problem *problem,
                                    const strata__layout_spec *spec,
                                    const strata__layout_layer *layer, uint32_t rows);

/* Attention of `rows` tokens of which the first is at `position`. */
double strata__layout_attention_seconds(const strata__layout_problem *problem,
                                        const strata__layout_spec *spec,
                                        const strata__layout_layer *layer, uint32_t rows,
                                        double position);

/* Part of the experts that at least one of `rows` tokens uses, were use uniform. */
double strata__layout_touched(const strata__layout_problem *problem, uint32_t rows);

enum { STRATA__LAYOUT_MAX_STEPS = 7 };

/* Alike chunks of a prompt: one stands for all of them, at their middle position. */
typedef struct strata__layout_step {
    uint32_t rows;
    uint32_t count;
    uint32_t band;
    uint32_t cold; /* 1: no blob was brought ahead */
    double position;
} strata__layout_step;

/* Times of the steps of a prompt, without copies. Large: on the heap. */
typedef struct strata__layout_times {
    uint32_t step_count;
    uint32_t reserved;
    strata__layout_step steps[STRATA__LAYOUT_MAX_STEPS];
    double before_seconds; /* sums over all layers and chunks */
    double expert_seconds;
    double edge_seconds; /* embedding, last norm and logits */
    double before[STRATA__LAYOUT_MAX_STEPS][STRATA__MAX_LAYERS]; /* experts start after */
    double experts[STRATA__LAYOUT_MAX_STEPS][STRATA__MAX_LAYERS];
    double launch[STRATA__LAYOUT_MAX_STEPS][STRATA__MAX_LAYERS]; /* one more of experts */
} strata__layout_times;

void strata__layout_times_init(strata__layout_times *times, const strata__layout_problem *problem,
                               const strata__layout_spec *spec, const uint8_t *paths);

/* As steps, but one step of each band at position 0, in band order. */
void strata__layout_times_bands(strata__layout_times *times, const strata__layout_problem *problem,
                                const strata__layout_spec *spec, const uint8_t *paths);

/* What the copies of a prompt depend on. */
typedef struct strata__layout_copies {
    const uint32_t *resident; /* [layers] */
    uint64_t ring_bytes;
    uint64_t group_bytes;
    /* Blobs of a launch, half of the ring, for the kernels that wait for the last copy. */
    uint64_t tail_bytes;
    uint64_t refill_bytes; /* to be copied back after the prompt */
    double seconds_per_byte;
} strata__layout_copies;

/* Experts of a copy group of a layer. */
uint32_t strata__layout_group_experts(const strata__layout_problem *problem, uint32_t layer,
                                      uint64_t group_bytes);

/* Time of a prompt; fetch[band] (or NULL) tells which way of copying is the faster one. */
strata__layout_prediction strata__layout_predict(const strata__layout_problem *problem,
                                                 const strata__layout_times *times,
                                                 const strata__layout_copies *copies,
                                                 uint32_t *fetch);

/* A time in whole nanoseconds, rounded up, cut to what fits. */
uint64_t strata__layout_ns(double seconds);

#endif
