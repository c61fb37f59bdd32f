/* SPDX-License-Identifier: MIT */
/* The feed-forward part of one layer: experts with their router and shared experts, or dense. */
#include <stddef.h>

#include "base/error.h"
#include "pack/architecture.h"

enum { MAX_FFN_WIDTH = 1 << 24 };

static bool has_experts(const strata__model *model)
{
    return model->layer >= model->leading_dense && (model->layer + 1) % model->expert_step == 0;
}

/* Three projections of one kind: gate, up {D, width} and down {width, D}. */
typedef struct triple {
    const char *gate, *up, *down;
    uint32_t width;
    uint32_t experts;
    uint32_t bias;
} triple;

static strata_status load_triple(strata__model *model, const triple *want,
                                 strata__projection *out_gate, strata__projection *out_up,
                                 strata__projection *out_down)
{
    uint32_t d = model->geometry->width;
    int32_t number = (int32_t)model->layer;
    strata__projection_want in = {want->gate,       d,         want->width, want->experts,
                                  STRATA__REQUIRED, want->bias};
    strata__projection_want down = {want->down,    want->width,      d,
                                    want->experts, STRATA__REQUIRED, want->bias};
    strata_status status = STRATA_OK;
    if (!out_gate->data) {
        status = strata__model_projection(model, number, &in, out_gate);
        in.name = want->up;
        if (status == STRATA_OK)
            status = strata__model_projection(model, number, &in, out_up);
    }
    if (status == STRATA_OK)
        status = strata__model_projection(model, number, &down, out_down);
    return status;
}

static strata_status load_dense(strata__model *model, strata__layer *layer)
{
    static const strata__key key = {"feed_forward_length", 1, MAX_FFN_WIDTH, true};
    triple want = {"ffn_gate", "ffn_up", "ffn_down", 0, 0, STRATA__NEVER};
    strata_status status =
        strata__model_uint(model, &key, (int32_t)model->layer, &layer->ffn_width);
    layer->ffn = STRATA__FFN_DENSE;
    want.width = layer->ffn_width;
    if (status == STRATA_OK)
        status = load_triple(model, &want, &layer->gate, &layer->up, &layer->down);
    return status;
}

static strata_status load_router(strata__model *model, strata__layer *layer)
{
    const strata__architecture *facts = model->architecture;
    uint32_t experts = model->geometry->experts;
    int32_t number = (int32_t)model->layer;
    strata__projection_want router = {"ffn_gate_inp",   model->geometry->width, experts, 0,
                                      STRATA__REQUIRED, facts->router_bias};
    strata__want bias = {"exp_probs_b.bias", {experts, 1, 1}, facts->selection_bias};
    strata_status status = strata__model_projection(model, number, &router, &layer->router);
    if (status == STRATA_OK)
        status = strata__model_floats(model, number, &bias, &layer->selection_bias);
    return status;
}

/* Fused experts hold their gate rows and then their up rows. */
static strata_status load_fused(strata__model *model, strata__layer *layer)
{
    uint32_t experts = model->geometry->experts, width = layer->expert_width;
    strata__projection_want want = {"ffn_gate_up_exps", model->geometry->width, 2 * width, experts,
                                    STRATA__REQUIRED,   STRATA__NEVER};
    strata__projection whole;
    strata_status status;
    if (model->architecture->expert_bias == STRATA__REQUIRED)
        return strata__fail(STRATA_ERR_UNSUPPORTED,
                            "tensor blk.%" PRIu32 ".ffn_gate_up_exps.weight: fused experts are not "
                            "run with biases, which %s has",
                            model->layer, model->architecture->name);
    status = strata__model_projection(model, (int32_t)model->layer, &want, &whole);
    if (status != STRATA_OK)
        return status;
    strata__projection_rows(&whole, experts, 0, width, &layer->expert_gate);
    strata__projection_rows(&whole, experts, width, width, &layer->expert_up);
    return STRATA_OK;
}

/* Some writers know only one of the two keys; without either the architecture's own is missing. */
static strata_status read_expert_width(const strata__model *model, strata__layer *layer)
{
    const char *own = model->architecture->expert_width;
    const strata__key keys[] = {
        {own, 1, MAX_FFN_WIDTH, false},
        {"expert_feed_forward_length", 1, MAX_FFN_WIDTH, false},
        {"feed_forward_length", 1, MAX_FFN_WIDTH, false},
        {own, 1, MAX_FFN_WIDTH, true},
    };
    strata_status status = STRATA_OK;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (status == STRATA_OK && layer->expert_width == 0)
            status =
                strata__model_uint(model, &keys[i], (int32_t)model->layer, &layer->expert_width);
    return status;
}

