/* SPDX-License-Identifier: MIT */
/* gpt-oss: biases everywhere, sinks, windows on even layers, softmax of the selected logits. */
#include "pack/architecture.h"
#include "pack/architectures/all.h"

const strata__architecture strata__architecture_gpt_oss = {
    .name = "gpt-oss",
    .rope_style = STRATA__ROPE_NEOX,
    .qkv_bias = STRATA__REQUIRED,
    .attention_out_bias = STRATA__REQUIRED,
    .sinks = STRATA__REQUIRED,
    .window_period = 2,
    .gating = STRATA__GATING_SOFTMAX_SELECTED,
    .normalise = STRATA__NORMALISE_NEVER,
    .router_bias = STRATA__REQUIRED,
    .activation = STRATA__ACT_SWIGLU_CLAMPED,
    .expert_bias = STRATA__REQUIRED,
    .ffn_norm = "post_attention_norm.weight",
    .expert_width = "expert_feed_forward_length",
    .load_attention = strata__attention_load_gqa,
    .load_ffn = strata__ffn_load_experts,
};
