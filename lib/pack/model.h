/* SPDX-License-Identifier: MIT */
/* A model while it is put together: typed keys, tensors of an expected shape, and what was used. */
#ifndef STRATA_PACK_MODEL_H
#define STRATA_PACK_MODEL_H

#include "pack/internal.h"

typedef struct strata__architecture strata__architecture;

typedef struct strata__model {
    strata__pack *pack;
    const strata__architecture *architecture;
    strata__geometry *geometry;
    strata__layer *layers;
    uint8_t *used;         /* [tensors] */
    uint64_t *dense_bytes; /* where the bytes of the next tensors count */
    uint32_t layer;        /* being loaded */
    uint32_t blocks;       /* block_count, trailing prediction blocks included */
    uint32_t leading_dense;
    uint32_t expert_step;
    uint32_t rope_width;
    uint32_t rope_style; /* the architecture's, unless a key switches it off */
    float rope_magnitude;
    float attention_scale; /* 0: one over the root of the head size */
} strata__model;

/* What a key must be like. */
typedef struct strata__key {
    const char *suffix; /* after "ARCHITECTURE." */
    int64_t lowest;
    int64_t highest;
    bool required;
} strata__key;

enum { STRATA__NO_LAYER = -1 };

/*
 * An integer of any integer type; with a layer, an array with one element per block is read there.
 * *out keeps its value when the key is absent and not required.
 */
strata_status strata__model_uint(const strata__model *model, const strata__key *key, int32_t layer,
                                 uint32_t *out);

/* A finite float above `lowest`. */
strata_status strata__model_float(const strata__model *model, const char *suffix, bool required,
                                  double lowest, float *out);
strata_status strata__model_bool(const strata__model *model, const char *suffix, bool *out);

/* NUL-terminated into `out`; "" when absent. */
strata_status strata__model_string(const strata__model *model, const char *suffix, char *out,
                                   uint64_t out_bytes);

/* A tensor of the layer being loaded ("attn_q.weight"), or of the model (STRATA__NO_LAYER). */
typedef struct strata__want {
    const char *name;
    uint64_t shape[3]; /* fastest first; 1 beyond the last */
    uint32_t presence; /* strata__presence */
} strata__want;

/*
 * *out is NULL when the tensor is absent and may be. A tensor found has the shape and is decodable.
 */
strata_status strata__model_tensor(strata__model *model, int32_t layer, const strata__want *want,
                                   const strata__tensor **out);

/* Whether the tensor is in the file, whatever it is like. */
bool strata__model_has(const strata__model *model, int32_t layer, const char *name);

/* Float32 values: in place, or a converted copy for half, bfloat16 and unaligned data. */
strata_status strata__model_floats(strata__model *model, int32_t layer, const strata__want *want,
                                   const float **out);

/* NAME.weight of `experts` times outputs rows (1: dense), and NAME.bias. Absent: *out zeroed. */
typedef struct strata__projection_want {
    const char *name;
    uint32_t inputs;
    uint32_t outputs;
    uint32_t experts; /* 0: none */
    uint32_t presence;
    uint32_t bias; /* strata__presence */
} strata__projection_want;

strata_status strata__model_projection(strata__model *model, int32_t layer,
                                       const strata__projection_want *want,
                                       strata__projection *out);

/* Rows [first, first + outputs) of each expert of a projection, in place. */
void strata__projection_rows(const strata__projection *whole, uint32_t experts, uint32_t first,
                             uint32_t outputs, strata__projection *out);

/* Frequencies and magnitude of the rotary embedding, from keys and optional factors. */
strata_status strata__rope_build(strata__model *model);

#endif
