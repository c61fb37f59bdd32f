/* SPDX-License-Identifier: MIT */
#include "support/tiny_pack.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT_BYTES = 32, MAX_TENSORS = 512 };
enum { TYPE_UINT32 = 4, TYPE_FLOAT32 = 6, TYPE_BOOL = 7, TYPE_STRING = 8 };
enum {
    F32 = 0,
    F16 = 1,
    Q2_K = 10,
    IQ1_M = 29,
    BF16 = 30,
    MXFP4 = 39,
    MAX_BLOCK_BYTES = 256,
    MAX_BLOCK_VALUES = 256
};

/* A block of random bytes has values of about this spread when its scale is 1. */
typedef struct block_format {
    uint32_t id;
    uint32_t values;
    uint32_t bytes;
    float spread;
    uint32_t scale_at;   /* byte offset of the half-precision scale */
    uint32_t minimum_at; /* of a second half, which centres the values; 0: none */
    float minimum_ratio; /* to the scale */
} block_format;

static const block_format block_formats[] = {
    {2, 32, 18, 4.62f, 0, 0, 0},         {3, 32, 20, 4.614f, 0, 2, -7.5f},
    {6, 32, 22, 9.229f, 0, 0, 0},        {7, 32, 24, 9.231f, 0, 2, -15.5f},
    {8, 32, 34, 73.81f, 0, 0, 0},        {Q2_K, 256, 84, 13.88f, 80, 82, 1.5f},
    {11, 256, 110, 43.33f, 108, 0, 0},   {12, 256, 144, 257.8f, 0, 2, 7.5f},
    {13, 256, 176, 526.5f, 0, 2, 15.5f}, {14, 256, 210, 1366.0f, 208, 0, 0},
    {16, 256, 66, 53.28f, 0, 0, 0},      {17, 256, 74, 55.95f, 0, 0, 0},
    {18, 256, 98, 143.2f, 0, 0, 0},      {19, 256, 50, 7.172f, 0, 0, 0},
    {20, 32, 18, 67.1f, 0, 0, 0},        {21, 256, 110, 140.0f, 0, 0, 0},
    {22, 256, 82, 56.47f, 0, 0, 0},      {23, 256, 136, 1245.0f, 0, 0, 0},
    {IQ1_M, 256, 56, 7.191f, 0, 0, 0},   {MXFP4, 32, 17, 5.828f, 0, 0, 0},
    {42, 64, 18, 1.22f, 0, 0, 0},
};

typedef struct tensor {
    char name[64];
    uint64_t shape[3];
    uint32_t dimensions;
    uint32_t format;
    float spread; /* of the values; 0: gains around 1 */
    uint64_t offset;
} tensor;

typedef struct writer {
    uint8_t *bytes;
    uint64_t count;
    uint64_t capacity;
    uint64_t value_count;
    const char *architecture;
    tensor tensors[MAX_TENSORS];
    uint32_t tensor_count;
    uint64_t random;
    tiny_decode_fn decode; /* or NULL: tensors keep their formats */
} writer;

