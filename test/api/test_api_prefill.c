/* SPDX-License-Identifier: MIT */
/*
 * Reading prompts: the same bits however a prompt is cut, stopped and resumed, and whoever gives
 * the experts; progress, cancel, and what is refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/session_fixture.h"

enum { PROMPT = 70, VOCABULARY = 96, LOGITS = PROMPT * VOCABULARY };

static const char *const architectures[] = {"qwen3moe", "qwen2moe", "ernie4_5-moe"};

/* Logits of all positions, read in one call with the options given. */
static float *read_all(const tiny_spec *spec, const fixture_options *options)
{
    float *logits = calloc(LOGITS, sizeof *logits);
    int32_t tokens[PROMPT];
    fixture f;
    assert_non_null(logits);
    fixture_tokens(7, VOCABULARY, tokens, PROMPT);
    fixture_open(&f, spec, options);
    fixture_ok(fixture_read(&f, 0, tokens, PROMPT, logits));
    fixture_close(&f);
    for (uint32_t i = 0; i < LOGITS; ++i)
        assert_true(logits[i] - logits[i] == 0.0f);
    return logits;
}

static void chunks_do_not_change_a_bit(void **state)
{
    static const uint64_t chunks[] = {1, 7, 64};
    (void)state;
    for (size_t a = 0; a < sizeof architectures / sizeof architectures[0]; ++a) {
        for (uint32_t kv = FIXTURE_KV_F32; kv <= FIXTURE_KV_Q8_0; ++kv) {
            tiny_spec spec = tiny_spec_of(architectures[a], a + 1);
            fixture_options options = {.chunk_tokens = PROMPT, .kv = kv};
            float *whole = read_all(&spec, &options);
            for (size_t c = 0; c < sizeof chunks / sizeof chunks[0]; ++c) {
                float *cut;
                options.chunk_tokens = chunks[c];
                cut = read_all(&spec, &options);
                assert_memory_equal(whole, cut, LOGITS * sizeof *cut);
                free(cut);
            }
            free(whole);
        }
    }
}

/* Mean squared error over mean square. */
static double distance(const float *a, const float *b)
{
    double error = 0, power = 0;
    for (uint32_t i = 0; i < LOGITS; ++i) {
        error += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        power += (double)b[i] * (double)b[i];
    }
    return error / power;
}

static void smaller_kv_changes_little(void **state)
{
    tiny_spec spec = tiny_spec_of("qwen2moe", 6); /* its routing is clear of ties */
    fixture_options options = {.kv = FIXTURE_KV_F32};
    float *exact = read_all(&spec, &options), *half, *eighth;
    (void)state;
    options.kv = FIXTURE_KV_F16;
    half = read_all(&spec, &options);
    options.kv = FIXTURE_KV_Q8_0;
    eighth = read_all(&spec, &options);
    assert_true(distance(half, exact) > 0 && distance(half, exact) < 1e-6);
    assert_true(distance(eighth, exact) > distance(half, exact) && distance(eighth, exact) < 1e-4);
    free(exact);
    free(half);
    free(eighth);
}

static void threads_do_not_change_a_bit(void **state)
{
    tiny_spec spec = tiny_spec_of("qwen2moe", 5);
    fixture_options options = {.threads = 1};
    float *one = read_all(&spec, &options), *three;
    (void)state;
    options.threads = 3;
    three = read_all(&spec, &options);
    assert_memory_equal(one, three, LOGITS * sizeof *one);
    free(one);
    free(three);
}

