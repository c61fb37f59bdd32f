/* SPDX-License-Identifier: MIT */
/* Packs as the application sees them: every function, its arguments, ownership and texts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <strata/pack.h>

#include "support/gguf_builder.h"

static strata_context *context;
static uint8_t *image;
static uint64_t image_bytes;
static strata_pack *pack;

static void make_image(gguf_builder *builder)
{
    image = gguf_image(builder, &image_bytes, NULL);
    gguf_free(builder);
}

static int open_model(void **state)
{
    static const float numbers[2] = {0.5f, -2};
    static const char *const words[3] = {"one", "", "three"};
    gguf_builder *builder = gguf_model("ernie4_5-moe");
    (void)state;
    gguf_string(builder, "test.text", "some text");
    gguf_strings(builder, "test.words", words, 3);
    gguf_array(builder, "test.numbers", 6, numbers, 2, sizeof numbers[0]);
    gguf_bool(builder, "test.flag", 1);
    make_image(builder);
    return strata_context_create(NULL, &context) ||
           strata_pack_open_memory(context, image, image_bytes, &pack);
}

static int close_model(void **state)
{
    (void)state;
    strata_pack_close(pack);
    strata_context_destroy(context);
    free(image);
    return 0;
}

static void assert_error_has(const char *wanted)
{
    char text[512];
    strata_last_error(text, sizeof text);
    if (!strstr(text, wanted))
        fail_msg("expected \"%s\" in \"%s\"", wanted, text);
}

static void info(void **state)
{
    strata_pack_info info = {.struct_size = sizeof info};
    (void)state;
    assert_int_equal(strata_pack_info_get(pack, &info), STRATA_OK);
    assert_int_equal(info.struct_size, sizeof info);
    assert_int_equal(info.runnable, 1);
    assert_int_equal(info.layer_count, 2);
    assert_int_equal(info.width, 64);
    assert_int_equal(info.vocabulary_count, 16);
    assert_int_equal(info.context_tokens, 128);
    assert_int_equal(info.expert_count, 4);
    assert_int_equal(info.experts_per_token, 2);
    assert_int_equal(info.file_bytes, image_bytes);
    assert_int_equal(info.expert_bytes, 3 * 64 * 32 * 4 * 4);
    assert_true(info.dense_bytes > 0 && info.dense_bytes < image_bytes);
    assert_int_equal(info.token_count, 16);
    assert_string_equal(info.architecture, "ernie4_5-moe");
    assert_string_equal(info.name, "small");
    assert_string_equal(info.runnable_reason, "");
}

static void layers(void **state)
{
    strata_layer_info layer = {.struct_size = sizeof layer};
    strata_pack_info whole = {.struct_size = sizeof whole};
    (void)state;
    assert_int_equal(strata_pack_info_get(pack, &whole), STRATA_OK);
    assert_int_equal(strata_pack_layer_get(pack, 0, &layer), STRATA_OK);
    assert_int_equal(layer.expert_count, 0);
    assert_int_equal(layer.ffn_width, 96);
    assert_int_equal(layer.gate_format, 0xffffffff);
    assert_int_equal(layer.gate_blob_bytes, 0);
    whole.dense_bytes -= layer.dense_bytes;
    assert_int_equal(strata_pack_layer_get(pack, 1, &layer), STRATA_OK);
    assert_int_equal(layer.heads, 2);
    assert_int_equal(layer.kv_heads, 1);
    assert_int_equal(layer.head_size, 32);
    assert_int_equal(layer.window_tokens, 0);
    assert_int_equal(layer.expert_count, 4);
    assert_int_equal(layer.expert_width, 32);
    assert_int_equal(layer.ffn_width, 0);
    assert_int_equal(layer.shared_width, 32);
    assert_int_equal(layer.gate_format, 0);
    assert_int_equal(layer.up_format, 0);
    assert_int_equal(layer.down_format, 0);
    assert_int_equal(layer.gate_blob_bytes, 64 * 32 * 4);
    assert_int_equal(layer.up_blob_bytes, 64 * 32 * 4);
    assert_int_equal(layer.down_blob_bytes, 64 * 32 * 4);
    /* What is left is embedding, output and the last norm. */
    assert_int_equal(whole.dense_bytes - layer.dense_bytes, (2 * 16 + 1) * 64 * 4);
    assert_int_equal(strata_pack_layer_get(pack, 2, &layer), STRATA_ERR_INVALID_ARGUMENT);
    assert_error_has("the pack has 2 layers, there is no layer 2");
}

