/* SPDX-License-Identifier: MIT */
#include "support/session_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

void fixture_ok(strata_status status)
{
    char text[512];
    if (status == STRATA_OK)
        return;
    strata_last_error(text, sizeof text);
    fail_msg("%s: %s", strata_status_name(status), text);
}

void fixture_text_has(const char *part)
{
    char text[512] = "";
    strata_last_error(text, sizeof text);
    if (!strstr(text, part))
        fail_msg("\"%s\" is not in \"%s\"", part, text);
}

static const uint32_t kv_formats[] = {STRATA_KV_F32, STRATA_KV_F16, STRATA_KV_Q8_0};

void fixture_open(fixture *f, const tiny_spec *spec, const fixture_options *options)
{
    strata_plan_options plan = {.struct_size = sizeof plan};
    strata_session_options session;
    memset(f, 0, sizeof *f);
    f->image = tiny_pack_make(spec, &f->image_bytes);
    fixture_ok(strata_context_create(options->context_options, &f->context));
    fixture_ok(strata_pack_open_memory(f->context, f->image, f->image_bytes, &f->pack));
    plan.chunk_tokens = options->chunk_tokens;
    plan.context_tokens = options->context_tokens;
    plan.sequence_count = options->sequence_count;
    plan.kv_format = kv_formats[options->kv];
    strata_session_options_init(&session, sizeof session);
    session.plan_options = &plan;
    session.blas = !options->use_blas;
    session.thread_count = options->threads ? options->threads : 1;
    session.expert_fn = options->expert_fn;
    session.expert_user_data = options->expert_user_data;
    fixture_ok(strata_session_create(f->pack, &session, &f->session));
    fixture_ok(strata_prefill_create(f->session, NULL, &f->prefill));
}

void fixture_close(fixture *f)
{
    strata_prefill_destroy(f->prefill);
    strata_session_destroy(f->session);
    strata_pack_close(f->pack);
    strata_context_destroy(f->context);
    free(f->image);
    memset(f, 0, sizeof *f);
}

strata_status fixture_read(const fixture *f, int32_t sequence, const int32_t *tokens,
                           uint64_t count, float *logits)
{
    strata_prefill_request request;
    strata_prefill_request_init(&request, sizeof request);
    request.sequence_id = sequence;
    request.tokens = tokens;
    request.token_count = count;
    request.logits = logits;
    request.logits_capacity = logits ? count * strata_session_logits_count(f->session) : 0;
    request.logits_mode = logits ? STRATA_LOGITS_ALL : STRATA_LOGITS_NONE;
    return strata_prefill_run(f->prefill, &request, NULL);
}

void fixture_tokens(uint64_t seed, uint32_t vocabulary, int32_t *tokens, uint64_t count)
{
    for (uint64_t i = 0; i < count; ++i)
        tokens[i] = (int32_t)(tiny_random(&seed) % vocabulary);
}
