/* SPDX-License-Identifier: MIT */
#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"

enum { DEFAULT_ALIGNMENT = 16 };

static void *heap_alloc(void *user_data, uint64_t bytes, uint64_t alignment)
{
    uint64_t rounded;
    (void)user_data;
    if (!strata__round_up_u64(bytes ? bytes : 1, alignment, &rounded))
        return NULL;
    return aligned_alloc(alignment, rounded);
}

static void heap_free(void *user_data, void *pointer, uint64_t bytes)
{
    (void)user_data;
    (void)bytes;
    free(pointer);
}

const strata__allocator *strata__allocator_default(void)
{
    static const strata__allocator heap = {heap_alloc, heap_free, NULL};
    return &heap;
}

void *strata__alloc(const strata__allocator *allocator, uint64_t bytes)
{
    return strata__alloc_aligned(allocator, bytes, DEFAULT_ALIGNMENT);
}

void *strata__alloc_aligned(const strata__allocator *allocator, uint64_t bytes, uint64_t alignment)
{
    return allocator->alloc_fn(allocator->user_data, bytes, alignment);
}

void *strata__calloc(const strata__allocator *allocator, uint64_t count, uint64_t size)
{
    uint64_t bytes;
    void *pointer;
    if (!strata__mul_u64(count, size, &bytes))
        return NULL;
    pointer = strata__alloc(allocator, bytes);
    if (pointer)
        memset(pointer, 0, bytes);
    return pointer;
}

void strata__free(const strata__allocator *allocator, void *pointer, uint64_t bytes)
{
    if (pointer)
        allocator->free_fn(allocator->user_data, pointer, bytes);
}
