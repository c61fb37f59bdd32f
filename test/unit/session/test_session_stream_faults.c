/* SPDX-License-Identifier: MIT */
/*
 * Streaming when calls of the device fail: every call of a session's life in turn. What cannot be
 * done is an error, what costs only speed is none, and the next prompt gives the same bits or the
 * session says that its device is lost. Also two sessions of one pack in two threads, and random
 * rings, pieces, places and tiles.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"
#include "support/stream_case.h"

static tiny_spec small_spec(void)
{
    tiny_spec spec = tiny_spec_default();
    spec.layers = 2;
    spec.experts = 6;
    spec.top_k = 2;
    spec.width = 32;
    spec.head_size = 16;
    spec.gate_format = 8;
    return spec;
}

static strata_status read_twice(const stream_pack *p, strata_session *session, float *logits)
{
    strata_prefill_options options = {.struct_size = sizeof options};
    strata_prefill *prefill = NULL;
    strata_status status;
    if (session->layout->loan_bytes)
        options.memory_kind = STRATA_MEMORY_LOAN;
    status = strata__prefill_create(session, &options, &prefill);
    for (int i = 0; i < 2 && status == STRATA_OK; ++i) {
        memset(logits, 0, STREAM_LOGITS * sizeof *logits);
        status = stream_run(p, prefill, logits, NULL, NULL);
        if (status == STRATA_OK)
            assert_memory_equal(logits, p->expected, sizeof p->expected);
    }
    strata__prefill_destroy(prefill);
    return status;
}

/* Calls that fail from session creation on; answers whether one was hit. */
static bool fail_one(const stream_pack *p, const stream_options *options, uint32_t faults,
                     uint64_t countdown, float *logits)
{
    stream_options o = *options;
    strata__device *device = NULL;
    strata_session *session = NULL;
    strata__delaying_usage usage;
    strata_status status;
    o.out_device = &device;
    o.faults = faults;
    o.fault_countdown = countdown;
    status = stream_session(p, &o, &session);
    if (status != STRATA_OK) {
        assert_null(session);
        return true;
    }
    status = read_twice(p, session, logits);
    strata__loan_settle(&session->loan);
    strata__delaying_usage_get(device, &usage);
    strata__delaying_fail(device, 0, 0, 0);
    if (status == STRATA_ERR_DEVICE_LOST)
        assert_int_equal(read_twice(p, session, logits), STRATA_ERR_DEVICE_LOST);
    else if (!(faults & STRATA__FAULT_LOST) || !usage.faults)
        stream_ok(read_twice(p, session, logits));
    strata__session_release(session);
    return usage.faults > 0;
}

static void every_call_fails_once(void **state)
{
    static const uint32_t kinds[] = {
        STRATA__FAULT_ALLOC, STRATA__FAULT_HOST_ALLOC, STRATA__FAULT_REGISTER, STRATA__FAULT_COPY,
        STRATA__FAULT_EVENT, STRATA__FAULT_STREAM,     STRATA__FAULT_LOST};
    stream_options o = {.group_experts = 2, .ring_pieces = 5, .resident = 1, .fetch = 2};
    float *logits = calloc(STREAM_LOGITS, sizeof *logits);
    tiny_spec spec = small_spec();
    stream_pack p;
    (void)state;
    stream_pack_open(&p, &spec, 32, NULL);
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; ++k) {
        uint64_t n = 1, hits = 0;
        for (;; ++n) {
            o.device.policy = n % STRATA__DELAYING_POLICY_COUNT;
            o.borrow = n / 3 % 2;
            o.fetch = 1 + n / 2 % 2;
            if (!fail_one(&p, &o, kinds[k], n, logits))
                break;
            hits++;
        }
        assert_true(hits > 0);
    }
    stream_pack_close(&p);
    free(logits);
}

/* A pin that is refused costs speed alone, at whichever piece. */
static void refused_pins_are_no_errors(void **state)
{
    stream_options o = {.group_experts = 2, .resident = 1, .fetch = 2};
    float *logits = calloc(STREAM_LOGITS, sizeof *logits);
    tiny_spec spec = small_spec();
    stream_pack p;
    (void)state;
    stream_pack_open(&p, &spec, 32, NULL);
    for (uint64_t n = 1; n < 4; ++n) {
        strata_session *session = NULL;
        o.faults = STRATA__FAULT_REGISTER;
        o.fault_countdown = n;
        stream_ok(stream_session(&p, &o, &session));
        stream_ok(read_twice(&p, session, logits));
        strata__session_release(session);
    }
    stream_pack_close(&p);
    free(logits);
}

/* An allocator whose n-th allocation fails, and that knows what is still allocated. */
typedef struct book {
    pthread_mutex_t lock;
    uint64_t countdown; /* 0: none fails */
    uint64_t live_bytes;
    uint64_t failed;
} book;

static void *book_alloc(void *user_data, uint64_t bytes, uint64_t alignment)
{
    book *b = user_data;
    void *pointer = NULL;
    bool fails;
    pthread_mutex_lock(&b->lock);
    fails = b->countdown && --b->countdown == 0;
    b->failed += fails;
    if (!fails)
        pointer = strata__alloc_aligned(strata__allocator_default(), bytes, alignment);
    if (pointer)
        b->live_bytes += bytes;
    pthread_mutex_unlock(&b->lock);
    return pointer;
}

static void book_free(void *user_data, void *pointer, uint64_t bytes)
{
    book *b = user_data;
    if (!pointer)
        return;
    pthread_mutex_lock(&b->lock);
    b->live_bytes -= bytes;
    pthread_mutex_unlock(&b->lock);
    strata__free(strata__allocator_default(), pointer, bytes);
}

