/* SPDX-License-Identifier: MIT */
/* GLM-4.5 and 4.6: leading dense layers, sigmoid router with selection bias, a shared expert. */
#include "pack/architecture.h"
#include "pack/architectures/all.h"

const strata__architecture strata__architecture_glm4moe = {
    .name = "glm4moe",
    .rope_style = STRATA__ROPE_NEOX,
    .qk_norm = STRATA__QK_NORM_HEAD_BEFORE_ROPE,
    .qk_norm_presence = STRATA__OPTIONAL,
    .qkv_bias = STRATA__OPTIONAL,
    .gating = STRATA__GATING_SIGMOID,
    .gating_key = true,
    .scale_key = true,
    .normalise = STRATA__NORMALISE_BY_KEY,
    .selection_bias = STRATA__REQUIRED,
    .activation = STRATA__ACT_SWIGLU,
    .shared = STRATA__REQUIRED,
    .ffn_norm = "post_attention_norm.weight",
    .expert_width = "expert_feed_forward_length",
    .leading_dense = true,
    .load_attention = strata__attention_load_gqa,
    .load_ffn = strata__ffn_load_experts,
};