static void the_last_position_alone_is_the_same(void **state)
{
    tiny_spec spec = tiny_spec_of("qwen3moe", 3);
    fixture_options options = {.chunk_tokens = 16};
    float *all = read_all(&spec, &options), last[VOCABULARY];
    int32_t tokens[PROMPT];
    strata_prefill_request request;
    strata_prefill_result result = {.struct_size = sizeof result};
    fixture f;
    (void)state;
    fixture_tokens(7, VOCABULARY, tokens, PROMPT);
    fixture_open(&f, &spec, &options);
    assert_int_equal(strata_session_logits_count(f.session), VOCABULARY);
    strata_prefill_request_init(&request, sizeof request);
    request.tokens = tokens;
    request.token_count = PROMPT;
    request.logits = last;
    request.logits_capacity = VOCABULARY;
    fixture_ok(strata_prefill_run(f.prefill, &request, &result));
    assert_memory_equal(last, all + LOGITS - VOCABULARY, sizeof last);
    assert_int_equal(result.chunk_count, 5);
    assert_int_equal(result.read_tokens, PROMPT);
    assert_int_equal(result.sequence_tokens, PROMPT);
    assert_true(result.wall_ns > 0);
    free(all);
    fixture_close(&f);
}

static void a_prompt_in_two_calls_continues(void **state)
{
    tiny_spec spec = tiny_spec_of("ernie4_5-moe", 9);
    fixture_options options = {.chunk_tokens = 16};
    float *all = read_all(&spec, &options), *parts = calloc(LOGITS, sizeof *parts);
    int32_t tokens[PROMPT];
    uint64_t length;
    fixture f;
    (void)state;
    fixture_tokens(7, VOCABULARY, tokens, PROMPT);
    fixture_open(&f, &spec, &options);
    fixture_ok(fixture_read(&f, 0, tokens, 33, parts));
    fixture_ok(strata_session_length(f.session, 0, &length));
    assert_int_equal(length, 33);
    fixture_ok(fixture_read(&f, 0, tokens + 33, PROMPT - 33, parts + 33 * VOCABULARY));
    assert_memory_equal(all, parts, LOGITS * sizeof *all);
    /* Cut, and read again: the same. */
    fixture_ok(strata_session_truncate(f.session, 0, 20, &length));
    assert_int_equal(length, 20);
    memset(parts + 20 * VOCABULARY, 0, (LOGITS - 20 * VOCABULARY) * sizeof *parts);
    fixture_ok(fixture_read(&f, 0, tokens + 20, PROMPT - 20, parts + 20 * VOCABULARY));
    assert_memory_equal(all, parts, LOGITS * sizeof *all);
    fixture_ok(strata_session_truncate(f.session, 0, 1000, &length));
    assert_int_equal(length, PROMPT);
    fixture_ok(strata_session_truncate(f.session, 0, 0, &length));
    assert_int_equal(length, 0);
    free(all);
    free(parts);
    fixture_close(&f);
}

static void sequences_do_not_touch_each_other(void **state)
{
    tiny_spec spec = tiny_spec_of("qwen3moe", 11);
    fixture_options options = {.chunk_tokens = 16, .sequence_count = 3};
    float *alone = read_all(&spec, &options), *mixed = calloc(LOGITS, sizeof *mixed);
    int32_t tokens[PROMPT], other[PROMPT];
    uint64_t length;
    fixture f;
    (void)state;
    fixture_tokens(7, VOCABULARY, tokens, PROMPT);
    fixture_tokens(8, VOCABULARY, other, PROMPT);
    fixture_open(&f, &spec, &options);
    fixture_ok(fixture_read(&f, 2, other, PROMPT, NULL));
    fixture_ok(fixture_read(&f, 1, tokens, 40, mixed));
    fixture_ok(strata_session_truncate(f.session, 2, 5, &length));
    fixture_ok(fixture_read(&f, 0, other, PROMPT, NULL));
    fixture_ok(fixture_read(&f, 1, tokens + 40, PROMPT - 40, mixed + 40 * VOCABULARY));
    assert_memory_equal(alone, mixed, LOGITS * sizeof *alone);
    assert_int_equal(fixture_read(&f, 3, tokens, 1, NULL), STRATA_ERR_INVALID_ARGUMENT);
    fixture_text_has("sequence 3");
    assert_int_equal(fixture_read(&f, -1, tokens, 1, NULL), STRATA_ERR_INVALID_ARGUMENT);
    free(alone);
    free(mixed);
    fixture_close(&f);
}

/* A source of experts that reads them out of the file image. */
typedef struct source {
    const uint8_t *gate[8], *up[8], *down[8];
    uint64_t gate_bytes, up_bytes, down_bytes;
    uint32_t calls;
    uint32_t fail_at; /* the call that fails, from 1; 0: none */
    strata_status answer;
    uint32_t last_layer, last_expert;
    uint32_t unordered;
} source;

