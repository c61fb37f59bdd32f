/* SPDX-License-Identifier: MIT */
/* The vocabulary: absent, sound, and every way in which it can be wrong. */
#include "pack_test.h"

enum { TOKENS = 16 };

static void text_is(const strata__pack *pack, uint64_t id, const char *wanted,
                    uint64_t wanted_bytes)
{
    char buffer[64];
    uint64_t bytes = 99;
    assert_int_equal(strata__pack_token_text(pack, id, NULL, 0, &bytes), STRATA_OK);
    assert_int_equal(bytes, wanted_bytes);
    assert_int_equal(strata__pack_token_text(pack, id, buffer, sizeof buffer, &bytes), STRATA_OK);
    assert_int_equal(bytes, wanted_bytes);
    assert_memory_equal(buffer, wanted, wanted_bytes);
}

static void byte_level_tokens(void **state)
{
    static const char *const tokens[TOKENS] = {
        "a",        "\xc4\xa0the",  "\xc4\x8a", "\xc3\xa9", "\xc4\x80",
        "\xc5\x83", "\xe2\x82\xac", "\xff!",    "",         "<end>",
        "k",        "\xc5\x82",     "\xc1\xa1", "n",        "o",
        "\xc4\xa1"};
    int32_t types[TOKENS] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 3, 4, 1, 1, 1, 1, 0};
    gguf_builder *builder = gguf_model("qwen3moe");
    const uint8_t *bytes;
    uint64_t count;
    uint32_t type;
    float score = 9;
    char buffer[2];
    uint8_t *image;
    strata__pack *pack;
    (void)state;
    gguf_strings(builder, "tokenizer.ggml.tokens", tokens, TOKENS);
    gguf_array(builder, "tokenizer.ggml.token_type", 5, types, TOKENS, sizeof types[0]);
    pack = open_file(builder, &image);
    assert_int_equal(strata__pack_token_count(pack), TOKENS);
    text_is(pack, 0, "a", 1);
    text_is(pack, 1, " the", 4);
    text_is(pack, 2, "\n", 1);
    text_is(pack, 3, "\xe9", 1);         /* printable Latin-1 is one byte */
    text_is(pack, 4, "\0", 1);           /* the first of the other bytes */
    text_is(pack, 5, "\xad", 1);         /* the last */
    text_is(pack, 6, "\xe2\x82\xac", 3); /* not of the alphabet: as it is */
    text_is(pack, 7, "\xff!", 2);        /* no UTF-8: as it is */
    text_is(pack, 8, "", 0);
    text_is(pack, 9, "<end>", 5);
    text_is(pack, 11, "\xa0", 1);
    text_is(pack, 12, "\xc1\xa1", 2); /* an overlong form is none */
    text_is(pack, 15, "\x7f", 1);
    assert_int_equal(strata__pack_token(pack, 9, &bytes, &count, &type, &score), STRATA_OK);
    assert_int_equal(count, 5);
    assert_int_equal(type, 3);
    assert_true(score == 0);
    assert_int_equal(strata__pack_token(pack, TOKENS, &bytes, &count, &type, &score),
                     STRATA_ERR_INVALID_ARGUMENT);
    assert_int_equal(strata__pack_token_text(pack, 1, buffer, sizeof buffer, &count),
                     STRATA_ERR_BUFFER_TOO_SMALL);
    assert_int_equal(count, 4);
    strata__pack_release(pack);
    free(image);
}

