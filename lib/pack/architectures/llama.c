/* SPDX-License-Identifier: MIT */
/* Llama with experts, as Mixtral is. */
#include "pack/architecture.h"
#include "pack/architectures/all.h"

const strata__architecture strata__architecture_llama = {
    .name = "llama",
    .rope_style = STRATA__ROPE_PAIRS,
    .rope_factors = true,
    .qkv_bias = STRATA__OPTIONAL,
    .attention_out_bias = STRATA__OPTIONAL,
    .gating = STRATA__GATING_SOFTMAX,
    .normalise = STRATA__NORMALISE_ALWAYS,
    .activation = STRATA__ACT_SWIGLU,
    .ffn_norm = "ffn_norm.weight",
    .expert_width = "feed_forward_length",
    .load_attention = strata__attention_load_gqa,
    .load_ffn = strata__ffn_load_experts,
};