static strata_status give_expert(void *user_data, uint32_t layer, uint32_t expert,
                                 strata_expert_blob *out_blob)
{
    source *s = user_data;
    if (s->calls && layer == s->last_layer && expert <= s->last_expert)
        s->unordered++;
    s->last_layer = layer;
    s->last_expert = expert;
    if (++s->calls == s->fail_at)
        return s->answer;
    out_blob->gate = s->gate[layer] + expert * s->gate_bytes;
    out_blob->up = s->up[layer] + expert * s->up_bytes;
    out_blob->down = s->down[layer] + expert * s->down_bytes;
    return STRATA_OK;
}

static void find_blobs(source *s, const fixture *f)
{
    strata_pack_info pack = {.struct_size = sizeof pack};
    fixture_ok(strata_pack_info_get(f->pack, &pack));
    for (uint64_t i = 0; i < pack.tensor_count; ++i) {
        strata_tensor_info tensor = {.struct_size = sizeof tensor};
        uint32_t layer;
        fixture_ok(strata_pack_tensor_get(f->pack, i, &tensor));
        if (strncmp(tensor.name, "blk.", 4) != 0)
            continue;
        layer = (uint32_t)(tensor.name[4] - '0');
        if (strstr(tensor.name, "ffn_gate_exps")) {
            s->gate[layer] = tensor.data;
            s->gate_bytes = tensor.bytes / tensor.shape[2];
        } else if (strstr(tensor.name, "ffn_up_exps")) {
            s->up[layer] = tensor.data;
            s->up_bytes = tensor.bytes / tensor.shape[2];
        } else if (strstr(tensor.name, "ffn_down_exps")) {
            s->down[layer] = tensor.data;
            s->down_bytes = tensor.bytes / tensor.shape[2];
        }
    }
}

/* Blobs of a second, equal pack; the session's own pack is left alone. */
static void callback_source_gives_the_same_bits(void **state)
{
    static const uint64_t chunks[] = {1, 7, 64, PROMPT};
    (void)state;
    for (size_t a = 0; a < sizeof architectures / sizeof architectures[0]; ++a) {
        tiny_spec spec = tiny_spec_of(architectures[a], 21);
        fixture_options options = {.chunk_tokens = PROMPT};
        float *plain = read_all(&spec, &options);
        fixture other;
        fixture_open(&other, &spec, &options);
        for (size_t c = 0; c < sizeof chunks / sizeof chunks[0]; ++c) {
            source s = {0};
            float *given;
            find_blobs(&s, &other);
            options.chunk_tokens = chunks[c];
            options.expert_fn = give_expert;
            options.expert_user_data = &s;
            given = read_all(&spec, &options);
            assert_memory_equal(plain, given, LOGITS * sizeof *plain);
            assert_true(s.calls > 0);
            if (chunks[c] == PROMPT) {
                assert_int_equal(s.unordered, 0);
                assert_true(s.calls <= spec.layers * spec.experts);
            }
            /* One token routes to top_k experts in each layer that has experts. */
            if (chunks[c] == 1)
                assert_int_equal(s.calls, PROMPT * spec.top_k * (spec.layers - spec.dense_layers));
            free(given);
        }
        free(plain);
        fixture_close(&other);
    }
}

