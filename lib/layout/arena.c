/* SPDX-License-Identifier: MIT */
#include "layout/arena.h"

#include <string.h>

#include "layout/overlay.h"

uint32_t strata__layout_keys(strata__layout_problem *problem, const strata__layout_spec *spec,
                             const uint8_t *paths, uint16_t *config_of)
{
    uint32_t count = 0, bands = spec->band_count;
    memset(problem->key_number, 0xff, sizeof problem->key_number[0] * problem->kind_count);
    for (uint32_t i = 0; i < problem->geometry.layer_count * bands; ++i) {
        uint32_t kind = problem->classes[problem->class_of[i / bands]].kind;
        uint32_t band = i % bands, path = paths[i];
        uint32_t slot = path < STRATA__LAYOUT_PATH_COUNT ? path : STRATA__LAYOUT_PATH_COUNT;
        uint16_t *number = &problem->key_number[kind][band][slot];
        if (*number == UINT16_MAX) {
            *number = (uint16_t)count;
            problem->keys[count++] = (strata__layout_key){
                .kind = (uint16_t)kind, .band = (uint8_t)band, .path = (uint8_t)path};
        }
        if (config_of)
            config_of[i] = *number;
    }
    return count;
}

static uint32_t demands_of(const strata__layout_problem *problem, const strata__layout_spec *spec,
                           const strata__layout_key *key, strata__layout_buffer *out)
{
    strata__demand_context context = {
        .problem = problem, .spec = spec, .path = STRATA__LAYOUT_PATH_NONE, .rows = spec->chunk};
    if (key) {
        context.layer = &problem->geometry.layers[problem->kind_layer[key->kind]];
        context.path = key->path;
        context.rows = spec->band_rows[key->band];
    }
    return strata__layout_demands(&context, STRATA__DEMANDS_CONFIG, out);
}

uint32_t strata__layout_config_place(const strata__layout_problem *problem,
                                     const strata__layout_spec *spec, const strata__layout_key *key,
                                     strata__layout_buffer *out, uint64_t *out_bytes)
{
    uint32_t count = demands_of(problem, spec, key, out);
    *out_bytes = strata__layout_overlay(out, count, problem->facts.alignment_bytes);
    return count;
}

uint64_t strata__layout_arena_bytes(strata__layout_problem *problem,
                                    const strata__layout_spec *spec, const uint8_t *paths,
                                    bool bound)
{
    uint32_t count = strata__layout_keys(problem, spec, paths, NULL);
    uint64_t alignment = problem->facts.alignment_bytes, most = 0;
    for (uint32_t i = 0; i <= count; ++i) {
        strata__layout_buffer buffers[STRATA__DEMANDS_MAX];
        uint32_t n = demands_of(problem, spec, i < count ? &problem->keys[i] : NULL, buffers);
        uint64_t bytes = bound ? strata__layout_overlay_bound(buffers, n, alignment)
                               : strata__layout_overlay(buffers, n, alignment);
        if (bytes > most)
            most = bytes;
    }
    return most;
}
