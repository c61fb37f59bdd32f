/* SPDX-License-Identifier: MIT */
/*
 * How the arena grows with the tiles. Every buffer has rows that are a constant, the dense tile or
 * the expert tile, so what lives in a stage is a line in either; two evaluations of the demands
 * give it.
 */
#include <stddef.h>

#include "layout/arena.h"
#include "layout/planner.h"

enum { STAGES = STRATA__STAGE_COUNT };

/* Bytes that live in each stage of a configuration; `count` gets the buffers of each. */
static void live_bytes(const strata__layout_problem *p, const strata__layout_spec *spec,
                       const strata__layout_key *key, int64_t *live, int64_t *count)
{
    strata__layout_buffer buffers[STRATA__DEMANDS_MAX];
    strata__demand_context context = {
        .problem = p, .spec = spec, .path = STRATA__LAYOUT_PATH_NONE, .rows = spec->chunk};
    uint32_t n;
    if (key) {
        context.layer = &p->geometry.layers[p->kind_layer[key->kind]];
        context.path = key->path;
        context.rows = spec->band_rows[key->band];
    }
    n = strata__layout_demands(&context, STRATA__DEMANDS_CONFIG, buffers);
    for (uint32_t stage = 0; stage < STAGES; ++stage)
        live[stage] = count[stage] = 0;
    for (uint32_t i = 0; i < n; ++i)
        for (uint32_t stage = buffers[i].first_stage; stage <= buffers[i].last_stage; ++stage) {
            live[stage] += (int64_t)buffers[i].bytes;
            count[stage]++;
        }
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Adds a piece that no other covers; beyond the room for them, pieces are taken together. */
static void add_piece(strata__planner_tiler *tiler, strata__planner_piece added)
{
    strata__planner_piece *last = &tiler->pieces[STRATA__PLANNER_PIECES - 1];
    for (uint32_t i = 0; i < tiler->piece_count; ++i) {
        const strata__planner_piece *p = &tiler->pieces[i];
        if (p->base >= added.base && p->dense >= added.dense && p->expert >= added.expert &&
            p->dense_cap >= added.dense_cap && p->expert_cap >= added.expert_cap)
            return;
    }
    if (tiler->piece_count < STRATA__PLANNER_PIECES) {
        tiler->pieces[tiler->piece_count++] = added;
        return;
    }
    last->base = larger(last->base, added.base);
    last->dense = larger(last->dense, added.dense);
    last->expert = larger(last->expert, added.expert);
    if (last->dense_cap < added.dense_cap)
        last->dense_cap = added.dense_cap;
    if (last->expert_cap < added.expert_cap)
        last->expert_cap = added.expert_cap;
}

static void add_config(const strata__layout_problem *p, const strata__layout_spec *whole,
                       const strata__layout_key *key, strata__planner_tiler *tiler)
{
    uint32_t rows = key ? whole->band_rows[key->band] : whole->chunk;
    uint64_t pairs = strata__layout_expert_rows(p, whole, rows);
    uint32_t dense = strata__layout_dense_rows(whole, rows);
    int64_t all[STAGES], half_dense[STAGES], half_expert[STAGES], count[STAGES];
    strata__layout_spec half = *whole;
    live_bytes(p, whole, key, all, count);
    half.dense_tile = dense / 2 ? dense / 2 : 1;
    live_bytes(p, &half, key, half_dense, count);
    half = *whole;
    half.expert_tile = (uint32_t)(pairs / 2 ? pairs / 2 : 1);
    live_bytes(p, &half, key, half_expert, count);
    for (uint32_t stage = 0; stage < STAGES; ++stage) {
        strata__planner_piece piece = {.dense_cap = dense, .expert_cap = pairs};
        int64_t dense_rows = (int64_t)dense - (dense / 2 ? dense / 2 : 1);
        int64_t expert_rows = (int64_t)pairs - (int64_t)half.expert_tile;
        if (count[stage] == 0)
            continue;
        if (dense_rows > 0)
            piece.dense = (all[stage] - half_dense[stage] + dense_rows - 1) / dense_rows;
        if (expert_rows > 0)
            piece.expert = (all[stage] - half_expert[stage] + expert_rows - 1) / expert_rows;
        piece.base = all[stage] - piece.dense * (int64_t)dense - piece.expert * (int64_t)pairs +
                     count[stage] * (int64_t)(p->facts.alignment_bytes - 1);
        add_piece(tiler, piece);
    }
}

void strata__planner_tiler_init(strata__planner *planner, const strata__layout_spec *spec,
                                strata__planner_tiler *out)
{
    strata__layout_problem *p = planner->problem;
    strata__layout_spec tiles = *spec;
    uint32_t count;
    out->piece_count = 0;
    strata__planner_least_tiles(&tiles);
    out->least_bytes = strata__layout_arena_bytes(p, &tiles, planner->paths, false);
    tiles = *spec;
    strata__planner_most_tiles(planner, &tiles);
    out->most_bytes = strata__layout_arena_bytes(p, &tiles, planner->paths, false);
    count = strata__layout_keys(p, &tiles, planner->paths, NULL);
    add_config(p, &tiles, NULL, out);
    /* Larger bands first: they cover the smaller ones of the same path. */
    for (uint32_t i = count; i-- > 0;)
        add_config(p, &tiles, &p->keys[i], out);
}
