/* SPDX-License-Identifier: MIT */
/*
 * check_device: the operations of the CUDA device, one by one. Exit code 0: all right, 1: something
 * is wrong, 77: no device. The device is lost at the end, on purpose, for this process alone.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/cuda_code.h"
#include "base/error.h"
#include "device/cuda_device.h"
#include "device_kernels.h"

enum { BYTES = 1 << 20, REGISTERED = 4 << 20 };

static int checks, failures;

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        checks++;                                                                                  \
        if (!(condition)) {                                                                        \
            failures++;                                                                            \
            printf("  FAIL line %d: %s (last error: %s)\n", __LINE__, #condition,                  \
                   strata__error_text());                                                          \
        }                                                                                          \
    } while (0)

#define OK(status) CHECK((status) == STRATA_OK)

static bool told(const char *part)
{
    return strstr(strata__error_text(), part) != NULL;
}

static void check_facts(strata_context *context, strata__device *device)
{
    const strata__device_facts *f = &device->facts;
    strata__device_facts other;
    uint32_t count = 0;
    int caller = -1;
    OK(strata__cuda_device_count(&count));
    OK(strata__cuda_device_facts(0, &other));
    CHECK(f->kind == STRATA__DEVICE_CUDA && f->compute_capability >= 80 && f->ordinal == 0);
    CHECK(f->host_addressable == 0 && f->multiprocessors > 0 && f->shared_memory_bytes >= 101376);
    CHECK(f->memory_free_bytes <= f->memory_bytes && f->alignment_bytes == 256);
    CHECK(f->context_bytes < f->memory_bytes);
    CHECK(f->name[0] && strlen(f->uuid) == 36 && !strcmp(f->uuid, other.uuid));
    CHECK(strata__cuda_device_open(context, count, &device) == STRATA_ERR_NO_DEVICE);
    CHECK(told("CUDA devices"));
    CHECK(strata__cuda_device_facts(UINT32_MAX, &other) == STRATA_ERR_NO_DEVICE);
    CHECK(cudaGetDevice(&caller) == cudaSuccess && caller == (int)count - 1);
}

static void check_current_device(strata__device *device)
{
    uint8_t saved[STRATA__DEVICE_SAVED_BYTES];
    int count = 0, inside = -1, after = -1;
    CHECK(cudaGetDeviceCount(&count) == cudaSuccess);
    CHECK(cudaSetDevice(count - 1) == cudaSuccess);
    OK(device->ops->enter(device, saved));
    CHECK(cudaGetDevice(&inside) == cudaSuccess && inside == 0);
    device->ops->leave(device, saved);
    CHECK(cudaGetDevice(&after) == cudaSuccess && after == count - 1);
}

static void check_memory(strata__device *device)
{
    const strata__device_ops *ops = device->ops;
    uint64_t before = 0, during = 0, after = 0, most = 1ull << 46;
    void *memory = NULL, *small = NULL;
    OK(ops->memory_free_bytes(device, &before));
    OK(ops->alloc(device, 64 << 20, "a test", &memory));
    OK(ops->alloc(device, 0, "nothing", &small));
    CHECK(memory && small && (uintptr_t)memory % device->facts.alignment_bytes == 0);
    OK(ops->memory_free_bytes(device, &during));
    CHECK(before - during >= 64 << 20);
    ops->free(device, memory, 64 << 20);
    memory = NULL;
    ops->free(device, small, 0);
    ops->free(device, NULL, 0);
    OK(ops->memory_free_bytes(device, &after));
    CHECK(after == before);
    CHECK(ops->alloc(device, most, "too much", &memory) == STRATA_ERR_DEVICE_MEMORY && !memory);
    CHECK(told("70368744177664") && told("too much") && told("cudaErrorMemoryAllocation"));
    CHECK(cudaPeekAtLastError() == cudaSuccess);
    CHECK(ops->host_alloc(device, most, "too much", &memory) != STRATA_OK && told("too much"));
    CHECK(cudaPeekAtLastError() == cudaSuccess);
    OK(ops->alloc(device, 1, "a byte", &memory));
    ops->free(device, memory, 1);
}

static void fill_random(uint8_t *to, uint64_t bytes, uint32_t seed)
{
    for (uint64_t i = 0; i < bytes; i++) {
        seed = seed * 1664525u + 1013904223u;
        to[i] = (uint8_t)(seed >> 24);
    }
}

/* To the device and back with odd sizes and places, from pageable and page-locked memory. */
static void check_copies(strata__device *device, strata__stream *stream, uint8_t *on_device,
                         uint8_t *locked)
{
    const strata__device_ops *ops = device->ops;
    static const uint64_t sizes[] = {0, 1, 3, 255, 4096, 70001, BYTES / 2 - 777};
    uint8_t *pageable = malloc(BYTES), *back = malloc(BYTES);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        uint64_t n = sizes[i], shift = i * 13 + 1;
        uint8_t *source = i % 2 ? locked : pageable;
        fill_random(source, BYTES, (uint32_t)i + 7);
        memset(back, 0xa5, BYTES);
        OK(ops->fill(device, stream, on_device, 0x5a, BYTES));
        OK(ops->copy(device, stream, on_device + shift, source + 5, n));
        OK(ops->copy(device, stream, on_device + BYTES / 2 + shift, on_device + shift, n));
        OK(ops->copy(device, stream, back, on_device + BYTES / 2, n + 2 * shift));
        OK(ops->stream_synchronize(device, stream));
        CHECK(!memcmp(back + shift, source + 5, n));
        CHECK(back[shift - 1] == 0x5a && back[n + shift] == 0x5a && back[n + 2 * shift] == 0xa5);
    }
    free(pageable);
    free(back);
}

