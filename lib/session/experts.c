/* SPDX-License-Identifier: MIT */
#include "session/experts.h"

#include <string.h>

#include "base/error.h"
#include "session/blob.h"
#include "session/budget.h"
#include "session/step.h"

enum { GATE, UP, DOWN, PROJECTIONS };

strata_status strata__experts_ask(const strata_session *session, uint32_t layer, uint32_t expert,
                                  strata_expert_blob *out)
{
    const strata__experts *experts = &session->experts;
    strata_status status;
    memset(out, 0, sizeof *out);
    status = experts->expert_fn(experts->user_data, layer, expert, out);
    if (status > 0)
        return strata__fail(STRATA_ERR_INVALID_ARGUMENT,
                            "layer %u, expert %u: the expert source answered %d, which is no "
                            "status",
                            layer, expert, (int)status);
    if (status != STRATA_OK)
        return strata__fail(status, "layer %u, expert %u: the expert source answered %d", layer,
                            expert, (int)status);
    if (!out->gate || !out->up || !out->down)
        return strata__fail(STRATA_ERR_INVALID_ARGUMENT,
                            "layer %u, expert %u: the expert source answered NULL for %s", layer,
                            expert,
                            !out->gate ? "gate"
                            : !out->up ? "up"
                                       : "down");
    return STRATA_OK;
}

/* Every expert of a layer that is not there yet to its place. */
static strata_status fill_layer(strata_session *session, uint32_t layer)
{
    const strata__cache *cache = &session->cache;
    uint64_t at = strata__cache_index(cache, layer, 0);
    strata_status status = STRATA_OK;
    for (uint32_t e = 0; e < cache->experts && status == STRATA_OK; ++e, ++at) {
        strata_expert_blob blob = {0};
        if (cache->states[at] == STRATA__BLOB_PRESENT)
            continue;
        if (!cache->places[at])
            return strata__fail(STRATA_ERR_INTERNAL,
                                "layer %u, expert %u has no place, of a plan that keeps all", layer,
                                e);
        if (session->experts.expert_fn)
            status = strata__experts_ask(session, layer, e, &blob);
        if (status == STRATA_OK)
            status = strata__blob_send(session, session->stream, layer, e, &blob, cache->places[at],
                                       &session->cancel);
    }
    return status;
}

/* All experts are on the device when this succeeds; else those that were. */
static strata_status fill(strata_session *session)
{
    strata__cache *cache = &session->cache;
    strata_status status = STRATA_OK;
    for (uint32_t l = 0; l < cache->layers && status == STRATA_OK; ++l) {
        if (session->layers[l].ffn == STRATA__FFN_EXPERTS)
            status = fill_layer(session, l);
        if (status == STRATA_OK)
            status = strata__session_check_cancel(session, "the call");
    }
    if (status == STRATA_OK)
        status = session->device->ops->stream_synchronize(session->device, session->stream);
    if (status != STRATA_OK) {
        strata__session_drain(session, status);
        return status;
    }
    for (uint32_t l = 0; l < cache->layers; ++l)
        if (session->layers[l].ffn == STRATA__FFN_EXPERTS)
            memset(cache->states + strata__cache_index(cache, l, 0), STRATA__BLOB_PRESENT,
                   cache->experts * sizeof *cache->states);
    session->experts.source = STRATA__SOURCE_RESIDENT;
    return STRATA_OK;
}

/* Page-locked memory that is left beside the host region. */
static uint64_t lockable_bytes(const strata__layout *layout)
{
    uint64_t budget = layout->request.host_budget_bytes;
    uint64_t taken = layout->host_bytes + layout->decode.host_bytes;
    if (!budget)
        return UINT64_MAX;
    return budget > taken ? budget - taken : 0;
}

static void free_profile(strata_session *session)
{
    uint64_t *profile = session->experts.profile;
    if (profile)
        strata__free(&session->context->allocator, profile,
                     (uint64_t)session->geometry->layers * session->geometry->experts *
                         sizeof *profile);
    session->experts.profile = NULL;
}

static strata_status init_tier(strata_session *session)
{
    strata__tier_options options = {.geometry = session->geometry, .layers = session->layers};
    strata__host_tier *tier = NULL;
    strata_status status;
    if (session->experts.expert_fn || session->tier)
        return STRATA_OK;
    options.uses = session->cache.has_profile ? session->cache.uses : NULL;
    options.places = session->cache.places;
    options.limit_bytes = lockable_bytes(session->layout);
    status = strata__tier_acquire(session->pack, session->device, &options, &tier);
    session->tier = tier;
    return status;
}

