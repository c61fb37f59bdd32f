/* SPDX-License-Identifier: MIT */
/*
 * An architecture is a table of facts plus the few functions that differ. A new one of the families
 * below is one file in architectures/ and its line in architectures.c.
 */
#ifndef STRATA_PACK_ARCHITECTURE_H
#define STRATA_PACK_ARCHITECTURE_H

#include "pack/model.h"

/* Whether a file has a tensor. A tensor that an architecture never has is refused as unused. */
typedef enum strata__presence {
    STRATA__NEVER,
    STRATA__OPTIONAL,
    STRATA__REQUIRED
} strata__presence;

/* Whether the weights of the selected experts are divided by their sum. */
typedef enum strata__normalise {
    STRATA__NORMALISE_NEVER,
    STRATA__NORMALISE_ALWAYS,
    STRATA__NORMALISE_BY_KEY
} strata__normalise;

typedef struct strata__architecture {
    const char *name; /* general.architecture, and the prefix of its keys */

    /* Attention */
    uint32_t rope_style;
    uint32_t qk_norm;          /* strata__qk_norm */
    uint32_t qk_norm_presence; /* strata__presence, like all below */
    uint32_t qkv_bias;
    uint32_t attention_out_bias;
    uint32_t sinks;
    uint32_t window_period; /* of every so many layers, all but the last slide; 0: none ever does */
    bool rope_factors;      /* rope_freqs.weight divides the frequencies when present */

    /* Router */
    uint32_t gating;    /* strata__gating, the only one or the default */
    bool gating_key;    /* expert_gating_func overrides it */
    bool scale_key;     /* expert_weights_scale is used */
    uint32_t normalise; /* strata__normalise */
    uint32_t router_bias;
    uint32_t selection_bias;

    /* Feed-forward */
    uint32_t activation;
    uint32_t expert_bias;
    uint32_t shared;          /* shared experts */
    uint32_t shared_router;   /* their sigmoid gate */
    const char *ffn_norm;     /* tensor name */
    const char *expert_width; /* key, the part after the architecture */
    bool leading_dense;       /* leading_dense_block_count is used */
    bool expert_step;         /* interleave_moe_layer_step is used */

    /* What keys say beyond the facts above, into the geometry and `model`; may be NULL. */
    strata_status (*read_keys)(strata__model *model);
    strata_status (*load_attention)(strata__model *model, strata__layer *layer);
    strata_status (*load_ffn)(strata__model *model, strata__layer *layer);
} strata__architecture;

/* NULL when the name is not known. */
const strata__architecture *strata__architecture_find(const char *name);

/* Names of all of them, one by one; NULL beyond the last. */
const char *strata__architecture_name(uint32_t index);

/*
 * Grouped-query attention (Ainslie et al., 2023): separate or fused projections, norms, biases,
 * sinks.
 */
strata_status strata__attention_load_gqa(strata__model *model, strata__layer *layer);

/* Experts with router and shared experts; dense in the layers that have none. */
strata_status strata__ffn_load_experts(strata__model *model, strata__layer *layer);

#endif
