/* SPDX-License-Identifier: MIT */
/*
 * The CUDA device: enumeration, facts and memory. Nothing but the static runtime is linked; it
 * opens the driver at the first call, so that without a driver there are simply no devices.
 *
 * Calls that allocate or create need the device current for the thread (enter); the caller's own
 * current device comes back with leave. A device is never reset.
 */
#include "device/cuda_device.h"

#include <stdio.h>
#include <string.h>

#include "base/cuda_code.h"
#include "base/error.h"

_Static_assert(sizeof(int) <= STRATA__DEVICE_SAVED_BYTES, "the saved device must fit");

strata_status strata__cuda_device_status(cudaError_t code, const char *what)
{
    strata_status status;
    if (code == cudaSuccess)
        return STRATA_OK;
    status = strata__cuda_code_status((int)code);
    (void)cudaGetLastError();
    return strata__fail(status, "cuda: %s: %s (%s)", what, cudaGetErrorName(code),
                        cudaGetErrorString(code));
}

static strata__cuda_device *cuda_of(strata__device *device)
{
    return (strata__cuda_device *)device;
}

strata_status strata__cuda_device_count(uint32_t *out_count)
{
    int count = 0;
    cudaError_t code = cudaGetDeviceCount(&count);
    if (code != cudaSuccess) {
        (void)cudaGetLastError();
        if (strata__cuda_code_status((int)code) != STRATA_ERR_NO_DEVICE)
            return strata__cuda_device_status(code, "counting devices");
        count = 0;
    }
    *out_count = count > 0 ? (uint32_t)count : 0;
    return STRATA_OK;
}

static void format_uuid(const cudaUUID_t *uuid, char out[40])
{
    static const char digits[] = "0123456789abcdef";
    char *to = out;
    for (int i = 0; i < 16; i++) {
        unsigned byte = (unsigned char)uuid->bytes[i];
        if (i == 4 || i == 6 || i == 8 || i == 10)
            *to++ = '-';
        *to++ = digits[byte >> 4];
        *to++ = digits[byte & 15];
    }
    *to = '\0';
}

static void facts_of(const struct cudaDeviceProp *properties, uint64_t free_bytes,
                     strata__device_facts *out)
{
    memset(out, 0, sizeof *out);
    out->kind = STRATA__DEVICE_CUDA;
    out->compute_capability = (uint32_t)(properties->major * 10 + properties->minor);
    out->multiprocessors = (uint32_t)properties->multiProcessorCount;
    out->memory_bytes = properties->totalGlobalMem;
    out->memory_free_bytes = free_bytes;
    out->shared_memory_bytes = properties->sharedMemPerBlockOptin;
    out->alignment_bytes = STRATA__CUDA_ALIGNMENT_BYTES;
    out->graphs = 1;
    out->reads_locked = properties->canUseHostPointerForRegisteredMem != 0;
    snprintf(out->name, sizeof out->name, "%.63s", properties->name);
    format_uuid(&properties->uuid, out->uuid);
}

/* Asks the driver with the device current, which sets it up. */
static strata_status read_facts(int ordinal, strata__device_facts *out)
{
    struct cudaDeviceProp properties;
    size_t free_bytes = 0, total_bytes = 0;
    int caller = 0;
    cudaError_t code = cudaGetDevice(&caller);
    if (code == cudaSuccess)
        code = cudaGetDeviceProperties(&properties, ordinal);
    if (code == cudaSuccess)
        code = cudaSetDevice(ordinal);
    if (code == cudaSuccess) {
        code = cudaMemGetInfo(&free_bytes, &total_bytes);
        (void)cudaSetDevice(caller);
    }
    if (code == cudaSuccess) {
        facts_of(&properties, free_bytes, out);
        out->ordinal = (uint32_t)ordinal;
    }
    return strata__cuda_device_status(code, "asking for a device's facts");
}

static strata_status require_index(uint32_t index)
{
    uint32_t count = 0;
    strata_status status = strata__cuda_device_count(&count);
    if (status != STRATA_OK)
        return status;
    if (index >= count)
        return strata__fail(STRATA_ERR_NO_DEVICE, "cuda:%u: this machine has %u CUDA devices",
                            index, count);
    return STRATA_OK;
}

strata_status strata__cuda_device_facts(uint32_t index, strata__device_facts *out)
{
    strata_status status = require_index(index);
    return status == STRATA_OK ? read_facts((int)index, out) : status;
}

/* The first to ask has the context made: what that takes shows in what the driver has given out. */
static strata_status read_facts_and_context(int ordinal, strata__device_facts *out)
{
    uint64_t before = 0, after = 0;
    bool known = strata__cuda_used_bytes(ordinal, &before);
    strata_status status = read_facts(ordinal, out);
    if (status == STRATA_OK && known && strata__cuda_used_bytes(ordinal, &after) && after > before)
        out->context_bytes = after - before;
    return status;
}

static void cuda_destroy(strata__device *device)
{
    strata_context *context;
    if (!device)
        return;
    context = device->context;
    strata__free(&context->allocator, device, sizeof(strata__cuda_device));
    strata__context_release(context);
}

static strata_status cuda_enter(strata__device *device, void *out_saved)
{
    int caller = 0;
    cudaError_t code = cudaGetDevice(&caller);
    if (code == cudaSuccess)
        code = cudaSetDevice(cuda_of(device)->ordinal);
    memcpy(out_saved, &caller, sizeof caller);
    return strata__cuda_device_status(code, "making the device current");
}

static void cuda_leave(strata__device *device, const void *saved)
{
    int caller;
    (void)device;
    memcpy(&caller, saved, sizeof caller);
    (void)cudaSetDevice(caller);
}

