/* SPDX-License-Identifier: MIT */
/* Writes small GGUF files with random weights into memory: the packs that session tests run on. */
#ifndef TEST_SUPPORT_TINY_PACK_H
#define TEST_SUPPORT_TINY_PACK_H

#include <stdint.h>

/* A model. Formats are GGUF type ids; a row must be a whole number of their blocks. */
typedef struct tiny_spec {
    /* "qwen3moe", "qwen2moe" (shared expert with a gate), "ernie4_5-moe" */
    const char *architecture;
    uint32_t layers;
    uint32_t dense_layers; /* leading layers without experts: ernie4_5-moe only */
    uint32_t width;
    uint32_t heads;
    uint32_t kv_heads;
    uint32_t head_size;
    uint32_t experts;
    uint32_t top_k;
    uint32_t expert_width;
    uint32_t shared_width; /* qwen2moe and ernie4_5-moe */
    uint32_t dense_width;  /* of the layers without experts */
    uint32_t vocabulary;
    uint32_t context_tokens;
    uint32_t dense_format;
    uint32_t gate_format;
    uint32_t up_format;
    uint32_t down_format;
    uint64_t seed;
} tiny_spec;

/* A qwen3moe of two layers that reads a token in microseconds. */
tiny_spec tiny_spec_default(void);

/* As small, of any of the architectures and with what it can have: shared experts, dense layers. */
tiny_spec tiny_spec_of(const char *architecture, uint64_t seed);

/* A file image aligned to 64 bytes, to be freed with free(); exits the test on lack of memory. */
uint8_t *tiny_pack_make(const tiny_spec *spec, uint64_t *out_bytes);

/* Writes the values of `values / block values` blocks. */
typedef void (*tiny_decode_fn)(uint32_t format, const void *blocks, uint64_t values, float *out);

/* The same model with every tensor decoded to float32. */
uint8_t *tiny_pack_make_decoded(const tiny_spec *spec, tiny_decode_fn decode, uint64_t *out_bytes);

/* The generator that the weights come from: uniform 64 bits, and a value of about unit spread. */
uint64_t tiny_random(uint64_t *state);
float tiny_random_value(uint64_t *state);

#endif
