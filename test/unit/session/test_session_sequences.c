/* SPDX-License-Identifier: MIT */
/*
 * Sequences that were shared, cut, saved and restored go on with the bits of sequences that were
 * read from the start: on the CPU, and on the delaying device in every schedule; and so do all of
 * them after calls of which a part failed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/error.h"
#include "device/delaying.h"
#include "session/state.h"
#include "support/ok.h"
#include "support/tiny_pack.h"

enum { COUNT = 150, FORK = 100, CHUNK = 50, VOCABULARY = 96, SEQUENCES = 3, STEPS = 10 };

static void says(strata_status status, strata_status expected, const char *part)
{
    assert_int_equal(status, expected);
    if (!strstr(strata__error_text(), part))
        fail_msg("\"%s\" is not in \"%s\"", part, strata__error_text());
}

/* Two texts with the same beginning, and their logits when they are read from the start. */
typedef struct bench {
    uint8_t *image;
    strata_context *context;
    strata__pack *pack;
    strata_plan_options plan;
    int32_t texts[2][COUNT];
    float expected[2][COUNT * VOCABULARY];
    float decoded[2][STEPS * VOCABULARY]; /* from FORK on, a token a step */
    strata__device *device;               /* of the session; NULL: the CPU */
    strata_session *session;
    strata_prefill *prefill;
} bench;

static void open_session(bench *b, const strata__delaying_options *delaying)
{
    const strata_prefill_options prefill = {.struct_size = sizeof prefill};
    strata_session_options options = {
        .struct_size = sizeof options, .thread_count = 1, .blas = 1, .plan_options = &b->plan};
    b->device = NULL;
    if (delaying)
        ok(strata__delaying_device_open(b->context, delaying, &b->device));
    if (b->device)
        ok(strata__session_create_on(b->device, b->pack, &options, &b->session));
    else
        ok(strata__session_create(b->pack, &options, &b->session));
    ok(strata__prefill_create(b->session, &prefill, &b->prefill));
}

static void close_session(bench *b)
{
    strata__prefill_destroy(b->prefill);
    strata__session_release(b->session);
}

/* Appends the tokens [first, end) of a text; their logits to `out`. */
static strata_status append(bench *b, int32_t sequence, int text, uint64_t first, uint64_t end,
                            float *out)
{
    strata_prefill_request request = {.struct_size = sizeof request};
    strata_prefill_result result = {0};
    request.sequence_id = sequence;
    request.tokens = b->texts[text] + first;
    request.token_count = end - first;
    request.logits = out;
    request.logits_capacity = (end - first) * VOCABULARY;
    request.logits_mode = STRATA_LOGITS_ALL;
    return strata__prefill_run(b->prefill, &request, &result);
}

/* The sequence, which has so many tokens of a text, goes on as it should. */
static void goes_on(bench *b, int32_t sequence, int text, uint64_t first, uint64_t end)
{
    static float logits[COUNT * VOCABULARY];
    uint64_t length;
    ok(strata__session_length(b->session, sequence, &length));
    assert_int_equal(length, first);
    memset(logits, 0, sizeof logits);
    ok(append(b, sequence, text, first, end, logits));
    assert_memory_equal(logits, b->expected[text] + first * VOCABULARY,
                        (end - first) * VOCABULARY * sizeof logits[0]);
}

static void cut(bench *b, int32_t sequence, uint64_t tokens)
{
    uint64_t reached;
    ok(strata__session_truncate(b->session, sequence, tokens, &reached));
    assert_int_equal(reached, tokens);
}

static void share(bench *b, int32_t from, int32_t to, uint64_t tokens)
{
    uint64_t reached;
    ok(strata__session_share(b->session, from, to, tokens, &reached));
    assert_int_equal(reached, tokens);
}

