/* SPDX-License-Identifier: MIT */
#include "session/decode_cache.h"

#include <math.h>
#include <string.h>

#include "base/error.h"
#include "session/blob.h"
#include "session/state.h"
#include "session/step.h"

static const strata_cache_policy defaults = {
    .half_life_tokens = 512, .margin = 0.25, .margin_uses = 2, .admit_bytes = 16u << 20};

/* Scores are made smaller together before one use counts this much. */
static const double most_weight = 1e100;

static bool is_on(const strata_session *session)
{
    return session->decode.cache.score != NULL;
}

strata_status strata__decode_cache_init(strata_session *session)
{
    const strata__allocator *allocator = &session->context->allocator;
    const strata__device_ops *ops = session->device->ops;
    strata__decode_cache *c = &session->decode.cache;
    strata_status status = STRATA_OK;
    c->policy = defaults;
    c->now = 1;
    if (!strata__has_cache(session) || !strata__layout_find_ring(session->layout))
        return STRATA_OK;
    c->score = strata__calloc(allocator, session->cache.count, sizeof *c->score);
    c->seen = strata__calloc(allocator, session->cache.count, sizeof *c->seen);
    if (!c->score || !c->seen)
        return strata__fail_memory(session->cache.count * sizeof *c->score,
                                   "the scores of experts");
    for (int i = 0; i < STRATA__ADMIT_BATCHES && status == STRATA_OK; ++i)
        status = ops->event_create(session->device, false, &c->batches[i].done);
    return status;
}

void strata__decode_cache_finish(strata_session *session)
{
    const strata__allocator *allocator = &session->context->allocator;
    strata__decode_cache *c = &session->decode.cache;
    for (int i = 0; i < STRATA__ADMIT_BATCHES; ++i)
        if (c->batches[i].done)
            session->device->ops->event_destroy(session->device, c->batches[i].done);
    strata__free(allocator, c->score, session->cache.count * sizeof *c->score);
    strata__free(allocator, c->seen, session->cache.count * sizeof *c->seen);
    memset(c, 0, sizeof *c);
}

static uint32_t layer_of(const strata_session *session, uint64_t index)
{
    return (uint32_t)(index / session->cache.experts);
}

/* The table follows, unless it is to be made anew anyway. */
static void show(strata_session *session, uint64_t index)
{
    if (!session->decode.experts.is_stale)
        strata__decode_experts_set(session, layer_of(session, index),
                                   (uint32_t)(index % session->cache.experts));
}

static strata__admit_batch *batch_at(strata__decode_cache *c, uint32_t i)
{
    return &c->batches[(c->first + i) % STRATA__ADMIT_BATCHES];
}

/* The oldest batch has been copied, or failed to be. */
static void take_batch(strata_session *session, bool copied)
{
    strata__decode_cache *c = &session->decode.cache;
    const strata__admit_batch *batch = batch_at(c, 0);
    for (uint32_t i = 0; i < batch->count; ++i) {
        uint64_t index = batch->index[i];
        session->cache.states[index] = copied ? STRATA__BLOB_PRESENT : STRATA__BLOB_ABSENT;
        if (copied)
            strata__counter_add(&session->counters.decode_admit_bytes,
                                strata__blob_bytes(session, layer_of(session, index)));
        show(session, index);
    }
    c->first = (c->first + 1) % STRATA__ADMIT_BATCHES;
    c->count--;
}

strata_status strata__decode_cache_publish(strata_session *session)
{
    strata__decode_cache *c = &session->decode.cache;
    strata_status status = STRATA_OK;
    bool done = true;
    while (c->count && done && status == STRATA_OK) {
        status = session->device->ops->event_query(session->device, batch_at(c, 0)->done, &done);
        if (status == STRATA_OK && done)
            take_batch(session, true);
    }
    return status;
}

/* Copies of the youngest batch failed; nothing writes its places any more. */
static void abandon(strata_session *session)
{
    strata__decode_cache *c = &session->decode.cache;
    strata_status status = strata__session_wait_copies(session);
    while (c->count)
        take_batch(session, status == STRATA_OK && c->count > 1);
}

