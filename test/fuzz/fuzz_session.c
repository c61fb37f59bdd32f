/* SPDX-License-Identifier: MIT */
/*
 * Runs any bytes as a model: opens them as a pack, plans with little memory, reads a prompt in two
 * chunks and decodes a few rows behind it. What must hold: no crash, every refusal has a text, and
 * every logit is written.
 */
#include <stdlib.h>
#include <string.h>

#include <strata/strata.h>

#include "fuzz_target.h"
#include "must.h"

enum {
    PROMPT_TOKENS = 5,
    CHUNK_TOKENS = 3,
    CONTEXT_TOKENS = 16,
    DECODE_ROWS = 3,
    MOST_LOGITS = 1 << 20, /* larger vocabularies are left to planning */
    MOST_BYTES = 64 << 20
};

/* A pattern that no product gives. */
static void poison(float *logits, uint64_t count)
{
    memset(logits, 0x7b, count * sizeof *logits);
}

static int is_poisoned(const float *logit)
{
    static const uint8_t pattern[] = {0x7b, 0x7b, 0x7b, 0x7b};
    return memcmp(logit, pattern, sizeof pattern) == 0;
}

static void read_prompt(strata_session *session, uint64_t vocabulary)
{
    int32_t tokens[PROMPT_TOKENS];
    uint64_t count = strata_session_logits_count(session);
    strata_prefill_request request;
    strata_prefill_result result = {.struct_size = sizeof result};
    strata_prefill *prefill;
    strata_status status;
    float *logits;
    if (count == 0 || count > MOST_LOGITS)
        return;
    logits = malloc(count * sizeof *logits);
    must(logits != NULL, "memory for the logits");
    poison(logits, count);
    for (uint64_t i = 0; i < PROMPT_TOKENS; i++)
        tokens[i] = (int32_t)(i * 7919 % vocabulary);
    strata_prefill_request_init(&request, sizeof request);
    request.tokens = tokens;
    request.token_count = PROMPT_TOKENS;
    request.logits = logits;
    request.logits_capacity = count;
    status = strata_prefill_create(session, NULL, &prefill);
    if (status == STRATA_OK)
        status = strata_prefill_run(prefill, &request, &result);
    must_have_text(status);
    for (uint64_t i = 0; status == STRATA_OK && i < count; i++)
        must(!is_poisoned(&logits[i]), "a logit that is written");
    strata_prefill_destroy(prefill);
    free(logits);
}

static void decode(strata_session *session, uint64_t vocabulary)
{
    int32_t tokens[DECODE_ROWS];
    uint64_t count = DECODE_ROWS * strata_session_logits_count(session);
    const strata_decode_part part = {.token_count = DECODE_ROWS, .tokens = tokens};
    strata_decode_request request;
    strata_status status;
    float *logits;
    if (count == 0 || count > MOST_LOGITS)
        return;
    logits = malloc(count * sizeof *logits);
    must(logits != NULL, "memory for the logits");
    poison(logits, count);
    for (uint64_t i = 0; i < DECODE_ROWS; i++)
        tokens[i] = (int32_t)((i + 1) * 104729 % vocabulary);
    strata_decode_request_init(&request, sizeof request);
    request.parts = &part;
    request.part_count = 1;
    request.logits = logits;
    request.logits_capacity = count;
    request.logits_mode = STRATA_LOGITS_ALL;
    status = strata_session_decode(session, &request, NULL);
    must_have_text(status);
    for (uint64_t i = 0; status == STRATA_OK && i < count; i++)
        must(!is_poisoned(&logits[i]), "a logit that is written");
    free(logits);
}

static void run_model(strata_pack *pack, uint64_t vocabulary)
{
    strata_plan_options plan;
    strata_session_options options;
    strata_session *session;
    strata_status status;
    strata_plan_options_init(&plan, sizeof plan);
    plan.context_tokens = CONTEXT_TOKENS;
    plan.prompt_tokens = PROMPT_TOKENS;
    plan.chunk_tokens = CHUNK_TOKENS;
    plan.device_budget_bytes = MOST_BYTES;
    strata_session_options_init(&options, sizeof options);
    options.plan_options = &plan;
    options.thread_count = 1;
    options.blas = 1;
    status = strata_session_create(pack, &options, &session);
    must_have_text(status);
    if (status == STRATA_OK) {
        read_prompt(session, vocabulary);
        decode(session, vocabulary);
    }
    strata_session_destroy(session);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    strata_context *context;
    strata_pack *pack;
    strata_pack_info info = {.struct_size = sizeof info};
    must(strata_context_create(NULL, &context) == STRATA_OK, "a context");
    if (strata_pack_open_memory(context, data, bytes, &pack) == STRATA_OK &&
        strata_pack_info_get(pack, &info) == STRATA_OK && info.runnable && info.vocabulary_count)
        run_model(pack, info.vocabulary_count);
    strata_pack_close(pack);
    strata_context_destroy(context);
    return 0;
}
