/* SPDX-License-Identifier: MIT */
/*
 * Sessions on the delaying device, where a copy or a kernel that is not waited for shows as other
 * bits: prompts in every policy, failing calls, cancelled prompts.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"
#include "device/delaying.h"
#include "session/state.h"
#include "support/ok.h"
#include "support/tiny_pack.h"

enum { COUNT = 30, CHUNK = 8, VOCABULARY = 96, LOGITS = COUNT * VOCABULARY };

typedef struct bench {
    uint8_t *image;
    strata_context *context;
    strata__pack *pack;
    int32_t tokens[COUNT];
    float expected[LOGITS];
    float logits[LOGITS];
    strata_plan_options plan;
    strata_session_options options;
    strata__device *device; /* the session's */
    strata_session *session;
    strata_prefill *prefill;
    uint32_t stop_after; /* layers; 0: never */
    uint32_t layers;
} bench;

static int32_t stop(void *user_data, const strata_progress *progress)
{
    bench *b = user_data;
    (void)progress;
    return ++b->layers == b->stop_after;
}

/* A call leaves nothing behind that might still run. */
static void nothing_is_pending(const bench *b)
{
    strata__delaying_usage usage;
    strata__delaying_usage_get(b->device, &usage);
    assert_int_equal(usage.pending, 0);
}

/* The rest of the prompt, with the logits of all its positions or with none. */
static strata_status read_tokens(bench *b, uint64_t first, uint32_t logits_mode)
{
    strata_status status;
    strata_prefill_request request = {.struct_size = sizeof request};
    strata_prefill_result result = {0};
    request.tokens = b->tokens + first;
    request.token_count = COUNT - first;
    request.logits = b->logits + first * VOCABULARY;
    request.logits_capacity = LOGITS - first * VOCABULARY;
    request.logits_mode = logits_mode;
    request.progress_fn = stop;
    request.progress_user_data = b;
    b->layers = 0;
    status = strata__prefill_run(b->prefill, &request, &result);
    if (b->device)
        nothing_is_pending(b);
    return status;
}

static strata_status read_from(bench *b, uint64_t first)
{
    return read_tokens(b, first, STRATA_LOGITS_ALL);
}

static strata_status make_prefill(bench *b)
{
    const strata_prefill_options options = {.struct_size = sizeof options};
    strata_status status = strata__prefill_create(b->session, &options, &b->prefill);
    if (b->device && status == STRATA_OK)
        nothing_is_pending(b);
    return status;
}

static void drop_session(bench *b)
{
    strata__prefill_destroy(b->prefill);
    strata__session_release(b->session);
    b->prefill = NULL;
    b->session = NULL;
}

/* `path`: how experts are multiplied, or NULL: as planned. */
static void bench_open_path(bench *b, const char *path)
{
    strata_context_options context_options = {.struct_size = sizeof context_options};
    tiny_spec spec = tiny_spec_default();
    uint64_t bytes, random = 29;
    memset(b, 0, sizeof *b);
    spec.architecture = "qwen2moe";
    spec.shared_width = 32;
    spec.vocabulary = VOCABULARY;
    if (path) {
        spec.gate_format = STRATA__Q4_0;
        spec.up_format = STRATA__Q5_1;
        spec.down_format = STRATA__Q8_0;
    }
    b->image = tiny_pack_make(&spec, &bytes);
    for (uint32_t i = 0; i < COUNT; ++i)
        b->tokens[i] = (int32_t)(tiny_random(&random) % VOCABULARY);
    ok(strata__context_create(&context_options, &b->context));
    ok(strata__pack_open_memory(b->context, b->image, bytes, &b->pack));
    b->plan = (strata_plan_options){.struct_size = sizeof b->plan,
                                    .chunk_tokens = CHUNK,
                                    .context_tokens = 100,
                                    .path = path,
                                    .experts = STRATA_EXPERTS_RESIDENT};
    b->options.struct_size = sizeof b->options;
    b->options.plan_options = &b->plan;
    b->options.thread_count = 1;
    b->options.blas = 1;
    ok(strata__session_create(b->pack, &b->options, &b->session));
    ok(make_prefill(b));
    ok(read_from(b, 0));
    memcpy(b->expected, b->logits, sizeof b->expected);
    drop_session(b);
}

