/* SPDX-License-Identifier: MIT */
/* Tokenizers and sampling as an application sees them: arguments, habits of files, refusals. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

#include <strata/strata.h>

#include "support/gguf_builder.h"

static strata_context *context;

static int make_context(void **state)
{
    (void)state;
    return strata_context_create(NULL, &context);
}

static int drop_context(void **state)
{
    (void)state;
    strata_context_destroy(context);
    return 0;
}

static void assert_error_has(const char *part)
{
    char text[512];
    strata_last_error(text, sizeof text);
    if (!strstr(text, part))
        fail_msg("\"%s\" has no \"%s\"", text, part);
}

/* SentencePiece: 0 <unk>, 1 <s>, 2 </s>, 3 to 258 bytes, then pieces and special tokens. */
enum { SPACE = 259, A, B, SPACE_A, AB, SPACE_AB, TOOL, CALL, PIECES_END };

static gguf_builder *pieces(void)
{
    static const char *const words[] = {"\xe2\x96\x81",
                                        "a",
                                        "b",
                                        "\xe2\x96\x81"
                                        "a",
                                        "ab",
                                        "\xe2\x96\x81"
                                        "ab",
                                        "<tool>",
                                        "<tool><call>"};
    static const float word_scores[] = {-9, -8, -7, -2, -1, -3, 0, 0};
    static char bytes[256][8];
    const char *tokens[PIECES_END];
    int32_t types[PIECES_END];
    float scores[PIECES_END] = {0};
    gguf_builder *builder = gguf_new();
    tokens[0] = "<unk>";
    tokens[1] = "<s>";
    tokens[2] = "</s>";
    types[0] = 2;
    types[1] = types[2] = 3;
    for (int i = 0; i < 256; i++) {
        snprintf(bytes[i], sizeof bytes[i], "<0x%02X>", i);
        tokens[3 + i] = bytes[i];
        types[3 + i] = 6;
    }
    for (int i = SPACE; i < PIECES_END; i++) {
        tokens[i] = words[i - SPACE];
        types[i] = i == TOOL ? 4 : i == CALL ? 3 : 1;
        scores[i] = word_scores[i - SPACE];
    }
    gguf_string(builder, "general.architecture", "vocabulary");
    gguf_string(builder, "tokenizer.ggml.model", "llama");
    gguf_strings(builder, "tokenizer.ggml.tokens", tokens, PIECES_END);
    gguf_array(builder, "tokenizer.ggml.token_type", 5, types, PIECES_END, 4);
    gguf_array(builder, "tokenizer.ggml.scores", 6, scores, PIECES_END, 4);
    gguf_u32(builder, "tokenizer.ggml.bos_token_id", 1);
    gguf_u32(builder, "tokenizer.ggml.eos_token_id", 2);
    gguf_u32(builder, "tokenizer.ggml.unknown_token_id", 0);
    return builder;
}

/* Takes the builder. */
static strata_status create(gguf_builder *builder, strata_tokenizer **out)
{
    uint64_t bytes;
    uint8_t *image = gguf_image(builder, &bytes, NULL);
    strata_pack *pack;
    strata_status status;
    assert_int_equal(strata_pack_open_memory(context, image, bytes, &pack), STRATA_OK);
    status = strata_tokenizer_create(pack, out);
    strata_pack_close(pack);
    free(image);
    gguf_free(builder);
    return status;
}

static void assert_tokens(const strata_tokenizer *tokenizer, const char *text,
                          const strata_encode_options *options, const int32_t *expected,
                          uint64_t expected_count)
{
    int32_t tokens[64];
    uint64_t count = 0;
    assert_int_equal(
        strata_tokenizer_encode(tokenizer, text, strlen(text), options, tokens, 64, &count),
        STRATA_OK);
    assert_int_equal(count, expected_count);
    for (uint64_t i = 0; i < count; i++)
        assert_int_equal(tokens[i], expected[i]);
}

#define TOKENS(...) (const int32_t[]){__VA_ARGS__}, sizeof((const int32_t[]){__VA_ARGS__}) / 4

