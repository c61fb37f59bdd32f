/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"

typedef struct counting {
    uint64_t bytes;
    int refuse;
} counting;

static void *counting_alloc(void *user_data, uint64_t bytes, uint64_t alignment)
{
    counting *state = user_data;
    const strata__allocator *heap = strata__allocator_default();
    if (state->refuse)
        return NULL;
    state->bytes += bytes;
    return heap->alloc_fn(heap->user_data, bytes, alignment);
}

static void counting_free(void *user_data, void *pointer, uint64_t bytes)
{
    counting *state = user_data;
    const strata__allocator *heap = strata__allocator_default();
    state->bytes -= bytes;
    heap->free_fn(heap->user_data, pointer, bytes);
}

static void default_allocator_aligns(void **state)
{
    const strata__allocator *heap = strata__allocator_default();
    (void)state;
    for (uint64_t alignment = 16; alignment <= 4096; alignment *= 2) {
        void *pointer = strata__alloc_aligned(heap, 100, alignment);
        assert_non_null(pointer);
        assert_int_equal((uintptr_t)pointer % alignment, 0);
        strata__free(heap, pointer, 100);
    }
}

static void zero_bytes_give_a_pointer(void **state)
{
    const strata__allocator *heap = strata__allocator_default();
    void *pointer = strata__alloc(heap, 0);
    (void)state;
    assert_non_null(pointer);
    strata__free(heap, pointer, 0);
    strata__free(heap, NULL, 10);
}

static void absurd_sizes_fail(void **state)
{
    const strata__allocator *heap = strata__allocator_default();
    (void)state;
    assert_null(strata__alloc(heap, UINT64_MAX));
    assert_null(strata__alloc(heap, UINT64_MAX - 16));
    assert_null(strata__calloc(heap, UINT64_MAX / 2, 3));
}

static void calloc_zeroes_and_sizes_match(void **state)
{
    counting counter = {0, 0};
    const strata__allocator allocator = {counting_alloc, counting_free, &counter};
    unsigned char *bytes = strata__calloc(&allocator, 33, 7);
    (void)state;
    assert_non_null(bytes);
    assert_int_equal(counter.bytes, 33 * 7);
    for (int i = 0; i < 33 * 7; i++)
        assert_int_equal(bytes[i], 0);
    strata__free(&allocator, bytes, 33 * 7);
    assert_int_equal(counter.bytes, 0);
    counter.refuse = 1;
    assert_null(strata__calloc(&allocator, 1, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(default_allocator_aligns),
        cmocka_unit_test(zero_bytes_give_a_pointer),
        cmocka_unit_test(absurd_sizes_fail),
        cmocka_unit_test(calloc_zeroes_and_sizes_match),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
