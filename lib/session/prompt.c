/* SPDX-License-Identifier: MIT */
/*
 * Reading a prompt: equal chunks, each through all layers. A chunk counts once the device has
 * finished all of it; whatever stops a prompt, the sequence is left at the last chunk that counted.
 */
#include <string.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/error.h"
#include "session/request.h"
#include "session/session.h"
#include "session/state.h"
#include "session/step.h"

typedef struct prompt {
    strata_prefill *prefill;
    const strata_prefill_request *request;
    uint32_t sequence;
    uint64_t start; /* length of the sequence before the prompt */
    uint64_t chunk_count;
    strata_prefill_result *result;
} prompt;

static strata_status check_request(const strata_session *session,
                                   const strata_prefill_request *request)
{
    const strata__request_tokens tokens = {.tokens = request->tokens,
                                           .count = request->token_count,
                                           .sequence_id = request->sequence_id,
                                           .is_prompt = true};
    const strata__request_logits logits = {.structure = "strata_prefill_request",
                                           .out = request->logits,
                                           .capacity = request->logits_capacity,
                                           .mode = request->logits_mode,
                                           .rows = request->token_count,
                                           .last_rows = 1};
    uint64_t length;
    strata_status status =
        strata__request_check_room(session, &tokens, STRATA_ERR_INVALID_ARGUMENT, &length);
    if (status == STRATA_OK)
        status = strata__request_check_tokens(session, &tokens);
    if (status == STRATA_OK)
        status = strata__request_check_logits(session, &logits);
    /* Before any token is read, as with the context. */
    if (status == STRATA_OK)
        status = strata__kv_check_pages(&session->kv, (uint32_t)request->sequence_id,
                                        length + request->token_count);
    return status;
}

/* Once a layer: tells how far the prompt is, and asks whether it is to go on. */
static strata_status report(const prompt *p, const strata__step *step, uint64_t done_tokens,
                            uint32_t layer)
{
    const strata_prefill_request *request = p->request;
    strata_session *session = step->session;
    strata_progress progress = {0};
    progress.struct_size = sizeof progress;
    progress.layer = layer;
    progress.layer_count = session->geometry->layers;
    progress.done_tokens = done_tokens;
    progress.chunk_tokens = step->rows;
    progress.total_tokens = request->token_count;
    if (request->progress_fn && request->progress_fn(request->progress_user_data, &progress) != 0)
        return strata__fail(STRATA_ERR_CANCELLED, "the progress callback stopped the prompt");
    return strata__session_check_cancel(session, "the prompt");
}

/* The callback's time is the host's. */
static strata_status report_timed(const prompt *p, strata__step *step, uint64_t done_tokens,
                                  uint32_t layer)
{
    strata_status status;
    if (!p->request->progress_fn)
        return report(p, step, done_tokens, layer);
    status = strata__timeline_begin(step->timeline, STRATA__SPAN_HOST);
    if (status == STRATA_OK)
        status = report(p, step, done_tokens, layer);
    return status == STRATA_OK ? strata__timeline_end(step->timeline) : status;
}

static strata_status chunk_logits(const prompt *p, strata__step *step, uint64_t done_tokens)
{
    const strata_prefill_request *request = p->request;
    bool is_last = done_tokens + step->rows == request->token_count;
    uint64_t vocabulary = step->session->geometry->vocabulary;
    if (request->logits_mode == STRATA_LOGITS_ALL)
        return strata__step_logits(step, 0, step->rows, request->logits + done_tokens * vocabulary);
    if (request->logits_mode == STRATA_LOGITS_LAST && is_last)
        return strata__step_logits(step, step->rows - 1, 1, request->logits);
    return STRATA_OK;
}

