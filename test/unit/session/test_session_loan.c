/* SPDX-License-Identifier: MIT */
/*
 * The expert cache between prompts: the loan comes back whole after a prompt, a cancel or an error;
 * what the tables call present is there, bit for bit; profiles choose the places; budgets change.
 */
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
    spec.layers = 3;
    spec.experts = 12;
    spec.top_k = 2;
    spec.gate_format = 8;
    return spec;
}

static void finish_refill(strata_session *session)
{
    stream_wait_for_refill(session);
    strata__loan_publish(&session->loan);
}

typedef struct bench {
    stream_pack pack;
    strata__device *device;
    strata_session *session;
    strata_prefill *prefill;
    float logits[STREAM_LOGITS];
} bench;

static bench *bench_open(const stream_options *options, uint32_t keep_loan, bool is_lent)
{
    strata_prefill_options prefill = {.struct_size = sizeof prefill};
    bench *b = calloc(1, sizeof *b);
    stream_options o = *options;
    tiny_spec spec = small_spec();
    assert_non_null(b);
    stream_pack_open(&b->pack, &spec, 32, NULL);
    o.out_device = &b->device;
    stream_ok(stream_session(&b->pack, &o, &b->session));
    prefill.memory_kind = is_lent ? STRATA_MEMORY_LOAN : STRATA_MEMORY_OWN;
    prefill.keep_loan = keep_loan;
    stream_ok(strata__prefill_create(b->session, &prefill, &b->prefill));
    return b;
}

static void bench_close(bench *b)
{
    strata__prefill_destroy(b->prefill);
    strata__session_release(b->session);
    stream_pack_close(&b->pack);
    free(b);
}

static void read_whole(bench *b)
{
    memset(b->logits, 0, sizeof b->logits);
    stream_ok(stream_run(&b->pack, b->prefill, b->logits, NULL, NULL));
    assert_memory_equal(b->logits, b->pack.expected, sizeof b->logits);
}

static int32_t stop_now(void *user_data, const strata_progress *progress)
{
    uint32_t *left = user_data;
    (void)progress;
    return --*left == 0;
}

/* The hottest blobs without a place of their own are those that come back. */
static void the_hottest_are_in_the_loan(const bench *b)
{
    const strata__cache *cache = &b->session->cache;
    const strata__region *range = &b->session->loan_memory;
    uint64_t least_in = UINT64_MAX, most_out = 0;
    for (uint64_t i = 0; i < cache->count; ++i) {
        bool in = cache->places[i] >= range->base && cache->places[i] < range->base + range->bytes;
        if (in && cache->uses[i] < least_in)
            least_in = cache->uses[i];
        if (!cache->places[i] && cache->uses[i] > most_out)
            most_out = cache->uses[i];
    }
    assert_true(least_in >= most_out);
}

static void loans_come_back_whole(void **state)
{
    stream_options o = {.group_experts = 2, .ring_pieces = 5, .resident = 2, .fetch = 2};
    (void)state;
    o.borrow = 1;
    for (uint32_t policy = 0; policy < STRATA__DELAYING_POLICY_COUNT; ++policy) {
        bench *b;
        o.device.policy = policy;
        b = bench_open(&o, 0, true);
        for (uint32_t i = 1; i < 12; ++i) {
            uint32_t left = i;
            assert_int_equal(stream_run(&b->pack, b->prefill, b->logits, stop_now, &left),
                             i > 9 ? STRATA_OK : STRATA_ERR_CANCELLED);
            finish_refill(b->session);
            assert_true(stream_present_in_loan(b->session) > 0);
            assert_true(stream_present(&b->pack, b->session) >= stream_present_in_loan(b->session));
            the_hottest_are_in_the_loan(b);
            strata__delaying_fail(b->device, STRATA__FAULT_COPY, 2 * i, 0);
            (void)stream_run(&b->pack, b->prefill, b->logits, NULL, NULL);
            strata__delaying_fail(b->device, 0, 0, 0);
            if (i % 2)
                strata__loan_settle(&b->session->loan);
            else
                finish_refill(b->session);
            stream_present(&b->pack, b->session);
            read_whole(b);
        }
        bench_close(b);
    }
}

