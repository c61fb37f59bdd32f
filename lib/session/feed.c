/* SPDX-License-Identifier: MIT */
#include "session/feed.h"

#include <string.h>

#include "base/error.h"
#include "session/feed_launch.h"
#include "session/feed_table.h"
#include "session/state.h"

/* Slots of the ring for pieces whose blobs all go to the cache. */
enum { CACHE_SLOTS = 64 };

static const uint64_t least_window_bytes = 8u << 20, most_window_bytes = 24u << 20;

/* Of what is sent, one part in so many may be sent in vain. */
enum { VAIN_PART = 25 };

/* Pieces that can have bytes of the ring at a time, and those that have none. */
static uint32_t ring_slots(const strata_session *session, uint64_t ring_bytes)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t l = 0; l < session->geometry->layers; ++l) {
        uint64_t slot = session->layout->layers[l].slot_bytes;
        if (session->layers[l].ffn == STRATA__FFN_EXPERTS && slot < least)
            least = slot;
    }
    return (uint32_t)(ring_bytes / least) + CACHE_SLOTS;
}

static strata_status make_arrays(strata__feed *feed)
{
    const strata_session *session = feed->session;
    const strata__allocator *allocator = &session->context->allocator;
    uint64_t layers = session->geometry->layers;
    feed->piece_capacity = strata__feed_table_capacity(session);
    feed->list.capacity = strata__feed_list_capacity(session);
    feed->pieces = strata__calloc(allocator, feed->piece_capacity, sizeof *feed->pieces);
    feed->first_piece = strata__calloc(allocator, layers + 1, sizeof *feed->first_piece);
    feed->sent = strata__calloc(allocator, session->cache.count, sizeof *feed->sent);
    feed->list.copies = strata__calloc(allocator, feed->list.capacity, sizeof *feed->list.copies);
    feed->many.targets = strata__calloc(allocator, feed->list.capacity, sizeof *feed->many.targets);
    feed->many.sources = strata__calloc(allocator, feed->list.capacity, sizeof *feed->many.sources);
    feed->many.bytes = strata__calloc(allocator, feed->list.capacity, sizeof *feed->many.bytes);
    if (!feed->pieces || !feed->first_piece || !feed->sent || !feed->list.copies ||
        !feed->many.targets || !feed->many.sources || !feed->many.bytes)
        return strata__fail_memory(feed->piece_capacity * sizeof *feed->pieces,
                                   "the pieces of streamed experts");
    return STRATA_OK;
}

strata_status strata__feed_init(strata__feed *feed, strata_prefill *prefill)
{
    strata_session *session = prefill->session;
    const strata__layout *layout = session->layout;
    const strata__layout_buffer *ring = strata__layout_find_ring(layout);
    const strata__layout_buffer *staging =
        strata__layout_find_host(layout, STRATA__BUFFER_HOST_STAGING);
    strata_status status;
    memset(feed, 0, sizeof *feed);
    feed->session = session;
    feed->timeline = &prefill->timeline;
    feed->window_bytes = 3 * layout->group_bytes;
    if (feed->window_bytes < least_window_bytes)
        feed->window_bytes = least_window_bytes;
    if (feed->window_bytes > most_window_bytes)
        feed->window_bytes = most_window_bytes;
    status = make_arrays(feed);
    if (status != STRATA_OK || !ring)
        return status;
    feed->ring_base =
        (layout->ring_bytes ? prefill->memory.base : session->memory.base) + ring->offset;
    feed->launch_bytes = ring->bytes / 2;
    status = strata__ring_init(&feed->ring, session->device, session->copies, session->stream,
                               ring->bytes, ring_slots(session, ring->bytes));
    if (status == STRATA_OK && staging)
        status = strata__staging_init(&feed->staging, session->device,
                                      prefill->host.region.base + staging->offset, staging->bytes,
                                      feed->list.capacity);
    return status;
}

