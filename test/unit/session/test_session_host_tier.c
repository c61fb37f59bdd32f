/* SPDX-License-Identifier: MIT */
/*
 * The experts in host memory: what is page-locked within a limit, in which order, and what is not.
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
#include "support/stream_case.h"

typedef struct bench {
    stream_pack pack;
    strata__device *device;
    uint8_t **places;
    uint64_t *uses;
    uint64_t count;
    strata__tier_options options;
} bench;

static const char path[] = "test-session-host-tier.gguf";

static bench *bench_open(bool is_file)
{
    const strata__delaying_options device = {.policy = STRATA__DELAYING_RANDOM, .seed = 3};
    bench *b = calloc(1, sizeof *b);
    tiny_spec spec = tiny_spec_default();
    assert_non_null(b);
    spec.layers = 3;
    spec.experts = 16;
    spec.width = 128;
    spec.expert_width = 64;
    spec.gate_format = 8;
    stream_pack_open(&b->pack, &spec, 32, is_file ? path : NULL);
    stream_ok(strata__delaying_device_open(b->pack.context, &device, &b->device));
    b->count = (uint64_t)b->pack.geometry->layers * b->pack.geometry->experts;
    b->places = calloc(b->count, sizeof *b->places);
    b->uses = calloc(b->count, sizeof *b->uses);
    b->options.geometry = b->pack.geometry;
    b->options.layers = b->pack.layers;
    b->options.places = b->places;
    b->options.limit_bytes = UINT64_MAX;
    b->options.piece_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    return b;
}

static void bench_close(bench *b)
{
    strata__delaying_usage usage;
    strata__delaying_usage_get(b->device, &usage);
    assert_int_equal(usage.registered_bytes + usage.host_bytes, 0);
    strata__device_release(b->device);
    stream_pack_close(&b->pack);
    free(b->places);
    free(b->uses);
    free(b);
    remove(path);
}

/* With nothing pending any more. */
static strata__host_tier *acquire(bench *b)
{
    static atomic_bool never;
    strata__host_tier *tier = NULL;
    stream_ok(strata__tier_acquire(b->pack.pack, b->device, &b->options, &tier));
    for (uint32_t i = 0; i < tier->piece_count; ++i)
        strata__tier_wait(tier, tier->pieces[i].base, &never);
    return tier;
}

static uint64_t pinned(const strata__host_tier *tier)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < tier->piece_count; ++i)
        if (atomic_load(&tier->pieces[i].state) == STRATA__TIER_PINNED)
            bytes += tier->pieces[i].bytes;
    assert_int_equal(bytes, atomic_load(&tier->pinned_bytes));
    return bytes;
}

/* Bytes of an expert's projection that are found page-locked, and that they are the pack's. */
static uint64_t locked_bytes(const strata__host_tier *tier, const uint8_t *at, uint64_t bytes)
{
    uint64_t locked = 0;
    for (uint64_t done = 0; done < bytes;) {
        strata__tier_span span = strata__tier_find(tier, at + done);
        uint64_t part = span.bytes < bytes - done ? span.bytes : bytes - done;
        assert_true(part > 0);
        assert_int_not_equal(span.state, STRATA__TIER_PENDING);
        assert_memory_equal(span.at, at + done, part);
        if (span.state == STRATA__TIER_PINNED)
            locked += part;
        done += part;
    }
    return locked;
}

static void everything_within_the_limit(void **state)
{
    (void)state;
    for (int is_file = 0; is_file < 2; ++is_file) {
        bench *b = bench_open(is_file);
        strata__host_tier *tier = acquire(b);
        uint64_t page = b->options.piece_bytes;
        for (uint32_t l = 0; l < b->pack.geometry->layers; ++l) {
            const strata__projection *p = &b->pack.layers[l].expert_gate;
            uint64_t locked = locked_bytes(tier, p->data, p->bytes);
            if (is_file)
                assert_int_equal(locked, p->bytes);
            else
                assert_true(locked + 2 * page > p->bytes && locked <= p->bytes);
        }
        for (uint32_t i = 1; i < tier->piece_count; ++i)
            assert_true(tier->pieces[i].base >=
                        tier->pieces[i - 1].base + tier->pieces[i - 1].bytes);
        strata__tier_release(b->pack.pack, tier);
        bench_close(b);
    }
}

