/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <string.h>

#include "support/gguf_builder.h"

enum {
    F32 = 0,
    WIDTH = 64,
    LAYERS = 2,
    HEADS = 2,
    KV_HEADS = 1,
    HEAD_SIZE = 32,
    EXPERTS = 4,
    TOP_K = 2,
    EXPERT_WIDTH = 32,
    DENSE_WIDTH = 96,
    SHARED_WIDTH = 32,
    TOKENS = 16
};

/* What an architecture's files have beside attention and experts. */
typedef struct facts {
    const char *name;
    const char *ffn_norm;
    int qk_norm; /* 1: per head, 2: whole row */
    int biases;  /* 1: q, k, v; 2: everywhere, and sinks */
    int shared;  /* 1: shared experts, 2: with a gate */
    int selection_bias;
    int dense; /* leading dense layers */
    int fused;
} facts;

static const facts all[] = {
    {"qwen3moe", "ffn_norm", 1, 0, 0, 0, 0, 0},
    {"qwen2moe", "ffn_norm", 0, 1, 2, 0, 0, 0},
    {"olmoe", "ffn_norm", 2, 0, 0, 0, 0, 0},
    {"llama", "ffn_norm", 0, 0, 0, 0, 0, 0},
    {"gpt-oss", "post_attention_norm", 0, 2, 0, 0, 0, 0},
    {"glm4moe", "post_attention_norm", 1, 1, 1, 1, 1, 0},
    {"minimax-m2", "ffn_norm", 2, 0, 0, 1, 0, 0},
    {"granitemoe", "ffn_norm", 0, 0, 1, 0, 0, 0},
    {"hunyuan-moe", "ffn_norm", 1, 0, 1, 0, 0, 0},
    {"ernie4_5-moe", "ffn_norm", 0, 0, 1, 1, 1, 0},
    {"bailingmoe2", "ffn_norm", 1, 0, 1, 1, 1, 1},
};

static const facts *find_facts(const char *name)
{
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (strcmp(all[i].name, name) == 0)
            return &all[i];
    return &all[0];
}

static void key(gguf_builder *builder, const char *architecture, const char *suffix, uint32_t value)
{
    char name[128];
    snprintf(name, sizeof name, "%s.%s", architecture, suffix);
    gguf_u32(builder, name, value);
}

static void add_keys(gguf_builder *builder, const facts *f)
{
    char name[128];
    const char *a = f->name;
    gguf_string(builder, "general.architecture", a);
    gguf_string(builder, "general.name", "small");
    key(builder, a, "block_count", LAYERS);
    key(builder, a, "context_length", 128);
    key(builder, a, "embedding_length", WIDTH);
    key(builder, a, "feed_forward_length", f->dense ? DENSE_WIDTH : EXPERT_WIDTH);
    key(builder, a, "attention.head_count", HEADS);
    key(builder, a, "attention.head_count_kv", KV_HEADS);
    key(builder, a, "attention.key_length", HEAD_SIZE);
    key(builder, a, "attention.value_length", HEAD_SIZE);
    key(builder, a, "expert_count", EXPERTS);
    key(builder, a, "expert_used_count", TOP_K);
    key(builder, a, "expert_feed_forward_length", EXPERT_WIDTH);
    if (f->shared)
        key(builder, a, "expert_shared_feed_forward_length", SHARED_WIDTH);
    if (f->dense)
        key(builder, a, "leading_dense_block_count", (uint32_t)f->dense);
    if (f->biases == 2)
        key(builder, a, "attention.sliding_window", 16);
    snprintf(name, sizeof name, "%s.attention.layer_norm_rms_epsilon", a);
    gguf_f32(builder, name, 1e-6f);
}

static void add_vocabulary(gguf_builder *builder)
{
    static const char *const tokens[TOKENS] = {"a", "b",           "c",        "d",    "e", "f",
                                               "g", "h",           "i",        "j",    "k", "l",
                                               "m", "\xc4\xa0the", "\xc4\x8a", "<end>"};
    int32_t types[TOKENS];
    for (int i = 0; i < TOKENS; i++)
        types[i] = i == TOKENS - 1 ? 3 : 1;
    gguf_string(builder, "tokenizer.ggml.model", "gpt2");
    gguf_strings(builder, "tokenizer.ggml.tokens", tokens, TOKENS);
    gguf_array(builder, "tokenizer.ggml.token_type", 5, types, TOKENS, sizeof types[0]);
    gguf_u32(builder, "tokenizer.ggml.eos_token_id", TOKENS - 1);
}

