/* SPDX-License-Identifier: MIT */
/*
 * Budgets of living sessions that were planned with all experts on the device: experts leave and
 * come back, memory to the byte; bits stay what they are, whatever is on the device.
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
#include "session/decode.h"
#include "support/stream_case.h"

enum { LAYERS = 3, EXPERTS = 12, CUT = 40 };

/* Where a session's experts come from. */
typedef enum origin { FROM_MEMORY, FROM_FILE, FROM_CALLER, ORIGINS } origin;

typedef struct bench {
    stream_pack pack;
    strata__device *device;
    strata_session *session;
    strata_prefill *prefill;
    uint64_t ask_fails; /* questions from now; 0: none fails */
    uint64_t shrink_to; /* from within a prompt */
    uint64_t waits;     /* that is not the last one to work */
    uint32_t stop_layer;
    float logits[STREAM_LOGITS];
    char path[64];
} bench;

static strata_status give(void *user_data, uint32_t layer, uint32_t expert, strata_expert_blob *out)
{
    bench *b = user_data;
    const strata__layer *l = &b->pack.layers[layer];
    if (b->ask_fails && --b->ask_fails == 0)
        return STRATA_ERR_IO;
    out->gate = (const uint8_t *)l->expert_gate.data + expert * l->expert_gate.stride_bytes;
    out->up = (const uint8_t *)l->expert_up.data + expert * l->expert_up.stride_bytes;
    out->down = (const uint8_t *)l->expert_down.data + expert * l->expert_down.stride_bytes;
    return STRATA_OK;
}

static bench *bench_open(const stream_options *options, origin from)
{
    strata_session_options session = {.struct_size = sizeof session};
    stream_options o = *options;
    tiny_spec spec = tiny_spec_default();
    bench *b = calloc(1, sizeof *b);
    assert_non_null(b);
    spec.layers = LAYERS;
    spec.experts = EXPERTS;
    spec.top_k = 2;
    spec.gate_format = 8;
    snprintf(b->path, sizeof b->path, "/tmp/strata-budget-%ld.gguf", (long)getpid());
    stream_pack_open(&b->pack, &spec, 32, from == FROM_FILE ? b->path : NULL);
    session.expert_fn = from == FROM_CALLER ? give : NULL;
    session.expert_user_data = b;
    o.session = &session;
    o.out_device = &b->device;
    stream_ok(stream_session(&b->pack, &o, &b->session));
    return b;
}

static void open_prefill(bench *b, uint32_t memory_kind, uint32_t keep_loan)
{
    strata_prefill_options options = {
        .struct_size = sizeof options, .memory_kind = memory_kind, .keep_loan = keep_loan};
    stream_ok(strata__prefill_create(b->session, &options, &b->prefill));
}

static void bench_close(bench *b)
{
    strata__prefill_destroy(b->prefill);
    strata__session_release(b->session);
    stream_pack_close(&b->pack);
    (void)remove(b->path);
    free(b);
}

static void decode_all(bench *b, uint64_t from, uint64_t end, uint32_t rows)
{
    stream_decode_all(&b->pack, b->session, from, end, rows, b->logits);
}

/* A prompt, and decoding of its later part. */
static void use(bench *b)
{
    uint64_t length;
    memset(b->logits, 0, sizeof b->logits);
    stream_ok(stream_run(&b->pack, b->prefill, b->logits, NULL, NULL));
    assert_memory_equal(b->logits, b->pack.expected, sizeof b->logits);
    stream_ok(strata__session_truncate(b->session, 0, CUT, &length));
    decode_all(b, CUT, STREAM_TOKENS, 5);
}

/* What is on the device is what the session tells. */
static uint64_t device_bytes(const bench *b)
{
    strata__delaying_usage usage;
    strata__delaying_usage_get(b->device, &usage);
    assert_int_equal(usage.device_bytes, atomic_load(&b->session->counters.device_bytes));
    return usage.device_bytes;
}

static uint64_t least_bytes(const bench *b)
{
    return b->session->memory.bytes + b->session->loan_memory.bytes +
           atomic_load(&b->session->prefill_bytes);
}

static uint64_t sent_bytes(const bench *b)
{
    return atomic_load(&b->session->counters.blob_sent_bytes);
}

static void check_presence(bench *b, uint32_t least)
{
    strata__loan_settle(&b->session->loan);
    stream_ok(strata__decode_settle(b->session));
    assert_true(stream_present(&b->pack, b->session) >= least);
}

