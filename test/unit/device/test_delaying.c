/* SPDX-License-Identifier: MIT */
/*
 * Litmus tests of the delaying device: with the right waits every schedule gives the right result;
 * each wait that is left out gives a wrong one, every time, under the schedule that it is there
 * for.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/task.h"
#include "device/delaying.h"
#include "support/ok.h"

enum { SEEDS = 64, WORDS = 32 };

typedef struct bench {
    strata_context *context;
    strata__device *device;
    const strata__device_ops *ops;
    strata__stream *copies;
    strata__stream *kernels;
    strata__event *ready;
    strata__event *used;
    uint32_t *slot;   /* device: what copies write and kernels read */
    uint32_t *out;    /* device */
    uint32_t *locked; /* page-locked host memory */
} bench;

static void bench_open(bench *b, uint32_t policy, uint64_t seed)
{
    const strata_context_options none = {.struct_size = sizeof none};
    const strata__delaying_options options = {.policy = policy, .seed = seed};
    ok(strata__context_create(&none, &b->context));
    ok(strata__delaying_device_open(b->context, &options, &b->device));
    b->ops = b->device->ops;
    ok(b->ops->stream_create(b->device, &b->copies));
    ok(b->ops->stream_create(b->device, &b->kernels));
    ok(b->ops->event_create(b->device, true, &b->ready));
    ok(b->ops->event_create(b->device, true, &b->used));
    ok(b->ops->alloc(b->device, WORDS * 4, "a slot", (void **)&b->slot));
    ok(b->ops->alloc(b->device, WORDS * 4, "results", (void **)&b->out));
    ok(b->ops->host_alloc(b->device, WORDS * 4, "a source", (void **)&b->locked));
}

static void bench_close(bench *b)
{
    strata__delaying_usage usage;
    b->ops->host_free(b->device, b->locked, WORDS * 4);
    b->ops->free(b->device, b->out, WORDS * 4);
    b->ops->free(b->device, b->slot, WORDS * 4);
    b->ops->event_destroy(b->device, b->used);
    b->ops->event_destroy(b->device, b->ready);
    b->ops->stream_destroy(b->device, b->kernels);
    b->ops->stream_destroy(b->device, b->copies);
    strata__delaying_usage_get(b->device, &usage);
    assert_int_equal(usage.device_bytes + usage.host_bytes + usage.registered_bytes, 0);
    assert_int_equal(usage.events + usage.streams + usage.pending, 0);
    b->ops->destroy(b->device);
    strata__context_release(b->context);
}

typedef struct move {
    const uint32_t *from;
    uint32_t *to;
} move;

/* A kernel: to[0] = from[0]. */
static void run_move(const void *arguments)
{
    const move *m = arguments;
    *m->to = *m->from;
}

static void launch(bench *b, const uint32_t *from, uint32_t *to)
{
    strata__task_queue *queue = b->kernels->native;
    const move m = {from, to};
    ok(queue->enqueue(queue, run_move, &m, sizeof m));
}

static void copy_word(bench *b, const uint32_t *from, uint32_t *to)
{
    ok(b->ops->copy(b->device, b->copies, to, from, sizeof *to));
}

enum { WAIT_READY = 1, WAIT_USED = 2, ALL_WAITS = 3 };

/* One slot, two tenants: out[i] is what the kernel of tenant i read. */
static void two_tenants(bench *b, uint32_t waits, uint32_t results[2])
{
    b->locked[0] = 11;
    b->locked[1] = 22;
    for (uint32_t i = 0; i < 2; ++i) {
        if (i && waits & WAIT_USED)
            ok(b->ops->stream_wait(b->device, b->copies, b->used));
        copy_word(b, &b->locked[i], b->slot);
        ok(b->ops->event_record(b->device, b->ready, b->copies));
        if (waits & WAIT_READY)
            ok(b->ops->stream_wait(b->device, b->kernels, b->ready));
        launch(b, b->slot, &b->out[i]);
        ok(b->ops->event_record(b->device, b->used, b->kernels));
    }
    ok(b->ops->stream_synchronize(b->device, b->kernels));
    results[0] = b->out[0];
    results[1] = b->out[1];
    ok(b->ops->stream_synchronize(b->device, b->copies));
}

