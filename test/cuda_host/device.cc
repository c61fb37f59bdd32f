/* SPDX-License-Identifier: MIT */
/*
 * The device: its memory, shared memory of the block that runs, and its events. CUDA_HOST_DEVICE
 * is the compute capability it answers, 80, 86 or 90, with the shared memory of such devices.
 */
#include "device.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include <chrono>
#include <map>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(p, bytes)   ((void)(p), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(p, bytes) ((void)(p), (void)(bytes))
#endif

struct cuda_host_event {
    std::chrono::steady_clock::time_point time;
};

namespace cuda_host
{

namespace
{

/* Between two arrays: what is written past the end of one is not in the next. */
constexpr size_t REGION_BYTES = 512 * 1024, GAP = 512, ALIGNMENT = 1024;
/* What a kernel may ask for without having said so before. */
constexpr size_t DEFAULT_BYTES = 48 * 1024;
/*
 * What kernels that choose their dynamic memory by it declare, at the most. What one does declare
 * shows only as it runs; where both are too much for the device, that is a fault.
 */
constexpr size_t STATIC_BYTES = 16 * 1024;

struct array {
    const char *slot; /* null: the dynamic one */
    size_t offset, bytes;
};

alignas(8192) uint8_t region[REGION_BYTES];
std::vector<array> arrays;
size_t used; /* by all arrays, without gaps */

uint64_t random_state = 1;
bool reversed, shuffled;
uint32_t capability = 80;
size_t shared_bytes = 163 * 1024;
cudaError_t last = cudaSuccess;
std::map<const void *, size_t> limits;

uint32_t random_below(uint32_t limit)
{
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return (uint32_t)((random_state * 0x2545f4914f6cdd1du >> 32) % limit);
}

const bool settings_read = [] {
    const char *order = getenv("CUDA_HOST_ORDER"), *device = getenv("CUDA_HOST_DEVICE");
    reversed = order && !strcmp(order, "reverse");
    shuffled = order && !reversed && strcmp(order, "forward") != 0;
    if (shuffled)
        random_state = strtoull(order, nullptr, 10) * 0x9e3779b97f4a7c15u + 1;
    if (device)
        capability = (uint32_t)strtoul(device, nullptr, 10);
    if (capability == 86)
        shared_bytes = 99 * 1024;
    if (capability == 90)
        shared_bytes = 227 * 1024;
    return true;
}();

array add_array(const char *slot, size_t bytes)
{
    size_t offset = ALIGNMENT;
    if (!arrays.empty())
        offset = arrays.back().offset + arrays.back().bytes + GAP;
    offset = (offset + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    used += bytes;
    if (used > shared_bytes || offset + bytes > REGION_BYTES)
        fault("a block of %zu bytes of shared memory, of %zu", used, shared_bytes);
    ASAN_UNPOISON_MEMORY_REGION(region + offset, bytes);
    memset(region + offset, 0xff, bytes);
    arrays.push_back({slot, offset, bytes});
    return arrays.back();
}

} /* namespace */

void shared_begin(size_t dynamic_bytes)
{
    arrays.clear();
    used = 0;
    ASAN_POISON_MEMORY_REGION(region, REGION_BYTES);
    add_array(nullptr, dynamic_bytes);
}

void shared_end()
{
    ASAN_POISON_MEMORY_REGION(region, REGION_BYTES);
}

void *dynamic_shared()
{
    return region + arrays[0].offset;
}

void *static_shared(const char &slot, size_t bytes, size_t alignment)
{
    for (const array &one : arrays)
        if (one.slot == &slot)
            return region + one.offset;
    if (alignment > ALIGNMENT)
        fault("shared memory aligned to %zu: devices keep no more than %zu", alignment, ALIGNMENT);
    return region + add_array(&slot, bytes).offset;
}

uint32_t shared_offset(const void *p)
{
    const uint8_t *at = static_cast<const uint8_t *>(p);
    if (at < region || at > region + REGION_BYTES)
        fault("%p is not in shared memory", p);
    return (uint32_t)(at - region);
}

uint8_t *shared_at(uint32_t offset, uint32_t bytes, uint32_t alignment)
{
    if (offset % alignment != 0)
        fault("shared memory at %u, which is not aligned to %u", offset, alignment);
    for (const array &one : arrays)
        if (offset >= one.offset && offset + bytes <= one.offset + one.bytes)
            return region + offset;
    fault("%u bytes of shared memory at %u, outside of the block's", bytes, offset);
}

size_t shared_limit(const void *kernel)
{
    auto found = limits.find(kernel);
    return found == limits.end() ? DEFAULT_BYTES : found->second;
}

void make_order(uint32_t *order, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        order[i] = reversed ? count - 1 - i : i;
    for (uint32_t i = count; shuffled && i > 1; i--) {
        uint32_t with = random_below(i), one = order[i - 1];
        order[i - 1] = order[with];
        order[with] = one;
    }
}

bool copies_at_once()
{
    return reversed || (shuffled && random_below(2));
}

void make_copy(const copy &what)
{
    for (uint32_t i = 0; i < what.bytes; i++)
        what.to[i] = what.from[i];
    for (uint32_t i = 0; i < what.zeros; i++)
        what.to[what.bytes + i] = 0;
}

cudaError_t failed(cudaError_t code)
{
    last = code;
    return code;
}

} /* namespace cuda_host */

using namespace cuda_host;

cudaError_t cudaPeekAtLastError()
{
    return last;
}

cudaError_t cudaGetLastError()
{
    cudaError_t code = last;
    last = cudaSuccess;
    return code;
}

const char *cudaGetErrorName(cudaError_t code)
{
    switch (code) {
    case cudaSuccess:
        return "cudaSuccess";
    case cudaErrorInvalidValue:
        return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
        return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration:
        return "cudaErrorInvalidConfiguration";
    default:
        return "cudaErrorNotSupported";
    }
}

const char *cudaGetErrorString(cudaError_t code)
{
    return cudaGetErrorName(code);
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = 1;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = 13000;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = 0;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    return device == 0 ? cudaSuccess : failed(cudaErrorInvalidValue);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int device)
{
    if (device != 0)
        return failed(cudaErrorInvalidValue);
    *properties = {};
    strcpy(properties->name, "the CPU as a CUDA device");
    properties->major = (int)capability / 10;
    properties->minor = (int)capability % 10;
    properties->multiProcessorCount = 4;
    properties->sharedMemPerBlockOptin = shared_bytes;
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize()
{
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t)
{
    return cudaSuccess;
}

cudaError_t cuda_host_alloc(void **out, size_t bytes)
{
    if (posix_memalign(out, 256, bytes ? bytes : 1) != 0)
        return failed(cudaErrorMemoryAllocation);
    memset(*out, 0xff, bytes);
    return cudaSuccess;
}

cudaError_t cudaFree(void *memory)
{
    if (memory)
        cuda_host::forget_late(memory, malloc_usable_size(memory));
    free(memory);
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *memory)
{
    return cudaFree(memory);
}

cudaError_t cudaMemset(void *memory, int value, size_t bytes)
{
    memset(memory, value, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t)
{
    return cudaMemset(memory, value, bytes);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind)
{
    memmove(to, from, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t)
{
    return cudaMemcpy(to, from, bytes, kind);
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    *event = new cuda_host_event();
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    delete event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t)
{
    event->time = std::chrono::steady_clock::now();
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t)
{
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t from, cudaEvent_t to)
{
    *milliseconds = std::chrono::duration<float, std::milli>(to->time - from->time).count();
    return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, const void *kernel)
{
    *attributes = {};
    attributes->sharedSizeBytes = STATIC_BYTES;
    return kernel ? cudaSuccess : failed(cudaErrorInvalidValue);
}

cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute, int value)
{
    if (value < 0 || (size_t)value > shared_bytes)
        return failed(cudaErrorInvalidValue);
    limits[kernel] = (size_t)value;
    return cudaSuccess;
}
