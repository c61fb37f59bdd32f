/* SPDX-License-Identifier: MIT */
#include "layout/planner.h"

#include <stddef.h>
#include <string.h>

#include "base/checked.h"
#include "layout/arena.h"
#include "layout/build.h"
#include "layout/path.h"

static const uint64_t scratches[STRATA__PLANNER_SCRATCHES] = {
    1u << 30, 256u << 20, 64u << 20, 32u << 20, 16u << 20,
    8u << 20, 4u << 20,   2u << 20,  1u << 20,  0};

enum {
    SMALL_CHUNK = 16,
    STEPS = 32, /* of arena bytes in each doubling */
    MAX_CHUNK = 1u << 24,
    LEAST_ATTENTION_ROWS = 16,
    LEAST_DENSE_ROWS = 16,
    LEAST_EXPERT_ROWS = 64,
    MOST_DENSE_ROWS = 8192,
    MOST_EXPERT_ROWS = 65536
};

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static void add_chunk(strata__planner *planner, uint64_t chunk)
{
    uint32_t count = planner->chunk_count;
    chunk = smaller(chunk, planner->problem->request.prompt_tokens);
    if (chunk <= MAX_CHUNK && (count == 0 || chunk < planner->chunks[count - 1]))
        planner->chunks[planner->chunk_count++] = (uint32_t)chunk;
}

/* The size of as few equal chunks as are not larger than `most`. */
static uint64_t even_chunk(uint64_t tokens, uint64_t most)
{
    return strata__divide_up_u64(tokens, strata__divide_up_u64(tokens, most));
}

/* Chunks of one size, for every number of them up to 24, then in ever larger steps. */
static void list_chunks(strata__planner *planner)
{
    uint64_t tokens = planner->problem->request.prompt_tokens;
    planner->chunk_count = 0;
    if (planner->problem->request.chunk_tokens) {
        planner->chunks[planner->chunk_count++] = (uint32_t)planner->problem->request.chunk_tokens;
        return;
    }
    for (uint64_t n = 1; tokens > n * SMALL_CHUNK; n += n < 24 ? 1 : n / 4)
        add_chunk(planner, strata__divide_up_u64(tokens, n));
    add_chunk(planner, SMALL_CHUNK);
    add_chunk(planner, even_chunk(tokens, SMALL_CHUNK));
    for (uint32_t chunk = SMALL_CHUNK / 2; chunk; chunk /= 2)
        add_chunk(planner, chunk);
}

/* Keeps the rings ascending. */
static void add_ring(strata__planner *planner, uint64_t ring_bytes, uint64_t group_bytes)
{
    strata__planner_ring added = {strata__layout_align(planner->problem, ring_bytes), group_bytes};
    uint32_t at = planner->ring_count++;
    for (; at > 0 && planner->rings[at - 1].ring_bytes > added.ring_bytes; --at)
        planner->rings[at] = planner->rings[at - 1];
    planner->rings[at] = added;
}

static void list_rings(strata__planner *planner)
{
    const strata__layout_problem *p = planner->problem;
    const uint64_t large = strata__layout_default_group_bytes();
    const uint64_t parts[] = {1, 2, 3, 4, 6, 8, 12, 16};
    uint64_t layer = p->largest_slot_bytes * p->geometry.experts;
    planner->ring_count = 0;
    if (!p->copies || p->request.experts != STRATA__LAYOUT_EXPERTS_STREAM)
        add_ring(planner, 0, large);
    if (!p->copies || !p->request.expert_source ||
        p->request.experts == STRATA__LAYOUT_EXPERTS_RESIDENT)
        return;
    for (uint64_t group = large / 8; group <= 2 * large; group *= 2)
        add_ring(planner, strata__layout_least_ring_bytes(p, group), group);
    for (uint64_t group = large; group <= 2 * large; group *= 2)
        for (uint64_t i = 0; i < sizeof parts / sizeof parts[0]; ++i)
            add_ring(planner, strata__layout_least_ring_bytes(p, group) + layer / parts[i], group);
    add_ring(planner, 2 * (planner->rings[planner->ring_count - 1].ring_bytes), 2 * large);
    add_ring(planner, 2 * (planner->rings[planner->ring_count - 1].ring_bytes), 2 * large);
}