static void what_the_callback_answers_is_handed_back(void **state)
{
    tiny_spec spec = tiny_spec_of("qwen3moe", 31);
    fixture_options options = {.chunk_tokens = 7};
    float *plain = read_all(&spec, &options), *logits = calloc(LOGITS, sizeof *logits);
    int32_t tokens[PROMPT];
    source s = {0};
    uint64_t length;
    fixture f;
    (void)state;
    fixture_tokens(7, VOCABULARY, tokens, PROMPT);
    options.expert_fn = give_expert;
    options.expert_user_data = &s;
    fixture_open(&f, &spec, &options);
    find_blobs(&s, &f);
    s.fail_at = 40;
    s.answer = STRATA_ERR_IO;
    assert_int_equal(fixture_read(&f, 0, tokens, PROMPT, logits), STRATA_ERR_IO);
    fixture_text_has("expert source");
    fixture_ok(strata_session_length(f.session, 0, &length));
    assert_int_equal(length % 7, 0);
    assert_true(length < PROMPT);
    s.fail_at = 0;
    fixture_ok(fixture_read(&f, 0, tokens + length, PROMPT - length, logits + length * VOCABULARY));
    assert_memory_equal(plain, logits, LOGITS * sizeof *plain);
    s.calls = 0;
    s.fail_at = 1;
    s.answer = STRATA_OK; /* and no pointers */
    assert_int_equal(fixture_read(&f, 0, tokens, 1, logits), STRATA_ERR_INVALID_ARGUMENT);
    fixture_text_has("NULL for gate");
    s.calls = 0;
    s.answer = 1; /* no status: success is 0, and failures are negative */
    assert_int_equal(fixture_read(&f, 0, tokens, 1, logits), STRATA_ERR_INVALID_ARGUMENT);
    fixture_text_has("answered 1, which is no status");
    free(plain);
    free(logits);
    fixture_close(&f);
}

typedef struct watcher {
    const fixture *f;
    uint32_t calls;
    uint32_t stop_at; /* the call that stops; 0: none */
    uint32_t probe;   /* 1: other calls are tried while the prompt is read */
    uint32_t cancel;  /* 1: strata_session_cancel() at stop_at instead of the answer */
    uint64_t last_done;
    uint32_t wrong;
} watcher;

static void try_other_calls(watcher *w)
{
    int32_t token = 1;
    uint64_t length = 0;
    strata_session_stats stats = {.struct_size = sizeof stats};
    strata_prefill *second = NULL;
    if (fixture_read(w->f, 0, &token, 1, NULL) != STRATA_ERR_BUSY)
        w->wrong++;
    if (strata_session_truncate(w->f->session, 0, 0, &length) != STRATA_ERR_BUSY)
        w->wrong++;
    if (strata_prefill_create(w->f->session, NULL, &second) != STRATA_ERR_BUSY || second)
        w->wrong++;
    if (strata_session_length(w->f->session, 0, &length) != STRATA_OK || length != w->last_done)
        w->wrong++;
    if (strata_session_stats_get(w->f->session, &stats) != STRATA_OK)
        w->wrong++;
}

static int32_t watch(void *user_data, const strata_progress *progress)
{
    watcher *w = user_data;
    w->calls++;
    w->last_done = progress->done_tokens;
    if (progress->struct_size != sizeof *progress || progress->layer_count != 2 ||
        progress->layer != (w->calls - 1) % 2 + 1 || progress->total_tokens != PROMPT ||
        progress->chunk_tokens != 10 || progress->done_tokens != (w->calls - 1) / 2 * 10)
        w->wrong++;
    if (w->probe)
        try_other_calls(w);
    if (w->calls != w->stop_at)
        return 0;
    if (!w->cancel)
        return -5;
    strata_session_cancel(w->f->session);
    return 0;
}

static strata_status read_watched(watcher *w, const int32_t *tokens, uint64_t count, float *logits,
                                  strata_prefill_result *result)
{
    strata_prefill_request request;
    strata_prefill_request_init(&request, sizeof request);
    request.tokens = tokens;
    request.token_count = count;
    request.logits = logits;
    request.logits_capacity = count * VOCABULARY;
    request.logits_mode = STRATA_LOGITS_ALL;
    request.progress_fn = watch;
    request.progress_user_data = w;
    memset(result, 0, sizeof *result);
    result->struct_size = sizeof *result;
    return strata_prefill_run(w->f->prefill, &request, result);
}