/* Many copies to the device and back: in a batch, and behind what the stream has. */
static void check_many(strata__device *device, strata__stream *stream, uint8_t *on_device,
                       uint8_t *locked)
{
    enum { COPIES = 500, STRIDE = 700, PART = 333 };
    const strata__device_ops *ops = device->ops;
    static void *targets[COPIES];
    static const void *sources[COPIES];
    static uint64_t bytes[COPIES];
    const strata__copies many = {targets, sources, bytes, COPIES};
    uint8_t *back = malloc(BYTES);
    fill_random(locked, BYTES, 99);
    for (int i = 0; i < COPIES; i++) {
        targets[i] = on_device + (COPIES - 1 - i) * STRIDE;
        sources[i] = locked + i * STRIDE;
        bytes[i] = i % 7 ? PART : PART + STRIDE / 3;
    }
    OK(ops->fill(device, stream, on_device, 0x5a, BYTES));
    OK(ops->copy_many(device, stream, &many));
    OK(ops->copy(device, stream, back, on_device, BYTES));
    OK(ops->stream_synchronize(device, stream));
    for (int i = 0; i < COPIES; i++) {
        const uint8_t *copied = back + (COPIES - 1 - i) * STRIDE;
        CHECK(!memcmp(copied, locked + i * STRIDE, bytes[i]));
        CHECK(copied[bytes[i]] == 0x5a && copied[STRIDE - 1] == 0x5a);
    }
    free(back);
}