void strata__feed_finish(strata__feed *feed)
{
    const strata__allocator *allocator;
    if (!feed->session)
        return;
    allocator = &feed->session->context->allocator;
    strata__staging_finish(&feed->staging);
    strata__ring_finish(&feed->ring);
    strata__free(allocator, feed->pieces, feed->piece_capacity * sizeof *feed->pieces);
    strata__free(allocator, feed->first_piece,
                 (feed->session->geometry->layers + 1ull) * sizeof *feed->first_piece);
    strata__free(allocator, feed->sent, feed->session->cache.count * sizeof *feed->sent);
    strata__free(allocator, feed->list.copies, feed->list.capacity * sizeof *feed->list.copies);
    strata__free(allocator, feed->many.targets, feed->list.capacity * sizeof *feed->many.targets);
    strata__free(allocator, feed->many.sources, feed->list.capacity * sizeof *feed->many.sources);
    strata__free(allocator, feed->many.bytes, feed->list.capacity * sizeof *feed->many.bytes);
    memset(feed, 0, sizeof *feed);
}

bool strata__feed_begin(strata__feed *feed, uint64_t passes, const void **tables)
{
    const strata__cache *cache = &feed->session->cache;
    bool changed = feed->generation != cache->generation;
    if (changed) {
        strata__feed_table_build(feed);
        strata__feed_table_write(feed, tables);
        feed->generation = cache->generation;
    }
    feed->passes = passes;
    /* What is in vain of a prompt is judged by that prompt, and the next one by the last few. */
    feed->sent_bytes = feed->vain_bytes = 0;
    feed->seen_bytes /= 2;
    feed->unrouted_bytes /= 2;
    return changed;
}

void strata__feed_chunk(strata__feed *feed, uint64_t pass, strata__feed_way way,
                        strata__feed_way next)
{
    feed->pass = pass;
    feed->way = way;
    feed->next = next;
    feed->layer = 0;
    feed->offsets = NULL;
}

static strata__feed_piece *piece_of(const strata__feed *feed, uint64_t number)
{
    return &feed->pieces[number % feed->piece_count];
}

/* The number of a piece of the present chunk. */
static uint64_t number_of(const strata__feed *feed, uint32_t index)
{
    return feed->pass * feed->piece_count + index;
}

/* The routing that says what of a piece is wanted; NULL: not known yet. */
static const uint32_t *routing_of(const strata__feed *feed, uint64_t number)
{
    bool is_present =
        number / feed->piece_count == feed->pass && piece_of(feed, number)->layer == feed->layer;
    return is_present ? feed->offsets : NULL;
}

static strata__feed_way way_of(const strata__feed *feed, uint64_t number)
{
    return number / feed->piece_count == feed->pass ? feed->way : feed->next;
}

/* What routing tells of the layer's blobs: found, sent in vain, or left out. */
static void count_layer(strata__feed *feed, uint32_t layer, const uint32_t *offsets)
{
    strata_session *session = feed->session;
    const strata__layer *l = &session->layers[layer];
    strata__counters *c = &session->counters;
    uint32_t experts = session->geometry->experts;
    uint64_t at = strata__cache_index(&session->cache, layer, 0), hit = 0, vain = 0, left_out = 0;
    uint64_t filled = 0, ahead = 0;
    uint64_t blob = (l->expert_gate.bytes + l->expert_up.bytes + l->expert_down.bytes) / experts;
    for (uint32_t e = 0; e < experts; ++e, ++at) {
        uint32_t rows = offsets[e + 1] - offsets[e];
        session->cache.uses[at] += rows;
        ahead += feed->sent[at] == STRATA__SENT_TO_RING;
        if (rows) {
            hit += session->cache.states[at] == STRATA__BLOB_PRESENT;
        } else if (feed->sent[at] != STRATA__SENT_NOT) {
            vain += feed->sent[at] == STRATA__SENT_TO_RING;
            filled += feed->sent[at] == STRATA__SENT_TO_CACHE;
        } else {
            left_out += session->cache.states[at] == STRATA__BLOB_ABSENT;
        }
    }
    strata__counter_add(&c->blob_hit_bytes, hit * blob);
    strata__counter_add(&c->blob_vain_bytes, vain * blob);
    strata__counter_add(&c->blob_dropped_bytes, left_out * blob);
    strata__counter_add(&c->blob_filled_bytes, filled * blob);
    ahead *= blob;
    feed->seen_bytes += ahead;
    feed->unrouted_bytes += vain * blob;
    feed->vain_bytes += vain * blob;
    feed->unseen_bytes -= feed->unseen_bytes < ahead ? feed->unseen_bytes : ahead;
}

