/* SPDX-License-Identifier: MIT */
/*
 * Decoding where experts are streamed, on the device that delays: the bits of a prompt whatever is
 * on the device, read in place or fetched; the cache changes between steps alone and holds what it
 * says; a step that fails, for whatever reason, leaves the session as it was.
 */
#include <pthread.h>
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

static tiny_spec small_spec(void)
{
    tiny_spec spec = tiny_spec_default();
    spec.layers = 3;
    spec.experts = 12;
    spec.top_k = 2;
    spec.gate_format = 8;
    return spec;
}

typedef struct bench {
    stream_pack pack;
    strata__device *device;
    strata_session *session;
    strata_prefill *prefill;
    float logits[STREAM_LOGITS];
    char path[64];
} bench;

/* `in_file`: experts can be page-locked as a whole. */
static bench *bench_open(const stream_options *options, bool in_file)
{
    bench *b = calloc(1, sizeof *b);
    stream_options o = *options;
    tiny_spec spec = small_spec();
    assert_non_null(b);
    snprintf(b->path, sizeof b->path, "/tmp/strata-decode-%ld.gguf", (long)getpid());
    stream_pack_open(&b->pack, &spec, 32, in_file ? b->path : NULL);
    o.out_device = &b->device;
    stream_ok(stream_session(&b->pack, &o, &b->session));
    return b;
}

static void bench_close(bench *b)
{
    strata__prefill_destroy(b->prefill);
    strata__session_release(b->session);
    stream_pack_close(&b->pack);
    (void)remove(b->path);
    free(b);
}

static void open_prefill(bench *b, uint32_t memory_kind, uint32_t keep_loan)
{
    strata_prefill_options options = {
        .struct_size = sizeof options, .memory_kind = memory_kind, .keep_loan = keep_loan};
    stream_ok(strata__prefill_create(b->session, &options, &b->prefill));
}

static strata_status decode(bench *b, uint64_t at, uint32_t rows)
{
    return stream_decode(&b->pack, b->session, at, rows, b->logits);
}

static void empty(bench *b)
{
    uint64_t length;
    stream_ok(strata__session_truncate(b->session, 0, 0, &length));
}

static void decode_all(bench *b, uint64_t from, uint64_t end, uint32_t rows)
{
    stream_decode_all(&b->pack, b->session, from, end, rows, b->logits);
}

static void read_whole(bench *b)
{
    memset(b->logits, 0, sizeof b->logits);
    stream_ok(stream_run(&b->pack, b->prefill, b->logits, NULL, NULL));
    assert_memory_equal(b->logits, b->pack.expected, sizeof b->logits);
}

/* Waits until the pack's memory is page-locked as far as it will be. */
static void finish_locking(const bench *b)
{
    const strata__host_tier *tier = b->session->tier;
    while (tier && atomic_load(&tier->pinned_bytes) + atomic_load(&tier->refused_bytes) <
                       atomic_load(&tier->wanted_bytes))
        usleep(1000);
}

static strata_session_stats stats_of(const bench *b)
{
    strata_session_stats stats;
    strata__session_stats(b->session, &stats);
    return stats;
}

/* The table of experts shows what the cache holds. */
static void check_table(const bench *b)
{
    const strata__cache *cache = &b->session->cache;
    const void **row = b->session->decode.experts.table;
    uint32_t experts = b->pack.geometry->experts;
    for (uint64_t i = 0; i < cache->count; ++i)
        if (cache->states[i] == STRATA__BLOB_PRESENT)
            assert_ptr_equal(row[i / experts * 3 * experts + i % experts], cache->places[i]);
}

static uint32_t settle_and_count(bench *b)
{
    stream_ok(strata__decode_settle(b->session));
    return stream_present(&b->pack, b->session);
}

