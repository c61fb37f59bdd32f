/* SPDX-License-Identifier: MIT */
/*
 * Keys that a model cannot be run with: the text names the key, what is expected and what is found.
 */
#include <math.h>

#include "pack_test.h"

static const uint32_t absent = 0xfffffffe;

/* A u32 key set to a value (or removed), and the text of the refusal. */
static const struct {
    const char *architecture;
    const char *key;
    uint32_t value;
    strata_status status;
    const char *text;
} integer_cases[] = {
    {"qwen3moe", "qwen3moe.block_count", 0, STRATA_ERR_FORMAT,
     "key qwen3moe.block_count: expected 1 to 512, found 0"},
    {"qwen3moe", "qwen3moe.block_count", 513, STRATA_ERR_FORMAT, "expected 1 to 512, found 513"},
    {"qwen3moe", "qwen3moe.block_count", 0x80000000, STRATA_ERR_FORMAT, "found 2147483648"},
    {"qwen3moe", "qwen3moe.block_count", absent, STRATA_ERR_FORMAT,
     "key qwen3moe.block_count is missing"},
    {"qwen3moe", "qwen3moe.block_count", 3, STRATA_ERR_FORMAT,
     "tensor blk.2.attn_norm.weight is missing"},
    {"qwen3moe", "qwen3moe.block_count", 1, STRATA_ERR_UNSUPPORTED,
     "tensor blk.1.attn_norm.weight has no place"},
    {"qwen3moe", "qwen3moe.embedding_length", 0, STRATA_ERR_FORMAT, "embedding_length: expected 1"},
    {"qwen3moe", "qwen3moe.embedding_length", 128, STRATA_ERR_FORMAT,
     "tensor blk.0.attn_norm.weight: expected shape [128, 1, 1], found [64, 1, 1, 1]"},
    {"qwen3moe", "qwen3moe.embedding_length", absent, STRATA_ERR_FORMAT, "is missing"},
    {"qwen3moe", "qwen3moe.context_length", 0, STRATA_ERR_FORMAT, "context_length: expected 1"},
    {"qwen3moe", "qwen3moe.context_length", absent, STRATA_ERR_FORMAT, "context_length is missing"},
    {"qwen3moe", "qwen3moe.nextn_predict_layers", 2, STRATA_ERR_FORMAT,
     "nextn_predict_layers: expected 0 to 1, found 2"},
    {"qwen3moe", "qwen3moe.attention.head_count", 0, STRATA_ERR_FORMAT,
     "attention.head_count: expected 1 to 4096, found 0"},
    {"qwen3moe", "qwen3moe.attention.head_count", 5000, STRATA_ERR_FORMAT, "found 5000"},
    {"qwen3moe", "qwen3moe.attention.head_count", absent, STRATA_ERR_FORMAT, "is missing"},
    {"qwen3moe", "qwen3moe.attention.head_count", 4, STRATA_ERR_FORMAT,
     "tensor blk.0.attn_q.weight: expected shape [64, 128, 1]"},
    {"qwen3moe", "qwen3moe.attention.head_count_kv", 0, STRATA_ERR_FORMAT,
     "attention.head_count_kv: expected 1"},
    {"qwen3moe", "qwen3moe.attention.head_count_kv", 3, STRATA_ERR_FORMAT,
     "layer 0: key qwen3moe.attention.head_count: 2 is no multiple of attention.head_count_kv 3"},
    {"qwen3moe", "qwen3moe.attention.key_length", 0, STRATA_ERR_FORMAT,
     "attention.key_length: expected 1 to 4096"},
    {"qwen3moe", "qwen3moe.attention.key_length", 31, STRATA_ERR_UNSUPPORTED,
     "attention.value_length: expected the key length 31, found 32"},
    {"qwen3moe", "qwen3moe.attention.value_length", 64, STRATA_ERR_UNSUPPORTED,
     "expected the key length 32, found 64"},
    {"qwen3moe", "qwen3moe.rope.dimension_count", 31, STRATA_ERR_FORMAT,
     "rope.dimension_count: 31 is not even"},
    {"qwen3moe", "qwen3moe.rope.dimension_count", 34, STRATA_ERR_FORMAT,
     "rope.dimension_count: expected 2 to 32, found 34"},
    {"qwen3moe", "qwen3moe.rope.dimension_count", 0, STRATA_ERR_FORMAT,
     "expected 2 to 32, found 0"},
    {"qwen3moe", "qwen3moe.expert_count", 0, STRATA_ERR_FORMAT,
     "key qwen3moe.expert_count: expected 1 to 1024, found 0"},
    {"qwen3moe", "qwen3moe.expert_count", 1000000, STRATA_ERR_FORMAT, "found 1000000"},
    {"qwen3moe", "qwen3moe.expert_count", absent, STRATA_ERR_FORMAT, "expert_count is missing"},
    {"qwen3moe", "qwen3moe.expert_count", 8, STRATA_ERR_FORMAT,
     "tensor blk.0.ffn_gate_inp.weight: expected shape [64, 8, 1]"},
    {"qwen3moe", "qwen3moe.expert_used_count", 0, STRATA_ERR_FORMAT,
     "expert_used_count: expected 1 to 4, found 0"},
    {"qwen3moe", "qwen3moe.expert_used_count", 5, STRATA_ERR_FORMAT, "expected 1 to 4, found 5"},
    {"qwen3moe", "qwen3moe.expert_used_count", absent, STRATA_ERR_FORMAT, "is missing"},
    {"qwen3moe", "qwen3moe.expert_gating_func", 2, STRATA_ERR_FORMAT,
     "expert_gating_func: expected 1 to 1, found 2"},
    {"glm4moe", "glm4moe.expert_gating_func", 4, STRATA_ERR_FORMAT,
     "expert_gating_func: expected 1 to 3, found 4"},
    {"qwen3moe", "qwen3moe.expert_feed_forward_length", 0, STRATA_ERR_FORMAT,
     "expert_feed_forward_length: expected 1"},
    {"qwen3moe", "qwen3moe.expert_feed_forward_length", 64, STRATA_ERR_FORMAT,
     "tensor blk.0.ffn_gate_exps.weight: expected shape [64, 64, 4], found [64, 32, 4, 1]"},
    {"qwen2moe", "qwen2moe.expert_shared_feed_forward_length", 0, STRATA_ERR_FORMAT,
     "expert_shared_feed_forward_length is missing"},
    {"hunyuan-moe", "hunyuan-moe.expert_shared_feed_forward_length", 64, STRATA_ERR_FORMAT,
     "tensor blk.0.ffn_gate_shexp.weight: expected shape [64, 64, 1]"},
    {"granitemoe", "granitemoe.expert_shared_feed_forward_length", absent, STRATA_ERR_UNSUPPORTED,
     "tensor blk.0.ffn_gate_shexp.weight has no place in the granitemoe architecture"},
    {"glm4moe", "glm4moe.leading_dense_block_count", 2, STRATA_ERR_FORMAT,
     "leading_dense_block_count: expected 0 to 1, found 2"},
    {"glm4moe", "glm4moe.leading_dense_block_count", 0, STRATA_ERR_FORMAT,
     "tensor blk.0.ffn_gate_inp.weight is missing"},
    {"ernie4_5-moe", "ernie4_5-moe.interleave_moe_layer_step", 0, STRATA_ERR_FORMAT,
     "interleave_moe_layer_step: expected 1"},
    {"ernie4_5-moe", "ernie4_5-moe.feed_forward_length", absent, STRATA_ERR_FORMAT,
     "feed_forward_length is missing"},
    {"bailingmoe2", "bailingmoe2.expert_group_count", 3, STRATA_ERR_FORMAT,
     "expert_group_count: 3 groups of at least two do not divide 4 experts"},
    {"bailingmoe2", "bailingmoe2.expert_group_count", 4, STRATA_ERR_FORMAT, "of at least two"},
    {"bailingmoe2", "bailingmoe2.expert_group_count", 2, STRATA_ERR_FORMAT,
     "expert_group_used_count is missing"},
    {"gpt-oss", "gpt-oss.attention.sliding_window", absent, STRATA_ERR_FORMAT,
     "attention.sliding_window is missing"},
};