/* One step of `count` sequences: a token each, the next of its text. */
static strata_status step(bench *b, const int32_t *sequences, const int *texts, uint32_t count,
                          float *out)
{
    strata_decode_part parts[SEQUENCES];
    strata_decode_request request = {.struct_size = sizeof request, .parts = parts};
    strata_decode_result result = {0};
    request.part_count = count;
    request.logits = out;
    request.logits_capacity = (uint64_t)count * VOCABULARY;
    request.logits_mode = STRATA_LOGITS_LAST;
    for (uint32_t i = 0; i < count; ++i) {
        uint64_t length;
        ok(strata__session_length(b->session, sequences[i], &length));
        parts[i] = (strata_decode_part){sequences[i], 1, &b->texts[texts[i]][length]};
    }
    return strata__session_decode(b->session, &request, &result);
}

/* A step of sequences that have `at` tokens beyond FORK gives what each would give alone. */
static void steps_on(bench *b, const int32_t *sequences, const int *texts, uint32_t count,
                     uint32_t at)
{
    float logits[SEQUENCES * VOCABULARY] = {0};
    ok(step(b, sequences, texts, count, logits));
    for (uint32_t i = 0; i < count; ++i)
        assert_memory_equal(logits + i * VOCABULARY, b->decoded[texts[i]] + at * VOCABULARY,
                            VOCABULARY * sizeof logits[0]);
}

static void decode_alone(bench *b)
{
    for (int text = 0; text < 2; ++text) {
        const int32_t sequence = text;
        cut(b, sequence, FORK);
        for (uint32_t i = 0; i < STEPS; ++i)
            ok(step(b, &sequence, &text, 1, b->decoded[text] + i * VOCABULARY));
    }
}

static void bench_open(bench *b, uint32_t kv_format)
{
    strata_context_options options = {.struct_size = sizeof options};
    tiny_spec spec = tiny_spec_default();
    uint64_t bytes, random = 31;
    memset(b, 0, sizeof *b);
    spec.architecture = "qwen2moe";
    spec.shared_width = 32;
    spec.vocabulary = VOCABULARY;
    spec.heads = 8;
    spec.kv_heads = 4;
    spec.head_size = 128; /* so that a saved sequence takes more than one batch */
    b->image = tiny_pack_make(&spec, &bytes);
    for (uint32_t i = 0; i < COUNT; ++i) {
        b->texts[0][i] = (int32_t)(tiny_random(&random) % VOCABULARY);
        b->texts[1][i] = b->texts[0][i];
        if (i >= FORK)
            b->texts[1][i] = (int32_t)(tiny_random(&random) % VOCABULARY);
    }
    ok(strata__context_create(&options, &b->context));
    ok(strata__pack_open_memory(b->context, b->image, bytes, &b->pack));
    b->plan = (strata_plan_options){.struct_size = sizeof b->plan,
                                    .chunk_tokens = CHUNK,
                                    .context_tokens = 192,
                                    .sequence_count = SEQUENCES,
                                    .kv_format = kv_format,
                                    .experts = STRATA_EXPERTS_RESIDENT};
    open_session(b, NULL);
    for (int text = 0; text < 2; ++text)
        ok(append(b, text, text, 0, COUNT, b->expected[text]));
    assert_memory_not_equal(b->expected[0] + FORK * VOCABULARY, b->expected[1] + FORK * VOCABULARY,
                            VOCABULARY * sizeof(float));
    decode_alone(b);
    close_session(b);
}

static void bench_close(bench *b)
{
    strata__pack_release(b->pack);
    strata__context_release(b->context);
    free(b->image);
}

/*
 * The check on the CPU, in KV of every kind, and on the delaying device in every schedule, with
 * experts that stay there and with experts that are sent.
 */