static void habits_of_sentencepiece(void **state)
{
    strata_encode_options bare = {.struct_size = sizeof bare, .bare = 1};
    strata_encode_options special = {.struct_size = sizeof special, .special = 1, .bare = 1};
    strata_tokenizer_info info = {.struct_size = sizeof info};
    strata_tokenizer *tokenizer;
    (void)state;
    assert_int_equal(create(pieces(), &tokenizer), STRATA_OK);
    assert_int_equal(strata_tokenizer_info_get(tokenizer, &info), STRATA_OK);
    assert_string_equal(info.model, "llama");
    assert_string_equal(info.pre, "");
    assert_int_equal(info.token_count, PIECES_END);
    assert_int_equal(info.bos_token, 1);
    assert_int_equal(info.eos_token, 2);
    assert_int_equal(info.unknown_token, 0);
    assert_int_equal(info.add_bos, 1);
    assert_int_equal(info.add_eos, 0);
    assert_int_equal(info.add_space, 1);
    assert_tokens(tokenizer, "ab", NULL, TOKENS(1, SPACE_AB));
    assert_tokens(tokenizer, "ab", &bare, TOKENS(SPACE_AB));
    assert_tokens(tokenizer, "", NULL, TOKENS(1));
    assert_tokens(tokenizer, "b a  ab", &bare, TOKENS(SPACE, B, SPACE_A, SPACE, SPACE_AB));
    assert_tokens(tokenizer,
                  "a\xe2\x96\x81"
                  "ab",
                  &bare, TOKENS(SPACE_A, SPACE_AB));
    /* What has no piece is spelled in bytes, be it a character or not. */
    assert_tokens(tokenizer, "\xc3\xa9\xff", &bare, TOKENS(SPACE, 3 + 0xc3, 3 + 0xa9, 3 + 0xff));
    /* User-defined tokens are found always, control tokens when asked for, the longest first. */
    assert_tokens(tokenizer, "<tool>a", &bare, TOKENS(TOOL, SPACE_A));
    assert_tokens(tokenizer, "a<tool><call>", &special, TOKENS(SPACE_A, CALL));
    assert_tokens(tokenizer, "</s><s>b", &special, TOKENS(2, 1, SPACE, B));
    strata_tokenizer_destroy(tokenizer);
}

static void what_the_file_says(void **state)
{
    gguf_builder *builder = pieces();
    strata_tokenizer *tokenizer;
    (void)state;
    gguf_bool(builder, "tokenizer.ggml.add_bos_token", 0);
    gguf_bool(builder, "tokenizer.ggml.add_eos_token", 1);
    gguf_bool(builder, "tokenizer.ggml.add_space_prefix", 0);
    assert_int_equal(create(builder, &tokenizer), STRATA_OK);
    assert_tokens(tokenizer, "ab", NULL, TOKENS(AB, 2));
    strata_tokenizer_destroy(tokenizer);
}

static void unknown_pieces(void **state)
{
    gguf_builder *builder = pieces();
    int32_t types[PIECES_END];
    strata_encode_options bare = {.struct_size = sizeof bare, .bare = 1};
    strata_tokenizer *tokenizer;
    uint64_t count;
    (void)state;
    for (int i = 0; i < PIECES_END; i++)
        types[i] = i >= SPACE ? 1 : 5;
    gguf_array(builder, "tokenizer.ggml.token_type", 5, types, PIECES_END, 4);
    assert_int_equal(create(builder, &tokenizer), STRATA_OK);
    assert_tokens(tokenizer, "a\xc3\xa9zb", &bare, TOKENS(SPACE_A, 0, B));
    strata_tokenizer_destroy(tokenizer);
    builder = pieces();
    gguf_array(builder, "tokenizer.ggml.token_type", 5, types, PIECES_END, 4);
    gguf_remove(builder, "tokenizer.ggml.unknown_token_id");
    assert_int_equal(create(builder, &tokenizer), STRATA_OK);
    assert_int_equal(strata_tokenizer_encode(tokenizer, "z", 1, NULL, NULL, 0, &count),
                     STRATA_ERR_UNSUPPORTED);
    assert_error_has("no token for byte 0x7a");
    strata_tokenizer_destroy(tokenizer);
}