strata_status strata__decode_cache_settle(strata_session *session)
{
    strata__decode_cache *c = &session->decode.cache;
    strata_status status = STRATA_OK;
    if (c->count)
        status = strata__session_wait_copies(session);
    while (c->count)
        take_batch(session, status == STRATA_OK);
    return status;
}

/* Uses that prompts have counted since, as if they were no more rows than a score remembers. */
static void catch_up_layer(strata_session *session, uint32_t layer, double *out_rows)
{
    strata__decode_cache *c = &session->decode.cache;
    const uint64_t first = strata__cache_index(&session->cache, layer, 0);
    const uint64_t end = first + session->cache.experts;
    const double remembered = c->policy.half_life_tokens / 0.6931471805599453;
    double rows = 0, share;
    for (uint64_t i = first; i < end; ++i)
        rows += (double)(session->cache.uses[i] - c->seen[i]);
    rows /= session->geometry->top_k;
    share = rows > remembered ? remembered / rows : 1;
    for (uint64_t i = first; i < end; ++i) {
        c->score[i] += c->now * share * (double)(session->cache.uses[i] - c->seen[i]);
        c->seen[i] = session->cache.uses[i];
    }
    *out_rows = rows;
}

/* Uses count from here on as if `rows` rows had passed. */
static void age(strata_session *session, double rows)
{
    strata__decode_cache *c = &session->decode.cache;
    double halves = rows / c->policy.half_life_tokens;
    c->now *= exp2(halves < 100 ? halves : 100);
    if (c->now < most_weight)
        return;
    for (uint64_t i = 0; i < session->cache.count; ++i)
        c->score[i] /= c->now;
    c->now = 1;
}

void strata__decode_cache_catch_up(strata_session *session)
{
    double most = 0, rows = 0;
    if (!is_on(session))
        return;
    for (uint32_t l = 0; l < session->geometry->layers; ++l) {
        catch_up_layer(session, l, &rows);
        most = rows > most ? rows : most;
    }
    age(session, most);
}

/* Of one layer, to be chosen from: scores, and whether an expert counts before all others. */
typedef struct layer_view {
    strata_session *session;
    const uint32_t *offsets; /* of the step's sorted rows */
    uint64_t first;          /* the layer's experts in the cache's tables */
    uint32_t layer;
    double score[STRATA__MAX_EXPERTS];
} layer_view;

static double score_of(const strata_session *session, uint32_t layer, uint32_t expert)
{
    const strata__decode_cache *c = &session->decode.cache;
    uint64_t index = strata__cache_index(&session->cache, layer, expert);
    double decayed = c->score[index] / c->now;
    if (!c->policy.score_fn)
        return decayed;
    return c->policy.score_fn(c->policy.user_data, layer, expert, session->cache.uses[index],
                              decayed);
}

static bool is_used(const layer_view *v, uint32_t expert)
{
    return v->offsets[expert + 1] > v->offsets[expert];
}

static uint8_t state_of(const layer_view *v, uint32_t expert)
{
    return v->session->cache.states[v->first + expert];
}

/* Experts that nothing but the cache gives an address make every step wait. */
static bool is_alone(const layer_view *v, uint32_t expert)
{
    return v->session->decode.experts.alone[v->first + expert];
}

static void view_layer(strata_session *session, uint32_t layer, const uint32_t *offsets,
                       layer_view *out)
{
    out->session = session;
    out->layer = layer;
    out->offsets = offsets;
    out->first = strata__cache_index(&session->cache, layer, 0);
    for (uint32_t e = 0; e < session->cache.experts; ++e)
        if (is_used(out, e) || is_alone(out, e) || state_of(out, e) == STRATA__BLOB_PRESENT)
            out->score[e] = score_of(session, layer, e);
}

/* Whether expert a is the better one to have on the device. */
static bool is_better(const layer_view *v, uint32_t a, uint32_t b)
{
    if (is_alone(v, a) != is_alone(v, b))
        return is_alone(v, a);
    return v->score[a] > v->score[b];
}

