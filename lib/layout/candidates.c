/* SPDX-License-Identifier: MIT */
#include "layout/planner.h"

#include <stddef.h>

#include "base/checked.h"
#include "layout/arena.h"
#include "layout/build.h"
#include "layout/path.h"

static const uint32_t dense_tiles[STRATA__PLANNER_DENSE] = {8192, 2048, 512, 128, 32};
static const uint32_t expert_tiles[STRATA__PLANNER_EXPERT] = {65536, 16384, 4096, 1024, 128};
static const uint64_t scratches[STRATA__PLANNER_SCRATCH] = {64u << 20, 16u << 20, 4u << 20, 0};

enum { CHUNK_STEP = 16, MAX_CHUNK = 1u << 24, LOGIT_ROWS = 256, LEAST_ATTENTION_ROWS = 16 };

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

/* Chunks of one size, for every number of them up to 24, then in ever larger steps. */
static void list_chunks(strata__planner *planner)
{
    uint64_t tokens = planner->problem->request.prompt_tokens;
    planner->chunk_count = 0;
    if (planner->problem->request.chunk_tokens) {
        planner->chunks[planner->chunk_count++] = (uint32_t)planner->problem->request.chunk_tokens;
        return;
    }
    for (uint64_t n = 1; tokens > n * CHUNK_STEP; n += n < 24 ? 1 : n / 4) {
        uint64_t chunk = (tokens + n - 1) / n;
        add_chunk(planner, (chunk + CHUNK_STEP - 1) / CHUNK_STEP * CHUNK_STEP);
    }
    for (uint32_t chunk = CHUNK_STEP; chunk; chunk /= 2)
        add_chunk(planner, chunk);
}

static void add_ring(strata__planner *planner, uint64_t ring_bytes, uint64_t group_bytes)
{
    planner->rings[planner->ring_count++] =
        (strata__planner_ring){.ring_bytes = strata__layout_align(planner->problem, ring_bytes),
                               .group_bytes = group_bytes};
}

static void list_rings(strata__planner *planner)
{
    const strata__layout_problem *p = planner->problem;
    const uint64_t large = strata__layout_default_group_bytes(), small = large / 4;
    uint64_t least = strata__layout_least_ring_bytes(p, large);
    uint64_t layer = p->largest_slot_bytes * p->geometry.experts;
    planner->ring_count = 0;
    if (!p->copies || p->request.experts != STRATA__LAYOUT_EXPERTS_STREAM)
        add_ring(planner, 0, large);
    if (!p->copies || !p->request.expert_source ||
        p->request.experts == STRATA__LAYOUT_EXPERTS_RESIDENT)
        return;
    add_ring(planner, strata__layout_least_ring_bytes(p, small), small);
    add_ring(planner, least, large);
    add_ring(planner, 2 * least, large);
    add_ring(planner, least + layer / 4, large);
    add_ring(planner, least + layer / 2, large);
    add_ring(planner, least + layer, large);
    add_ring(planner, least + 2 * layer, large);
    add_ring(planner, least + 4 * layer, large);
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

/* Rows of attention whose scratch is as much as decoded weights may take. */
static uint32_t attention_tile(const strata__layout_problem *p, const strata__layout_spec *spec)
{
    uint64_t most = 0, rows;
    for (uint32_t i = 0; i < p->kind_count; ++i)
        if (p->geometry.layers[p->kind_layer[i]].heads > most)
            most = p->geometry.layers[p->kind_layer[i]].heads;
    most *= p->facts.attention_scratch_bytes_per_row;
    rows = most ? spec->scratch_bytes / most : spec->dense_tile;
    if (rows < LEAST_ATTENTION_ROWS)
        rows = LEAST_ATTENTION_ROWS;
    return (uint32_t)smaller(rows, spec->dense_tile);
}

void strata__planner_spec(const strata__planner *planner, uint32_t chunk, uint32_t dense_level,
                          uint32_t expert_level, uint32_t scratch_level, strata__layout_spec *out)
{
    const strata__layout_problem *p = planner->problem;
    uint32_t top_k = p->geometry.top_k ? p->geometry.top_k : 1;
    uint64_t logits = scratches[scratch_level] / (4ull * p->geometry.vocabulary);
    *out = (strata__layout_spec){
        .chunk = chunk,
        .dense_tile = (uint32_t)smaller(chunk, dense_tiles[dense_level]),
        .expert_tile = (uint32_t)smaller((uint64_t)chunk * top_k, expert_tiles[expert_level]),
        .scratch_bytes = scratches[scratch_level],
    };
    out->attention_tile = attention_tile(p, out);
    out->logit_tile = (uint32_t)smaller(logits ? logits : 1, smaller(chunk, LOGIT_ROWS));
    strata__layout_bands(out);
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

bool strata__planner_fill(strata__planner *planner, uint64_t bytes, bool streams)
{
    const strata__layout_problem *p = planner->problem;
    uint32_t experts = p->geometry.experts, each = 0;
    if (!p->copies || (streams && p->request.experts == STRATA__LAYOUT_EXPERTS_STREAM))
        bytes = 0;
    else if (!streams && bytes < p->expert_bytes)
        return false;
    if (planner->layer_slots)
        each = (uint32_t)smaller(bytes / planner->layer_slots, experts);
    bytes -= each * planner->layer_slots;
    for (uint32_t i = 0; i < p->geometry.layer_count; ++i) {
        uint64_t slot = p->classes[p->class_of[i]].slot_bytes;
        bool one_more = each < experts && slot <= bytes;
        planner->resident[i] = 0;
        if (p->geometry.layers[i].expert_width == 0)
            continue;
        planner->resident[i] = each + one_more;
        bytes = one_more ? bytes - slot : 0;
    }
    return true;
}