/* Whether a piece that was sent lacks routed blobs. */
static bool has_rest(const strata__feed *feed, const strata__feed_piece *piece)
{
    uint64_t at = strata__cache_index(&feed->session->cache, piece->layer, 0);
    for (uint32_t e = piece->first; piece->state == STRATA__FEED_SENT && e < piece->end; ++e)
        if (feed->offsets[e + 1] > feed->offsets[e] && feed->sent[at + e] == STRATA__SENT_NOT &&
            feed->session->cache.states[at + e] == STRATA__BLOB_ABSENT)
            return true;
    return false;
}

void strata__feed_routed(strata__feed *feed, uint32_t layer, const uint32_t *offsets)
{
    feed->layer = layer;
    feed->offsets = offsets;
    feed->rests = 0;
    count_layer(feed, layer, offsets);
    for (uint32_t i = feed->first_piece[layer]; i < feed->first_piece[layer + 1]; ++i) {
        feed->pieces[i].rest = has_rest(feed, &feed->pieces[i]);
        feed->rests += feed->pieces[i].rest;
    }
}

/* A claim that may have to wait for blobs on their way to the cache. */
static strata_status claim(strata__feed *feed, const strata__feed_piece *piece,
                           strata__ring_piece *slot, uint64_t bytes, bool needed)
{
    uint64_t offset = bytes ? piece->ring_offset : 0;
    strata_status status = strata__ring_claim(&feed->ring, offset, bytes, slot);
    if (status != STRATA_OK || slot->tenant || !needed)
        return status;
    status = strata__ring_make_room(&feed->ring);
    if (status == STRATA_OK)
        status = strata__ring_claim(&feed->ring, offset, bytes, slot);
    if (status == STRATA_OK && !slot->tenant)
        status = strata__fail(STRATA_ERR_INTERNAL,
                              "layer %u, experts from %u: the ring has no room for a piece",
                              piece->layer, piece->first);
    return status;
}

/* Rows from page-locked memory are collected, others are copied at once. */
static strata_status enqueue_rows(strata__feed *feed, const strata__blob_copy *c,
                                  const uint8_t *source, uint64_t stride)
{
    strata__device *device = feed->session->device;
    strata__copies *many = &feed->many;
    strata_status status = STRATA_OK;
    for (uint64_t row = 0; row < c->rows && status == STRATA_OK; ++row) {
        uint8_t *target = c->target + row * c->target_stride;
        if (!c->locked) {
            status = device->ops->copy(device, feed->session->copies, target, source + row * stride,
                                       c->row_bytes);
            continue;
        }
        if (many->count == feed->list.capacity)
            return strata__fail(STRATA_ERR_INTERNAL, "a piece takes more than %llu copies",
                                (unsigned long long)feed->list.capacity);
        many->targets[many->count] = target;
        many->sources[many->count] = source + row * stride;
        many->bytes[many->count++] = c->row_bytes;
    }
    return status;
}

static strata_status enqueue(strata__feed *feed, const strata__feed_piece *piece,
                             const strata__copy_list *list)
{
    strata__device *device = feed->session->device;
    strata_status status = STRATA_OK;
    feed->many.count = 0;
    for (uint64_t i = 0; i < list->count && status == STRATA_OK; ++i) {
        const strata__blob_copy *c = &list->copies[i];
        if (c->staged)
            status = enqueue_rows(feed, c, piece->buffer->memory + c->staged_offset, c->row_bytes);
        else
            status = enqueue_rows(feed, c, c->source, c->source_stride);
    }
    if (status == STRATA_OK && feed->many.count)
        status = device->ops->copy_many(device, feed->session->copies, &feed->many);
    return status;
}