static void tensors(void **state)
{
    strata_tensor_info tensor = {.struct_size = sizeof tensor};
    strata_pack_info whole = {.struct_size = sizeof whole};
    (void)state;
    assert_int_equal(strata_pack_info_get(pack, &whole), STRATA_OK);
    assert_int_equal(strata_pack_tensor_get(pack, 0, &tensor), STRATA_OK);
    assert_string_equal(tensor.name, "token_embd.weight");
    assert_string_equal(tensor.format_name, "F32");
    assert_int_equal(tensor.format, 0);
    assert_int_equal(tensor.dimension_count, 2);
    assert_int_equal(tensor.shape[0], 64);
    assert_int_equal(tensor.shape[1], 16);
    assert_int_equal(tensor.shape[2], 1);
    assert_int_equal(tensor.bytes, 64 * 16 * 4);
    assert_int_equal(tensor.shard, 0);
    assert_true((const uint8_t *)tensor.data > image);
    assert_true((const uint8_t *)tensor.data < image + image_bytes);
    assert_int_equal(strata_pack_tensor_get(pack, whole.tensor_count - 1, &tensor), STRATA_OK);
    assert_int_equal(strata_pack_tensor_get(pack, whole.tensor_count, &tensor),
                     STRATA_ERR_INVALID_ARGUMENT);
    assert_error_has("there is no tensor");
    assert_int_equal(strata_pack_tensor_find(pack, "blk.1.ffn_up_exps.weight", &tensor), STRATA_OK);
    assert_int_equal(tensor.dimension_count, 3);
    assert_int_equal(strata_pack_tensor_find(pack, "absent", &tensor), STRATA_ERR_INVALID_ARGUMENT);
    assert_error_has("no tensor absent");
}

static void metadata_entries(void **state)
{
    strata_metadata_info entry = {.struct_size = sizeof entry};
    strata_pack_info whole = {.struct_size = sizeof whole};
    (void)state;
    assert_int_equal(strata_pack_info_get(pack, &whole), STRATA_OK);
    assert_int_equal(strata_pack_metadata_get(pack, 0, &entry), STRATA_OK);
    assert_string_equal(entry.key, "general.architecture");
    assert_int_equal(entry.type, STRATA_VALUE_STRING);
    assert_int_equal(entry.element_type, STRATA_VALUE_STRING);
    assert_int_equal(entry.count, 1);
    assert_int_equal(strata_pack_metadata_get(pack, whole.metadata_count, &entry),
                     STRATA_ERR_INVALID_ARGUMENT);
    assert_int_equal(strata_pack_metadata_find(pack, "test.words", &entry), STRATA_OK);
    assert_int_equal(entry.type, STRATA_VALUE_ARRAY);
    assert_int_equal(entry.element_type, STRATA_VALUE_STRING);
    assert_int_equal(entry.count, 3);
    assert_int_equal(strata_pack_metadata_find(pack, "absent", &entry),
                     STRATA_ERR_INVALID_ARGUMENT);
    assert_error_has("no key absent");
}

