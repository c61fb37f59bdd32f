/* SPDX-License-Identifier: MIT */
#include "session/loan.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "session/blob.h"
#include "session/state.h"

strata_status strata__loan_init(strata__loan *loan, strata_session *session)
{
    const strata__layout *layout = session->layout;
    strata_status status;
    memset(loan, 0, sizeof *loan);
    loan->session = session;
    if (!layout->loan_bytes)
        return STRATA_OK;
    loan->base = session->loan_memory.base;
    loan->bytes = layout->loan_bytes;
    loan->capacity = session->cache.count;
    loan->blobs = strata__calloc(&session->context->allocator, loan->capacity, sizeof *loan->blobs);
    if (!loan->blobs)
        return strata__fail_memory(loan->capacity * sizeof *loan->blobs, "the loan");
    status = session->device->ops->stream_create(session->device, &loan->stream);
    return status == STRATA_OK
               ? session->device->ops->event_create(session->device, false, &loan->moved)
               : status;
}

/* The blob's last copy is enqueued; true once all of it has arrived. */
static bool copy_blob(strata__loan *loan, const strata__loan_blob *blob)
{
    strata_session *session = loan->session;
    uint32_t layer = (uint32_t)(blob->index / session->cache.experts);
    uint32_t expert = (uint32_t)(blob->index % session->cache.experts);
    return strata__blob_send(session, loan->stream, layer, expert, &blob->given, blob->place,
                             &loan->stop) == STRATA_OK &&
           session->device->ops->stream_synchronize(session->device, loan->stream) == STRATA_OK;
}

static void *run_refill(void *user_data)
{
    strata__loan *loan = user_data;
    strata__device *device = loan->session->device;
    strata__saved_device saved;
    if (device->ops->enter(device, &saved) != STRATA_OK)
        return NULL;
    for (uint64_t i = 0; i < loan->count; ++i) {
        if (atomic_load_explicit(&loan->stop, memory_order_relaxed) ||
            !copy_blob(loan, &loan->blobs[i]))
            break;
        atomic_store_explicit(&loan->copied, i + 1, memory_order_release);
    }
    /* Of a blob whose copies failed some may be on their way. */
    loan->may_write = device->ops->stream_synchronize(device, loan->stream) != STRATA_OK;
    device->ops->leave(device, &saved);
    return NULL;
}

void strata__loan_publish(strata__loan *loan)
{
    strata__cache *cache;
    uint64_t copied = atomic_load_explicit(&loan->copied, memory_order_acquire);
    if (!loan->session || loan->is_lent || loan->published >= copied)
        return;
    cache = &loan->session->cache;
    for (; loan->published < copied; ++loan->published) {
        const strata__loan_blob *blob = &loan->blobs[loan->published];
        uint32_t layer = (uint32_t)(blob->index / cache->experts);
        if (cache->places[blob->index])
            continue;
        cache->places[blob->index] = blob->place;
        cache->states[blob->index] = STRATA__BLOB_PRESENT;
        strata__counter_add(&loan->session->counters.refill_bytes,
                            loan->session->layout->layers[layer].slot_bytes);
    }
    cache->generation++;
}

void strata__loan_settle(strata__loan *loan)
{
    if (loan->is_running) {
        atomic_store_explicit(&loan->stop, true, memory_order_relaxed);
        pthread_join(loan->thread, NULL);
        loan->is_running = false;
    }
    strata__loan_publish(loan);
    loan->count = loan->published = 0;
    atomic_store_explicit(&loan->copied, 0, memory_order_relaxed);
}

strata_status strata__loan_quiet(strata__loan *loan)
{
    const strata__device_ops *ops;
    strata_status status = STRATA_OK;
    strata__loan_settle(loan);
    if (!loan->may_write)
        return STRATA_OK;
    ops = loan->session->device->ops;
    status = ops->stream_synchronize(loan->session->device, loan->stream);
    loan->may_write = status != STRATA_OK;
    return status;
}

static bool is_in_range(const strata__loan *loan, const uint8_t *place)
{
    return place >= loan->base && place < loan->base + loan->bytes;
}

void strata__loan_clear(strata__loan *loan)
{
    strata__cache *cache;
    if (!loan->base)
        return;
    cache = &loan->session->cache;
    for (uint64_t i = 0; i < cache->count; ++i) {
        if (!is_in_range(loan, cache->places[i]))
            continue;
        cache->places[i] = NULL;
        cache->states[i] = STRATA__BLOB_ABSENT;
    }
    cache->generation++;
}

/* The least used expert of a layer that has a place outside the range; below it, empty places. */
static uint64_t coldest(const strata__loan *loan, uint64_t first)
{
    const strata__cache *cache = &loan->session->cache;
    uint64_t found = UINT64_MAX;
    for (uint64_t i = first; i < first + cache->experts; ++i) {
        bool empty = cache->states[i] == STRATA__BLOB_ABSENT;
        if (!cache->places[i] || is_in_range(loan, cache->places[i]))
            continue;
        if (found == UINT64_MAX || (empty && cache->states[found] != STRATA__BLOB_ABSENT) ||
            (empty == (cache->states[found] == STRATA__BLOB_ABSENT) &&
             cache->uses[i] < cache->uses[found]))
            found = i;
    }
    return found;
}

