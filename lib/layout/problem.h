/* SPDX-License-Identifier: MIT */
/*
 * Inside lib/layout: a checked input with its defaults filled in, and what follows from it alone.
 * Every number has a bound that keeps the products of rows and row bytes within 64 bits.
 */
#ifndef STRATA_LAYOUT_PROBLEM_H
#define STRATA_LAYOUT_PROBLEM_H

#include "layout/layout.h"

/* Layers that are alike in every number; times and paths are computed once for each. */
typedef struct strata__layout_class {
    uint32_t layer; /* the first of the class */
    uint32_t kind;
    uint32_t exception; /* strata__layout_path of the policy for these layers, PATH_AUTO: none */
    uint32_t reserved;
    uint64_t slot_bytes; /* of one expert in ring or cache */
    uint64_t up_offset;
    uint64_t down_offset;
} strata__layout_class;

/* A configuration: a layer of the kind, or none for the edge. */
typedef struct strata__layout_key {
    uint16_t kind;
    uint8_t band;
    uint8_t path;
} strata__layout_key;

enum {
    STRATA__LAYOUT_KINDS = STRATA__MAX_LAYERS,
    STRATA__LAYOUT_MAX_KEYS = STRATA__MAX_LAYERS * STRATA__LAYOUT_MAX_BANDS
};

typedef struct strata__layout_problem {
    const strata__allocator *allocator;
    strata__layout_geometry geometry;
    strata__layout_facts facts;
    strata__layout_request request;
    uint64_t budget_bytes;      /* UINT64_MAX: none */
    uint64_t host_budget_bytes; /* UINT64_MAX: none */
    uint64_t decode_host_bytes; /* of the host region of decoding */
    uint64_t expert_bytes;      /* slots of all experts of all layers */
    uint64_t largest_slot_bytes;
    uint64_t state_bytes;        /* of all layers, both copies of all sequences */
    uint32_t pages_per_sequence; /* see strata__layout_set_pages() */
    uint32_t pages_total;
    uint32_t expert_layers;
    uint32_t class_count;
    uint32_t kind_count;
    uint32_t copies; /* 1: the device does not address host memory, so experts are copied to it */
    uint16_t class_of[STRATA__MAX_LAYERS];
    uint32_t kind_layer[STRATA__MAX_LAYERS]; /* kinds: alike in what buffers depend on */
    strata__layout_class classes[STRATA__MAX_LAYERS];
    /* Room for arena.c: the keys of a path vector, and the number of each. */
    strata__layout_key keys[STRATA__LAYOUT_MAX_KEYS];
    uint16_t key_number[STRATA__LAYOUT_KINDS][STRATA__LAYOUT_MAX_BANDS]
                       [STRATA__LAYOUT_PATH_COUNT + 1];
} strata__layout_problem;

/* Checks and completes an input. The problem is large: it belongs on the heap. */
strata_status strata__layout_problem_init(strata__layout_problem *problem,
                                          const strata__allocator *allocator,
                                          const strata__layout_input *input);

/* Pages of a sequence, and of all together as the request has them. */
void strata__layout_set_pages(strata__layout_problem *problem, uint32_t pages_per_sequence);

/* Bytes rounded up to the device's alignment; the bounds of a problem rule out an overflow. */
uint64_t strata__layout_align(const strata__layout_problem *problem, uint64_t bytes);

/* Numbers of a work region that its buffers depend on; all tiles are set and cut to the chunk. */
typedef struct strata__layout_spec {
    uint32_t chunk;
    uint32_t dense_tile;
    uint32_t attention_tile;
    uint32_t expert_tile;
    uint32_t logit_tile;
    uint32_t band_count;
    uint32_t band_rows[STRATA__LAYOUT_MAX_BANDS];
    uint64_t scratch_bytes;
    uint64_t ring_bytes; /* 0: nothing is streamed */
    uint32_t split_keys; /* of attention; 0: not split */
    uint32_t reserved;
} strata__layout_spec;

/* Bands of a chunk, ascending. */
void strata__layout_bands(strata__layout_spec *spec);
uint32_t strata__layout_band_index(const strata__layout_spec *spec, uint64_t rows);

#endif