/* All experts are on the device, and nothing is sent, nor refilled where prompts borrow. */
static void check_whole(bench *b, uint64_t planned)
{
    uint64_t sent = sent_bytes(b);
    assert_int_equal(device_bytes(b), planned);
    assert_int_equal(b->session->experts.source, STRATA__SOURCE_RESIDENT);
    assert_false(b->session->loan.is_running);
    assert_int_equal(stream_present(&b->pack, b->session), LAYERS * EXPERTS);
    use(b);
    assert_int_equal(sent_bytes(b), sent);
    check_presence(b, LAYERS * EXPERTS);
}

static void shrink(bench *b, uint64_t planned, uint64_t budget)
{
    uint64_t sent = sent_bytes(b);
    stream_ok(strata__session_set_budget(b->session, budget));
    assert_true(device_bytes(b) <= budget);
    assert_int_equal(b->session->experts.source,
                     budget < planned ? STRATA__SOURCE_STREAMED : STRATA__SOURCE_RESIDENT);
    use(b);
    assert_true(device_bytes(b) <= budget);
    assert_true(budget == planned || sent_bytes(b) > sent);
    check_presence(b, 0);
}

static stream_options options_of(uint32_t i)
{
    stream_options o = {.resident = EXPERTS, .group_experts = 1 + i % 3 * 5};
    o.device.policy = i % STRATA__DELAYING_POLICY_COUNT;
    o.device.seed = i + 1;
    o.device.no_reads = i % 5 == 4;
    o.device.graphs = i % 2;
    o.borrow = i / 2 % 3 != 0;
    o.fetch = i % 4 == 3 ? 0 : 1 + i % 2;
    o.register_fails = i % 7 == 6;
    o.host_budget_bytes = i % 8 == 7 ? 120000 : 0;
    return o;
}

static void experts_leave_and_come_back(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < STRATA__DELAYING_POLICY_COUNT * 8; ++i) {
        stream_options o = options_of(i);
        bench *b = bench_open(&o, i / 3 % ORIGINS);
        uint64_t planned, least;
        open_prefill(b, o.borrow ? STRATA_MEMORY_LOAN : STRATA_MEMORY_OWN, i % 2);
        planned = device_bytes(b);
        least = least_bytes(b);
        assert_int_equal(planned, b->session->layout->device_bytes);
        check_whole(b, planned);
        for (uint32_t k = 0; k <= 4; ++k)
            shrink(b, planned, planned - (planned - least) * k / 4);
        assert_int_equal(device_bytes(b), least);
        shrink(b, planned, (planned + least) / 2);
        /* While what was borrowed is refilled. */
        stream_ok(stream_run(&b->pack, b->prefill, NULL, NULL, NULL));
        stream_ok(strata__session_set_budget(b->session, i % 2 ? 0 : planned));
        check_whole(b, planned);
        shrink(b, planned, planned - 1);
        stream_ok(strata__session_set_budget(b->session, 0));
        check_whole(b, planned);
        bench_close(b);
    }
}

/* Without a prompt between: steps of decoding alone. */
static void between_steps(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < STRATA__DELAYING_POLICY_COUNT * 4; ++i) {
        stream_options o = options_of(i);
        bench *b = bench_open(&o, i / 3 % ORIGINS);
        uint64_t planned = device_bytes(b), least = least_bytes(b);
        for (uint32_t k = 0; k < 12; ++k) {
            decode_all(b, k * 8, k * 8 + 4, 1);
            stream_ok(strata__session_set_budget(
                b->session, k % 4 == 3 ? 0 : planned - (planned - least) * (k % 4 + 1) / 3));
            assert_int_equal(b->session->experts.source == STRATA__SOURCE_RESIDENT, k % 4 == 3);
            decode_all(b, k * 8 + 4, k * 8 + 8, 1 + k % 3);
            if (k % 5 == 4)
                stream_ok(strata__session_drop_experts(b->session));
            check_presence(b, 0);
        }
        assert_int_equal(device_bytes(b), planned);
        bench_close(b);
    }
}

static void too_little(void **state)
{
    stream_options o = {.resident = EXPERTS};
    bench *b = bench_open(&o, FROM_MEMORY);
    uint64_t planned, least;
    char number[24];
    (void)state;
    open_prefill(b, STRATA_MEMORY_OWN, 0);
    planned = device_bytes(b);
    least = least_bytes(b);
    assert_int_equal(strata__session_set_budget(b->session, least - 1), STRATA_ERR_PLAN_INFEASIBLE);
    snprintf(number, sizeof number, " %llu ", (unsigned long long)least);
    assert_non_null(strstr(strata__error_text(), number));
    check_whole(b, planned);
    bench_close(b);
}

