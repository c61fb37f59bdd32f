/* SPDX-License-Identifier: MIT */
/*
 * Branch and bound over chunk, arena, scratch and ring. A node is a range of each; its bound is the
 * prediction of something that is better in every respect than all candidates in it: the tiles of
 * the largest arena and the residents beside the smallest. A node of one candidate is that
 * candidate.
 */
#include "layout/planner.h"

#include <string.h>

#include "layout/arena.h"
#include "layout/path.h"

typedef struct node {
    uint64_t bound_ns;
    uint32_t chunk;
    uint16_t arena_first; /* levels */
    uint16_t arena_last;
    uint8_t scratch_first; /* levels, the first is the largest */
    uint8_t scratch_last;
    uint8_t ring_first;
    uint8_t ring_last;
} node;

static bool is_candidate(const node *n)
{
    return n->arena_first == n->arena_last && n->scratch_first == n->scratch_last &&
           n->ring_first == n->ring_last;
}

static void time_spec(strata__planner *planner, const strata__layout_spec *spec)
{
    if (memcmp(&planner->timed, spec, sizeof *spec) == 0)
        return;
    strata__layout_times_init(&planner->times, planner->problem, spec, planner->paths);
    planner->timed = *spec;
}

/*
 * Time of planner->times with planner->resident; UINT64_MAX when host memory does not allow it.
 * `least` has the group that takes the least host memory, and the ring whose launches end first.
 */
static uint64_t predict(strata__planner *planner, const strata__layout_spec *spec,
                        const strata__planner_ring *ring, const strata__planner_ring *least,
                        uint64_t lent)
{
    const strata__layout_problem *p = planner->problem;
    uint64_t missing = strata__layout_missing_bytes(p, planner->resident);
    strata__layout_copies copies = {.resident = planner->resident,
                                    .ring_bytes = ring->ring_bytes,
                                    .group_bytes = ring->group_bytes,
                                    .tail_bytes = least->ring_bytes / 2};
    strata__layout_place_host(p, spec, missing, least->group_bytes, &planner->host);
    if (!planner->host.fits)
        return UINT64_MAX;
    copies.seconds_per_byte = planner->host.seconds_per_byte;
    if (p->request.borrow)
        copies.refill_bytes = lent < missing ? lent : missing;
    return strata__layout_predict(p, &planner->times, &copies, NULL).prompt_ns;
}

/* Fills residents beside `bytes` taken for everything else; false when that is too much already. */
static bool fill(strata__planner *planner, uint64_t bytes, const strata__planner_ring *ring,
                 bool first_whole)
{
    uint64_t budget = planner->problem->budget_bytes;
    return bytes <= budget &&
           strata__planner_fill(planner, budget - bytes, ring->ring_bytes != 0, first_whole);
}

/* Numbers of a chunk with the tiles that a level and scratch take. */
static void spec_of(const strata__planner *planner, const node *n, uint32_t level, uint32_t scratch,
                    strata__layout_spec *out)
{
    const strata__planner_tiler *tiler = &planner->tilers[scratch];
    strata__planner_spec(planner, n->chunk, scratch, out);
    strata__planner_fit_tiles(planner, tiler, strata__planner_level_bytes(tiler, level), out);
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
        .scratch_bytes = spec->scratch_bytes,
        .ring_bytes = ring->ring_bytes,
        .group_bytes = ring->group_bytes,
        .resident = planner->best_resident,
    };
    memcpy(planner->best_resident, planner->resident,
           planner->problem->geometry.layer_count * sizeof planner->resident[0]);
}

static void try_candidate(strata__planner *planner, const node *n)
{
    strata__layout_problem *p = planner->problem;
    const strata__planner_ring *ring = &planner->rings[n->ring_first];
    uint64_t arena, bytes, ns;
    strata__layout_spec spec;
    spec_of(planner, n, n->arena_first, n->scratch_first, &spec);
    arena = strata__layout_arena_bytes(p, &spec, planner->paths, false);
    time_spec(planner, &spec);
    spec.ring_bytes = ring->ring_bytes;
    bytes = strata__planner_bytes(planner, &spec, arena);
    for (uint32_t first_whole = 0; first_whole < 2; ++first_whole) {
        if (!fill(planner, bytes, ring, first_whole))
            return;
        ns = predict(planner, &spec, ring, ring, bytes - planner->session_bytes);
        if (ns != UINT64_MAX)
            keep(planner, &spec, ring, ns, bytes);
    }
}

/* A ring that is better than all from `first` to `last`, and what is least among them. */
static strata__planner_ring best_ring(const strata__planner *planner, uint32_t first, uint32_t last,
                                      strata__planner_ring *least)
{
    strata__planner_ring best = planner->rings[last];
    *least = planner->rings[first];
    for (uint32_t i = first; i <= last; ++i) {
        uint64_t group = planner->rings[i].group_bytes;
        if (group > best.group_bytes)
            best.group_bytes = group;
        if (group < least->group_bytes)
            least->group_bytes = group;
    }
    return best;
}

/*
 * The best that planner->times can come to with rings `first` to `last`, when the arena takes
 * arena_bytes at least; UINT64_MAX: nothing fits.
 */
