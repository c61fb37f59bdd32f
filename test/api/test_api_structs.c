/* SPDX-License-Identifier: MIT */
/*
 * Every structure that crosses the ABI, with every size that a caller may come with: an application
 * as old as the library, a newer one, and wrong ones. A guard stands behind what may be written.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <strata/strata.h>

#include "support/gguf_builder.h"
#include "support/tiny_pack.h"

enum { BIGGEST = 8192, GUARD = 0xee };

static strata_context *context;
static strata_pack *pack;
static strata_session *session;
static strata_prefill *prefill;
static strata_tokenizer *tokenizer;
static uint8_t *image;

/* Large enough for any structure, aligned, and twice the largest size that is taken. */
static union {
    uint64_t aligned;
    uint32_t struct_size;
    unsigned char bytes[BIGGEST];
} memory;

/* The smallest vocabulary that one can be made from. */
static strata_status make_tokenizer(void)
{
    static const char *const words[] = {"a", "b"};
    static const float scores[2];
    gguf_builder *builder = gguf_new();
    strata_pack *words_pack;
    uint8_t *words_image;
    uint64_t bytes;
    strata_status status;
    gguf_string(builder, "tokenizer.ggml.model", "llama");
    gguf_strings(builder, "tokenizer.ggml.tokens", words, 2);
    gguf_array(builder, "tokenizer.ggml.scores", STRATA_VALUE_FLOAT32, scores, 2, 4);
    words_image = gguf_image(builder, &bytes, NULL);
    gguf_free(builder);
    status = strata_pack_open_memory(context, words_image, bytes, &words_pack);
    if (status == STRATA_OK)
        status = strata_tokenizer_create(words_pack, &tokenizer);
    strata_pack_close(words_pack);
    free(words_image);
    return status;
}

static int make_objects(void **state)
{
    tiny_spec spec = tiny_spec_default();
    uint64_t bytes = 0;
    (void)state;
    image = tiny_pack_make(&spec, &bytes);
    return strata_context_create(NULL, &context) ||
           strata_pack_open_memory(context, image, bytes, &pack) ||
           strata_session_create(pack, NULL, &session) ||
           strata_prefill_create(session, NULL, &prefill) || make_tokenizer();
}

static int drop_objects(void **state)
{
    (void)state;
    strata_tokenizer_destroy(tokenizer);
    strata_prefill_destroy(prefill);
    strata_session_destroy(session);
    strata_pack_close(pack);
    strata_context_destroy(context);
    free(image);
    return 0;
}

/* Initialisers: what they fill and how. */

#define INITIALISER(type)                                                                          \
    static void init_##type(void *structure, uint64_t bytes)                                       \
    {                                                                                              \
        type##_init(structure, bytes);                                                             \
    }

INITIALISER(strata_context_options)
INITIALISER(strata_plan_options)
INITIALISER(strata_device_facts)
INITIALISER(strata_session_options)
INITIALISER(strata_prefill_options)
INITIALISER(strata_prefill_request)
INITIALISER(strata_decode_request)
INITIALISER(strata_cache_policy)
INITIALISER(strata_encode_options)
INITIALISER(strata_decode_options)
INITIALISER(strata_sample_options)

typedef struct initialiser {
    const char *name;
    uint64_t bytes;
    void (*init)(void *structure, uint64_t bytes);
} initialiser;

static const initialiser initialisers[] = {
    {"context_options", sizeof(strata_context_options), init_strata_context_options},
    {"plan_options", sizeof(strata_plan_options), init_strata_plan_options},
    {"device_facts", sizeof(strata_device_facts), init_strata_device_facts},
    {"session_options", sizeof(strata_session_options), init_strata_session_options},
    {"prefill_options", sizeof(strata_prefill_options), init_strata_prefill_options},
    {"prefill_request", sizeof(strata_prefill_request), init_strata_prefill_request},
    {"decode_request", sizeof(strata_decode_request), init_strata_decode_request},
    {"cache_policy", sizeof(strata_cache_policy), init_strata_cache_policy},
    {"encode_options", sizeof(strata_encode_options), init_strata_encode_options},
    {"decode_options", sizeof(strata_decode_options), init_strata_decode_options},
    {"sample_options", sizeof(strata_sample_options), init_strata_sample_options},
};

