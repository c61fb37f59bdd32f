/* SPDX-License-Identifier: MIT */
/* The alternatives of a model's graph, as packs state them and kernels compute them. */
#ifndef STRATA_BASE_GRAPH_H
#define STRATA_BASE_GRAPH_H

typedef enum strata__rope_style {
    STRATA__ROPE_NONE,
    STRATA__ROPE_NEOX, /* pairs (i, i + n/2) */
    STRATA__ROPE_PAIRS /* pairs (2i, 2i + 1) */
} strata__rope_style;

typedef enum strata__qk_norm {
    STRATA__QK_NORM_NONE,
    STRATA__QK_NORM_HEAD_BEFORE_ROPE, /* weight [head_size] */
    STRATA__QK_NORM_HEAD_AFTER_ROPE,
    STRATA__QK_NORM_ROW_BEFORE_ROPE /* over the whole row, weight [heads * head_size] */
} strata__qk_norm;

typedef enum strata__gating {
    STRATA__GATING_SOFTMAX = 1,
    STRATA__GATING_SIGMOID = 2,
    STRATA__GATING_SOFTMAX_SELECTED = 3
} strata__gating;

typedef enum strata__activation {
    STRATA__ACT_SWIGLU,         /* silu(gate) * up (Shazeer, 2020) */
    STRATA__ACT_SWIGLU_CLAMPED, /* gate <= 7, |up| <= 7; gate * sigmoid(1.702 gate) * (up + 1) */
    STRATA__ACT_GEGLU_TANH      /* gelu_tanh(gate) * up */
} strata__activation;

#endif
