/* SPDX-License-Identifier: MIT */
/* Sessions: what is refused, whose memory it is, in which order things end, and threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>

#include "support/guarded.h"
#include "support/session_fixture.h"

enum { PROMPT = 48, VOCABULARY = 96, LOGITS = PROMPT * VOCABULARY };

static void refused_options(void **state)
{
    tiny_spec spec = tiny_spec_default();
    fixture_options options = {0};
    strata_session_options good, bad;
    strata_session *session = (strata_session *)&good;
    fixture f;
    (void)state;
    fixture_open(&f, &spec, &options);
    strata_session_options_init(&good, sizeof good);
    assert_int_equal(strata_session_create(f.pack, &good, NULL), STRATA_ERR_INVALID_ARGUMENT);
    assert_int_equal(strata_session_create(NULL, &good, &session), STRATA_ERR_INVALID_ARGUMENT);
    assert_null(session);
    bad = good;
    bad.struct_size -= 8;
    assert_int_equal(strata_session_create(f.pack, &bad, &session), STRATA_ERR_ABI_SIZE);
    bad = good;
    bad.blas = 2;
    assert_int_equal(strata_session_create(f.pack, &bad, &session), STRATA_ERR_INVALID_ARGUMENT);
    bad = good;
    bad.thread_count = 1025;
    assert_int_equal(strata_session_create(f.pack, &bad, &session), STRATA_ERR_INVALID_ARGUMENT);
    fixture_text_has("thread_count is 1025");
    bad = good;
    bad.kernel_level = 70;
    assert_int_equal(strata_session_create(f.pack, &bad, &session), STRATA_ERR_INVALID_ARGUMENT);
    bad = good;
    bad.plain_launches = 2;
    assert_int_equal(strata_session_create(f.pack, &bad, &session), STRATA_ERR_INVALID_ARGUMENT);
    bad = good;
    bad.device_memory_bytes = 64;
    assert_int_equal(strata_session_create(f.pack, &bad, &session), STRATA_ERR_INVALID_ARGUMENT);
    bad = good;
    bad.device = "npu:0";
    assert_int_equal(strata_session_create(f.pack, &bad, &session), STRATA_ERR_NO_DEVICE);
    fixture_text_has("npu:0");
    bad = good;
    bad.stream = &bad;
    assert_int_equal(strata_session_create(f.pack, &bad, &session), STRATA_ERR_UNSUPPORTED);
    assert_null(session);
    fixture_ok(strata_session_create(f.pack, NULL, &session));
    strata_session_destroy(session);
    fixture_close(&f);
}

/* The caller's facts may plan for another device, but not place buffers where this one cannot. */
static void facts_of_less_alignment_are_refused(void **state)
{
    tiny_spec spec = tiny_spec_default();
    fixture_options fixture_defaults = {0};
    strata_plan_options plan = {.struct_size = sizeof plan, .context_tokens = 64};
    strata_device_facts facts = {.struct_size = sizeof facts};
    strata_session_options options = {.struct_size = sizeof options, .plan_options = &plan};
    strata_session *session;
    fixture f;
    (void)state;
    fixture_open(&f, &spec, &fixture_defaults);
    plan.device = &facts;
    for (facts.alignment_bytes = 1; facts.alignment_bytes <= 4096; facts.alignment_bytes *= 2) {
        strata_status status = strata_session_create(f.pack, &options, &session);
        if (facts.alignment_bytes >= 64) {
            fixture_ok(status);
        } else {
            assert_int_equal(status, STRATA_ERR_INVALID_ARGUMENT);
            fixture_text_has("alignment");
        }
        strata_session_destroy(session);
    }
    fixture_close(&f);
}

static void null_is_answered(void **state)
{
    uint64_t value = 7;
    strata_session_stats stats = {.struct_size = sizeof stats};
    strata_prefill *prefill = (strata_prefill *)&value;
    (void)state;
    strata_session_destroy(NULL);
    strata_prefill_destroy(NULL);
    assert_null(strata_session_plan(NULL));
    assert_int_equal(strata_session_logits_count(NULL), 0);
    assert_int_equal(strata_prefill_bytes(NULL), 0);
    assert_int_equal(strata_session_length(NULL, 0, &value), STRATA_ERR_INVALID_ARGUMENT);
    assert_int_equal(strata_session_truncate(NULL, 0, 0, &value), STRATA_ERR_INVALID_ARGUMENT);
    assert_int_equal(strata_session_stats_get(NULL, &stats), STRATA_ERR_INVALID_ARGUMENT);
    assert_int_equal(strata_prefill_create(NULL, NULL, &prefill), STRATA_ERR_INVALID_ARGUMENT);
    assert_null(prefill);
    assert_int_equal(value, 7);
}

