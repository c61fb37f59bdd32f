/* SPDX-License-Identifier: MIT */
/*
 * Decoding gives the bits of the prompt's path: token by token, several rows at once, several
 * sequences at once. A step that fails or is stopped leaves every length as it was.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "support/session_fixture.h"

enum { TOKENS = 70, VOCABULARY = 96, LOGITS = TOKENS * VOCABULARY, SEQUENCES = 3 };

static const char *const architectures[] = {"qwen3moe", "qwen2moe", "ernie4_5-moe"};

static strata_status decode_parts(const fixture *f, const strata_decode_part *parts, uint32_t count,
                                  uint32_t mode, float *logits, strata_decode_result *result)
{
    strata_decode_request request;
    strata_decode_request_init(&request, sizeof request);
    request.parts = parts;
    request.part_count = count;
    request.logits = logits;
    request.logits_capacity = STRATA_DECODE_MOST_ROWS * VOCABULARY;
    request.logits_mode = mode;
    if (result)
        result->struct_size = sizeof *result;
    return strata_session_decode(f->session, &request, result);
}

static strata_status decode(const fixture *f, int32_t sequence, const int32_t *tokens,
                            uint32_t count, float *logits)
{
    strata_decode_part part = {sequence, count, tokens};
    return decode_parts(f, &part, 1, logits ? STRATA_LOGITS_ALL : STRATA_LOGITS_NONE, logits, NULL);
}

static uint64_t length_of(const fixture *f, int32_t sequence)
{
    uint64_t length;
    fixture_ok(strata_session_length(f->session, sequence, &length));
    return length;
}

/* `rows` tokens a step, after a prompt of `prompt` tokens. */
static void expect_same_bits(const tiny_spec *spec, const fixture_options *options, uint64_t prompt,
                             uint32_t rows)
{
    float *expected = calloc(LOGITS, sizeof *expected), *got = calloc(LOGITS, sizeof *got);
    int32_t tokens[TOKENS];
    fixture f;
    assert_true(expected && got);
    fixture_tokens(7, VOCABULARY, tokens, TOKENS);
    fixture_open(&f, spec, options);
    fixture_ok(fixture_read(&f, 0, tokens, TOKENS, expected));
    if (prompt)
        fixture_ok(fixture_read(&f, 1, tokens, prompt, got));
    for (uint64_t at = prompt; at < TOKENS; at += rows) {
        uint32_t now = TOKENS - at < rows ? (uint32_t)(TOKENS - at) : rows;
        fixture_ok(decode(&f, 1, tokens + at, now, got + at * VOCABULARY));
    }
    assert_int_equal(length_of(&f, 1), TOKENS);
    assert_memory_equal(expected, got, LOGITS * sizeof *got);
    fixture_close(&f);
    free(expected);
    free(got);
}

static void decoding_is_the_prompt(void **state)
{
    static const uint32_t rows[] = {1, 5, 16};
    (void)state;
    for (size_t a = 0; a < sizeof architectures / sizeof architectures[0]; ++a) {
        tiny_spec spec = tiny_spec_of(architectures[a], a + 1);
        for (uint32_t kv = FIXTURE_KV_F32; kv <= FIXTURE_KV_Q8_0; ++kv) {
            fixture_options options = {.kv = kv, .sequence_count = 2};
            for (size_t r = 0; r < sizeof rows / sizeof rows[0]; ++r)
                expect_same_bits(&spec, &options, kv == FIXTURE_KV_F16 ? 0 : 40, rows[r]);
        }
    }
}

