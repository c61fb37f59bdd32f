/* SPDX-License-Identifier: MIT */
#include "session/host_tier.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "session/state.h"

enum { PROJECTIONS = 3 };

static const uint64_t default_piece_bytes = 64u << 20;

/* The experts' rows of one projection of one layer. */
typedef struct tensor {
    const uint8_t *base;
    uint64_t bytes;
    uint64_t stride_bytes;
    uint32_t layer;
} tensor;

static int by_address(const void *a, const void *b)
{
    const tensor *x = a, *y = b;
    return (x->base > y->base) - (x->base < y->base);
}

static uint32_t list_tensors(const strata__tier_options *o, tensor *out)
{
    uint32_t count = 0, experts = o->geometry->experts;
    for (uint32_t l = 0; l < o->geometry->layers; ++l) {
        const strata__layer *layer = &o->layers[l];
        const strata__projection *p[PROJECTIONS] = {&layer->expert_gate, &layer->expert_up,
                                                    &layer->expert_down};
        if (layer->ffn != STRATA__FFN_EXPERTS)
            continue;
        for (int i = 0; i < PROJECTIONS; ++i)
            out[count++] =
                (tensor){p[i]->data, (experts - 1) * p[i]->stride_bytes + p[i]->bytes / experts,
                         p[i]->stride_bytes, l};
    }
    qsort(out, count, sizeof *out, by_address);
    return count;
}

/* Uses of the experts that have bytes in a piece, and whether all of them have a place. */
static void rate(const strata__tier_options *o, const tensor *t, strata__tier_piece *piece)
{
    uint64_t from = piece->base > t->base ? (uint64_t)(piece->base - t->base) : 0;
    uint64_t to = (uint64_t)(piece->base + piece->bytes - t->base) - 1;
    uint64_t first = (uint64_t)t->layer * o->geometry->experts, last;
    if (to >= t->bytes)
        to = t->bytes - 1;
    last = first + to / t->stride_bytes;
    if (last >= first + o->geometry->experts)
        last = first + o->geometry->experts - 1;
    piece->layer = t->layer;
    piece->resident = 1;
    for (uint64_t e = first + from / t->stride_bytes; e <= last; ++e) {
        if (o->uses)
            piece->heat += o->uses[e];
        if (!o->places[e])
            piece->resident = 0;
    }
}

/*
 * Whole pages that hold the tensors, cut into pieces; the first page may be the one before's. Of
 * memory that is no mapped file, whose pages others may use too, only the pages within.
 */
static uint32_t cut(const strata__tier_options *o, const tensor *tensors, uint32_t count,
                    const strata__host_tier *tier, strata__tier_piece *out)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), n = 0;
    uint64_t most = tier->piece_bytes;
    uintptr_t done = 0;
    for (uint32_t i = 0; i < count; ++i) {
        uintptr_t at = (uintptr_t)tensors[i].base / page * page;
        uintptr_t end = ((uintptr_t)tensors[i].base + tensors[i].bytes + page - 1) / page * page;
        if (!tier->may_copy) {
            at = ((uintptr_t)tensors[i].base + page - 1) / page * page;
            end = ((uintptr_t)tensors[i].base + tensors[i].bytes) / page * page;
        }
        for (at = at > done ? at : done; at < end; at += most, ++n) {
            if (!out)
                continue;
            out[n].base = (const uint8_t *)at;
            out[n].bytes = end - at < most ? end - at : most;
            rate(o, &tensors[i], &out[n]);
        }
        done = end > done ? end : done;
    }
    return (uint32_t)n;
}

/* Whether piece a is to be locked rather than b when the budget does not do for both. */
static bool matters_more(const strata__tier_piece *a, const strata__tier_piece *b)
{
    if (a->resident != b->resident)
        return b->resident;
    return a->heat * (b->bytes >> 12) > b->heat * (a->bytes >> 12);
}

/* Insertion sort is stable: equals stay in the order of the file. */
static void sort_order(strata__host_tier *tier, uint32_t count, bool by_layer)
{
    for (uint32_t i = 1; i < count; ++i) {
        uint32_t moved = tier->order[i], at = i;
        const strata__tier_piece *p = &tier->pieces[moved];
        for (; at > 0; --at) {
            const strata__tier_piece *before = &tier->pieces[tier->order[at - 1]];
            if (by_layer ? before->layer <= p->layer : !matters_more(p, before))
                break;
            tier->order[at] = tier->order[at - 1];
        }
        tier->order[at] = moved;
    }
}

/*
 * Chooses what to lock, and in which order: the hottest first, or as the first prompt comes to it.
 */