static bool tenants_are_right(uint32_t policy, uint64_t seed, uint32_t waits)
{
    uint32_t results[2];
    bench b;
    bench_open(&b, policy, seed);
    two_tenants(&b, waits, results);
    bench_close(&b);
    return results[0] == 11 && results[1] == 22;
}

static void waits_give_the_right_result(void **state)
{
    (void)state;
    for (uint32_t policy = 0; policy < STRATA__DELAYING_POLICY_COUNT; ++policy)
        for (uint64_t seed = 0; seed < SEEDS; ++seed)
            assert_true(tenants_are_right(policy, seed, ALL_WAITS));
}

static void a_missing_wait_for_the_copy_shows(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; ++seed)
        assert_false(tenants_are_right(STRATA__DELAYING_COPIES_LATE, seed, WAIT_USED));
}

static void a_missing_wait_for_the_reader_shows(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; ++seed)
        assert_false(tenants_are_right(STRATA__DELAYING_KERNELS_LATE, seed, WAIT_READY));
}

static void random_schedules_find_both(void **state)
{
    uint32_t wrong[2] = {0, 0};
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; ++seed) {
        wrong[0] += !tenants_are_right(STRATA__DELAYING_RANDOM, seed, WAIT_USED);
        wrong[1] += !tenants_are_right(STRATA__DELAYING_RANDOM, seed, WAIT_READY);
    }
    assert_true(wrong[0] > SEEDS / 16);
    assert_true(wrong[1] > SEEDS / 16);
}

/* The event is made ready for the second tenant before anything is copied. */
static void a_wait_before_the_record_is_no_wait(void **state)
{
    bench b;
    (void)state;
    bench_open(&b, STRATA__DELAYING_COPIES_LATE, 1);
    b.locked[0] = 11;
    ok(b.ops->stream_wait(b.device, b.kernels, b.ready));
    copy_word(&b, b.locked, b.slot);
    ok(b.ops->event_record(b.device, b.ready, b.copies));
    launch(&b, b.slot, b.out);
    ok(b.ops->stream_synchronize(b.device, b.kernels));
    assert_int_equal(b.out[0], UINT32_MAX);
    bench_close(&b);
}

/* A wait stands for the record before it, whatever is recorded later. */
static void waits_hold_to_their_record(void **state)
{
    bench b;
    (void)state;
    bench_open(&b, STRATA__DELAYING_COPIES_LATE, 1);
    b.locked[0] = 11;
    b.locked[1] = 22;
    copy_word(&b, b.locked, b.slot);
    ok(b.ops->event_record(b.device, b.ready, b.copies));
    ok(b.ops->stream_wait(b.device, b.kernels, b.ready));
    launch(&b, b.slot, b.out);
    copy_word(&b, b.locked + 1, b.slot);
    ok(b.ops->event_record(b.device, b.ready, b.copies));
    ok(b.ops->stream_synchronize(b.device, b.kernels));
    assert_int_equal(b.out[0], 11);
    assert_int_equal(b.slot[0], 11);
    bench_close(&b);
}

static void sources_are_read_when_copies_run(void **state)
{
    uint32_t *pageable = calloc(WORDS, sizeof *pageable);
    bench b;
    (void)state;
    bench_open(&b, STRATA__DELAYING_COPIES_LATE, 1);
    b.locked[0] = pageable[0] = pageable[1] = 11;
    ok(b.ops->host_register(b.device, pageable + 1, 4));
    copy_word(&b, b.locked, &b.slot[0]);
    copy_word(&b, pageable, &b.slot[1]);
    copy_word(&b, pageable + 1, &b.slot[2]);
    b.locked[0] = pageable[0] = pageable[1] = 22;
    ok(b.ops->stream_synchronize(b.device, b.copies));
    assert_int_equal(b.slot[0], 22);
    assert_int_equal(b.slot[1], 11);
    assert_int_equal(b.slot[2], 22);
    b.ops->host_unregister(b.device, pageable + 1);
    bench_close(&b);
    free(pageable);
}

