/* SPDX-License-Identifier: MIT */
#include "session/feed_table.h"

#include <string.h>

#include "base/error.h"
#include "session/state.h"

enum { GATE, UP, DOWN, PROJECTIONS };

enum { KNOWN_ROWS = 8 };

static uint64_t index_of(const strata__feed *feed, uint32_t layer, uint32_t expert)
{
    return strata__cache_index(&feed->session->cache, layer, expert);
}

uint8_t *strata__feed_address(const strata__feed *feed, const strata__feed_piece *piece,
                              uint32_t expert)
{
    uint8_t *const *places = feed->session->cache.places + index_of(feed, piece->layer, 0);
    uint64_t slot = feed->session->layout->layers[piece->layer].slot_bytes, before = 0;
    if (places[expert])
        return places[expert];
    for (uint32_t e = piece->first; e < expert; ++e)
        before += places[e] == NULL;
    return feed->ring_base + piece->ring_offset + before * slot;
}

uint64_t strata__feed_list_capacity(const strata_session *session)
{
    uint64_t most = 0;
    for (uint32_t l = 0; l < session->geometry->layers; ++l) {
        const strata__layout_place *place = &session->layout->layers[l];
        uint64_t parts = 3 + place->slot_bytes / strata__tier_piece_bytes(session->tier);
        uint64_t copies = strata__feed_group(session, l) * PROJECTIONS * parts;
        if (copies > most)
            most = copies;
    }
    return most;
}

static strata_status add(const strata__feed *feed, strata__copy_list *list, strata__blob_copy copy,
                         bool locked)
{
    uint64_t bytes = copy.row_bytes * copy.rows;
    if (list->count == list->capacity)
        return strata__fail(STRATA_ERR_INTERNAL, "a piece takes more than %llu copies",
                            (unsigned long long)list->capacity);
    list->slow_bytes += locked ? 0 : bytes;
    copy.staged = !locked && feed->staging.buffer_bytes;
    copy.locked = locked || copy.staged;
    if (copy.staged) {
        copy.staged_offset = list->staged_bytes;
        list->staged_bytes += bytes;
        if (list->staged_bytes > feed->staging.buffer_bytes)
            return strata__fail(STRATA_ERR_INTERNAL, "a piece is larger than its buffer of %llu",
                                (unsigned long long)feed->staging.buffer_bytes);
    }
    list->copies[list->count++] = copy;
    list->bytes += bytes;
    return STRATA_OK;
}

/* One row that lies in several pieces of the host tier. */
static strata_status add_parts(const strata__feed *feed, strata__copy_list *list,
                               const strata__blob_copy *row, const void **out_pending)
{
    strata_status status = STRATA_OK;
    for (uint64_t done = 0; done < row->row_bytes && status == STRATA_OK;) {
        strata__tier_span span = strata__tier_find(feed->session->tier, row->source + done);
        strata__blob_copy part = *row;
        if (span.state == STRATA__TIER_PENDING) {
            *out_pending = row->source + done;
            return STRATA_OK;
        }
        part.row_bytes = row->row_bytes - done < span.bytes ? row->row_bytes - done : span.bytes;
        part.target += done;
        part.source = span.at;
        part.rows = 1;
        status = add(feed, list, part, span.state == STRATA__TIER_PINNED);
        done += part.row_bytes;
    }
    return status;
}

/* Rows of the pack's memory, cut where page-locking begins and ends. */
static strata_status add_rows(const strata__feed *feed, strata__copy_list *list,
                              strata__blob_copy copy, const void **out_pending)
{
    strata_status status = STRATA_OK;
    while (copy.rows && status == STRATA_OK && !*out_pending) {
        strata__tier_span span = strata__tier_find(feed->session->tier, copy.source);
        strata__blob_copy part = copy;
        part.rows = 1;
        if (span.state == STRATA__TIER_PENDING) {
            *out_pending = copy.source;
        } else if (span.bytes < copy.row_bytes) {
            status = add_parts(feed, list, &part, out_pending);
        } else {
            part.rows += (span.bytes - copy.row_bytes) / copy.source_stride;
            if (part.rows > copy.rows)
                part.rows = copy.rows;
            part.source = span.at;
            status = add(feed, list, part, span.state == STRATA__TIER_PINNED);
        }
        copy.rows -= part.rows;
        copy.target += part.rows * copy.target_stride;
        copy.source += part.rows * copy.source_stride;
    }
    return status;
}

