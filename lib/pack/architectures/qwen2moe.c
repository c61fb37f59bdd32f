/* SPDX-License-Identifier: MIT */
/* Qwen2 mixture of experts: biased attention, a gated shared expert, weights not normalised. */
#include "pack/architecture.h"
#include "pack/architectures/all.h"

const strata__architecture strata__architecture_qwen2moe = {
    .name = "qwen2moe",
    .rope_style = STRATA__ROPE_NEOX,
    .qkv_bias = STRATA__REQUIRED,
    .gating = STRATA__GATING_SOFTMAX,
    .normalise = STRATA__NORMALISE_NEVER,
    .activation = STRATA__ACT_SWIGLU,
    .shared = STRATA__REQUIRED,
    .shared_router = STRATA__REQUIRED,
    .ffn_norm = "ffn_norm.weight",
    .expert_width = "expert_feed_forward_length",
    .load_attention = strata__attention_load_gqa,
    .load_ffn = strata__ffn_load_experts,
};