static strata_status cuda_memory_free_bytes(strata__device *device, uint64_t *out_bytes)
{
    size_t free_bytes = 0, total_bytes = 0;
    strata_status status = strata__cuda_device_status(cudaMemGetInfo(&free_bytes, &total_bytes),
                                                      "asking for free memory");
    (void)device;
    if (status == STRATA_OK)
        *out_bytes = free_bytes;
    return status;
}

static strata_status memory_status(cudaError_t code, strata_status exhausted, uint64_t bytes,
                                   const char *what, const char *where)
{
    if (code == cudaSuccess)
        return STRATA_OK;
    (void)cudaGetLastError();
    return strata__fail(code == cudaErrorMemoryAllocation ? exhausted
                                                          : strata__cuda_code_status((int)code),
                        "cuda: cannot allocate %llu bytes of %s for %s: %s",
                        (unsigned long long)bytes, where, what, cudaGetErrorName(code));
}

static strata_status cuda_alloc(strata__device *device, uint64_t bytes, const char *what,
                                void **out)
{
    void *pointer = NULL;
    strata_status status = memory_status(cudaMalloc(&pointer, bytes ? bytes : 1),
                                         STRATA_ERR_DEVICE_MEMORY, bytes, what, "device memory");
    (void)device;
    if (status == STRATA_OK)
        *out = pointer;
    return status;
}

static void cuda_free(strata__device *device, void *pointer, uint64_t bytes)
{
    (void)device;
    (void)bytes;
    if (pointer)
        (void)cudaFree(pointer);
}

static strata_status cuda_host_alloc(strata__device *device, uint64_t bytes, const char *what,
                                     void **out)
{
    void *pointer = NULL;
    cudaError_t code =
        cudaHostAlloc(&pointer, bytes ? bytes : 1, cudaHostAllocPortable | cudaHostAllocMapped);
    strata_status status =
        memory_status(code, STRATA_ERR_NO_MEMORY, bytes, what, "page-locked host memory");
    (void)device;
    if (status == STRATA_OK)
        *out = pointer;
    return status;
}

static void cuda_host_free(strata__device *device, void *pointer, uint64_t bytes)
{
    (void)device;
    (void)bytes;
    if (pointer)
        (void)cudaFreeHost(pointer);
}

static strata_status cuda_host_register(strata__device *device, const void *pointer, uint64_t bytes)
{
    unsigned flags = cuda_of(device)->register_flags;
    cudaError_t code = cudaHostRegister((void *)(uintptr_t)pointer, bytes, flags);
    if (code != cudaSuccess && flags & cudaHostRegisterReadOnly) {
        (void)cudaGetLastError();
        code = cudaHostRegister((void *)(uintptr_t)pointer, bytes,
                                flags & ~(unsigned)cudaHostRegisterReadOnly);
    }
    return memory_status(code, STRATA_ERR_NO_MEMORY, bytes, "registration", "page-locked memory");
}

static void cuda_host_unregister(strata__device *device, const void *pointer)
{
    (void)device;
    (void)cudaHostUnregister((void *)(uintptr_t)pointer);
}

static const strata__device_ops cuda_ops = {
    .destroy = cuda_destroy,
    .enter = cuda_enter,
    .leave = cuda_leave,
    .memory_free_bytes = cuda_memory_free_bytes,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .host_alloc = cuda_host_alloc,
    .host_free = cuda_host_free,
    .host_register = cuda_host_register,
    .host_unregister = cuda_host_unregister,
    .stream_create = strata__cuda_stream_create,
    .stream_wrap = strata__cuda_stream_wrap,
    .stream_destroy = strata__cuda_stream_destroy,
    .stream_synchronize = strata__cuda_stream_synchronize,
    .event_create = strata__cuda_event_create,
    .event_destroy = strata__cuda_event_destroy,
    .event_record = strata__cuda_event_record,
    .event_query = strata__cuda_event_query,
    .event_synchronize = strata__cuda_event_synchronize,
    .event_elapsed_ns = strata__cuda_event_elapsed_ns,
    .stream_wait = strata__cuda_stream_wait,
    .copy = strata__cuda_copy,
    .copy_many = strata__cuda_copy_many,
    .fill = strata__cuda_fill,
    .capture_begin = strata__cuda_capture_begin,
    .capture_end = strata__cuda_capture_end,
    .graph_launch = strata__cuda_graph_launch,
    .graph_destroy = strata__cuda_graph_destroy,
};

/* What is registered is read by copies and kernels; the flag lets read-only mappings through. */
static unsigned register_flags(int ordinal)
{
    int read_only = 0;
    unsigned flags = cudaHostRegisterPortable | cudaHostRegisterMapped;
    if (cudaDeviceGetAttribute(&read_only, cudaDevAttrHostRegisterReadOnlySupported, ordinal) !=
        cudaSuccess)
        (void)cudaGetLastError();
    return read_only ? flags | cudaHostRegisterReadOnly : flags;
}

strata_status strata__cuda_device_open(strata_context *context, uint32_t index,
                                       strata__device **out)
{
    strata__device_facts facts;
    strata__cuda_device *device;
    strata_status status = require_index(index);
    if (status == STRATA_OK)
        status = read_facts_and_context((int)index, &facts);
    if (status != STRATA_OK)
        return status;
    device = strata__calloc(&context->allocator, 1, sizeof *device);
    if (!device)
        return strata__fail_memory(sizeof *device, "the cuda device");
    device->base.ops = &cuda_ops;
    device->base.facts = facts;
    device->base.context = strata__context_retain(context);
    device->ordinal = (int)index;
    device->register_flags = register_flags((int)index);
    *out = &device->base;
    return STRATA_OK;
}