static void everywhere(void (*check)(bench *b))
{
    static const uint32_t formats[] = {STRATA_KV_F32, STRATA_KV_F16, STRATA_KV_Q8_0};
    bench b;
    for (uint32_t i = 0; i < 3; ++i) {
        bench_open(&b, formats[i]);
        open_session(&b, NULL);
        check(&b);
        close_session(&b);
        for (uint32_t policy = 0; policy < STRATA__DELAYING_POLICY_COUNT; ++policy) {
            strata__delaying_options options = {.policy = policy, .seed = i};
            open_session(&b, &options);
            check(&b);
            close_session(&b);
            b.plan.experts = STRATA_EXPERTS_STREAM;
            open_session(&b, &options);
            assert_int_equal(b.session->experts.source, STRATA__SOURCE_STREAMED);
            check(&b);
            close_session(&b);
            b.plan.experts = STRATA_EXPERTS_RESIDENT;
        }
        bench_close(&b);
    }
}

static void share_and_cut(bench *b)
{
    goes_on(b, 0, 0, 0, FORK);
    share(b, 0, 1, FORK);
    goes_on(b, 2, 0, 0, 10); /* so that the table is on the device before the page is copied */
    goes_on(b, 1, 1, FORK, FORK + 10);
    goes_on(b, 1, 1, FORK + 10, COUNT);
    goes_on(b, 0, 0, FORK, COUNT);
    cut(b, 2, 0);
    share(b, 1, 2, 70); /* within a page that the two have no longer in common */
    goes_on(b, 2, 0, 70, 120);
    cut(b, 1, 64);
    cut(b, 0, 20);
    goes_on(b, 1, 0, 64, COUNT);
    goes_on(b, 0, 1, 20, COUNT);
    goes_on(b, 2, 0, 120, COUNT);
    for (int32_t i = 0; i < SEQUENCES; ++i)
        cut(b, i, 0);
    assert_int_equal(b->session->kv.free_count, b->session->kv.page_count);
}

static void shared_and_cut_sequences_go_on(void **state)
{
    (void)state;
    everywhere(share_and_cut);
}

static uint8_t *save(bench *b, int32_t sequence, uint64_t *out_bytes)
{
    uint64_t again;
    uint8_t *saved;
    ok(strata__session_save_memory(b->session, sequence, NULL, 0, out_bytes));
    saved = malloc(*out_bytes);
    assert_non_null(saved);
    ok(strata__session_save_memory(b->session, sequence, saved, *out_bytes, &again));
    assert_int_equal(again, *out_bytes);
    return saved;
}

static void save_and_restore(bench *b)
{
    uint64_t bytes[3];
    uint8_t *saved[3];
    /* In turns, so that neither has pages in a row. */
    goes_on(b, 0, 0, 0, 50);
    goes_on(b, 1, 1, 0, 64);
    goes_on(b, 0, 0, 50, 130);
    goes_on(b, 1, 1, 64, 120);
    saved[0] = save(b, 0, &bytes[0]);
    saved[1] = save(b, 1, &bytes[1]);
    ok(strata__session_restore_memory(b->session, 2, saved[0], bytes[0]));
    goes_on(b, 0, 0, 130, COUNT);
    goes_on(b, 2, 0, 130, COUNT);
    for (int32_t i = 0; i < SEQUENCES; ++i)
        cut(b, i, 0);
    ok(strata__session_restore_memory(b->session, 0, saved[1], bytes[1]));
    /* What is saved is the tokens' alone, not what pages held before. */
    saved[2] = save(b, 0, &bytes[2]);
    assert_int_equal(bytes[2], bytes[1]);
    assert_memory_equal(saved[2], saved[1], bytes[1]);
    goes_on(b, 0, 1, 120, COUNT);
    cut(b, 0, 0);
    for (int i = 0; i < 3; ++i)
        free(saved[i]);
    assert_int_equal(b->session->kv.free_count, b->session->kv.page_count);
}

static void saved_sequences_go_on(void **state)
{
    (void)state;
    everywhere(save_and_restore);
}