/* The best that is not on the device, of those used; the count of experts when there is none. */
static uint32_t find_newcomer(const layer_view *v)
{
    uint32_t experts = v->session->cache.experts, found = experts;
    for (uint32_t e = 0; e < experts; ++e)
        if (state_of(v, e) == STRATA__BLOB_ABSENT && (is_used(v, e) || is_alone(v, e)) &&
            (found == experts || is_better(v, e, found)))
            found = e;
    return found;
}

/* Who has the place that matters least: an empty one, else the worst tenant. */
static uint32_t find_place(const layer_view *v, uint32_t newcomer)
{
    const strata__cache *cache = &v->session->cache;
    uint32_t found = cache->experts, empty = cache->experts;
    if (cache->places[v->first + newcomer])
        return newcomer;
    for (uint32_t e = 0; e < cache->experts; ++e) {
        if (!cache->places[v->first + e])
            continue;
        if (state_of(v, e) == STRATA__BLOB_ABSENT)
            empty = e;
        else if (state_of(v, e) == STRATA__BLOB_PRESENT &&
                 (found == cache->experts || is_better(v, found, e)))
            found = e;
    }
    return empty < cache->experts ? empty : found;
}

static bool is_worth_it(const layer_view *v, uint32_t newcomer, uint32_t old)
{
    const strata_cache_policy *policy = &v->session->decode.cache.policy;
    if (state_of(v, old) == STRATA__BLOB_ABSENT)
        return true;
    if (is_alone(v, newcomer) != is_alone(v, old))
        return is_alone(v, newcomer);
    return is_used(v, newcomer) &&
           v->score[newcomer] > v->score[old] * (1 + policy->margin) + policy->margin_uses;
}

/* The place changes hands: for steps neither is on the device until the copies are done. */
static strata_status admit(const layer_view *v, uint32_t newcomer, uint32_t old,
                           strata__admit_batch *batch)
{
    strata_session *session = v->session;
    strata__cache *cache = &session->cache;
    strata__decode_experts *table = &session->decode.experts;
    uint8_t *place = cache->places[v->first + old];
    strata_expert_blob given = {0};
    if (session->experts.expert_fn &&
        strata__experts_ask(session, v->layer, newcomer, &given) != STRATA_OK)
        return STRATA_ERR_STATE;
    cache->places[v->first + old] = NULL;
    cache->states[v->first + old] = STRATA__BLOB_ABSENT;
    cache->places[v->first + newcomer] = place;
    cache->states[v->first + newcomer] = STRATA__BLOB_COPYING;
    table->generation += table->generation == cache->generation;
    cache->generation++;
    show(session, v->first + old);
    batch->index[batch->count++] = v->first + newcomer;
    return strata__blob_send(session, session->copies, v->layer, newcomer, &given, place,
                             &session->cancel);
}

/* Bytes of experts that may still be admitted, and the batch that they are in. */
typedef struct allowance {
    strata__admit_batch *batch;
    uint64_t bytes;
} allowance;

static strata_status admit_from(layer_view *v, allowance *left)
{
    uint64_t bytes = strata__blob_bytes(v->session, v->layer);
    strata_status status = STRATA_OK;
    while (status == STRATA_OK && left->batch->count < STRATA__ADMIT_MOST) {
        uint32_t newcomer = find_newcomer(v), old;
        if (newcomer == v->session->cache.experts)
            return STRATA_OK;
        old = find_place(v, newcomer);
        if (old == v->session->cache.experts || !is_worth_it(v, newcomer, old))
            return STRATA_OK;
        if (bytes > left->bytes && left->batch->count)
            return STRATA_OK;
        status = admit(v, newcomer, old, left->batch);
        left->bytes -= bytes < left->bytes ? bytes : left->bytes;
    }
    return status;
}

static const uint32_t *offsets_of(const strata_session *session, uint32_t layer)
{
    const strata__layout_buffer *host =
        strata__layout_find_work_host(&session->layout->decode, STRATA__BUFFER_HOST_OFFSETS);
    return (const uint32_t *)(session->decode.host.region.base + host->offset +
                              session->decode.experts.row[layer] * host->row_bytes);
}

