/* SPDX-License-Identifier: MIT */
/*
 * A pack: an opened GGUF file (one, or a split set, or the caller's memory) that has been checked
 * and indexed. Nothing here reads tensor data; tensor addresses point into the mapping.
 */
#ifndef STRATA_PACK_PACK_H
#define STRATA_PACK_PACK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include <strata/base.h>

#include "base/bounds.h"
#include "base/context.h"
#include "base/format.h"
#include "base/graph.h"

typedef struct strata__tensor {
    const char *name;  /* NUL-terminated, the pack's */
    const void *data;  /* in the mapping or the caller's memory */
    uint64_t bytes;    /* 0 when the format is not decoded */
    uint64_t offset;   /* of the data, from the start of its shard's data */
    uint64_t shape[4]; /* fastest dimension first, 1 beyond `dimensions` */
    uint32_t dimensions;
    uint32_t format; /* type id as in the file; strata__format_find tells whether it is decoded */
    uint32_t shard;
    uint32_t reserved;
} strata__tensor;

typedef enum strata__attention_kind { STRATA__ATTENTION_GQA } strata__attention_kind;

typedef enum strata__ffn_kind { STRATA__FFN_DENSE, STRATA__FFN_EXPERTS } strata__ffn_kind;

/* A projection of a layer as the file has it; absent when data is NULL. */
typedef struct strata__projection {
    const void *data;
    const float *bias;     /* outputs values (experts: [experts][outputs]), or NULL */
    uint64_t bytes;        /* of all rows; one expert has bytes / experts */
    uint64_t stride_bytes; /* from one expert to the next; more than its bytes when fused */
    uint32_t format;
    uint32_t inputs;
    uint32_t outputs;
    uint32_t reserved;
} strata__projection;

/* Everything the graph needs to know about one layer. Widths are in values. */
typedef struct strata__layer {
    uint32_t attention; /* strata__attention_kind */
    uint32_t ffn;       /* strata__ffn_kind */
    uint32_t heads;
    uint32_t kv_heads;
    uint32_t head_size;
    uint32_t window;     /* sliding window in positions, 0: full attention */
    uint32_t rope_style; /* values of strata__rope_style */
    uint32_t rope_width;
    uint32_t qk_norm;      /* values of strata__qk_norm */
    uint32_t ffn_width;    /* of the dense feed-forward part, 0: none */
    uint32_t expert_width; /* FF of an expert, 0: none */
    uint32_t shared_width; /* of the shared experts together, 0: none */
    float rope_magnitude;  /* factor on cos and sin */
    float attention_scale;
    float qkv_clamp;     /* 0: none */
    uint32_t rope_table; /* index into geometry.rope_frequencies */
    const float *attention_norm;
    const float *q_norm;
    const float *k_norm;
    const float *sinks;
    const float *ffn_norm;
    strata__projection q, k, v, attention_out;
    strata__projection gate, up, down;                      /* dense feed-forward */
    strata__projection shared_gate, shared_up, shared_down; /* shared experts */
    strata__projection shared_router;                       /* 1 output, sigmoid; absent: no gate */
    strata__projection router;
    const float *selection_bias;    /* [experts] or NULL */
    strata__projection expert_gate; /* all experts; blob e at data + e * stride_bytes */
    strata__projection expert_up;
    strata__projection expert_down;
    const float *expert_scale; /* [experts], on the down projection, or NULL */
    uint64_t dense_bytes;      /* of all tensors but the experts' rows */
} strata__layer;

/* Facts of the whole model. */
typedef struct strata__geometry {
    uint32_t layers; /* that are run; trailing prediction blocks are not */
    uint32_t width;  /* D */
    uint32_t vocabulary;
    uint32_t context_tokens; /* trained */
    uint32_t experts;
    uint32_t top_k;
    uint32_t gating; /* values of strata__gating */
    uint32_t normalise_weights;
    uint32_t expert_groups;
    uint32_t expert_groups_used;
    uint32_t activation;       /* values of strata__activation */
    uint32_t residual_streams; /* 1 */
    float expert_weight_scale; /* 1: none */
    float norm_eps;
    float embedding_scale; /* 1: none */
    float residual_scale;  /* on both branch outputs, 1: none */
    float logit_scale;     /* logits are multiplied by it, 1: none */
    float logit_softcap;   /* 0: none */
    uint32_t rope_table_count;
    uint32_t reserved;
    uint64_t expert_bytes; /* rows of all experts of all layers */
    uint64_t dense_bytes;  /* all other tensors that are run */
    /* Radians per position, rope_width / 2 values each; YaRN and frequency factors applied. */
    const float *rope_frequencies[2];
    const float *output_norm;
    strata__projection embedding; /* outputs = vocabulary */
    strata__projection output;    /* may be the embedding (tied) */
} strata__geometry;