static uint64_t session_bytes(strata__planner *planner)
{
    strata__layout_problem *p = planner->problem;
    strata__carver carver = {.alignment = p->facts.alignment_bytes};
    strata__layout_buffer buffers[STRATA__DEMANDS_MAX];
    strata__layout_spec decode;
    uint64_t offset;
    strata__layout_place_session(p, &carver, NULL);
    if (p->request.decode_rows == 0)
        return carver.end;
    strata__layout_decode_spec(p, &decode);
    /* A layer that no path takes is refused by the search. */
    if (strata__layout_paths_choose(p, &decode, planner->paths, NULL) == STRATA_OK)
        strata__layout_place_work(p, &decode,
                                  strata__layout_arena_bytes(p, &decode, planner->paths, false),
                                  &carver, buffers, &offset);
    return carver.end;
}

void strata__planner_init(strata__planner *planner, strata__layout_problem *problem)
{
    planner->problem = problem;
    planner->best_ns = UINT64_MAX;
    planner->best_bytes = UINT64_MAX;
    planner->layer_slots = 0;
    for (uint32_t i = 0; i < problem->geometry.layer_count; ++i)
        if (problem->copies && problem->geometry.layers[i].expert_width)
            planner->layer_slots += problem->classes[problem->class_of[i]].slot_bytes;
    planner->session_bytes = session_bytes(planner);
    list_chunks(planner);
    list_rings(planner);
}

uint64_t strata__planner_level_bytes(const strata__planner_tiler *tiler, uint32_t level)
{
    uint64_t bytes = (uint64_t)(STEPS + level % STEPS) << level / STEPS;
    if (bytes > tiler->most_bytes)
        bytes = tiler->most_bytes;
    return bytes < tiler->least_bytes ? tiler->least_bytes : bytes;
}

uint32_t strata__planner_arena_level(uint64_t bytes)
{
    uint32_t doublings = 0;
    while (bytes >> doublings >= 2 * STEPS)
        doublings++;
    bytes >>= doublings;
    return bytes < STEPS ? 0 : doublings * STEPS + (uint32_t)bytes - STEPS;
}

/* Rows of attention whose scratch is as much as decoded weights may take. */
static uint32_t attention_tile(const strata__layout_problem *p, uint64_t scratch_bytes,
                               uint32_t most_rows)
{
    uint64_t most = 0, rows;
    for (uint32_t i = 0; i < p->kind_count; ++i)
        if (p->geometry.layers[p->kind_layer[i]].heads > most)
            most = p->geometry.layers[p->kind_layer[i]].heads;
    most *= p->facts.attention_scratch_bytes_per_row;
    rows = most ? scratch_bytes / most : most_rows;
    if (rows < LEAST_ATTENTION_ROWS)
        rows = LEAST_ATTENTION_ROWS;
    return (uint32_t)smaller(rows, most_rows);
}

void strata__planner_spec(const strata__planner *planner, uint32_t chunk, uint32_t scratch_level,
                          strata__layout_spec *out)
{
    const strata__layout_problem *p = planner->problem;
    *out = (strata__layout_spec){
        .chunk = chunk, .logit_tile = 1, .scratch_bytes = scratches[scratch_level]};
    out->attention_tile = attention_tile(p, out->scratch_bytes, chunk);
    strata__layout_bands(out);
}

/* Tiles as a layout has them: attention tiles are no larger than dense ones. */
static void set_tiles(strata__layout_spec *spec, uint64_t dense, uint64_t expert)
{
    spec->dense_tile = (uint32_t)dense;
    spec->expert_tile = (uint32_t)expert;
    spec->attention_tile = (uint32_t)smaller(spec->attention_tile, dense);
}

static uint64_t pairs_of(const strata__planner *planner, uint32_t chunk)
{
    uint32_t top_k = planner->problem->geometry.top_k;
    return (uint64_t)chunk * (top_k ? top_k : 1);
}

void strata__planner_least_tiles(strata__layout_spec *spec)
{
    set_tiles(spec, smaller(spec->chunk, LEAST_DENSE_ROWS),
              smaller(spec->chunk, LEAST_EXPERT_ROWS));
}

void strata__planner_most_tiles(const strata__planner *planner, strata__layout_spec *spec)
{
    set_tiles(spec, smaller(spec->chunk, MOST_DENSE_ROWS),
              smaller(pairs_of(planner, spec->chunk), MOST_EXPERT_ROWS));
}