static void many_copies_are_each_where_they_belong(void **state)
{
    bench b;
    void *targets[3];
    const void *sources[3];
    uint64_t bytes[3] = {8, 8, 8};
    const strata__copies many = {targets, sources, bytes, 3};
    (void)state;
    bench_open(&b, STRATA__DELAYING_RANDOM, 3);
    for (uint32_t i = 0; i < WORDS; ++i)
        b.locked[i] = i;
    for (uint32_t row = 0; row < 3; ++row) {
        targets[row] = (uint8_t *)b.slot + 16 * row;
        sources[row] = (const uint8_t *)b.locked + 12 * row;
    }
    ok(b.ops->copy_many(b.device, b.copies, &many));
    ok(b.ops->stream_synchronize(b.device, b.copies));
    for (uint32_t row = 0; row < 3; ++row) {
        assert_int_equal(b.slot[4 * row], 3 * row);
        assert_int_equal(b.slot[4 * row + 1], 3 * row + 1);
        assert_int_equal(b.slot[4 * row + 2], UINT32_MAX);
    }
    bench_close(&b);
}

static void polling_ends(void **state)
{
    (void)state;
    for (uint32_t policy = 0; policy < STRATA__DELAYING_POLICY_COUNT; ++policy) {
        bool done = false;
        uint32_t asked = 0;
        bench b;
        bench_open(&b, policy, 1);
        launch(&b, b.slot, b.out);
        ok(b.ops->event_record(b.device, b.ready, b.kernels));
        while (!done && asked++ < 1000)
            ok(b.ops->event_query(b.device, b.ready, &done));
        assert_true(done);
        bench_close(&b);
    }
}

static void copies_stay_in_their_memory(void **state)
{
    bench b;
    (void)state;
    bench_open(&b, STRATA__DELAYING_RANDOM, 1);
    assert_int_equal(b.ops->copy(b.device, b.copies, b.slot + 1, b.locked, WORDS * 4),
                     STRATA_ERR_INTERNAL);
    assert_int_equal(b.ops->copy(b.device, b.copies, b.slot, b.locked + 1, WORDS * 4),
                     STRATA_ERR_INTERNAL);
    assert_int_equal(b.ops->copy(b.device, b.copies, b.locked, b.locked + 1, 4),
                     STRATA_ERR_INTERNAL);
    assert_int_equal(b.ops->fill(b.device, b.copies, b.slot + 1, 0, WORDS * 4),
                     STRATA_ERR_INTERNAL);
    bench_close(&b);
}

static void faults_hit_the_call_they_are_set_for(void **state)
{
    strata__event *event = NULL;
    void *memory = NULL;
    bench b;
    (void)state;
    bench_open(&b, STRATA__DELAYING_COPIES_LATE, 1);
    strata__delaying_fail(b.device, STRATA__FAULT_COPY, 2, 0);
    copy_word(&b, b.locked, b.slot);
    assert_int_equal(b.ops->copy(b.device, b.copies, b.slot, b.locked, 4), STRATA_ERR_DRIVER);
    copy_word(&b, b.locked, b.slot);
    strata__delaying_fail(b.device, STRATA__FAULT_ALLOC, 1, 1);
    assert_int_equal(b.ops->alloc(b.device, 4, "x", &memory), STRATA_ERR_DEVICE_MEMORY);
    assert_int_equal(b.ops->alloc(b.device, 4, "x", &memory), STRATA_ERR_DEVICE_MEMORY);
    strata__delaying_fail(b.device, STRATA__FAULT_HOST_ALLOC | STRATA__FAULT_REGISTER, 1, 0);
    assert_int_equal(b.ops->host_register(b.device, &b, sizeof b), STRATA_ERR_NO_MEMORY);
    strata__delaying_fail(b.device, STRATA__FAULT_EVENT, 1, 0);
    assert_int_equal(b.ops->event_create(b.device, false, &event), STRATA_ERR_DRIVER);
    strata__delaying_fail(b.device, STRATA__FAULT_LOST, 1, 0);
    assert_int_equal(b.ops->stream_synchronize(b.device, b.copies), STRATA_ERR_DEVICE_LOST);
    assert_int_equal(b.ops->copy(b.device, b.copies, b.slot, b.locked, 4), STRATA_ERR_DEVICE_LOST);
    bench_close(&b);
}