typedef struct strata_pack strata__pack; /* what strata/pack.h hands out */

strata_status strata__pack_open_path(strata_context *context, const char *path, strata__pack **out);
strata_status strata__pack_open_memory(strata_context *context, const void *data, uint64_t bytes,
                                       strata__pack **out);
strata__pack *strata__pack_retain(strata__pack *pack);
void strata__pack_release(strata__pack *pack);

/* What lib/session keeps for all sessions of a pack; the lock guards it. */
typedef struct strata__pack_shared {
    pthread_mutex_t lock;
    void *host_tier;
} strata__pack_shared;

strata__pack_shared *strata__pack_shared_of(strata__pack *pack);

strata_context *strata__pack_context(const strata__pack *pack);
const char *strata__pack_path(const strata__pack *pack); /* "" for memory */
const char *strata__pack_architecture(const strata__pack *pack);
const char *strata__pack_name(const strata__pack *pack);    /* general.name or "" */
uint64_t strata__pack_file_bytes(const strata__pack *pack); /* all shards */
/* Of header and sizes; names a pack in saved files. */
uint64_t strata__pack_fingerprint(const strata__pack *pack);

/*
 * Geometry and layers. They are built when the pack is opened; a file whose metadata is sound but
 * whose architecture cannot be run opens all the same, and this tells why, by name.
 */
strata_status strata__pack_model(const strata__pack *pack, const strata__geometry **out_geometry,
                                 const strata__layer **out_layers);

uint64_t strata__pack_tensor_count(const strata__pack *pack);
const strata__tensor *strata__pack_tensor(const strata__pack *pack, uint64_t index);
const strata__tensor *strata__pack_tensor_find(const strata__pack *pack, const char *name);

/*
 * Metadata. Types are GGUF's: 0 u8 1 i8 2 u16 3 i16 4 u32 5 i32 6 f32 7 bool 8 string 9 array 10
 * u64 11 i64 12 f64.
 */
typedef struct strata__value {
    const char *key; /* NUL-terminated, the pack's */
    uint32_t type;
    uint32_t element_type;        /* of an array */
    uint64_t count;               /* elements of an array, bytes of a string, else 1 */
    const uint8_t *data;          /* little-endian, unaligned; an array's first element */
    const uint64_t *string_index; /* array of strings: where every 32nd element starts in data */
} strata__value;

uint64_t strata__pack_value_count(const strata__pack *pack);
strata_status strata__pack_value(const strata__pack *pack, uint64_t index, strata__value *out);
bool strata__pack_value_find(const strata__pack *pack, const char *key, strata__value *out);

/* Element `element`, 0 of a scalar. INVALID_ARGUMENT: no such element, other kind, out of range. */
strata_status strata__value_int64(const strata__value *value, uint64_t element, int64_t *out);
strata_status strata__value_float64(const strata__value *value, uint64_t element, double *out);
strata_status strata__value_string(const strata__value *value, uint64_t element,
                                   const uint8_t **out_bytes, uint64_t *out_count);

/* Vocabulary; 0 tokens when the file has none. Bytes are the token's text as the file stores it. */
uint64_t strata__pack_token_count(const strata__pack *pack);
strata_status strata__pack_token(const strata__pack *pack, uint64_t id, const uint8_t **out_bytes,
                                 uint64_t *out_count, uint32_t *out_type, float *out_score);
/*
 * The bytes a token stands for in a text (byte-level and SentencePiece escapes undone); returns
 * bytes needed.
 */
strata_status strata__pack_token_text(const strata__pack *pack, uint64_t id, char *buffer,
                                      uint64_t buffer_bytes, uint64_t *out_bytes);
/*
 * As above for any stored text of a token of this type, without a NUL; `out` NULL: only the bytes
 * needed, never more than `count`.
 */
uint64_t strata__pack_unescape(const strata__pack *pack, uint32_t type, const uint8_t *stored,
                               uint64_t count, uint8_t *out);

#endif