/* Parts of unlike lengths in one step, at unlike positions, and no prefill. */
static void ragged_parts(void **state)
{
    static const uint32_t counts[][SEQUENCES] = {{3, 1, 5}, {1, 1, 1}, {7, 2, 7}, {1, 14, 1}};
    fixture_options options = {.sequence_count = 2 * SEQUENCES};
    int32_t tokens[SEQUENCES][TOKENS];
    tiny_spec spec = tiny_spec_of("qwen2moe", 5);
    float one[16 * VOCABULARY], all[16 * VOCABULARY], last[SEQUENCES * VOCABULARY];
    uint64_t at[SEQUENCES] = {0};
    fixture f;
    (void)state;
    fixture_open(&f, &spec, &options);
    strata_prefill_destroy(f.prefill);
    f.prefill = NULL;
    for (uint32_t s = 0; s < SEQUENCES; ++s)
        fixture_tokens(s + 1, VOCABULARY, tokens[s], TOKENS);
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; ++c) {
        strata_decode_part parts[SEQUENCES];
        strata_decode_result result = {0};
        uint32_t rows = 0;
        for (uint32_t s = 0; s < SEQUENCES; ++s) {
            /* In another order than their numbers. */
            uint32_t sequence = SEQUENCES - 1 - s;
            parts[s] = (strata_decode_part){(int32_t)sequence, counts[c][s],
                                            tokens[sequence] + at[sequence]};
        }
        fixture_ok(decode_parts(&f, parts, SEQUENCES, STRATA_LOGITS_ALL, all, &result));
        for (uint32_t s = 0; s < SEQUENCES; ++s) {
            uint32_t sequence = SEQUENCES - 1 - s, count = counts[c][s];
            fixture_ok(decode(&f, (int32_t)(SEQUENCES + sequence), tokens[sequence] + at[sequence],
                              count, one));
            assert_memory_equal(one, all + (size_t)rows * VOCABULARY,
                                (size_t)count * VOCABULARY * sizeof *one);
            at[sequence] += count;
            assert_int_equal(result.sequence_tokens[s], at[sequence]);
            rows += count;
        }
        assert_int_equal(result.row_count, rows);
        assert_int_equal(result.logits_count, rows * VOCABULARY);
        /* The last rows alone, of the same step again. */
        for (uint32_t s = 0; s < SEQUENCES; ++s) {
            uint64_t length;
            int32_t sequence = parts[s].sequence_id;
            fixture_ok(strata_session_truncate(f.session, sequence,
                                               at[sequence] - parts[s].token_count, &length));
        }
        fixture_ok(decode_parts(&f, parts, SEQUENCES, STRATA_LOGITS_LAST, last, &result));
        assert_int_equal(result.logits_count, SEQUENCES * VOCABULARY);
        rows = 0;
        for (uint32_t s = 0; s < SEQUENCES; ++s) {
            rows += parts[s].token_count;
            assert_memory_equal(last + (size_t)s * VOCABULARY,
                                all + (size_t)(rows - 1) * VOCABULARY, VOCABULARY * sizeof *last);
        }
    }
    fixture_close(&f);
}

static void what_is_refused(void **state)
{
    static const int32_t good[20] = {1, 2, 3}, high[] = {1, VOCABULARY}, low[] = {-1};
    fixture_options options = {.sequence_count = 2, .context_tokens = 20};
    tiny_spec spec = tiny_spec_of("qwen3moe", 5);
    strata_decode_part parts[20];
    float logits[16 * VOCABULARY];
    strata_decode_request request;
    fixture f;
    (void)state;
    fixture_open(&f, &spec, &options);
    assert_int_equal(decode(&f, 2, good, 1, NULL), STRATA_ERR_INVALID_ARGUMENT);
    assert_int_equal(decode(&f, -1, good, 1, NULL), STRATA_ERR_INVALID_ARGUMENT);
    assert_int_equal(decode(&f, 0, good, 0, NULL), STRATA_ERR_INVALID_ARGUMENT);
    assert_int_equal(decode(&f, 0, NULL, 1, NULL), STRATA_ERR_INVALID_ARGUMENT);
    fixture_text_has("part 0 has no tokens");
    assert_int_equal(decode(&f, 0, high, 2, NULL), STRATA_ERR_INVALID_ARGUMENT);
    fixture_text_has("token 1 of part 0 is 96");
    assert_int_equal(decode(&f, 0, low, 1, NULL), STRATA_ERR_INVALID_ARGUMENT);
    assert_int_equal(decode(&f, 0, good, 17, NULL), STRATA_ERR_CAPACITY);
    fixture_text_has("16 rows");
    for (int i = 0; i < 20; ++i)
        parts[i] = (strata_decode_part){i, 1, good};
    assert_int_equal(decode_parts(&f, parts, 17, STRATA_LOGITS_NONE, NULL, NULL),
                     STRATA_ERR_CAPACITY);
    parts[1].sequence_id = 0;
    assert_int_equal(decode_parts(&f, parts, 2, STRATA_LOGITS_NONE, NULL, NULL),
                     STRATA_ERR_INVALID_ARGUMENT);
    fixture_text_has("both of sequence 0");
    assert_int_equal(decode_parts(&f, parts, 0, STRATA_LOGITS_NONE, NULL, NULL),
                     STRATA_ERR_INVALID_ARGUMENT);
    assert_int_equal(decode_parts(&f, NULL, 1, STRATA_LOGITS_NONE, NULL, NULL),
                     STRATA_ERR_INVALID_ARGUMENT);
    assert_int_equal(decode_parts(&f, parts, 1, 3, logits, NULL), STRATA_ERR_UNSUPPORTED);
    assert_int_equal(decode_parts(&f, parts, 1, STRATA_LOGITS_LAST, NULL, NULL),
                     STRATA_ERR_INVALID_ARGUMENT);
    strata_decode_request_init(&request, sizeof request);
    request.parts = parts;
    request.part_count = 1;
    request.logits = logits;
    request.logits_capacity = VOCABULARY - 1;
    assert_int_equal(strata_session_decode(f.session, &request, NULL), STRATA_ERR_BUFFER_TOO_SMALL);
    fixture_text_has("the logits of 1 rows have 96 values each; there is room for 95");
    assert_int_equal(strata_session_decode(NULL, &request, NULL), STRATA_ERR_INVALID_ARGUMENT);
    assert_int_equal(strata_session_decode(f.session, NULL, NULL), STRATA_ERR_INVALID_ARGUMENT);
    assert_int_equal(length_of(&f, 0), 0);
    /* A full sequence is named with its position. */
    fixture_ok(decode(&f, 1, good, 15, NULL));
    assert_int_equal(decode(&f, 1, good, 6, NULL), STRATA_ERR_CAPACITY);
    fixture_text_has("sequence 1 holds 15 tokens, part 0 has 6; the context is 20");
    fixture_ok(decode(&f, 1, good, 5, NULL));
    assert_int_equal(decode(&f, 1, good, 1, NULL), STRATA_ERR_CAPACITY);
    assert_int_equal(length_of(&f, 1), 20);
    fixture_close(&f);
}

