/* SPDX-License-Identifier: MIT */
/* Which KV pages belong to which sequence. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"
#include "session/kv.h"

static void pages_follow_length(void **state)
{
    strata__kv kv;
    (void)state;
    assert_int_equal(strata__kv_init(&kv, strata__allocator_default(), 2, 4, 8, 64), STRATA_OK);
    assert_true(kv.changed);
    kv.changed = false;
    assert_int_equal(strata__kv_reserve(&kv, 1, 65), STRATA_OK);
    assert_int_equal(kv.sequences[1].pages, 2);
    assert_int_equal(kv.table[4], 0);
    assert_int_equal(kv.table[5], 1);
    assert_true(kv.changed);
    assert_int_equal(strata__kv_length(&kv, 1), 0);
    strata__kv_set_length(&kv, 1, 65);
    assert_int_equal(strata__kv_length(&kv, 1), 65);
    kv.changed = false;
    assert_int_equal(strata__kv_reserve(&kv, 1, 128), STRATA_OK);
    assert_false(kv.changed);
    assert_int_equal(strata__kv_reserve(&kv, 0, 64), STRATA_OK);
    assert_int_equal(kv.table[0], 2);
    strata__kv_set_length(&kv, 1, 64);
    assert_int_equal(kv.sequences[1].pages, 1);
    assert_int_equal(kv.free_count, 6);
    strata__kv_set_length(&kv, 1, 0);
    assert_int_equal(kv.sequences[1].pages, 0);
    assert_int_equal(kv.free_count, 7);
    strata__kv_finish(&kv);
}

static void refusals_change_nothing(void **state)
{
    strata__kv kv;
    (void)state;
    assert_int_equal(strata__kv_init(&kv, strata__allocator_default(), 2, 4, 5, 64), STRATA_OK);
    assert_int_equal(strata__kv_reserve(&kv, 0, 257), STRATA_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(strata__error_text(), "257 tokens"));
    assert_int_equal(kv.free_count, 5);
    assert_int_equal(strata__kv_reserve(&kv, 0, 256), STRATA_OK);
    assert_int_equal(strata__kv_reserve(&kv, 1, 65), STRATA_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(strata__error_text(), "2 more KV pages; 1 are free"));
    assert_int_equal(kv.sequences[1].pages, 0);
    assert_int_equal(kv.free_count, 1);
    strata__kv_finish(&kv);
}

/* Whatever is reserved and cut, no page has two owners and none is lost. */
static void no_page_has_two_owners(void **state)
{
    enum { SEQUENCES = 5, STRIDE = 7, PAGES = 20, TOKENS = 64 };
    strata__kv kv;
    uint32_t random = 12345;
    (void)state;
    assert_int_equal(
        strata__kv_init(&kv, strata__allocator_default(), SEQUENCES, STRIDE, PAGES, TOKENS),
        STRATA_OK);
    for (int step = 0; step < 5000; ++step) {
        uint8_t owners[PAGES] = {0};
        uint32_t held = 0, sequence, tokens;
        random = random * 1664525u + 1013904223u;
        sequence = (random >> 8) % SEQUENCES;
        tokens = (random >> 16) % (STRIDE * TOKENS + 1);
        if (strata__kv_reserve(&kv, sequence, tokens) == STRATA_OK)
            strata__kv_set_length(&kv, sequence, tokens);
        for (uint32_t s = 0; s < SEQUENCES; ++s) {
            held += kv.sequences[s].pages;
            for (uint32_t i = 0; i < kv.sequences[s].pages; ++i)
                assert_int_equal(owners[kv.table[s * STRIDE + i]]++, 0);
        }
        for (uint32_t i = 0; i < kv.free_count; ++i)
            assert_int_equal(owners[kv.free_page[i]]++, 0);
        assert_int_equal(held + kv.free_count, PAGES);
    }
    strata__kv_finish(&kv);
}

static void *no_memory(void *user_data, uint64_t bytes, uint64_t alignment)
{
    int *left = user_data;
    return (*left)-- > 0 ? strata__alloc_aligned(strata__allocator_default(), bytes, alignment)
                         : NULL;
}

static void heap_free(void *user_data, void *pointer, uint64_t bytes)
{
    (void)user_data;
    (void)bytes;
    free(pointer);
}

static void out_of_memory(void **state)
{
    (void)state;
    for (int n = 0; n < 3; ++n) {
        int left = n;
        strata__allocator allocator = {no_memory, heap_free, &left};
        strata__kv kv;
        assert_int_equal(strata__kv_init(&kv, &allocator, 2, 4, 8, 64), STRATA_ERR_NO_MEMORY);
        strata__kv_finish(&kv);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_follow_length),
        cmocka_unit_test(refusals_change_nothing),
        cmocka_unit_test(no_page_has_two_owners),
        cmocka_unit_test(out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