static void decoding(void **state)
{
    strata_decode_options special = {.struct_size = sizeof special, .special = 1};
    strata_decode_options continued = {.struct_size = sizeof continued, .continued = 1};
    const int32_t tokens[] = {1, SPACE_AB, SPACE_A, 3 + 0xc3, 3 + 0xa9, TOOL, 2};
    const int32_t wrong[] = {A, PIECES_END};
    strata_tokenizer *tokenizer;
    char buffer[64];
    uint64_t bytes = 0;
    (void)state;
    assert_int_equal(create(pieces(), &tokenizer), STRATA_OK);
    assert_int_equal(strata_tokenizer_decode(tokenizer, tokens, 7, NULL, buffer, 64, &bytes),
                     STRATA_OK);
    assert_int_equal(bytes, 12);
    assert_memory_equal(buffer, "ab a\xc3\xa9<tool>", 12);
    assert_int_equal(strata_tokenizer_decode(tokenizer, tokens, 7, &special, buffer, 64, &bytes),
                     STRATA_OK);
    assert_int_equal(bytes, 19);
    assert_memory_equal(buffer, "<s>ab a\xc3\xa9<tool></s>", 19);
    assert_int_equal(
        strata_tokenizer_decode(tokenizer, tokens + 1, 1, &continued, buffer, 64, &bytes),
        STRATA_OK);
    assert_int_equal(bytes, 3);
    assert_memory_equal(buffer, " ab", 3);
    /* A part may end within a character. */
    assert_int_equal(strata_tokenizer_decode(tokenizer, tokens + 3, 1, NULL, buffer, 64, &bytes),
                     STRATA_OK);
    assert_int_equal(bytes, 1);
    assert_memory_equal(buffer, "\xc3", 1);
    assert_int_equal(strata_tokenizer_decode(tokenizer, tokens, 7, NULL, buffer, 11, &bytes),
                     STRATA_ERR_BUFFER_TOO_SMALL);
    assert_int_equal(bytes, 12);
    assert_int_equal(strata_tokenizer_decode(tokenizer, NULL, 0, NULL, NULL, 0, &bytes), STRATA_OK);
    assert_int_equal(bytes, 0);
    assert_int_equal(strata_tokenizer_decode(tokenizer, wrong, 2, NULL, buffer, 64, &bytes),
                     STRATA_ERR_INVALID_ARGUMENT);
    assert_error_has("token 1 is");
    strata_tokenizer_destroy(tokenizer);
}

static void short_buffers_and_wrong_arguments(void **state)
{
    strata_encode_options options = {.struct_size = sizeof options, .invalid_utf8 = 2};
    strata_tokenizer *tokenizer;
    int32_t tokens[2] = {7, 7};
    uint64_t count = 0;
    (void)state;
    assert_int_equal(strata_tokenizer_create(NULL, &tokenizer), STRATA_ERR_INVALID_ARGUMENT);
    assert_int_equal(create(pieces(), &tokenizer), STRATA_OK);
    assert_int_equal(strata_tokenizer_encode(tokenizer, "b b b", 5, NULL, tokens, 2, &count),
                     STRATA_ERR_BUFFER_TOO_SMALL);
    assert_int_equal(count, 7);
    assert_int_equal(tokens[0], 1);
    assert_int_equal(tokens[1], SPACE);
    assert_int_equal(strata_tokenizer_encode(tokenizer, "b b b", 5, NULL, NULL, 0, &count),
                     STRATA_OK);
    assert_int_equal(count, 7);
    assert_int_equal(strata_tokenizer_encode(tokenizer, NULL, 5, NULL, NULL, 0, &count),
                     STRATA_ERR_INVALID_ARGUMENT);
    assert_int_equal(strata_tokenizer_encode(tokenizer, "b", 1, NULL, NULL, 2, &count),
                     STRATA_ERR_INVALID_ARGUMENT);
    assert_int_equal(strata_tokenizer_encode(NULL, "b", 1, NULL, NULL, 0, &count),
                     STRATA_ERR_INVALID_ARGUMENT);
    assert_int_equal(strata_tokenizer_encode(tokenizer, "b", 1, NULL, NULL, 0, NULL),
                     STRATA_ERR_INVALID_ARGUMENT);
    assert_int_equal(strata_tokenizer_encode(tokenizer, "b", 1, &options, NULL, 0, &count),
                     STRATA_ERR_UNSUPPORTED);
    assert_error_has("invalid_utf8 is 2");
    assert_int_equal(
        strata_tokenizer_encode(tokenizer, "b", (uint64_t)1 << 31, NULL, NULL, 0, &count),
        STRATA_ERR_INVALID_ARGUMENT);
    strata_tokenizer_destroy(tokenizer);
    strata_tokenizer_destroy(NULL);
}

