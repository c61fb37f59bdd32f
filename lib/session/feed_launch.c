/* SPDX-License-Identifier: MIT */
/* Of the feed: which experts a launch takes. */
#include "session/feed_launch.h"

#include "base/checked.h"
#include "session/state.h"

/* Launches that wait for blobs are a part of the layer at most. */
enum { LAYER_PARTS = 4 };

uint32_t strata__feed_index(const strata__feed *feed, uint32_t expert)
{
    uint32_t first = feed->first_piece[feed->layer];
    return first + expert / (feed->pieces[first].end - feed->pieces[first].first);
}

/* Bytes of a piece's routed experts. */
static uint64_t routed_of(const strata__feed *feed, const strata__feed_piece *piece)
{
    uint64_t routed = 0;
    for (uint32_t e = piece->first; e < piece->end; ++e)
        routed += feed->offsets[e + 1] > feed->offsets[e];
    return routed * feed->session->layout->layers[piece->layer].slot_bytes;
}

/* Bytes of a piece's routed experts that are not in the cache. */
static uint64_t missing_of(const strata__feed *feed, const strata__feed_piece *piece)
{
    uint64_t at = strata__cache_index(&feed->session->cache, piece->layer, 0), missing = 0;
    for (uint32_t e = piece->first; e < piece->end; ++e)
        missing += feed->offsets[e + 1] > feed->offsets[e] &&
                   feed->session->cache.states[at + e] != STRATA__BLOB_PRESENT;
    return missing * feed->session->layout->layers[piece->layer].slot_bytes;
}

bool strata__feed_has_arrived(const strata__feed *feed, const strata__feed_piece *piece)
{
    return piece->state == STRATA__FEED_IN_USE ||
           (piece->state == STRATA__FEED_SENT && !piece->rest &&
            strata__ring_is_ready(&feed->ring, &piece->ring) &&
            strata__ring_is_ready(&feed->ring, &piece->more));
}

/*
 * What is left of the layer is cut into equal launches, of at most launch_bytes and a part of the
 * layer, so that kernels begin before the whole layer is there.
 */
static uint64_t even_launch(const strata__feed *feed, uint32_t index, uint32_t end)
{
    uint64_t slot = feed->session->layout->layers[feed->layer].slot_bytes;
    uint64_t most = slot * strata__divide_up_u64(feed->session->geometry->experts, LAYER_PARTS);
    uint64_t left = 0, launches;
    if (most > feed->launch_bytes)
        most = feed->launch_bytes;
    for (; index < end; ++index)
        left += missing_of(feed, &feed->pieces[index]);
    launches = strata__divide_up_u64(left, most);
    return launches ? strata__divide_up_u64(left, launches) : 0;
}

uint32_t strata__feed_limit(const strata__feed *feed, uint32_t first)
{
    uint32_t index = strata__feed_index(feed, first), end = feed->first_piece[feed->layer + 1];
    uint64_t goal = even_launch(feed, index, end), ring = 0, missing = 0, all = 0;
    for (uint32_t from = index; index < end; ++index) {
        const strata__feed_piece *piece = &feed->pieces[index];
        uint64_t wanted = missing_of(feed, piece);
        ring += piece->ring_bytes;
        if (index > from && ring > feed->launch_bytes)
            break;
        /* Worth waiting for, unless there is a launch's worth without it. */
        if (index > from && wanted && !strata__feed_has_arrived(feed, piece) &&
            (missing >= goal || all >= feed->launch_bytes))
            break;
        missing += wanted;
        all += routed_of(feed, piece);
    }
    return feed->pieces[index - 1].end;
}
