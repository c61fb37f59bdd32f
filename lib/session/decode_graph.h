/* SPDX-License-Identifier: MIT */
/*
 * Of decoding, on devices with graphs: what a step enqueues, recorded once for each shape of step
 * and launched again. Tokens, segments, page table and table of experts are read from fixed
 * addresses when it runs; positions count up to a bound, which is a power of two.
 */
#ifndef STRATA_SESSION_DECODE_GRAPH_H
#define STRATA_SESSION_DECODE_GRAPH_H

#include <stdbool.h>
#include <stdint.h>

#include <strata/session.h>

#include "device/device.h"

/* What a recording depends on. */
typedef struct strata__graph_shape {
    uint32_t rows;
    uint32_t parts;
    uint32_t logits_mode;
    uint32_t reserved;
    uint64_t kv_bound;
} strata__graph_shape;

enum { STRATA__DECODE_GRAPHS = 8 };

typedef struct strata__decode_graph {
    strata__device_graph *graph; /* NULL: none */
    strata__graph_shape shape;
    uint64_t last_use;
} strata__decode_graph;

typedef struct strata__decode_graphs {
    strata__decode_graph entries[STRATA__DECODE_GRAPHS];
    uint64_t uses;
    bool is_off; /* the stream cannot be captured */
} strata__decode_graphs;

void strata__decode_graphs_finish(strata_session *session); /* stream idle */

/* Positions below it are below the bound: a power of two, at least 1024. */
uint64_t strata__decode_kv_bound(uint64_t positions);

/* The recording for a shape; NULL when there is none yet. */
strata__device_graph *strata__decode_graph_find(strata_session *session,
                                                const strata__graph_shape *shape);

/* Keeps a recording, in place of the one that was used least lately. Stream idle. */
void strata__decode_graph_keep(strata_session *session, const strata__graph_shape *shape,
                               strata__device_graph *graph);

#endif