static void check_initialiser(const initialiser *one)
{
    unsigned char whole[1024];
    memset(&memory, GUARD, sizeof memory);
    one->init(&memory, one->bytes);
    assert_true(one->bytes <= sizeof whole);
    memcpy(whole, memory.bytes, one->bytes);
    for (uint64_t bytes = 4; bytes <= one->bytes + 64; bytes += 4) {
        uint64_t known = bytes < one->bytes ? bytes : one->bytes;
        memset(&memory, GUARD, sizeof memory);
        one->init(&memory, bytes);
        assert_int_equal(memory.struct_size, bytes);
        assert_memory_equal(memory.bytes + 4, whole + 4, known - 4);
        for (uint64_t i = known; i < bytes; i++)
            assert_int_equal(memory.bytes[i], 0);
        for (uint64_t i = bytes; i < bytes + 64; i++)
            assert_int_equal(memory.bytes[i], GUARD);
    }
    one->init(NULL, one->bytes);
}

static void initialisers_stay_within_the_callers_size(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof initialisers / sizeof initialisers[0]; i++) {
        print_message("%s\n", initialisers[i].name);
        check_initialiser(&initialisers[i]);
    }
}

/* Input structures: a call that is good once the structure is. */

static strata_status take_context_options(void)
{
    strata_context *made = NULL;
    strata_status status = strata_context_create((const void *)&memory, &made);
    strata_context_destroy(made);
    return status;
}

static strata_status take_session_options(void)
{
    strata_session *made = NULL;
    strata_status status = strata_session_create(pack, (const void *)&memory, &made);
    strata_session_destroy(made);
    return status;
}

static strata_status take_plan_options(void)
{
    strata_session *made = NULL;
    strata_session_options options;
    strata_status status;
    strata_session_options_init(&options, sizeof options);
    options.plan_options = (const void *)&memory;
    status = strata_session_create(pack, &options, &made);
    strata_session_destroy(made);
    return status;
}

static strata_status take_prefill_options(void)
{
    strata_prefill *made = NULL;
    strata_session *own = NULL;
    strata_status status;
    assert_int_equal(strata_session_create(pack, NULL, &own), STRATA_OK);
    status = strata_prefill_create(own, (const void *)&memory, &made);
    strata_prefill_destroy(made);
    strata_session_destroy(own);
    return status;
}

static strata_status take_prefill_request(void)
{
    static const int32_t tokens[] = {1, 2};
    strata_prefill_request *request = (void *)&memory;
    request->tokens = tokens;
    request->token_count = 2;
    request->logits_mode = STRATA_LOGITS_NONE;
    return strata_prefill_run(prefill, request, NULL);
}

static const int32_t decode_tokens[] = {1};
static const strata_decode_part decode_part = {.token_count = 1, .tokens = decode_tokens};

static strata_status take_decode_request(void)
{
    strata_decode_request *request = (void *)&memory;
    request->parts = &decode_part;
    request->part_count = 1;
    request->logits_mode = STRATA_LOGITS_NONE;
    return strata_session_decode(session, request, NULL);
}

static strata_status take_cache_policy(void)
{
    return strata_session_set_cache_policy(session, (const void *)&memory);
}

static strata_status take_encode_options(void)
{
    uint64_t count;
    return strata_tokenizer_encode(tokenizer, "", 0, (const void *)&memory, NULL, 0, &count);
}

static strata_status take_decode_options(void)
{
    uint64_t bytes;
    return strata_tokenizer_decode(tokenizer, NULL, 0, (const void *)&memory, NULL, 0, &bytes);
}

