/* SPDX-License-Identifier: MIT */
#include "support/guarded.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#if defined(__SANITIZE_ADDRESS__)
#define WITH_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WITH_ASAN 1
#endif
#endif
#if defined(WITH_ASAN)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, bytes)   ((void)(address), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(address, bytes) ((void)(address), (void)(bytes))
#endif

enum { GUARD_BYTES = 4096, PATTERN = 0xa5 };

static uint64_t block_bytes(const guarded *g)
{
    uint64_t before = (uint64_t)(g->memory - g->block);
    return (before + g->bytes + 2 * GUARD_BYTES) / GUARD_BYTES * GUARD_BYTES;
}

void guarded_make(guarded *g, uint64_t bytes, uint64_t offset)
{
    uint64_t all = (bytes + offset + 3 * GUARD_BYTES) / GUARD_BYTES * GUARD_BYTES;
    g->block = aligned_alloc(GUARD_BYTES, all);
    assert_non_null(g->block);
    g->memory = g->block + GUARD_BYTES + offset;
    g->bytes = bytes;
    memset(g->block, PATTERN, all);
    ASAN_POISON_MEMORY_REGION(g->block, GUARD_BYTES + offset);
    ASAN_POISON_MEMORY_REGION(g->memory + bytes, all - GUARD_BYTES - offset - bytes);
}

void guarded_free(guarded *g)
{
    uint64_t all = block_bytes(g), before = (uint64_t)(g->memory - g->block);
    ASAN_UNPOISON_MEMORY_REGION(g->block, all);
    for (uint64_t i = 0; i < before; ++i)
        assert_int_equal(g->block[i], PATTERN);
    for (uint64_t i = before + g->bytes; i < all; ++i)
        assert_int_equal(g->block[i], PATTERN);
    free(g->block);
}
