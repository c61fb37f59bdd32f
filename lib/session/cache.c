/* SPDX-License-Identifier: MIT */
#include "session/cache.h"

#include <string.h>

#include "base/error.h"
#include "session/state.h"

/* Whether expert a gets a place before expert b. */
static bool is_hotter(const uint64_t *uses, uint32_t a, uint32_t b)
{
    return uses[a] != uses[b] ? uses[a] > uses[b] : a < b;
}

/* Places in ascending order of expert, so that neighbours are one piece. */
static void place_layer(strata__cache *cache, const strata_session *session, uint32_t layer,
                        const uint64_t *uses)
{
    const strata__layout_place *place = &session->layout->layers[layer];
    uint8_t *base = session->memory.base + place->cache_offset;
    uint8_t **places = cache->places + strata__cache_index(cache, layer, 0);
    uint32_t next = 0;
    for (uint32_t e = 0; e < cache->experts && next < place->resident_count; ++e) {
        uint32_t hotter = 0;
        for (uint32_t other = 0; uses && other < cache->experts; ++other)
            hotter += is_hotter(uses, other, e);
        if (uses ? hotter < place->resident_count : true)
            places[e] = base + next++ * place->slot_bytes;
    }
}

strata_status strata__cache_init(strata__cache *cache, const strata_session *session,
                                 const uint64_t *uses)
{
    const strata__allocator *allocator = &session->context->allocator;
    memset(cache, 0, sizeof *cache);
    cache->allocator = allocator;
    cache->experts = session->geometry->experts;
    cache->layers = session->geometry->layers;
    cache->count = (uint64_t)cache->layers * cache->experts;
    cache->generation = 1;
    cache->places = strata__calloc(allocator, cache->count, sizeof *cache->places);
    cache->states = strata__calloc(allocator, cache->count, sizeof *cache->states);
    cache->uses = strata__calloc(allocator, cache->count, sizeof *cache->uses);
    if (!cache->places || !cache->states || !cache->uses)
        return strata__fail_memory(cache->count * sizeof *cache->uses, "the expert cache");
    if (uses)
        memcpy(cache->uses, uses, cache->count * sizeof *uses);
    for (uint32_t l = 0; l < cache->layers; ++l)
        if (session->layers[l].ffn == STRATA__FFN_EXPERTS)
            place_layer(cache, session, l, uses ? uses + strata__cache_index(cache, l, 0) : NULL);
    return STRATA_OK;
}

void strata__cache_finish(strata__cache *cache)
{
    if (!cache->allocator)
        return;
    strata__free(cache->allocator, cache->places, cache->count * sizeof *cache->places);
    strata__free(cache->allocator, cache->states, cache->count * sizeof *cache->states);
    strata__free(cache->allocator, cache->uses, cache->count * sizeof *cache->uses);
    memset(cache, 0, sizeof *cache);
}

void strata__cache_empty(strata__cache *cache)
{
    memset(cache->states, STRATA__BLOB_ABSENT, cache->count * sizeof *cache->states);
}