static void metadata_values(void **state)
{
    const char *bytes = NULL;
    uint64_t count = 0;
    int64_t integer = 0;
    double number = 0;
    (void)state;
    assert_int_equal(strata_pack_metadata_int64(pack, "ernie4_5-moe.embedding_length", 0, &integer),
                     STRATA_OK);
    assert_int_equal(integer, 64);
    assert_int_equal(strata_pack_metadata_int64(pack, "test.flag", 0, &integer), STRATA_OK);
    assert_int_equal(integer, 1);
    assert_int_equal(strata_pack_metadata_int64(pack, "test.flag", 1, &integer),
                     STRATA_ERR_INVALID_ARGUMENT);
    assert_int_equal(strata_pack_metadata_int64(pack, "test.text", 0, &integer),
                     STRATA_ERR_INVALID_ARGUMENT);
    assert_error_has("key test.text: expected an integer, found string");
    assert_int_equal(strata_pack_metadata_float64(pack, "test.numbers", 1, &number), STRATA_OK);
    assert_true(number == -2);
    assert_int_equal(strata_pack_metadata_float64(pack, "test.numbers", 2, &number),
                     STRATA_ERR_INVALID_ARGUMENT);
    assert_int_equal(strata_pack_metadata_string(pack, "test.text", 0, &bytes, &count), STRATA_OK);
    assert_int_equal(count, 9);
    assert_memory_equal(bytes, "some text", 9);
    assert_int_equal(strata_pack_metadata_string(pack, "test.words", 2, &bytes, &count), STRATA_OK);
    assert_int_equal(count, 5);
    assert_memory_equal(bytes, "three", 5);
    assert_int_equal(strata_pack_metadata_string(pack, "test.words", 3, &bytes, &count),
                     STRATA_ERR_INVALID_ARGUMENT);
    assert_int_equal(strata_pack_metadata_string(pack, "test.flag", 0, &bytes, &count),
                     STRATA_ERR_INVALID_ARGUMENT);
    assert_int_equal(count, 5);
}

static void tokens(void **state)
{
    strata_token_info token = {.struct_size = sizeof token};
    char buffer[8];
    uint64_t bytes = 0;
    (void)state;
    assert_int_equal(strata_pack_token_get(pack, 15, &token), STRATA_OK);
    assert_int_equal(token.type, 3);
    assert_int_equal(token.byte_count, 5);
    assert_memory_equal(token.bytes, "<end>", 5);
    assert_int_equal(strata_pack_token_get(pack, 16, &token), STRATA_ERR_INVALID_ARGUMENT);
    assert_error_has("the vocabulary has 16 tokens, there is no token 16");
    assert_int_equal(strata_pack_token_text(pack, 13, NULL, 0, &bytes), STRATA_OK);
    assert_int_equal(bytes, 4);
    assert_int_equal(strata_pack_token_text(pack, 13, buffer, 3, &bytes),
                     STRATA_ERR_BUFFER_TOO_SMALL);
    assert_int_equal(bytes, 4);
    assert_int_equal(strata_pack_token_text(pack, 13, buffer, 4, &bytes), STRATA_OK);
    assert_memory_equal(buffer, " the", 4);
    assert_int_equal(strata_pack_token_text(pack, 99, buffer, 4, &bytes),
                     STRATA_ERR_INVALID_ARGUMENT);
}

static void null_arguments(void **state)
{
    const strata_status bad = STRATA_ERR_INVALID_ARGUMENT;
    strata_pack *out = pack;
    const char *bytes;
    uint64_t count;
    int64_t integer;
    double number;
    char buffer[1];
    (void)state;
    assert_int_equal(strata_pack_open_path(NULL, "x", &out), bad);
    assert_null(out);
    assert_int_equal(strata_pack_open_path(context, NULL, &out), bad);
    assert_int_equal(strata_pack_open_path(context, "", &out), bad);
    assert_int_equal(strata_pack_open_path(context, "x", NULL), bad);
    assert_int_equal(strata_pack_open_memory(NULL, image, 8, &out), bad);
    assert_int_equal(strata_pack_open_memory(context, NULL, 8, &out), bad);
    assert_int_equal(strata_pack_open_memory(context, image, 8, NULL), bad);
    assert_error_has("strata_pack_open_memory: out is NULL");
    assert_int_equal(strata_pack_info_get(NULL, NULL), bad);
    assert_int_equal(strata_pack_info_get(pack, NULL), bad);
    assert_int_equal(strata_pack_layer_get(NULL, 0, NULL), bad);
    assert_int_equal(strata_pack_layer_get(pack, 0, NULL), bad);
    assert_int_equal(strata_pack_tensor_get(NULL, 0, NULL), bad);
    assert_int_equal(strata_pack_tensor_get(pack, 0, NULL), bad);
    assert_int_equal(strata_pack_tensor_find(NULL, "x", NULL), bad);
    assert_int_equal(strata_pack_tensor_find(pack, NULL, NULL), bad);
    assert_int_equal(strata_pack_metadata_get(NULL, 0, NULL), bad);
    assert_int_equal(strata_pack_metadata_get(pack, 0, NULL), bad);
    assert_int_equal(strata_pack_metadata_find(NULL, "x", NULL), bad);
    assert_int_equal(strata_pack_metadata_find(pack, NULL, NULL), bad);
    assert_int_equal(strata_pack_metadata_int64(NULL, "x", 0, &integer), bad);
    assert_int_equal(strata_pack_metadata_int64(pack, NULL, 0, &integer), bad);
    assert_int_equal(strata_pack_metadata_int64(pack, "x", 0, NULL), bad);
    assert_int_equal(strata_pack_metadata_float64(NULL, "x", 0, &number), bad);
    assert_int_equal(strata_pack_metadata_float64(pack, "x", 0, NULL), bad);
    assert_int_equal(strata_pack_metadata_string(NULL, "x", 0, &bytes, &count), bad);
    assert_int_equal(strata_pack_metadata_string(pack, "x", 0, NULL, &count), bad);
    assert_int_equal(strata_pack_metadata_string(pack, "x", 0, &bytes, NULL), bad);
    assert_int_equal(strata_pack_token_get(NULL, 0, NULL), bad);
    assert_int_equal(strata_pack_token_get(pack, 0, NULL), bad);
    assert_int_equal(strata_pack_token_text(NULL, 0, buffer, 1, &count), bad);
    assert_int_equal(strata_pack_token_text(pack, 0, NULL, 1, &count), bad);
    assert_int_equal(strata_pack_token_text(pack, 0, buffer, 1, NULL), bad);
    strata_pack_close(NULL);
}