static uint64_t bound(strata__planner *planner, uint32_t chunk, uint64_t arena_bytes,
                      uint32_t first, uint32_t last)
{
    uint64_t bytes, least_ns = UINT64_MAX;
    strata__planner_ring least, best = best_ring(planner, first, last, &least);
    strata__layout_spec roomy;
    /* The largest tiles have the fewest segments. */
    strata__planner_spec(planner, chunk, 0, &roomy);
    strata__planner_most_tiles(planner, &roomy);
    roomy.ring_bytes = planner->rings[first].ring_bytes;
    bytes = strata__planner_bytes(planner, &roomy, arena_bytes);
    for (uint32_t first_whole = 0; first_whole < 2; ++first_whole) {
        uint64_t ns;
        if (!fill(planner, bytes, &planner->rings[first], first_whole))
            return UINT64_MAX;
        ns = predict(planner, &roomy, &best, &least, 0);
        least_ns = ns < least_ns ? ns : least_ns;
    }
    return least_ns;
}

static void set_bound(strata__planner *planner, node *n)
{
    strata__layout_spec fast, least;
    uint64_t arena = UINT64_MAX;
    for (uint32_t s = n->scratch_first; s <= n->scratch_last; ++s) {
        uint64_t bytes;
        spec_of(planner, n, n->arena_first, s, &least);
        bytes = strata__layout_arena_bytes(planner->problem, &least, planner->paths, true);
        arena = bytes < arena ? bytes : arena;
    }
    /* The least scratch leaves the most to tiles, the largest takes the least time. */
    spec_of(planner, n, n->arena_last, n->scratch_last, &least);
    strata__planner_spec(planner, n->chunk, n->scratch_first, &fast);
    fast.dense_tile = least.dense_tile;
    fast.expert_tile = least.expert_tile;
    if (fast.attention_tile > fast.dense_tile)
        fast.attention_tile = fast.dense_tile;
    time_spec(planner, &fast);
    n->bound_ns = bound(planner, n->chunk, arena, n->ring_first, n->ring_last);
}

/* Halves the widest range. */
static void split(const node *n, node *low, node *high)
{
    uint32_t arenas = n->arena_last - n->arena_first, rings = n->ring_last - n->ring_first;
    uint32_t scratches = n->scratch_last - n->scratch_first;
    *low = *high = *n;
    if (scratches && 16 * scratches >= arenas) {
        low->scratch_last = (uint8_t)(n->scratch_first + scratches / 2);
        high->scratch_first = low->scratch_last + 1;
    } else if (rings && 4 * rings >= arenas) {
        low->ring_last = (uint8_t)(n->ring_first + rings / 2);
        high->ring_first = low->ring_last + 1;
    } else {
        low->arena_last = (uint16_t)(n->arena_first + arenas / 2);
        high->arena_first = low->arena_last + 1;
    }
}

/* Depth is at most the sum of the ranges' logarithms. */
static void explore(strata__planner *planner, const node *n)
{
    node low, high;
    if (n->bound_ns >= planner->best_ns)
        return;
    if (is_candidate(n)) {
        try_candidate(planner, n);
        return;
    }
    split(n, &low, &high);
    set_bound(planner, &low);
    set_bound(planner, &high);
    explore(planner, low.bound_ns <= high.bound_ns ? &low : &high);
    explore(planner, low.bound_ns <= high.bound_ns ? &high : &low);
}

static strata_status choose_paths(strata__planner *planner, uint32_t chunk)
{
    strata__layout_spec spec;
    strata__planner_spec(planner, chunk, 0, &spec);
    memset(&planner->timed, 0, sizeof planner->timed);
    return strata__layout_paths_choose(planner->problem, &spec, planner->paths, NULL);
}

static void search_chunk(strata__planner *planner, uint32_t chunk)
{
    uint64_t least = UINT64_MAX, most = 0;
    bool all_first = planner->rings[0].ring_bytes == 0;
    node n = {.chunk = chunk, .scratch_last = STRATA__PLANNER_SCRATCHES - 1};
    for (uint32_t i = 0; i < STRATA__PLANNER_SCRATCHES; ++i) {
        strata__planner_tiler *tiler = &planner->tilers[i];
        strata__layout_spec spec;
        strata__planner_spec(planner, chunk, i, &spec);
        strata__planner_tiler_init(planner, &spec, tiler);
        least = tiler->least_bytes < least ? tiler->least_bytes : least;
        most = tiler->most_bytes > most ? tiler->most_bytes : most;
    }
    n.arena_first = (uint16_t)strata__planner_arena_level(least);
    n.arena_last = (uint16_t)(strata__planner_arena_level(most) + 1);
    if (all_first) {
        set_bound(planner, &n);
        explore(planner, &n);
    }
    if (planner->ring_count > all_first) {
        n.ring_first = all_first;
        n.ring_last = (uint8_t)(planner->ring_count - 1);
        set_bound(planner, &n);
        explore(planner, &n);
    }
}

/* Bound of a chunk: the largest tiles for the time, the smallest for the memory. */
static uint64_t chunk_bound(strata__planner *planner, uint32_t chunk)
{
    bool all_first = planner->rings[0].ring_bytes == 0;
    strata__layout_spec most, least;
    uint64_t arena, all = UINT64_MAX, some = UINT64_MAX;
    strata__planner_spec(planner, chunk, 0, &most);
    strata__planner_most_tiles(planner, &most);
    strata__planner_spec(planner, chunk, STRATA__PLANNER_SCRATCHES - 1, &least);
    strata__planner_least_tiles(&least);
    time_spec(planner, &most);
    arena = strata__layout_arena_bytes(planner->problem, &least, planner->paths, true);
    if (all_first)
        all = bound(planner, chunk, arena, 0, 0);
    if (planner->ring_count > all_first)
        some = bound(planner, chunk, arena, all_first, planner->ring_count - 1);
    return all < some ? all : some;
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