static strata_status run_layers(const prompt *p, strata__step *step, uint64_t done_tokens)
{
    uint32_t layers = step->session->geometry->layers;
    strata_status status = strata__step_begin(step);
    if (status == STRATA_OK)
        status = strata__step_advance(step);
    if (status == STRATA_OK)
        status = strata__step_embed(step);
    for (uint32_t layer = 0; layer < layers && status == STRATA_OK; ++layer) {
        strata__step_layer(step, layer);
        status = strata__step_attention(step);
        if (status == STRATA_OK)
            status = strata__step_ffn(step);
        if (status == STRATA_OK)
            status = report_timed(p, step, done_tokens, layer + 1);
    }
    return status;
}

/* Chunk i of n takes the tokens from total * i / n on, so that no two differ by more than one. */
static uint64_t chunk_start(const prompt *p, uint64_t index)
{
    uint64_t total = p->request->token_count, whole = total / p->chunk_count;
    uint64_t rest = total % p->chunk_count;
    return index * whole + (index < rest ? index : rest);
}

static strata__feed_way way_of(const strata_session *session, uint64_t rows)
{
    const strata__layout_work *work = &session->layout->prompt;
    uint32_t band = strata__layout_band_of(work, rows);
    bool fetch = band < work->band_count && work->bands[band].fetch;
    return (strata__feed_way){.rows = (uint32_t)rows, .fetch = rows && fetch};
}

static void begin_feed(const prompt *p, uint64_t index, uint64_t rows)
{
    const strata_session *session = p->prefill->session;
    uint64_t next = 0;
    if (index + 1 < p->chunk_count)
        next = chunk_start(p, index + 2) - chunk_start(p, index + 1);
    strata__feed_chunk(&p->prefill->feed, index, way_of(session, rows), way_of(session, next));
}

/* Until the device has done the chunk, blobs of the next one are sent. */
static strata_status wait_for_chunk(strata__step *step)
{
    strata_session *session = step->session;
    const strata__device_ops *ops = session->device->ops;
    strata_status status = STRATA_OK;
    bool done = false;
    if (!step->feed)
        return STRATA_OK;
    status = ops->event_record(session->device, session->routed, session->stream);
    while (status == STRATA_OK && !done) {
        status = ops->event_query(session->device, session->routed, &done);
        if (status == STRATA_OK)
            status = strata__step_advance(step);
    }
    return status;
}

static strata_status run_chunk(const prompt *p, uint64_t index, uint64_t first, uint64_t end)
{
    strata_prefill *prefill = p->prefill;
    strata_session *session = prefill->session;
    strata__step_part part = {0};
    strata__step step = {0};
    strata_status status;
    part.tokens = p->request->tokens + first;
    part.sequence = p->sequence;
    part.rows = (uint32_t)(end - first);
    part.position = p->start + first;
    step.session = session;
    step.work = &session->layout->prompt;
    step.base = prefill->memory.base;
    strata__step_use(&step, &prefill->host);
    step.timeline = &prefill->timeline;
    step.parts = &part;
    step.part_count = 1;
    if (session->experts.source == STRATA__SOURCE_STREAMED)
        step.feed = &prefill->feed;
    step.rows = part.rows;
    step.chunk = index;
    step.is_paced = session->experts.source == STRATA__SOURCE_RESIDENT &&
                    (uint64_t)part.rows * session->geometry->top_k <= step.work->expert_tile;
    if (step.feed)
        begin_feed(p, index, part.rows);
    status = strata__kv_reserve(&session->kv, p->sequence, p->start + end);
    if (status == STRATA_OK)
        status = strata__timeline_chunk_begin(step.timeline);
    if (status == STRATA_OK)
        status = run_layers(p, &step, first);
    if (status == STRATA_OK)
        status = chunk_logits(p, &step, first);
    if (status == STRATA_OK)
        status = strata__timeline_chunk_end(step.timeline);
    if (status == STRATA_OK && index + 1 < p->chunk_count)
        status = wait_for_chunk(&step);
    if (status == STRATA_OK)
        status = session->device->ops->stream_synchronize(session->device, session->stream);
    strata__timeline_read(step.timeline);
    return status;
}

