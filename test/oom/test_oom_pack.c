/* SPDX-License-Identifier: MIT */
/*
 * The n-th allocation fails, for every n, while a pack is opened: NO_MEMORY with a text that says
 * what the memory was for, nothing leaks, nothing crashes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <strata/pack.h>

#include "oom/book.h"
#include "support/gguf_builder.h"

typedef strata_status (*open_fn)(strata_context *context, const void *what, uint64_t bytes,
                                 strata_pack **out);

static strata_status open_path(strata_context *context, const void *what, uint64_t bytes,
                               strata_pack **out)
{
    (void)bytes;
    return strata_pack_open_path(context, what, out);
}

/* Opens with the n-th allocation failing, n = 1, 2, ... until none is left to fail. */
static uint64_t fail_each(open_fn open, const void *what, uint64_t bytes)
{
    for (uint64_t n = 1;; n++) {
        book b = {0};
        strata_context_options options = {.struct_size = sizeof options,
                                          .alloc_fn = book_alloc,
                                          .free_fn = book_free,
                                          .alloc_user_data = &b};
        strata_context *context = NULL;
        strata_pack *pack = NULL;
        char text[512];
        strata_status status;
        assert_int_equal(strata_context_create(&options, &context), STRATA_OK);
        b.count = 0;
        b.fail_at = n;
        status = open(context, what, bytes, &pack);
        if (status == STRATA_OK) {
            strata_pack_info info = {.struct_size = sizeof info};
            assert_int_equal(strata_pack_info_get(pack, &info), STRATA_OK);
            assert_int_equal(info.runnable, 1);
        } else {
            strata_last_error(text, sizeof text);
            assert_int_equal(status, STRATA_ERR_NO_MEMORY);
            assert_non_null(strstr(text, "cannot allocate"));
            assert_null(pack);
        }
        strata_pack_close(pack);
        strata_context_destroy(context);
        assert_int_equal(b.live_count, 0);
        assert_int_equal(b.live_bytes, 0);
        if (b.count < n)
            return n - 1;
    }
}

/* Norms to convert, a large vocabulary, and many tensors that are listed but not run. */
static gguf_builder *rich_model(void)
{
    enum { TOKENS = 16, MERGES = 5000 };
    static const char *merges[MERGES];
    gguf_builder *builder = gguf_model("gpt-oss");
    for (int i = 0; i < MERGES; i++)
        merges[i] = "a b";
    gguf_strings(builder, "tokenizer.ggml.merges", merges, MERGES);
    gguf_add(builder, "blk.0.attn_norm.weight", 1, 64, 0, 0);
    gguf_u32(builder, "gpt-oss.block_count", 3);
    gguf_u32(builder, "gpt-oss.nextn_predict_layers", 1);
    for (int i = 0; i < 300; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.2.a_name_of_usual_length_%d.weight", i);
        gguf_add(builder, name, 8, 32, 0, 0);
    }
    return builder;
}

static void from_memory(void **state)
{
    gguf_builder *builder = rich_model();
    uint64_t bytes, count;
    uint8_t *image = gguf_image(builder, &bytes, NULL);
    (void)state;
    count = fail_each(strata_pack_open_memory, image, bytes);
    assert_true(count > 10);
    free(image);
    gguf_free(builder);
}

static void write_file(const char *path, gguf_builder *builder)
{
    uint64_t bytes;
    uint8_t *image = gguf_image(builder, &bytes, NULL);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(image, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
    free(image);
    gguf_free(builder);
}

static void from_split_files(void **state)
{
    static const char *const paths[2] = {"test-oom-pack-00001-of-00002.gguf",
                                         "test-oom-pack-00002-of-00002.gguf"};
    gguf_builder *first = rich_model(), *second = gguf_new();
    uint64_t count;
    (void)state;
    gguf_remove_tensor(first, "output.weight");
    gguf_u32(first, "split.count", 2);
    gguf_u32(first, "split.no", 0);
    gguf_u32(second, "split.count", 2);
    gguf_u32(second, "split.no", 1);
    gguf_add(second, "output.weight", 0, 64, 16, 0);
    write_file(paths[0], first);
    write_file(paths[1], second);
    count = fail_each(open_path, paths[0], 0);
    assert_true(count > 12);
    unlink(paths[0]);
    unlink(paths[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(from_memory),
        cmocka_unit_test(from_split_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