/* Two texts and a copy of one, from one beginning; one is saved and restored on the way. */
static void fork_and_decode(bench *b)
{
    const int32_t sequences[] = {0, 1, 2}, last = 1;
    const int texts[] = {0, 1, 0}, second = 1;
    uint64_t bytes;
    uint8_t *saved;
    goes_on(b, 0, 0, 0, FORK);
    share(b, 0, 1, FORK);
    share(b, 0, 2, FORK);
    for (uint32_t i = 0; i < 4; ++i)
        steps_on(b, sequences, texts, SEQUENCES, i);
    saved = save(b, 1, &bytes);
    cut(b, 0, 0);
    ok(strata__session_restore_memory(b->session, 0, saved, bytes));
    free(saved);
    for (uint32_t i = 4; i < STEPS; ++i)
        steps_on(b, &last, &second, 1, i);
    cut(b, 2, FORK + 2);
    for (uint32_t i = 2; i < 4; ++i)
        steps_on(b, sequences + 2, texts, 1, i);
    for (uint32_t i = 4; i < STEPS; ++i)
        steps_on(b, (const int32_t[]){2, 0}, texts, 2, i);
    for (int32_t i = 0; i < SEQUENCES; ++i)
        cut(b, i, 0);
    assert_int_equal(b->session->kv.free_count, b->session->kv.page_count);
}

static void forked_sequences_decode_on(void **state)
{
    (void)state;
    everywhere(fork_and_decode);
}

/* Saved on one device, and restored on the other, from a file. */
static void files_are_of_no_device(void **state)
{
    const strata__delaying_options delaying = {.policy = STRATA__DELAYING_RANDOM, .seed = 3};
    char path[] = "sequences-XXXXXX";
    bench b;
    (void)state;
    assert_int_equal(close(mkstemp(path)), 0);
    bench_open(&b, STRATA_KV_F16);
    open_session(&b, NULL);
    goes_on(&b, 2, 0, 0, 130);
    ok(strata__session_save_path(b.session, 2, path));
    close_session(&b);
    open_session(&b, &delaying);
    ok(strata__session_restore_path(b.session, 1, path));
    goes_on(&b, 1, 0, 130, COUNT);
    close_session(&b);
    bench_close(&b);
    unlink(path);
}

static const uint32_t faults[] = {STRATA__FAULT_HOST_ALLOC, STRATA__FAULT_COPY,
                                  STRATA__FAULT_STREAM};

typedef struct fault_case {
    uint8_t *saved; /* sequence 0 */
    uint64_t saved_bytes;
    uint8_t *out;
} fault_case;

static strata_status try_save(bench *b, const fault_case *c)
{
    uint64_t bytes;
    return strata__session_save_memory(b->session, 0, c->out, c->saved_bytes, &bytes);
}

static strata_status try_restore(bench *b, const fault_case *c)
{
    return strata__session_restore_memory(b->session, 2, c->saved, c->saved_bytes);
}

/* The next token of sequence 1, whose last page sequence 0 has too. */
static strata_status try_append(bench *b, const fault_case *c)
{
    float logits[VOCABULARY];
    strata_status status = append(b, 1, 0, FORK, FORK + 1, logits);
    (void)c;
    if (status == STRATA_OK)
        assert_memory_equal(logits, b->expected[0] + FORK * VOCABULARY, sizeof logits);
    return status;
}

/* As above, decoded in one step with a sequence that has the page too. */
static strata_status try_step(bench *b, const fault_case *c)
{
    const int32_t sequences[] = {1, 2};
    const int texts[] = {0, 1};
    float logits[2 * VOCABULARY] = {0};
    uint64_t reached;
    strata_status status;
    (void)c;
    ok(strata__session_share(b->session, 1, 2, FORK, &reached));
    status = step(b, sequences, texts, 2, logits);
    if (status == STRATA_OK)
        assert_memory_equal(logits, b->decoded[0], VOCABULARY * sizeof logits[0]);
    cut(b, 2, 0);
    return status;
}