static void refused_prefills(void **state)
{
    tiny_spec spec = tiny_spec_default();
    fixture_options options = {0};
    strata_prefill_options prefill_options;
    strata_prefill *second = NULL;
    uint8_t memory[64];
    fixture f;
    (void)state;
    fixture_open(&f, &spec, &options);
    assert_int_equal(strata_prefill_create(f.session, NULL, &second), STRATA_ERR_STATE);
    assert_null(second);
    strata_prefill_destroy(f.prefill);
    f.prefill = NULL;
    assert_int_equal(strata_prefill_create(f.session, NULL, NULL), STRATA_ERR_INVALID_ARGUMENT);
    strata_prefill_options_init(&prefill_options, sizeof prefill_options);
    prefill_options.memory = memory;
    assert_int_equal(strata_prefill_create(f.session, &prefill_options, &f.prefill),
                     STRATA_ERR_INVALID_ARGUMENT);
    prefill_options.memory_kind = 9;
    assert_int_equal(strata_prefill_create(f.session, &prefill_options, &f.prefill),
                     STRATA_ERR_UNSUPPORTED);
    prefill_options.memory_kind = STRATA_MEMORY_CALLER;
    prefill_options.memory = NULL;
    assert_int_equal(strata_prefill_create(f.session, &prefill_options, &f.prefill),
                     STRATA_ERR_INVALID_ARGUMENT);
    fixture_ok(strata_prefill_create(f.session, NULL, &f.prefill));
    fixture_close(&f);
}

/* Everything in the caller's memory, exactly as much as needed, with guards on both sides. */
static void the_callers_memory(void **state)
{
    tiny_spec spec = tiny_spec_default();
    fixture_options options = {.chunk_tokens = 13};
    strata_session_options session_options;
    strata_prefill_options prefill_options;
    strata_plan_options plan = {.struct_size = sizeof plan};
    strata_session_stats stats = {.struct_size = sizeof stats};
    float *own = calloc(LOGITS, sizeof *own), *borrowed = calloc(LOGITS, sizeof *borrowed);
    int32_t tokens[PROMPT];
    uint64_t session_bytes, prompt_bytes;
    guarded memory, work;
    fixture f;
    (void)state;
    fixture_tokens(3, VOCABULARY, tokens, PROMPT);
    fixture_open(&f, &spec, &options);
    fixture_ok(fixture_read(&f, 0, tokens, PROMPT, own));
    strata_prefill_destroy(f.prefill);
    f.prefill = NULL;
    fixture_ok(strata_session_stats_get(f.session, &stats));
    session_bytes = stats.device_bytes;
    prompt_bytes = strata_prefill_bytes(f.session);
    strata_session_destroy(f.session);
    f.session = NULL;

    plan.chunk_tokens = 13;
    plan.kv_format = STRATA_KV_F32;
    strata_session_options_init(&session_options, sizeof session_options);
    session_options.plan_options = &plan;
    session_options.blas = 1;
    session_options.thread_count = 1;
    guarded_make(&memory, session_bytes, 0);
    session_options.device_memory = memory.memory;
    session_options.device_memory_bytes = session_bytes - 1;
    assert_int_equal(strata_session_create(f.pack, &session_options, &f.session),
                     STRATA_ERR_BUFFER_TOO_SMALL);
    assert_null(f.session);
    session_options.device_memory_bytes = session_bytes;
    session_options.device_memory = memory.memory + 8;
    assert_int_equal(strata_session_create(f.pack, &session_options, &f.session),
                     STRATA_ERR_MISALIGNED);
    session_options.device_memory = memory.memory;
    fixture_ok(strata_session_create(f.pack, &session_options, &f.session));

    guarded_make(&work, prompt_bytes, 0);
    strata_prefill_options_init(&prefill_options, sizeof prefill_options);
    prefill_options.memory_kind = STRATA_MEMORY_CALLER;
    prefill_options.memory = work.memory;
    prefill_options.memory_bytes = prompt_bytes - 1;
    assert_int_equal(strata_prefill_create(f.session, &prefill_options, &f.prefill),
                     STRATA_ERR_BUFFER_TOO_SMALL);
    prefill_options.memory_bytes = prompt_bytes;
    prefill_options.memory = work.memory + 4;
    assert_int_equal(strata_prefill_create(f.session, &prefill_options, &f.prefill),
                     STRATA_ERR_MISALIGNED);
    assert_null(f.prefill);
    prefill_options.memory = work.memory;
    fixture_ok(strata_prefill_create(f.session, &prefill_options, &f.prefill));
    fixture_ok(fixture_read(&f, 0, tokens, PROMPT, borrowed));
    assert_memory_equal(own, borrowed, LOGITS * sizeof *own);
    fixture_ok(strata_session_stats_get(f.session, &stats));
    assert_int_equal(stats.device_bytes, 0);
    fixture_close(&f);
    guarded_free(&memory);
    guarded_free(&work);
    free(own);
    free(borrowed);
}