/* What a layer's experts were used for, and where they were found. */
static void count_layer(strata_session *session, uint32_t layer)
{
    strata__decode_cache *c = &session->decode.cache;
    strata__counters *counters = &session->counters;
    const uint32_t *offsets = offsets_of(session, layer);
    uint64_t hit = 0, fetched = 0, in_place = 0, bytes = strata__blob_bytes(session, layer);
    for (uint32_t e = 0; e < session->cache.experts; ++e) {
        uint64_t index = strata__cache_index(&session->cache, layer, e);
        uint32_t rows = offsets[e + 1] - offsets[e];
        if (!rows)
            continue;
        session->cache.uses[index] += rows;
        c->seen[index] += rows;
        c->score[index] += c->now * rows;
        if (session->cache.states[index] == STRATA__BLOB_PRESENT) {
            hit++;
        } else if (strata__decode_experts_is_fetched(session, layer, e)) {
            fetched++;
            strata__decode_experts_forget(session, layer, e);
        } else {
            in_place++;
        }
    }
    strata__counter_add(&counters->decode_hit_bytes, hit * bytes);
    strata__counter_add(&counters->decode_fetch_bytes, fetched * bytes);
    strata__counter_add(&counters->decode_place_bytes, in_place * bytes);
}

/* Layers take turns at being the first to be served. */
static strata_status admit_all(strata_session *session, allowance *left)
{
    strata__decode_cache *c = &session->decode.cache;
    uint32_t layers = session->geometry->layers;
    strata_status status = STRATA_OK;
    for (uint32_t i = 0; i < layers && status == STRATA_OK; ++i) {
        uint32_t layer = (c->turn + i) % layers;
        layer_view view;
        if (session->layers[layer].ffn != STRATA__FFN_EXPERTS)
            continue;
        view_layer(session, layer, offsets_of(session, layer), &view);
        status = admit_from(&view, left);
        if (!left->bytes || left->batch->count == STRATA__ADMIT_MOST) {
            c->turn = layer + 1;
            break;
        }
    }
    return status;
}

static void begin_batch(strata_session *session)
{
    strata__decode_cache *c = &session->decode.cache;
    allowance left = {batch_at(c, c->count), c->policy.admit_bytes};
    strata_status status;
    left.batch->count = 0;
    status = admit_all(session, &left);
    if (!left.batch->count)
        return;
    c->count++;
    if (status == STRATA_OK || status == STRATA_ERR_STATE)
        status =
            session->device->ops->event_record(session->device, left.batch->done, session->copies);
    if (status != STRATA_OK)
        abandon(session);
}

void strata__decode_cache_learn(strata_session *session, uint32_t rows)
{
    strata__decode_cache *c = &session->decode.cache;
    if (!is_on(session) || session->experts.source != STRATA__SOURCE_STREAMED)
        return;
    for (uint32_t l = 0; l < session->geometry->layers; ++l)
        if (session->layers[l].ffn == STRATA__FFN_EXPERTS)
            count_layer(session, l);
    if (!c->policy.frozen && c->count < STRATA__ADMIT_BATCHES)
        begin_batch(session);
    age(session, rows);
}

strata_status strata__session_set_cache_policy(strata_session *session,
                                               const strata_cache_policy *policy)
{
    strata_cache_policy *own = &session->decode.cache.policy;
    strata__saved_device saved;
    strata_status status = strata__session_enter(session, &saved);
    if (status != STRATA_OK)
        return status;
    *own = *policy;
    own->half_life_tokens =
        own->half_life_tokens > 0 ? own->half_life_tokens : defaults.half_life_tokens;
    own->margin = own->margin > 0 ? own->margin : defaults.margin;
    own->margin_uses = own->margin_uses > 0 ? own->margin_uses : defaults.margin_uses;
    own->admit_bytes = own->admit_bytes ? own->admit_bytes : defaults.admit_bytes;
    strata__session_leave(session, &saved);
    return STRATA_OK;
}