/* Everything that decides where an expert is found, in every schedule. */
static void decoding_is_the_prompt(void **state)
{
    static const uint32_t residents[] = {0, 1, 5, 11}, rows[] = {1, 5, 16};
    (void)state;
    for (uint32_t i = 0; i < STRATA__DELAYING_POLICY_COUNT * 8; ++i) {
        stream_options o = {.resident = residents[i / 2 % 4]};
        bench *b;
        o.device.policy = i % STRATA__DELAYING_POLICY_COUNT;
        o.device.seed = i + 1;
        o.device.no_reads = i % 5 == 4;
        o.device.graphs = i % 3 != i / 8 % 3;
        o.register_fails = i % 7 == 6;
        o.resident_step = o.resident == 5 ? 1 : 0;
        b = bench_open(&o, i % 2);
        if (i % 4)
            finish_locking(b);
        for (uint32_t r = 0; r < 3; ++r) {
            empty(b);
            decode_all(b, 0, STREAM_TOKENS, rows[r]);
        }
        settle_and_count(b);
        /* A prompt between, whose copies fill the cache too. */
        open_prefill(b, STRATA_MEMORY_OWN, 0);
        read_whole(b);
        empty(b);
        decode_all(b, 0, 1, 1);
        check_table(b);
        decode_all(b, 1, STREAM_TOKENS, 3);
        read_whole(b);
        settle_and_count(b);
        bench_close(b);
    }
}

/* Page-locked as a whole, nothing is fetched, and no step waits for a layer's routing. */
static void read_in_place(void **state)
{
    stream_options o = {.resident = 5, .device = {.policy = STRATA__DELAYING_KERNELS_LATE}};
    strata_session_stats stats;
    bench *b;
    (void)state;
    b = bench_open(&o, true);
    finish_locking(b);
    decode_all(b, 0, STREAM_TOKENS, 1);
    stats = stats_of(b);
    assert_int_equal(b->session->decode.experts.absent, 0);
    assert_int_equal(stats.decode_fetch_bytes, 0);
    assert_true(stats.decode_place_bytes > 0);
    assert_true(stats.decode_hit_bytes > 0);
    assert_true(stats.decode_admit_bytes > 0);
    assert_int_equal(stats.decode_hit_bytes + stats.decode_place_bytes,
                     (uint64_t)STREAM_TOKENS * 2 * 3 *
                         (b->pack.layers[0].expert_gate.bytes + b->pack.layers[0].expert_up.bytes +
                          b->pack.layers[0].expert_down.bytes) /
                         12);
    bench_close(b);
}

static uint32_t count_graphs(const bench *b)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < STRATA__DECODE_GRAPHS; ++i)
        count += b->session->decode.graphs.entries[i].graph != NULL;
    return count;
}

/* A step of a shape is recorded once and launched again, whatever the cache does meanwhile. */
static void recorded_steps(void **state)
{
    stream_options o = {.resident = 3, .device = {.graphs = 1}};
    (void)state;
    for (uint32_t i = 0; i < STRATA__DELAYING_POLICY_COUNT * 2; ++i) {
        strata_session_stats stats;
        uint64_t length;
        bench *b;
        o.device.policy = i / 2;
        o.device.seed = i + 1;
        b = bench_open(&o, true);
        finish_locking(b);
        decode_all(b, 0, 64, 1);
        assert_int_equal(count_graphs(b), 1);
        assert_int_equal(b->session->decode.graphs.uses, 64);
        decode_all(b, 64, STREAM_TOKENS, 16);
        assert_int_equal(count_graphs(b), 2);
        stats = stats_of(b);
        assert_int_equal(stats.expert_rows, (uint64_t)STREAM_TOKENS * 3 * 2);
        assert_int_equal(stats.expert_launches, (64 + 2) * 3);
        /* More shapes than are kept. */
        for (uint32_t rows = 1; rows <= 16; ++rows) {
            stream_ok(strata__session_truncate(b->session, 0, 32, &length));
            decode_all(b, 32, 32 + 2 * rows, rows);
        }
        assert_int_equal(count_graphs(b), STRATA__DECODE_GRAPHS);
        settle_and_count(b);
        bench_close(b);
    }
}

