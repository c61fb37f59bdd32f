/* SPDX-License-Identifier: MIT */
#include "session/decode_experts.h"

#include <string.h>

#include "base/error.h"
#include "session/blob.h"
#include "session/state.h"
#include "session/step.h"

enum { GATE, UP, DOWN, PROJECTIONS };

strata_status strata__decode_experts_init(strata_session *session)
{
    strata__decode_experts *x = &session->decode.experts;
    const strata__layout_work *work = &session->layout->decode;
    const strata__layout_buffer *ring = strata__layout_find_work(work, STRATA__BUFFER_RING);
    uint32_t layers = session->geometry->layers, count = 0;
    if (!strata__has_cache(session))
        return STRATA_OK;
    if (!ring && session->experts.source == STRATA__SOURCE_STREAMED)
        return strata__fail(STRATA_ERR_INTERNAL, "the plan streams experts and decodes without a "
                                                 "ring");
    x->row = strata__calloc(&session->context->allocator, layers, sizeof *x->row);
    x->alone = strata__calloc(&session->context->allocator, session->cache.count, 1);
    x->host = strata__calloc(&session->context->allocator, session->cache.count, sizeof *x->host);
    if (!x->row || !x->alone || !x->host)
        return strata__fail_memory(session->cache.count * sizeof *x->host,
                                   "the experts of decoding");
    for (uint32_t l = 0; l < layers; ++l) {
        x->row[l] = count;
        count += session->layers[l].ffn == STRATA__FFN_EXPERTS;
    }
    x->table =
        strata__host_buffer(work, session->decode.host.region.base, STRATA__BUFFER_HOST_POINTERS);
    if (ring) {
        x->ring = session->memory.base + ring->offset;
        x->ring_bytes = ring->bytes;
    }
    x->locked_bytes = UINT64_MAX;
    x->is_stale = true;
    return STRATA_OK;
}

void strata__decode_experts_finish(strata_session *session)
{
    strata__decode_experts *x = &session->decode.experts;
    strata__free(&session->context->allocator, x->row, session->geometry->layers * sizeof *x->row);
    strata__free(&session->context->allocator, x->alone, session->cache.count);
    strata__free(&session->context->allocator, x->host, session->cache.count * sizeof *x->host);
    memset(x, 0, sizeof *x);
}

static const void **row_of(const strata_session *session, uint32_t layer)
{
    const strata__decode_experts *x = &session->decode.experts;
    return x->table + (uint64_t)x->row[layer] * PROJECTIONS * session->geometry->experts;
}

static void write_entry(strata_session *session, uint32_t layer, uint32_t expert,
                        const strata_expert_blob *blob)
{
    const void **row = row_of(session, layer);
    uint64_t experts = session->geometry->experts;
    row[GATE * experts + expert] = blob->gate;
    row[UP * experts + expert] = blob->up;
    row[DOWN * experts + expert] = blob->down;
}

void strata__decode_experts_set(strata_session *session, uint32_t layer, uint32_t expert)
{
    strata__decode_experts *x = &session->decode.experts;
    const strata__cache *cache = &session->cache;
    uint64_t at = strata__cache_index(cache, layer, expert);
    const void **row = row_of(session, layer);
    strata_expert_blob blob = x->host[at];
    if (cache->states[at] == STRATA__BLOB_PRESENT)
        blob = strata__blob_in_slot(session, layer, cache->places[at]);
    x->absent += !blob.gate;
    x->absent -= !row[expert];
    write_entry(session, layer, expert, &blob);
    if (x->first_dirty == x->end_dirty)
        x->first_dirty = x->end_dirty = x->row[layer];
    if (x->row[layer] < x->first_dirty)
        x->first_dirty = x->row[layer];
    if (x->row[layer] >= x->end_dirty)
        x->end_dirty = x->row[layer] + 1;
}

bool strata__decode_experts_is_fetched(const strata_session *session, uint32_t layer,
                                       uint32_t expert)
{
    const strata__decode_experts *x = &session->decode.experts;
    const uint8_t *at = row_of(session, layer)[expert];
    uint64_t index = strata__cache_index(&session->cache, layer, expert);
    if (session->cache.states[index] == STRATA__BLOB_PRESENT)
        return false;
    return session->experts.expert_fn || (at >= x->ring && at < x->ring + x->ring_bytes);
}

void strata__decode_experts_forget(strata_session *session, uint32_t layer, uint32_t expert)
{
    const strata_expert_blob none = {0};
    write_entry(session, layer, expert, &none);
}

static uint64_t locked_bytes(const strata_session *session)
{
    const strata__host_tier *tier = session->tier;
    return tier ? atomic_load(&tier->pinned_bytes) + atomic_load(&tier->refused_bytes) : 0;
}

/* Whether no more memory will be page-locked. */
static bool is_locking_over(const strata_session *session)
{
    const strata__host_tier *tier = session->tier;
    return tier && atomic_load(&tier->pinned_bytes) + atomic_load(&tier->refused_bytes) >=
                       atomic_load(&tier->wanted_bytes);
}

