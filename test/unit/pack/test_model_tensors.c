/* SPDX-License-Identifier: MIT */
/* Tensors of a model: missing, misshapen, of the wrong type, without a place. */
#include <math.h>

#include "pack_test.h"

static const char *const architectures[] = {
    "qwen3moe",   "qwen2moe",   "olmoe",       "llama",        "gpt-oss",     "glm4moe",
    "minimax-m2", "granitemoe", "hunyuan-moe", "ernie4_5-moe", "bailingmoe2",
};
enum { ARCHITECTURES = sizeof architectures / sizeof architectures[0] };

/* Names of the model's tensors, so that each can be taken away in turn. */
static char (*tensor_names(const char *architecture, uint64_t *out_count))[64]
{
    gguf_builder *builder = gguf_model(architecture);
    char(*names)[64] = calloc(builder->tensor_count, sizeof *names);
    assert_non_null(names);
    *out_count = builder->tensor_count;
    for (uint64_t i = 0; i < builder->tensor_count; i++)
        memcpy(names[i], builder->tensors[i].name.data, builder->tensors[i].name.count);
    gguf_free(builder);
    return names;
}

/* Whether the graph is another sound one without the tensor. */
static int may_be_absent(const char *architecture, const char *name)
{
    int optional_bias =
        strcmp(architecture, "glm4moe") == 0 && strstr(name, "attn_") && strstr(name, ".bias");
    int selection =
        strstr(name, "exp_probs_b") != NULL &&
        (strcmp(architecture, "ernie4_5-moe") == 0 || strcmp(architecture, "bailingmoe2") == 0);
    return strcmp(name, "output.weight") == 0 || optional_bias || selection;
}

static void missing_tensors(void **state)
{
    (void)state;
    for (int a = 0; a < ARCHITECTURES; a++) {
        uint64_t count;
        char(*names)[64] = tensor_names(architectures[a], &count);
        for (uint64_t i = 0; i < count; i++) {
            gguf_builder *builder = gguf_model(architectures[a]);
            char text[128];
            gguf_remove_tensor(builder, names[i]);
            if (may_be_absent(architectures[a], names[i])) {
                gguf_free(builder);
                continue;
            }
            snprintf(text, sizeof text, "tensor %.6s%s is missing", names[i],
                     strstr(names[i], "attn_qkv") ? "attn_q.weight" : names[i] + 6);
            expect_model_refused(builder, STRATA_ERR_FORMAT, text);
        }
        free(names);
    }
}

static void misshapen_tensors(void **state)
{
    (void)state;
    for (int a = 0; a < ARCHITECTURES; a++) {
        uint64_t count;
        char(*names)[64] = tensor_names(architectures[a], &count);
        for (uint64_t i = 0; i < count; i++) {
            char text[128];
            gguf_builder *builder = gguf_model(architectures[a]);
            gguf_tensor *old = gguf_find(builder, names[i]);
            snprintf(text, sizeof text, "tensor %s: expected shape [", names[i]);
            gguf_add(builder, names[i], 0, old->shape[0] + 32, old->shape[1], old->shape[2]);
            expect_model_refused(builder, STRATA_ERR_FORMAT, text);
            builder = gguf_model(architectures[a]);
            old = gguf_find(builder, names[i]);
            gguf_add(builder, names[i], 0, old->shape[0], (old->shape[1] ? old->shape[1] : 1) + 1,
                     old->shape[2]);
            expect_model_refused(builder, STRATA_ERR_FORMAT, text);
            builder = gguf_model(architectures[a]);
            old = gguf_find(builder, names[i]);
            gguf_add(builder, names[i], 0, old->shape[0], old->shape[1] ? old->shape[1] : 1,
                     (old->shape[2] ? old->shape[2] : 1) + 1);
            expect_model_refused(builder, STRATA_ERR_FORMAT, text);
        }
        free(names);
    }
}

static void a_fourth_dimension(void **state)
{
    gguf_builder *builder = gguf_model("qwen3moe");
    gguf_tensor *tensor = gguf_add(builder, "blk.0.ffn_up_exps.weight", 0, 64, 32, 4);
    (void)state;
    tensor->dimensions = 4;
    tensor->shape[3] = 2;
    tensor->bytes *= 2;
    expect_model_refused(builder, STRATA_ERR_FORMAT,
                         "expected shape [64, 32, 4], found [64, 32, 4, 2]");
}