static void stats_add_up(void **state)
{
    tiny_spec spec = tiny_spec_default();
    fixture_options options = {.chunk_tokens = 13};
    strata_session_stats stats = {.struct_size = sizeof stats};
    strata_session_stats old;
    int32_t tokens[PROMPT];
    uint64_t length;
    strata_plan_info info = {.struct_size = sizeof info};
    fixture f;
    (void)state;
    fixture_tokens(3, VOCABULARY, tokens, PROMPT);
    fixture_open(&f, &spec, &options);
    fixture_ok(fixture_read(&f, 0, tokens, PROMPT, NULL));
    fixture_ok(strata_session_stats_get(f.session, &stats));
    assert_int_equal(stats.prompt_tokens, PROMPT);
    assert_int_equal(stats.prompt_chunks, 4);
    assert_true(stats.prompt_ns > 0);
    assert_int_equal(stats.expert_rows, (uint64_t)PROMPT * spec.layers * spec.top_k);
    assert_true(stats.expert_launches >= 4 * spec.layers);
    assert_true(stats.device_bytes > strata_prefill_bytes(f.session));
    old = stats;
    fixture_ok(strata_session_truncate(f.session, 0, 0, &length));
    fixture_ok(fixture_read(&f, 0, tokens, 3, NULL));
    fixture_ok(strata_session_stats_get(f.session, &stats));
    assert_int_equal(stats.prompt_tokens, PROMPT + 3);
    assert_int_equal(stats.device_bytes, old.device_bytes);
    strata_prefill_destroy(f.prefill);
    f.prefill = NULL;
    fixture_ok(strata_session_stats_get(f.session, &stats));
    assert_int_equal(stats.device_bytes, old.device_bytes - strata_prefill_bytes(f.session));
    fixture_ok(strata_plan_info_get(strata_session_plan(f.session), &info));
    assert_int_equal(stats.host_bytes, info.decode_host_bytes);
    fixture_close(&f);
}

static void any_order_of_destruction(void **state)
{
    tiny_spec spec = tiny_spec_default();
    fixture_options options = {0};
    int32_t tokens[PROMPT];
    fixture f;
    (void)state;
    fixture_tokens(3, VOCABULARY, tokens, PROMPT);
    fixture_open(&f, &spec, &options);
    strata_context_destroy(f.context);
    strata_pack_close(f.pack);
    strata_session_destroy(f.session);
    {
        strata_prefill_request request;
        strata_prefill_request_init(&request, sizeof request);
        request.tokens = tokens;
        request.token_count = PROMPT;
        request.logits_mode = STRATA_LOGITS_NONE;
        fixture_ok(strata_prefill_run(f.prefill, &request, NULL));
    }
    strata_prefill_destroy(f.prefill);
    free(f.image);
}

/* A prompt of its own session, several times, on a pack that another thread uses too. */
typedef struct reader {
    strata_pack *pack;
    const float *expected;
    uint64_t chunk_tokens;
    uint32_t wrong;
} reader;

static strata_status read_once(reader *r, const int32_t *tokens, float *logits)
{
    fixture f = {.pack = r->pack};
    strata_plan_options plan = {.struct_size = sizeof plan};
    strata_session_options options;
    strata_status status;
    plan.chunk_tokens = r->chunk_tokens;
    plan.kv_format = STRATA_KV_F32;
    strata_session_options_init(&options, sizeof options);
    options.plan_options = &plan;
    options.blas = 1;
    options.thread_count = 2;
    status = strata_session_create(f.pack, &options, &f.session);
    if (status == STRATA_OK)
        status = strata_prefill_create(f.session, NULL, &f.prefill);
    if (status == STRATA_OK)
        status = fixture_read(&f, 0, tokens, PROMPT, logits);
    strata_prefill_destroy(f.prefill);
    strata_session_destroy(f.session);
    return status;
}