/* Positions lie below a bound, of which there are few. */
static void bounds_of_positions(void **state)
{
    (void)state;
    assert_int_equal(strata__decode_kv_bound(1), 1024);
    assert_int_equal(strata__decode_kv_bound(1024), 1024);
    assert_int_equal(strata__decode_kv_bound(1025), 2048);
    assert_int_equal(strata__decode_kv_bound(100000), 131072);
}

/* Nothing can be read in place: what is not on the device is fetched. */
static void fetched(void **state)
{
    stream_options o = {.resident = 2, .device = {.no_reads = 1}};
    strata_session_stats stats;
    bench *b;
    (void)state;
    b = bench_open(&o, true);
    decode_all(b, 0, STREAM_TOKENS, 16);
    stats = stats_of(b);
    assert_true(stats.decode_fetch_bytes > 0);
    assert_int_equal(stats.decode_place_bytes, 0);
    bench_close(b);
}

/* A loan, also one that is kept, is back before a step, and its experts are found again. */
static void after_a_loan(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < STRATA__DELAYING_POLICY_COUNT * 4; ++i) {
        stream_options o = {.resident = 3, .borrow = 1};
        bench *b;
        o.device.policy = i % STRATA__DELAYING_POLICY_COUNT;
        o.device.seed = i + 1;
        b = bench_open(&o, i % 2);
        open_prefill(b, STRATA_MEMORY_LOAN, i / 2 % 2);
        for (int round = 0; round < 2; ++round) {
            uint64_t length;
            read_whole(b);
            stream_ok(strata__session_truncate(b->session, 0, 40, &length));
            decode_all(b, 40, 42, 1);
            assert_false(b->session->loan.is_lent);
            stream_wait_for_refill(b->session);
            decode_all(b, 42, STREAM_TOKENS, 1);
            assert_true(stream_present_in_loan(b->session) > 0 || !round);
            settle_and_count(b);
        }
        bench_close(b);
    }
}

/* Uses by hand, so that what is admitted follows from them alone. */
static void use(bench *b, const uint32_t *experts, uint32_t count)
{
    const strata__layout_buffer *host =
        strata__layout_find_work_host(&b->session->layout->decode, STRATA__BUFFER_HOST_OFFSETS);
    for (uint32_t l = 0; l < 3; ++l) {
        uint32_t *offsets =
            (uint32_t *)(b->session->decode.host.region.base + host->offset + l * host->row_bytes);
        uint32_t at = 0;
        for (uint32_t e = 0; e < 12; ++e) {
            offsets[e] = at;
            for (uint32_t i = 0; i < count; ++i)
                at += experts[i] == e;
        }
        offsets[12] = at;
    }
    strata__decode_cache_learn(b->session, 1);
    stream_ok(strata__decode_settle(b->session));
}

static bool is_present(const bench *b, uint32_t expert)
{
    for (uint32_t l = 0; l < 3; ++l)
        if (b->session->cache.states[strata__cache_index(&b->session->cache, l, expert)] !=
            STRATA__BLOB_PRESENT)
            return false;
    return true;
}

static bench *policy_bench(void)
{
    stream_options o = {.resident = 2};
    bench *b = bench_open(&o, true);
    finish_locking(b);
    decode_all(b, 0, 1, 1);
    stream_ok(strata__decode_settle(b->session));
    return b;
}

/* Experts that come once do not push out those that are used again and again. */
static void no_thrash(void **state)
{
    bench *b = policy_bench();
    strata_session_stats before;
    (void)state;
    for (uint32_t i = 0; i < 50; ++i)
        use(b, (const uint32_t[]){3, 7}, 2);
    assert_true(is_present(b, 3) && is_present(b, 7));
    before = stats_of(b);
    for (uint32_t i = 0; i < 200; ++i) {
        uint32_t other = 8 + i % 4;
        use(b, (const uint32_t[]){i % 2 ? 3 : 7, other}, 2);
        assert_true(is_present(b, 3) && is_present(b, 7));
    }
    assert_int_equal(stats_of(b).decode_admit_bytes, before.decode_admit_bytes);
    settle_and_count(b);
    bench_close(b);
}

