/* SPDX-License-Identifier: MIT */
/* Of the feed: how layers are cut into pieces, and where in the ring each piece goes. */
#include "session/feed_table.h"

#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "session/state.h"

uint32_t strata__feed_group(const strata_session *session, uint32_t layer)
{
    const strata__layout_place *place = &session->layout->layers[layer];
    uint64_t group = place->group_experts;
    if (session->layers[layer].ffn != STRATA__FFN_EXPERTS)
        return 0;
    /* A layer whose experts all have a place is filled in pieces of the same size. */
    if (!group)
        group = session->layout->group_bytes / place->slot_bytes;
    if (group > session->geometry->experts)
        group = session->geometry->experts;
    return group ? (uint32_t)group : 1;
}

uint32_t strata__feed_table_capacity(const strata_session *session)
{
    uint32_t count = 0, experts = session->geometry->experts;
    for (uint32_t l = 0; l < session->geometry->layers; ++l) {
        uint32_t group = strata__feed_group(session, l);
        if (group)
            count += (uint32_t)strata__divide_up_u64(experts, group);
    }
    return count;
}

static uint64_t missing_bytes(const strata__feed *feed, uint32_t layer, uint32_t first,
                              uint32_t end)
{
    const strata__cache *cache = &feed->session->cache;
    uint64_t missing = 0;
    for (uint32_t e = first; e < end; ++e)
        missing += cache->places[strata__cache_index(cache, layer, e)] == NULL;
    return missing * feed->session->layout->layers[layer].slot_bytes;
}

void strata__feed_table_build(strata__feed *feed)
{
    const strata_session *session = feed->session;
    uint32_t experts = session->geometry->experts;
    uint64_t cursor = 0;
    feed->piece_count = 0;
    for (uint32_t l = 0; l < session->geometry->layers; ++l) {
        uint32_t group = strata__feed_group(session, l);
        feed->first_piece[l] = feed->piece_count;
        for (uint32_t first = 0; group && first < experts; first += group) {
            strata__feed_piece *piece = &feed->pieces[feed->piece_count++];
            memset(piece, 0, sizeof *piece);
            piece->layer = l;
            piece->first = first;
            piece->end = experts - first < group ? experts : first + group;
            piece->ring_bytes = missing_bytes(feed, l, first, piece->end);
            if (piece->ring_bytes)
                piece->ring_offset =
                    strata__ring_place(feed->ring.bytes, piece->ring_bytes, &cursor);
        }
    }
    feed->first_piece[session->geometry->layers] = feed->piece_count;
}

void strata__feed_table_write(const strata__feed *feed, const void **tables)
{
    const strata_session *session = feed->session;
    uint32_t experts = session->geometry->experts;
    for (uint32_t i = 0; i < feed->piece_count; ++i) {
        const strata__feed_piece *piece = &feed->pieces[i];
        const strata__layout_place *place = &session->layout->layers[piece->layer];
        if (piece->first == 0 && i)
            tables += 3ull * experts;
        for (uint32_t e = piece->first; e < piece->end; ++e) {
            const uint8_t *blob = strata__feed_address(feed, piece, e);
            tables[e] = blob;
            tables[experts + e] = blob + place->up_offset;
            tables[2ull * experts + e] = blob + place->down_offset;
        }
    }
}
