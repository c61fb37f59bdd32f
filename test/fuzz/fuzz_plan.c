/* SPDX-License-Identifier: MIT */
/*
 * Runs saved plans that were changed. An input is a list of edits, of eight bytes each: where (2),
 * how (1: set, add, exclusive or), how wide (1) and with what (4). They change a plan that was
 * saved here, so that inputs outlive the format; the checksum is made right again, and so are the
 * totals where nothing else is wrong. What must hold: no crash, every refusal has a text, a plan
 * that is taken reads a prompt and decodes to logits that are all written, and it decodes no more
 * rows than it has.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <strata/strata.h>

#include "fuzz_target.h"
#include "must.h"
#include "support/tiny_pack.h"

enum {
    EDIT_BYTES = 8,
    CHECKSUM_BYTES = 8,
    TOTALS = 3,
    PROMPT_TOKENS = 11,
    VOCABULARY = 96,
    MOST_ROWS = STRATA_DECODE_MOST_ROWS,
    SEQUENCES = MOST_ROWS + 4, /* more than a step may have */
    MOST_BYTES = 64 << 20      /* larger plans are not run */
};

static struct {
    strata_context *context;
    strata_pack *pack;
    uint8_t *plan;
    uint64_t plan_bytes;
    uint64_t totals_at; /* where the plan has its three totals, of eight bytes each */
} shared;

static strata_plan_info info_of(const strata_plan *plan)
{
    strata_plan_info info = {.struct_size = sizeof info};
    must(strata_plan_info_get(plan, &info) == STRATA_OK, "the plan's numbers");
    return info;
}

static void put_totals(uint8_t *plan, const unsigned long long *totals)
{
    for (uint32_t i = 0; i < 8 * TOTALS; i++)
        plan[shared.totals_at + i] = (uint8_t)(totals[i / 8] >> 8 * (i % 8));
}