/* Where experts can be read in host memory, by what is page-locked now. */
static void find_host(strata_session *session)
{
    strata__decode_experts *x = &session->decode.experts;
    uint32_t experts = session->geometry->experts;
    bool is_over = is_locking_over(session);
    for (uint64_t i = 0; i < session->cache.count; ++i) {
        x->host[i] = (strata_expert_blob){0};
        if (session->layers[i / experts].ffn == STRATA__FFN_EXPERTS && !session->experts.expert_fn)
            x->alone[i] = !strata__blob_readable(session, (uint32_t)(i / experts),
                                                 (uint32_t)(i % experts), &x->host[i]) &&
                          is_over;
    }
}

static void rebuild(strata_session *session)
{
    strata__decode_experts *x = &session->decode.experts;
    const strata__layout_buffer *host =
        strata__layout_find_work_host(&session->layout->decode, STRATA__BUFFER_HOST_POINTERS);
    memset(x->table, 0, host->bytes);
    x->absent = 0;
    for (uint32_t l = 0; l < session->geometry->layers; ++l)
        if (session->layers[l].ffn == STRATA__FFN_EXPERTS)
            x->absent += session->geometry->experts;
    for (uint32_t l = 0; l < session->geometry->layers; ++l)
        for (uint32_t e = 0; e < session->geometry->experts; ++e)
            if (session->layers[l].ffn == STRATA__FFN_EXPERTS)
                strata__decode_experts_set(session, l, e);
}

void strata__decode_experts_refresh(strata_session *session)
{
    strata__decode_experts *x = &session->decode.experts;
    uint64_t locked = locked_bytes(session);
    if (!x->table ||
        (!x->is_stale && x->generation == session->cache.generation && x->locked_bytes == locked))
        return;
    if (x->locked_bytes != locked)
        find_host(session);
    rebuild(session);
    x->is_stale = false;
    x->generation = session->cache.generation;
    x->locked_bytes = locked;
}

strata_status strata__decode_experts_upload(strata_session *session)
{
    strata__decode_experts *x = &session->decode.experts;
    const strata__layout_buffer *device =
        strata__layout_find_work(&session->layout->decode, STRATA__BUFFER_POINTERS);
    strata_status status;
    uint64_t offset, bytes;
    if (x->first_dirty == x->end_dirty)
        return STRATA_OK;
    offset = x->first_dirty * device->row_bytes;
    bytes = (x->end_dirty - x->first_dirty) * device->row_bytes;
    status = session->device->ops->copy(session->device, session->stream,
                                        session->memory.base + device->offset + offset,
                                        (const uint8_t *)x->table + offset, bytes);
    if (status == STRATA_OK)
        x->first_dirty = x->end_dirty = 0;
    return status;
}

static bool is_routed(const strata__step *step, uint32_t expert)
{
    return step->host_offsets[expert + 1] > step->host_offsets[expert];
}

static uint64_t slots_of(const strata__step *step)
{
    const strata_session *session = step->session;
    return session->decode.experts.ring_bytes /
           session->layout->layers[step->launch.layer].slot_bytes;
}

uint32_t strata__decode_experts_limit(const strata__step *step, uint32_t first)
{
    uint64_t left = slots_of(step);
    const void **row = row_of(step->session, step->launch.layer);
    uint32_t e = first;
    for (; e < step->session->geometry->experts; ++e) {
        if (!is_routed(step, e) || row[e])
            continue;
        if (left-- == 0)
            break;
    }
    return e;
}

/* Into a slot of the ring. */
static strata_status fetch_one(strata__step *step, uint32_t expert, uint8_t *slot)
{
    strata_session *session = step->session;
    uint32_t layer = step->launch.layer;
    strata_expert_blob blob = {0};
    strata_status status = STRATA_OK;
    if (session->experts.expert_fn)
        status = strata__experts_ask(session, layer, expert, &blob);
    if (status == STRATA_OK)
        status = strata__blob_send(session, session->stream, layer, expert, &blob, slot,
                                   &session->cancel);
    if (status == STRATA_OK)
        status = strata__session_check_cancel(session, "the step");
    blob = strata__blob_in_slot(session, layer, slot);
    if (status == STRATA_OK)
        write_entry(session, layer, expert, &blob);
    return status;
}

strata_status strata__decode_experts_fetch(strata__step *step, uint32_t first, uint32_t last)
{
    strata_session *session = step->session;
    const strata__decode_experts *x = &session->decode.experts;
    const void **row = row_of(session, step->launch.layer);
    uint64_t experts = session->geometry->experts, used = 0;
    strata_status status = STRATA_OK;
    for (uint32_t e = first; e <= last && status == STRATA_OK; ++e)
        if (is_routed(step, e) && !row[e])
            status = fetch_one(
                step, e, x->ring + used++ * session->layout->layers[step->launch.layer].slot_bytes);
    for (uint64_t i = 0; i < PROJECTIONS && status == STRATA_OK && used; ++i) {
        uint64_t at = i * experts + first;
        status = session->device->ops->copy(session->device, session->stream, step->pointers + at,
                                            row + at, (last - first + 1) * sizeof *row);
    }
    return status;
}