static void without_rows(void **state)
{
    strata_plan_options plan = {.struct_size = sizeof plan, .decode_rows = STRATA_DECODE_ROWS_NONE};
    static const int32_t tokens[3] = {1, 2, 3};
    tiny_spec spec = tiny_spec_of("qwen3moe", 5);
    strata_session_options options;
    fixture f = {0};
    (void)state;
    f.image = tiny_pack_make(&spec, &f.image_bytes);
    fixture_ok(strata_context_create(NULL, &f.context));
    fixture_ok(strata_pack_open_memory(f.context, f.image, f.image_bytes, &f.pack));
    strata_session_options_init(&options, sizeof options);
    options.plan_options = &plan;
    fixture_ok(strata_session_create(f.pack, &options, &f.session));
    assert_int_equal(decode(&f, 0, tokens, 1, NULL), STRATA_ERR_STATE);
    strata_session_destroy(f.session);
    plan.decode_rows = 2;
    fixture_ok(strata_session_create(f.pack, &options, &f.session));
    fixture_ok(decode(&f, 0, tokens, 2, NULL));
    assert_int_equal(decode(&f, 0, tokens, 3, NULL), STRATA_ERR_CAPACITY);
    fixture_text_has("the 2 rows planned");
    fixture_close(&f);
}

/* An expert source that fails, cancels or decodes at its `countdown`th call. */
typedef struct source {
    fixture *f;
    strata_expert_blob blobs[64];
    uint32_t countdown;
    uint32_t calls;
    bool cancels;
    strata_status answer;
} source;

static strata_status give(void *user_data, uint32_t layer, uint32_t expert,
                          strata_expert_blob *out_blob)
{
    source *s = user_data;
    static const int32_t token = 1;
    (void)layer;
    (void)expert;
    s->calls++;
    *out_blob = s->blobs[0];
    if (s->countdown == 0 || --s->countdown)
        return STRATA_OK;
    if (s->cancels) {
        strata_session_cancel(s->f->session);
        assert_int_equal(decode(s->f, 1, &token, 1, NULL), STRATA_ERR_BUSY);
        return STRATA_OK;
    }
    return s->answer;
}