/* Blobs of a layer that are to survive take the places of colder ones. */
static strata_status keep_hottest(strata__loan *loan, uint32_t layer)
{
    strata_session *session = loan->session;
    strata__cache *cache = &session->cache;
    uint64_t first = strata__cache_index(cache, layer, 0);
    strata_status status = STRATA_OK;
    for (uint64_t i = first; i < first + cache->experts && status == STRATA_OK; ++i) {
        uint64_t cold;
        if (!is_in_range(loan, cache->places[i]) || cache->states[i] != STRATA__BLOB_PRESENT)
            continue;
        cold = coldest(loan, first);
        if (cold == UINT64_MAX ||
            (cache->states[cold] != STRATA__BLOB_ABSENT && cache->uses[cold] >= cache->uses[i]))
            continue;
        status =
            session->device->ops->copy(session->device, session->stream, cache->places[cold],
                                       cache->places[i], session->layout->layers[layer].slot_bytes);
        cache->places[i] = cache->places[cold];
        cache->places[cold] = NULL;
        cache->states[cold] = STRATA__BLOB_ABSENT;
        if (status != STRATA_OK)
            cache->states[i] = STRATA__BLOB_ABSENT;
    }
    return status;
}

strata_status strata__loan_take(strata__loan *loan)
{
    strata_session *session = loan->session;
    const strata__device_ops *ops = session->device->ops;
    strata_status status = STRATA_OK;
    if (loan->is_lent)
        return STRATA_OK;
    status = strata__loan_quiet(loan);
    for (uint32_t l = 0; l < session->cache.layers && status == STRATA_OK; ++l)
        if (session->layers[l].ffn == STRATA__FFN_EXPERTS)
            status = keep_hottest(loan, l);
    strata__loan_clear(loan);
    /* The range is written by copies too, which must not overtake what is moved out of it. */
    if (status == STRATA_OK)
        status = ops->event_record(session->device, loan->moved, session->stream);
    if (status == STRATA_OK)
        status = ops->stream_wait(session->device, session->copies, loan->moved);
    loan->is_lent = status == STRATA_OK;
    return status;
}

static int by_use(const void *a, const void *b)
{
    const strata__loan_blob *x = a, *y = b;
    if (x->uses != y->uses)
        return x->uses < y->uses ? 1 : -1;
    return (x->index > y->index) - (x->index < y->index);
}

static bool has_place(const strata__loan *loan, uint64_t index)
{
    return loan->session->cache.places[index] != NULL;
}

/* The hottest absent blobs, as many as the range holds. */
static strata_status choose(strata__loan *loan)
{
    strata_session *session = loan->session;
    strata__cache *cache = &session->cache;
    uint64_t count = 0, used = 0, kept = 0;
    for (uint64_t i = 0; i < cache->count; ++i) {
        uint32_t layer = (uint32_t)(i / cache->experts);
        if (session->layers[layer].ffn == STRATA__FFN_EXPERTS && !has_place(loan, i))
            loan->blobs[count++] = (strata__loan_blob){.index = i, .uses = cache->uses[i]};
    }
    qsort(loan->blobs, count, sizeof *loan->blobs, by_use);
    for (uint64_t i = 0; i < count; ++i) {
        strata__loan_blob *blob = &loan->blobs[kept];
        uint32_t layer = (uint32_t)(loan->blobs[i].index / cache->experts);
        uint64_t slot = session->layout->layers[layer].slot_bytes;
        if (slot > loan->bytes - used)
            continue;
        *blob = loan->blobs[i];
        blob->place = loan->base + used;
        used += slot;
        kept++;
        if (session->experts.expert_fn) {
            strata_status status = strata__experts_ask(
                session, layer, (uint32_t)(blob->index % cache->experts), &blob->given);
            if (status != STRATA_OK)
                return status;
        }
    }
    loan->count = kept;
    return STRATA_OK;
}

void strata__loan_return(strata__loan *loan, bool is_idle)
{
    if (!loan->is_lent)
        return;
    loan->is_lent = false;
    loan->count = loan->published = 0;
    atomic_store_explicit(&loan->copied, 0, memory_order_relaxed);
    atomic_store_explicit(&loan->stop, false, memory_order_relaxed);
    if (!is_idle || loan->session->lost || choose(loan) != STRATA_OK) {
        loan->count = 0;
        return;
    }
    loan->is_running = pthread_create(&loan->thread, NULL, run_refill, loan) == 0;
}

void strata__loan_finish(strata__loan *loan)
{
    const strata__device_ops *ops;
    if (!loan->session)
        return;
    ops = loan->session->device->ops;
    strata__loan_settle(loan);
    if (loan->moved)
        ops->event_destroy(loan->session->device, loan->moved);
    if (loan->stream)
        ops->stream_destroy(loan->session->device, loan->stream);
    strata__free(&loan->session->context->allocator, loan->blobs,
                 loan->capacity * sizeof *loan->blobs);
    memset(loan, 0, sizeof *loan);
}