static void choose(strata__host_tier *tier, const strata__tier_options *o)
{
    uint64_t left = o->limit_bytes, wanted = 0;
    uint32_t chosen = 0;
    for (uint32_t i = 0; i < tier->piece_count; ++i)
        tier->order[i] = i;
    sort_order(tier, tier->piece_count, false);
    for (uint32_t i = 0; i < tier->piece_count; ++i) {
        strata__tier_piece *p = &tier->pieces[tier->order[i]];
        if (p->bytes > left) {
            atomic_init(&p->state, STRATA__TIER_UNPINNED);
            continue;
        }
        atomic_init(&p->state, STRATA__TIER_PENDING);
        left -= p->bytes;
        wanted += p->bytes;
        tier->order[chosen++] = tier->order[i];
    }
    for (uint32_t i = chosen; i < tier->piece_count; ++i)
        tier->order[i] = tier->piece_count;
    if (!o->uses)
        sort_order(tier, chosen, true);
    atomic_init(&tier->wanted_bytes, wanted);
}

/* A page-locked copy instead, in exchange for the file's pages in memory. */
static bool copy_piece(strata__host_tier *tier, strata__tier_piece *piece)
{
    void *copy = NULL;
    if (!tier->may_copy || tier->device->ops->host_alloc(tier->device, piece->bytes,
                                                         "a copy of experts", &copy) != STRATA_OK)
        return false;
    memcpy(copy, piece->base, piece->bytes);
#if defined(MADV_PAGEOUT)
    (void)madvise((void *)(uintptr_t)piece->base, piece->bytes, MADV_PAGEOUT);
#endif
    (void)madvise((void *)(uintptr_t)piece->base, piece->bytes, MADV_DONTNEED);
    piece->copy = copy;
    return true;
}

static void settle(strata__host_tier *tier, strata__tier_piece *piece, bool pinned)
{
    _Atomic uint64_t *sum = pinned ? &tier->pinned_bytes : &tier->refused_bytes;
    atomic_fetch_add_explicit(sum, piece->bytes, memory_order_relaxed);
    pthread_mutex_lock(&tier->lock);
    atomic_store_explicit(&piece->state, pinned ? STRATA__TIER_PINNED : STRATA__TIER_UNPINNED,
                          memory_order_release);
    pthread_cond_broadcast(&tier->changed);
    pthread_mutex_unlock(&tier->lock);
}

static bool is_stopped(strata__host_tier *tier)
{
    bool stop;
    pthread_mutex_lock(&tier->lock);
    stop = tier->stop;
    pthread_mutex_unlock(&tier->lock);
    return stop;
}

static void *run_thread(void *user_data)
{
    strata__host_tier *tier = user_data;
    strata__device *device = tier->device;
    strata__saved_device saved;
    bool entered = device->ops->enter(device, &saved) == STRATA_OK;
    for (uint32_t i = 0; i < tier->piece_count && tier->order[i] < tier->piece_count; ++i) {
        strata__tier_piece *piece = &tier->pieces[tier->order[i]];
        bool pinned = false;
        if (entered && !is_stopped(tier))
            pinned = device->ops->host_register(device, piece->base, piece->bytes) == STRATA_OK ||
                     copy_piece(tier, piece);
        settle(tier, piece, pinned);
    }
    if (entered)
        device->ops->leave(device, &saved);
    return NULL;
}

static strata_status list_pieces(strata__host_tier *tier, const strata__tier_options *o)
{
    uint64_t capacity = (uint64_t)o->geometry->layers * PROJECTIONS;
    tensor *tensors = strata__calloc(tier->allocator, capacity, sizeof *tensors);
    uint32_t count;
    if (!tensors)
        return strata__fail_memory(capacity * sizeof *tensors, "the experts in host memory");
    count = list_tensors(o, tensors);
    tier->piece_capacity = cut(o, tensors, count, tier, NULL);
    tier->pieces = strata__calloc(tier->allocator, tier->piece_capacity, sizeof *tier->pieces);
    tier->order = strata__calloc(tier->allocator, tier->piece_capacity, sizeof *tier->order);
    if (tier->pieces && tier->order)
        tier->piece_count = cut(o, tensors, count, tier, tier->pieces);
    strata__free(tier->allocator, tensors, capacity * sizeof *tensors);
    if (!tier->pieces || !tier->order)
        return strata__fail_memory(tier->piece_capacity * sizeof *tier->pieces,
                                   "the experts in host memory");
    choose(tier, o);
    return STRATA_OK;
}

static void destroy(strata__host_tier *tier)
{
    const strata__device_ops *ops = tier->device->ops;
    if (tier->started) {
        pthread_mutex_lock(&tier->lock);
        tier->stop = true;
        pthread_mutex_unlock(&tier->lock);
        pthread_join(tier->thread, NULL);
    }
    for (uint32_t i = 0; i < tier->piece_count; ++i) {
        const strata__tier_piece *p = &tier->pieces[i];
        if (atomic_load_explicit(&p->state, memory_order_acquire) != STRATA__TIER_PINNED)
            continue;
        if (p->copy)
            ops->host_free(tier->device, p->copy, p->bytes);
        else
            ops->host_unregister(tier->device, p->base);
    }
    pthread_cond_destroy(&tier->changed);
    pthread_mutex_destroy(&tier->lock);
    strata__free(tier->allocator, tier->pieces, tier->piece_capacity * sizeof *tier->pieces);
    strata__free(tier->allocator, tier->order, tier->piece_capacity * sizeof *tier->order);
    strata__device_release(tier->device);
    strata__free(tier->allocator, tier, sizeof *tier);
}

