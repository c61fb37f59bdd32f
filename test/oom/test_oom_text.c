/* SPDX-License-Identifier: MIT */
/*
 * The n-th allocation fails, for every n, while a tokenizer is made and used: NO_MEMORY with a
 * text, nothing leaks. The argument is the folder of test/tools/make_tokenizer_cases.py.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <strata/strata.h>

#include "oom/book.h"

static const char *folder;

/* A long word, ill-formed bytes, and enough words for the cache. */
static strata_status encode(const strata_tokenizer *tokenizer, uint64_t *out_count)
{
    char text[4000];
    strata_encode_options options = {.struct_size = sizeof options, .special = 1};
    strata_status status;
    for (uint64_t i = 0; i < sizeof text; i++)
        text[i] = i < 2000 ? (char)('a' + i % 3) : i % 7 ? 'x' : ' ';
    text[3000] = '\xff';
    memcpy(text + 3500, "\xe2\x96\x81", 3);
    status = strata_tokenizer_encode(tokenizer, text, sizeof text, &options, NULL, 0, out_count);
    if (status != STRATA_OK)
        return status;
    options.invalid_utf8 = STRATA_INVALID_UTF8_REPLACE;
    return strata_tokenizer_encode(tokenizer, text, sizeof text, &options, NULL, 0, out_count);
}

static strata_status make_and_use(strata_pack *pack, uint64_t *out_count)
{
    strata_tokenizer *tokenizer;
    strata_status status = strata_tokenizer_create(pack, &tokenizer);
    if (status != STRATA_OK) {
        assert_null(tokenizer);
        return status;
    }
    status = encode(tokenizer, out_count);
    strata_tokenizer_destroy(tokenizer);
    return status;
}

static void fail_each(const char *name)
{
    char path[1024];
    book b = {0};
    strata_context_options options = {.struct_size = sizeof options,
                                      .alloc_fn = book_alloc,
                                      .free_fn = book_free,
                                      .alloc_user_data = &b};
    strata_context *context;
    strata_pack *pack;
    uint64_t live, expected = 0, failures = 0;
    snprintf(path, sizeof path, "%.800s/%.100s.gguf", folder, name);
    assert_int_equal(strata_context_create(&options, &context), STRATA_OK);
    assert_int_equal(strata_pack_open_path(context, path, &pack), STRATA_OK);
    live = b.live_count;
    if (make_and_use(pack, &expected) != STRATA_ERR_UNSUPPORTED)
        for (uint64_t n = 1;; n++) {
            uint64_t count = 0;
            strata_status status;
            char text[512];
            b.count = 0;
            b.fail_at = n;
            status = make_and_use(pack, &count);
            strata_last_error(text, sizeof text);
            assert_int_equal(b.live_count, live);
            if (b.count < n) {
                assert_int_equal(status, STRATA_OK);
                assert_int_equal(count, expected);
                break;
            }
            /* PCRE2 goes on without its just-in-time code when there is no memory for it. */
            if (status == STRATA_OK) {
                assert_int_equal(count, expected);
                continue;
            }
            failures++;
            assert_int_equal(status, STRATA_ERR_NO_MEMORY);
            assert_non_null(strstr(text, "cannot allocate"));
        }
    print_message("%s: %llu failures\n", name, (unsigned long long)failures);
    b.fail_at = 0;
    strata_pack_close(pack);
    strata_context_destroy(context);
    assert_int_equal(b.live_count, 0);
    assert_int_equal(b.live_bytes, 0);
}

static void byte_pairs(void **state)
{
    (void)state;
    fail_each("qwen2");
    fail_each("deepseek-v3");
}

static void sentencepiece(void **state)
{
    (void)state;
    fail_each("llama");
    fail_each("llama-across");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(byte_pairs),
        cmocka_unit_test(sentencepiece),
    };
    if (argc != 2) {
        fprintf(stderr, "usage: %s CASES\n", argv[0]);
        return 2;
    }
    folder = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