static strata_status take_sample_options(void)
{
    float logits[] = {1, 2};
    uint64_t random = 1;
    int32_t token;
    return strata_sample((const void *)&memory, logits, 2, &random, &token);
}

static const struct {
    initialiser structure;
    strata_status (*call)(void);
} inputs[] = {
    {{"context_options", sizeof(strata_context_options), init_strata_context_options},
     take_context_options},
    {{"session_options", sizeof(strata_session_options), init_strata_session_options},
     take_session_options},
    {{"plan_options", sizeof(strata_plan_options), init_strata_plan_options}, take_plan_options},
    {{"prefill_options", sizeof(strata_prefill_options), init_strata_prefill_options},
     take_prefill_options},
    {{"prefill_request", sizeof(strata_prefill_request), init_strata_prefill_request},
     take_prefill_request},
    {{"decode_request", sizeof(strata_decode_request), init_strata_decode_request},
     take_decode_request},
    {{"cache_policy", sizeof(strata_cache_policy), init_strata_cache_policy}, take_cache_policy},
    {{"encode_options", sizeof(strata_encode_options), init_strata_encode_options},
     take_encode_options},
    {{"decode_options", sizeof(strata_decode_options), init_strata_decode_options},
     take_decode_options},
    {{"sample_options", sizeof(strata_sample_options), init_strata_sample_options},
     take_sample_options},
};

static void check_input(const initialiser *one, strata_status (*call)(void))
{
    const uint64_t bad[] = {0, 4, 8, one->bytes - 8, one->bytes + 4, 4096 + 8};
    memset(&memory, 0, sizeof memory);
    one->init(&memory, one->bytes);
    assert_int_equal(call(), STRATA_OK);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        one->init(&memory, one->bytes);
        memory.struct_size = (uint32_t)bad[i];
        assert_int_equal(call(), STRATA_ERR_ABI_SIZE);
    }
    /* A newer application: good as long as it sets nothing that is not known here. */
    for (uint64_t bytes = one->bytes + 8; bytes <= 4096; bytes += 8 * 37) {
        one->init(&memory, bytes);
        assert_int_equal(call(), STRATA_OK);
        memory.bytes[bytes - 1] = 1;
        assert_int_equal(call(), STRATA_ERR_ABI_FIELD);
    }
}

static void inputs_of_every_size(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof inputs / sizeof inputs[0]; i++) {
        print_message("%s\n", inputs[i].structure.name);
        check_input(&inputs[i].structure, inputs[i].call);
    }
}

/* Output structures. */

static strata_status give_pack_info(void)
{
    return strata_pack_info_get(pack, (void *)&memory);
}

static strata_status give_layer_info(void)
{
    return strata_pack_layer_get(pack, 0, (void *)&memory);
}

static strata_status give_tensor_info(void)
{
    return strata_pack_tensor_get(pack, 0, (void *)&memory);
}

static strata_status give_metadata_info(void)
{
    return strata_pack_metadata_get(pack, 0, (void *)&memory);
}

static strata_status give_shortfall(void)
{
    return strata_plan_shortfall_get(pack, NULL, (void *)&memory);
}

static strata_status give_plan_info(void)
{
    return strata_plan_info_get(strata_session_plan(session), (void *)&memory);
}

static strata_status give_plan_band(void)
{
    return strata_plan_band_get(strata_session_plan(session), 0, (void *)&memory);
}

static strata_status give_plan_layer(void)
{
    return strata_plan_layer_get(strata_session_plan(session), 0, 0, (void *)&memory);
}

static strata_status give_plan_configuration(void)
{
    return strata_plan_configuration_get(strata_session_plan(session), 0, (void *)&memory);
}

static strata_status give_plan_persistent(void)
{
    return strata_plan_persistent_get(strata_session_plan(session), 0, (void *)&memory);
}

static strata_status give_plan_buffer(void)
{
    return strata_plan_buffer_get(strata_session_plan(session), 0, 0, (void *)&memory);
}

static strata_status give_stats(void)
{
    return strata_session_stats_get(session, (void *)&memory);
}

