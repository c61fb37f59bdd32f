/* SPDX-License-Identifier: MIT */
/*
 * Branch and bound over chunk, tiles and ring. A bound is the prediction of something that is
 * better in every respect than all candidates it stands for, so only candidates that cannot win are
 * left out.
 */
#include "layout/planner.h"

#include <stddef.h>

#include "layout/arena.h"
#include "layout/path.h"

enum {
    DENSE = STRATA__PLANNER_DENSE,
    EXPERT = STRATA__PLANNER_EXPERT,
    SCRATCH = STRATA__PLANNER_SCRATCH,
    TILES = DENSE * EXPERT * SCRATCH
};

/* One way to tile a chunk. */
typedef struct tiling {
    uint64_t bound_ns;
    uint8_t dense;
    uint8_t expert;
    uint8_t scratch;
} tiling;

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Time of planner->times with planner->resident; UINT64_MAX when host memory does not allow it. */
static uint64_t predict(strata__planner *planner, const strata__layout_spec *spec,
                        const strata__planner_ring *ring, uint64_t lent)
{
    const strata__layout_problem *p = planner->problem;
    uint64_t missing = strata__layout_missing_bytes(p, planner->resident);
    strata__layout_copies copies = {.resident = planner->resident,
                                    .ring_bytes = ring->ring_bytes,
                                    .group_bytes = ring->group_bytes};
    strata__layout_place_host(p, spec, missing, ring->group_bytes, &planner->host);
    if (!planner->host.fits)
        return UINT64_MAX;
    copies.seconds_per_byte = planner->host.seconds_per_byte;
    if (p->request.borrow)
        copies.refill_bytes = lent < missing ? lent : missing;
    return strata__layout_predict(p, &planner->times, &copies, NULL).prompt_ns;
}

/* Fills residents beside `bytes` taken for everything else; false when that is too much already. */
static bool fill(strata__planner *planner, uint64_t bytes, const strata__planner_ring *ring)
{
    uint64_t budget = planner->problem->budget_bytes;
    return bytes <= budget && strata__planner_fill(planner, budget - bytes, ring->ring_bytes != 0);
}

/* The best that planner->times can come to when the prompt without ring takes `bytes` at least. */
static uint64_t bound(strata__planner *planner, const strata__layout_spec *least, uint64_t bytes)
{
    const strata__planner_ring *first = &planner->rings[0];
    strata__planner_ring best = planner->rings[planner->ring_count - 1];
    if (first->ring_bytes == 0) {
        if (fill(planner, bytes, first))
            return predict(planner, least, first, 0);
        if (planner->ring_count == 1)
            return UINT64_MAX;
        first++;
    }
    if (!fill(planner, bytes + first->ring_bytes, first))
        return UINT64_MAX;
    return predict(planner, least, &best, 0);
}

static void keep(strata__planner *planner, const strata__layout_spec *spec,
                 const strata__planner_ring *ring, uint64_t ns, uint64_t bytes)
{
    if (ns > planner->best_ns || (ns == planner->best_ns && bytes >= planner->best_bytes))
        return;
    planner->best_ns = ns;
    planner->best_bytes = bytes;
    planner->best = (strata__layout_choice){
        .chunk_tokens = spec->chunk,
        .dense_tile = spec->dense_tile,
        .attention_tile = spec->attention_tile,
        .expert_tile = spec->expert_tile,
        .logit_tile = spec->logit_tile,
        .scratch_bytes = spec->scratch_bytes,
        .ring_bytes = ring->ring_bytes,
        .group_bytes = ring->group_bytes,
        .resident = planner->best_resident,
    };
    for (uint32_t i = 0; i < planner->problem->geometry.layer_count; ++i)
        planner->best_resident[i] = planner->resident[i];
}

/* All rings of one tiling, exactly. */
static void try_tiling(strata__planner *planner, const tiling *t, uint32_t chunk)
{
    strata__layout_problem *p = planner->problem;
    strata__layout_spec spec;
    uint64_t arena;
    strata__planner_spec(planner, chunk, t->dense, t->expert, t->scratch, &spec);
    arena = strata__layout_arena_bytes(p, &spec, planner->paths, false);
    strata__layout_times_init(&planner->times, p, &spec, planner->paths);
    for (uint32_t i = 0; i < planner->ring_count; ++i) {
        const strata__planner_ring *ring = &planner->rings[i];
        uint64_t bytes, ns;
        spec.ring_bytes = ring->ring_bytes;
        bytes = strata__planner_bytes(planner, &spec, arena);
        if (!fill(planner, bytes, ring))
            continue;
        if (ring->ring_bytes && strata__layout_missing_bytes(p, planner->resident) == 0)
            continue; /* the ring would be empty */
        ns = predict(planner, &spec, ring, bytes - planner->session_bytes);
        if (ns != UINT64_MAX)
            keep(planner, &spec, ring, ns, bytes);
    }
}

/* Parts of a bound that depend on the dense or the expert tile alone. */
typedef struct parts {
    double seconds[SCRATCH][DENSE > EXPERT ? DENSE : EXPERT];
    uint64_t bytes[SCRATCH][DENSE > EXPERT ? DENSE : EXPERT];
} parts;