static void bench_open(bench *b)
{
    bench_open_path(b, NULL);
}

static void bench_close(bench *b)
{
    strata__pack_release(b->pack);
    strata__context_release(b->context);
    free(b->image);
}

static void open_device(bench *b, uint32_t policy, uint64_t seed)
{
    strata__delaying_options options = {.policy = policy, .seed = seed};
    ok(strata__delaying_device_open(b->context, &options, &b->device));
}

static strata_status make_session(bench *b)
{
    return strata__session_create_on(b->device, b->pack, &b->options, &b->session);
}

static void check_schedules(const char *path)
{
    bench b;
    bench_open_path(&b, path);
    for (uint32_t policy = 0; policy < STRATA__DELAYING_POLICY_COUNT; ++policy) {
        for (uint64_t seed = 0; seed < (policy == STRATA__DELAYING_RANDOM ? 20 : 1); ++seed) {
            uint64_t length;
            open_device(&b, policy, seed);
            ok(make_session(&b));
            ok(make_prefill(&b));
            for (int again = 0; again < 2; ++again) {
                memset(b.logits, 0, sizeof b.logits);
                ok(read_from(&b, 0));
                assert_memory_equal(b.logits, b.expected, sizeof b.logits);
                ok(strata__session_truncate(b.session, 0, 0, &length));
            }
            drop_session(&b);
        }
    }
    bench_close(&b);
}

static void every_schedule_gives_the_same_bits(void **state)
{
    (void)state;
    check_schedules(NULL);
}

/* Layers on the int8 paths beside one that is not: their buffers differ and share memory. */
static void every_schedule_of_mixed_paths_gives_the_same_bits(void **state)
{
    bench whole, mixed;
    (void)state;
    bench_open_path(&whole, "fp16");
    bench_open_path(&mixed, "fused,1:fp16");
    assert_memory_not_equal(whole.expected, mixed.expected, sizeof whole.expected);
    bench_close(&mixed);
    bench_close(&whole);
    check_schedules("fused,1:fp16");
    check_schedules("mmq,0:fused");
}

static void own_allocations_are_the_plans(void **state)
{
    strata__delaying_usage usage;
    bench b;
    (void)state;
    bench_open(&b);
    open_device(&b, STRATA__DELAYING_RANDOM, 1);
    ok(make_session(&b));
    strata__delaying_usage_get(b.device, &usage);
    assert_int_equal(usage.device_bytes, b.session->layout->session_bytes);
    ok(make_prefill(&b));
    ok(read_from(&b, 0));
    strata__delaying_usage_get(b.device, &usage);
    assert_int_equal(usage.device_bytes, b.session->layout->device_bytes);
    assert_int_equal(usage.device_peak_bytes, b.session->layout->device_bytes);
    assert_int_equal(usage.host_bytes,
                     b.session->layout->host_bytes + b.session->layout->decode.host_bytes);
    drop_session(&b);
    bench_close(&b);
}

/* At each layer in turn; the rest of the prompt has the same bits. */
static void cancelled_anywhere_the_rest_is_the_same(void **state)
{
    bench b;
    (void)state;
    bench_open(&b);
    for (uint32_t policy = 0; policy < STRATA__DELAYING_POLICY_COUNT; ++policy) {
        open_device(&b, policy, 7);
        ok(make_session(&b));
        ok(make_prefill(&b));
        for (b.stop_after = 1; b.stop_after <= 8; ++b.stop_after) {
            uint64_t length;
            memset(b.logits, 0, sizeof b.logits);
            assert_int_equal(read_from(&b, 0), STRATA_ERR_CANCELLED);
            ok(strata__session_length(b.session, 0, &length));
            {
                uint32_t stop_after = b.stop_after;
                b.stop_after = 0;
                ok(read_from(&b, length));
                b.stop_after = stop_after;
            }
            assert_memory_equal(b.logits, b.expected, sizeof b.logits);
            ok(strata__session_truncate(b.session, 0, 0, &length));
        }
        b.stop_after = 0;
        drop_session(&b);
    }
    bench_close(&b);
}

