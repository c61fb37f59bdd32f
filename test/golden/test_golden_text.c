/* SPDX-License-Identifier: MIT */
/*
 * Tokens of 2,000 lines for every pattern against the `tokenizers` package, and of the bundled
 * model's held-out text. Arguments: the folder of test/tools/make_tokenizer_cases.py, the folder of
 * the bundled model. In a build without PCRE2 byte-pair vocabularies must be refused.
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

enum { MAX_LINE_TOKENS = 4096 };

static const char *cases_folder, *model_folder;

typedef struct bytes {
    uint8_t *data;
    uint64_t count;
    uint64_t at; /* read so far */
} bytes;

static bytes read_file(const char *folder, const char *name, const char *suffix)
{
    char path[1024];
    FILE *file;
    bytes content = {0};
    snprintf(path, sizeof path, "%.800s/%.100s%.20s", folder, name, suffix);
    file = fopen(path, "rb");
    if (!file)
        fail_msg("cannot open %s", path);
    fseek(file, 0, SEEK_END);
    content.count = (uint64_t)ftell(file);
    rewind(file);
    content.data = malloc(content.count + 1);
    assert_non_null(content.data);
    assert_int_equal(fread(content.data, 1, content.count, file), content.count);
    content.data[content.count] = '\0';
    fclose(file);
    return content;
}

static const uint8_t *take(bytes *content, uint64_t count)
{
    const uint8_t *data = content->data + content->at;
    assert_true(count <= content->count - content->at);
    content->at += count;
    return data;
}