uint64_t tiny_random(uint64_t *state)
{
    /* splitmix64 (Steele, Lea and Flood, 2014) */
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

float tiny_random_value(uint64_t *state)
{
    /* Uniform with variance 1. */
    return ((float)(tiny_random(state) >> 40) / 8388608.0f - 1.0f) * 1.7320508f;
}

tiny_spec tiny_spec_default(void)
{
    tiny_spec spec = {
        .architecture = "qwen3moe",
        .layers = 2,
        .width = 64,
        .heads = 4,
        .kv_heads = 2,
        .head_size = 32,
        .experts = 8,
        .top_k = 2,
        .expert_width = 32,
        .vocabulary = 96,
        .context_tokens = 512,
        .seed = 1,
    };
    return spec;
}

tiny_spec tiny_spec_of(const char *architecture, uint64_t seed)
{
    tiny_spec spec = tiny_spec_default();
    spec.architecture = architecture;
    spec.seed = seed;
    if (strcmp(architecture, "qwen3moe") != 0)
        spec.shared_width = 32;
    if (strcmp(architecture, "ernie4_5-moe") == 0) {
        spec.dense_layers = 1;
        spec.dense_width = 96;
        spec.layers = 3;
    }
    return spec;
}

static void put(writer *w, const void *data, uint64_t bytes)
{
    if (w->count + bytes > w->capacity) {
        w->capacity = (w->count + bytes) * 2;
        w->bytes = realloc(w->bytes, w->capacity);
        if (!w->bytes)
            exit(99);
    }
    memcpy(w->bytes + w->count, data, bytes);
    w->count += bytes;
}

static void put_u32(writer *w, uint32_t value)
{
    put(w, &value, sizeof value);
}

static void put_u64(writer *w, uint64_t value)
{
    put(w, &value, sizeof value);
}

static void put_text(writer *w, const char *text)
{
    put_u64(w, strlen(text));
    put(w, text, strlen(text));
}

static void put_key(writer *w, const char *key, uint32_t type)
{
    char full[128];
    snprintf(full, sizeof full, "%s%s", key[0] == '.' ? w->architecture : "", key);
    put_text(w, full);
    put_u32(w, type);
    ++w->value_count;
}

static void key_u32(writer *w, const char *key, uint32_t value)
{
    put_key(w, key, TYPE_UINT32);
    put_u32(w, value);
}

static void key_f32(writer *w, const char *key, float value)
{
    put_key(w, key, TYPE_FLOAT32);
    put(w, &value, sizeof value);
}

static void key_bool(writer *w, const char *key, bool value)
{
    uint8_t byte = value;
    put_key(w, key, TYPE_BOOL);
    put(w, &byte, 1);
}

static void key_text(writer *w, const char *key, const char *value)
{
    put_key(w, key, TYPE_STRING);
    put_text(w, value);
}

static void write_keys(writer *w, const tiny_spec *s)
{
    bool ernie = strcmp(s->architecture, "ernie4_5-moe") == 0;
    key_text(w, "general.architecture", s->architecture);
    key_text(w, "general.name", "tiny");
    key_u32(w, ".block_count", s->layers);
    key_u32(w, ".context_length", s->context_tokens);
    key_u32(w, ".embedding_length", s->width);
    key_u32(w, ".feed_forward_length", s->dense_layers ? s->dense_width : s->expert_width);
    key_u32(w, ".expert_feed_forward_length", s->expert_width);
    key_u32(w, ".expert_count", s->experts);
    key_u32(w, ".expert_used_count", s->top_k);
    key_u32(w, ".attention.head_count", s->heads);
    key_u32(w, ".attention.head_count_kv", s->kv_heads);
    key_u32(w, ".attention.key_length", s->head_size);
    key_u32(w, ".attention.value_length", s->head_size);
    key_u32(w, ".rope.dimension_count", s->head_size);
    key_f32(w, ".rope.freq_base", 10000.0f);
    key_f32(w, ".attention.layer_norm_rms_epsilon", 1e-6f);
    key_bool(w, ".expert_weights_norm", strcmp(s->architecture, "qwen2moe") != 0);
    if (s->shared_width) {
        key_u32(w, ".expert_shared_feed_forward_length", s->shared_width);
        key_u32(w, ".expert_shared_count", 1);
    }
    if (ernie) {
        key_u32(w, ".leading_dense_block_count", s->dense_layers);
        key_u32(w, ".interleave_moe_layer_step", 1);
    }
    key_text(w, "tokenizer.ggml.model", "none");
}

static void add(writer *w, int layer, const char *name, uint32_t format, uint64_t a, uint64_t b,
                uint64_t c, float spread)
{
    tensor *t = &w->tensors[w->tensor_count++];
    if (w->tensor_count > MAX_TENSORS)
        exit(99);
    memset(t, 0, sizeof *t);
    if (layer >= 0)
        snprintf(t->name, sizeof t->name, "blk.%d.%s", layer, name);
    else
        snprintf(t->name, sizeof t->name, "%s", name);
    t->shape[0] = a;
    t->shape[1] = b ? b : 1;
    t->shape[2] = c ? c : 1;
    t->dimensions = c ? 3 : b ? 2 : 1;
    t->format = format;
    t->spread = spread;
}

static void add_attention(writer *w, const tiny_spec *s, int layer)
{
    uint64_t d = s->width, q = (uint64_t)s->heads * s->head_size;
    uint64_t k = (uint64_t)s->kv_heads * s->head_size;
    float in = 1.0f / sqrtf((float)d);
    add(w, layer, "attn_norm.weight", F32, d, 0, 0, 0);
    add(w, layer, "attn_q.weight", s->dense_format, d, q, 0, in);
    add(w, layer, "attn_k.weight", s->dense_format, d, k, 0, in);
    add(w, layer, "attn_v.weight", s->dense_format, d, k, 0, in);
    add(w, layer, "attn_output.weight", s->dense_format, q, d, 0, 1.0f / sqrtf((float)q));
    if (strcmp(s->architecture, "qwen3moe") == 0) {
        add(w, layer, "attn_q_norm.weight", F32, s->head_size, 0, 0, 0);
        add(w, layer, "attn_k_norm.weight", F32, s->head_size, 0, 0, 0);
    }
    if (strcmp(s->architecture, "qwen2moe") == 0) {
        add(w, layer, "attn_q.bias", F32, q, 0, 0, 0.1f);
        add(w, layer, "attn_k.bias", F32, k, 0, 0, 0.1f);
        add(w, layer, "attn_v.bias", F32, k, 0, 0, 0.1f);
    }
}

static void add_experts(writer *w, const tiny_spec *s, int layer)
{
    uint64_t d = s->width, f = s->expert_width, e = s->experts;
    float in = 1.0f / sqrtf((float)d), out = 1.0f / sqrtf((float)f);
    add(w, layer, "ffn_gate_inp.weight", F32, d, e, 0, 4.0f * in);
    if (strcmp(s->architecture, "ernie4_5-moe") == 0)
        add(w, layer, "exp_probs_b.bias", F32, e, 0, 0, 0.1f);
    add(w, layer, "ffn_gate_exps.weight", s->gate_format, d, f, e, in);
    add(w, layer, "ffn_up_exps.weight", s->up_format, d, f, e, in);
    add(w, layer, "ffn_down_exps.weight", s->down_format, f, d, e, out);
    if (s->shared_width) {
        if (strcmp(s->architecture, "qwen2moe") == 0)
            add(w, layer, "ffn_gate_inp_shexp.weight", F32, d, 0, 0, in);
        add(w, layer, "ffn_gate_shexp.weight", s->dense_format, d, s->shared_width, 0, in);
        add(w, layer, "ffn_up_shexp.weight", s->dense_format, d, s->shared_width, 0, in);
        add(w, layer, "ffn_down_shexp.weight", s->dense_format, s->shared_width, d, 0, out);
    }
}

static void add_tensors(writer *w, const tiny_spec *s)
{
    uint64_t d = s->width;
    float in = 1.0f / sqrtf((float)d);
    add(w, -1, "token_embd.weight", s->dense_format, d, s->vocabulary, 0, 1.0f);
    add(w, -1, "output_norm.weight", F32, d, 0, 0, 0);
    add(w, -1, "output.weight", s->dense_format, d, s->vocabulary, 0, in);
    for (int layer = 0; layer < (int)s->layers; ++layer) {
        add_attention(w, s, layer);
        add(w, layer, "ffn_norm.weight", F32, d, 0, 0, 0);
        if ((uint32_t)layer >= s->dense_layers) {
            add_experts(w, s, layer);
            continue;
        }
        add(w, layer, "ffn_gate.weight", s->dense_format, d, s->dense_width, 0, in);
        add(w, layer, "ffn_up.weight", s->dense_format, d, s->dense_width, 0, in);
        add(w, layer, "ffn_down.weight", s->dense_format, s->dense_width, d, 0,
            1.0f / sqrtf((float)s->dense_width));
    }
}

static const block_format *find_block(uint32_t format)
{
    for (size_t i = 0; i < sizeof block_formats / sizeof block_formats[0]; ++i)
        if (block_formats[i].id == format)
            return &block_formats[i];
    return NULL;
}

static uint64_t tensor_values(const tensor *t)
{
    return t->shape[0] * t->shape[1] * t->shape[2];
}

static uint64_t tensor_bytes(const writer *w, const tensor *t)
{
    const block_format *block = find_block(t->format);
    if (block && !w->decode)
        return tensor_values(t) / block->values * block->bytes;
    return tensor_values(t) * (t->format == F32 || w->decode ? 4 : 2);
}

/* Half precision, by truncation. */
static uint16_t to_half(float value)
{
    uint32_t bits;
    int exponent;
    memcpy(&bits, &value, sizeof bits);
    exponent = (int)(bits >> 23 & 0xff) - 127 + 15;
    if (exponent <= 0)
        return (uint16_t)((bits >> 16 & 0x8000) | (uint32_t)(fabsf(value) * 16777216.0f));
    return (uint16_t)((bits >> 16 & 0x8000) | (uint32_t)exponent << 10 | (bits >> 13 & 0x3ff));
}

/* IQ1_M keeps its scale in the top nibbles of four 16-bit words. */
static void set_iq1_m_scale(uint8_t *block, uint16_t scale)
{
    for (int i = 0; i < 4; ++i) {
        uint8_t *high = block + 48 + 2 * i + 1;
        *high = (uint8_t)((*high & 0x0f) | (scale >> (4 * i) & 0xf) << 4);
    }
}

static void make_block(writer *w, const block_format *format, float spread, uint8_t *block)
{
    uint16_t scale = to_half(spread / format->spread);
    uint16_t minimum = to_half(spread / format->spread * format->minimum_ratio);
    for (uint32_t i = 0; i < format->bytes; ++i)
        block[i] = (uint8_t)(tiny_random(&w->random) >> 32);
    if (format->id == IQ1_M) {
        set_iq1_m_scale(block, scale);
    } else if (format->id == MXFP4) {
        block[0] = (uint8_t)(128 + (int)lroundf(log2f(spread / format->spread)));
    } else {
        memcpy(block + format->scale_at, &scale, sizeof scale);
        if (format->minimum_at)
            memcpy(block + format->minimum_at, &minimum, sizeof minimum);
    }
}

/* A block, or a single value of a format without blocks. */
static void write_unit(writer *w, uint32_t id, uint32_t values, uint32_t bytes, const uint8_t *unit)
{
    float decoded[MAX_BLOCK_VALUES];
    if (!w->decode) {
        put(w, unit, bytes);
        return;
    }
    w->decode(id, unit, values, decoded);
    put(w, decoded, values * sizeof decoded[0]);
}

static void write_values(writer *w, const tensor *t)
{
    const block_format *format = find_block(t->format);
    uint64_t units = tensor_values(t) / (format ? format->values : 1);
    for (uint64_t i = 0; i < units; ++i) {
        uint8_t unit[MAX_BLOCK_BYTES];
        float r, value;
        uint16_t half;
        if (format) {
            make_block(w, format, t->spread, unit);
            write_unit(w, format->id, format->values, format->bytes, unit);
            continue;
        }
        r = tiny_random_value(&w->random);
        value = t->spread == 0.0f ? 1.0f + 0.1f * r : t->spread * r;
        memcpy(unit, &value, sizeof value);
        half = t->format == F16 ? to_half(value) : (uint16_t)(unit[3] << 8 | unit[2]);
        if (t->format != F32)
            memcpy(unit, &half, sizeof half);
        write_unit(w, t->format, 1, t->format == F32 ? 4 : 2, unit);
    }
}

static void pad(writer *w)
{
    static const uint8_t zeros[ALIGNMENT_BYTES];
    put(w, zeros, (ALIGNMENT_BYTES - w->count % ALIGNMENT_BYTES) % ALIGNMENT_BYTES);
}

static void write_index(writer *w)
{
    uint64_t offset = 0;
    for (uint32_t i = 0; i < w->tensor_count; ++i) {
        tensor *t = &w->tensors[i];
        put_text(w, t->name);
        put_u32(w, t->dimensions);
        put(w, t->shape, t->dimensions * sizeof t->shape[0]);
        put_u32(w, w->decode ? (uint32_t)F32 : t->format);
        put_u64(w, offset);
        offset += (tensor_bytes(w, t) + ALIGNMENT_BYTES - 1) / ALIGNMENT_BYTES * ALIGNMENT_BYTES;
    }
}

static uint8_t *make(const tiny_spec *spec, tiny_decode_fn decode, uint64_t *out_bytes)
{
    writer *w = calloc(1, sizeof *w);
    uint8_t *image;
    uint64_t tensor_count, rounded;
    if (!w)
        exit(99);
    w->architecture = spec->architecture;
    w->decode = decode;
    w->random = spec->seed * 0x2545f4914f6cdd1du + 1;
    put(w, "GGUF", 4);
    put_u32(w, 3);
    put_u64(w, 0);
    put_u64(w, 0);
    write_keys(w, spec);
    add_tensors(w, spec);
    write_index(w);
    pad(w);
    for (uint32_t i = 0; i < w->tensor_count; ++i) {
        write_values(w, &w->tensors[i]);
        pad(w);
    }
    tensor_count = w->tensor_count;
    memcpy(w->bytes + 8, &tensor_count, 8);
    memcpy(w->bytes + 16, &w->value_count, 8);
    rounded = (w->count + 63) / 64 * 64;
    image = aligned_alloc(64, rounded);
    if (!image)
        exit(99);
    memcpy(image, w->bytes, w->count);
    *out_bytes = w->count;
    free(w->bytes);
    free(w);
    return image;
}

uint8_t *tiny_pack_make(const tiny_spec *spec, uint64_t *out_bytes)
{
    return make(spec, NULL, out_bytes);
}

uint8_t *tiny_pack_make_decoded(const tiny_spec *spec, tiny_decode_fn decode, uint64_t *out_bytes)
{
    return make(spec, decode, out_bytes);
}
