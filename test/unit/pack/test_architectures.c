/* SPDX-License-Identifier: MIT */
/* What the model of each architecture is: facts from its table, keys and tensors. */
#include <math.h>

#include "pack_test.h"

typedef struct opened {
    strata__pack *pack;
    uint8_t *image;
    const strata__geometry *geometry;
    const strata__layer *layers;
} opened;

static opened open_model(gguf_builder *builder)
{
    opened result;
    memset(&result, 0, sizeof result);
    result.pack = open_file(builder, &result.image);
    if (strata__pack_model(result.pack, &result.geometry, &result.layers) != STRATA_OK)
        fail_msg("not runnable: %s", strata__error_text());
    return result;
}

static void close_model(opened *model)
{
    strata__pack_release(model->pack);
    free(model->image);
}

static void facts_of_every_architecture(void **state)
{
    static const struct {
        const char *name;
        uint32_t rope, qk_norm, gating, normalise, activation;
        uint32_t dense_layers;
        int shared, shared_gate, selection_bias, biases;
    } cases[] = {
        {"qwen3moe", STRATA__ROPE_NEOX, STRATA__QK_NORM_HEAD_BEFORE_ROPE, 1, 1, STRATA__ACT_SWIGLU,
         0, 0, 0, 0, 0},
        {"qwen2moe", STRATA__ROPE_NEOX, STRATA__QK_NORM_NONE, 1, 0, STRATA__ACT_SWIGLU, 0, 1, 1, 0,
         1},
        {"olmoe", STRATA__ROPE_NEOX, STRATA__QK_NORM_ROW_BEFORE_ROPE, 1, 0, STRATA__ACT_SWIGLU, 0,
         0, 0, 0, 0},
        {"llama", STRATA__ROPE_PAIRS, STRATA__QK_NORM_NONE, 1, 1, STRATA__ACT_SWIGLU, 0, 0, 0, 0,
         0},
        {"gpt-oss", STRATA__ROPE_NEOX, STRATA__QK_NORM_NONE, 3, 0, STRATA__ACT_SWIGLU_CLAMPED, 0, 0,
         0, 0, 2},
        {"glm4moe", STRATA__ROPE_NEOX, STRATA__QK_NORM_HEAD_BEFORE_ROPE, 2, 0, STRATA__ACT_SWIGLU,
         1, 1, 0, 1, 1},
        {"minimax-m2", STRATA__ROPE_NEOX, STRATA__QK_NORM_ROW_BEFORE_ROPE, 2, 1, STRATA__ACT_SWIGLU,
         0, 0, 0, 1, 0},
        {"granitemoe", STRATA__ROPE_PAIRS, STRATA__QK_NORM_NONE, 1, 1, STRATA__ACT_SWIGLU, 0, 1, 0,
         0, 0},
        {"hunyuan-moe", STRATA__ROPE_NEOX, STRATA__QK_NORM_HEAD_AFTER_ROPE, 1, 1,
         STRATA__ACT_SWIGLU, 0, 1, 0, 0, 0},
        {"ernie4_5-moe", STRATA__ROPE_PAIRS, STRATA__QK_NORM_NONE, 1, 1, STRATA__ACT_SWIGLU, 1, 1,
         0, 1, 0},
        {"bailingmoe2", STRATA__ROPE_NEOX, STRATA__QK_NORM_HEAD_BEFORE_ROPE, 2, 0,
         STRATA__ACT_SWIGLU, 1, 1, 0, 1, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        opened model = open_model(gguf_model(cases[i].name));
        const strata__layer *last = &model.layers[1];
        assert_string_equal(strata__pack_architecture(model.pack), cases[i].name);
        assert_int_equal(model.geometry->layers, 2);
        assert_int_equal(model.geometry->width, 64);
        assert_int_equal(model.geometry->vocabulary, 16);
        assert_int_equal(model.geometry->experts, 4);
        assert_int_equal(model.geometry->top_k, 2);
        assert_int_equal(model.geometry->gating, cases[i].gating);
        assert_int_equal(model.geometry->normalise_weights, cases[i].normalise);
        assert_int_equal(model.geometry->activation, cases[i].activation);
        assert_int_equal(model.geometry->residual_streams, 1);
        assert_int_equal(model.layers[0].ffn,
                         cases[i].dense_layers ? STRATA__FFN_DENSE : STRATA__FFN_EXPERTS);
        assert_int_equal(last->ffn, STRATA__FFN_EXPERTS);
        assert_int_equal(last->rope_style, cases[i].rope);
        assert_int_equal(last->qk_norm, cases[i].qk_norm);
        assert_int_equal(last->heads, 2);
        assert_int_equal(last->kv_heads, 1);
        assert_int_equal(last->head_size, 32);
        assert_int_equal(last->rope_width, 32);
        assert_true(last->attention_scale == (float)(1 / sqrt(32)));
        assert_int_equal(last->expert_width, 32);
        assert_int_equal(last->shared_width, cases[i].shared ? 32 : 0);
        assert_int_equal(last->shared_router.data != NULL, cases[i].shared_gate);
        assert_int_equal(last->selection_bias != NULL, cases[i].selection_bias);
        assert_int_equal(last->q.bias != NULL, cases[i].biases > 0);
        assert_int_equal(last->attention_out.bias != NULL, cases[i].biases == 2);
        assert_int_equal(last->router.bias != NULL, cases[i].biases == 2);
        assert_int_equal(last->expert_down.bias != NULL, cases[i].biases == 2);
        assert_int_equal(last->sinks != NULL, cases[i].biases == 2);
        assert_int_equal(last->window, 0);
        assert_int_equal(model.layers[0].window, cases[i].biases == 2 ? 16 : 0);
        assert_int_equal(last->expert_up.bytes, 64 * 32 * 4 * 4);
        assert_int_equal(last->expert_up.stride_bytes, 64 * 32 * 4);
        close_model(&model);
    }
}

static void bytes_add_up(void **state)
{
    uint64_t total = 0;
    opened model = open_model(gguf_model("gpt-oss"));
    (void)state;
    for (uint64_t i = 0; i < strata__pack_tensor_count(model.pack); i++)
        total += strata__pack_tensor(model.pack, i)->bytes;
    assert_int_equal(model.geometry->expert_bytes + model.geometry->dense_bytes, total);
    assert_int_equal(model.geometry->expert_bytes, 2 * 3 * 64 * 32 * 4 * 4);
    close_model(&model);
}

static void tied_output(void **state)
{
    gguf_builder *builder = gguf_model("qwen3moe");
    opened model;
    (void)state;
    gguf_remove_tensor(builder, "output.weight");
    model = open_model(builder);
    assert_ptr_equal(model.geometry->output.data, model.geometry->embedding.data);
    assert_int_equal(model.geometry->output.outputs, 16);
    close_model(&model);
}

static void fused_projections(void **state)
{
    gguf_builder *builder = gguf_model("bailingmoe2");
    const uint64_t row = 64 * sizeof(float);
    const strata__layer *layer;
    const uint8_t *data;
    opened model;
    (void)state;
    gguf_add(builder, "blk.0.attn_qkv.bias", 0, 128, 0, 0);
    model = open_model(builder);
    layer = &model.layers[0];
    data = strata__pack_tensor_find(model.pack, "blk.0.attn_qkv.weight")->data;
    assert_ptr_equal(layer->q.data, data);
    assert_ptr_equal(layer->k.data, data + 64 * row);
    assert_ptr_equal(layer->v.data, data + 96 * row);
    assert_int_equal(layer->q.outputs, 64);
    assert_int_equal(layer->k.outputs, 32);
    assert_int_equal(layer->v.bytes, 32 * row);
    assert_ptr_equal(layer->v.bias, layer->q.bias + 96);
    close_model(&model);
}

static void fused_experts(void **state)
{
    gguf_builder *builder = gguf_model("qwen3moe");
    const strata__layer *layer;
    const uint8_t *data;
    opened model;
    (void)state;
    gguf_remove_tensor(builder, "blk.1.ffn_gate_exps.weight");
    gguf_remove_tensor(builder, "blk.1.ffn_up_exps.weight");
    gguf_add(builder, "blk.1.ffn_gate_up_exps.weight", 8, 64, 64, 4);
    model = open_model(builder);
    layer = &model.layers[1];
    data = strata__pack_tensor_find(model.pack, "blk.1.ffn_gate_up_exps.weight")->data;
    assert_ptr_equal(layer->expert_gate.data, data);
    assert_ptr_equal(layer->expert_up.data, data + 32 * 68);
    assert_int_equal(layer->expert_gate.bytes, 4 * 32 * 68);
    assert_int_equal(layer->expert_gate.stride_bytes, 64 * 68);
    assert_int_equal(layer->expert_up.stride_bytes, 64 * 68);
    assert_int_equal(layer->expert_up.format, STRATA__Q8_0);
    assert_int_equal(model.geometry->expert_bytes,
                     4 * 64 * 68 + 4 * 64 * 32 * 4 + 3 * 4 * 64 * 32 * 4);
    close_model(&model);
}

/* Gate, up and down of a layer may all differ, and differ from layer to layer. */
static void formats_by_layer(void **state)
{
    gguf_builder *builder = gguf_model("qwen3moe");
    opened model;
    (void)state;
    gguf_add(builder, "blk.0.ffn_gate_exps.weight", 2, 64, 32, 4);
    gguf_add(builder, "blk.0.ffn_up_exps.weight", 42, 64, 32, 4);
    gguf_add(builder, "blk.0.ffn_down_exps.weight", 39, 32, 64, 4);
    model = open_model(builder);
    assert_int_equal(model.layers[0].expert_gate.format, STRATA__Q4_0);
    assert_int_equal(model.layers[0].expert_gate.stride_bytes, 32 * 36);
    assert_int_equal(model.layers[0].expert_up.format, STRATA__Q2_0);
    assert_int_equal(model.layers[0].expert_up.stride_bytes, 32 * 18);
    assert_int_equal(model.layers[0].expert_down.format, STRATA__MXFP4);
    assert_int_equal(model.layers[0].expert_down.stride_bytes, 64 * 17);
    assert_int_equal(model.layers[1].expert_gate.format, STRATA__F32);
    close_model(&model);
}

static void scalar_or_array_of_any_integer(void **state)
{
    int16_t heads[2] = {2, 2};
    int64_t kv_heads = 1;
    gguf_builder *builder = gguf_model("qwen3moe");
    opened model;
    (void)state;
    gguf_array(builder, "qwen3moe.attention.head_count", 3, heads, 2, sizeof heads[0]);
    gguf_raw(builder, "qwen3moe.attention.head_count_kv", 11, &kv_heads, sizeof kv_heads);
    gguf_raw(builder, "qwen3moe.expert_count", 0, "\4", 1);
    model = open_model(builder);
    assert_int_equal(model.layers[1].heads, 2);
    close_model(&model);
}

/* Each of the two keys does for the other. */
static void widths_under_either_key(void **state)
{
    static const char *const names[] = {"olmoe", "qwen3moe"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        gguf_builder *builder = gguf_model(names[i]);
        char key[64];
        opened model;
        snprintf(key, sizeof key, "%s.%sfeed_forward_length", names[i], i ? "expert_" : "");
        gguf_remove(builder, key);
        model = open_model(builder);
        assert_int_equal(model.layers[0].expert_width, 32);
        close_model(&model);
    }
}

/* Heads and expert widths that differ by layer. */
static void layers_that_differ(void **state)
{
    uint32_t heads[2] = {2, 4}, kv_heads[2] = {1, 2}, widths[2] = {32, 64};
    gguf_builder *builder = gguf_model("qwen3moe");
    opened model;
    (void)state;
    gguf_array(builder, "qwen3moe.attention.head_count", 4, heads, 2, 4);
    gguf_array(builder, "qwen3moe.attention.head_count_kv", 4, kv_heads, 2, 4);
    gguf_array(builder, "qwen3moe.expert_feed_forward_length", 4, widths, 2, 4);
    gguf_add(builder, "blk.1.attn_q.weight", 0, 64, 128, 0);
    gguf_add(builder, "blk.1.attn_k.weight", 0, 64, 64, 0);
    gguf_add(builder, "blk.1.attn_v.weight", 0, 64, 64, 0);
    gguf_add(builder, "blk.1.attn_output.weight", 0, 128, 64, 0);
    gguf_add(builder, "blk.1.ffn_gate_exps.weight", 0, 64, 64, 4);
    gguf_add(builder, "blk.1.ffn_up_exps.weight", 0, 64, 64, 4);
    gguf_add(builder, "blk.1.ffn_down_exps.weight", 0, 64, 64, 4);
    model = open_model(builder);
    assert_int_equal(model.layers[0].heads, 2);
    assert_int_equal(model.layers[1].heads, 4);
    assert_int_equal(model.layers[1].kv_heads, 2);
    assert_int_equal(model.layers[1].expert_width, 64);
    close_model(&model);
}

static void trailing_prediction_blocks_are_not_run(void **state)
{
    gguf_builder *builder = gguf_model("glm4moe");
    opened model;
    (void)state;
    gguf_u32(builder, "glm4moe.block_count", 3);
    gguf_u32(builder, "glm4moe.nextn_predict_layers", 1);
    gguf_add(builder, "blk.2.nextn.eh_proj.weight", 200, 128, 64, 0);
    model = open_model(builder);
    assert_int_equal(model.geometry->layers, 2);
    close_model(&model);
}

static void router_keys(void **state)
{
    gguf_builder *builder = gguf_model("bailingmoe2");
    opened model;
    (void)state;
    gguf_u32(builder, "bailingmoe2.expert_gating_func", 1);
    gguf_bool(builder, "bailingmoe2.expert_weights_norm", 1);
    gguf_f32(builder, "bailingmoe2.expert_weights_scale", 2.5f);
    gguf_u32(builder, "bailingmoe2.expert_group_count", 2);
    gguf_u32(builder, "bailingmoe2.expert_group_used_count", 1);
    model = open_model(builder);
    assert_int_equal(model.geometry->gating, STRATA__GATING_SOFTMAX);
    assert_int_equal(model.geometry->normalise_weights, 1);
    assert_true(model.geometry->expert_weight_scale == 2.5f);
    assert_int_equal(model.geometry->expert_groups, 2);
    assert_int_equal(model.geometry->expert_groups_used, 1);
    close_model(&model);
}

static void granite_scales(void **state)
{
    gguf_builder *builder = gguf_model("granitemoe");
    opened model;
    (void)state;
    gguf_f32(builder, "granitemoe.embedding_scale", 3);
    gguf_f32(builder, "granitemoe.residual_scale", 0.5f);
    gguf_f32(builder, "granitemoe.logit_scale", 4);
    gguf_f32(builder, "granitemoe.attention.scale", 0.125f);
    gguf_bool(builder, "granitemoe.rope.scaling.finetuned", 0);
    model = open_model(builder);
    assert_true(model.geometry->embedding_scale == 3);
    assert_true(model.geometry->residual_scale == 0.5f);
    assert_true(model.geometry->logit_scale == 0.25f);
    assert_true(model.layers[0].attention_scale == 0.125f);
    assert_int_equal(model.layers[0].rope_style, STRATA__ROPE_NONE);
    assert_int_equal(model.layers[0].rope_width, 0);
    close_model(&model);
    builder = gguf_model("granitemoe"); /* zero is as good as absent */
    gguf_f32(builder, "granitemoe.embedding_scale", 0);
    gguf_f32(builder, "granitemoe.logit_scale", 0);
    model = open_model(builder);
    assert_true(model.geometry->embedding_scale == 1);
    assert_true(model.geometry->logit_scale == 1);
    assert_int_equal(model.layers[0].rope_style, STRATA__ROPE_PAIRS);
    close_model(&model);
}

static void window_patterns(void **state)
{
    static const uint8_t flags[2] = {0, 1};
    gguf_builder *builder = gguf_model("gpt-oss");
    opened model;
    (void)state;
    gguf_array(builder, "gpt-oss.attention.sliding_window_pattern", 7, flags, 2, 1);
    model = open_model(builder);
    assert_int_equal(model.layers[0].window, 0);
    assert_int_equal(model.layers[1].window, 16);
    close_model(&model);
    builder = gguf_model("gpt-oss");
    gguf_u32(builder, "gpt-oss.attention.sliding_window_pattern", 3);
    model = open_model(builder);
    assert_int_equal(model.layers[0].window, 16);
    assert_int_equal(model.layers[1].window, 16);
    close_model(&model);
}

static void shared_width_from_the_count(void **state)
{
    gguf_builder *builder = gguf_model("glm4moe");
    opened model;
    (void)state;
    gguf_remove(builder, "glm4moe.expert_shared_feed_forward_length");
    gguf_u32(builder, "glm4moe.expert_shared_count", 1);
    model = open_model(builder);
    assert_int_equal(model.layers[1].shared_width, 32);
    close_model(&model);
}

static void interleaved_experts(void **state)
{
    gguf_builder *builder = gguf_model("ernie4_5-moe");
    opened model;
    (void)state;
    gguf_u32(builder, "ernie4_5-moe.leading_dense_block_count", 0);
    gguf_u32(builder, "ernie4_5-moe.interleave_moe_layer_step", 2);
    model = open_model(builder);
    assert_int_equal(model.layers[0].ffn, STRATA__FFN_DENSE);
    assert_int_equal(model.layers[1].ffn, STRATA__FFN_EXPERTS);
    close_model(&model);
}

static void narrow_norms_are_widened(void **state)
{
    static const uint16_t halves[4] = {0x3c00, 0xc000, 0x0001, 0x7bff};
    static const float values[4] = {1, -2, 0x1p-24f, 65504};
    gguf_builder *builder = gguf_model("qwen3moe");
    opened model;
    const strata__tensor *tensor;
    uint16_t *data;
    strata__pack *pack;
    strata_context *context = test_context();
    uint64_t bytes;
    (void)state;
    gguf_add(builder, "blk.0.attn_norm.weight", 1, 64, 0, 0);
    gguf_add(builder, "blk.0.ffn_norm.weight", 30, 64, 0, 0);
    model.image = gguf_image(builder, &bytes, NULL);
    assert_int_equal(strata__pack_open_memory(context, model.image, bytes, &pack), STRATA_OK);
    tensor = strata__pack_tensor_find(pack, "blk.0.attn_norm.weight");
    data = (uint16_t *)(uintptr_t)tensor->data;
    memcpy(data, halves, sizeof halves);
    tensor = strata__pack_tensor_find(pack, "blk.0.ffn_norm.weight");
    data = (uint16_t *)(uintptr_t)tensor->data;
    data[0] = 0x4049; /* 3.140625 in bfloat16 */
    strata__pack_release(pack);
    assert_int_equal(strata__pack_open_memory(context, model.image, bytes, &pack), STRATA_OK);
    assert_int_equal(strata__pack_model(pack, &model.geometry, &model.layers), STRATA_OK);
    for (int i = 0; i < 4; i++)
        assert_true(model.layers[0].attention_norm[i] == values[i]);
    assert_true(model.layers[0].ffn_norm[0] == 3.140625f);
    strata__pack_release(pack);
    strata__context_release(context);
    free(model.image);
    gguf_free(builder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(facts_of_every_architecture),
        cmocka_unit_test(bytes_add_up),
        cmocka_unit_test(tied_output),
        cmocka_unit_test(fused_projections),
        cmocka_unit_test(fused_experts),
        cmocka_unit_test(formats_by_layer),
        cmocka_unit_test(scalar_or_array_of_any_integer),
        cmocka_unit_test(widths_under_either_key),
        cmocka_unit_test(layers_that_differ),
        cmocka_unit_test(trailing_prediction_blocks_are_not_run),
        cmocka_unit_test(router_keys),
        cmocka_unit_test(granite_scales),
        cmocka_unit_test(window_patterns),
        cmocka_unit_test(shared_width_from_the_count),
        cmocka_unit_test(interleaved_experts),
        cmocka_unit_test(narrow_norms_are_widened),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