/* Stopped at any expert it asks for, the session goes on from where it was. */
static void a_step_counts_as_a_whole(void **state)
{
    int32_t tokens[TOKENS];
    tiny_spec spec = tiny_spec_of("qwen3moe", 5);
    fixture f;
    source s = {.f = &f, .answer = STRATA_ERR_IO};
    fixture_options options = {.sequence_count = 2, .expert_fn = give, .expert_user_data = &s};
    float before[2 * VOCABULARY], after[2 * VOCABULARY];
    strata_decode_part parts[2] = {{0, 3, tokens + 5}, {1, 1, tokens}};
    uint8_t *zeros = calloc(1, 1u << 20);
    uint32_t calls;
    (void)state;
    s.blobs[0] = (strata_expert_blob){zeros, zeros, zeros};
    fixture_tokens(3, VOCABULARY, tokens, TOKENS);
    fixture_open(&f, &spec, &options);
    fixture_ok(decode(&f, 0, tokens, 5, NULL));
    s.calls = 0;
    fixture_ok(decode_parts(&f, parts, 2, STRATA_LOGITS_LAST, before, NULL));
    calls = s.calls;
    assert_true(calls > 4);
    for (uint32_t i = 1; i <= calls; ++i) {
        for (int cancels = 0; cancels < 2; ++cancels) {
            strata_decode_result result = {0};
            uint64_t length;
            fixture_ok(strata_session_truncate(f.session, 0, 5, &length));
            fixture_ok(strata_session_truncate(f.session, 1, 0, &length));
            s.countdown = i;
            s.cancels = cancels;
            assert_int_equal(decode_parts(&f, parts, 2, STRATA_LOGITS_LAST, after, &result),
                             cancels ? STRATA_ERR_CANCELLED : STRATA_ERR_IO);
            assert_int_equal(result.row_count, 0);
            assert_int_equal(result.sequence_tokens[0], 5);
            assert_int_equal(result.sequence_tokens[1], 0);
            assert_int_equal(length_of(&f, 0), 5);
            assert_int_equal(length_of(&f, 1), 0);
            s.countdown = 0;
            fixture_ok(decode_parts(&f, parts, 2, STRATA_LOGITS_LAST, after, &result));
            assert_memory_equal(before, after, sizeof after);
        }
    }
    fixture_close(&f);
    free(zeros);
}

static void policies(void **state)
{
    strata_cache_policy policy;
    fixture_options options = {0};
    tiny_spec spec = tiny_spec_of("qwen3moe", 5);
    fixture f;
    (void)state;
    fixture_open(&f, &spec, &options);
    strata_cache_policy_init(&policy, sizeof policy);
    fixture_ok(strata_session_set_cache_policy(f.session, &policy));
    fixture_ok(strata_session_set_cache_policy(f.session, NULL));
    policy.margin = -1;
    assert_int_equal(strata_session_set_cache_policy(f.session, &policy),
                     STRATA_ERR_INVALID_ARGUMENT);
    fixture_text_has("margin is -1");
    policy.margin = 0;
    policy.half_life_tokens = strtod("nan", NULL);
    assert_int_equal(strata_session_set_cache_policy(f.session, &policy),
                     STRATA_ERR_INVALID_ARGUMENT);
    policy.half_life_tokens = 1;
    policy.frozen = 2;
    assert_int_equal(strata_session_set_cache_policy(f.session, &policy),
                     STRATA_ERR_INVALID_ARGUMENT);
    assert_int_equal(strata_session_set_cache_policy(NULL, &policy), STRATA_ERR_INVALID_ARGUMENT);
    fixture_close(&f);
}

static void statistics(void **state)
{
    static const int32_t tokens[4] = {1, 2, 3, 4};
    strata_session_stats stats = {.struct_size = sizeof stats};
    fixture_options options = {0};
    tiny_spec spec = tiny_spec_of("qwen3moe", 5);
    fixture f;
    (void)state;
    fixture_open(&f, &spec, &options);
    fixture_ok(decode(&f, 0, tokens, 3, NULL));
    fixture_ok(decode(&f, 0, tokens, 1, NULL));
    assert_int_equal(decode(&f, 0, tokens, 0, NULL), STRATA_ERR_INVALID_ARGUMENT);
    fixture_ok(strata_session_stats_get(f.session, &stats));
    assert_int_equal(stats.decode_tokens, 4);
    assert_int_equal(stats.decode_steps, 2);
    assert_true(stats.decode_ns > 0);
    assert_int_equal(stats.prompt_tokens, 0);
    assert_int_equal(stats.expert_rows, 4 * spec.top_k * spec.layers);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decoding_is_the_prompt),
        cmocka_unit_test(ragged_parts),
        cmocka_unit_test(what_is_refused),
        cmocka_unit_test(without_rows),
        cmocka_unit_test(a_step_counts_as_a_whole),
        cmocka_unit_test(statistics),
        cmocka_unit_test(policies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
