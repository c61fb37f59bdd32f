/* SPDX-License-Identifier: MIT */
#include "session/decode.h"

#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "session/decode_step.h"
#include "session/request.h"
#include "session/session.h"

strata_status strata__decode_init(strata_session *session)
{
    const strata__layout_work *work = &session->layout->decode;
    strata__decode *decode = &session->decode;
    strata_status status;
    if (!work->chunk_tokens)
        return STRATA_OK;
    status = strata__step_host_init(&decode->host, &session->context->allocator, session->device,
                                    work, "what goes in and out of decoding");
    if (status != STRATA_OK)
        return status;
    strata__counter_add(&session->counters.host_bytes, decode->host.region.bytes);
    status = strata__decode_experts_init(session);
    if (status == STRATA_OK)
        status = strata__decode_cache_init(session);
    if (status != STRATA_OK)
        return status;
    return strata__experts_fix_tables(session, work, session->memory.base,
                                      decode->host.region.base);
}

void strata__decode_finish(strata_session *session)
{
    strata__decode *decode = &session->decode;
    if (session->copies)
        (void)session->device->ops->stream_synchronize(session->device, session->copies);
    strata__decode_graphs_finish(session);
    strata__decode_cache_finish(session);
    strata__decode_experts_finish(session);
    strata__step_host_finish(&decode->host, &session->context->allocator, session->device);
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
    const strata__request_tokens tokens = {.tokens = part->tokens,
                                           .count = part->token_count,
                                           .sequence_id = part->sequence_id,
                                           .part = index};
    uint32_t most = r->session->layout->decode.chunk_tokens;
    uint64_t length;
    strata_status status =
        strata__request_check_room(r->session, &tokens, STRATA_ERR_CAPACITY, &length);
    if (status != STRATA_OK)
        return status;
    for (uint32_t i = 0; i < index; ++i)
        if (r->request->parts[i].sequence_id == part->sequence_id)
            return strata__fail(STRATA_ERR_INVALID_ARGUMENT,
                                "parts %u and %u are both of sequence %d", i, index,
                                (int)part->sequence_id);
    if (part->token_count > most - r->rows)
        return strata__fail(STRATA_ERR_CAPACITY,
                            "the step has more than the %u rows planned for decoding", most);
    r->parts[index] = (strata__step_part){.tokens = part->tokens,
                                          .sequence = (uint32_t)part->sequence_id,
                                          .rows = part->token_count,
                                          .position = length};
    r->rows += part->token_count;
    return strata__request_check_tokens(r->session, &tokens);
}

static strata__request_logits logits_of(const strata__round *r)
{
    return (strata__request_logits){.structure = "strata_decode_request",
                                    .out = r->request->logits,
                                    .capacity = r->request->logits_capacity,
                                    .mode = r->request->logits_mode,
                                    .rows = r->rows,
                                    .last_rows = r->request->part_count};
}

static strata_status check_request(strata__round *r)
{
    uint32_t most = r->session->layout->decode.chunk_tokens;
    strata__request_logits logits;
    strata_status status = STRATA_OK;
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
    logits = logits_of(r);
    return status == STRATA_OK ? strata__request_check_logits(r->session, &logits) : status;
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
    const strata__request_logits logits = logits_of(r);
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
    out->logits_count = session->geometry->vocabulary * strata__request_logit_rows(&logits);
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