static strata_status load_experts(strata__model *model, strata__layer *layer)
{
    const strata__architecture *facts = model->architecture;
    uint32_t experts = model->geometry->experts;
    int32_t number = (int32_t)model->layer;
    triple want = {"ffn_gate_exps", "ffn_up_exps", "ffn_down_exps", 0, experts, facts->expert_bias};
    strata__want scale = {"ffn_down_exps.scale", {experts, 1, 1}, STRATA__OPTIONAL};
    strata_status status = read_expert_width(model, layer);
    layer->ffn = STRATA__FFN_EXPERTS;
    want.width = layer->expert_width;
    if (status != STRATA_OK)
        return status;
    if (strata__model_has(model, number, "ffn_gate.0.weight"))
        return strata__fail(STRATA_ERR_UNSUPPORTED,
                            "tensor blk.%" PRId32 ".ffn_gate.0.weight: files "
                            "with one tensor per expert are not read; convert the model again",
                            number);
    if (strata__model_has(model, number, "ffn_gate_up_exps.weight"))
        status = load_fused(model, layer);
    if (status == STRATA_OK)
        status =
            load_triple(model, &want, &layer->expert_gate, &layer->expert_up, &layer->expert_down);
    if (status == STRATA_OK)
        status = strata__model_floats(model, number, &scale, &layer->expert_scale);
    return status;
}

static strata_status read_shared_width(const strata__model *model, strata__layer *layer)
{
    static const strata__key width = {"expert_shared_feed_forward_length", 0, MAX_FFN_WIDTH, false};
    static const strata__key count = {"expert_shared_count", 0, 1024, false};
    uint32_t shared = 0;
    strata_status status =
        strata__model_uint(model, &width, (int32_t)model->layer, &layer->shared_width);
    if (status != STRATA_OK || layer->shared_width)
        return status;
    status = strata__model_uint(model, &count, (int32_t)model->layer, &shared);
    if (status == STRATA_OK && (uint64_t)shared * layer->expert_width > MAX_FFN_WIDTH)
        return strata__fail(STRATA_ERR_FORMAT,
                            "key %s.expert_shared_count: %" PRIu32 " experts of width %" PRIu32
                            " are more than %d values",
                            model->architecture->name, shared, layer->expert_width, MAX_FFN_WIDTH);
    layer->shared_width = shared * layer->expert_width;
    return status;
}

static strata_status load_shared(strata__model *model, strata__layer *layer)
{
    const strata__architecture *facts = model->architecture;
    triple want = {"ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp", 0, 0, STRATA__NEVER};
    strata__projection_want gate = {"ffn_gate_inp_shexp", model->geometry->width, 1, 0,
                                    facts->shared_router, STRATA__NEVER};
    strata_status status;
    if (facts->shared == STRATA__NEVER)
        return STRATA_OK;
    status = read_shared_width(model, layer);
    if (status == STRATA_OK && layer->shared_width == 0 && facts->shared == STRATA__REQUIRED)
        return strata__fail(STRATA_ERR_FORMAT,
                            "key %s.expert_shared_feed_forward_length is missing",
                            model->architecture->name);
    if (status != STRATA_OK || layer->shared_width == 0)
        return status;
    want.width = layer->shared_width;
    status = load_triple(model, &want, &layer->shared_gate, &layer->shared_up, &layer->shared_down);
    if (status == STRATA_OK)
        status =
            strata__model_projection(model, (int32_t)model->layer, &gate, &layer->shared_router);
    return status;
}

strata_status strata__ffn_load_experts(strata__model *model, strata__layer *layer)
{
    strata__want norm = {
        model->architecture->ffn_norm, {model->geometry->width, 1, 1}, STRATA__REQUIRED};
    strata_status status =
        strata__model_floats(model, (int32_t)model->layer, &norm, &layer->ffn_norm);
    if (status != STRATA_OK)
        return status;
    if (!has_experts(model))
        return load_dense(model, layer);
    status = load_router(model, layer);
    if (status == STRATA_OK)
        status = load_experts(model, layer);
    if (status == STRATA_OK)
        status = load_shared(model, layer);
    return status;
}
