/* SPDX-License-Identifier: MIT */
#include "session/cache.h"

#include <string.h>

#include "base/error.h"
#include "session/state.h"

bool strata__cache_is_apart(const strata_session *session, const strata_session_options *options)
{
    return !session->device->facts.host_addressable && strata__layout_find_ring(session->layout) &&
           !options->device_memory;
}

/* Whether expert a gets a place before expert b. */
static bool is_hotter(const uint64_t *uses, uint32_t a, uint32_t b)
{
    return uses[a] != uses[b] ? uses[a] > uses[b] : a < b;
}

/*
 * Places in ascending order of expert, so that neighbours are one piece. Experts that have one in
 * the range that prompts borrow keep it, unless there are places for all.
 */
static void place_layer(strata__cache *cache, const strata_session *session, uint32_t layer,
                        uint8_t *base)
{
    const strata__layout_place *place = &session->layout->layers[layer];
    const uint64_t *uses = cache->uses + strata__cache_index(cache, layer, 0);
    uint8_t **places = cache->places + strata__cache_index(cache, layer, 0);
    const uint8_t *end = base + place->resident_count * place->slot_bytes;
    uint32_t next = 0;
    for (uint32_t e = 0; e < cache->experts && next < place->resident_count; ++e) {
        uint32_t hotter = 0;
        if (places[e])
            continue;
        for (uint32_t other = 0; cache->has_profile && other < cache->experts; ++other)
            hotter += (!places[other] || (places[other] >= base && places[other] < end)) &&
                      is_hotter(uses, other, e);
        if (hotter < place->resident_count)
            places[e] = base + next++ * place->slot_bytes;
    }
    for (uint32_t e = 0; e < cache->experts && next < place->resident_count; ++e) {
        if (places[e] >= base && places[e] < end)
            continue;
        places[e] = base + next++ * place->slot_bytes;
        cache->states[strata__cache_index(cache, layer, e)] = STRATA__BLOB_ABSENT;
    }
}

static void place_segment(strata__cache *cache, const strata_session *session,
                          const strata__cache_segment *segment)
{
    for (uint32_t l = segment->first_layer; l < segment->end_layer; ++l) {
        uint64_t offset = session->layout->layers[l].cache_offset - segment->offset;
        if (session->layers[l].ffn == STRATA__FFN_EXPERTS)
            place_layer(cache, session, l, segment->memory.base + offset);
    }
    cache->generation++;
}

/* The places' part of the plan's session region, in about equal segments of whole layers. */
static void cut_segments(strata__cache *cache, const strata__layout *layout)
{
    uint64_t end = layout->loan_offset, begin = layout->layers[0].cache_offset;
    uint64_t share = (end - begin) / STRATA__CACHE_SEGMENTS + 1;
    for (uint32_t l = 0; l < cache->layers; ++l) {
        uint64_t offset = layout->layers[l].cache_offset;
        uint64_t next = l + 1 < cache->layers ? layout->layers[l + 1].cache_offset : end;
        strata__cache_segment *s = &cache->segments[cache->segment_count];
        if (s->bytes == 0) {
            s->offset = offset;
            s->first_layer = l;
        }
        s->bytes = next - s->offset;
        s->end_layer = l + 1;
        if (s->bytes >= share && cache->segment_count + 1 < STRATA__CACHE_SEGMENTS)
            cache->segment_count++;
    }
    if (cache->segments[cache->segment_count].bytes)
        cache->segment_count++;
}

static strata_status take_segment(strata__cache *cache, strata_session *session,
                                  strata__cache_segment *segment)
{
    strata_status status;
    if (session->memory.bytes > segment->offset) {
        /* The session's region has the cache too. */
        segment->memory =
            (strata__region){session->memory.base + segment->offset, segment->bytes, false, false};
        place_segment(cache, session, segment);
        return STRATA_OK;
    }
    status =
        strata__region_alloc(&segment->memory, session->device, segment->bytes, "the expert cache");
    if (status != STRATA_OK)
        return status;
    cache->bytes += segment->bytes;
    strata__counter_add(&session->counters.device_bytes, segment->bytes);
    place_segment(cache, session, segment);
    return STRATA_OK;
}