static void fill_parts(strata__planner *planner, uint32_t chunk, parts *dense, parts *expert)
{
    strata__layout_problem *p = planner->problem;
    strata__layout_spec spec;
    for (uint32_t s = 0; s < SCRATCH; ++s) {
        for (uint32_t i = 0; i < DENSE; ++i) {
            strata__planner_spec(planner, chunk, i, EXPERT - 1, s, &spec);
            strata__layout_times_init(&planner->times, p, &spec, planner->paths);
            dense->seconds[s][i] = planner->times.before_seconds + planner->times.edge_seconds;
            dense->bytes[s][i] = strata__planner_bytes(
                planner, &spec, strata__layout_arena_bytes(p, &spec, planner->paths, true));
        }
        for (uint32_t i = 0; i < EXPERT; ++i) {
            strata__planner_spec(planner, chunk, DENSE - 1, i, s, &spec);
            strata__layout_times_init(&planner->times, p, &spec, planner->paths);
            expert->seconds[s][i] = planner->times.expert_seconds;
            expert->bytes[s][i] = strata__planner_bytes(
                planner, &spec, strata__layout_arena_bytes(p, &spec, planner->paths, true));
        }
    }
}

/* Seconds of one byte of each layer's missing experts in all chunks, whatever way it is sent. */
static double sends(const strata__planner *planner)
{
    double sum = 0;
    for (uint32_t i = 0; i < planner->times.step_count; ++i)
        sum += planner->times.steps[i].count *
               strata__layout_touched(planner->problem, planner->times.steps[i].rows);
    return sum;
}

static uint64_t link_bound(strata__planner *planner, uint64_t bytes, double sent)
{
    const strata__planner_ring *first = &planner->rings[0];
    double missing;
    if (first->ring_bytes == 0) {
        if (fill(planner, bytes, first))
            return 0;
        if (planner->ring_count == 1)
            return UINT64_MAX;
        first++;
    }
    if (!fill(planner, bytes + first->ring_bytes, first))
        return UINT64_MAX;
    missing = (double)strata__layout_missing_bytes(planner->problem, planner->resident);
    /* A little less, so that rounding cannot make it more than the prediction. */
    return strata__layout_ns(missing * sent * 0.999999 /
                             planner->problem->facts.link_bytes_per_second);
}

static void insert(tiling *list, uint32_t count, tiling added)
{
    while (count > 0 && list[count - 1].bound_ns > added.bound_ns) {
        list[count] = list[count - 1];
        count--;
    }
    list[count] = added;
}

static void search_chunk(strata__planner *planner, uint32_t chunk)
{
    parts dense, expert;
    tiling list[TILES];
    double sent;
    uint32_t count = 0;
    fill_parts(planner, chunk, &dense, &expert);
    sent = planner->problem->copies ? sends(planner) : 0;
    for (uint32_t i = 0; i < TILES; ++i) {
        tiling t = {.scratch = (uint8_t)(i / (DENSE * EXPERT)),
                    .dense = (uint8_t)(i / EXPERT % DENSE),
                    .expert = (uint8_t)(i % EXPERT)};
        uint64_t bytes = larger(dense.bytes[t.scratch][t.dense], expert.bytes[t.scratch][t.expert]);
        double compute = dense.seconds[t.scratch][t.dense] + expert.seconds[t.scratch][t.expert];
        t.bound_ns =
            larger(strata__layout_ns(compute * 0.999999), link_bound(planner, bytes, sent));
        if (t.bound_ns < planner->best_ns)
            insert(list, count++, t);
    }
    for (uint32_t i = 0; i < count && list[i].bound_ns < planner->best_ns; ++i)
        try_tiling(planner, &list[i], chunk);
}

/* Bound of a chunk: the largest tiles for the time, the smallest for the memory. */
static uint64_t chunk_bound(strata__planner *planner, uint32_t chunk)
{
    strata__layout_problem *p = planner->problem;
    strata__layout_spec most, least;
    uint64_t arena;
    strata__planner_spec(planner, chunk, 0, 0, 0, &most);
    strata__planner_spec(planner, chunk, DENSE - 1, EXPERT - 1, SCRATCH - 1, &least);
    strata__layout_times_init(&planner->times, p, &most, planner->paths);
    arena = strata__layout_arena_bytes(p, &least, planner->paths, true);
    return bound(planner, &least, strata__planner_bytes(planner, &least, arena));
}

static strata_status choose_paths(strata__planner *planner, uint32_t chunk)
{
    strata__layout_spec spec;
    strata__planner_spec(planner, chunk, 0, 0, 0, &spec);
    return strata__layout_paths_choose(planner->problem, &spec, planner->paths, NULL);
}

strata_status strata__planner_search(strata__planner *planner)
{
    uint64_t bounds[STRATA__PLANNER_CHUNKS];
    for (uint32_t i = 0; i < planner->chunk_count; ++i) {
        strata_status status = choose_paths(planner, planner->chunks[i]);
        if (status != STRATA_OK)
            return status;
        bounds[i] = chunk_bound(planner, planner->chunks[i]);
    }
    for (uint32_t turn = 0; turn < planner->chunk_count; ++turn) {
        uint32_t next = 0;
        for (uint32_t i = 1; i < planner->chunk_count; ++i)
            if (bounds[i] < bounds[next])
                next = i;
        if (bounds[next] >= planner->best_ns)
            break;
        if (choose_paths(planner, planner->chunks[next]) == STRATA_OK)
            search_chunk(planner, planner->chunks[next]);
        bounds[next] = UINT64_MAX;
    }
    return STRATA_OK;
}