/* What is hot survives the loan in the place of what is cold, moved on the device. */
static void the_keep_set_survives(void **state)
{
    stream_options o = {.group_experts = 2, .ring_pieces = 5, .resident = 2, .fetch = 2};
    bench *b;
    uint64_t hot = 7; /* of layer 0, without a place at first */
    (void)state;
    o.borrow = 1;
    b = bench_open(&o, 0, true);
    read_whole(b);
    b->session->cache.uses[hot] += 1000000;
    strata__loan_settle(&b->session->loan);
    strata__loan_clear(&b->session->loan);
    stream_ok(strata__loan_take(&b->session->loan));
    strata__loan_return(&b->session->loan, true);
    finish_refill(b->session);
    assert_int_equal(b->session->cache.states[hot], STRATA__BLOB_PRESENT);
    assert_true(b->session->cache.places[hot] >= b->session->loan_memory.base);
    stream_ok(strata__loan_take(&b->session->loan));
    assert_int_equal(b->session->cache.states[hot], STRATA__BLOB_PRESENT);
    assert_int_equal(stream_present_in_loan(b->session), 0);
    stream_ok(b->session->device->ops->stream_synchronize(b->session->device, b->session->stream));
    stream_present(&b->pack, b->session);
    strata__loan_return(&b->session->loan, true);
    read_whole(b);
    bench_close(b);
}

/* In no schedule does the prompt that borrows the range overwrite what is moved out of it. */
static void moves_come_before_the_prompt(void **state)
{
    stream_options o = {.group_experts = 2, .ring_pieces = 5, .resident = 4, .fetch = 2};
    (void)state;
    o.borrow = 1;
    o.device.policy = STRATA__DELAYING_RANDOM;
    for (o.device.seed = 0; o.device.seed < 24; ++o.device.seed) {
        bench *b = bench_open(&o, 0, true);
        strata__cache *cache = &b->session->cache;
        read_whole(b);
        finish_refill(b->session);
        /* All are used enough to be sent ahead, those in the range more. */
        for (uint64_t i = 0; i < cache->count; ++i)
            cache->uses[i] += cache->places[i] >= b->session->loan_memory.base ? 2000000 : 1000000;
        read_whole(b);
        strata__loan_settle(&b->session->loan);
        stream_present(&b->pack, b->session);
        bench_close(b);
    }
}

static void a_kept_loan_stays_with_the_prefill(void **state)
{
    stream_options o = {.group_experts = 2, .ring_pieces = 5, .resident = 2, .fetch = 2};
    strata_session *session;
    bench *b;
    (void)state;
    o.borrow = 1;
    b = bench_open(&o, 1, true);
    session = strata__session_retain(b->session);
    read_whole(b);
    assert_int_equal(stream_present_in_loan(session), 0);
    assert_true(session->loan.is_lent);
    read_whole(b);
    strata__prefill_destroy(b->prefill);
    b->prefill = NULL;
    finish_refill(session);
    assert_true(stream_present_in_loan(session) > 0);
    strata__session_release(session);
    bench_close(b);
}

/* Prompts in their own memory read the loan's blobs. */
static void what_is_not_lent_is_hit(void **state)
{
    stream_options o = {.group_experts = 2, .ring_pieces = 5, .resident = 2, .fetch = 2};
    strata_prefill_options options = {.struct_size = sizeof options};
    uint32_t in_loan;
    uint64_t hits;
    bench *b;
    (void)state;
    o.borrow = 1;
    for (uint32_t policy = 0; policy < STRATA__DELAYING_POLICY_COUNT; ++policy) {
        o.device.policy = policy;
        b = bench_open(&o, 0, true);
        read_whole(b);
        finish_refill(b->session);
        in_loan = stream_present_in_loan(b->session);
        assert_true(in_loan > 0);
        strata__prefill_destroy(b->prefill);
        stream_ok(strata__prefill_create(b->session, &options, &b->prefill));
        hits = atomic_load(&b->session->counters.blob_hit_bytes);
        read_whole(b);
        assert_true(atomic_load(&b->session->counters.blob_hit_bytes) > hits);
        bench_close(b);
    }
}

