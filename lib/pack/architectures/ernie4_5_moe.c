/* SPDX-License-Identifier: MIT */
/* ERNIE 4.5 mixture of experts: leading dense layers, experts every few layers. */
#include "pack/architecture.h"
#include "pack/architectures/all.h"

const strata__architecture strata__architecture_ernie4_5_moe = {
    .name = "ernie4_5-moe",
    .rope_style = STRATA__ROPE_PAIRS,
    .qkv_bias = STRATA__OPTIONAL,
    .attention_out_bias = STRATA__OPTIONAL,
    .gating = STRATA__GATING_SOFTMAX,
    .normalise = STRATA__NORMALISE_ALWAYS,
    .selection_bias = STRATA__OPTIONAL,
    .activation = STRATA__ACT_SWIGLU,
    .shared = STRATA__OPTIONAL,
    .ffn_norm = "ffn_norm.weight",
    .expert_width = "expert_feed_forward_length",
    .leading_dense = true,
    .expert_step = true,
    .load_attention = strata__attention_load_gqa,
    .load_ffn = strata__ffn_load_experts,
};
