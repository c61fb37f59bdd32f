/* SPDX-License-Identifier: MIT */
/* Grouped-query attention of one layer. */
#include <math.h>
#include <stdio.h>

#include "base/error.h"
#include "pack/architecture.h"

enum { MAX_HEADS = 4096, MAX_HEAD_SIZE = 4096 };

static strata_status read_heads(const strata__model *model, strata__layer *layer)
{
    static const strata__key heads = {"attention.head_count", 1, MAX_HEADS, true};
    static const strata__key kv_heads = {"attention.head_count_kv", 1, MAX_HEADS, false};
    strata_status status = strata__model_uint(model, &heads, (int32_t)model->layer, &layer->heads);
    layer->kv_heads = layer->heads;
    if (status == STRATA_OK)
        status = strata__model_uint(model, &kv_heads, (int32_t)model->layer, &layer->kv_heads);
    if (status == STRATA_OK && layer->heads % layer->kv_heads)
        return strata__fail(STRATA_ERR_FORMAT,
                            "layer %" PRIu32 ": key %s.attention.head_count: %" PRIu32
                            " is no multiple of attention.head_count_kv %" PRIu32,
                            model->layer, model->architecture->name, layer->heads, layer->kv_heads);
    return status;
}

static strata_status read_head_size(const strata__model *model, strata__layer *layer)
{
    static const strata__key key = {"attention.key_length", 1, MAX_HEAD_SIZE, false};
    static const strata__key value = {"attention.value_length", 1, MAX_HEAD_SIZE, false};
    const char *name = model->architecture->name;
    uint32_t width = model->geometry->width, value_size;
    strata_status status;
    layer->head_size = 0;
    status = strata__model_uint(model, &key, STRATA__NO_LAYER, &layer->head_size);
    if (status != STRATA_OK)
        return status;
    if (layer->head_size == 0 && width % layer->heads)
        return strata__fail(STRATA_ERR_FORMAT,
                            "key %s.embedding_length: %" PRIu32 " is no multiple of the %" PRIu32
                            " heads of layer %" PRIu32,
                            name, width, layer->heads, model->layer);
    if (layer->head_size == 0)
        layer->head_size = width / layer->heads;
    value_size = layer->head_size;
    status = strata__model_uint(model, &value, STRATA__NO_LAYER, &value_size);
    if (status == STRATA_OK && value_size != layer->head_size)
        return strata__fail(STRATA_ERR_UNSUPPORTED,
                            "key %s.attention.value_length: expected the key "
                            "length %" PRIu32 ", found %" PRIu32,
                            name, layer->head_size, value_size);
    if (status == STRATA_OK && (layer->head_size % 2 || layer->head_size > MAX_HEAD_SIZE))
        return strata__fail(STRATA_ERR_FORMAT,
                            "key %s.attention.key_length: a head size of %" PRIu32
                            " is not even or above %d",
                            name, layer->head_size, MAX_HEAD_SIZE);
    return status;
}

/* One rotary table serves all layers, so they rotate the same width. */
static strata_status read_rope(strata__model *model, strata__layer *layer)
{
    strata__key key = {"rope.dimension_count", 2, layer->head_size, false};
    uint32_t width = layer->head_size;
    strata_status status = strata__model_uint(model, &key, (int32_t)model->layer, &width);
    if (status == STRATA_OK && width % 2)
        return strata__fail(STRATA_ERR_FORMAT,
                            "key %s.rope.dimension_count: %" PRIu32 " is not even",
                            model->architecture->name, width);
    if (status == STRATA_OK && model->rope_width == 0) {
        model->rope_width = width;
        status = strata__rope_build(model);
    }
    if (status == STRATA_OK && model->rope_width != width)
        return strata__fail(STRATA_ERR_UNSUPPORTED,
                            "layer %" PRIu32 " rotates %" PRIu32
                            " values of a head, the first %" PRIu32,
                            model->layer, width, model->rope_width);
    layer->rope_style = model->rope_style;
    layer->rope_width = layer->rope_style == STRATA__ROPE_NONE ? 0 : width;
    layer->rope_magnitude = model->rope_magnitude;
    layer->attention_scale = model->attention_scale != 0
                                 ? model->attention_scale
                                 : (float)(1 / sqrt((double)layer->head_size));
    return status;
}

static strata_status read_window(const strata__model *model, strata__layer *layer)
{
    static const strata__key size = {"attention.sliding_window", 0, INT32_MAX, true};
    static const strata__key pattern = {"attention.sliding_window_pattern", 0, 1 << 16, false};
    uint32_t period = model->architecture->window_period, window;
    strata__value value;
    char key[128];
    strata_status status;
    if (period == 0)
        return STRATA_OK;
    status = strata__model_uint(model, &size, STRATA__NO_LAYER, &window);
    if (status == STRATA_OK)
        status = strata__model_uint(model, &pattern, (int32_t)model->layer, &period);
    if (status != STRATA_OK)
        return status;
    snprintf(key, sizeof key, "%s.%s", model->architecture->name, pattern.suffix);
    if (strata__pack_value_find(model->pack, key, &value) && value.type == STRATA__VALUE_ARRAY)
        layer->window = period ? window : 0; /* one flag per block */
    else
        layer->window = period == 0 || model->layer % period + 1 < period ? window : 0;
    return STRATA_OK;
}