static uint32_t take_u32(bytes *content)
{
    const uint8_t *b = take(content, 4);
    return b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static bool built_with_pcre2(void)
{
    for (uint32_t i = 0; strata_build_info(i); i++)
        if (strncmp(strata_build_info(i), "pcre2=", 6) == 0)
            return strcmp(strata_build_info(i), "pcre2=no") != 0;
    return false;
}

/* NULL when the vocabulary needs PCRE2 and there is none. */
static strata_tokenizer *open_tokenizer(const bytes *image)
{
    strata_context *context;
    strata_pack *pack;
    strata_tokenizer *tokenizer = NULL;
    strata_status status;
    char text[512];
    assert_int_equal(strata_context_create(NULL, &context), STRATA_OK);
    assert_int_equal(strata_pack_open_memory(context, image->data, image->count, &pack), STRATA_OK);
    status = strata_tokenizer_create(pack, &tokenizer);
    strata_last_error(text, sizeof text);
    if (status == STRATA_ERR_UNSUPPORTED && !built_with_pcre2())
        assert_non_null(strstr(text, "built without"));
    else if (status != STRATA_OK)
        fail_msg("%s: %s", strata_status_name(status), text);
    strata_pack_close(pack);
    strata_context_destroy(context);
    return tokenizer;
}

static void compare(const char *name, uint32_t line, const int32_t *found, uint64_t found_count,
                    const uint8_t *expected, uint64_t expected_count)
{
    for (uint64_t i = 0; i < found_count && i < expected_count; i++) {
        int32_t id = expected[2 * i] | expected[2 * i + 1] << 8;
        if (found[i] != id)
            fail_msg("%s, line %u, token %u: %d instead of %d", name, (unsigned)line, (unsigned)i,
                     (int)found[i], (int)id);
    }
    if (found_count != expected_count)
        fail_msg("%s, line %u: %u tokens instead of %u", name, (unsigned)line,
                 (unsigned)found_count, (unsigned)expected_count);
}

/* Bytes that are kept come back; SentencePiece has its own spaces. */
static void there_and_back(const strata_tokenizer *tokenizer, const char *name, uint32_t line,
                           const uint8_t *text, uint64_t text_bytes)
{
    strata_encode_options encode = {.struct_size = sizeof encode, .bare = 1};
    int32_t tokens[MAX_LINE_TOKENS];
    char back[4 * MAX_LINE_TOKENS];
    uint64_t count = 0, back_bytes = 0;
    assert_int_equal(strata_tokenizer_encode(tokenizer, (const char *)text, text_bytes, &encode,
                                             tokens, MAX_LINE_TOKENS, &count),
                     STRATA_OK);
    assert_int_equal(
        strata_tokenizer_decode(tokenizer, tokens, count, NULL, back, sizeof back, &back_bytes),
        STRATA_OK);
    if (back_bytes != text_bytes || memcmp(back, text, text_bytes) != 0)
        fail_msg("%s, line %u: %u bytes come back as %u others", name, (unsigned)line,
                 (unsigned)text_bytes, (unsigned)back_bytes);
}

static void replay(const char *name)
{
    strata_encode_options encode = {.struct_size = sizeof encode,
                                    .special = 1,
                                    .bare = 1,
                                    .invalid_utf8 = STRATA_INVALID_UTF8_REPLACE};
    bytes image = read_file(cases_folder, name, ".gguf");
    bytes lines = read_file(cases_folder, "lines", ".bin");
    bytes ids = read_file(cases_folder, name, ".ids");
    strata_tokenizer *tokenizer = open_tokenizer(&image);
    strata_tokenizer_info info = {.struct_size = sizeof info};
    uint32_t line_count = take_u32(&lines);
    if (tokenizer)
        assert_int_equal(strata_tokenizer_info_get(tokenizer, &info), STRATA_OK);
    for (uint32_t line = 0; tokenizer && line < line_count; line++) {
        uint32_t text_bytes = take_u32(&lines), expected_count = take_u32(&ids);
        const uint8_t *text = take(&lines, text_bytes);
        const uint8_t *expected = take(&ids, 2 * (uint64_t)expected_count);
        int32_t tokens[MAX_LINE_TOKENS];
        uint64_t count = 0;
        assert_int_equal(strata_tokenizer_encode(tokenizer, (const char *)text, text_bytes, &encode,
                                                 tokens, MAX_LINE_TOKENS, &count),
                         STRATA_OK);
        compare(name, line, tokens, count, expected, expected_count);
        if (strcmp(info.model, "gpt2") == 0)
            there_and_back(tokenizer, name, line, text, text_bytes);
    }
    if (tokenizer) {
        assert_true(line_count >= 2000);
        assert_int_equal(lines.at, lines.count);
        assert_int_equal(ids.at, ids.count);
    }
    strata_tokenizer_destroy(tokenizer);
    free(image.data);
    free(lines.data);
    free(ids.data);
}

static void every_pattern(void **state)
{
    static const char *const names[] = {
        "default",     "olmo",        "qwen2",       "llama-bpe",    "gpt-4o",
        "glm4",        "bailingmoe2", "refact",      "deepseek-llm", "deepseek-coder",
        "deepseek-v3", "llama",       "llama-across"};
    (void)state;
    for (uint64_t i = 0; i < sizeof names / sizeof names[0]; i++)
        replay(names[i]);
}

static void bundled_model(void **state)
{
    strata_encode_options encode = {.struct_size = sizeof encode, .special = 1};
    strata_decode_options decode = {.struct_size = sizeof decode, .special = 1};
    bytes image = read_file(model_folder, "strata-chapters", ".gguf");
    bytes text = read_file(model_folder, "strata-chapters-heldout-text", ".txt");
    bytes ids = read_file(model_folder, "strata-chapters-heldout-ids", ".txt");
    strata_tokenizer *tokenizer = open_tokenizer(&image);
    int32_t tokens[MAX_LINE_TOKENS];
    uint64_t count = 0, back_bytes = 0;
    char back[16384];
    char *next = (char *)ids.data;
    (void)state;
    if (tokenizer) {
        assert_int_equal(strata_tokenizer_encode(tokenizer, (const char *)text.data, text.count,
                                                 &encode, tokens, MAX_LINE_TOKENS, &count),
                         STRATA_OK);
        for (uint64_t i = 0; i < count; i++)
            assert_int_equal(tokens[i], strtol(next, &next, 10));
        assert_int_equal(count, 2048);
        assert_int_equal(strata_tokenizer_decode(tokenizer, tokens, count, &decode, back,
                                                 sizeof back, &back_bytes),
                         STRATA_OK);
        assert_int_equal(back_bytes, text.count);
        assert_memory_equal(back, text.data, text.count);
    }
    strata_tokenizer_destroy(tokenizer);
    free(image.data);
    free(text.data);
    free(ids.data);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pattern),
        cmocka_unit_test(bundled_model),
    };
    if (argc != 3) {
        fprintf(stderr, "usage: %s CASES MODELS\n", argv[0]);
        return 2;
    }
    cases_folder = argv[1];
    model_folder = argv[2];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
