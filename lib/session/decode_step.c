/* SPDX-License-Identifier: MIT */
#include "session/decode_step.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "session/budget.h"

/* What the refill of a loan has copied, and the table of it. */
static void publish_loan(strata_session *session)
{
    strata__decode_experts *table = &session->decode.experts;
    const strata__loan *loan = &session->loan;
    uint64_t from = loan->published;
    bool is_current = !table->is_stale && table->generation == session->cache.generation;
    strata__loan_publish(&session->loan);
    if (!is_current)
        return;
    for (uint64_t i = from; i < loan->published; ++i)
        strata__decode_experts_set(session,
                                   (uint32_t)(loan->blobs[i].index / session->cache.experts),
                                   (uint32_t)(loan->blobs[i].index % session->cache.experts));
    table->generation = session->cache.generation;
}

/* What has come to the device meanwhile is found there from here on. */
static strata_status publish(strata_session *session)
{
    strata_status status;
    strata__loan_return(&session->loan, true);
    /* The caller's memory for an expert may change when a step asks for it. */
    if (session->experts.expert_fn)
        strata__loan_settle(&session->loan);
    publish_loan(session);
    status = session->experts.expert_fn ? strata__decode_cache_settle(session)
                                        : strata__decode_cache_publish(session);
    if (session->decode.experts.is_stale)
        strata__decode_cache_catch_up(session);
    return status;
}

/* Between steps. */
static strata_status look_at_cache(strata_session *session)
{
    strata_status status = STRATA_OK;
    if (!strata__has_cache(session))
        return STRATA_OK;
    if (!strata__budget_is_met(session))
        status = strata__budget_apply(session);
    if (status == STRATA_OK && session->experts.source == STRATA__SOURCE_STREAMED)
        status = publish(session);
    strata__decode_experts_refresh(session);
    return status == STRATA_OK ? strata__decode_experts_upload(session) : status;
}

static strata_status reserve(const strata__round *r)
{
    strata_status status = STRATA_OK;
    for (uint32_t i = 0; i < r->request->part_count && status == STRATA_OK; ++i)
        status = strata__kv_reserve(&r->session->kv, r->parts[i].sequence,
                                    r->parts[i].position + r->parts[i].rows);
    return status;
}

/* Of a single part only the last row has to have logits; else rows lie anywhere. */
static bool is_last_alone(const strata__round *r)
{
    return r->request->logits_mode == STRATA_LOGITS_LAST && r->request->part_count == 1;
}

static strata_status enqueue_logits(const strata__round *r, strata__step *step)
{
    if (r->request->logits_mode == STRATA_LOGITS_NONE)
        return STRATA_OK;
    strata__step_layer(step, r->session->geometry->layers);
    return is_last_alone(r) ? strata__step_enqueue_logits(step, r->rows - 1, 1)
                            : strata__step_enqueue_logits(step, 0, r->rows);
}

/* Everything that the device does but for the page table. */
static strata_status enqueue(const strata__round *r, strata__step *step)
{
    strata_session *session = r->session;
    strata_status status = strata__step_upload(step);
    if (status == STRATA_OK)
        status = strata__step_embed(step);
    for (uint32_t layer = 0; layer < session->geometry->layers && status == STRATA_OK; ++layer) {
        strata__step_layer(step, layer);
        status = strata__step_attention(step);
        if (status == STRATA_OK)
            status = strata__step_ffn(step);
        if (status == STRATA_OK)
            status = strata__session_check_cancel(session, "the step");
    }
    return status == STRATA_OK ? enqueue_logits(r, step) : status;
}

/* Records what a step enqueues; the recording is ended, and dropped, when that fails. */
static strata_status record(const strata__round *r, strata__step *step, strata__device_graph **out)
{
    strata__device *device = r->session->device;
    strata__device_graph *graph = NULL;
    strata_status status = enqueue(r, step), ended;
    char text[512];
    snprintf(text, sizeof text, "%s", strata__error_text());
    ended =
        device->ops->capture_end(device, r->session->stream, status == STRATA_OK ? &graph : NULL);
    if (status != STRATA_OK)
        return strata__fail(status, "%s", text);
    *out = graph;
    return ended;
}