/* Where the saved plan has what its tables come to. */
static void find_totals(const strata_plan *plan)
{
    strata_plan_info info = info_of(plan);
    const unsigned long long totals[] = {info.session_bytes, info.prefill_bytes, info.host_bytes};
    uint8_t *copy = malloc(shared.plan_bytes);
    must(copy != NULL, "memory for the plan");
    for (; shared.totals_at + 8 * TOTALS <= shared.plan_bytes; shared.totals_at++) {
        memcpy(copy, shared.plan, shared.plan_bytes);
        put_totals(copy, totals);
        if (memcmp(copy, shared.plan, shared.plan_bytes) == 0)
            break;
    }
    must(shared.totals_at + 8 * TOTALS <= shared.plan_bytes, "the totals in the plan");
    free(copy);
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
    options.sequence_count = SEQUENCES;
    must(strata_plan_create(shared.pack, &options, &plan) == STRATA_OK, "a plan");
    must(strata_plan_save_memory(plan, NULL, 0, &shared.plan_bytes) == STRATA_ERR_BUFFER_TOO_SMALL,
         "the size of the plan");
    shared.plan = malloc(shared.plan_bytes);
    must(shared.plan && strata_plan_save_memory(plan, shared.plan, shared.plan_bytes,
                                                &shared.plan_bytes) == STRATA_OK,
         "the plan's bytes");
    find_totals(plan);
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

static void poison(float *logits, uint64_t count)
{
    memset(logits, 0x7b, count * sizeof *logits);
}

static void must_be_written(const float *logits, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        must(logits[i] > -1e6f && logits[i] < 1e6f, "a logit that is written");
}

static void read_prompt(strata_session *session)
{
    float logits[VOCABULARY];
    int32_t tokens[PROMPT_TOKENS];
    strata_prefill_request request;
    strata_prefill_result result = {.struct_size = sizeof result};
    strata_prefill *prefill;
    strata_status status = strata_prefill_create(session, NULL, &prefill);
    poison(logits, VOCABULARY);
    for (int32_t i = 0; i < PROMPT_TOKENS; i++)
        tokens[i] = i * 7 % VOCABULARY;
    strata_prefill_request_init(&request, sizeof request);
    request.tokens = tokens;
    request.token_count = PROMPT_TOKENS;
    request.logits = logits;
    request.logits_capacity = VOCABULARY;
    if (status == STRATA_OK)
        status = strata_prefill_run(prefill, &request, &result);
    must_have_text(status);
    if (status == STRATA_OK)
        must_be_written(logits, VOCABULARY);
    strata_prefill_destroy(prefill);
}

/* `rows` rows of each of as many sequences. */
static strata_status decode(strata_session *session, uint32_t sequences, uint32_t rows)
{
    static float logits[SEQUENCES * VOCABULARY];
    int32_t tokens[SEQUENCES];
    strata_decode_part parts[SEQUENCES] = {0};
    strata_decode_request request;
    strata_decode_result result = {.struct_size = sizeof result};
    strata_status status;
    poison(logits, SEQUENCES * VOCABULARY);
    for (int32_t i = 0; i < SEQUENCES; i++) {
        tokens[i] = i * 5 % VOCABULARY;
        parts[i] = (strata_decode_part){.sequence_id = i, .token_count = rows, .tokens = tokens};
    }
    strata_decode_request_init(&request, sizeof request);
    request.parts = parts;
    request.part_count = sequences;
    request.logits = logits;
    request.logits_capacity = SEQUENCES * VOCABULARY;
    request.logits_mode = STRATA_LOGITS_ALL;
    status = strata_session_decode(session, &request, &result);
    must_have_text(status);
    if (status == STRATA_OK) {
        must(result.row_count == sequences * rows, "the rows of the step");
        must_be_written(logits, sequences * rows * VOCABULARY);
    }
    return status;
}

static void run_plan(const strata_plan *plan)
{
    strata_plan_info info = info_of(plan);
    uint32_t rows = info.decode_rows;
    strata_session_options options;
    strata_session *session;
    strata_status status;
    must(rows <= MOST_ROWS, "a plan for few rows of decoding");
    if (info.device_bytes > MOST_BYTES || info.host_bytes > MOST_BYTES ||
        info.decode_host_bytes > MOST_BYTES)
        return;
    strata_session_options_init(&options, sizeof options);
    options.plan = plan;
    options.thread_count = 1;
    options.blas = 1;
    status = strata_session_create(shared.pack, &options, &session);
    must_have_text(status);
    if (status == STRATA_OK) {
        read_prompt(session);
        if (rows) {
            (void)decode(session, rows, 1);
            (void)decode(session, 1, rows);
        }
        must(decode(session, rows + 1, 1) != STRATA_OK, "no step of more sequences");
        must(decode(session, 1, rows + 1) != STRATA_OK, "no step of more rows");
        must(decode(session, SEQUENCES, 1) != STRATA_OK, "no step of many sequences");
    }
    strata_session_destroy(session);
}

static void seal(uint8_t *plan)
{
    uint64_t body = shared.plan_bytes - CHECKSUM_BYTES, sum = checksum(plan, body);
    for (uint32_t i = 0; i < CHECKSUM_BYTES; i++)
        plan[body + i] = (uint8_t)(sum >> 8 * i);
}

/* Totals that a refusal says are wrong are what they come to. */
static strata_status load(uint8_t *data, strata_plan **out)
{
    unsigned long long totals[TOTALS];
    char text[512] = "";
    const char *at;
    strata_status status;
    seal(data);
    status = strata_plan_load_memory(shared.pack, data, shared.plan_bytes, out);
    must_have_text(status);
    if (status != STRATA_ERR_FORMAT)
        return status;
    strata_last_error(text, sizeof text);
    at = strstr(text, "comes to ");
    if (!at || sscanf(at, "comes to %llu, %llu and %llu", &totals[0], &totals[1], &totals[2]) != 3)
        return status;
    put_totals(data, totals);
    seal(data);
    status = strata_plan_load_memory(shared.pack, data, shared.plan_bytes, out);
    must(status == STRATA_OK, "a plan with the right totals");
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    uint8_t *changed;
    strata_plan *plan;
    strata_status status;
    if (!shared.pack)
        make_shared();
    changed = malloc(shared.plan_bytes);
    must(changed != NULL, "memory for the plan");
    memcpy(changed, shared.plan, shared.plan_bytes);
    for (size_t i = 0; i + EDIT_BYTES <= bytes; i += EDIT_BYTES)
        apply(data + i, changed, shared.plan_bytes - CHECKSUM_BYTES);
    status = load(changed, &plan);
    if (bytes < EDIT_BYTES)
        must(status == STRATA_OK, "a plan as it was saved");
    if (status == STRATA_OK)
        run_plan(plan);
    strata_plan_destroy(plan);
    free(changed);
    return 0;
}
