/* SPDX-License-Identifier: MIT */
#include "session/decode.h"

#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "session/decode_step.h"
#include "session/session.h"

strata_status strata__decode_init(strata_session *session)
{
    const strata__layout_work *work = &session->layout->decode;
    strata__decode *decode = &session->decode;
    uint64_t entries = (uint64_t)work->segment_capacity + 1;
    strata_status status;
    if (!work->chunk_tokens)
        return STRATA_OK;
    decode->tile_segment =
        strata__calloc(&session->context->allocator, entries, sizeof *decode->tile_segment);
    if (!decode->tile_segment)
        return strata__fail_memory(entries * sizeof *decode->tile_segment, "the tiles of a step");
    decode->tile_capacity = work->segment_capacity;
    status = strata__region_alloc_host(&decode->host, session->device, work->host_bytes,
                                       "what goes in and out of decoding");
    if (status != STRATA_OK)
        return status;
    /* No grouping has left its flag: values from 1 on. */
    memset(decode->host.base, 0, decode->host.bytes);
    strata__counter_add(&session->counters.host_bytes, decode->host.bytes);
    status = strata__decode_experts_init(session);
    if (status == STRATA_OK)
        status = strata__decode_cache_init(session);
    if (status != STRATA_OK)
        return status;
    return strata__experts_fix_tables(session, work, session->memory.base, decode->host.base);
}

void strata__decode_finish(strata_session *session)
{
    strata__decode *decode = &session->decode;
    if (session->copies)
        (void)session->device->ops->stream_synchronize(session->device, session->copies);
    strata__decode_graphs_finish(session);
    strata__decode_cache_finish(session);
    strata__decode_experts_finish(session);
    strata__region_free(&decode->host, session->device);
    if (decode->tile_segment)
        strata__free(&session->context->allocator, decode->tile_segment,
                     (decode->tile_capacity + 1ull) * sizeof *decode->tile_segment);
    memset(decode, 0, sizeof *decode);
}

strata_status strata__decode_settle(strata_session *session)
{
    return strata__decode_cache_settle(session);
}

void strata__decode_forget(strata_session *session)
{
    session->decode.experts.is_stale = true;
}

static strata_status check_part(strata__round *r, uint32_t index)
{
    const strata_decode_part *part = &r->request->parts[index];
    uint64_t length, context = r->session->layout->context_tokens;
    uint32_t vocabulary = r->session->geometry->vocabulary;
    strata_status status = strata__session_length(r->session, part->sequence_id, &length);
    if (status != STRATA_OK)
        return status;
    for (uint32_t i = 0; i < index; ++i)
        if (r->request->parts[i].sequence_id == part->sequence_id)
            return strata__fail(STRATA_ERR_INVALID_ARGUMENT,
                                "parts %u and %u are both of sequence %d", i, index,
                                (int)part->sequence_id);
    if (!part->tokens || !part->token_count)
        return strata__fail(STRATA_ERR_INVALID_ARGUMENT, "part %u: no tokens", index);
    if (part->token_count > r->session->layout->decode.chunk_tokens - r->rows)
        return strata__fail(STRATA_ERR_CAPACITY,
                            "the step has more than the %u rows planned for decoding",
                            r->session->layout->decode.chunk_tokens);
    if (part->token_count > context - length)
        return strata__fail(STRATA_ERR_CAPACITY,
                            "sequence %d is full: %u tokens at position %llu, the context is %llu",
                            (int)part->sequence_id, part->token_count, (unsigned long long)length,
                            (unsigned long long)context);
    for (uint32_t i = 0; i < part->token_count; ++i)
        if (part->tokens[i] < 0 || (uint32_t)part->tokens[i] >= vocabulary)
            return strata__fail(STRATA_ERR_INVALID_ARGUMENT,
                                "token %u of part %u is %d; the vocabulary has %u", i, index,
                                (int)part->tokens[i], vocabulary);
    r->parts[index].tokens = part->tokens;
    r->parts[index].sequence = (uint32_t)part->sequence_id;
    r->parts[index].rows = part->token_count;
    r->parts[index].position = length;
    r->rows += part->token_count;
    return STRATA_OK;
}