/* From now on the cache has the uses, and what the profile told is counted with them. */
static strata_status init_copied(strata_session *session, const strata_session_options *options)
{
    const uint64_t *uses = session->experts.profile;
    strata_status status;
    session->experts.source = STRATA__SOURCE_STREAMED;
    session->experts.locked = options->expert_memory == STRATA_EXPERT_MEMORY_LOCKED;
    status = strata__cache_init(&session->cache, session, uses);
    if (status == STRATA_OK)
        status = session->device->ops->stream_create(session->device, &session->copies);
    if (status == STRATA_OK)
        status = strata__loan_init(&session->loan, session);
    if (status == STRATA_OK)
        status = session->layout->ring_bytes ? init_tier(session) : fill(session);
    free_profile(session);
    return status;
}

strata_status strata__experts_init(strata_session *session, const strata_session_options *options)
{
    strata__experts *experts = &session->experts;
    strata_status status = STRATA_OK;
    experts->count = session->geometry->experts;
    experts->expert_fn = options->expert_fn;
    experts->user_data = options->expert_user_data;
    if (options->profile)
        status = strata__profile_load(session, options->profile, options->profile_bytes,
                                      &experts->profile);
    if (status != STRATA_OK)
        return status;
    if (session->device->facts.host_addressable) {
        experts->source = experts->expert_fn ? STRATA__SOURCE_CALLBACK : STRATA__SOURCE_IN_PLACE;
        return STRATA_OK;
    }
    experts->source = STRATA__SOURCE_RESIDENT;
    return session->geometry->experts ? init_copied(session, options) : STRATA_OK;
}

strata_status strata__experts_follow_cache(strata_session *session)
{
    bool is_complete = strata__cache_is_complete(&session->cache);
    if (is_complete && session->experts.source == STRATA__SOURCE_RESIDENT)
        return STRATA_OK;
    strata__decode_forget(session);
    if (is_complete) {
        /* What prompts borrow is not the cache's while it has all experts elsewhere. */
        strata_status status = strata__loan_quiet(&session->loan);
        return status == STRATA_OK ? fill(session) : status;
    }
    session->experts.source = STRATA__SOURCE_STREAMED;
    /* Without page-locked memory experts come slower; the next prompt tries again. */
    if (!session->tier && init_tier(session) == STRATA_OK)
        session->decode.experts.locked_bytes = UINT64_MAX;
    return STRATA_OK;
}

const uint64_t *strata__experts_uses(const strata_session *session)
{
    return session->cache.uses ? session->cache.uses : session->experts.profile;
}

void strata__experts_finish(strata_session *session)
{
    strata__loan_finish(&session->loan);
    strata__tier_release(session->pack, session->tier);
    if (session->copies)
        session->device->ops->stream_destroy(session->device, session->copies);
    strata__cache_finish(&session->cache, session);
    free_profile(session);
}

/* All pointers, from the first half of the host's. */
static strata_status upload_tables(const strata_session *session, const strata__layout_work *work,
                                   uint8_t *base, uint8_t *host_base)
{
    const strata__layout_buffer *device = strata__layout_find_work(work, STRATA__BUFFER_POINTERS);
    return session->device->ops->copy(
        session->device, session->stream, base + device->offset,
        strata__host_buffer(work, host_base, STRATA__BUFFER_HOST_POINTERS), device->bytes);
}

strata_status strata__experts_fix_tables(const strata_session *session,
                                         const strata__layout_work *work, uint8_t *base,
                                         uint8_t *host_base)
{
    const void **table = strata__host_buffer(work, host_base, STRATA__BUFFER_HOST_POINTERS);
    uint32_t experts = session->geometry->experts;
    if (!table || session->experts.source != STRATA__SOURCE_IN_PLACE)
        return STRATA_OK;
    for (uint32_t l = 0; l < session->geometry->layers; ++l) {
        if (session->layers[l].ffn != STRATA__FFN_EXPERTS)
            continue;
        for (uint32_t e = 0; e < experts; ++e) {
            strata_expert_blob blob = strata__blob_in_pack(session, l, e);
            table[GATE * experts + e] = blob.gate;
            table[UP * experts + e] = blob.up;
            table[DOWN * experts + e] = blob.down;
        }
        table += PROJECTIONS * experts;
    }
    return upload_tables(session, work, base, host_base);
}