static void sentencepiece_tokens(void **state)
{
    static const char *const tokens[TOKENS] = {"\xe2\x96\x81the",
                                               "<0x0A>",
                                               "<0x-1>",
                                               "<0xZZ>",
                                               "<0x1>",
                                               "<0xfF>",
                                               "<s>",
                                               "h",
                                               "i",
                                               "j",
                                               "k",
                                               "l",
                                               "m",
                                               "n",
                                               "o",
                                               "\xe2\x96"};
    int32_t types[TOKENS] = {1, 6, 6, 6, 6, 6, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    float scores[TOKENS] = {-1, -2.5f};
    gguf_builder *builder = gguf_model("llama");
    const uint8_t *bytes;
    uint64_t count;
    uint32_t type;
    float score;
    uint8_t *image;
    strata__pack *pack;
    (void)state;
    gguf_string(builder, "tokenizer.ggml.model", "llama");
    gguf_strings(builder, "tokenizer.ggml.tokens", tokens, TOKENS);
    gguf_array(builder, "tokenizer.ggml.token_type", 5, types, TOKENS, sizeof types[0]);
    gguf_array(builder, "tokenizer.ggml.scores", 6, scores, TOKENS, sizeof scores[0]);
    pack = open_file(builder, &image);
    text_is(pack, 0, " the", 4);
    text_is(pack, 1, "\n", 1);
    text_is(pack, 2, "<0x-1>", 6); /* byte tokens that are none keep their text */
    text_is(pack, 3, "<0xZZ>", 6);
    text_is(pack, 4, "<0x1>", 5);
    text_is(pack, 5, "\xff", 1);
    text_is(pack, 15, "\xe2\x96", 2);
    assert_int_equal(strata__pack_token(pack, 1, &bytes, &count, &type, &score), STRATA_OK);
    assert_int_equal(type, 6);
    assert_true(score == -2.5f);
    strata__pack_release(pack);
    free(image);
}

static void no_vocabulary(void **state)
{
    gguf_builder *builder = gguf_model("qwen3moe");
    const strata__geometry *geometry;
    const strata__layer *layers;
    uint8_t *image;
    strata__pack *pack;
    (void)state;
    gguf_string(builder, "tokenizer.ggml.model", "none");
    gguf_remove(builder, "tokenizer.ggml.tokens");
    gguf_remove(builder, "tokenizer.ggml.token_type");
    pack = open_file(builder, &image);
    assert_int_equal(strata__pack_token_count(pack), 0);
    assert_int_equal(strata__pack_model(pack, &geometry, &layers), STRATA_OK);
    assert_int_equal(geometry->vocabulary, TOKENS);
    strata__pack_release(pack);
    free(image);
}

static void wrong_element_types(void **state)
{
    uint8_t zeros[8 * TOKENS] = {0};
    gguf_builder *builder = gguf_model("qwen3moe");
    (void)state;
    gguf_array(builder, "tokenizer.ggml.tokens", 5, zeros, TOKENS, 4);
    expect_file_refused(builder, STRATA_ERR_FORMAT, "tokens: expected an array of string");
    builder = gguf_model("qwen3moe");
    gguf_string(builder, "tokenizer.ggml.tokens", "a");
    expect_file_refused(builder, STRATA_ERR_FORMAT, "tokens: expected an array of string");
    builder = gguf_model("qwen3moe"); /* as bytes it would be read beyond its end */
    gguf_array(builder, "tokenizer.ggml.token_type", 0, zeros, TOKENS, 1);
    expect_file_refused(builder, STRATA_ERR_FORMAT,
                        "expected an array of i32, found an array of u8");
    builder = gguf_model("qwen3moe");
    gguf_array(builder, "tokenizer.ggml.scores", 12, zeros, TOKENS, 8);
    expect_file_refused(builder, STRATA_ERR_FORMAT, "scores: expected an array of f32");
    builder = gguf_model("qwen3moe");
    gguf_array(builder, "tokenizer.ggml.merges", 4, zeros, TOKENS, 4);
    expect_file_refused(builder, STRATA_ERR_FORMAT, "merges: expected an array of string");
    builder = gguf_model("qwen3moe");
    gguf_u32(builder, "tokenizer.ggml.model", 1);
    expect_file_refused(builder, STRATA_ERR_FORMAT, "tokenizer.ggml.model: expected a string");
}

static void wrong_lengths_and_values(void **state)
{
    int32_t types[TOKENS + 1] = {0};
    float scores[TOKENS - 1] = {0};
    gguf_builder *builder = gguf_model("qwen3moe");
    (void)state;
    gguf_array(builder, "tokenizer.ggml.token_type", 5, types, TOKENS + 1, sizeof types[0]);
    expect_file_refused(builder, STRATA_ERR_FORMAT, "token_type has 17 elements for 16 tokens");
    builder = gguf_model("qwen3moe");
    gguf_array(builder, "tokenizer.ggml.scores", 6, scores, TOKENS - 1, sizeof scores[0]);
    expect_file_refused(builder, STRATA_ERR_FORMAT, "scores has 15 elements for 16 tokens");
    for (int32_t bad = -1; bad <= 7; bad += 8) {
        types[3] = bad;
        builder = gguf_model("qwen3moe");
        gguf_array(builder, "tokenizer.ggml.token_type", 5, types, TOKENS, sizeof types[0]);
        expect_file_refused(builder, STRATA_ERR_FORMAT, "token 3 has type");
    }
}

static void special_ids(void **state)
{
    static const char *const keys[] = {"tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id",
                                       "tokenizer.ggml.padding_token_id",
                                       "tokenizer.ggml.eot_token_id"};
    (void)state;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        int32_t negative = -1;
        gguf_builder *builder = gguf_model("qwen3moe");
        gguf_u32(builder, keys[i], TOKENS);
        expect_file_refused(builder, STRATA_ERR_FORMAT, keys[i]);
        builder = gguf_model("qwen3moe");
        gguf_raw(builder, keys[i], 5, &negative, sizeof negative);
        expect_file_refused(builder, STRATA_ERR_FORMAT, "is -1, the vocabulary has 16 tokens");
        builder = gguf_model("qwen3moe");
        gguf_string(builder, keys[i], "0");
        expect_file_refused(builder, STRATA_ERR_FORMAT, "expected an integer, found string");
    }
}

static void rows_of_the_embedding(void **state)
{
    gguf_builder *builder = gguf_model("qwen3moe");
    (void)state;
    gguf_add(builder, "token_embd.weight", 0, 64, TOKENS + 1, 0);
    expect_model_refused(builder, STRATA_ERR_FORMAT,
                         "tensor token_embd.weight: expected shape [64, 16, 1], found [64, 17");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(byte_level_tokens),
        cmocka_unit_test(sentencepiece_tokens),
        cmocka_unit_test(no_vocabulary),
        cmocka_unit_test(wrong_element_types),
        cmocka_unit_test(wrong_lengths_and_values),
        cmocka_unit_test(special_ids),
        cmocka_unit_test(rows_of_the_embedding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
