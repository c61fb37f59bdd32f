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
    assert_int_equal(strata__kv_check_pages(&kv, 1, 65), STRATA_ERR_CAPACITY);
    assert_int_equal(strata__kv_reserve(&kv, 1, 65), STRATA_ERR_CAPACITY);
    assert_non_null(strstr(strata__error_text(), "sequence 1 needs 2 more KV pages"));
    assert_non_null(strstr(strata__error_text(), "1 of 5 are free"));
    assert_int_equal(kv.sequences[1].pages, 0);
    assert_int_equal(kv.free_count, 1);
    strata__kv_finish(&kv);
}

enum { SEQUENCES = 5, STRIDE = 7, PAGES = 20, TOKENS = 64 };

/* Pages with a value for each token, and the values that each sequence should have. */
typedef struct model {
    strata__kv kv;
    uint32_t pages[PAGES][TOKENS];
    uint32_t expected[SEQUENCES][STRIDE * TOKENS];
    uint32_t copies;
    uint32_t next; /* value */
    int fails;     /* 1: no page can be copied */
} model;

static strata_status copy_page(void *user_data, uint32_t from, uint32_t to)
{
    model *m = user_data;
    if (m->fails)
        return strata__fail(STRATA_ERR_DRIVER, "no copy");
    memcpy(m->pages[to], m->pages[from], sizeof m->pages[to]);
    m->copies++;
    return STRATA_OK;
}

static void model_init(model *m, uint32_t pages)
{
    memset(m, 0, sizeof *m);
    assert_int_equal(
        strata__kv_init(&m->kv, strata__allocator_default(), SEQUENCES, STRIDE, pages, TOKENS),
        STRATA_OK);
    m->kv.copy_page = copy_page;
    m->kv.copy_user_data = m;
}

static uint32_t *value_at(model *m, uint32_t sequence, uint64_t token)
{
    return &m->pages[m->kv.table[sequence * STRIDE + token / TOKENS]][token % TOKENS];
}

static strata_status append(model *m, uint32_t sequence, uint64_t end)
{
    uint64_t token = strata__kv_length(&m->kv, sequence);
    strata_status status = strata__kv_reserve(&m->kv, sequence, end);
    if (status != STRATA_OK)
        return status;
    for (; token < end; ++token)
        *value_at(m, sequence, token) = m->expected[sequence][token] = ++m->next;
    strata__kv_set_length(&m->kv, sequence, end);
    return STRATA_OK;
}

static void share(model *m, uint32_t from, uint32_t to, uint64_t tokens)
{
    strata__kv_set_length(&m->kv, to, 0);
    strata__kv_share(&m->kv, from, to, tokens);
    memcpy(m->expected[to], m->expected[from], tokens * sizeof m->expected[0][0]);
}

/* Users are counted right, no page is lost, and every sequence has its values. */
static void check_model(model *m)
{
    uint32_t users[PAGES] = {0};
    for (uint32_t s = 0; s < SEQUENCES; ++s) {
        uint64_t length = strata__kv_length(&m->kv, s);
        for (uint32_t i = 0; i < m->kv.sequences[s].pages; ++i)
            users[m->kv.table[s * STRIDE + i]]++;
        for (uint64_t token = 0; token < length; ++token)
            assert_int_equal(*value_at(m, s, token), m->expected[s][token]);
    }
    assert_memory_equal(users, m->kv.page_users, m->kv.page_count * sizeof users[0]);
    for (uint32_t i = 0; i < m->kv.free_count; ++i)
        assert_int_equal(users[m->kv.free_page[i]]++, 0);
    for (uint32_t i = 0; i < m->kv.page_count; ++i)
        assert_true(users[i] > 0);
}

/* Whatever is appended, cut and shared, in whatever order. */
static void sequences_keep_their_tokens(void **state)
{
    model m;
    uint32_t random = 12345, refused = 0;
    (void)state;
    model_init(&m, PAGES);
    for (int step = 0; step < 20000; ++step) {
        uint32_t sequence, other, what;
        uint64_t length, tokens;
        random = random * 1664525u + 1013904223u;
        sequence = (random >> 8) % SEQUENCES;
        other = (random >> 12) % SEQUENCES;
        what = (random >> 28) % 4;
        m.fails = (random >> 24) % 16 == 0;
        length = strata__kv_length(&m.kv, sequence);
        tokens = (random >> 16) % (STRIDE * TOKENS + 1);
        if (what == 0 && tokens < length)
            strata__kv_set_length(&m.kv, sequence, tokens);
        else if (what == 1 && other != sequence)
            share(&m, sequence, other, tokens < length ? tokens : length);
        else if (what > 1 && tokens > length)
            refused += append(&m, sequence, tokens) != STRATA_OK;
        check_model(&m);
    }
    assert_true(m.copies > 100 && refused > 100);
    strata__kv_finish(&m.kv);
}

static void shared_pages_are_copied_when_appended_to(void **state)
{
    model m;
    (void)state;
    model_init(&m, PAGES);
    assert_int_equal(append(&m, 0, 2 * TOKENS + 10), STRATA_OK);
    share(&m, 0, 1, 2 * TOKENS + 10);
    share(&m, 0, 2, 2 * TOKENS); /* whole pages: nothing to copy */
    assert_int_equal(m.kv.free_count, PAGES - 3);
    assert_int_equal(append(&m, 2, 2 * TOKENS + 1), STRATA_OK);
    assert_int_equal(m.copies, 0);
    assert_int_equal(append(&m, 1, 2 * TOKENS + 11), STRATA_OK);
    assert_int_equal(m.copies, 1);
    assert_int_equal(append(&m, 0, 2 * TOKENS + 11), STRATA_OK); /* the last one needs no copy */
    assert_int_equal(m.copies, 1);
    assert_int_equal(m.kv.free_count, PAGES - 5);
    check_model(&m);
    strata__kv_finish(&m.kv);
}

static void a_copy_that_fails_changes_nothing(void **state)
{
    model m;
    (void)state;
    model_init(&m, 4);
    assert_int_equal(append(&m, 0, TOKENS + 10), STRATA_OK);
    share(&m, 0, 1, TOKENS + 10);
    m.fails = 1;
    assert_int_equal(append(&m, 1, 2 * TOKENS + 1), STRATA_ERR_DRIVER);
    assert_int_equal(m.kv.free_count, 2);
    check_model(&m);
    m.fails = 0;
    assert_int_equal(append(&m, 1, 2 * TOKENS + 1), STRATA_OK);
    check_model(&m);
    /* A copy needs a page too: none is left. */
    share(&m, 1, 2, 10);
    assert_int_equal(append(&m, 2, 11), STRATA_ERR_CAPACITY);
    assert_non_null(strstr(strata__error_text(), "sequence 2 needs 1 more KV pages"));
    check_model(&m);
    strata__kv_finish(&m.kv);
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
    for (int n = 0; n < 4; ++n) {
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
        cmocka_unit_test(sequences_keep_their_tokens),
        cmocka_unit_test(shared_pages_are_copied_when_appended_to),
        cmocka_unit_test(a_copy_that_fails_changes_nothing),
        cmocka_unit_test(out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
