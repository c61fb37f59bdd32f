/* SPDX-License-Identifier: MIT */
/* Qwen3 mixture of experts: query and key norms per head. */
#include "pack/architecture.h"
#include "pack/architectures/all.h"

const strata__architecture strata__architecture_qwen3moe = {
    .name = "qwen3moe",
    .rope_style = STRATA__ROPE_NEOX,
    .qk_norm = STRATA__QK_NORM_HEAD_BEFORE_ROPE,
    .qk_norm_presence = STRATA__REQUIRED,
    .qkv_bias = STRATA__OPTIONAL,
    .attention_out_bias = STRATA__OPTIONAL,
    .gating = STRATA__GATING_SOFTMAX,
    .normalise = STRATA__NORMALISE_ALWAYS,
    .activation = STRATA__ACT_SWIGLU,
    .ffn_norm = "ffn_norm.weight",
    .expert_width = "expert_feed_forward_length",
    .load_attention = strata__attention_load_gqa,
    .load_ffn = strata__ffn_load_experts,
};