/* With the n-th call of a kind failing; the sequences that are not the attempt's are unharmed. */
static strata_status fail_once(bench *b, const fault_case *c, uint32_t fault, uint64_t n,
                               strata_status (*attempt)(bench *b, const fault_case *c))
{
    strata__delaying_usage before, after;
    uint64_t length;
    strata_status status;
    cut(b, 1, 0);
    cut(b, 2, 0);
    share(b, 0, 1, FORK);
    strata__delaying_usage_get(b->device, &before);
    strata__delaying_fail(b->device, fault, n, 0);
    status = attempt(b, c);
    strata__delaying_fail(b->device, 0, 0, 0);
    strata__delaying_usage_get(b->device, &after);
    assert_int_equal(after.host_bytes, before.host_bytes);
    assert_int_equal(after.pending, 0);
    if (status == STRATA_OK)
        return status;
    assert_int_equal(after.faults, before.faults + 1);
    ok(strata__session_length(b->session, 2, &length));
    assert_int_equal(length, 0);
    assert_int_equal(b->session->kv.sequences[2].pages, 0);
    goes_on(b, 1, 0, FORK, FORK + 10);
    if (attempt == try_save || attempt == try_restore)
        ok(attempt(b, c));
    return status;
}

static uint64_t fail_each(bench *b, const fault_case *c,
                          strata_status (*attempt)(bench *b, const fault_case *c))
{
    uint64_t hits = 0;
    for (size_t f = 0; f < sizeof faults / sizeof faults[0]; ++f)
        for (uint64_t n = 1; fail_once(b, c, faults[f], n, attempt) != STRATA_OK; ++n)
            hits++;
    return hits;
}

static void what_fails_leaves_sequences_alone(void **state)
{
    const strata__delaying_options delaying = {.policy = STRATA__DELAYING_RANDOM, .seed = 9};
    fault_case c;
    bench b;
    (void)state;
    bench_open(&b, STRATA_KV_F32);
    open_session(&b, &delaying);
    goes_on(&b, 0, 0, 0, FORK);
    c.saved = save(&b, 0, &c.saved_bytes);
    c.out = calloc(1, c.saved_bytes);
    assert_non_null(c.out);
    assert_true(fail_each(&b, &c, try_save) > 5);
    assert_memory_equal(c.out, c.saved, c.saved_bytes);
    assert_true(fail_each(&b, &c, try_restore) > 5);
    goes_on(&b, 2, 0, FORK, COUNT);
    assert_true(fail_each(&b, &c, try_append) > 5);
    assert_true(fail_each(&b, &c, try_step) > 5);
    goes_on(&b, 0, 1, FORK, COUNT);
    free(c.out);
    free(c.saved);
    close_session(&b);
    bench_close(&b);
}

static void refusals(void **state)
{
    bench b;
    uint64_t reached = 77;
    (void)state;
    bench_open(&b, STRATA_KV_F32);
    open_session(&b, NULL);
    goes_on(&b, 0, 0, 0, 10);
    says(strata__session_share(b.session, 0, 0, 5, &reached), STRATA_ERR_INVALID_ARGUMENT,
         "itself");
    says(strata__session_share(b.session, 0, 3, 5, &reached), STRATA_ERR_INVALID_ARGUMENT,
         "sequence 3 does not exist");
    says(strata__session_share(b.session, -1, 1, 5, &reached), STRATA_ERR_INVALID_ARGUMENT,
         "sequence -1 does not exist");
    says(strata__session_share(b.session, 1, 0, 5, &reached), STRATA_ERR_STATE,
         "sequence 0 holds 10 tokens");
    assert_int_equal(reached, 77);
    ok(strata__session_share(b.session, 0, 1, UINT64_MAX, &reached));
    assert_int_equal(reached, 10);
    goes_on(&b, 1, 0, 10, 20);
    close_session(&b);
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shared_and_cut_sequences_go_on),
        cmocka_unit_test(saved_sequences_go_on),
        cmocka_unit_test(forked_sequences_decode_on),
        cmocka_unit_test(files_are_of_no_device),
        cmocka_unit_test(what_fails_leaves_sequences_alone),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