static strata_status run_chunks(const prompt *p)
{
    strata_session *session = p->prefill->session;
    strata_status status = strata__experts_begin(p->prefill, p->chunk_count);
    for (uint64_t i = 0; i < p->chunk_count && status == STRATA_OK; ++i) {
        uint64_t end = chunk_start(p, i + 1);
        status = run_chunk(p, i, chunk_start(p, i), end);
        if (status != STRATA_OK)
            break;
        strata__kv_set_length(&session->kv, p->sequence, p->start + end);
        p->result->read_tokens = end;
        p->result->chunk_count++;
    }
    return status;
}

/* Copies that were enqueued are waited for, so that their sources and targets are free again. */
static void finish_feed(const prompt *p)
{
    strata_session *session = p->prefill->session;
    strata_status kernels, copies;
    if (session->experts.source != STRATA__SOURCE_STREAMED)
        return;
    kernels = session->device->ops->stream_synchronize(session->device, session->stream);
    copies = strata__session_wait_copies(session);
    session->is_unsettled |= kernels != STRATA_OK;
    strata__experts_end(p->prefill, kernels == STRATA_OK && copies == STRATA_OK);
}

/* The call's time: what the stream was idle for beside its chunks is the host's. */
static void count_time(const prompt *p)
{
    strata__counters *c = &p->prefill->session->counters;
    uint64_t *ns = p->prefill->timeline.ns, wall = p->result->wall_ns, kernels;
    uint64_t waits = ns[STRATA__SPAN_BLOBS] + ns[STRATA__SPAN_HOST];
    kernels = ns[STRATA__SPAN_CHUNK] > waits ? ns[STRATA__SPAN_CHUNK] - waits : 0;
    waits = kernels + ns[STRATA__SPAN_BLOBS];
    strata__counter_add(&c->prompt_ns, wall);
    strata__counter_add(&c->kernel_ns, kernels);
    strata__counter_add(&c->blob_wait_ns, ns[STRATA__SPAN_BLOBS]);
    strata__counter_add(&c->host_gap_ns, wall > waits ? wall - waits : 0);
    memset(ns, 0, sizeof p->prefill->timeline.ns);
}

static void finish(const prompt *p, strata_status status, uint64_t begin_ns)
{
    strata_session *session = p->prefill->session;
    finish_feed(p);
    if (status != STRATA_OK) {
        /* Nothing of the failed chunk may be in flight when its pages are given away. */
        strata__session_drain(session, status);
        strata__kv_set_length(&session->kv, p->sequence, p->start + p->result->read_tokens);
    }
    p->result->sequence_tokens = strata__kv_length(&session->kv, p->sequence);
    p->result->wall_ns = strata__clock_ns() - begin_ns;
    strata__counter_add(&session->counters.prompt_tokens, p->result->read_tokens);
    strata__counter_add(&session->counters.prompt_chunks, p->result->chunk_count);
    count_time(p);
}

strata_status strata__prefill_run(strata_prefill *prefill, const strata_prefill_request *request,
                                  strata_prefill_result *out)
{
    strata_session *session = prefill->session;
    uint64_t begin_ns = strata__clock_ns(), chunk_tokens = session->layout->prompt.chunk_tokens;
    strata__saved_device saved;
    prompt p = {0};
    strata_status status = strata__session_enter(session, &saved);
    if (status != STRATA_OK)
        return status;
    status = check_request(session, request);
    if (status == STRATA_OK) {
        p.prefill = prefill;
        p.request = request;
        p.result = out;
        p.sequence = (uint32_t)request->sequence_id;
        p.start = strata__kv_length(&session->kv, p.sequence);
        p.chunk_count = strata__divide_up_u64(request->token_count, chunk_tokens);
        status = run_chunks(&p);
        finish(&p, status, begin_ns);
    }
    strata__session_leave(session, &saved);
    return status;
}