static strata_status check_logits(const strata__round *r)
{
    const strata_decode_request *request = r->request;
    uint64_t rows = request->logits_mode == STRATA_LOGITS_ALL ? r->rows : request->part_count;
    uint64_t vocabulary = r->session->geometry->vocabulary;
    if (request->logits_mode > STRATA_LOGITS_NONE)
        return strata__fail(STRATA_ERR_UNSUPPORTED,
                            "strata_decode_request: logits_mode %u is unknown",
                            request->logits_mode);
    if (request->logits_mode == STRATA_LOGITS_NONE)
        return STRATA_OK;
    if (!request->logits)
        return strata__fail(STRATA_ERR_INVALID_ARGUMENT, "strata_decode_request: logits is NULL");
    if (request->logits_capacity / vocabulary < rows)
        return strata__fail(STRATA_ERR_BUFFER_TOO_SMALL,
                            "the logits of %llu rows have %llu values each; there is room for %llu "
                            "values",
                            (unsigned long long)rows, (unsigned long long)vocabulary,
                            (unsigned long long)request->logits_capacity);
    return STRATA_OK;
}

static strata_status check_request(strata__round *r)
{
    strata_status status = STRATA_OK;
    uint32_t most = r->session->layout->decode.chunk_tokens;
    if (!most)
        return strata__fail(STRATA_ERR_STATE, "the session's plan has no rows for decoding");
    if (!r->request->parts || !r->request->part_count)
        return strata__fail(STRATA_ERR_INVALID_ARGUMENT, "strata_decode_request: no parts");
    if (r->request->part_count > most)
        return strata__fail(STRATA_ERR_CAPACITY,
                            "the step has %u parts, more than the %u rows planned for decoding",
                            r->request->part_count, most);
    for (uint32_t i = 0; i < r->request->part_count && status == STRATA_OK; ++i)
        status = check_part(r, i);
    return status == STRATA_OK ? check_logits(r) : status;
}

/* Where the host does not see the launches: one a layer. */
static void count_experts(const strata__round *r)
{
    strata__counters *c = &r->session->counters;
    uint64_t layers = 0;
    for (uint32_t l = 0; l < r->session->geometry->layers; ++l)
        layers += r->session->layers[l].ffn == STRATA__FFN_EXPERTS;
    strata__counter_add(&c->expert_launches, layers);
    strata__counter_add(&c->expert_rows, layers * r->rows * r->session->geometry->top_k);
}

static void finish(strata__round *r, strata_status status, uint64_t begin_ns)
{
    strata_session *session = r->session;
    strata_decode_result *out = r->result;
    if (status != STRATA_OK) {
        /* Nothing of the step may be in flight when its pages are given away. */
        strata__session_drain(session, status);
        strata__decode_forget(session);
    }
    for (uint32_t i = 0; i < r->request->part_count; ++i) {
        const strata__step_part *part = &r->parts[i];
        out->sequence_tokens[i] = part->position + (status == STRATA_OK ? part->rows : 0);
        strata__kv_set_length(&session->kv, part->sequence, out->sequence_tokens[i]);
    }
    if (status == STRATA_OK)
        strata__decode_cache_learn(session, r->rows);
    out->wall_ns = strata__clock_ns() - begin_ns;
    if (status != STRATA_OK)
        return;
    out->row_count = r->rows;
    if (r->request->logits_mode != STRATA_LOGITS_NONE)
        out->logits_count =
            (uint64_t)session->geometry->vocabulary *
            (r->request->logits_mode == STRATA_LOGITS_ALL ? r->rows : r->request->part_count);
    if (r->is_blind)
        count_experts(r);
    strata__counter_add(&session->counters.decode_steps, 1);
    strata__counter_add(&session->counters.decode_tokens, r->rows);
    strata__counter_add(&session->counters.decode_ns, out->wall_ns);
}

strata_status strata__session_decode(strata_session *session, const strata_decode_request *request,
                                     strata_decode_result *out)
{
    uint64_t begin_ns = strata__clock_ns();
    strata__saved_device saved;
    strata__round r = {0};
    strata_status status = strata__session_enter(session, &saved);
    if (status != STRATA_OK)
        return status;
    r.session = session;
    r.request = request;
    r.result = out;
    status = check_request(&r);
    if (status == STRATA_OK) {
        status = strata__round_run(&r);
        finish(&r, status, begin_ns);
    }
    strata__session_leave(session, &saved);
    return status;
}