/* The tile that a piece leaves room for. */
static uint64_t room(int64_t bytes, int64_t base, int64_t row_bytes, uint64_t cap, uint64_t most)
{
    int64_t rows;
    if (row_bytes <= 0)
        return most;
    rows = bytes > base ? (bytes - base) / row_bytes : 0;
    return (uint64_t)rows >= cap ? most : (uint64_t)rows;
}

/* The smallest tile, in whole steps, that takes as many turns for `total` rows. */
static uint64_t even(uint64_t total, uint64_t tile)
{
    uint64_t least = strata__divide_up_u64(total, strata__divide_up_u64(total, tile));
    least = strata__divide_up_u64(least, LEAST_DENSE_ROWS) * LEAST_DENSE_ROWS;
    return smaller(least, tile);
}

void strata__planner_fit_tiles(const strata__planner *planner, const strata__planner_tiler *tiler,
                               uint64_t bytes, strata__layout_spec *spec)
{
    uint64_t dense, expert, most_dense, most_expert;
    strata__layout_spec least = *spec;
    strata__planner_least_tiles(&least);
    strata__planner_most_tiles(planner, spec);
    dense = most_dense = spec->dense_tile;
    expert = most_expert = spec->expert_tile;
    for (uint32_t i = 0; i < tiler->piece_count && bytes < tiler->most_bytes; ++i) {
        const strata__planner_piece *p = &tiler->pieces[i];
        dense = smaller(dense, room((int64_t)bytes, p->base, p->dense, p->dense_cap, most_dense));
        expert =
            smaller(expert, room((int64_t)bytes, p->base, p->expert, p->expert_cap, most_expert));
    }
    /* Whole warps of rows, unless it is all of them. */
    if (dense < most_dense)
        dense -= dense % LEAST_DENSE_ROWS;
    if (expert < most_expert)
        expert -= expert % LEAST_DENSE_ROWS;
    dense = dense < least.dense_tile ? least.dense_tile : dense;
    expert = expert < least.expert_tile ? least.expert_tile : expert;
    set_tiles(spec, even(spec->chunk, dense), even(pairs_of(planner, spec->chunk), expert));
}

uint64_t strata__planner_bytes(const strata__planner *planner, const strata__layout_spec *spec,
                               uint64_t arena_bytes)
{
    const strata__layout_problem *p = planner->problem;
    strata__carver carver = {.end = planner->session_bytes, .alignment = p->facts.alignment_bytes};
    strata__layout_buffer buffers[STRATA__DEMANDS_MAX];
    uint64_t offset;
    strata__layout_place_work(p, spec, arena_bytes, &carver, buffers, &offset);
    return carver.end;
}

/* Puts what fits of a layer's experts on the device, at most `most`; returns the bytes left. */
static uint64_t fill_layer(strata__planner *planner, uint32_t layer, uint64_t most, uint64_t bytes)
{
    const strata__layout_problem *p = planner->problem;
    uint64_t slot = p->classes[p->class_of[layer]].slot_bytes;
    uint64_t count = smaller(bytes / slot, most);
    planner->resident[layer] += (uint32_t)count;
    return bytes - count * slot;
}

bool strata__planner_fill(strata__planner *planner, uint64_t bytes, bool streams, bool first_whole)
{
    const strata__layout_problem *p = planner->problem;
    uint32_t layers = p->geometry.layer_count, experts = p->geometry.experts, first = 0;
    uint64_t slots = planner->layer_slots, each = 0;
    if (!p->copies || (streams && p->request.experts == STRATA__LAYOUT_EXPERTS_STREAM))
        bytes = 0;
    else if (!streams && bytes < p->expert_bytes)
        return false;
    memset(planner->resident, 0, layers * sizeof planner->resident[0]);
    if (first_whole && slots) {
        while (p->geometry.layers[first].expert_width == 0)
            first++;
        bytes = fill_layer(planner, first, experts, bytes);
        if (planner->resident[first] < experts)
            bytes = 0;
        slots -= p->classes[p->class_of[first++]].slot_bytes;
    }
    if (slots)
        each = smaller(bytes / slots, experts);
    bytes -= each * slots;
    for (uint32_t i = first; i < layers; ++i) {
        uint64_t left = bytes;
        if (p->geometry.layers[i].expert_width == 0)
            continue;
        planner->resident[i] = (uint32_t)each;
        if (each < experts)
            bytes = fill_layer(planner, i, 1, bytes);
        if (left == bytes)
            bytes = 0; /* a smaller expert of a later layer does not go before */
    }
    return true;
}