static bool is_in_ring(const strata__feed *feed, const strata__copy_list *list)
{
    for (uint64_t i = 0; i < list->count; ++i)
        if (list->copies[i].target >= feed->ring_base &&
            list->copies[i].target < feed->ring_base + feed->ring.bytes)
            return true;
    return false;
}

/*
 * The piece's bytes of the ring where some of the list goes there, or may yet: unless they were
 * its own, a later piece could have them when what is routed is to follow.
 */
static uint64_t bytes_to_claim(const strata__feed *feed, const strata__feed_piece *piece,
                               const strata__copy_list *list)
{
    if (piece->rest)
        return 0;
    return !routing_of(feed, feed->sent_pieces) || is_in_ring(feed, list) ? piece->ring_bytes : 0;
}

/* Enqueues a piece's copies. *out_sent false: its place in the ring is still to be read. */
static strata_status send_list(strata__feed *feed, strata__feed_piece *piece,
                               const strata__copy_list *list, bool needed, bool *out_sent)
{
    strata__ring_piece *slot = piece->rest ? &piece->more : &piece->ring;
    uint64_t bytes = bytes_to_claim(feed, piece, list);
    bool claims = list->count || bytes;
    strata_status status = STRATA_OK;
    if (claims)
        status = claim(feed, piece, slot, bytes, needed);
    if (status != STRATA_OK || (claims && !slot->tenant))
        return status;
    status = enqueue(feed, piece, list);
    if (status == STRATA_OK && piece->buffer)
        status = strata__staging_emptying(&feed->staging, piece->buffer, feed->session->copies);
    if (status == STRATA_OK && claims)
        status = strata__ring_copied(&feed->ring, slot, list->bytes);
    if (status != STRATA_OK)
        return status;
    strata__feed_mark(feed, piece, STRATA__BLOB_COPYING);
    feed->sent_bytes += list->bytes;
    strata__counter_add(&feed->session->counters.blob_sent_bytes, list->bytes);
    strata__counter_add(&feed->session->counters.blob_slow_bytes, list->slow_bytes);
    piece->state = STRATA__FEED_SENT;
    piece->buffer = NULL;
    *out_sent = true;
    return STRATA_OK;
}

static strata_status wait_for_source(strata__feed *feed, const void *source)
{
    strata_session *session = feed->session;
    strata__tier_wait(session->tier, source, &session->cancel);
    return strata__session_check_cancel(session, "the prompt");
}

/* Lists what a piece takes; *out_listed false: some of it is still to be page-locked. */
static strata_status list_piece(strata__feed *feed, uint64_t number, bool needed, bool *out_listed)
{
    const uint32_t *offsets = routing_of(feed, number);
    const void *pending = NULL;
    strata_status status;
    do {
        status = strata__feed_list(feed, piece_of(feed, number), offsets, way_of(feed, number).rows,
                                   &feed->list, &pending);
        if (status == STRATA_OK && pending && needed)
            status = wait_for_source(feed, pending);
    } while (status == STRATA_OK && pending && needed);
    *out_listed = status == STRATA_OK && !pending;
    return status;
}

/* Moves the list to a staging buffer, if there is one free, and has it filled. */
static strata_status stage(strata__feed *feed, strata__feed_piece *piece, bool needed)
{
    strata__staging_buffer *buffer;
    strata_status status = strata__staging_take(&feed->staging, needed, &buffer);
    if (status != STRATA_OK || !buffer)
        return status;
    memcpy(buffer->list.copies, feed->list.copies, feed->list.count * sizeof *feed->list.copies);
    buffer->list.count = feed->list.count;
    buffer->list.bytes = feed->list.bytes;
    buffer->list.staged_bytes = feed->list.staged_bytes;
    buffer->list.slow_bytes = feed->list.slow_bytes;
    piece->buffer = buffer;
    piece->state = STRATA__FEED_STAGED;
    strata__staging_post(&feed->staging, buffer);
    return STRATA_OK;
}

