/* SPDX-License-Identifier: MIT */
/*
 * Dense weights as kernels take them. On a device that addresses host memory they are used where
 * the pack has them; elsewhere each is copied to the offset that the layout gives it. One walk over
 * the model serves both the list that the layout is made from and the placing, so that they cannot
 * differ.
 */
#ifndef STRATA_SESSION_WEIGHTS_H
#define STRATA_SESSION_WEIGHTS_H

#include <stdint.h>

#include <strata/base.h>

#include "base/alloc.h"
#include "device/device.h"
#include "kernels/kernels.h"
#include "pack/pack.h"

typedef struct strata__layer_weights {
    strata__weight q, k, v, attention_out;
    strata__weight gate, up, down;
    strata__weight shared_gate, shared_up, shared_down, shared_router;
    strata__weight router;
    const float *attention_norm;
    const float *q_norm;
    const float *k_norm;
    const float *sinks;
    const float *ffn_norm;
    const float *selection_bias;
    const float *expert_gate_bias;
    const float *expert_up_bias;
    const float *expert_down_bias;
    const float *expert_scale;
} strata__layer_weights;

typedef struct strata__weights {
    const strata__allocator *allocator;
    strata__layer_weights *layers;
    uint32_t layer_count;
    strata__weight embedding;
    strata__weight output;
    const float *output_norm;
    const float *rope_frequencies[2];
} strata__weights;

/*
 * The dense tensors that a device gets which does not address host memory: their number, and into
 * bytes[] (or NULL) the size of each, in the order of layout->tensor_offsets.
 */
uint32_t strata__weights_list(const strata__geometry *geometry, const strata__layer *layers,
                              uint64_t *bytes);

/* Used in place. */
strata_status strata__weights_init(strata__weights *weights, const strata__allocator *allocator,
                                   const strata__geometry *geometry, const strata__layer *layers);

/* Where the copies go: tensor i to base + offsets[i]. */
typedef struct strata__weights_target {
    strata__device *device;
    strata__stream *stream;
    uint8_t *base;
    const uint64_t *offsets;
    uint32_t count;
} strata__weights_target;

/* As strata__weights_init(), of copies that are enqueued on the target's stream. */
strata_status strata__weights_upload(strata__weights *weights, const strata__allocator *allocator,
                                     const strata__geometry *geometry, const strata__layer *layers,
                                     const strata__weights_target *target);

void strata__weights_finish(strata__weights *weights);

#endif