static void give_segment(strata__cache *cache, strata_session *session,
                         strata__cache_segment *segment)
{
    uint64_t first = strata__cache_index(cache, segment->first_layer, 0);
    uint64_t end = strata__cache_index(cache, segment->end_layer, 0);
    if (!segment->memory.owned)
        return;
    for (uint64_t i = first; i < end; ++i) {
        if (cache->places[i] < segment->memory.base ||
            cache->places[i] >= segment->memory.base + segment->bytes)
            continue;
        cache->places[i] = NULL;
        cache->states[i] = STRATA__BLOB_ABSENT;
    }
    cache->bytes -= segment->bytes;
    cache->generation++;
    strata__counter_add(&session->counters.device_bytes, 0 - segment->bytes);
    strata__region_free(&segment->memory, session->device);
}

static strata_status make_arrays(strata__cache *cache)
{
    cache->places = strata__calloc(cache->allocator, cache->count, sizeof *cache->places);
    cache->states = strata__calloc(cache->allocator, cache->count, sizeof *cache->states);
    cache->uses = strata__calloc(cache->allocator, cache->count, sizeof *cache->uses);
    if (!cache->places || !cache->states || !cache->uses)
        return strata__fail_memory(cache->count * sizeof *cache->uses, "the expert cache");
    return STRATA_OK;
}

strata_status strata__cache_init(strata__cache *cache, strata_session *session,
                                 const uint64_t *uses)
{
    strata_status status;
    memset(cache, 0, sizeof *cache);
    cache->allocator = &session->context->allocator;
    cache->experts = session->geometry->experts;
    cache->layers = session->geometry->layers;
    cache->count = (uint64_t)cache->layers * cache->experts;
    status = make_arrays(cache);
    if (status != STRATA_OK)
        return status;
    cache->has_profile = uses != NULL;
    if (uses)
        memcpy(cache->uses, uses, cache->count * sizeof *uses);
    cache->generation = 1;
    cut_segments(cache, session->layout);
    for (uint32_t i = 0; i < cache->segment_count && status == STRATA_OK; ++i)
        status = take_segment(cache, session, &cache->segments[i]);
    return status;
}

void strata__cache_finish(strata__cache *cache, strata_session *session)
{
    if (!cache->allocator)
        return;
    for (uint32_t i = 0; i < cache->segment_count; ++i)
        strata__region_free(&cache->segments[i].memory, session->device);
    strata__free(cache->allocator, cache->places, cache->count * sizeof *cache->places);
    strata__free(cache->allocator, cache->states, cache->count * sizeof *cache->states);
    strata__free(cache->allocator, cache->uses, cache->count * sizeof *cache->uses);
    memset(cache, 0, sizeof *cache);
}

void strata__cache_empty(strata__cache *cache)
{
    memset(cache->states, STRATA__BLOB_ABSENT, cache->count * sizeof *cache->states);
}

bool strata__cache_is_complete(const strata__cache *cache)
{
    for (uint32_t i = 0; i < cache->segment_count; ++i)
        if (!cache->segments[i].memory.base)
            return false;
    return true;
}

void strata__cache_resize(strata__cache *cache, strata_session *session, uint64_t bytes)
{
    for (uint32_t i = cache->segment_count; i-- > 0 && cache->bytes > bytes;)
        give_segment(cache, session, &cache->segments[i]);
    for (uint32_t i = 0; i < cache->segment_count; ++i) {
        strata__cache_segment *segment = &cache->segments[i];
        if (segment->memory.base || segment->bytes > bytes - cache->bytes)
            continue;
        if (take_segment(cache, session, segment) != STRATA_OK)
            break;
    }
}