/*
 * Sends the next piece. Unless it is needed now, *out_sent is false when something of it is not
 * there yet: page-locked memory, a staging buffer, or room in the ring.
 */
static strata_status send_next(strata__feed *feed, bool needed, bool *out_sent)
{
    strata__feed_piece *piece = piece_of(feed, feed->sent_pieces);
    uint64_t before = feed->sent_bytes;
    strata_status status = STRATA_OK;
    bool listed = true;
    *out_sent = false;
    if (piece->state == STRATA__FEED_WAITING) {
        status = list_piece(feed, feed->sent_pieces, needed, &listed);
        if (status == STRATA_OK && listed && feed->list.staged_bytes) {
            status = stage(feed, piece, needed);
            listed = piece->state == STRATA__FEED_STAGED;
        }
    }
    if (status != STRATA_OK || !listed) {
        if (piece->state == STRATA__FEED_WAITING)
            strata__feed_forget(feed, piece);
        return status;
    }
    if (piece->buffer) {
        if (strata__staging_is_full(&feed->staging, piece->buffer, needed))
            status = send_list(feed, piece, &piece->buffer->list, needed, out_sent);
    } else {
        status = send_list(feed, piece, &feed->list, needed, out_sent);
    }
    if (*out_sent && !routing_of(feed, feed->sent_pieces))
        feed->unseen_bytes += feed->sent_bytes - before;
    if (*out_sent)
        feed->sent_pieces++;
    else if (piece->state == STRATA__FEED_WAITING)
        strata__feed_forget(feed, piece);
    return status;
}

/*
 * The caller's memory for an expert may change when it is asked for again, which must not be while
 * a copy from it is under way: of a single layer with experts the next chunk is not prepared.
 */
static bool may_ask_again(const strata__feed *feed)
{
    return !feed->session->experts.expert_fn ||
           feed->pieces[0].layer != feed->pieces[feed->piece_count - 1].layer;
}

/* Whether a piece exists, and may be brought before its layer is routed. */
static bool may_precede(const strata__feed *feed, uint64_t number)
{
    uint64_t pass = number / feed->piece_count;
    if (pass != feed->pass && !may_ask_again(feed))
        return false;
    if (pass >= feed->passes || number >= feed->done_pieces + feed->piece_count)
        return false;
    return routing_of(feed, number) || !way_of(feed, number).fetch;
}

/* Were as much of what is not seen yet in vain as of what has been: is that little of it all? */
static bool is_worth_sending(const strata__feed *feed, const strata__feed_piece *piece)
{
    double vain = (double)feed->vain_bytes;
    if (!piece->ring_bytes || !feed->seen_bytes)
        return true;
    vain += (double)feed->unrouted_bytes / (double)feed->seen_bytes * (double)feed->unseen_bytes;
    return vain * VAIN_PART <= (double)feed->sent_bytes;
}

static bool may_send(const strata__feed *feed)
{
    uint64_t number = feed->sent_pieces;
    if (!may_precede(feed, number))
        return false;
    return routing_of(feed, number) || (feed->ring.outstanding_bytes < feed->window_bytes &&
                                        is_worth_sending(feed, piece_of(feed, number)));
}

/* Has buffers filled for the pieces that come next. */
static strata_status stage_ahead(strata__feed *feed)
{
    strata_status status = STRATA_OK;
    bool listed = true;
    if (!feed->staging.buffer_bytes)
        return STRATA_OK;
    if (feed->staged_pieces < feed->sent_pieces)
        feed->staged_pieces = feed->sent_pieces;
    while (status == STRATA_OK && listed && may_precede(feed, feed->staged_pieces) &&
           feed->staged_pieces < feed->sent_pieces + STRATA__STAGING_BUFFERS) {
        strata__feed_piece *piece = piece_of(feed, feed->staged_pieces);
        if (piece->state == STRATA__FEED_WAITING) {
            status = list_piece(feed, feed->staged_pieces, false, &listed);
            if (status == STRATA_OK && listed && feed->list.staged_bytes) {
                status = stage(feed, piece, false);
                listed = piece->state == STRATA__FEED_STAGED;
            }
            if (piece->state == STRATA__FEED_WAITING)
                strata__feed_forget(feed, piece);
        }
        feed->staged_pieces += listed;
    }
    return status;
}