static strata_status run_all(bench *b, uint32_t *stage)
{
    strata_status status = make_session(b);
    *stage = 0;
    if (status == STRATA_OK) {
        *stage = 1;
        status = make_prefill(b);
    }
    if (status == STRATA_OK) {
        *stage = 2;
        status = read_from(b, 0);
    }
    return status;
}

/* The n-th call of every kind fails once: an error; the session is usable where there is one. */
static void failing_calls_are_errors(void **state)
{
    static const uint32_t faults[] = {STRATA__FAULT_ALLOC, STRATA__FAULT_HOST_ALLOC,
                                      STRATA__FAULT_COPY, STRATA__FAULT_EVENT,
                                      STRATA__FAULT_STREAM};
    uint64_t n, hits = 0;
    bench b;
    (void)state;
    bench_open(&b);
    for (size_t f = 0; f < sizeof faults / sizeof faults[0]; ++f) {
        for (n = 1;; ++n) {
            uint32_t stage;
            uint64_t length;
            strata_status status;
            open_device(&b, STRATA__DELAYING_RANDOM, n);
            strata__delaying_fail(b.device, faults[f], n, 0);
            status = run_all(&b, &stage);
            if (status == STRATA_OK) {
                assert_memory_equal(b.logits, b.expected, sizeof b.logits);
                drop_session(&b);
                break;
            }
            hits++;
            assert_true(strata__error_text()[0] != '\0');
            if (stage == 2) {
                ok(strata__session_length(b.session, 0, &length));
                memset(b.logits + length * VOCABULARY, 0,
                       sizeof b.logits - length * VOCABULARY * sizeof(float));
                ok(read_from(&b, length));
                assert_memory_equal(b.logits, b.expected, sizeof b.logits);
            }
            drop_session(&b);
        }
        assert_true(n > 1);
    }
    assert_true(hits > 50);
    bench_close(&b);
}

/* A prompt that was read is one that the device did not fail; afterwards nothing else is tried. */
static void a_lost_device_stays_lost(void **state)
{
    uint32_t lost = 0, read = 0;
    bench b;
    (void)state;
    bench_open(&b);
    for (uint64_t n = 1; !read; ++n) {
        strata__delaying_usage usage;
        strata_status status;
        uint64_t length;
        open_device(&b, STRATA__DELAYING_RANDOM, n);
        ok(make_session(&b));
        ok(make_prefill(&b));
        strata__delaying_fail(b.device, STRATA__FAULT_LOST, n, 0);
        status = read_tokens(&b, 0, STRATA_LOGITS_NONE);
        strata__delaying_usage_get(b.device, &usage);
        assert_int_equal(status, usage.faults ? STRATA_ERR_DEVICE_LOST : STRATA_OK);
        if (status != STRATA_OK) {
            lost++;
            assert_int_equal(read_from(&b, 0), STRATA_ERR_DEVICE_LOST);
            assert_int_equal(strata__session_truncate(b.session, 0, 0, &length),
                             STRATA_ERR_DEVICE_LOST);
            assert_non_null(strstr(strata__error_text(), "lost"));
        }
        read = status == STRATA_OK;
        drop_session(&b);
    }
    assert_true(lost > 100);
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_schedule_gives_the_same_bits),
        cmocka_unit_test(every_schedule_of_mixed_paths_gives_the_same_bits),
        cmocka_unit_test(own_allocations_are_the_plans),
        cmocka_unit_test(cancelled_anywhere_the_rest_is_the_same),
        cmocka_unit_test(failing_calls_are_errors),
        cmocka_unit_test(a_lost_device_stays_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
