/* SPDX-License-Identifier: MIT */
/*
 * Runs saved plans that were changed. An input is a list of edits, of eight bytes each: where (2),
 * how (1: set, add, exclusive or), how wide (1) and with what (4). They change a plan that was
 * saved here, so that inputs outlive the format; the checksum is made right again. What must hold:
 * no crash, every refusal has a text, and a plan that is taken reads a prompt to logits that are
 * all written.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <strata/strata.h>

#include "fuzz_target.h"
#include "support/tiny_pack.h"

enum { EDIT_BYTES = 8, CHECKSUM_BYTES = 8, PROMPT_TOKENS = 11, VOCABULARY = 96 };

static struct {
    strata_context *context;
    strata_pack *pack;
    uint8_t *plan;
    uint64_t plan_bytes;
} shared;

static void must(int holds, const char *what)
{
    char text[512] = "";
    if (holds)
        return;
    strata_last_error(text, sizeof text);
    fprintf(stderr, "does not hold: %s (\"%s\")\n", what, text);
    abort();
}

static void must_have_text(strata_status status)
{
    char text[512] = "";
    if (status == STRATA_OK)
        return;
    strata_last_error(text, sizeof text);
    must(text[0] != '\0', "a text of why it failed");
}

/* The pack and the plan that all inputs share live as long as the process. */
static void make_shared(void)
{
    tiny_spec spec = tiny_spec_default();
    strata_plan_options options;
    strata_plan *plan;
    uint64_t image_bytes;
    uint8_t *image = tiny_pack_make(&spec, &image_bytes);
    must(spec.vocabulary == VOCABULARY, "the vocabulary of the tiny pack");
    must(strata_context_create(NULL, &shared.context) == STRATA_OK, "a context");
    must(strata_pack_open_memory(shared.context, image, image_bytes, &shared.pack) == STRATA_OK,
         "a pack");
    strata_plan_options_init(&options, sizeof options);
    options.context_tokens = 32;
    options.prompt_tokens = PROMPT_TOKENS;
    options.chunk_tokens = 4;
    must(strata_plan_create(shared.pack, &options, &plan) == STRATA_OK, "a plan");
    must(strata_plan_save_memory(plan, NULL, 0, &shared.plan_bytes) == STRATA_ERR_BUFFER_TOO_SMALL,
         "the size of the plan");
    shared.plan = malloc(shared.plan_bytes);
    must(shared.plan && strata_plan_save_memory(plan, shared.plan, shared.plan_bytes,
                                                &shared.plan_bytes) == STRATA_OK,
         "the plan's bytes");
    strata_plan_destroy(plan);
}

static uint64_t little_endian(const uint8_t *data, uint32_t bytes)
{
    uint64_t value = 0;
    for (uint32_t i = 0; i < bytes; i++)
        value |= (uint64_t)data[i] << 8 * i;
    return value;
}

/* As lib/layout/save.c makes it (FNV-1a). */
static uint64_t checksum(const uint8_t *data, uint64_t bytes)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (uint64_t i = 0; i < bytes; i++)
        hash = (hash ^ data[i]) * UINT64_C(0x100000001b3);
    return hash;
}

static void apply(const uint8_t *edit, uint8_t *plan, uint64_t bytes)
{
    uint64_t at = little_endian(edit, 2) % bytes, value = little_endian(edit + 4, 4);
    uint32_t width = 1u << edit[3] % 4;
    uint64_t old;
    if (width > bytes - at)
        width = 1;
    old = little_endian(plan + at, width);
    if (edit[2] % 3 == 1)
        value = old + (uint64_t)(int64_t)(int32_t)value;
    else if (edit[2] % 3 == 2)
        value ^= old;
    for (uint32_t i = 0; i < width; i++)
        plan[at + i] = (uint8_t)(value >> 8 * i);
}

static strata_status read_prompt(strata_session *session, float *logits)
{
    int32_t tokens[PROMPT_TOKENS];
    strata_prefill_request request;
    strata_prefill_result result = {.struct_size = sizeof result};
    strata_prefill *prefill;
    strata_status status = strata_prefill_create(session, NULL, &prefill);
    for (int32_t i = 0; i < PROMPT_TOKENS; i++)
        tokens[i] = i * 7 % VOCABULARY;
    strata_prefill_request_init(&request, sizeof request);
    request.tokens = tokens;
    request.token_count = PROMPT_TOKENS;
    request.logits = logits;
    request.logits_capacity = VOCABULARY;
    if (status == STRATA_OK)
        status = strata_prefill_run(prefill, &request, &result);
    strata_prefill_destroy(prefill);
    return status;
}

static void run_plan(const strata_plan *plan)
{
    float logits[VOCABULARY];
    strata_session_options options;
    strata_session *session;
    strata_status status;
    strata_session_options_init(&options, sizeof options);
    options.plan = plan;
    options.thread_count = 1;
    options.blas = 1;
    memset(logits, 0x7b, sizeof logits);
    status = strata_session_create(shared.pack, &options, &session);
    if (status == STRATA_OK)
        status = read_prompt(session, logits);
    must_have_text(status);
    for (uint32_t i = 0; status == STRATA_OK && i < VOCABULARY; i++)
        must(logits[i] > -1e6f && logits[i] < 1e6f, "a logit that is written");
    strata_session_destroy(session);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    uint8_t *changed;
    strata_plan *plan;
    strata_status status;
    uint64_t body, sum;
    if (!shared.pack)
        make_shared();
    body = shared.plan_bytes - CHECKSUM_BYTES;
    changed = malloc(shared.plan_bytes);
    must(changed != NULL, "memory for the plan");
    memcpy(changed, shared.plan, shared.plan_bytes);
    for (size_t i = 0; i + EDIT_BYTES <= bytes; i += EDIT_BYTES)
        apply(data + i, changed, body);
    sum = checksum(changed, body);
    for (uint32_t i = 0; i < CHECKSUM_BYTES; i++)
        changed[body + i] = (uint8_t)(sum >> 8 * i);
    status = strata_plan_load_memory(shared.pack, changed, shared.plan_bytes, &plan);
    must_have_text(status);
    if (bytes < EDIT_BYTES)
        must(status == STRATA_OK, "a plan as it was saved");
    if (status == STRATA_OK)
        run_plan(plan);
    strata_plan_destroy(plan);
    free(changed);
    return 0;
}