/* Experts of the caller's: a copy of the pack's. */
typedef struct caller {
    const stream_pack *pack;
    uint8_t *copy;
    uint32_t calls;
} caller;

static strata_status give(void *user_data, uint32_t layer, uint32_t expert, strata_expert_blob *out)
{
    caller *c = user_data;
    const strata__layer *l = &c->pack->layers[layer];
    const strata__projection *from[3] = {&l->expert_gate, &l->expert_up, &l->expert_down};
    const void *at[3];
    for (int i = 0; i < 3; ++i)
        at[i] = c->copy + ((const uint8_t *)from[i]->data - c->pack->image) +
                expert * from[i]->stride_bytes;
    c->calls++;
    *out = (strata_expert_blob){at[0], at[1], at[2]};
    return STRATA_OK;
}

/* When the session has been destroyed, what the caller gave is its own again: a prefill is left. */
static void the_callers_experts_are_let_go_of(void **state)
{
    (void)state;
    for (uint32_t keep_loan = 0; keep_loan < 2; ++keep_loan) {
        strata_session_options more = {.struct_size = sizeof more};
        strata_prefill_options options = {.struct_size = sizeof options,
                                          .memory_kind = STRATA_MEMORY_LOAN,
                                          .keep_loan = keep_loan};
        stream_options o = {.resident = 4, .borrow = 1, .session = &more};
        tiny_spec spec = small_spec();
        strata_session *session;
        strata_prefill *prefill;
        stream_pack pack;
        caller c = {.pack = &pack};
        uint32_t calls;
        stream_pack_open(&pack, &spec, 32, NULL);
        c.copy = malloc(pack.image_bytes);
        assert_non_null(c.copy);
        memcpy(c.copy, pack.image, pack.image_bytes);
        more.expert_fn = give;
        more.expert_user_data = &c;
        stream_ok(stream_session(&pack, &o, &session));
        stream_ok(strata__prefill_create(session, &options, &prefill));
        stream_ok(stream_run(&pack, prefill, NULL, NULL, NULL));
        strata__session_release(session);
        free(c.copy);
        c.copy = NULL;
        calls = c.calls;
        assert_true(calls > 0);
        strata__prefill_destroy(prefill);
        assert_int_equal(c.calls, calls);
        stream_pack_close(&pack);
    }
}

static void profiles_choose_the_places(void **state)
{
    stream_options o = {.group_experts = 3, .resident = 3, .fetch = 2};
    strata_session_options more = {.struct_size = sizeof more};
    uint64_t bytes = 0, *uses;
    uint8_t *profile;
    bench *b = bench_open(&o, 0, false);
    strata_session *second = NULL;
    (void)state;
    read_whole(b);
    stream_ok(strata__session_profile(b->session, NULL, 0, &bytes));
    profile = malloc(bytes);
    assert_non_null(profile);
    stream_ok(strata__session_profile(b->session, profile, bytes, &bytes));
    /* Make three experts of each layer hot that have no place by number. */
    uses = (uint64_t *)(void *)(profile + bytes - b->session->cache.count * sizeof *uses);
    for (uint32_t l = 0; l < 3; ++l)
        for (uint32_t k = 0; k < 3; ++k)
            uses[l * 12 + 4 + 3 * k] = 1000000 + k;
    more.profile = profile;
    more.profile_bytes = bytes;
    o.session = &more;
    stream_ok(stream_session(&b->pack, &o, &second));
    for (uint32_t l = 0; l < 3; ++l)
        for (uint32_t e = 0; e < 12; ++e)
            assert_int_equal(second->cache.places[l * 12 + e] != NULL, e >= 4 && (e - 4) % 3 == 0);
    stream_ok(stream_read(&b->pack, second, b->logits));
    assert_memory_equal(b->logits, b->pack.expected, sizeof b->logits);
    stream_present(&b->pack, second);
    strata__session_release(second);
    for (more.profile_bytes = 0; more.profile_bytes < bytes; more.profile_bytes += 8)
        assert_int_equal(stream_session(&b->pack, &o, &second), STRATA_ERR_FORMAT);
    more.profile_bytes = bytes;
    profile[24] ^= 1;
    assert_int_equal(stream_session(&b->pack, &o, &second), STRATA_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(strata__error_text(), "another pack"));
    profile[0] ^= 1;
    assert_int_equal(stream_session(&b->pack, &o, &second), STRATA_ERR_FORMAT);
    free(profile);
    bench_close(b);
}