static void integers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof integer_cases / sizeof integer_cases[0]; i++) {
        gguf_builder *builder = gguf_model(integer_cases[i].architecture);
        if (integer_cases[i].value == absent)
            gguf_remove(builder, integer_cases[i].key);
        else
            gguf_u32(builder, integer_cases[i].key, integer_cases[i].value);
        expect_model_refused(builder, integer_cases[i].status, integer_cases[i].text);
    }
}

static const struct {
    const char *architecture;
    const char *key;
    float value;
    strata_status status;
} float_cases[] = {
    {"qwen3moe", "qwen3moe.attention.layer_norm_rms_epsilon", 0, STRATA_ERR_FORMAT},
    {"qwen3moe", "qwen3moe.attention.layer_norm_rms_epsilon", -1e-6f, STRATA_ERR_FORMAT},
    {"qwen3moe", "qwen3moe.attention.layer_norm_rms_epsilon", NAN, STRATA_ERR_FORMAT},
    {"qwen3moe", "qwen3moe.attention.layer_norm_rms_epsilon", INFINITY, STRATA_ERR_FORMAT},
    {"qwen3moe", "qwen3moe.rope.freq_base", 0, STRATA_ERR_FORMAT},
    {"qwen3moe", "qwen3moe.rope.freq_base", NAN, STRATA_ERR_FORMAT},
    {"qwen3moe", "qwen3moe.rope.freq_base", INFINITY, STRATA_ERR_FORMAT},
    {"qwen3moe", "qwen3moe.rope.freq_base", -10000, STRATA_ERR_FORMAT},
    {"qwen3moe", "qwen3moe.rope.scaling.factor", NAN, STRATA_ERR_FORMAT},
    {"qwen3moe", "qwen3moe.rope.scaling.factor", -2, STRATA_ERR_FORMAT},
    {"qwen3moe", "qwen3moe.rope.scaling.attn_factor", 0, STRATA_ERR_FORMAT},
    {"qwen3moe", "qwen3moe.attention.clamp_kqv", 8, STRATA_ERR_UNSUPPORTED},
    {"glm4moe", "glm4moe.expert_weights_scale", NAN, STRATA_ERR_FORMAT},
    {"glm4moe", "glm4moe.expert_weights_scale", -1, STRATA_ERR_FORMAT},
    {"granitemoe", "granitemoe.embedding_scale", NAN, STRATA_ERR_FORMAT},
    {"granitemoe", "granitemoe.residual_scale", INFINITY, STRATA_ERR_FORMAT},
    {"granitemoe", "granitemoe.logit_scale", -2, STRATA_ERR_FORMAT},
    {"granitemoe", "granitemoe.attention.scale", NAN, STRATA_ERR_FORMAT},
};

