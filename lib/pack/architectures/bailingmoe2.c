/* SPDX-License-Identifier: MIT */
/* Ling 2: fused projections, router with groups and selection bias, shared experts. */
#include "pack/architecture.h"
#include "pack/architectures/all.h"

const strata__architecture strata__architecture_bailingmoe2 = {
    .name = "bailingmoe2",
    .rope_style = STRATA__ROPE_NEOX,
    .qk_norm = STRATA__QK_NORM_HEAD_BEFORE_ROPE,
    .qk_norm_presence = STRATA__REQUIRED,
    .qkv_bias = STRATA__OPTIONAL,
    .attention_out_bias = STRATA__OPTIONAL,
    .gating = STRATA__GATING_SIGMOID,
    .gating_key = true,
    .scale_key = true,
    .normalise = STRATA__NORMALISE_BY_KEY,
    .selection_bias = STRATA__OPTIONAL,
    .activation = STRATA__ACT_SWIGLU,
    .shared = STRATA__OPTIONAL,
    .ffn_norm = "ffn_norm.weight",
    .expert_width = "expert_feed_forward_length",
    .leading_dense = true,
    .load_attention = strata__attention_load_gqa,
    .load_ffn = strata__ffn_load_experts,
};