/* Pages of a heap that a tensor shares with others are theirs too, and stay as they are. */
static void no_byte_of_others_is_locked(void **state)
{
    bench *b = bench_open(false);
    strata__host_tier *tier = acquire(b);
    (void)state;
    assert_true(tier->piece_count > 0);
    for (uint32_t i = 0; i < tier->piece_count; ++i) {
        const strata__layer *l = &b->pack.layers[tier->pieces[i].layer];
        const strata__projection *p[3] = {&l->expert_gate, &l->expert_up, &l->expert_down};
        const uint8_t *at = tier->pieces[i].base, *end = at + tier->pieces[i].bytes;
        bool is_within = false;
        for (int k = 0; k < 3; ++k)
            is_within |= at >= (const uint8_t *)p[k]->data &&
                         end <= (const uint8_t *)p[k]->data + p[k]->bytes;
        assert_true(is_within);
    }
    strata__tier_release(b->pack.pack, tier);
    bench_close(b);
}

static void limits_hold(void **state)
{
    bench *b = bench_open(true);
    (void)state;
    for (uint64_t pages = 0; pages < 40; pages += 3) {
        strata__host_tier *tier;
        b->options.limit_bytes = pages * b->options.piece_bytes;
        tier = acquire(b);
        assert_int_equal(pinned(tier), b->options.limit_bytes);
        assert_int_equal(atomic_load(&tier->refused_bytes), 0);
        strata__tier_release(b->pack.pack, tier);
    }
    bench_close(b);
}

/*
 * The hottest experts of a profile are locked first, and those without a place before all others.
 */
static void the_hottest_come_first(void **state)
{
    static uint8_t place;
    bench *b = bench_open(true);
    const strata__projection *gate = &b->pack.layers[1].expert_gate;
    uint64_t blob = gate->bytes / b->pack.geometry->experts;
    strata__host_tier *tier;
    (void)state;
    b->uses[16 + 9] = 1000;
    b->options.uses = b->uses;
    b->options.limit_bytes = 12 * b->options.piece_bytes;
    tier = acquire(b);
    assert_int_equal(locked_bytes(tier, (const uint8_t *)gate->data + 9 * gate->stride_bytes, blob),
                     blob);
    strata__tier_release(b->pack.pack, tier);
    for (uint32_t e = 0; e < 16; ++e)
        b->places[16 + e] = &place;
    tier = acquire(b);
    assert_int_equal(locked_bytes(tier, (const uint8_t *)gate->data + 9 * gate->stride_bytes, blob),
                     0);
    strata__tier_release(b->pack.pack, tier);
    bench_close(b);
}

/*
 * Refused where it is, a file is copied to memory that can be locked; when that is refused too, it
 * stays as it is.
 */
static void what_is_refused(void **state)
{
    strata__delaying_usage usage;
    bench *b = bench_open(true);
    strata__host_tier *tier;
    (void)state;
    strata__delaying_fail(b->device, STRATA__FAULT_REGISTER, 1, 1);
    tier = acquire(b);
    strata__delaying_usage_get(b->device, &usage);
    assert_int_equal(usage.registered_bytes, 0);
    assert_int_equal(usage.host_bytes, pinned(tier));
    assert_int_equal(pinned(tier), atomic_load(&tier->wanted_bytes));
    locked_bytes(tier, b->pack.layers[2].expert_down.data, b->pack.layers[2].expert_down.bytes);
    strata__tier_release(b->pack.pack, tier);
    strata__delaying_fail(b->device, STRATA__FAULT_REGISTER | STRATA__FAULT_HOST_ALLOC, 1, 1);
    tier = acquire(b);
    assert_int_equal(pinned(tier), 0);
    assert_int_equal(atomic_load(&tier->refused_bytes), atomic_load(&tier->wanted_bytes));
    strata__tier_release(b->pack.pack, tier);
    bench_close(b);
}

static void sessions_share_it(void **state)
{
    bench *b = bench_open(true);
    strata__host_tier *first = acquire(b), *second = acquire(b);
    (void)state;
    assert_ptr_equal(first, second);
    strata__tier_release(b->pack.pack, first);
    assert_true(pinned(second) > 0);
    strata__tier_release(b->pack.pack, second);
    bench_close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_within_the_limit),
        cmocka_unit_test(no_byte_of_others_is_locked),
        cmocka_unit_test(limits_hold),
        cmocka_unit_test(the_hottest_come_first),
        cmocka_unit_test(what_is_refused),
        cmocka_unit_test(sessions_share_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