/* What is used from now on comes in although others were used more, long ago. */
static void old_uses_fade(void **state)
{
    const strata_cache_policy policy = {.half_life_tokens = 20};
    bench *b = policy_bench();
    uint32_t steps = 0;
    (void)state;
    stream_ok(strata__session_set_cache_policy(b->session, &policy));
    for (uint32_t i = 0; i < 300; ++i)
        use(b, (const uint32_t[]){3, 7}, 2);
    for (; !is_present(b, 5); ++steps)
        use(b, (const uint32_t[]){5, 6}, 2);
    assert_true(steps > 5 && steps < 60);
    for (uint32_t i = 0; i < 60; ++i)
        use(b, (const uint32_t[]){5, 6}, 2);
    assert_true(is_present(b, 5) && is_present(b, 6));
    bench_close(b);
}

static double by_number(void *user_data, uint32_t layer, uint32_t expert, uint64_t uses,
                        double decayed)
{
    uint32_t *calls = user_data;
    assert_true(layer < 3 && uses > 0 && decayed >= 0);
    ++*calls;
    return 100.0 * (1 << expert);
}

static void the_callers_policy(void **state)
{
    uint32_t calls = 0;
    const strata_cache_policy own = {.score_fn = by_number, .user_data = &calls};
    const strata_cache_policy frozen = {.frozen = 1};
    bench *b = policy_bench();
    strata_session_stats before;
    (void)state;
    stream_ok(strata__session_set_cache_policy(b->session, &own));
    for (uint32_t e = 0; e < 12; ++e)
        use(b, &e, 1);
    assert_true(calls > 0);
    assert_true(is_present(b, 10) && is_present(b, 11));
    use(b, (const uint32_t[]){1, 1, 1, 1, 1, 1, 1, 1}, 8);
    assert_true(is_present(b, 10) && is_present(b, 11));
    stream_ok(strata__session_set_cache_policy(b->session, &frozen));
    before = stats_of(b);
    for (uint32_t i = 0; i < 40; ++i)
        use(b, (const uint32_t[]){1, 2}, 2);
    assert_int_equal(stats_of(b).decode_admit_bytes, before.decode_admit_bytes);
    assert_true(is_present(b, 10) && is_present(b, 11));
    bench_close(b);
}

static double by_chance(void *user_data, uint32_t layer, uint32_t expert, uint64_t uses,
                        double decayed)
{
    (void)layer;
    (void)expert;
    (void)uses;
    (void)decayed;
    return (double)(tiny_random(user_data) % 100000);
}

/* Experts that come and go all the time, in every schedule; and a prompt right behind them. */
static void a_cache_in_motion(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < STRATA__DELAYING_POLICY_COUNT * 10; ++i) {
        stream_options o = {.resident = 1 + i % 4, .borrow = i % 2};
        uint64_t random = i + 1;
        const strata_cache_policy policy = {
            .margin = 1e-9, .margin_uses = 1e-9, .score_fn = by_chance, .user_data = &random};
        bench *b;
        o.device.policy = i % STRATA__DELAYING_POLICY_COUNT;
        o.device.seed = i + 1;
        o.device.graphs = i / 3 % 2;
        b = bench_open(&o, i % 4 != 3);
        finish_locking(b);
        stream_ok(strata__session_set_cache_policy(b->session, &policy));
        open_prefill(b, o.borrow ? STRATA_MEMORY_LOAN : STRATA_MEMORY_OWN, 0);
        for (uint64_t at = 0; at < STREAM_TOKENS; at += 24) {
            decode_all(b, at, at + 24, 1);
            if (at % 48)
                continue;
            read_whole(b);
            stream_ok(strata__session_truncate(b->session, 0, at + 24, &(uint64_t){0}));
        }
        settle_and_count(b);
        bench_close(b);
    }
}

