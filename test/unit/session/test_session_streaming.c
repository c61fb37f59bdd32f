/* SPDX-License-Identifier: MIT */
/*
 * Prompts whose experts are streamed, on the delaying device in all its schedules: the same bits as
 * on the CPU device with the experts in place, whatever ring, groups, places, tiles, budgets and
 * sources.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"
#include "support/expert_source.h"
#include "support/stream_case.h"

static tiny_spec small_spec(void)
{
    tiny_spec spec = tiny_spec_default();
    spec.layers = 3;
    spec.experts = 8;
    spec.top_k = 2;
    spec.gate_format = 8;
    return spec;
}

static void for_schedules(const stream_pack *p, const stream_options *options, uint64_t seeds)
{
    stream_options o = *options;
    for (uint32_t policy = 0; policy < STRATA__DELAYING_POLICY_COUNT; ++policy) {
        for (uint64_t seed = 0; seed < (policy == STRATA__DELAYING_RANDOM ? seeds : 1); ++seed) {
            o.device.policy = policy;
            o.device.seed = seed;
            stream_check(p, &o, 2);
        }
    }
}

static void every_ring_and_place(void **state)
{
    const stream_options cases[] = {
        {.fetch = 2},
        {.fetch = 1},
        {.fetch = 2, .group_experts = 3},
        {.fetch = 2, .group_experts = 3, .ring_pieces = 7, .resident = 2},
        {.fetch = 1, .group_experts = 2, .ring_pieces = 5, .resident = 3, .resident_step = 1},
        {.fetch = 2, .group_experts = 8, .ring_pieces = 40, .resident = 1},
        {.fetch = 2, .group_experts = 2, .resident = 8, .resident_step = 3, .expert_tile = 5},
        {.fetch = 2, .group_experts = 3, .ring_pieces = 11, .dense_tile = 7, .expert_tile = 9},
    };
    tiny_spec spec = small_spec();
    stream_pack p;
    (void)state;
    stream_pack_open(&p, &spec, 32, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i)
        for_schedules(&p, &cases[i], 6);
    stream_pack_close(&p);
}

/*
 * Blobs that are sent to their places ahead of routing, and not routed, are waited for when a later
 * chunk routes them.
 */
static void places_that_were_filled_in_passing(void **state)
{
    stream_options o = {.group_experts = 1, .resident = 15, .fetch = 2};
    tiny_spec spec = small_spec();
    stream_pack p;
    (void)state;
    spec.layers = 1;
    spec.experts = 16;
    spec.top_k = 1;
    for (uint32_t chunk = 1; chunk < 6; ++chunk) {
        stream_pack_open(&p, &spec, chunk, NULL);
        for_schedules(&p, &o, 4);
        stream_pack_close(&p);
    }
}

/* Prompts of one session: what its counters say of each. */
static strata_session_stats stats_of(const strata_session *session)
{
    strata_session_stats stats = {.struct_size = sizeof stats};
    strata__session_stats(session, &stats);
    return stats;
}

static uint64_t blob_bytes(const stream_pack *p, uint32_t layer)
{
    const strata__layer *l = &p->layers[layer];
    return (l->expert_gate.bytes + l->expert_up.bytes + l->expert_down.bytes) /
           p->geometry->experts;
}

/* Chunks of 4 tokens leave most of 16 experts unrouted. */
static void few_routed(stream_pack *p)
{
    tiny_spec spec = small_spec();
    spec.experts = 16;
    stream_pack_open(p, &spec, 4, NULL);
}

static void check_fetched(const stream_pack *p, const strata_session *session,
                          const strata_session_stats *stats)
{
    uint64_t routed = 0, chunks = STREAM_TOKENS / 4, all = 0;
    (void)session;
    for (uint32_t l = 0; l < p->geometry->layers; ++l)
        all += chunks * p->geometry->experts * blob_bytes(p, l);
    routed = stats->blob_sent_bytes + stats->blob_hit_bytes;
    assert_int_equal(stats->blob_vain_bytes, 0);
    assert_int_equal(stats->blob_filled_bytes, 0);
    assert_true(routed < all);
    assert_true(stats->blob_dropped_bytes > 0);
}