/* What is fixed says why. */
static void fixed_sessions(void **state)
{
    const stream_options fixed[] = {
        {.resident = EXPERTS, .experts = STRATA_EXPERTS_RESIDENT},
        {.resident = EXPERTS, .decode_rows = STRATA_DECODE_ROWS_NONE},
    };
    (void)state;
    for (int i = 0; i < 2; ++i) {
        bench *b = bench_open(&fixed[i], FROM_MEMORY);
        uint64_t planned;
        open_prefill(b, STRATA_MEMORY_OWN, 0);
        planned = device_bytes(b);
        assert_int_equal(strata__session_set_budget(b->session, planned - 1),
                         STRATA_ERR_UNSUPPORTED);
        assert_non_null(strstr(strata__error_text(), "keeps all experts"));
        assert_int_equal(device_bytes(b), planned);
        assert_int_equal(b->session->experts.source, STRATA__SOURCE_RESIDENT);
        check_presence(b, LAYERS * EXPERTS);
        memset(b->logits, 0, sizeof b->logits);
        stream_ok(stream_run(&b->pack, b->prefill, b->logits, NULL, NULL));
        assert_memory_equal(b->logits, b->pack.expected, sizeof b->logits);
        bench_close(b);
    }
}

static void in_the_callers_memory(void **state)
{
    stream_options o = {.resident = EXPERTS};
    strata_session_options options = {.struct_size = sizeof options, .thread_count = 1, .blas = 1};
    bench *b = bench_open(&o, FROM_MEMORY);
    strata_plan *plan = stream_plan(&b->pack, &o);
    strata_session *session = NULL;
    strata__device *device = NULL;
    void *memory = NULL;
    (void)state;
    options.plan = plan;
    options.device_memory_bytes = plan->layout->session_bytes;
    stream_ok(strata__delaying_device_open(b->pack.context, &o.device, &device));
    stream_ok(device->ops->alloc(device, options.device_memory_bytes, "a session", &memory));
    options.device_memory = memory;
    strata__device_hold(device);
    stream_ok(strata__session_create_on(device, b->pack.pack, &options, &session));
    assert_int_equal(strata__session_set_budget(session, 1 << 20), STRATA_ERR_UNSUPPORTED);
    assert_non_null(strstr(strata__error_text(), "caller's memory"));
    stream_ok(stream_read(&b->pack, session, b->logits));
    assert_memory_equal(b->logits, b->pack.expected, sizeof b->logits);
    strata__session_release(session);
    device->ops->free(device, memory, options.device_memory_bytes);
    strata__device_release(device);
    strata__plan_release(plan);
    bench_close(b);
}

static int32_t shrink_now(void *user_data, const strata_progress *progress)
{
    bench *b = user_data;
    (void)progress;
    stream_ok(strata__session_set_budget(b->session, b->shrink_to));
    return 0;
}

/* A running prompt is left in peace; the next call meets the budget, whatever it is. */
static void while_a_prompt_runs(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < STRATA__DELAYING_POLICY_COUNT * 2; ++i) {
        stream_options o = options_of(i);
        bench *b = bench_open(&o, i / 3);
        uint64_t planned, length;
        open_prefill(b, o.borrow ? STRATA_MEMORY_LOAN : STRATA_MEMORY_OWN, 0);
        planned = device_bytes(b);
        for (uint32_t k = 0; k < 4; ++k) {
            uint64_t before = device_bytes(b);
            b->shrink_to = k % 2 ? 0 : least_bytes(b);
            memset(b->logits, 0, sizeof b->logits);
            stream_ok(stream_run(&b->pack, b->prefill, b->logits, shrink_now, b));
            assert_memory_equal(b->logits, b->pack.expected, sizeof b->logits);
            assert_int_equal(device_bytes(b), before);
            if (k < 2) {
                use(b);
            } else {
                stream_ok(strata__session_truncate(b->session, 0, CUT, &length));
                decode_all(b, CUT, CUT + 4, 2);
            }
            assert_int_equal(device_bytes(b), k % 2 ? planned : least_bytes(b));
        }
        check_whole(b, planned);
        bench_close(b);
    }
}