/* A bias that the graph has no place for would be left out without a word. */
static void tensors_without_a_place(void **state)
{
    static const struct {
        const char *architecture;
        const char *name;
        uint64_t shape[3];
    } cases[] = {
        {"qwen3moe", "blk.0.ffn_gate_inp.bias", {4}},
        {"qwen3moe", "blk.1.ffn_up_exps.bias", {32, 4}},
        {"qwen3moe", "blk.0.attn_sinks.weight", {2}},
        {"qwen3moe", "blk.0.attn_q.scale", {1}},
        {"qwen3moe", "blk.0.ffn_gate_shexp.weight", {64, 32}},
        {"qwen3moe", "blk.2.attn_norm.weight", {64}},
        {"qwen3moe", "blk.0.exp_probs_b.bias", {4}},
        {"qwen3moe", "output.bias", {16}},
        {"qwen3moe", "rope_freqs.weight", {16}},
        {"olmoe", "blk.0.attn_q.bias", {64}},
        {"llama", "blk.0.attn_q_norm.weight", {32}},
        {"hunyuan-moe", "blk.0.ffn_gate_inp_shexp.weight", {64}},
        {"minimax-m2", "blk.x.attn_norm.weight", {64}},
        {"minimax-m2", "blk.99999999999.attn_norm.weight", {64}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gguf_builder *builder = gguf_model(cases[i].architecture);
        char text[128];
        gguf_add(builder, cases[i].name, 0, cases[i].shape[0], cases[i].shape[1],
                 cases[i].shape[2]);
        snprintf(text, sizeof text, "tensor %s has no place", cases[i].name);
        expect_model_refused(builder, STRATA_ERR_UNSUPPORTED, text);
    }
}

static void known_types_that_are_not_decoded(void **state)
{
    gguf_builder *builder = gguf_model("qwen3moe");
    (void)state;
    gguf_add(builder, "blk.0.attn_k.weight", 34, 64, 32, 0);
    expect_model_refused(builder, STRATA_ERR_UNSUPPORTED,
                         "tensor blk.0.attn_k.weight has type 34 (TQ1_0), which is not decoded");
    builder = gguf_model("qwen3moe");
    gguf_add(builder, "blk.0.attn_norm.weight", 8, 64, 0, 0);
    expect_model_refused(builder, STRATA_ERR_UNSUPPORTED,
                         "blk.0.attn_norm.weight: expected F32, F16 or BF16, found Q8_0");
}

static void one_norm_without_the_other(void **state)
{
    gguf_builder *builder = gguf_model("glm4moe");
    (void)state;
    gguf_remove_tensor(builder, "blk.0.attn_k_norm.weight");
    expect_model_refused(builder, STRATA_ERR_FORMAT, "blk.0.attn_k_norm.weight is missing");
    builder = gguf_model("glm4moe");
    gguf_remove_tensor(builder, "blk.0.attn_q_norm.weight");
    expect_model_refused(builder, STRATA_ERR_FORMAT, "blk.0.attn_q_norm.weight is missing");
}

static void one_tensor_per_expert(void **state)
{
    gguf_builder *builder = gguf_model("llama");
    (void)state;
    gguf_remove_tensor(builder, "blk.0.ffn_gate_exps.weight");
    gguf_add(builder, "blk.0.ffn_gate.0.weight", 0, 64, 32, 0);
    expect_model_refused(builder, STRATA_ERR_UNSUPPORTED, "one tensor per expert");
}

static void fused_experts_with_biases(void **state)
{
    gguf_builder *builder = gguf_model("gpt-oss");
    (void)state;
    gguf_add(builder, "blk.1.ffn_gate_up_exps.weight", 0, 64, 64, 4);
    expect_model_refused(builder, STRATA_ERR_UNSUPPORTED,
                         "blk.1.ffn_gate_up_exps.weight: fused experts are not run with biases");
}

static void bad_frequency_factors(void **state)
{
    static const float bad[] = {0, -1, INFINITY};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        gguf_builder *builder = gguf_model("llama");
        gguf_add(builder, "rope_freqs.weight", 0, 16, 0, 0)->fill = bad[i];
        expect_model_refused(builder, STRATA_ERR_FORMAT, "tensor rope_freqs.weight: value 0 is");
    }
}

/* Rows of float32 that are not aligned cannot be read in place, and are no small thing to copy. */
static void unaligned_rows(void **state)
{
    gguf_builder *builder = gguf_model("qwen3moe");
    strata_context *context = test_context();
    const strata__geometry *geometry;
    const strata__layer *layers;
    strata__pack *pack = NULL;
    uint64_t bytes;
    uint8_t *image = gguf_image(builder, &bytes, NULL);
    uint8_t *shifted = malloc(bytes + 1);
    (void)state;
    memcpy(shifted + 1, image, bytes);
    assert_int_equal(strata__pack_open_memory(context, shifted + 1, bytes, &pack), STRATA_OK);
    assert_int_equal(strata__pack_model(pack, &geometry, &layers), STRATA_ERR_MISALIGNED);
    assert_text("is not aligned to 4 bytes");
    strata__pack_release(pack);
    strata__context_release(context);
    free(shifted);
    free(image);
    gguf_free(builder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(missing_tensors),
        cmocka_unit_test(misshapen_tensors),
        cmocka_unit_test(a_fourth_dimension),
        cmocka_unit_test(tensors_without_a_place),
        cmocka_unit_test(known_types_that_are_not_decoded),
        cmocka_unit_test(one_norm_without_the_other),
        cmocka_unit_test(one_tensor_per_expert),
        cmocka_unit_test(fused_experts_with_biases),
        cmocka_unit_test(bad_frequency_factors),
        cmocka_unit_test(unaligned_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