static void counters_add_up(void **state)
{
    stream_options o = {.group_experts = 3, .ring_pieces = 9, .resident = 4};
    stream_pack p;
    (void)state;
    few_routed(&p);
    for (uint32_t policy = 0; policy < STRATA__DELAYING_POLICY_COUNT; ++policy) {
        uint64_t hit_or_missed[2] = {0, 0};
        o.device.policy = policy;
        for (o.fetch = 1; o.fetch <= 2; ++o.fetch) {
            strata_session *session = NULL;
            strata_session_stats s;
            uint64_t split;
            stream_ok(stream_session(&p, &o, &session));
            stream_ok(stream_read(&p, session, NULL));
            s = stats_of(session);
            if (o.fetch == 1)
                check_fetched(&p, session, &s);
            /* Every routed blob was there or was sent for it. */
            hit_or_missed[o.fetch - 1] =
                s.blob_hit_bytes + s.blob_sent_bytes - s.blob_vain_bytes - s.blob_filled_bytes;
            split = s.kernel_ns + s.blob_wait_ns + s.host_gap_ns;
            assert_true(split <= s.prompt_ns + s.prompt_ns / 50);
            assert_true(split >= s.prompt_ns - s.prompt_ns / 50);
            strata__session_release(session);
        }
        assert_true(hit_or_missed[0] > 0);
        assert_int_equal(hit_or_missed[0], hit_or_missed[1]);
    }
    stream_pack_close(&p);
}

static void places_are_filled_once(void **state)
{
    stream_options o = {.group_experts = 2, .resident = 5, .fetch = 2};
    strata_session *session = NULL;
    strata_session_stats first, second;
    tiny_spec spec = small_spec();
    uint64_t kept = 0;
    stream_pack p;
    (void)state;
    stream_pack_open(&p, &spec, STREAM_TOKENS, NULL);
    stream_ok(stream_session(&p, &o, &session));
    stream_ok(stream_read(&p, session, NULL));
    first = stats_of(session);
    stream_ok(stream_read(&p, session, NULL));
    second = stats_of(session);
    for (uint32_t l = 0; l < p.geometry->layers; ++l)
        kept += o.resident * blob_bytes(&p, l);
    assert_int_equal(first.blob_hit_bytes, 0);
    assert_int_equal(second.blob_hit_bytes, kept);
    assert_int_equal(second.blob_sent_bytes - first.blob_sent_bytes, first.blob_sent_bytes - kept);
    stream_ok(strata__session_drop_experts(session));
    stream_ok(stream_read(&p, session, NULL));
    assert_int_equal(stats_of(session).blob_sent_bytes - second.blob_sent_bytes,
                     first.blob_sent_bytes);
    strata__session_release(session);
    stream_pack_close(&p);
}

/* Blobs that earlier rows hardly used are sent once they are routed, each once. */
static void what_was_hardly_used_follows_its_routing(void **state)
{
    stream_options o = {.group_experts = 4, .ring_pieces = 9, .resident = 3, .fetch = 2};
    float *logits = calloc(STREAM_LOGITS, sizeof *logits);
    tiny_spec spec = small_spec();
    stream_pack p;
    (void)state;
    stream_pack_open(&p, &spec, STREAM_TOKENS, NULL);
    for (uint32_t policy = 0; policy < STRATA__DELAYING_POLICY_COUNT; ++policy) {
        strata_session *session = NULL;
        strata_session_stats s;
        uint64_t all = 0;
        o.device.policy = policy;
        stream_ok(stream_session(&p, &o, &session));
        for (uint64_t i = 0; i < session->cache.count; ++i)
            session->cache.uses[i] = i % 3 ? 0 : 1000;
        stream_ok(stream_read(&p, session, logits));
        assert_memory_equal(logits, p.expected, sizeof p.expected);
        for (uint32_t l = 0; l < p.geometry->layers; ++l)
            for (uint32_t e = 0; e < p.geometry->experts; ++e) {
                uint64_t at = strata__cache_index(&session->cache, l, e);
                all += (session->cache.uses[at] != (at % 3 ? 0 : 1000)) * blob_bytes(&p, l);
            }
        s = stats_of(session);
        assert_int_equal(s.blob_sent_bytes - s.blob_vain_bytes - s.blob_filled_bytes, all);
        strata__session_release(session);
    }
    stream_pack_close(&p);
    free(logits);
}