static bool built_with_pcre2(void)
{
    for (uint32_t i = 0; strata_build_info(i); i++)
        if (strncmp(strata_build_info(i), "pcre2=", 6) == 0)
            return strcmp(strata_build_info(i), "pcre2=no") != 0;
    return false;
}

static gguf_builder *byte_pairs(const char *pre, const char *merge)
{
    static const char *const tokens[] = {"a", "b", "ab", "\xc4\xa0", "<|end|>"};
    static const int32_t types[] = {1, 1, 1, 1, 3};
    gguf_builder *builder = gguf_new();
    gguf_string(builder, "general.architecture", "vocabulary");
    gguf_string(builder, "tokenizer.ggml.model", "gpt2");
    if (pre)
        gguf_string(builder, "tokenizer.ggml.pre", pre);
    gguf_strings(builder, "tokenizer.ggml.tokens", tokens, 5);
    gguf_array(builder, "tokenizer.ggml.token_type", 5, types, 5, 4);
    gguf_strings(builder, "tokenizer.ggml.merges", &merge, 1);
    gguf_u32(builder, "tokenizer.ggml.bos_token_id", 4);
    return builder;
}

static void habits_of_byte_pairs(void **state)
{
    strata_encode_options bare = {.struct_size = sizeof bare, .bare = 1};
    strata_tokenizer_info info = {.struct_size = sizeof info};
    strata_tokenizer *tokenizer;
    uint64_t count;
    (void)state;
    if (!built_with_pcre2()) {
        assert_int_equal(create(byte_pairs("qwen2", "a b"), &tokenizer), STRATA_ERR_UNSUPPORTED);
        assert_null(tokenizer);
        assert_error_has("PCRE2");
        return;
    }
    assert_int_equal(create(byte_pairs(NULL, "a b"), &tokenizer), STRATA_OK);
    assert_int_equal(strata_tokenizer_info_get(tokenizer, &info), STRATA_OK);
    assert_string_equal(info.pre, "default");
    assert_int_equal(info.add_bos, 0);
    assert_int_equal(info.add_space, 0);
    assert_tokens(tokenizer, "ab a", NULL, TOKENS(2, 3, 0));
    assert_int_equal(strata_tokenizer_encode(tokenizer, "ac", 2, NULL, NULL, 0, &count),
                     STRATA_ERR_UNSUPPORTED);
    assert_error_has("byte 0x63");
    strata_tokenizer_destroy(tokenizer);
    /* Models of this pattern begin with a token where the file does not say. */
    assert_int_equal(create(byte_pairs("llama-bpe", "a b"), &tokenizer), STRATA_OK);
    assert_tokens(tokenizer, "b", NULL, TOKENS(4, 1));
    assert_tokens(tokenizer, "b", &bare, TOKENS(1));
    strata_tokenizer_destroy(tokenizer);
}

static void refusals(void **state)
{
    gguf_builder *builder = pieces();
    const float scores[PIECES_END] = {[AB] = NAN};
    strata_tokenizer *tokenizer;
    (void)state;
    gguf_string(builder, "tokenizer.ggml.model", "t5");
    assert_int_equal(create(builder, &tokenizer), STRATA_ERR_UNSUPPORTED);
    assert_null(tokenizer);
    assert_error_has("\"t5\"");
    builder = pieces();
    gguf_remove(builder, "tokenizer.ggml.model");
    assert_int_equal(create(builder, &tokenizer), STRATA_ERR_UNSUPPORTED);
    assert_error_has("tokenizer.ggml.model");
    assert_int_equal(create(byte_pairs("nobody's", "a b"), &tokenizer), STRATA_ERR_UNSUPPORTED);
    assert_error_has("\"nobody's\"");
    builder = pieces();
    gguf_array(builder, "tokenizer.ggml.scores", 6, scores, PIECES_END, 4);
    assert_int_equal(create(builder, &tokenizer), STRATA_ERR_FORMAT);
    assert_error_has("score of token 263");
    builder = gguf_new();
    gguf_string(builder, "general.architecture", "vocabulary");
    gguf_string(builder, "tokenizer.ggml.model", "llama");
    assert_int_equal(create(builder, &tokenizer), STRATA_ERR_UNSUPPORTED);
    assert_error_has("no vocabulary");
    if (!built_with_pcre2())
        return;
    assert_int_equal(create(byte_pairs("qwen2", "b a"), &tokenizer), STRATA_ERR_FORMAT);
    assert_error_has("the whole is no token");
    assert_int_equal(create(byte_pairs("qwen2", "x a"), &tokenizer), STRATA_ERR_FORMAT);
    assert_error_has("its left part is no token");
    assert_int_equal(create(byte_pairs("qwen2", "ab"), &tokenizer), STRATA_ERR_FORMAT);
    assert_error_has("no two parts");
}

