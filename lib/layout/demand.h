/* SPDX-License-Identifier: MIT */
/* Inside lib/layout: the one table of what every path, kind of layer and work region demands. */
#ifndef STRATA_LAYOUT_DEMAND_H
#define STRATA_LAYOUT_DEMAND_H

#include "layout/problem.h"

enum { STRATA__DEMANDS_MAX = STRATA__BUFFER_COUNT };

/* Which table of demands. */
typedef enum strata__demand_set {
    STRATA__DEMANDS_CONFIG,     /* a configuration of the arena */
    STRATA__DEMANDS_PERSISTENT, /* of a work region */
    STRATA__DEMANDS_HOST        /* page-locked memory */
} strata__demand_set;

/* What demands are computed from. */
typedef struct strata__demand_context {
    const strata__layout_problem *problem;
    const strata__layout_spec *spec;
    const strata__layout_layer *layer; /* a layer of the kind; NULL: the edge configuration */
    uint32_t path;                     /* strata__layout_path */
    uint32_t rows;                     /* tokens of the band */
    uint64_t staging_bytes;            /* HOST_STAGING; 0: none */
} strata__demand_context;

/*
 * Writes the buffers of a set, offsets 0, in the order of their ids, and returns their number: at
 * most STRATA__DEMANDS_MAX. Buffers without bytes are left out.
 */
uint32_t strata__layout_demands(const strata__demand_context *context, strata__demand_set set,
                                strata__layout_buffer *out);

/* Tiles of a band: what a launch takes at most. */
uint32_t strata__layout_dense_rows(const strata__layout_spec *spec, uint32_t rows);
uint32_t strata__layout_attention_rows(const strata__layout_spec *spec, uint32_t rows);
uint64_t strata__layout_expert_rows(const strata__layout_problem *problem,
                                    const strata__layout_spec *spec, uint32_t rows);

/* Entries of SEGMENTS: of every dense tile of a chunk, then of every attention tile. */
uint32_t strata__layout_segment_capacity(const strata__layout_problem *problem,
                                         const strata__layout_spec *spec);

/* Weight rows of `values` values that a decode scratch for `total` rows holds. */
uint64_t strata__layout_scratch_rows(const strata__layout_problem *problem,
                                     const strata__layout_spec *spec, uint64_t values,
                                     uint64_t total);

#endif