/* The host budget decides what is page-locked; the rest is staged. Bits do not change. */
static void host_memory_of_every_kind(void **state)
{
    stream_options o = {.group_experts = 3, .ring_pieces = 8, .resident = 1, .fetch = 2};
    tiny_spec spec = small_spec();
    stream_pack p;
    (void)state;
    spec.expert_width = 64;
    stream_pack_open(&p, &spec, 24, NULL);
    for (uint32_t part = 0; part < 4; ++part) {
        strata_plan *plan;
        uint64_t least, staged;
        o.host_budget_bytes = 0;
        plan = stream_plan(&p, &o);
        least = plan->layout->host_bytes;
        strata__plan_release(plan);
        o.host_budget_bytes = least + 6 * 65536 + part * 40000;
        plan = stream_plan(&p, &o);
        staged = plan->layout->staged_bytes;
        strata__plan_release(plan);
        if (part == 0)
            assert_true(staged > 0);
        for_schedules(&p, &o, 3);
    }
    stream_pack_close(&p);
}

/* Every registration is refused: memory packs are sent as they are, files from copies. */
static void refused_page_locks(void **state)
{
    const char *path = "test-session-streaming.gguf";
    stream_options o = {.group_experts = 2, .resident = 2, .fetch = 2};
    float *logits = calloc(STREAM_LOGITS, sizeof *logits);
    (void)state;
    for (int file = 0; file < 2; ++file) {
        strata_prefill_options options = {.struct_size = sizeof options};
        strata_session_options more = {.struct_size = sizeof more};
        strata_session *session = NULL;
        strata_prefill *prefill = NULL;
        strata__device *device = NULL;
        strata_session_stats s;
        tiny_spec spec = small_spec();
        stream_pack p;
        stream_pack_open(&p, &spec, 32, file ? path : NULL);
        o.session = &more;
        o.out_device = &device;
        o.register_fails = 1;
        stream_ok(stream_session(&p, &o, &session));
        stream_ok(strata__prefill_create(session, &options, &prefill));
        stream_ok(stream_run(&p, prefill, logits, NULL, NULL));
        assert_memory_equal(logits, p.expected, sizeof p.expected);
        s = stats_of(session);
        assert_true(s.lock_wanted_bytes > 0);
        assert_int_equal(file ? s.lock_bytes : s.lock_refused_bytes, s.lock_wanted_bytes);
        strata__prefill_destroy(prefill);
        strata__session_release(session);
        stream_pack_close(&p);
    }
    remove(path);
    free(logits);
}