static strata_status give_state_info(void)
{
    static unsigned char saved[1 << 17];
    uint64_t bytes;
    strata_status status = strata_session_save_memory(session, 0, saved, sizeof saved, &bytes);
    return status == STRATA_OK ? strata_state_info_memory(saved, bytes, (void *)&memory) : status;
}

static strata_status give_tokenizer_info(void)
{
    return strata_tokenizer_info_get(tokenizer, (void *)&memory);
}

static strata_status give_result(void)
{
    static const int32_t tokens[] = {1};
    strata_prefill_request request;
    strata_prefill_request_init(&request, sizeof request);
    request.tokens = tokens;
    request.token_count = 1;
    request.logits_mode = STRATA_LOGITS_NONE;
    return strata_prefill_run(prefill, &request, (void *)&memory);
}

static strata_status give_decode_result(void)
{
    strata_decode_request request;
    strata_decode_request_init(&request, sizeof request);
    request.parts = &decode_part;
    request.part_count = 1;
    request.logits_mode = STRATA_LOGITS_NONE;
    return strata_session_decode(session, &request, (void *)&memory);
}

static const struct {
    const char *name;
    uint64_t bytes;
    strata_status (*call)(void);
} outputs[] = {
    {"pack_info", sizeof(strata_pack_info), give_pack_info},
    {"layer_info", sizeof(strata_layer_info), give_layer_info},
    {"tensor_info", sizeof(strata_tensor_info), give_tensor_info},
    {"metadata_info", sizeof(strata_metadata_info), give_metadata_info},
    {"plan_shortfall", sizeof(strata_plan_shortfall), give_shortfall},
    {"plan_info", sizeof(strata_plan_info), give_plan_info},
    {"plan_band", sizeof(strata_plan_band), give_plan_band},
    {"plan_layer", sizeof(strata_plan_layer), give_plan_layer},
    {"plan_configuration", sizeof(strata_plan_configuration), give_plan_configuration},
    {"plan_buffer (persistent)", sizeof(strata_plan_buffer), give_plan_persistent},
    {"plan_buffer", sizeof(strata_plan_buffer), give_plan_buffer},
    {"session_stats", sizeof(strata_session_stats), give_stats},
    {"state_info", sizeof(strata_state_info), give_state_info},
    {"prefill_result", sizeof(strata_prefill_result), give_result},
    {"decode_result", sizeof(strata_decode_result), give_decode_result},
    {"tokenizer_info", sizeof(strata_tokenizer_info), give_tokenizer_info},
};

/* The structure as an application with `bytes` of it has it before the call. */
static void prepare_output(uint64_t bytes)
{
    memset(&memory, GUARD, sizeof memory);
    memory.struct_size = (uint32_t)bytes;
}

static void check_output(uint64_t known, strata_status (*call)(void))
{
    const uint64_t bad[] = {0, 4, 8, known - 8, known + 4, 4096 + 8};
    for (uint64_t bytes = known; bytes <= known + 64; bytes += 8) {
        prepare_output(bytes);
        assert_int_equal(call(), STRATA_OK);
        assert_int_equal(memory.struct_size, known);
        for (uint64_t i = known; i < known + 128; i++)
            assert_int_equal(memory.bytes[i], GUARD);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        prepare_output(bad[i]);
        assert_int_equal(call(), STRATA_ERR_ABI_SIZE);
        assert_int_equal(memory.struct_size, bad[i]);
        for (uint64_t b = 4; b < known; b++)
            assert_int_equal(memory.bytes[b], GUARD);
    }
}

static void outputs_of_every_size(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof outputs / sizeof outputs[0]; i++) {
        print_message("%s\n", outputs[i].name);
        check_output(outputs[i].bytes, outputs[i].call);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(initialisers_stay_within_the_callers_size),
        cmocka_unit_test(inputs_of_every_size),
        cmocka_unit_test(outputs_of_every_size),
    };
    return cmocka_run_group_tests(tests, make_objects, drop_objects);
}