/* Every allocation fails in turn: an error, nothing leaks, and the next prompt is whole. */
static void every_allocation_fails_once(void **state)
{
    stream_options o = {.group_experts = 2, .ring_pieces = 5, .resident = 1, .fetch = 2};
    float *logits = calloc(STREAM_LOGITS, sizeof *logits);
    book b = {.lock = PTHREAD_MUTEX_INITIALIZER};
    strata_context_options context = {.struct_size = sizeof context};
    tiny_spec spec = small_spec();
    uint64_t live, hits = 0;
    stream_pack p;
    (void)state;
    context.alloc_fn = book_alloc;
    context.free_fn = book_free;
    context.alloc_user_data = &b;
    stream_pack_open_in(&p, &spec, 48, NULL, &context);
    live = b.live_bytes;
    for (uint64_t n = 1;; n += n < 60 ? 1 : n / 40) {
        strata_session *session = NULL;
        strata__device *device = NULL;
        strata_plan *plan = stream_plan(&p, &o);
        strata_session_options options = {.struct_size = sizeof options, .thread_count = 1};
        strata_status status;
        options.blas = 1;
        options.plan = plan;
        o.borrow = n % 2;
        b.failed = 0;
        b.countdown = n;
        status = strata__delaying_device_open(p.context, &o.device, &device);
        if (status == STRATA_OK)
            status = strata__session_create_on(device, p.pack, &options, &session);
        if (status == STRATA_OK)
            status = read_twice(&p, session, logits);
        b.countdown = 0;
        if (session)
            stream_ok(read_twice(&p, session, logits));
        strata__session_release(session);
        strata__plan_release(plan);
        assert_int_equal(b.live_bytes, live);
        if (!b.failed)
            break;
        /* What page-locking and refills lack costs speed alone. */
        assert_true(status == STRATA_ERR_NO_MEMORY || status == STRATA_OK);
        hits += status != STRATA_OK;
    }
    assert_true(hits > 100);
    stream_pack_close(&p);
    assert_int_equal(b.live_bytes, 0);
    free(logits);
}

typedef struct worker {
    const stream_pack *pack;
    stream_options options;
    uint32_t rounds;
    bool good;
} worker;

static void *work(void *user_data)
{
    worker *w = user_data;
    float *logits = calloc(STREAM_LOGITS, sizeof *logits);
    w->good = logits != NULL;
    for (uint32_t i = 0; i < w->rounds && w->good; ++i) {
        strata_session *session = NULL;
        w->good = stream_session(w->pack, &w->options, &session) == STRATA_OK &&
                  stream_read(w->pack, session, logits) == STRATA_OK &&
                  memcmp(logits, w->pack->expected, sizeof w->pack->expected) == 0 &&
                  stream_read(w->pack, session, logits) == STRATA_OK &&
                  memcmp(logits, w->pack->expected, sizeof w->pack->expected) == 0;
        strata__session_release(session);
    }
    free(logits);
    return NULL;
}

/* One pack, whose page-locked memory both sessions share. */
static void two_sessions_in_two_threads(void **state)
{
    tiny_spec spec = small_spec();
    stream_pack p;
    pthread_t threads[2];
    worker workers[2];
    (void)state;
    stream_pack_open(&p, &spec, 32, NULL);
    for (uint32_t i = 0; i < 2; ++i) {
        workers[i] = (worker){.pack = &p, .rounds = 8};
        workers[i].options = (stream_options){.group_experts = 1 + i, .resident = i, .fetch = 2};
        workers[i].options.device.policy = STRATA__DELAYING_RANDOM;
        workers[i].options.device.seed = i;
        if (i)
            workers[i].options.host_budget_bytes = 200000;
    }
    for (int i = 0; i < 2; ++i)
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    for (int i = 0; i < 2; ++i) {
        pthread_join(threads[i], NULL);
        assert_true(workers[i].good);
    }
    stream_pack_close(&p);
}

static void random_choices(void **state)
{
    uint64_t random = 5;
    (void)state;
    for (uint32_t pack = 0; pack < 6; ++pack) {
        tiny_spec spec = small_spec();
        stream_pack p;
        spec.experts = 3 + (uint32_t)(tiny_random(&random) % 14);
        spec.layers = 1 + (uint32_t)(tiny_random(&random) % 4);
        spec.seed += pack;
        stream_pack_open(&p, &spec, 1 + (uint32_t)(tiny_random(&random) % STREAM_TOKENS), NULL);
        for (uint32_t i = 0; i < 30; ++i) {
            stream_options o = {0};
            o.device.policy = (uint32_t)(tiny_random(&random) % STRATA__DELAYING_POLICY_COUNT);
            o.device.seed = tiny_random(&random);
            o.group_experts = 1 + (uint32_t)(tiny_random(&random) % spec.experts);
            o.ring_pieces =
                2 * o.group_experts + (uint32_t)(tiny_random(&random) % (2 * spec.experts));
            o.resident = (uint32_t)(tiny_random(&random) % (spec.experts + 1));
            o.resident_step = 1 + (uint32_t)(tiny_random(&random) % 2);
            if (o.resident == spec.experts && spec.layers == 1)
                o.resident--;
            o.expert_tile = (uint32_t)(tiny_random(&random) % 40);
            o.dense_tile = (uint32_t)(tiny_random(&random) % 20);
            o.fetch = (uint32_t)(tiny_random(&random) % 3);
            o.host_budget_bytes = i % 3 ? 0 : 150000 + tiny_random(&random) % 200000;
            stream_check(&p, &o, 2);
        }
        stream_pack_close(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_fails_once),
        cmocka_unit_test(refused_pins_are_no_errors),
        cmocka_unit_test(every_allocation_fails_once),
        cmocka_unit_test(two_sessions_in_two_threads),
        cmocka_unit_test(random_choices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