/* No more is admitted between two steps than the policy allows, and the layers take turns. */
static void an_allowance(void **state)
{
    const strata_cache_policy policy = {.admit_bytes = 1};
    bench *b;
    (void)state;
    b = policy_bench();
    stream_ok(strata__session_drop_experts(b->session));
    stream_ok(strata__session_set_cache_policy(b->session, &policy));
    for (uint32_t i = 0; i < 3; ++i) {
        uint64_t before = stats_of(b).decode_admit_bytes;
        use(b, (const uint32_t[]){3, 7}, 2);
        assert_int_equal(stats_of(b).decode_admit_bytes - before,
                         (b->pack.layers[0].expert_gate.bytes + b->pack.layers[0].expert_up.bytes +
                          b->pack.layers[0].expert_down.bytes) /
                             12);
    }
    for (uint32_t l = 0; l < 3; ++l) {
        uint64_t at = strata__cache_index(&b->session->cache, l, 0);
        assert_true(b->session->cache.states[at + 3] == STRATA__BLOB_PRESENT ||
                    b->session->cache.states[at + 7] == STRATA__BLOB_PRESENT);
    }
    bench_close(b);
}

/* Between two steps the experts go, and the budget with their places. */
static void budgets_between_steps(void **state)
{
    stream_options o = {.resident = 5};
    bench *b;
    (void)state;
    b = bench_open(&o, true);
    finish_locking(b);
    for (uint32_t i = 0; i < 8; ++i) {
        uint64_t least = b->session->memory.bytes;
        decode_all(b, i * 12, i * 12 + 6, 1);
        if (i % 3 == 0)
            stream_ok(strata__session_drop_experts(b->session));
        if (i % 3 == 1)
            stream_ok(strata__session_set_budget(b->session, least + i * 1000));
        if (i % 3 == 2)
            stream_ok(strata__session_set_budget(b->session, 0));
        decode_all(b, i * 12 + 6, i * 12 + 12, 1);
        settle_and_count(b);
    }
    bench_close(b);
}

/* Places that come back to the cache go to experts that have none by then. */
static void places_come_back(void **state)
{
    stream_options o = {.resident = 3, .borrow = 1};
    uint64_t least;
    bench *b;
    (void)state;
    b = bench_open(&o, true);
    open_prefill(b, STRATA_MEMORY_LOAN, 0);
    least = b->session->memory.bytes + b->session->loan_memory.bytes;
    stream_ok(strata__session_set_budget(b->session, least));
    read_whole(b);
    stream_wait_for_refill(b->session);
    empty(b);
    decode_all(b, 0, 20, 1);
    assert_true(stream_present_in_loan(b->session) > 0);
    stream_ok(strata__session_set_budget(b->session, 0));
    decode_all(b, 20, STREAM_TOKENS, 1);
    assert_true(settle_and_count(b) > stream_present_in_loan(b->session));
    bench_close(b);
}

typedef struct source {
    stream_pack *pack;
    uint8_t *memory; /* page-locked: two buffers for each expert, which take turns */
    uint64_t bytes;  /* of a buffer */
    uint32_t turns[3 * 12];
    uint32_t calls;
    uint32_t fail_at;
} source;

/* An expert's buffer of the time before has other content when it is asked for again. */
static strata_status give(void *user_data, uint32_t layer, uint32_t expert, strata_expert_blob *out)
{
    source *s = user_data;
    const strata__layer *l = &s->pack->layers[layer];
    const strata__projection *from[3] = {&l->expert_gate, &l->expert_up, &l->expert_down};
    uint32_t turn = s->turns[layer * 12 + expert]++ % 2;
    uint8_t *pair = s->memory + (layer * 12ull + expert) * 2 * s->bytes;
    uint8_t *to = pair + turn * s->bytes;
    const void *at[3];
    if (++s->calls == s->fail_at)
        return STRATA_ERR_IO;
    memset(pair, 0xff, 2 * s->bytes);
    for (int i = 0; i < 3; ++i) {
        uint64_t bytes = from[i]->bytes / 12;
        memcpy(to, (const uint8_t *)from[i]->data + expert * from[i]->stride_bytes, bytes);
        at[i] = to;
        to += bytes;
    }
    *out = (strata_expert_blob){at[0], at[1], at[2]};
    return STRATA_OK;
}

