/* SPDX-License-Identifier: MIT */
/* Long words take a heap, short ones do not: both against merging by the book. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/context.h"
#include "text/merge.h"
#include "text/vocabulary.h"

enum { LETTERS = 4, TOKENS = 40, WORD = 400 };

static strata_context *context;
static strata__text_vocabulary vocabulary;
static strata__pairs pairs;
static strata__merge_memory memory;
static char texts[TOKENS][64];
static char merges[TOKENS][64];
static uint32_t merge_count;

static strata_status token(const void *user_data, uint64_t id, const uint8_t **out_bytes,
                           uint64_t *out_count, uint32_t *out_type, float *out_score)
{
    (void)user_data;
    *out_bytes = (const uint8_t *)texts[id];
    *out_count = strlen(texts[id]);
    *out_type = STRATA__TOKEN_NORMAL;
    *out_score = 0;
    return STRATA_OK;
}

static strata_status merge(const void *user_data, uint64_t index, const uint8_t **out_bytes,
                           uint64_t *out_count)
{
    (void)user_data;
    *out_bytes = (const uint8_t *)merges[index];
    *out_count = strlen(merges[index]);
    return STRATA_OK;
}

static uint64_t unescape(const void *user_data, uint32_t type, const uint8_t *stored,
                         uint64_t count, uint8_t *out)
{
    (void)user_data;
    (void)type;
    if (out)
        memcpy(out, stored, count);
    return count;
}

static uint32_t random_below(uint32_t limit)
{
    static uint64_t state = 7;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % limit;
}

static bool is_token(const char *text, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(texts[i], text) == 0)
            return true;
    return false;
}

/* Letters, then merges of any two tokens, so that pairs of all ages compete. */
static int make(void **state)
{
    strata__text_source source = {
        .token_count = TOKENS, .token = token, .merge = merge, .unescape = unescape};
    uint32_t count = 0;
    (void)state;
    for (; count < LETTERS; count++)
        texts[count][0] = (char)('a' + count);
    while (count < TOKENS) {
        const char *left = texts[random_below(count)], *right = texts[random_below(count)];
        char whole[64];
        if (strlen(left) + strlen(right) > 12)
            continue;
        snprintf(whole, sizeof whole, "%.30s%.30s", left, right);
        if (is_token(whole, count))
            continue;
        snprintf(merges[merge_count++], sizeof merges[0], "%.30s %.30s", left, right);
        memcpy(texts[count++], whole, sizeof whole);
    }
    source.merge_count = merge_count;
    if (strata__context_create(&(strata_context_options){.struct_size = 48}, &context) != STRATA_OK)
        return 1;
    memory.allocator = &context->allocator;
    return strata__text_vocabulary_build(&context->allocator, &source, &vocabulary) != STRATA_OK ||
           strata__pairs_from_merges(&context->allocator, &source, &vocabulary, &pairs) !=
               STRATA_OK;
}

static int drop(void **state)
{
    (void)state;
    strata__merge_memory_release(&memory);
    strata__pairs_release(&context->allocator, &pairs);
    strata__text_vocabulary_release(&context->allocator, &vocabulary);
    strata__context_release(context);
    return 0;
}

static uint64_t merge_by_the_book(int32_t *ids, uint64_t count)
{
    for (;;) {
        const strata__pair *best = NULL;
        uint64_t at = 0;
        for (uint64_t i = 0; i + 1 < count; i++) {
            const strata__pair *pair =
                strata__pairs_find(&pairs, (uint32_t)ids[i], (uint32_t)ids[i + 1]);
            if (pair && (!best || pair->rank < best->rank)) {
                best = pair;
                at = i;
            }
        }
        if (!best)
            return count;
        ids[at] = (int32_t)best->merged;
        memmove(ids + at + 1, ids + at + 2, (count - at - 2) * sizeof *ids);
        count--;
    }
}

static void words_of_all_lengths(void **state)
{
    (void)state;
    for (uint32_t turn = 0; turn < 2000; turn++) {
        int32_t ids[WORD], expected[WORD];
        uint64_t count = 1 + random_below(turn % 2 ? WORD : 64), expected_count;
        uint32_t letters = 1 + random_below(LETTERS);
        for (uint64_t i = 0; i < count; i++)
            ids[i] = expected[i] = (int32_t)random_below(letters);
        expected_count = merge_by_the_book(expected, count);
        assert_int_equal(strata__merge(&pairs, &memory, ids, &count), STRATA_OK);
        assert_int_equal(count, expected_count);
        assert_memory_equal(ids, expected, count * sizeof *ids);
    }
}

static void long_words_take_no_square(void **state)
{
    enum { COUNT = 1 << 20 };
    int32_t *ids = strata__alloc(&context->allocator, COUNT * sizeof *ids);
    uint64_t count = COUNT;
    clock_t start = clock();
    (void)state;
    assert_non_null(ids);
    for (uint64_t i = 0; i < COUNT; i++)
        ids[i] = (int32_t)random_below(2);
    assert_int_equal(strata__merge(&pairs, &memory, ids, &count), STRATA_OK);
    assert_true(count < COUNT);
    /* The square of this length would take hours. */
    assert_true((double)(clock() - start) / CLOCKS_PER_SEC < 60);
    strata__free(&context->allocator, ids, COUNT * sizeof *ids);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_of_all_lengths),
        cmocka_unit_test(long_words_take_no_square),
    };
    return cmocka_run_group_tests(tests, make, drop);
}
