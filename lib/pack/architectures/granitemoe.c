/* SPDX-License-Identifier: MIT */
/* Granite mixture of experts: scales on embedding, branches, attention and logits. */
#include "pack/architecture.h"
#include "pack/architectures/all.h"

static strata_status read_scale(strata__model *model, const char *suffix, float *out)
{
    strata_status status = strata__model_float(model, suffix, false, -1e-30, out);
    if (status == STRATA_OK && *out == 0) /* as if the key were absent */
        *out = 1;
    return status;
}

static strata_status read_keys(strata__model *model)
{
    strata__geometry *geometry = model->geometry;
    bool rotate = true;
    float divisor = 1;
    strata_status status = read_scale(model, "embedding_scale", &geometry->embedding_scale);
    if (status == STRATA_OK)
        status = read_scale(model, "residual_scale", &geometry->residual_scale);
    if (status == STRATA_OK)
        status = read_scale(model, "logit_scale", &divisor);
    if (status == STRATA_OK)
        status =
            strata__model_float(model, "attention.scale", false, -1e-30, &model->attention_scale);
    if (status == STRATA_OK)
        status = strata__model_bool(model, "rope.scaling.finetuned", &rotate);
    geometry->logit_scale = 1 / divisor;
    if (!rotate)
        model->rope_style = STRATA__ROPE_NONE;
    return status;
}

const strata__architecture strata__architecture_granitemoe = {
    .name = "granitemoe",
    .rope_style = STRATA__ROPE_PAIRS,
    .qkv_bias = STRATA__OPTIONAL,
    .attention_out_bias = STRATA__OPTIONAL,
    .gating = STRATA__GATING_SOFTMAX,
    .normalise = STRATA__NORMALISE_ALWAYS,
    .activation = STRATA__ACT_SWIGLU,
    .shared = STRATA__OPTIONAL,
    .ffn_norm = "ffn_norm.weight",
    .expert_width = "feed_forward_length",
    .read_keys = read_keys,
    .load_attention = strata__attention_load_gqa,
    .load_ffn = strata__ffn_load_experts,
};