static void the_callers_experts(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < STRATA__DELAYING_POLICY_COUNT * 2; ++i) {
        strata_session_options session = {.struct_size = sizeof session};
        stream_options o = {.resident = 3, .borrow = i % 2, .session = &session};
        source s = {.bytes = 1u << 16};
        uint32_t calls;
        bench *b;
        o.device.policy = i % STRATA__DELAYING_POLICY_COUNT;
        o.device.seed = i + 1;
        session.expert_fn = give;
        session.expert_user_data = &s;
        /* The pack is the bench's, and asked for from the first step on. */
        b = bench_open(&o, false);
        s.pack = &b->pack;
        stream_ok(b->device->ops->host_alloc(b->device, 2ull * 3 * 12 * s.bytes, "experts",
                                             (void **)&s.memory));
        decode_all(b, 0, 48, 3);
        open_prefill(b, i % 2 ? STRATA_MEMORY_LOAN : STRATA_MEMORY_OWN, 0);
        read_whole(b);
        empty(b);
        decode_all(b, 0, 48, 1);
        settle_and_count(b);
        /* A source that fails ends the step, or leaves an expert out of the cache. */
        calls = s.calls;
        for (uint32_t n = 1; n < 20; ++n) {
            strata_status status;
            s.fail_at = calls = s.calls + n;
            status = decode(b, 48, 8);
            assert_true(status == STRATA_OK || status == STRATA_ERR_IO);
            if (status == STRATA_OK)
                stream_ok(strata__session_truncate(b->session, 0, 48, &(uint64_t){0}));
            s.fail_at = 0;
            decode_all(b, 48, 56, 8);
            stream_ok(strata__session_truncate(b->session, 0, 48, &(uint64_t){0}));
        }
        assert_true(calls > 0);
        settle_and_count(b);
        b->device->ops->host_free(b->device, s.memory, 2ull * 3 * 12 * s.bytes);
        bench_close(b);
    }
}

/* Each call of the device fails once in a session that reads, decodes and changes its cache. */
static bool fail_one(bool in_file, uint32_t faults, uint64_t countdown)
{
    stream_options o = {.resident = 3, .borrow = 1, .device = {.graphs = 1}};
    bench *b = bench_open(&o, in_file);
    strata__delaying_usage usage;
    strata_status status = STRATA_OK;
    uint64_t at = 0;
    open_prefill(b, STRATA_MEMORY_LOAN, 1);
    finish_locking(b);
    strata__delaying_fail(b->device, faults, countdown, 0);
    for (; at < 12 && status == STRATA_OK; at += 3)
        status = decode(b, at, 3);
    if (status == STRATA_OK)
        status = stream_run(&b->pack, b->prefill, b->logits, NULL, NULL);
    if (status == STRATA_OK) {
        empty(b);
        for (at = 0; at < 12 && status == STRATA_OK; at += 3)
            status = decode(b, at, 3);
    }
    strata__delaying_usage_get(b->device, &usage);
    strata__delaying_fail(b->device, 0, 0, 0);
    if (status != STRATA_ERR_DEVICE_LOST && !(faults & STRATA__FAULT_LOST)) {
        empty(b);
        decode_all(b, 0, 24, 3);
        read_whole(b);
        empty(b);
        decode_all(b, 0, 24, 1);
        settle_and_count(b);
    } else if (status == STRATA_ERR_DEVICE_LOST) {
        assert_int_equal(decode(b, 0, 1), STRATA_ERR_DEVICE_LOST);
    }
    bench_close(b);
    return usage.faults > 0;
}