static void *read_in_thread(void *user_data)
{
    reader *r = user_data;
    float *logits = calloc(LOGITS, sizeof *logits);
    int32_t tokens[PROMPT];
    fixture_tokens(3, VOCABULARY, tokens, PROMPT);
    for (int i = 0; i < 3; ++i) {
        memset(logits, 0, LOGITS * sizeof *logits);
        if (read_once(r, tokens, logits) != STRATA_OK ||
            memcmp(logits, r->expected, LOGITS * sizeof *logits) != 0)
            r->wrong++;
    }
    free(logits);
    return NULL;
}

static void two_sessions_on_one_pack_in_two_threads(void **state)
{
    tiny_spec spec = tiny_spec_default();
    fixture_options options = {0};
    float *expected = calloc(LOGITS, sizeof *expected);
    int32_t tokens[PROMPT];
    reader readers[2];
    pthread_t threads[2];
    fixture f;
    (void)state;
    fixture_tokens(3, VOCABULARY, tokens, PROMPT);
    fixture_open(&f, &spec, &options);
    fixture_ok(fixture_read(&f, 0, tokens, PROMPT, expected));
    for (int i = 0; i < 2; ++i) {
        readers[i] = (reader){f.pack, expected, i ? 13 : 48, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, read_in_thread, &readers[i]), 0);
    }
    for (int i = 0; i < 2; ++i) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(readers[i].wrong, 0);
    }
    free(expected);
    fixture_close(&f);
}

typedef struct canceller {
    strata_session *session;
    uint32_t calls; /* written by the reading thread alone */
    int started[2]; /* the prompt, and the cancel: under the lock */
    pthread_mutex_t lock;
    pthread_cond_t changed;
} canceller;

/* Holds the prompt in its first layer until the other thread has cancelled it. */
static int32_t wait_for_cancel(void *user_data, const strata_progress *progress)
{
    canceller *c = user_data;
    (void)progress;
    c->calls++;
    pthread_mutex_lock(&c->lock);
    c->started[0] = 1;
    pthread_cond_broadcast(&c->changed);
    while (!c->started[1])
        pthread_cond_wait(&c->changed, &c->lock);
    pthread_mutex_unlock(&c->lock);
    return 0;
}

static void *cancel_from_thread(void *user_data)
{
    canceller *c = user_data;
    pthread_mutex_lock(&c->lock);
    while (!c->started[0])
        pthread_cond_wait(&c->changed, &c->lock);
    strata_session_cancel(c->session);
    c->started[1] = 1;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

static void cancelled_from_another_thread(void **state)
{
    tiny_spec spec = tiny_spec_default();
    fixture_options options = {0};
    strata_prefill_request request;
    int32_t tokens[PROMPT];
    canceller c = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    pthread_t thread;
    fixture f;
    (void)state;
    fixture_tokens(3, VOCABULARY, tokens, PROMPT);
    fixture_open(&f, &spec, &options);
    c.session = f.session;
    assert_int_equal(pthread_create(&thread, NULL, cancel_from_thread, &c), 0);
    strata_prefill_request_init(&request, sizeof request);
    request.tokens = tokens;
    request.token_count = PROMPT;
    request.logits_mode = STRATA_LOGITS_NONE;
    request.progress_fn = wait_for_cancel;
    request.progress_user_data = &c;
    assert_int_equal(strata_prefill_run(f.prefill, &request, NULL), STRATA_ERR_CANCELLED);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(c.calls, 1);
    fixture_ok(fixture_read(&f, 0, tokens, PROMPT, NULL));
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refused_options),
        cmocka_unit_test(facts_of_less_alignment_are_refused),
        cmocka_unit_test(null_is_answered),
        cmocka_unit_test(refused_prefills),
        cmocka_unit_test(the_callers_memory),
        cmocka_unit_test(stats_add_up),
        cmocka_unit_test(any_order_of_destruction),
        cmocka_unit_test(two_sessions_on_one_pack_in_two_threads),
        cmocka_unit_test(cancelled_from_another_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
