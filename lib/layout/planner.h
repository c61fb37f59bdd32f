/* SPDX-License-Identifier: MIT */
/*
 * Inside lib/layout: the search. A candidate is a chunk, the bytes that the arena may have, the
 * bytes of scratch in it and a ring; its tiles are the largest that the arena takes, its residents
 * what is left. Candidates do not depend on the budget, what fits only grows with it, and a
 * candidate's predicted time only falls with what is left for residents. The search finds the exact
 * minimum over the candidates, so a larger budget never has a slower plan.
 */
#ifndef STRATA_LAYOUT_PLANNER_H
#define STRATA_LAYOUT_PLANNER_H

#include "layout/cost.h"
#include "layout/region.h"

enum {
    STRATA__PLANNER_CHUNKS = 160,
    STRATA__PLANNER_SCRATCHES = 10,
    STRATA__PLANNER_RINGS = 24,
    STRATA__PLANNER_PIECES = 64
};

/* A way to stream. */
typedef struct strata__planner_ring {
    uint64_t ring_bytes; /* 0: nothing is streamed */
    uint64_t group_bytes;
} strata__planner_ring;

/*
 * Bytes of a stage: base + dense * min(dense tile, dense_cap) + expert * min(expert tile,
 * expert_cap)
 */
typedef struct strata__planner_piece {
    int64_t base;
    int64_t dense;
    int64_t expert;
    uint64_t dense_cap;
    uint64_t expert_cap;
} strata__planner_piece;

/* What tiles an arena takes, for one chunk and scratch. */
typedef struct strata__planner_tiler {
    uint32_t piece_count;
    uint32_t reserved;
    uint64_t least_bytes; /* of the arena, with the smallest tiles */
    uint64_t most_bytes;  /* with the largest; more is of no use */
    strata__planner_piece pieces[STRATA__PLANNER_PIECES];
} strata__planner_tiler;

typedef struct strata__planner {
    strata__layout_problem *problem;
    uint64_t session_bytes; /* without expert cache and prompt */
    uint64_t layer_slots;   /* bytes of one expert of every layer */
    uint32_t chunk_count;
    uint32_t ring_count;
    uint32_t chunks[STRATA__PLANNER_CHUNKS];           /* descending */
    strata__planner_ring rings[STRATA__PLANNER_RINGS]; /* the first may stream nothing */
    strata__planner_tiler tilers[STRATA__PLANNER_SCRATCHES];
    strata__layout_spec timed; /* what `times` are for */
    strata__layout_times times;
    strata__layout_host host;
    uint32_t resident[STRATA__MAX_LAYERS];
    uint8_t paths[STRATA__LAYOUT_MAX_KEYS];
    /* The best so far. */
    uint64_t best_ns; /* UINT64_MAX: none */
    uint64_t best_bytes;
    strata__layout_choice best;
    uint32_t best_resident[STRATA__MAX_LAYERS];
} strata__planner;

/* Lists the candidates of a problem; also the session's bytes. */
void strata__planner_init(strata__planner *planner, strata__layout_problem *problem);

/* Bytes that an arena may have at a level: 32 levels for each doubling, within what is of use. */
uint64_t strata__planner_level_bytes(const strata__planner_tiler *tiler, uint32_t level);
uint32_t strata__planner_arena_level(uint64_t bytes); /* the last level of at most that */

/* Numbers of a chunk but for the tiles; `scratch_level` sets attention and logit tiles. */
void strata__planner_spec(const strata__planner *planner, uint32_t chunk, uint32_t scratch_level,
                          strata__layout_spec *out);
void strata__planner_least_tiles(strata__layout_spec *spec);
void strata__planner_most_tiles(const strata__planner *planner, strata__layout_spec *spec);

/* Learns what tiles arenas take; planner->paths are those of the chunk. */
void strata__planner_tiler_init(strata__planner *planner, const strata__layout_spec *spec,
                                strata__planner_tiler *out);

/* The largest tiles within `bytes` of arena; the smallest when that is not enough. */
void strata__planner_fit_tiles(const strata__planner *planner, const strata__planner_tiler *tiler,
                               uint64_t bytes, strata__layout_spec *spec);

/* Device bytes of session and prompt without residents; UINT64_MAX: too many to count. */
uint64_t strata__planner_bytes(const strata__planner *planner, const strata__layout_spec *spec,
                               uint64_t arena_bytes);

/*
 * Fills planner->resident with what `bytes` bytes hold: the same number in every layer, one more in
 * the first ones; with first_whole as much as fits of the first layer before. Where nothing is
 * streamed it must be all, or the answer is false.
 */
bool strata__planner_fill(strata__planner *planner, uint64_t bytes, bool streams, bool first_whole);

/* Finds the best candidate, if any fits. STRATA_ERR_UNSUPPORTED: a layer that no path takes. */
strata_status strata__planner_search(strata__planner *planner);

/* Refuses an infeasible request with what would fit. The problem is left changed. */
strata_status strata__planner_refuse(strata__planner *planner, strata__layout_shortfall *shortfall);

#endif