/* No thread can be had: nothing will be page-locked. */
static void refuse_all(strata__host_tier *tier)
{
    for (uint32_t i = 0; i < tier->piece_count && tier->order[i] < tier->piece_count; ++i)
        settle(tier, &tier->pieces[tier->order[i]], false);
}

static strata_status create(strata__pack *pack, strata__device *device,
                            const strata__tier_options *options, strata__host_tier **out)
{
    const strata__allocator *allocator = &strata__pack_context(pack)->allocator;
    strata__host_tier *tier = strata__calloc(allocator, 1, sizeof *tier);
    pthread_condattr_t attributes;
    strata_status status;
    if (!tier)
        return strata__fail_memory(sizeof *tier, "the experts in host memory");
    tier->allocator = allocator;
    tier->device = device;
    /* Whole pages, so that pieces touch and do not overlap. */
    tier->piece_bytes = options->piece_bytes ? options->piece_bytes : default_piece_bytes;
    tier->may_copy = strata__pack_path(pack)[0] != '\0';
    strata__device_hold(device);
    pthread_mutex_init(&tier->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&tier->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    status = list_pieces(tier, options);
    if (status != STRATA_OK) {
        destroy(tier);
        return status;
    }
    tier->started = pthread_create(&tier->thread, NULL, run_thread, tier) == 0;
    if (!tier->started)
        refuse_all(tier);
    *out = tier;
    return STRATA_OK;
}

strata_status strata__tier_acquire(strata__pack *pack, strata__device *device,
                                   const strata__tier_options *options, strata__host_tier **out)
{
    strata__pack_shared *shared = strata__pack_shared_of(pack);
    strata__host_tier *tier = NULL;
    strata_status status = STRATA_OK;
    pthread_mutex_lock(&shared->lock);
    tier = shared->host_tier;
    if (!tier)
        status = create(pack, device, options, &tier);
    if (status == STRATA_OK) {
        tier->users++;
        shared->host_tier = *out = tier;
    }
    pthread_mutex_unlock(&shared->lock);
    return status;
}

void strata__tier_release(strata__pack *pack, strata__host_tier *tier)
{
    strata__pack_shared *shared = strata__pack_shared_of(pack);
    if (!tier)
        return;
    pthread_mutex_lock(&shared->lock);
    if (--tier->users == 0) {
        shared->host_tier = NULL;
        destroy(tier);
    }
    pthread_mutex_unlock(&shared->lock);
}

uint64_t strata__tier_piece_bytes(const strata__host_tier *tier)
{
    return tier ? tier->piece_bytes : default_piece_bytes;
}

/* The last piece that begins at or before an address; the count when none does. */
static uint32_t piece_before(const strata__host_tier *tier, const uint8_t *at)
{
    uint32_t low = 0, high = tier->piece_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (tier->pieces[middle].base <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low ? low - 1 : tier->piece_count;
}

static bool is_in(const strata__tier_piece *piece, const uint8_t *at)
{
    return at >= piece->base && at < piece->base + piece->bytes;
}

strata__tier_span strata__tier_find(const strata__host_tier *tier, const void *at)
{
    strata__tier_span span = {.state = STRATA__TIER_UNPINNED, .at = at, .bytes = UINT64_MAX};
    const strata__tier_piece *piece;
    uint32_t index, next;
    uint64_t offset;
    if (!tier)
        return span;
    index = piece_before(tier, at);
    next = index == tier->piece_count ? 0 : index + 1;
    piece = &tier->pieces[index];
    if (index == tier->piece_count || !is_in(piece, at)) {
        if (next < tier->piece_count)
            span.bytes = (uint64_t)(tier->pieces[next].base - (const uint8_t *)at);
        return span;
    }
    offset = (uint64_t)((const uint8_t *)at - piece->base);
    span.bytes = piece->bytes - offset;
    span.state = atomic_load_explicit(&piece->state, memory_order_acquire);
    if (span.state == STRATA__TIER_PINNED && piece->copy)
        span.at = piece->copy + offset;
    return span;
}

void strata__tier_wait(strata__host_tier *tier, const void *at, const atomic_bool *cancel)
{
    const long look_ns = 20 * 1000 * 1000;
    uint32_t index = piece_before(tier, at);
    const strata__tier_piece *piece = &tier->pieces[index];
    if (index == tier->piece_count || !is_in(piece, at))
        return;
    pthread_mutex_lock(&tier->lock);
    while (atomic_load_explicit(&piece->state, memory_order_acquire) == STRATA__TIER_PENDING &&
           !atomic_load_explicit(cancel, memory_order_relaxed)) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += look_ns;
        if (until.tv_nsec >= 1000000000) {
            until.tv_nsec -= 1000000000;
            until.tv_sec++;
        }
        pthread_cond_timedwait(&tier->changed, &tier->lock, &until);
    }
    pthread_mutex_unlock(&tier->lock);
}