/* At every layer of every chunk, by the callback's answer and by strata_session_cancel(). */
static void stopped_anywhere_it_resumes_with_the_same_bits(void **state)
{
    tiny_spec spec = tiny_spec_of("qwen3moe", 41);
    fixture_options options = {.chunk_tokens = 10};
    float *plain = read_all(&spec, &options), *logits = calloc(LOGITS, sizeof *logits);
    int32_t tokens[PROMPT];
    fixture f;
    (void)state;
    fixture_tokens(7, VOCABULARY, tokens, PROMPT);
    fixture_open(&f, &spec, &options);
    for (uint32_t stop = 1; stop <= 14; ++stop) {
        watcher w = {.f = &f, .stop_at = stop, .cancel = stop % 2};
        strata_prefill_result result;
        uint64_t length, whole = (stop - 1) / 2 * 10;
        memset(logits, 0, LOGITS * sizeof *logits);
        assert_int_equal(read_watched(&w, tokens, PROMPT, logits, &result), STRATA_ERR_CANCELLED);
        fixture_text_has(w.cancel ? "cancelled" : "callback");
        assert_int_equal(w.wrong, 0);
        assert_int_equal(w.calls, stop);
        assert_int_equal(result.read_tokens, whole);
        assert_int_equal(result.chunk_count, whole / 10);
        assert_int_equal(result.sequence_tokens, whole);
        fixture_ok(strata_session_length(f.session, 0, &length));
        assert_int_equal(length, whole);
        fixture_ok(
            fixture_read(&f, 0, tokens + whole, PROMPT - whole, logits + whole * VOCABULARY));
        assert_memory_equal(plain, logits, LOGITS * sizeof *plain);
        fixture_ok(strata_session_truncate(f.session, 0, 0, &length));
    }
    free(plain);
    free(logits);
    fixture_close(&f);
}

static void a_cancel_without_a_call_is_forgotten(void **state)
{
    tiny_spec spec = tiny_spec_of("qwen3moe", 42);
    fixture_options options = {0};
    int32_t tokens[PROMPT];
    fixture f;
    (void)state;
    fixture_tokens(7, VOCABULARY, tokens, PROMPT);
    fixture_open(&f, &spec, &options);
    strata_session_cancel(f.session);
    fixture_ok(fixture_read(&f, 0, tokens, PROMPT, NULL));
    strata_session_cancel(NULL);
    fixture_close(&f);
}

static void other_calls_are_busy_while_a_prompt_is_read(void **state)
{
    tiny_spec spec = tiny_spec_of("qwen3moe", 43);
    fixture_options options = {.chunk_tokens = 10};
    float *plain = read_all(&spec, &options), *logits = calloc(LOGITS, sizeof *logits);
    int32_t tokens[PROMPT];
    strata_prefill_result result;
    watcher w = {.probe = 1};
    fixture f;
    (void)state;
    fixture_tokens(7, VOCABULARY, tokens, PROMPT);
    fixture_open(&f, &spec, &options);
    w.f = &f;
    fixture_ok(read_watched(&w, tokens, PROMPT, logits, &result));
    assert_int_equal(w.calls, 14);
    assert_int_equal(w.wrong, 0);
    assert_memory_equal(plain, logits, LOGITS * sizeof *plain);
    free(plain);
    free(logits);
    fixture_close(&f);
}