static void the_callers_experts(void **state)
{
    strata_session_options more = {.struct_size = sizeof more};
    stream_options o = {.group_experts = 3, .resident = 2, .fetch = 2, .session = &more};
    float *logits = calloc(STREAM_LOGITS, sizeof *logits);
    strata_session *session = NULL;
    tiny_spec spec = small_spec();
    expert_source s = {0};
    stream_pack p;
    (void)state;
    stream_pack_open(&p, &spec, 32, NULL);
    s.layers = p.layers;
    more.expert_fn = give_expert;
    more.expert_user_data = &s;
    for (more.expert_memory = 0; more.expert_memory <= STRATA_EXPERT_MEMORY_LOCKED;
         ++more.expert_memory)
        for_schedules(&p, &o, 3);
    /* A failing source ends the prompt with its status, and the next prompt is whole again. */
    for (s.fail_at = 1; s.fail_at < 60; s.fail_at += 7) {
        s.calls = 0;
        stream_ok(stream_session(&p, &o, &session));
        assert_int_equal(stream_read(&p, session, logits), STRATA_ERR_IO);
        stream_ok(stream_read(&p, session, logits));
        assert_memory_equal(logits, p.expected, sizeof p.expected);
        strata__session_release(session);
    }
    stream_pack_close(&p);
    free(logits);
}

typedef struct stopper {
    strata_session *session;
    uint32_t calls;
    uint32_t stop_at;
    bool by_cancel;
} stopper;

static int32_t stop(void *user_data, const strata_progress *progress)
{
    stopper *s = user_data;
    (void)progress;
    if (++s->calls != s->stop_at)
        return 0;
    if (s->by_cancel)
        strata__session_cancel(s->session);
    return !s->by_cancel;
}

/* 1,000 prompts stopped at random layers, in all schedules; the next one gives the same bits. */
static void cancelled_anywhere(void **state)
{
    stream_options o = {.group_experts = 2, .ring_pieces = 7, .resident = 3, .resident_step = 1};
    float *logits = calloc(STREAM_LOGITS, sizeof *logits);
    tiny_spec spec = small_spec();
    uint64_t random = 77;
    stream_pack p;
    (void)state;
    spec.width = 32;
    spec.head_size = 16;
    stream_pack_open(&p, &spec, 24, NULL);
    for (uint32_t round = 0; round < 10; ++round) {
        strata_prefill_options options = {.struct_size = sizeof options};
        strata_prefill *prefill = NULL;
        strata_session *session = NULL;
        strata__device *device = NULL;
        strata__delaying_usage before, after;
        o.device.policy = round % STRATA__DELAYING_POLICY_COUNT;
        o.device.seed = round;
        o.fetch = 1 + round % 2;
        o.borrow = round / 2 % 2;
        o.out_device = &device;
        options.memory_kind = o.borrow ? STRATA_MEMORY_LOAN : STRATA_MEMORY_OWN;
        options.keep_loan = o.borrow && round % 3 == 0;
        stream_ok(stream_session(&p, &o, &session));
        stream_ok(strata__prefill_create(session, &options, &prefill));
        strata__delaying_usage_get(device, &before);
        for (uint32_t i = 0; i < 100; ++i) {
            stopper s = {.session = session, .by_cancel = i % 2};
            s.stop_at = 1 + (uint32_t)(tiny_random(&random) % (3 * STREAM_TOKENS / 24));
            assert_int_equal(stream_run(&p, prefill, logits, stop, &s), STRATA_ERR_CANCELLED);
            if (i % 10 == 0) {
                stream_ok(stream_run(&p, prefill, logits, NULL, NULL));
                assert_memory_equal(logits, p.expected, sizeof p.expected);
            }
        }
        strata__delaying_usage_get(device, &after);
        assert_int_equal(after.device_bytes, before.device_bytes);
        assert_int_equal(after.host_bytes, before.host_bytes);
        assert_int_equal(after.events, before.events);
        strata__prefill_destroy(prefill);
        strata__session_release(session);
    }
    stream_pack_close(&p);
    free(logits);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_ring_and_place),
        cmocka_unit_test(places_that_were_filled_in_passing),
        cmocka_unit_test(counters_add_up),
        cmocka_unit_test(places_are_filled_once),
        cmocka_unit_test(what_was_hardly_used_follows_its_routing),
        cmocka_unit_test(host_memory_of_every_kind),
        cmocka_unit_test(refused_page_locks),
        cmocka_unit_test(the_callers_experts),
        cmocka_unit_test(cancelled_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
