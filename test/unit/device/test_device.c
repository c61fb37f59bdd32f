/* SPDX-License-Identifier: MIT */
/* Devices by name, and the CPU device's memory, streams, events and copies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"
#include "base/task.h"
#include "device/device.h"

static strata_context *make_context(const strata_context_options *options)
{
    static const strata_context_options none = {.struct_size = sizeof none};
    strata_context *context = NULL;
    assert_int_equal(strata__context_create(options ? options : &none, &context), STRATA_OK);
    return context;
}

static void open_by_name(void **state)
{
    static const char *const bad[] = {"",        "CPU",     "cpu0",    "cuda",
                                      "cuda:",   "cuda:x",  "cuda:-1", "cuda:4294967296",
                                      "cuda:1 ", "vulkan:0"};
    strata_context *context = make_context(NULL);
    strata__device *device = NULL;
    (void)state;
    assert_int_equal(strata__device_open(context, "cpu", &device), STRATA_OK);
    assert_int_equal(device->facts.kind, STRATA__DEVICE_CPU);
    assert_int_equal(device->facts.host_addressable, 1);
    assert_string_equal(device->facts.name, "cpu");
    device->ops->destroy(device);
    assert_int_equal(strata__device_open(context, NULL, &device), STRATA_OK);
    assert_int_equal(device->facts.kind, STRATA__DEVICE_CPU);
    device->ops->destroy(device);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; ++i) {
        assert_int_equal(strata__device_open(context, bad[i], &device), STRATA_ERR_NO_DEVICE);
        assert_non_null(strstr(strata__error_text(), "no device is named"));
        if (bad[i][0])
            assert_non_null(strstr(strata__error_text(), bad[i]));
    }
    strata__context_release(context);
}

static void accelerators_beyond_the_count(void **state)
{
    strata_context *context = make_context(NULL);
    strata__device_facts facts;
    strata__device *device = NULL;
    uint32_t count = 99;
    (void)state;
    assert_int_equal(strata__device_count(context, &count), STRATA_OK);
    assert_true(count < 99);
    assert_int_equal(strata__device_facts_get(context, count, &facts), STRATA_ERR_NO_DEVICE);
    assert_int_equal(strata__device_open(context, "cuda:98", &device), STRATA_ERR_NO_DEVICE);
    assert_non_null(strstr(strata__error_text(), "cuda:98"));
    strata__context_release(context);
}

typedef struct ledger {
    uint64_t live_bytes;
    uint64_t last_alignment;
    int fail;
} ledger;

static void *ledger_alloc(void *user_data, uint64_t bytes, uint64_t alignment)
{
    ledger *book = user_data;
    void *pointer;
    if (book->fail)
        return NULL;
    pointer = strata__alloc_aligned(strata__allocator_default(), bytes, alignment);
    if (pointer)
        book->live_bytes += bytes;
    book->last_alignment = alignment;
    return pointer;
}

static void ledger_free(void *user_data, void *pointer, uint64_t bytes)
{
    ledger *book = user_data;
    book->live_bytes -= bytes;
    free(pointer);
}

static void memory_goes_through_the_allocator(void **state)
{
    ledger book = {0};
    strata_context_options options = {.struct_size = sizeof options,
                                      .alloc_fn = ledger_alloc,
                                      .free_fn = ledger_free,
                                      .alloc_user_data = &book};
    strata_context *context = make_context(&options);
    strata__device *device = NULL;
    uint64_t before;
    void *memory = NULL;
    (void)state;
    assert_int_equal(strata__cpu_device_open(context, &device), STRATA_OK);
    before = book.live_bytes;
    assert_int_equal(device->ops->alloc(device, 1000, "the arena", &memory), STRATA_OK);
    assert_int_equal(book.live_bytes - before, 1000);
    assert_int_equal(book.last_alignment, device->facts.alignment_bytes);
    assert_int_equal((uintptr_t)memory % device->facts.alignment_bytes, 0);
    device->ops->free(device, memory, 1000);
    assert_int_equal(device->ops->host_alloc(device, 24, "offsets", &memory), STRATA_OK);
    device->ops->host_free(device, memory, 24);
    assert_int_equal(book.live_bytes, before);
    book.fail = 1;
    assert_int_equal(device->ops->alloc(device, 77, "the arena", &memory),
                     STRATA_ERR_DEVICE_MEMORY);
    assert_non_null(strstr(strata__error_text(), "77 bytes for the arena"));
    assert_int_equal(device->ops->host_alloc(device, 78, "offsets", &memory), STRATA_ERR_NO_MEMORY);
    device->ops->destroy(device);
    strata__context_release(context);
    assert_int_equal(book.live_bytes, 0);
}

static void every_open_may_fail(void **state)
{
    ledger book = {0};
    strata_context_options options = {.struct_size = sizeof options,
                                      .alloc_fn = ledger_alloc,
                                      .free_fn = ledger_free,
                                      .alloc_user_data = &book};
    strata_context *context = make_context(&options);
    strata__device *device = NULL;
    strata__stream *stream = NULL;
    strata__event *event = NULL;
    (void)state;
    book.fail = 1;
    assert_int_equal(strata__cpu_device_open(context, &device), STRATA_ERR_NO_MEMORY);
    book.fail = 0;
    assert_int_equal(strata__cpu_device_open(context, &device), STRATA_OK);
    book.fail = 1;
    assert_int_equal(device->ops->stream_create(device, &stream), STRATA_ERR_NO_MEMORY);
    assert_int_equal(device->ops->event_create(device, false, &event), STRATA_ERR_NO_MEMORY);
    device->ops->destroy(device);
    strata__context_release(context);
    assert_int_equal(book.live_bytes, 0);
}

typedef struct add_arguments {
    int *target;
    int amount;
} add_arguments;

static void add_task(const void *arguments)
{
    const add_arguments *args = arguments;
    *args->target += args->amount;
}

static void streams_run_at_once(void **state)
{
    strata_context *context = make_context(NULL);
    strata__device *device = NULL;
    strata__stream *stream = NULL;
    strata__task_queue *queue;
    uint8_t source[5] = {1, 2, 3, 4, 5}, target[5] = {0};
    int value = 1;
    add_arguments args = {&value, 41};
    (void)state;
    assert_int_equal(strata__cpu_device_open(context, &device), STRATA_OK);
    assert_int_equal(device->ops->stream_create(device, &stream), STRATA_OK);
    queue = stream->native;
    assert_int_equal(queue->enqueue(queue, add_task, &args, sizeof args), STRATA_OK);
    assert_int_equal(value, 42);
    assert_int_equal(queue->enqueue(queue, add_task, &args, STRATA__TASK_BYTES + 1),
                     STRATA_ERR_INTERNAL);
    assert_int_equal(value, 42);
    assert_int_equal(device->ops->copy(device, stream, target, source, 5), STRATA_OK);
    assert_memory_equal(target, source, 5);
    assert_int_equal(device->ops->copy(device, stream, NULL, NULL, 0), STRATA_OK);
    assert_int_equal(device->ops->fill(device, stream, target, 0xab, 4), STRATA_OK);
    assert_int_equal(target[3], 0xab);
    assert_int_equal(target[4], 5);
    assert_int_equal(device->ops->stream_synchronize(device, stream), STRATA_OK);
    device->ops->stream_destroy(device, stream);
    assert_int_equal(device->ops->stream_wrap(device, &value, &stream), STRATA_ERR_UNSUPPORTED);
    device->ops->destroy(device);
    strata__context_release(context);
}

static void events_must_be_recorded(void **state)
{
    strata_context *context = make_context(NULL);
    strata__device *device = NULL;
    strata__stream *stream = NULL;
    strata__event *start = NULL, *end = NULL;
    uint64_t ns = UINT64_MAX;
    bool done = true;
    (void)state;
    assert_int_equal(strata__cpu_device_open(context, &device), STRATA_OK);
    assert_int_equal(device->ops->stream_create(device, &stream), STRATA_OK);
    assert_int_equal(device->ops->event_create(device, true, &start), STRATA_OK);
    assert_int_equal(device->ops->event_create(device, true, &end), STRATA_OK);
    assert_int_equal(device->ops->stream_wait(device, stream, start), STRATA_ERR_INTERNAL);
    assert_int_equal(device->ops->event_synchronize(device, start), STRATA_ERR_INTERNAL);
    assert_int_equal(device->ops->event_query(device, start, &done), STRATA_ERR_INTERNAL);
    assert_false(done);
    assert_int_equal(device->ops->event_record(device, start, stream), STRATA_OK);
    assert_int_equal(device->ops->event_elapsed_ns(device, start, end, &ns), STRATA_ERR_INTERNAL);
    assert_int_equal(device->ops->event_record(device, end, stream), STRATA_OK);
    assert_int_equal(device->ops->event_elapsed_ns(device, start, end, &ns), STRATA_OK);
    assert_true(ns < 10000000000u);
    assert_int_equal(device->ops->event_query(device, end, &done), STRATA_OK);
    assert_true(done);
    assert_int_equal(device->ops->stream_wait(device, stream, end), STRATA_OK);
    device->ops->event_destroy(device, start);
    device->ops->event_destroy(device, end);
    device->ops->stream_destroy(device, stream);
    device->ops->destroy(device);
    strata__context_release(context);
}

static void host_devices_have_no_graphs(void **state)
{
    strata_context *context = make_context(NULL);
    strata__device *device = NULL;
    strata__stream *stream = NULL;
    strata__device_graph *graph = NULL;
    (void)state;
    assert_int_equal(strata__cpu_device_open(context, &device), STRATA_OK);
    assert_int_equal(device->ops->stream_create(device, &stream), STRATA_OK);
    assert_int_equal(device->facts.graphs, 0);
    assert_int_equal(device->ops->capture_begin(device, stream), STRATA_ERR_UNSUPPORTED);
    assert_int_equal(device->ops->capture_end(device, stream, &graph), STRATA_ERR_UNSUPPORTED);
    assert_int_equal(device->ops->graph_launch(device, graph, stream), STRATA_ERR_UNSUPPORTED);
    assert_null(graph);
    device->ops->graph_destroy(device, graph);
    device->ops->stream_destroy(device, stream);
    device->ops->destroy(device);
    strata__context_release(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(open_by_name),
        cmocka_unit_test(accelerators_beyond_the_count),
        cmocka_unit_test(memory_goes_through_the_allocator),
        cmocka_unit_test(every_open_may_fail),
        cmocka_unit_test(streams_run_at_once),
        cmocka_unit_test(events_must_be_recorded),
        cmocka_unit_test(host_devices_have_no_graphs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