static void packs_that_cannot_be_run(void **state)
{
    gguf_builder *builder = gguf_model("qwen3moe");
    strata_pack_info info = {.struct_size = sizeof info};
    strata_layer_info layer = {.struct_size = sizeof layer};
    strata_tensor_info tensor = {.struct_size = sizeof tensor};
    strata_pack *other = NULL;
    uint64_t bytes;
    uint8_t *data;
    char name[260];
    (void)state;
    memset(name, 'n', sizeof name);
    memcpy(name + 126, "\xc3\xa9", 2); /* the cut must not split it */
    name[sizeof name - 1] = '\0';
    gguf_string(builder, "general.name", name);
    gguf_add(builder, "blk.0.attn_q.weight", 999, 64, 64, 0);
    data = gguf_image(builder, &bytes, NULL);
    gguf_free(builder);
    assert_int_equal(strata_pack_open_memory(context, data, bytes, &other), STRATA_OK);
    assert_int_equal(strata_pack_info_get(other, &info), STRATA_OK);
    assert_int_equal(info.runnable, 0);
    assert_int_equal(info.layer_count, 0);
    assert_int_equal(info.width, 0);
    assert_int_equal(strlen(info.name), 126);
    assert_non_null(strstr(info.runnable_reason, "tensor blk.0.attn_q.weight has type 999"));
    assert_int_equal(strata_pack_layer_get(other, 0, &layer), STRATA_ERR_UNSUPPORTED);
    assert_error_has("blk.0.attn_q.weight");
    assert_int_equal(strata_pack_tensor_find(other, "blk.0.attn_q.weight", &tensor), STRATA_OK);
    assert_int_equal(tensor.bytes, 0);
    assert_string_equal(tensor.format_name, "?");
    strata_pack_close(other);
    free(data);
}

/* A pack keeps its context alive. */
static void order_of_destruction(void **state)
{
    strata_context *own = NULL;
    strata_pack *other = NULL;
    strata_pack_info info = {.struct_size = sizeof info};
    (void)state;
    assert_int_equal(strata_context_create(NULL, &own), STRATA_OK);
    assert_int_equal(strata_pack_open_memory(own, image, image_bytes, &other), STRATA_OK);
    strata_context_destroy(own);
    assert_int_equal(strata_pack_info_get(other, &info), STRATA_OK);
    strata_pack_close(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(info),
        cmocka_unit_test(layers),
        cmocka_unit_test(tensors),
        cmocka_unit_test(metadata_entries),
        cmocka_unit_test(metadata_values),
        cmocka_unit_test(tokens),
        cmocka_unit_test(null_arguments),
        cmocka_unit_test(packs_that_cannot_be_run),
        cmocka_unit_test(order_of_destruction),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
