/* SPDX-License-Identifier: MIT */
/*
 * The CPU as a device. Device memory is host memory, and everything put on a stream runs at once on
 * the calling thread, so that a stream is always idle and an event is done as soon as it is
 * recorded.
 */
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/task.h"
#include "device/device.h"

typedef struct cpu_device {
    strata__device base;
} cpu_device;

typedef struct cpu_stream {
    strata__stream base;
    strata__task_queue queue;
} cpu_stream;

struct strata__event {
    bool recorded;
    uint64_t time_ns;
};

static const strata__allocator *allocator_of(const strata__device *device)
{
    return &device->context->allocator;
}

static void cpu_destroy(strata__device *device)
{
    strata_context *context;
    if (!device)
        return;
    context = device->context;
    strata__free(&context->allocator, device, sizeof(cpu_device));
    strata__context_release(context);
}

static strata_status cpu_enter(strata__device *device, void *out_saved)
{
    (void)device;
    (void)out_saved;
    return STRATA_OK;
}

static void cpu_leave(strata__device *device, const void *saved)
{
    (void)device;
    (void)saved;
}

static uint64_t memory_pages_bytes(int name)
{
    long pages = sysconf(name);
    long page_bytes = sysconf(_SC_PAGESIZE);
    return pages > 0 && page_bytes > 0 ? (uint64_t)pages * (uint64_t)page_bytes : 0;
}

static strata_status cpu_memory_free_bytes(strata__device *device, uint64_t *out_bytes)
{
    (void)device;
    *out_bytes = memory_pages_bytes(_SC_AVPHYS_PAGES);
    return STRATA_OK;
}

static strata_status cpu_alloc(strata__device *device, uint64_t bytes, const char *what, void **out)
{
    void *pointer = strata__alloc_aligned(allocator_of(device), bytes, STRATA__CPU_ALIGNMENT_BYTES);
    if (!pointer)
        return strata__fail(STRATA_ERR_DEVICE_MEMORY, "cannot allocate %llu bytes for %s on cpu",
                            (unsigned long long)bytes, what);
    *out = pointer;
    return STRATA_OK;
}

static strata_status cpu_host_alloc(strata__device *device, uint64_t bytes, const char *what,
                                    void **out)
{
    void *pointer = strata__alloc_aligned(allocator_of(device), bytes, STRATA__CPU_ALIGNMENT_BYTES);
    if (!pointer)
        return strata__fail_memory(bytes, what);
    *out = pointer;
    return STRATA_OK;
}

static void cpu_free(strata__device *device, void *pointer, uint64_t bytes)
{
    strata__free(allocator_of(device), pointer, bytes);
}

static strata_status cpu_host_register(strata__device *device, const void *pointer, uint64_t bytes)
{
    (void)device;
    (void)pointer;
    (void)bytes;
    return STRATA_OK;
}

static void cpu_host_unregister(strata__device *device, const void *pointer)
{
    (void)device;
    (void)pointer;
}

static strata_status run_at_once(strata__task_queue *queue, strata__task_fn fn,
                                 const void *arguments, uint64_t bytes)
{
    (void)queue;
    if (bytes > STRATA__TASK_BYTES)
        return strata__fail(STRATA_ERR_INTERNAL, "a task has %llu bytes of arguments, at most %d",
                            (unsigned long long)bytes, STRATA__TASK_BYTES);
    fn(arguments);
    return STRATA_OK;
}

static strata_status cpu_stream_create(strata__device *device, strata__stream **out)
{
    cpu_stream *stream = strata__calloc(allocator_of(device), 1, sizeof *stream);
    if (!stream)
        return strata__fail_memory(sizeof *stream, "a stream");
    stream->queue.enqueue = run_at_once;
    stream->base.native = &stream->queue;
    *out = &stream->base;
    return STRATA_OK;
}

static strata_status cpu_stream_wrap(strata__device *device, void *native, strata__stream **out)
{
    (void)device;
    (void)native;
    (void)out;
    return strata__fail(STRATA_ERR_UNSUPPORTED, "cpu: the caller's stream cannot be used");
}

static void cpu_stream_destroy(strata__device *device, strata__stream *stream)
{
    strata__free(allocator_of(device), stream, sizeof(cpu_stream));
}

static strata_status cpu_stream_synchronize(strata__device *device, strata__stream *stream)
{
    (void)device;
    (void)stream;
    return STRATA_OK;
}

static strata_status cpu_event_create(strata__device *device, bool timing, strata__event **out)
{
    strata__event *event = strata__calloc(allocator_of(device), 1, sizeof *event);
    (void)timing;
    if (!event)
        return strata__fail_memory(sizeof *event, "an event");
    *out = event;
    return STRATA_OK;
}