/* Sends what of a piece is routed and was left out before that was known. */
static strata_status send_rest(strata__feed *feed, uint32_t index, bool needed, bool *out_sent)
{
    strata__feed_piece *piece = &feed->pieces[index];
    bool listed;
    strata_status status = list_piece(feed, number_of(feed, index), needed, &listed);
    *out_sent = false;
    if (status == STRATA_OK && listed)
        status = send_list(feed, piece, &feed->list, needed, out_sent);
    if (*out_sent) {
        piece->rest = false;
        feed->rests--;
    }
    return status;
}

static strata_status send_rests(strata__feed *feed)
{
    strata_status status = STRATA_OK;
    bool sent = true;
    for (uint32_t i = feed->first_piece[feed->layer];
         feed->rests && status == STRATA_OK && sent && i < feed->first_piece[feed->layer + 1]; ++i)
        if (feed->pieces[i].rest)
            status = send_rest(feed, i, false, &sent);
    return status;
}

strata_status strata__feed_advance(strata__feed *feed)
{
    strata_status status = strata__ring_poll(&feed->ring);
    bool sent = true;
    if (status == STRATA_OK && feed->rests)
        status = send_rests(feed);
    while (status == STRATA_OK && sent && may_send(feed))
        status = send_next(feed, false, &sent);
    return status == STRATA_OK ? stage_ahead(feed) : status;
}

static strata_status cannot_send(const strata__feed *feed)
{
    return strata__fail(STRATA_ERR_INTERNAL, "layer %u: experts cannot be sent", feed->layer);
}

static strata_status send_up_to(strata__feed *feed, uint64_t number)
{
    strata_status status = STRATA_OK;
    bool sent = true;
    while (status == STRATA_OK && sent && feed->sent_pieces <= number)
        status = send_next(feed, true, &sent);
    if (status == STRATA_OK && !sent)
        status = cannot_send(feed);
    return status;
}

/* Kernels wait for the piece; its blobs are in the cache for all kernels from here on. */
static strata_status use_piece(strata__feed *feed, strata__feed_piece *piece)
{
    strata_status status = strata__ring_use(&feed->ring, &piece->ring);
    if (status == STRATA_OK)
        status = strata__ring_use(&feed->ring, &piece->more);
    if (status == STRATA_OK) {
        strata__feed_mark(feed, piece, STRATA__BLOB_PRESENT);
        piece->state = STRATA__FEED_IN_USE;
    }
    return status;
}

static void forget_piece(strata__feed *feed, strata__feed_piece *piece)
{
    strata__feed_forget(feed, piece);
    piece->state = STRATA__FEED_WAITING;
    piece->ring.tenant = piece->more.tenant = 0;
    piece->rest = false;
}

/* The piece that is next to be done: nothing will read it any more. */
static strata_status release_piece(strata__feed *feed, strata__feed_piece *piece)
{
    strata_status status = STRATA_OK;
    if (piece->state == STRATA__FEED_SENT) {
        bool cached = false;
        for (uint32_t e = piece->first; e < piece->end; ++e)
            cached |= feed->sent[strata__cache_index(&feed->session->cache, piece->layer, e)] ==
                      STRATA__SENT_TO_CACHE;
        /* Blobs that nothing waited for are in the cache from here on. */
        if (cached)
            status = use_piece(feed, piece);
    }
    if (status == STRATA_OK)
        status = strata__ring_release(&feed->ring, &piece->ring);
    if (status == STRATA_OK)
        status = strata__ring_release(&feed->ring, &piece->more);
    forget_piece(feed, piece);
    feed->done_pieces++;
    return status;
}