/* Experts [first, first + rows) to `target` and the slots behind it. */
static strata_status add_run(const strata__feed *feed, strata__copy_list *list, uint32_t layer,
                             uint32_t first, uint32_t rows, uint8_t *target,
                             const void **out_pending)
{
    const strata_session *session = feed->session;
    const strata__layer *l = &session->layers[layer];
    const strata__layout_place *place = &session->layout->layers[layer];
    const strata__projection *from[PROJECTIONS] = {&l->expert_gate, &l->expert_up, &l->expert_down};
    const uint64_t offset[PROJECTIONS] = {0, place->up_offset, place->down_offset};
    const void *given[PROJECTIONS] = {NULL};
    strata_status status = STRATA_OK;
    if (session->experts.expert_fn) {
        strata_expert_blob blob;
        status = strata__experts_ask(session, layer, first, &blob);
        given[GATE] = blob.gate;
        given[UP] = blob.up;
        given[DOWN] = blob.down;
    }
    for (int i = 0; i < PROJECTIONS && status == STRATA_OK && !*out_pending; ++i) {
        strata__blob_copy copy = {.target = target + offset[i],
                                  .target_stride = place->slot_bytes,
                                  .source_stride = from[i]->stride_bytes,
                                  .row_bytes = from[i]->bytes / session->geometry->experts,
                                  .rows = rows};
        copy.source =
            given[i] ? given[i] : (const uint8_t *)from[i]->data + first * from[i]->stride_bytes;
        status = given[i] ? add(feed, list, copy, session->experts.locked)
                          : add_rows(feed, list, copy, out_pending);
    }
    return status;
}

/* What decides whether an expert is wanted. */
typedef struct wish {
    const strata__feed *feed;
    uint64_t first; /* index of the layer's first expert */
    const uint32_t *offsets;
    uint64_t rows; /* 0: nothing is known of the experts' use */
    uint64_t uses; /* of all experts of the layer */
} wish;

/*
 * Use is known once there have been so many rows for each expert. What waits in staging buffers is
 * listed long before, and as a whole.
 */
static wish make_wish(const strata__feed *feed, uint32_t layer, const uint32_t *offsets,
                      uint32_t rows)
{
    const strata__cache *cache = &feed->session->cache;
    wish w = {.feed = feed, .first = index_of(feed, layer, 0), .offsets = offsets};
    if (offsets || feed->staging.buffer_bytes)
        return w;
    for (uint32_t e = 0; e < cache->experts; ++e)
        w.uses += cache->uses[w.first + e];
    if (w.uses >= (uint64_t)KNOWN_ROWS * cache->experts)
        w.rows = (uint64_t)rows * feed->session->geometry->top_k;
    return w;
}

/* Unknown routing: wanted is what would be expected to get a row, were use as it was. */
static bool is_wanted(const wish *w, uint32_t expert)
{
    const strata__cache *cache = &w->feed->session->cache;
    uint64_t at = w->first + expert;
    if (cache->states[at] != STRATA__BLOB_ABSENT || w->feed->sent[at] != STRATA__SENT_NOT)
        return false;
    if (w->offsets)
        return w->offsets[expert + 1] > w->offsets[expert];
    return !w->rows || (double)cache->uses[at] * (double)w->rows >= (double)w->uses;
}

static void note(strata__feed *feed, uint64_t at)
{
    uint8_t way = feed->session->cache.places[at] ? STRATA__SENT_TO_CACHE : STRATA__SENT_TO_RING;
    feed->sent[at] = way | STRATA__SENT_NEW;
}

/* Notes of a list that is complete are kept, others forgotten. */
static void settle_notes(strata__feed *feed, const strata__feed_piece *piece, bool keep)
{
    uint64_t at = index_of(feed, piece->layer, 0);
    for (uint32_t e = piece->first; e < piece->end; ++e)
        if (feed->sent[at + e] & STRATA__SENT_NEW)
            feed->sent[at + e] = keep ? feed->sent[at + e] & ~STRATA__SENT_NEW : STRATA__SENT_NOT;
}

void strata__feed_forget(strata__feed *feed, const strata__feed_piece *piece)
{
    memset(feed->sent + index_of(feed, piece->layer, piece->first), STRATA__SENT_NOT,
           piece->end - piece->first);
}

strata_status strata__feed_list(strata__feed *feed, const strata__feed_piece *piece,
                                const uint32_t *offsets, uint32_t rows, strata__copy_list *list,
                                const void **out_pending)
{
    const wish w = make_wish(feed, piece->layer, offsets, rows);
    uint64_t slot = feed->session->layout->layers[piece->layer].slot_bytes;
    bool alone = feed->session->experts.expert_fn != NULL;
    strata_status status = STRATA_OK;
    list->count = list->bytes = list->staged_bytes = list->slow_bytes = 0;
    *out_pending = NULL;
    for (uint32_t e = piece->first; e < piece->end && status == STRATA_OK && !*out_pending;) {
        uint8_t *target = strata__feed_address(feed, piece, e);
        uint32_t run = 0;
        if (!is_wanted(&w, e)) {
            ++e;
            continue;
        }
        do {
            note(feed, w.first + e + run);
            ++run;
        } while (!alone && e + run < piece->end && is_wanted(&w, e + run) &&
                 strata__feed_address(feed, piece, e + run) == target + run * slot);
        status = add_run(feed, list, piece->layer, e, run, target, out_pending);
        e += run;
    }
    settle_notes(feed, piece, status == STRATA_OK && !*out_pending);
    return status;
}

void strata__feed_mark(strata__feed *feed, const strata__feed_piece *piece, uint8_t state)
{
    for (uint32_t e = piece->first; e < piece->end; ++e) {
        uint64_t at = index_of(feed, piece->layer, e);
        if (feed->sent[at] == STRATA__SENT_TO_CACHE)
            feed->session->cache.states[at] = state;
    }
}