static void every_call_fails_once(void **state)
{
    static const uint32_t faults[] = {STRATA__FAULT_COPY,   STRATA__FAULT_EVENT,
                                      STRATA__FAULT_STREAM, STRATA__FAULT_GRAPH,
                                      STRATA__FAULT_QUERY,  STRATA__FAULT_LOST};
    (void)state;
    for (size_t f = 0; f < sizeof faults / sizeof faults[0]; ++f)
        for (int in_file = 0; in_file < 2; ++in_file)
            for (uint64_t n = 1; fail_one(in_file, faults[f], n); n += 1 + n / 3)
                ;
}

/* A session whose memory cannot be had is not made. */
static void creation_fails(void **state)
{
    tiny_spec spec = small_spec();
    stream_pack pack;
    uint32_t failures = 0;
    (void)state;
    stream_pack_open(&pack, &spec, 32, NULL);
    for (uint64_t n = 1;; ++n) {
        stream_options o = {.resident = 3,
                            .faults = STRATA__FAULT_ALLOC | STRATA__FAULT_HOST_ALLOC |
                                      STRATA__FAULT_EVENT | STRATA__FAULT_STREAM,
                            .fault_countdown = n};
        strata_session *session = NULL;
        strata_status status = stream_session(&pack, &o, &session);
        strata__session_release(session);
        if (status == STRATA_OK)
            break;
        assert_null(session);
        failures++;
    }
    assert_true(failures > STRATA__ADMIT_BATCHES);
    stream_pack_close(&pack);
}

static const char *check_in_thread(void *user_data)
{
    bench *b = user_data;
    for (int i = 0; i < 3; ++i) {
        uint64_t length;
        if (strata__session_truncate(b->session, 0, 0, &length) != STRATA_OK)
            return "truncate";
        for (uint64_t at = 0; at < STREAM_TOKENS; at += 4)
            if (decode(b, at, 4) != STRATA_OK)
                return "decode";
        if (memcmp(b->logits, b->pack.expected, sizeof b->logits) != 0)
            return "bits";
    }
    return NULL;
}

static void *decode_in_thread(void *user_data)
{
    return (void *)(uintptr_t)check_in_thread(user_data);
}

/* Two sessions of one pack, whose page-locked memory they share. */
static void two_threads(void **state)
{
    stream_options o = {.resident = 4};
    bench *a, *b;
    pthread_t thread;
    void *failure, *own;
    (void)state;
    o.device.policy = STRATA__DELAYING_RANDOM;
    a = bench_open(&o, true);
    b = malloc(sizeof *b);
    assert_non_null(b);
    memcpy(b, a, sizeof *b);
    o.device.seed = 9;
    o.out_device = &b->device;
    stream_ok(stream_session(&a->pack, &o, &b->session));
    assert_int_equal(pthread_create(&thread, NULL, decode_in_thread, b), 0);
    own = decode_in_thread(a);
    pthread_join(thread, &failure);
    assert_null(own);
    assert_null(failure);
    strata__session_release(b->session);
    free(b);
    bench_close(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decoding_is_the_prompt),
        cmocka_unit_test(read_in_place),
        cmocka_unit_test(recorded_steps),
        cmocka_unit_test(bounds_of_positions),
        cmocka_unit_test(fetched),
        cmocka_unit_test(after_a_loan),
        cmocka_unit_test(no_thrash),
        cmocka_unit_test(old_uses_fade),
        cmocka_unit_test(the_callers_policy),
        cmocka_unit_test(a_cache_in_motion),
        cmocka_unit_test(an_allowance),
        cmocka_unit_test(budgets_between_steps),
        cmocka_unit_test(places_come_back),
        cmocka_unit_test(the_callers_experts),
        cmocka_unit_test(every_call_fails_once),
        cmocka_unit_test(creation_fails),
        cmocka_unit_test(two_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