static strata_status load_qkv(strata__model *model, strata__layer *layer)
{
    uint32_t d = model->geometry->width, bias = model->architecture->qkv_bias;
    uint32_t q = layer->heads * layer->head_size, kv = layer->kv_heads * layer->head_size;
    int32_t number = (int32_t)model->layer;
    strata__projection_want fused = {"attn_qkv", d, q + 2 * kv, 0, STRATA__REQUIRED, bias};
    strata__projection_want want = {"attn_q", d, q, 0, STRATA__REQUIRED, bias};
    strata__projection whole;
    strata_status status;
    if (!strata__model_has(model, number, "attn_q.weight") &&
        strata__model_has(model, number, "attn_qkv.weight")) {
        status = strata__model_projection(model, number, &fused, &whole);
        if (status != STRATA_OK)
            return status;
        strata__projection_rows(&whole, 0, 0, q, &layer->q);
        strata__projection_rows(&whole, 0, q, kv, &layer->k);
        strata__projection_rows(&whole, 0, q + kv, kv, &layer->v);
        return STRATA_OK;
    }
    status = strata__model_projection(model, number, &want, &layer->q);
    want.outputs = kv;
    want.name = "attn_k";
    if (status == STRATA_OK)
        status = strata__model_projection(model, number, &want, &layer->k);
    want.name = "attn_v";
    if (status == STRATA_OK)
        status = strata__model_projection(model, number, &want, &layer->v);
    return status;
}

static strata_status load_qk_norm(strata__model *model, strata__layer *layer)
{
    const strata__architecture *facts = model->architecture;
    bool row = facts->qk_norm == STRATA__QK_NORM_ROW_BEFORE_ROPE;
    uint64_t q = row ? layer->heads * layer->head_size : layer->head_size;
    uint64_t k = row ? layer->kv_heads * layer->head_size : layer->head_size;
    strata__want q_norm = {"attn_q_norm.weight", {q, 1, 1}, facts->qk_norm_presence};
    strata__want k_norm = {"attn_k_norm.weight", {k, 1, 1}, facts->qk_norm_presence};
    strata_status status =
        strata__model_floats(model, (int32_t)model->layer, &q_norm, &layer->q_norm);
    if (layer->q_norm)
        k_norm.presence = STRATA__REQUIRED; /* one without the other is no norm */
    if (status == STRATA_OK)
        status = strata__model_floats(model, (int32_t)model->layer, &k_norm, &layer->k_norm);
    if (status == STRATA_OK && layer->k_norm && !layer->q_norm)
        return strata__fail(STRATA_ERR_FORMAT,
                            "tensor blk.%" PRIu32 ".attn_q_norm.weight is missing", model->layer);
    layer->qk_norm = layer->q_norm ? facts->qk_norm : STRATA__QK_NORM_NONE;
    return status;
}

static strata_status read_facts(strata__model *model, strata__layer *layer)
{
    strata_status status = read_heads(model, layer);
    layer->attention = STRATA__ATTENTION_GQA;
    if (status == STRATA_OK)
        status = read_head_size(model, layer);
    if (status == STRATA_OK)
        status = read_rope(model, layer);
    if (status == STRATA_OK)
        status = read_window(model, layer);
    return status;
}

strata_status strata__attention_load_gqa(strata__model *model, strata__layer *layer)
{
    const strata__architecture *facts = model->architecture;
    int32_t number = (int32_t)model->layer;
    uint32_t d = model->geometry->width;
    strata__want norm = {"attn_norm.weight", {d, 1, 1}, STRATA__REQUIRED};
    strata__want sinks = {"attn_sinks.weight", {0, 1, 1}, facts->sinks};
    strata__projection_want out = {
        "attn_output", 0, d, 0, STRATA__REQUIRED, facts->attention_out_bias};
    strata_status status = read_facts(model, layer);
    if (status == STRATA_OK)
        status = strata__model_floats(model, number, &norm, &layer->attention_norm);
    if (status == STRATA_OK)
        status = load_qkv(model, layer);
    if (status == STRATA_OK)
        status = load_qk_norm(model, layer);
    sinks.shape[0] = layer->heads;
    if (status == STRATA_OK)
        status = strata__model_floats(model, number, &sinks, &layer->sinks);
    out.inputs = layer->heads * layer->head_size;
    if (status == STRATA_OK)
        status = strata__model_projection(model, number, &out, &layer->attention_out);
    return status;
}