/* An expert that does not come back leaves a session that streams, and tries again. */
static void experts_that_do_not_come_back(void **state)
{
    stream_options o = {.resident = EXPERTS, .borrow = 1, .fetch = 1};
    (void)state;
    for (uint64_t n = 1; n <= LAYERS * EXPERTS; n += 7) {
        bench *b = bench_open(&o, FROM_CALLER);
        uint64_t planned = device_bytes(b);
        open_prefill(b, STRATA_MEMORY_LOAN, 0);
        stream_ok(strata__session_set_budget(b->session, least_bytes(b)));
        b->ask_fails = n;
        assert_int_equal(strata__session_set_budget(b->session, 0), STRATA_ERR_IO);
        assert_int_equal(device_bytes(b), planned);
        assert_int_equal(b->session->experts.source, STRATA__SOURCE_STREAMED);
        decode_all(b, 0, 8, 3);
        use(b);
        check_whole(b, planned);
        bench_close(b);
    }
}

/* Also where the memory is not to be had: as much as there is. */
static void memory_that_does_not_come_back(void **state)
{
    stream_options o = {.resident = EXPERTS};
    (void)state;
    for (uint64_t n = 1; n <= LAYERS; ++n) {
        bench *b = bench_open(&o, FROM_FILE);
        uint64_t planned;
        open_prefill(b, STRATA_MEMORY_OWN, 0);
        planned = device_bytes(b);
        stream_ok(strata__session_set_budget(b->session, least_bytes(b)));
        strata__delaying_fail(b->device, STRATA__FAULT_ALLOC, n, 0);
        stream_ok(strata__session_set_budget(b->session, 0));
        assert_true(device_bytes(b) < planned);
        assert_int_equal(b->session->experts.source, STRATA__SOURCE_STREAMED);
        decode_all(b, 0, 8, 3);
        use(b);
        check_whole(b, planned);
        bench_close(b);
    }
}

static void finish_locking(const bench *b)
{
    const strata__host_tier *tier = b->session->tier;
    while (tier && atomic_load(&tier->pinned_bytes) + atomic_load(&tier->refused_bytes) <
                       atomic_load(&tier->wanted_bytes))
        usleep(100);
}

/* The prompt ends here, and none of its streams can be waited for but the first few. */
static int32_t stop_unsettled(void *user_data, const strata_progress *progress)
{
    const bench *b = user_data;
    if (progress->layer < b->stop_layer)
        return 0;
    strata__delaying_fail(b->device, STRATA__FAULT_STREAM, b->waits, 1);
    return 1;
}

/* Prompts and steps share a ring: copies that a prompt has left do not reach a step. */
static void streams_that_could_not_be_waited_for(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 96; ++seed) {
        stream_options o = {.resident = EXPERTS, .fetch = 2};
        uint64_t length;
        bench *b;
        o.device.policy = STRATA__DELAYING_RANDOM;
        o.device.seed = seed;
        o.device.no_reads = 1;
        b = bench_open(&o, FROM_FILE);
        open_prefill(b, STRATA_MEMORY_OWN, 0);
        stream_ok(strata__session_set_budget(b->session, least_bytes(b)));
        finish_locking(b);
        b->stop_layer = 1 + (uint32_t)(seed % 3);
        b->waits = 1 + seed / 3 % 3;
        assert_int_not_equal(stream_run(&b->pack, b->prefill, NULL, stop_unsettled, b), STRATA_OK);
        assert_int_equal(strata__session_truncate(b->session, 0, 0, &length), STRATA_ERR_DRIVER);
        strata__delaying_fail(b->device, 0, 0, 0);
        stream_ok(strata__session_truncate(b->session, 0, 0, &length));
        decode_all(b, 0, 16, 4);
        use(b);
        bench_close(b);
    }
}

/* As long as all experts are on the device, nothing is page-locked for them. */
static void page_locking_begins_with_streaming(void **state)
{
    stream_options o = {.resident = EXPERTS};
    bench *b = bench_open(&o, FROM_FILE);
    strata_session_stats stats;
    (void)state;
    open_prefill(b, STRATA_MEMORY_OWN, 0);
    strata__session_stats(b->session, &stats);
    assert_int_equal(stats.lock_wanted_bytes, 0);
    stream_ok(strata__session_set_budget(b->session, least_bytes(b)));
    strata__session_stats(b->session, &stats);
    assert_true(stats.lock_wanted_bytes > 0);
    use(b);
    bench_close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(experts_leave_and_come_back),
        cmocka_unit_test(between_steps),
        cmocka_unit_test(too_little),
        cmocka_unit_test(fixed_sessions),
        cmocka_unit_test(in_the_callers_memory),
        cmocka_unit_test(while_a_prompt_runs),
        cmocka_unit_test(experts_that_do_not_come_back),
        cmocka_unit_test(memory_that_does_not_come_back),
        cmocka_unit_test(streams_that_could_not_be_waited_for),
        cmocka_unit_test(page_locking_begins_with_streaming),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