static void bad_requests_change_nothing(void **state)
{
    tiny_spec spec = tiny_spec_of("qwen3moe", 51);
    fixture_options options = {.context_tokens = 64};
    int32_t tokens[PROMPT];
    float logits[2 * VOCABULARY];
    uint64_t length;
    strata_prefill_request good, request;
    fixture f;
    (void)state;
    fixture_tokens(7, VOCABULARY, tokens, PROMPT);
    fixture_open(&f, &spec, &options);
    strata_prefill_request_init(&good, sizeof good);
    good.tokens = tokens;
    good.token_count = 2;
    good.logits = logits;
    good.logits_capacity = 2 * VOCABULARY;
    good.logits_mode = STRATA_LOGITS_ALL;

    assert_int_equal(strata_prefill_run(NULL, &good, NULL), STRATA_ERR_INVALID_ARGUMENT);
    assert_int_equal(strata_prefill_run(f.prefill, NULL, NULL), STRATA_ERR_INVALID_ARGUMENT);
    request = good;
    request.struct_size = 56;
    assert_int_equal(strata_prefill_run(f.prefill, &request, NULL), STRATA_ERR_ABI_SIZE);
    request = good;
    request.tokens = NULL;
    assert_int_equal(strata_prefill_run(f.prefill, &request, NULL), STRATA_ERR_INVALID_ARGUMENT);
    fixture_text_has("the prompt has no tokens");
    request = good;
    request.token_count = 0;
    assert_int_equal(strata_prefill_run(f.prefill, &request, NULL), STRATA_ERR_INVALID_ARGUMENT);
    request = good;
    request.token_count = 65;
    request.logits_mode = STRATA_LOGITS_NONE;
    assert_int_equal(strata_prefill_run(f.prefill, &request, NULL), STRATA_ERR_INVALID_ARGUMENT);
    fixture_text_has("sequence 0 holds 0 tokens, the prompt has 65; the context is 64");
    /* More than there are: refused before one is looked at. */
    request.tokens = &tokens[PROMPT];
    request.token_count = UINT64_MAX / 4;
    assert_int_equal(strata_prefill_run(f.prefill, &request, NULL), STRATA_ERR_INVALID_ARGUMENT);
    fixture_text_has("the context is 64");
    request = good;
    request.logits_capacity--;
    assert_int_equal(strata_prefill_run(f.prefill, &request, NULL), STRATA_ERR_BUFFER_TOO_SMALL);
    request = good;
    request.logits = NULL;
    assert_int_equal(strata_prefill_run(f.prefill, &request, NULL), STRATA_ERR_INVALID_ARGUMENT);
    request = good;
    request.logits_mode = 3;
    assert_int_equal(strata_prefill_run(f.prefill, &request, NULL), STRATA_ERR_UNSUPPORTED);
    tokens[1] = VOCABULARY;
    assert_int_equal(strata_prefill_run(f.prefill, &good, NULL), STRATA_ERR_INVALID_ARGUMENT);
    fixture_text_has("token 1 of the prompt is 96");
    tokens[1] = -1;
    assert_int_equal(strata_prefill_run(f.prefill, &good, NULL), STRATA_ERR_INVALID_ARGUMENT);
    fixture_ok(strata_session_length(f.session, 0, &length));
    assert_int_equal(length, 0);
    tokens[1] = 0;
    fixture_ok(strata_prefill_run(f.prefill, &good, NULL));
    fixture_close(&f);
}

static void a_full_context_takes_no_more(void **state)
{
    tiny_spec spec = tiny_spec_of("qwen3moe", 52);
    fixture_options options = {.context_tokens = 65, .sequence_count = 2};
    int32_t tokens[PROMPT];
    uint64_t length;
    fixture f;
    (void)state;
    fixture_tokens(7, VOCABULARY, tokens, PROMPT);
    fixture_open(&f, &spec, &options);
    for (int32_t sequence = 0; sequence < 2; ++sequence) {
        fixture_ok(fixture_read(&f, sequence, tokens, 65, NULL));
        assert_int_equal(fixture_read(&f, sequence, tokens, 1, NULL), STRATA_ERR_INVALID_ARGUMENT);
        fixture_ok(strata_session_truncate(f.session, sequence, 64, &length));
        fixture_ok(fixture_read(&f, sequence, tokens + 64, 1, NULL));
    }
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_do_not_change_a_bit),
        cmocka_unit_test(smaller_kv_changes_little),
        cmocka_unit_test(threads_do_not_change_a_bit),
        cmocka_unit_test(the_last_position_alone_is_the_same),
        cmocka_unit_test(a_prompt_in_two_calls_continues),
        cmocka_unit_test(sequences_do_not_touch_each_other),
        cmocka_unit_test(callback_source_gives_the_same_bits),
        cmocka_unit_test(what_the_callback_answers_is_handed_back),
        cmocka_unit_test(stopped_anywhere_it_resumes_with_the_same_bits),
        cmocka_unit_test(a_cancel_without_a_call_is_forgotten),
        cmocka_unit_test(other_calls_are_busy_while_a_prompt_is_read),
        cmocka_unit_test(bad_requests_change_nothing),
        cmocka_unit_test(a_full_context_takes_no_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