/* What is enqueued anyway where nothing can be recorded. */
static strata_status launch(const strata__round *r, strata__step *step)
{
    strata_session *session = r->session;
    strata__device *device = session->device;
    strata__graph_shape shape = {r->rows, r->request->part_count, r->request->logits_mode, 0,
                                 step->kv_bound};
    strata__device_graph *graph = strata__decode_graph_find(session, &shape);
    strata_status status = STRATA_OK;
    if (!graph) {
        uint64_t free_bytes = strata__session_free_bytes(session);
        status = device->ops->capture_begin(device, session->stream);
        if (status == STRATA_ERR_UNSUPPORTED) {
            session->decode.graphs.is_off = true;
            return enqueue(r, step);
        }
        if (status == STRATA_OK)
            status = record(r, step, &graph);
        if (status == STRATA_OK)
            strata__decode_graph_keep(session, &shape, graph);
        strata__session_measure_since(session, free_bytes);
    }
    return status == STRATA_OK ? device->ops->graph_launch(device, graph, session->stream) : status;
}

/* The highest position, rounded up to what a recording is good for. */
static uint64_t kv_bound(const strata__round *r)
{
    const strata__layout *layout = r->session->layout;
    uint64_t planned = (uint64_t)layout->pages_per_sequence * layout->page_tokens, most = 0, bound;
    for (uint32_t i = 0; i < r->request->part_count; ++i)
        if (r->parts[i].position + r->parts[i].rows > most)
            most = r->parts[i].position + r->parts[i].rows;
    bound = strata__decode_kv_bound(most);
    return bound < planned ? bound : planned;
}

static void hand_out_logits(const strata__round *r, const strata__step *step)
{
    uint64_t vocabulary = r->session->geometry->vocabulary, bytes = vocabulary * sizeof(float);
    float *out = r->request->logits;
    uint32_t row = 0;
    if (r->request->logits_mode == STRATA_LOGITS_NONE)
        return;
    if (r->request->logits_mode == STRATA_LOGITS_ALL) {
        memcpy(out, strata__step_host_logits(step, 0), r->rows * bytes);
        return;
    }
    for (uint32_t i = 0; i < r->request->part_count; ++i, out += vocabulary) {
        row += r->parts[i].rows;
        memcpy(out, strata__step_host_logits(step, is_last_alone(r) ? 0 : row - 1), bytes);
    }
}

static void init_step(const strata__round *r, strata__step *step)
{
    strata_session *session = r->session;
    memset(step, 0, sizeof *step);
    step->session = session;
    step->work = &session->layout->decode;
    step->base = session->memory.base;
    strata__step_use(step, &session->decode.host);
    step->parts = r->parts;
    step->part_count = r->request->part_count;
    step->rows = r->rows;
    step->is_blind = r->is_blind;
    step->is_decode = true;
    if (r->is_blind && session->device->facts.graphs && !session->decode.graphs.is_off)
        step->kv_bound = kv_bound(r);
}

strata_status strata__round_run(strata__round *r)
{
    strata_session *session = r->session;
    strata_status status = look_at_cache(session);
    strata__step step;
    r->is_blind =
        session->experts.source != STRATA__SOURCE_CALLBACK && !session->decode.experts.absent;
    init_step(r, &step);
    if (status == STRATA_OK)
        status = reserve(r);
    if (status == STRATA_OK)
        status = strata__step_prepare(&step);
    if (status == STRATA_OK)
        status = strata__step_upload_pages(&step);
    if (status == STRATA_OK)
        status = step.kv_bound ? launch(r, &step) : enqueue(r, &step);
    if (status == STRATA_OK)
        status = session->device->ops->stream_synchronize(session->device, session->stream);
    if (status == STRATA_OK)
        hand_out_logits(r, &step);
    return status;
}