typedef struct late_fault {
    strata__device *device;
    uint64_t countdown;
    uint32_t kinds;
    uint32_t layers_left;
} late_fault;

static int32_t fail_late(void *user_data, const strata_progress *progress)
{
    late_fault *f = user_data;
    (void)progress;
    if (--f->layers_left == 0)
        strata__delaying_fail(f->device, f->kinds, f->countdown, f->kinds == STRATA__FAULT_STREAM);
    return 0;
}

/* What a refill that failed has enqueued does not reach the prompt that borrows next. */
static void refills_that_fail(void **state)
{
    static const uint32_t kinds[] = {STRATA__FAULT_COPY, STRATA__FAULT_STREAM};
    (void)state;
    for (uint32_t i = 0; i < 160; ++i) {
        stream_options o = {.resident = 2, .borrow = 1};
        late_fault f = {.kinds = kinds[i % 2], .countdown = 1 + i / 2 % 8, .layers_left = 9};
        bench *b;
        o.device.policy = STRATA__DELAYING_RANDOM;
        o.device.seed = i + 1;
        b = bench_open(&o, 0, true);
        f.device = b->device;
        read_whole(b);
        (void)stream_run(&b->pack, b->prefill, NULL, fail_late, &f);
        if (b->session->loan.is_running) {
            assert_int_equal(pthread_join(b->session->loan.thread, NULL), 0);
            b->session->loan.is_running = false;
        }
        strata__delaying_fail(b->device, 0, 0, 0);
        read_whole(b);
        read_whole(b);
        bench_close(b);
    }
}

/* Device memory never exceeds the plan's; a smaller budget gives memory back, a larger takes it. */
static void budgets_of_a_living_session(void **state)
{
    stream_options o = {.group_experts = 2, .ring_pieces = 5, .resident = 8, .fetch = 2};
    strata__delaying_usage usage;
    bench *b = bench_open(&o, 0, false);
    uint64_t planned = b->session->layout->device_bytes, other, budget;
    (void)state;
    read_whole(b);
    strata__delaying_usage_get(b->device, &usage);
    assert_true(usage.device_peak_bytes <= planned);
    other = b->session->memory.bytes + b->prefill->memory.bytes;
    assert_int_equal(strata__session_set_budget(b->session, other - 1), STRATA_ERR_PLAN_INFEASIBLE);
    for (budget = planned; budget >= other; budget -= (planned - other) / 5 + 1) {
        stream_ok(strata__session_set_budget(b->session, budget));
        strata__delaying_usage_get(b->device, &usage);
        assert_true(usage.device_bytes <= budget);
        assert_int_equal(usage.device_bytes, atomic_load(&b->session->counters.device_bytes));
        read_whole(b);
        stream_present(&b->pack, b->session);
    }
    stream_ok(strata__session_set_budget(b->session, other));
    strata__delaying_usage_get(b->device, &usage);
    assert_true(usage.device_bytes <= other);
    read_whole(b);
    stream_ok(strata__session_set_budget(b->session, 0));
    read_whole(b);
    strata__delaying_usage_get(b->device, &usage);
    assert_true(usage.device_bytes > other && usage.device_bytes <= planned);
    assert_int_equal(stream_present(&b->pack, b->session), 24);
    bench_close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loans_come_back_whole),
        cmocka_unit_test(the_keep_set_survives),
        cmocka_unit_test(moves_come_before_the_prompt),
        cmocka_unit_test(a_kept_loan_stays_with_the_prefill),
        cmocka_unit_test(what_is_not_lent_is_hit),
        cmocka_unit_test(the_callers_experts_are_let_go_of),
        cmocka_unit_test(profiles_choose_the_places),
        cmocka_unit_test(refills_that_fail),
        cmocka_unit_test(budgets_of_a_living_session),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
