/* SPDX-License-Identifier: MIT */
/*
 * Inside lib/layout: the search. Candidates do not depend on the budget, what fits only grows with
 * it, and a candidate's predicted time only falls with what is left for residents; the search finds
 * the exact minimum over the candidates, so a larger budget never has a slower plan.
 */
#ifndef STRATA_LAYOUT_PLANNER_H
#define STRATA_LAYOUT_PLANNER_H

#include "layout/cost.h"
#include "layout/region.h"

enum {
    STRATA__PLANNER_CHUNKS = 160,
    STRATA__PLANNER_DENSE = 5,
    STRATA__PLANNER_EXPERT = 5,
    STRATA__PLANNER_SCRATCH = 4,
    STRATA__PLANNER_RINGS = 9
};

/* A way to stream. */
typedef struct strata__planner_ring {
    uint64_t ring_bytes; /* 0: nothing is streamed */
    uint64_t group_bytes;
} strata__planner_ring;

typedef struct strata__planner {
    strata__layout_problem *problem;
    uint64_t session_bytes; /* without expert cache and prompt */
    uint64_t layer_slots;   /* bytes of one expert of every layer */
    uint32_t chunk_count;
    uint32_t ring_count;
    uint32_t chunks[STRATA__PLANNER_CHUNKS];           /* descending */
    strata__planner_ring rings[STRATA__PLANNER_RINGS]; /* ascending; the first may stream nothing */
    strata__layout_times times;
    strata__layout_host host;
    uint32_t resident[STRATA__LAYOUT_MAX_LAYERS];
    uint8_t paths[STRATA__LAYOUT_MAX_KEYS];
    /* The best so far. */
    uint64_t best_ns; /* UINT64_MAX: none */
    uint64_t best_bytes;
    strata__layout_choice best;
    uint32_t best_resident[STRATA__LAYOUT_MAX_LAYERS];
} strata__planner;

/* Lists the candidates of a problem; also the session's bytes. */
void strata__planner_init(strata__planner *planner, strata__layout_problem *problem);

/* Tiles of a candidate, `level` 0 the largest. */
void strata__planner_spec(const strata__planner *planner, uint32_t chunk, uint32_t dense_level,
                          uint32_t expert_level, uint32_t scratch_level, strata__layout_spec *out);

/* Device bytes of session and prompt without residents; UINT64_MAX: too many to count. */
uint64_t strata__planner_bytes(const strata__planner *planner, const strata__layout_spec *spec,
                               uint64_t arena_bytes);

/*
 * Fills planner->resident with what `bytes` bytes hold: the same number in every layer, one more in
 * the first ones. Where nothing is streamed it must be all, or the answer is false.
 */
bool strata__planner_fill(strata__planner *planner, uint64_t bytes, bool streams);

/* Finds the best candidate, if any fits. STRATA_ERR_UNSUPPORTED: a layer that no path takes. */
strata_status strata__planner_search(strata__planner *planner);

/* Refuses an infeasible request with what would fit. The problem is left changed. */
strata_status strata__planner_refuse(strata__planner *planner, strata__layout_shortfall *shortfall);

#endif