static void floats(void **state)
{
    /* Values that only float64 tells from the bound. */
    static const double close[] = {1 + 1e-12, 1e-300};
    static const char *const keys[] = {"qwen3moe.rope.freq_base",
                                       "qwen3moe.attention.layer_norm_rms_epsilon"};
    (void)state;
    for (size_t i = 0; i < sizeof float_cases / sizeof float_cases[0]; i++) {
        gguf_builder *builder = gguf_model(float_cases[i].architecture);
        gguf_f32(builder, float_cases[i].key, float_cases[i].value);
        expect_model_refused(builder, float_cases[i].status, float_cases[i].key);
    }
    for (int i = 0; i < 2; i++) {
        gguf_builder *builder = gguf_model("qwen3moe");
        gguf_raw(builder, keys[i], 12, &close[i], sizeof close[i]);
        expect_model_refused(builder, STRATA_ERR_FORMAT, keys[i]);
    }
}

/* The key is there, of a type that cannot be meant. */
static void types(void **state)
{
    static const char *const keys[] = {
        "block_count",  "embedding_length",  "attention.head_count",       "attention.key_length",
        "expert_count", "expert_used_count", "expert_feed_forward_length", "rope.dimension_count"};
    char key[128];
    gguf_builder *builder;
    (void)state;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        snprintf(key, sizeof key, "qwen3moe.%s", keys[i]);
        builder = gguf_model("qwen3moe");
        gguf_f32(builder, key, 2);
        expect_model_refused(builder, STRATA_ERR_FORMAT, "expected an integer, found f32");
        builder = gguf_model("qwen3moe");
        gguf_string(builder, key, "2");
        expect_model_refused(builder, STRATA_ERR_FORMAT, "expected an integer, found string");
    }
    builder = gguf_model("qwen3moe");
    gguf_u32(builder, "qwen3moe.attention.layer_norm_rms_epsilon", 1);
    expect_model_refused(builder, STRATA_ERR_FORMAT, "expected a float, found u32");
    builder = gguf_model("qwen3moe");
    gguf_remove(builder, "qwen3moe.attention.layer_norm_rms_epsilon");
    expect_model_refused(builder, STRATA_ERR_FORMAT, "layer_norm_rms_epsilon is missing");
    builder = gguf_model("glm4moe");
    gguf_f32(builder, "glm4moe.expert_weights_norm", 1);
    expect_model_refused(builder, STRATA_ERR_FORMAT, "expected a bool, found f32");
    builder = gguf_model("qwen3moe");
    gguf_u32(builder, "qwen3moe.rope.scaling.type", 1);
    expect_model_refused(builder, STRATA_ERR_FORMAT, "expected a string, found u32");
}