strata_status strata__experts_prepare(strata_prefill *prefill)
{
    strata_session *session = prefill->session;
    if (strata__has_cache(session))
        return strata__feed_init(&prefill->feed, prefill);
    return strata__experts_fix_tables(session, &session->layout->prompt, prefill->memory.base,
                                      prefill->host.region.base);
}

strata_status strata__experts_begin(strata_prefill *prefill, uint64_t chunks)
{
    strata_session *session = prefill->session;
    const void **table = strata__host_buffer(&session->layout->prompt, prefill->host.region.base,
                                             STRATA__BUFFER_HOST_POINTERS);
    strata_status status = STRATA_OK;
    if (!strata__has_cache(session))
        return STRATA_OK;
    status = strata__decode_settle(session);
    if (status != STRATA_OK)
        return status;
    /* The caller's memory for an expert may change when the prompt asks for it. */
    if (session->experts.expert_fn)
        strata__loan_settle(&session->loan);
    strata__loan_publish(&session->loan);
    status = strata__budget_apply(session);
    if (status == STRATA_OK && prefill->is_lent &&
        session->experts.source == STRATA__SOURCE_STREAMED)
        status = strata__loan_take(&session->loan);
    if (status == STRATA_OK && strata__feed_begin(&prefill->feed, chunks, table))
        status = upload_tables(session, &session->layout->prompt, prefill->memory.base,
                               prefill->host.region.base);
    /* The device's table is another, whatever the host wrote: the next prompt's goes up. */
    if (status != STRATA_OK)
        prefill->feed.generation = 0;
    return status;
}

void strata__experts_end(strata_prefill *prefill, bool is_idle)
{
    strata_session *session = prefill->session;
    if (session->experts.source != STRATA__SOURCE_STREAMED)
        return;
    strata__feed_end(&prefill->feed, is_idle);
    strata__decode_forget(session);
    if (prefill->is_lent && !prefill->keeps_loan)
        strata__loan_return(&session->loan, is_idle);
}

/* Where the pointers of the step's layer are, on the device and on the host. */
static strata_status find_tables(strata__step *step, const void ***device, const void ***host)
{
    const strata__layout_buffer *buffer =
        strata__layout_find_work(step->work, STRATA__BUFFER_POINTERS);
    uint8_t *base = strata__host_buffer(step->work, step->host, STRATA__BUFFER_HOST_POINTERS);
    if (!buffer || !base)
        return strata__fail(STRATA_ERR_INTERNAL, "the plan has no expert pointers");
    base += step->chunk % 2 * buffer->bytes + step->expert_layer * buffer->row_bytes;
    *host = (const void **)base;
    *device = (const void **)(step->base + buffer->offset + step->expert_layer * buffer->row_bytes);
    return STRATA_OK;
}

static strata_status upload_pointers(strata__step *step, const void **device, const void **host,
                                     uint32_t first, uint32_t last)
{
    strata_session *session = step->session;
    strata_status status = STRATA_OK;
    for (uint64_t i = 0; i < PROJECTIONS && status == STRATA_OK; ++i) {
        uint64_t at = i * session->experts.count + first;
        status = session->device->ops->copy(session->device, session->stream, device + at,
                                            host + at, (last - first + 1) * sizeof *host);
    }
    return status;
}

strata_status strata__experts_acquire(strata__step *step, uint32_t first, uint32_t last)
{
    const strata_session *session = step->session;
    uint32_t experts = session->experts.count;
    const void **host = NULL;
    strata_status status = find_tables(step, &step->pointers, &host);
    if (status == STRATA_OK && step->feed)
        return strata__feed_acquire(step->feed, first, last);
    if (status == STRATA_OK && session->experts.source == STRATA__SOURCE_STREAMED &&
        !step->is_blind)
        return strata__decode_experts_fetch(step, first, last);
    if (status != STRATA_OK || session->experts.source != STRATA__SOURCE_CALLBACK)
        return status;
    if (first < step->acquired_experts)
        first = step->acquired_experts;
    if (first > last)
        return STRATA_OK;
    for (uint32_t e = first; e <= last; ++e) {
        strata_expert_blob blob = {0};
        if (step->host_offsets[e + 1] > step->host_offsets[e]) {
            status = strata__experts_ask(session, step->launch.layer, e, &blob);
            if (status != STRATA_OK)
                return status;
        }
        host[GATE * experts + e] = blob.gate;
        host[UP * experts + e] = blob.up;
        host[DOWN * experts + e] = blob.down;
    }
    step->acquired_experts = last + 1;
    return upload_pointers(step, step->pointers, host, first, last);
}
