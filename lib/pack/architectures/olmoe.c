/* SPDX-License-Identifier: MIT */
/* OLMoE: query and key norms over the whole row, weights not normalised. */
#include "pack/architecture.h"
#include "pack/architectures/all.h"

const strata__architecture strata__architecture_olmoe = {
    .name = "olmoe",
    .rope_style = STRATA__ROPE_NEOX,
    .qk_norm = STRATA__QK_NORM_ROW_BEFORE_ROPE,
    .qk_norm_presence = STRATA__REQUIRED,
    .gating = STRATA__GATING_SOFTMAX,
    .normalise = STRATA__NORMALISE_NEVER,
    .activation = STRATA__ACT_SWIGLU,
    .ffn_norm = "ffn_norm.weight",
    .expert_width = "feed_forward_length",
    .load_attention = strata__attention_load_gqa,
    .load_ffn = strata__ffn_load_experts,
};