/* Kernels use page-locked memory in place, at the host's address. */
static void check_locked(strata__device *device, strata__stream *stream, uint8_t *locked)
{
    const strata__device_ops *ops = device->ops;
    uint8_t *other =
        mmap(NULL, REGISTERED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct cudaPointerAttributes attributes;
    void *on_device = NULL;
    bool same = true;
    fill_random(locked, BYTES, 3);
    uint8_t first = locked[0], last = locked[BYTES - 1];
    CHECK(launch_increment((cudaStream_t)stream->native, locked, BYTES) == cudaSuccess);
    OK(ops->stream_synchronize(device, stream));
    CHECK(locked[0] == (uint8_t)(first + 1) && locked[BYTES - 1] == (uint8_t)(last + 1));
    CHECK(cudaPointerGetAttributes(&attributes, locked) == cudaSuccess &&
          attributes.type == cudaMemoryTypeHost && attributes.devicePointer == locked);
    fill_random(other, REGISTERED, 4);
    OK(ops->alloc(device, REGISTERED, "a copy", &on_device));
    OK(ops->host_register(device, other, REGISTERED));
    CHECK(ops->host_register(device, other, REGISTERED) != STRATA_OK &&
          told("cudaErrorHostMemoryAlreadyRegistered"));
    CHECK(cudaPointerGetAttributes(&attributes, other) == cudaSuccess &&
          attributes.type == cudaMemoryTypeHost);
    OK(ops->copy(device, stream, on_device, other, REGISTERED));
    OK(ops->stream_synchronize(device, stream));
    ops->host_unregister(device, other);
    CHECK(cudaPointerGetAttributes(&attributes, other) == cudaSuccess &&
          attributes.type == cudaMemoryTypeUnregistered);
    uint8_t *back = calloc(1, REGISTERED);
    OK(ops->copy(device, stream, back, on_device, REGISTERED));
    OK(ops->stream_synchronize(device, stream));
    for (int i = 0; i < REGISTERED; i++)
        same &= back[i] == other[i];
    CHECK(same);
    ops->free(device, on_device, REGISTERED);
    munmap(other, REGISTERED);
    free(back);
}

/*
 * One stream is held at a gate, so that what is asynchronous and what waits can be told for sure.
 */
static void check_order(strata__device *device, uint8_t *on_device, uint8_t *locked)
{
    const strata__device_ops *ops = device->ops;
    strata__stream *held = NULL, *other = NULL;
    strata__event *event = NULL, *late = NULL;
    volatile uint32_t *gate = (volatile uint32_t *)(void *)locked;
    uint8_t *values = locked + 4096, *out = locked + 8192;
    bool done = true;
    OK(ops->stream_create(device, &held));
    OK(ops->stream_create(device, &other));
    OK(ops->event_create(device, false, &event));
    OK(ops->event_create(device, false, &late));
    CHECK(ops->event_query(device, event, &done) == STRATA_ERR_INTERNAL);
    CHECK(ops->event_synchronize(device, event) == STRATA_ERR_INTERNAL);
    CHECK(ops->stream_wait(device, other, event) == STRATA_ERR_INTERNAL);
    fill_random(values, 64, 5);
    *gate = 0;
    memset(out, 0, 64);
    OK(ops->fill(device, other, on_device, 0x11, BYTES));
    OK(ops->stream_synchronize(device, other));
    CHECK(launch_gate((cudaStream_t)held->native, gate) == cudaSuccess);
    OK(ops->copy(device, held, on_device, values, 64));
    OK(ops->event_record(device, event, held));
    OK(ops->event_query(device, event, &done));
    CHECK(!done);
    /* Streams do not wait for each other unless they are told to. */
    OK(ops->copy(device, other, out, on_device, 64));
    OK(ops->stream_synchronize(device, other));
    CHECK(out[0] == 0x11 && out[63] == 0x11);
    OK(ops->stream_wait(device, other, event));
    OK(ops->copy(device, other, out, on_device, 64));
    OK(ops->event_record(device, late, other));
    OK(ops->event_query(device, late, &done));
    CHECK(!done && out[0] == 0x11);
    *gate = 1;
    OK(ops->event_synchronize(device, late));
    OK(ops->event_query(device, event, &done));
    CHECK(done && !memcmp(out, values, 64));
    ops->event_destroy(device, event);
    ops->event_destroy(device, late);
    ops->event_destroy(device, NULL);
    ops->stream_destroy(device, held);
    ops->stream_destroy(device, other);
    ops->stream_destroy(device, NULL);
}

static void check_timing(strata__device *device, uint8_t *on_device)
{
    const strata__device_ops *ops = device->ops;
    strata__stream *stream = NULL;
    strata__event *first = NULL, *last = NULL;
    uint64_t ns = 0, none = 1;
    OK(ops->stream_create(device, &stream));
    OK(ops->event_create(device, true, &first));
    OK(ops->event_create(device, true, &last));
    CHECK(ops->event_elapsed_ns(device, first, last, &ns) == STRATA_ERR_INTERNAL);
    OK(ops->event_record(device, first, stream));
    for (int i = 0; i < 100; i++)
        OK(ops->fill(device, stream, on_device, (uint8_t)i, BYTES));
    OK(ops->event_record(device, last, stream));
    OK(ops->stream_synchronize(device, stream));
    OK(ops->event_elapsed_ns(device, first, last, &ns));
    OK(ops->event_elapsed_ns(device, first, first, &none));
    CHECK(ns > 0 && none == 0);
    ops->event_destroy(device, first);
    ops->event_destroy(device, last);
    ops->stream_destroy(device, stream);
}

/* The caller's stream is used as it is, and is the caller's afterwards. */
static void check_wrapped(strata__device *device, uint8_t *on_device, uint8_t *locked)
{
    const strata__device_ops *ops = device->ops;
    strata__stream *stream = NULL;
    cudaStream_t native;
    CHECK(cudaStreamCreateWithFlags(&native, cudaStreamNonBlocking) == cudaSuccess);
    OK(ops->stream_wrap(device, native, &stream));
    CHECK(stream->native == (void *)native);
    OK(ops->fill(device, stream, on_device, 9, 16));
    CHECK(launch_increment(native, on_device, 16) == cudaSuccess);
    OK(ops->copy(device, stream, locked, on_device, 16));
    ops->stream_destroy(device, stream);
    CHECK(cudaStreamSynchronize(native) == cudaSuccess && locked[0] == 10 && locked[15] == 10);
    CHECK(cudaStreamDestroy(native) == cudaSuccess);
}

/* What is captured does not run before the graph does, and then as often as it is launched. */
static void check_graph(strata__device *device, uint8_t *on_device, uint8_t *locked)
{
    const strata__device_ops *ops = device->ops;
    strata__stream *stream = NULL;
    strata__device_graph *graph = NULL;
    OK(ops->stream_create(device, &stream));
    OK(ops->fill(device, stream, on_device, 20, 64));
    OK(ops->stream_synchronize(device, stream));
    OK(ops->capture_begin(device, stream));
    CHECK(launch_increment((cudaStream_t)stream->native, on_device, 64) == cudaSuccess);
    OK(ops->copy(device, stream, locked, on_device, 64));
    OK(ops->capture_end(device, stream, &graph));
    memset(locked, 0, 64);
    OK(ops->stream_synchronize(device, stream));
    CHECK(locked[0] == 0);
    for (int i = 1; i <= 3 && graph; i++) {
        OK(ops->graph_launch(device, graph, stream));
        OK(ops->stream_synchronize(device, stream));
        CHECK(locked[0] == 20 + i && locked[63] == 20 + i);
    }
    ops->graph_destroy(device, graph);
    ops->graph_destroy(device, NULL);
    ops->stream_destroy(device, stream);
}

/* Every code that the runtime has a name for becomes a failure that tells it. */
static void check_error_names(void)
{
    static const struct {
        cudaError_t code;
        strata_status status;
    } known[] = {
        {cudaErrorMemoryAllocation, STRATA_ERR_DEVICE_MEMORY},
        {cudaErrorInitializationError, STRATA_ERR_NO_DEVICE},
        {cudaErrorStubLibrary, STRATA_ERR_NO_DEVICE},
        {cudaErrorInsufficientDriver, STRATA_ERR_NO_DEVICE},
        {cudaErrorDevicesUnavailable, STRATA_ERR_NO_DEVICE},
        {cudaErrorNoDevice, STRATA_ERR_NO_DEVICE},
        {cudaErrorInvalidDevice, STRATA_ERR_NO_DEVICE},
        {cudaErrorSystemNotReady, STRATA_ERR_NO_DEVICE},
        {cudaErrorSystemDriverMismatch, STRATA_ERR_NO_DEVICE},
        {cudaErrorNoKernelImageForDevice, STRATA_ERR_UNSUPPORTED},
        {cudaErrorUnsupportedPtxVersion, STRATA_ERR_UNSUPPORTED},
        {cudaErrorNotSupported, STRATA_ERR_UNSUPPORTED},
        {cudaErrorDeviceUninitialized, STRATA_ERR_DEVICE_LOST},
        {cudaErrorECCUncorrectable, STRATA_ERR_DEVICE_LOST},
        {cudaErrorNvlinkUncorrectable, STRATA_ERR_DEVICE_LOST},
        {cudaErrorContained, STRATA_ERR_DEVICE_LOST},
        {cudaErrorIllegalAddress, STRATA_ERR_DEVICE_LOST},
        {cudaErrorLaunchTimeout, STRATA_ERR_DEVICE_LOST},
        {cudaErrorContextIsDestroyed, STRATA_ERR_DEVICE_LOST},
        {cudaErrorAssert, STRATA_ERR_DEVICE_LOST},
        {cudaErrorHardwareStackError, STRATA_ERR_DEVICE_LOST},
        {cudaErrorIllegalInstruction, STRATA_ERR_DEVICE_LOST},
        {cudaErrorMisalignedAddress, STRATA_ERR_DEVICE_LOST},
        {cudaErrorInvalidAddressSpace, STRATA_ERR_DEVICE_LOST},
        {cudaErrorInvalidPc, STRATA_ERR_DEVICE_LOST},
        {cudaErrorLaunchFailure, STRATA_ERR_DEVICE_LOST},
        {cudaErrorUnknown, STRATA_ERR_DEVICE_LOST},
        {cudaErrorInvalidValue, STRATA_ERR_DRIVER},
        {cudaErrorLaunchOutOfResources, STRATA_ERR_DRIVER},
    };
    int named = 0;
    for (int code = 1; code < 1000; code++) {
        const char *name = cudaGetErrorName((cudaError_t)code);
        if (strncmp(name, "cudaError", 9) != 0)
            continue;
        named++;
        CHECK(strata__cuda_device_status((cudaError_t)code, "trying") < STRATA_OK);
        CHECK(told(name) && told("trying"));
    }
    CHECK(named > 80);
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        CHECK(strata__cuda_device_status(known[i].code, "trying") == known[i].status);
    CHECK(strata__cuda_device_status(cudaSuccess, "trying") == STRATA_OK);
}

/* After the trap all that asks the device says so, and what is left can be given back. */
static void check_lost(strata__device *device)
{
    const strata__device_ops *ops = device->ops;
    strata__stream *stream = NULL, *other = NULL;
    strata__event *event = NULL;
    void *memory = NULL, *more = NULL;
    strata__device_facts facts;
    uint64_t free_bytes;
    uint32_t count = 0;
    bool done = false;
    OK(ops->stream_create(device, &stream));
    OK(ops->event_create(device, false, &event));
    OK(ops->alloc(device, BYTES, "a test", &memory));
    CHECK(launch_trap((cudaStream_t)stream->native) == cudaSuccess);
    CHECK(ops->stream_synchronize(device, stream) == STRATA_ERR_DEVICE_LOST && told("cudaError"));
    CHECK(ops->stream_synchronize(device, stream) == STRATA_ERR_DEVICE_LOST);
    CHECK(ops->fill(device, stream, memory, 1, 16) == STRATA_ERR_DEVICE_LOST);
    CHECK(ops->copy(device, stream, memory, &count, sizeof count) == STRATA_ERR_DEVICE_LOST);
    CHECK(ops->event_record(device, event, stream) == STRATA_ERR_DEVICE_LOST);
    CHECK(ops->event_query(device, event, &done) != STRATA_OK);
    CHECK(ops->alloc(device, 16, "more", &more) == STRATA_ERR_DEVICE_LOST && !more);
    CHECK(ops->host_alloc(device, 16, "more", &more) == STRATA_ERR_DEVICE_LOST && !more);
    CHECK(ops->memory_free_bytes(device, &free_bytes) == STRATA_ERR_DEVICE_LOST);
    CHECK(ops->stream_create(device, &other) == STRATA_ERR_DEVICE_LOST && !other);
    CHECK(strata__cuda_device_facts(0, &facts) != STRATA_OK);
    (void)strata__cuda_device_count(&count);
    ops->free(device, memory, BYTES);
    ops->event_destroy(device, event);
    ops->stream_destroy(device, stream);
}

int main(void)
{
    const strata_context_options options = {.struct_size = sizeof options};
    uint8_t saved[STRATA__DEVICE_SAVED_BYTES];
    strata_context *context = NULL;
    strata__device *device = NULL;
    strata__stream *stream = NULL;
    void *on_device = NULL, *locked = NULL;
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
        printf("no CUDA device: skipped\n");
        return 77;
    }
    OK(strata__context_create(&options, &context));
    OK(strata__device_open(context, "cuda:0", &device));
    if (failures)
        return 1;
    check_current_device(device);
    check_facts(context, device);
    OK(device->ops->enter(device, saved));
    check_memory(device);
    OK(device->ops->stream_create(device, &stream));
    OK(device->ops->alloc(device, BYTES, "copies", &on_device));
    OK(device->ops->host_alloc(device, BYTES, "copies", &locked));
    if (failures)
        return 1;
    check_copies(device, stream, on_device, locked);
    check_many(device, stream, on_device, locked);
    check_locked(device, stream, locked);
    check_order(device, on_device, locked);
    check_timing(device, on_device);
    check_wrapped(device, on_device, locked);
    check_graph(device, on_device, locked);
    check_error_names();
    check_lost(device);
    device->ops->host_free(device, locked, BYTES);
    device->ops->free(device, on_device, BYTES);
    device->ops->stream_destroy(device, stream);
    device->ops->leave(device, saved);
    printf("opening the device took %llu bytes of its memory\n",
           (unsigned long long)device->facts.context_bytes);
    strata__device_release(device);
    strata__context_release(context);
    printf("device: %d checks, %d failures\n", checks, failures);
    return failures ? 1 : 0;
}
