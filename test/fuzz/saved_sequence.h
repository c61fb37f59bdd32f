/* SPDX-License-Identifier: MIT */
/* The session whose saved sequences are fuzzed: deterministic, and with a small KV cache. */
#ifndef TEST_FUZZ_SAVED_SEQUENCE_H
#define TEST_FUZZ_SAVED_SEQUENCE_H

#include <stdint.h>

#include <strata/prefill.h>

#include "base/context.h"
#include "pack/pack.h"
#include "session/saved.h"
#include "session/session.h"
#include "support/tiny_pack.h"

enum { FUZZ_SEQUENCES = 2, FUZZ_CONTEXT_TOKENS = 128, FUZZ_HELD_TOKENS = 5 };

/* What an input's first byte asks to be put right, so that other faults are reached. */
enum { FUZZ_REPAIR_PACK = 1, FUZZ_REPAIR_HEADER = 2, FUZZ_REPAIR_END = 4 };

/* Ends the program when anything goes wrong. */
static inline strata_session *fuzz_session(void)
{
    const strata_context_options options = {.struct_size = sizeof options};
    const strata_plan_options plan = {.struct_size = sizeof plan,
                                      .context_tokens = FUZZ_CONTEXT_TOKENS,
                                      .sequence_count = FUZZ_SEQUENCES,
                                      .kv_format = STRATA_KV_Q8_0};
    strata_session_options session_options = {
        .struct_size = sizeof session_options, .thread_count = 1, .plan_options = &plan};
    tiny_spec spec = tiny_spec_default();
    strata_context *context;
    strata_pack *pack;
    strata_session *session;
    uint64_t bytes;
    const uint8_t *image = tiny_pack_make(&spec, &bytes);
    if (strata__context_create(&options, &context) != STRATA_OK ||
        strata__pack_open_memory(context, image, bytes, &pack) != STRATA_OK ||
        strata__session_create(pack, &session_options, &session) != STRATA_OK)
        abort();
    return session;
}

static inline void fuzz_read(strata_session *session, int32_t sequence, uint64_t count)
{
    const strata_prefill_options options = {.struct_size = sizeof options};
    strata_prefill_request request = {.struct_size = sizeof request};
    int32_t tokens[FUZZ_CONTEXT_TOKENS];
    strata_prefill_result result = {0};
    strata_prefill *prefill;
    for (int32_t i = 0; i < FUZZ_CONTEXT_TOKENS; i++)
        tokens[i] = i % 50;
    request.sequence_id = sequence;
    request.tokens = tokens;
    request.token_count = count;
    request.logits_mode = STRATA_LOGITS_NONE;
    if (strata__prefill_create(session, &options, &prefill) != STRATA_OK ||
        strata__prefill_run(prefill, &request, &result) != STRATA_OK)
        abort();
    strata__prefill_destroy(prefill);
}

#endif