typedef struct layer_tensors {
    gguf_builder *builder;
    int layer;
} layer_tensors;

static void add(const layer_tensors *to, const char *name, uint64_t d0, uint64_t d1, uint64_t d2)
{
    char full_name[128];
    snprintf(full_name, sizeof full_name, "blk.%d.%s", to->layer, name);
    gguf_add(to->builder, full_name, F32, d0, d1, d2);
}

static void add_attention(const layer_tensors *to, const facts *f)
{
    const uint64_t q = HEADS * HEAD_SIZE, kv = KV_HEADS * HEAD_SIZE;
    add(to, "attn_norm.weight", WIDTH, 0, 0);
    if (f->fused) {
        add(to, "attn_qkv.weight", WIDTH, q + 2 * kv, 0);
    } else {
        add(to, "attn_q.weight", WIDTH, q, 0);
        add(to, "attn_k.weight", WIDTH, kv, 0);
        add(to, "attn_v.weight", WIDTH, kv, 0);
    }
    add(to, "attn_output.weight", q, WIDTH, 0);
    if (f->qk_norm) {
        add(to, "attn_q_norm.weight", f->qk_norm == 2 ? q : HEAD_SIZE, 0, 0);
        add(to, "attn_k_norm.weight", f->qk_norm == 2 ? kv : HEAD_SIZE, 0, 0);
    }
    if (f->biases) {
        add(to, "attn_q.bias", q, 0, 0);
        add(to, "attn_k.bias", kv, 0, 0);
        add(to, "attn_v.bias", kv, 0, 0);
    }
    if (f->biases == 2) {
        add(to, "attn_output.bias", WIDTH, 0, 0);
        add(to, "attn_sinks.weight", HEADS, 0, 0);
    }
}

static void add_experts(const layer_tensors *to, const facts *f)
{
    const uint64_t width = EXPERT_WIDTH;
    add(to, "ffn_gate_inp.weight", WIDTH, EXPERTS, 0);
    if (f->selection_bias)
        add(to, "exp_probs_b.bias", EXPERTS, 0, 0);
    add(to, "ffn_gate_exps.weight", WIDTH, width, EXPERTS);
    add(to, "ffn_up_exps.weight", WIDTH, width, EXPERTS);
    add(to, "ffn_down_exps.weight", width, WIDTH, EXPERTS);
    if (f->biases == 2) {
        add(to, "ffn_gate_inp.bias", EXPERTS, 0, 0);
        add(to, "ffn_gate_exps.bias", width, EXPERTS, 0);
        add(to, "ffn_up_exps.bias", width, EXPERTS, 0);
        add(to, "ffn_down_exps.bias", WIDTH, EXPERTS, 0);
    }
    if (f->shared) {
        add(to, "ffn_gate_shexp.weight", WIDTH, SHARED_WIDTH, 0);
        add(to, "ffn_up_shexp.weight", WIDTH, SHARED_WIDTH, 0);
        add(to, "ffn_down_shexp.weight", SHARED_WIDTH, WIDTH, 0);
    }
    if (f->shared == 2)
        add(to, "ffn_gate_inp_shexp.weight", WIDTH, 0, 0);
}

gguf_builder *gguf_model(const char *architecture)
{
    const facts *f = find_facts(architecture);
    gguf_builder *builder = gguf_new();
    layer_tensors to = {builder, 0};
    add_keys(builder, f);
    add_vocabulary(builder);
    gguf_add(builder, "token_embd.weight", F32, WIDTH, TOKENS, 0);
    gguf_add(builder, "output_norm.weight", F32, WIDTH, 0, 0);
    gguf_add(builder, "output.weight", F32, WIDTH, TOKENS, 0);
    for (to.layer = 0; to.layer < LAYERS; to.layer++) {
        char norm[64];
        add_attention(&to, f);
        snprintf(norm, sizeof norm, "%s.weight", f->ffn_norm);
        add(&to, norm, WIDTH, 0, 0);
        if (to.layer < f->dense) {
            add(&to, "ffn_gate.weight", WIDTH, DENSE_WIDTH, 0);
            add(&to, "ffn_up.weight", WIDTH, DENSE_WIDTH, 0);
            add(&to, "ffn_down.weight", DENSE_WIDTH, WIDTH, 0);
        } else {
            add_experts(&to, f);
        }
    }
    return builder;
}