enum { HEAP_BYTES = 1 << 16 };

/* A heap that gives one part of itself after the other, and keeps it. */
typedef struct heap {
    _Alignas(4096) uint8_t bytes[HEAP_BYTES];
    uint64_t used;
} heap;

static void *heap_alloc(void *user_data, uint64_t bytes, uint64_t alignment)
{
    heap *h = user_data;
    uint64_t at = (h->used + alignment - 1) / alignment * alignment;
    if (bytes > HEAP_BYTES - at)
        return NULL;
    h->used = at + bytes;
    return h->bytes + at;
}

static void heap_free(void *user_data, void *pointer, uint64_t bytes)
{
    (void)user_data;
    (void)pointer;
    (void)bytes;
}

/* Pages of the heap that were page-locked before: what is allocated in them is the device's. */
static void memory_in_registered_pages_is_what_it_was_allocated_as(void **state)
{
    static heap h;
    strata_context_options in_heap = {.struct_size = sizeof in_heap};
    const strata__delaying_options options = {.policy = STRATA__DELAYING_RANDOM};
    static const uint32_t word = 7;
    strata_context *context;
    strata__device *device;
    strata__stream *stream;
    void *memory;
    (void)state;
    in_heap.alloc_fn = heap_alloc;
    in_heap.free_fn = heap_free;
    in_heap.alloc_user_data = &h;
    ok(strata__context_create(&in_heap, &context));
    ok(strata__delaying_device_open(context, &options, &device));
    ok(device->ops->stream_create(device, &stream));
    ok(device->ops->host_register(device, h.bytes, HEAP_BYTES));
    ok(device->ops->alloc(device, 4, "a word", &memory));
    assert_in_range((uintptr_t)memory, (uintptr_t)h.bytes, (uintptr_t)h.bytes + HEAP_BYTES - 4);
    ok(device->ops->copy(device, stream, memory, &word, 4));
    ok(device->ops->stream_synchronize(device, stream));
    assert_memory_equal(memory, &word, 4);
    device->ops->free(device, memory, 4);
    device->ops->host_unregister(device, h.bytes);
    device->ops->stream_destroy(device, stream);
    device->ops->destroy(device);
    strata__context_release(context);
}

static void memory_has_an_end(void **state)
{
    const strata_context_options none = {.struct_size = sizeof none};
    const strata__delaying_options options = {.memory_bytes = 1000};
    strata_context *context;
    strata__device *device;
    void *first, *second;
    (void)state;
    ok(strata__context_create(&none, &context));
    ok(strata__delaying_device_open(context, &options, &device));
    ok(device->ops->alloc(device, 600, "first", &first));
    assert_int_equal(device->ops->alloc(device, 401, "second", &second), STRATA_ERR_DEVICE_MEMORY);
    ok(device->ops->alloc(device, 400, "second", &second));
    device->ops->free(device, second, 400);
    device->ops->free(device, first, 600);
    device->ops->destroy(device);
    strata__context_release(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waits_give_the_right_result),
        cmocka_unit_test(a_missing_wait_for_the_copy_shows),
        cmocka_unit_test(a_missing_wait_for_the_reader_shows),
        cmocka_unit_test(random_schedules_find_both),
        cmocka_unit_test(a_wait_before_the_record_is_no_wait),
        cmocka_unit_test(waits_hold_to_their_record),
        cmocka_unit_test(sources_are_read_when_copies_run),
        cmocka_unit_test(many_copies_are_each_where_they_belong),
        cmocka_unit_test(polling_ends),
        cmocka_unit_test(copies_stay_in_their_memory),
        cmocka_unit_test(faults_hit_the_call_they_are_set_for),
        cmocka_unit_test(memory_has_an_end),
        cmocka_unit_test(memory_in_registered_pages_is_what_it_was_allocated_as),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