static void rope_scaling(void **state)
{
    gguf_builder *builder = gguf_model("qwen3moe");
    (void)state;
    gguf_string(builder, "qwen3moe.rope.scaling.type", "longrope");
    expect_model_refused(builder, STRATA_ERR_UNSUPPORTED, "rope.scaling.type is \"longrope\"");
    builder = gguf_model("qwen3moe");
    gguf_string(builder, "qwen3moe.rope.scaling.type", "a text that is longer than any known type");
    expect_model_refused(builder, STRATA_ERR_FORMAT, "expected a text below 32 bytes");
    builder = gguf_model("qwen3moe");
    gguf_string(builder, "qwen3moe.rope.scaling.type", "yarn");
    expect_model_refused(builder, STRATA_ERR_FORMAT, "rope.scaling.factor is missing");
    builder = gguf_model("qwen3moe");
    gguf_string(builder, "qwen3moe.rope.scaling.type", "yarn");
    gguf_f32(builder, "qwen3moe.rope.scaling.factor", 4);
    gguf_f32(builder, "qwen3moe.rope.scaling.yarn_log_multiplier", 0.1f);
    expect_model_refused(builder, STRATA_ERR_UNSUPPORTED, "yarn_log_multiplier is 0.1");
    builder = gguf_model("qwen3moe");
    gguf_string(builder, "qwen3moe.rope.scaling.type", "yarn");
    gguf_f32(builder, "qwen3moe.rope.scaling.factor", 4);
    gguf_u32(builder, "qwen3moe.rope.scaling.original_context_length", 0);
    expect_model_refused(builder, STRATA_ERR_FORMAT, "original_context_length: expected 1");
}

static void groups(void **state)
{
    gguf_builder *builder = gguf_model("bailingmoe2");
    (void)state;
    gguf_u32(builder, "bailingmoe2.expert_group_count", 2);
    gguf_u32(builder, "bailingmoe2.expert_group_used_count", 3);
    expect_model_refused(builder, STRATA_ERR_FORMAT, "expert_group_used_count: expected 1 to 2");
    builder = gguf_model("bailingmoe2");
    gguf_u32(builder, "bailingmoe2.expert_used_count", 3);
    gguf_u32(builder, "bailingmoe2.expert_group_count", 2);
    gguf_u32(builder, "bailingmoe2.expert_group_used_count", 1);
    expect_model_refused(builder, STRATA_ERR_FORMAT, "1 groups of 2 experts are fewer than the 3");
}

static void groups_that_do_not_divide(void **state)
{
    gguf_builder *builder = gguf_model("bailingmoe2");
    (void)state;
    gguf_u32(builder, "bailingmoe2.expert_count", 7);
    gguf_u32(builder, "bailingmoe2.expert_group_count", 3);
    gguf_u32(builder, "bailingmoe2.expert_group_used_count", 1);
    expect_model_refused(builder, STRATA_ERR_FORMAT, "do not divide 7 experts");
}

static void no_width_of_experts(void **state)
{
    gguf_builder *builder = gguf_model("olmoe");
    (void)state;
    gguf_remove(builder, "olmoe.feed_forward_length");
    gguf_remove(builder, "olmoe.expert_feed_forward_length");
    expect_model_refused(builder, STRATA_ERR_FORMAT, "key olmoe.feed_forward_length is missing");
}

static void per_layer_arrays(void **state)
{
    uint32_t heads[3] = {2, 3, 2};
    gguf_builder *builder = gguf_model("qwen3moe");
    (void)state;
    gguf_array(builder, "qwen3moe.attention.head_count", 4, heads, 3, 4);
    expect_model_refused(builder, STRATA_ERR_FORMAT,
                         "attention.head_count has 3 elements, the model has 2 blocks");
    builder = gguf_model("qwen3moe");
    gguf_array(builder, "qwen3moe.attention.head_count", 4, heads, 2, 4);
    expect_model_refused(builder, STRATA_ERR_FORMAT, "blk.1.attn_q.weight: expected shape [64, 96");
    builder = gguf_model("qwen3moe");
    heads[1] = 0;
    gguf_array(builder, "qwen3moe.attention.head_count", 4, heads, 2, 4);
    expect_model_refused(builder, STRATA_ERR_FORMAT, "expected 1 to 4096, found 0");
    builder = gguf_model("qwen3moe");
    gguf_array(builder, "qwen3moe.embedding_length", 4, heads, 2, 4);
    expect_model_refused(builder, STRATA_ERR_FORMAT, "expected an integer, found an array of u32");
    builder = gguf_model("qwen3moe");
    gguf_array(builder, "qwen3moe.attention.head_count", 6, heads, 2, 4);
    expect_model_refused(builder, STRATA_ERR_FORMAT, "expected an integer, found an array of f32");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers),
        cmocka_unit_test(floats),
        cmocka_unit_test(types),
        cmocka_unit_test(rope_scaling),
        cmocka_unit_test(groups),
        cmocka_unit_test(groups_that_do_not_divide),
        cmocka_unit_test(no_width_of_experts),
        cmocka_unit_test(per_layer_arrays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