static void cpu_event_destroy(strata__device *device, strata__event *event)
{
    strata__free(allocator_of(device), event, sizeof *event);
}

static strata_status cpu_event_record(strata__device *device, strata__event *event,
                                      strata__stream *stream)
{
    (void)device;
    (void)stream;
    event->time_ns = strata__clock_ns();
    event->recorded = true;
    return STRATA_OK;
}

/* A wait on an event that was never recorded would silently be no wait. */
static strata_status require_recorded(const strata__event *event)
{
    if (!event->recorded)
        return strata__fail(STRATA_ERR_INTERNAL, "cpu: an event is used before it is recorded");
    return STRATA_OK;
}

static strata_status cpu_event_query(strata__device *device, strata__event *event, bool *out_done)
{
    (void)device;
    *out_done = event->recorded;
    return require_recorded(event);
}

static strata_status cpu_event_synchronize(strata__device *device, strata__event *event)
{
    (void)device;
    return require_recorded(event);
}

static strata_status cpu_event_elapsed_ns(strata__device *device, strata__event *start,
                                          strata__event *end, uint64_t *out_ns)
{
    strata_status status = require_recorded(start);
    (void)device;
    if (status == STRATA_OK)
        status = require_recorded(end);
    if (status == STRATA_OK)
        *out_ns = end->time_ns > start->time_ns ? end->time_ns - start->time_ns : 0;
    return status;
}

static strata_status cpu_stream_wait(strata__device *device, strata__stream *stream,
                                     strata__event *event)
{
    (void)device;
    (void)stream;
    return require_recorded(event);
}

static strata_status cpu_copy(strata__device *device, strata__stream *stream, void *target,
                              const void *source, uint64_t bytes)
{
    (void)device;
    (void)stream;
    if (bytes)
        memcpy(target, source, bytes);
    return STRATA_OK;
}

static strata_status cpu_copy_many(strata__device *device, strata__stream *stream,
                                   const strata__copies *copies)
{
    for (uint64_t i = 0; i < copies->count; ++i)
        (void)cpu_copy(device, stream, copies->targets[i], copies->sources[i], copies->bytes[i]);
    return STRATA_OK;
}

static strata_status cpu_fill(strata__device *device, strata__stream *stream, void *target,
                              uint8_t byte, uint64_t bytes)
{
    (void)device;
    (void)stream;
    if (bytes)
        memset(target, byte, bytes);
    return STRATA_OK;
}

static const strata__device_ops cpu_ops = {
    .destroy = cpu_destroy,
    .enter = cpu_enter,
    .leave = cpu_leave,
    .memory_free_bytes = cpu_memory_free_bytes,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .host_alloc = cpu_host_alloc,
    .host_free = cpu_free,
    .host_register = cpu_host_register,
    .host_unregister = cpu_host_unregister,
    .stream_create = cpu_stream_create,
    .stream_wrap = cpu_stream_wrap,
    .stream_destroy = cpu_stream_destroy,
    .stream_synchronize = cpu_stream_synchronize,
    .event_create = cpu_event_create,
    .event_destroy = cpu_event_destroy,
    .event_record = cpu_event_record,
    .event_query = cpu_event_query,
    .event_synchronize = cpu_event_synchronize,
    .event_elapsed_ns = cpu_event_elapsed_ns,
    .stream_wait = cpu_stream_wait,
    .copy = cpu_copy,
    .copy_many = cpu_copy_many,
    .fill = cpu_fill,
    .capture_begin = strata__no_capture_begin,
    .capture_end = strata__no_capture_end,
    .graph_launch = strata__no_graph_launch,
    .graph_destroy = strata__no_graph_destroy,
};

strata_status strata__cpu_device_open(strata_context *context, strata__device **out)
{
    cpu_device *device = strata__calloc(&context->allocator, 1, sizeof *device);
    long threads = sysconf(_SC_NPROCESSORS_ONLN);
    if (!device)
        return strata__fail_memory(sizeof *device, "the cpu device");
    device->base.ops = &cpu_ops;
    device->base.context = strata__context_retain(context);
    device->base.facts.kind = STRATA__DEVICE_CPU;
    device->base.facts.host_addressable = 1;
    device->base.facts.multiprocessors = threads > 0 ? (uint32_t)threads : 1;
    device->base.facts.memory_bytes = memory_pages_bytes(_SC_PHYS_PAGES);
    device->base.facts.memory_free_bytes = memory_pages_bytes(_SC_AVPHYS_PAGES);
    device->base.facts.alignment_bytes = STRATA__CPU_ALIGNMENT_BYTES;
    memcpy(device->base.facts.name, "cpu", sizeof "cpu");
    *out = &device->base;
    return STRATA_OK;
}