strata_status strata__feed_release(strata__feed *feed, uint32_t end)
{
    strata_status status = STRATA_OK;
    for (uint32_t i = feed->first_piece[feed->layer];
         i < feed->first_piece[feed->layer + 1] && status == STRATA_OK; ++i) {
        strata__feed_piece *piece = &feed->pieces[i];
        if (piece->end > end)
            break;
        if (number_of(feed, i) < feed->done_pieces)
            continue;
        status = send_up_to(feed, number_of(feed, i));
        if (status == STRATA_OK)
            status = release_piece(feed, piece);
    }
    return status;
}

/* Kernels may have to wait for pieces [first, last] of the present chunk, or the host for them. */
static bool is_on_the_way(const strata__feed *feed, uint32_t first, uint32_t last)
{
    if (feed->sent_pieces <= number_of(feed, last))
        return true;
    for (uint32_t i = first; i <= last; ++i)
        if (feed->pieces[i].state == STRATA__FEED_SENT &&
            !strata__feed_has_arrived(feed, &feed->pieces[i]))
            return true;
    return false;
}

static strata_status use_pieces(strata__feed *feed, uint32_t first, uint32_t last)
{
    strata_status status = STRATA_OK;
    bool sent = true;
    for (uint32_t i = first; i <= last && status == STRATA_OK && sent; ++i)
        if (feed->pieces[i].rest)
            status = send_rest(feed, i, true, &sent);
    if (status == STRATA_OK && !sent)
        status = cannot_send(feed);
    if (status == STRATA_OK)
        status = send_up_to(feed, number_of(feed, last));
    for (uint32_t i = first; i <= last && status == STRATA_OK; ++i)
        if (feed->pieces[i].state == STRATA__FEED_SENT)
            status = use_piece(feed, &feed->pieces[i]);
    return status;
}

strata_status strata__feed_acquire(strata__feed *feed, uint32_t first, uint32_t last)
{
    uint32_t from = strata__feed_index(feed, first), to = strata__feed_index(feed, last);
    /* Launches ascend: what lies before is not read any more, and may be in the ring's way. */
    strata_status status = strata__feed_release(feed, feed->pieces[from].first);
    bool waits = is_on_the_way(feed, from, to);
    if (status == STRATA_OK && waits)
        status = strata__timeline_begin(feed->timeline, STRATA__SPAN_BLOBS);
    if (status == STRATA_OK)
        status = use_pieces(feed, from, to);
    if (status == STRATA_OK && waits)
        status = strata__timeline_end(feed->timeline);
    return status;
}

static void count_link(strata__feed *feed)
{
    strata__counters *c = &feed->session->counters;
    strata__counter_add(&c->link_bytes, feed->ring.measured_bytes);
    strata__counter_add(&c->link_ns, feed->ring.measured_ns);
    feed->ring.measured_bytes = feed->ring.measured_ns = 0;
}

void strata__feed_end(strata__feed *feed, bool is_copied)
{
    strata__cache *cache = &feed->session->cache;
    strata__staging_reset(&feed->staging);
    if (strata__ring_poll(&feed->ring) == STRATA_OK)
        count_link(feed);
    strata__ring_reset(&feed->ring);
    for (uint32_t i = 0; i < feed->piece_count; ++i) {
        forget_piece(feed, &feed->pieces[i]);
        feed->pieces[i].buffer = NULL;
    }
    for (uint64_t i = 0; i < cache->count; ++i)
        if (cache->states[i] == STRATA__BLOB_COPYING)
            cache->states[i] = is_copied ? STRATA__BLOB_PRESENT : STRATA__BLOB_ABSENT;
    feed->sent_pieces = feed->staged_pieces = feed->done_pieces = 0;
    feed->passes = feed->unseen_bytes = feed->rests = 0;
    feed->offsets = NULL;
}
