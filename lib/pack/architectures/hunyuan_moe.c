/* SPDX-License-Identifier: MIT */
/* Hunyuan mixture of experts: query and key norms after the rotation, a shared expert. */
#include "pack/architecture.h"
#include "pack/architectures/all.h"

const strata__architecture strata__architecture_hunyuan_moe = {
    .name = "hunyuan-moe",
    .rope_style = STRATA__ROPE_NEOX,
    .qk_norm = STRATA__QK_NORM_HEAD_AFTER_ROPE,
    .qk_norm_presence = STRATA__REQUIRED,
    .qkv_bias = STRATA__OPTIONAL,
    .attention_out_bias = STRATA__OPTIONAL,
    .gating = STRATA__GATING_SOFTMAX,
    .normalise = STRATA__NORMALISE_ALWAYS,
    .activation = STRATA__ACT_SWIGLU,
    .shared = STRATA__REQUIRED,
    .ffn_norm = "ffn_norm.weight",
    .expert_width = "feed_forward_length",
    .load_attention = strata__attention_load_gqa,
    .load_ffn = strata__ffn_load_experts,
};