static void sampling_arguments(void **state)
{
    strata_sample_options options;
    float logits[] = {1, 3, 2};
    int32_t token = -1;
    uint64_t random = 1;
    (void)state;
    strata_sample_options_init(&options, sizeof options);
    assert_true(options.temperature == 1 && options.top_p == 1 && options.repetition_penalty == 1);
    assert_int_equal(strata_sample(NULL, logits, 3, &random, &token), STRATA_OK);
    assert_in_range(token, 0, 2);
    assert_int_equal(strata_sample(NULL, logits, 3, NULL, &token), STRATA_ERR_INVALID_ARGUMENT);
    assert_int_equal(strata_sample(NULL, logits, 0, &random, &token), STRATA_ERR_INVALID_ARGUMENT);
    options.temperature = -1;
    assert_int_equal(strata_sample(&options, logits, 3, &random, &token),
                     STRATA_ERR_INVALID_ARGUMENT);
    assert_error_has("temperature is -1");
    options.temperature = 0;
    options.top_p = 2;
    assert_int_equal(strata_sample(&options, logits, 3, NULL, &token), STRATA_ERR_INVALID_ARGUMENT);
    options.top_p = 1;
    assert_int_equal(strata_sample(&options, logits, 3, NULL, &token), STRATA_OK);
    assert_int_equal(token, 1);
    assert_int_equal(strata_logits_top_k(logits, 3, 2), STRATA_OK);
    assert_true(logits[0] == -INFINITY && logits[1] == 3 && logits[2] == 2);
    assert_int_equal(strata_logits_top_p(logits, 3, 0.5f), STRATA_OK);
    assert_true(logits[2] == -INFINITY);
    assert_int_equal(strata_logits_temperature(logits, 3, 0), STRATA_ERR_INVALID_ARGUMENT);
    assert_int_equal(strata_logits_temperature(logits, 3, 2), STRATA_OK);
    assert_true(logits[1] == 1.5f);
    assert_int_equal(strata_logits_min_p(logits, 3, NAN), STRATA_ERR_INVALID_ARGUMENT);
    assert_int_equal(strata_logits_min_p(logits, 3, 0.5f), STRATA_OK);
    assert_int_equal(strata_logits_repetition_penalty(logits, 3, NULL, 1, 2),
                     STRATA_ERR_INVALID_ARGUMENT);
    token = 1;
    assert_int_equal(strata_logits_repetition_penalty(logits, 3, &token, 1, 2), STRATA_OK);
    assert_true(logits[1] == 0.75f);
    assert_int_equal(strata_logits_greedy(logits, 3, &token), STRATA_OK);
    assert_int_equal(token, 1);
    assert_int_equal(strata_logits_draw(logits, 3, &random, &token), STRATA_OK);
    assert_int_equal(token, 1);
    assert_int_equal(strata_logits_draw(NULL, 3, &random, &token), STRATA_ERR_INVALID_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(habits_of_sentencepiece),
        cmocka_unit_test(what_the_file_says),
        cmocka_unit_test(unknown_pieces),
        cmocka_unit_test(decoding),
        cmocka_unit_test(short_buffers_and_wrong_arguments),
        cmocka_unit_test(habits_of_byte_pairs),
        cmocka_unit_test(refusals),
        cmocka_unit_test(sampling_arguments),
    };
    return cmocka_run_group_tests(tests, make_context, drop_context);
}
