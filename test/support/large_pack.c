/* SPDX-License-Identifier: MIT */
#include "support/large_pack.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/gguf_builder.h"

enum {
    F32 = 0,
    Q8_0 = 8,
    LAYERS = 60,
    WIDTH = 2048,
    HEADS = 32,
    KV_HEADS = 4,
    HEAD_SIZE = 128,
    EXPERTS = 128,
    EXPERT_WIDTH = 768,
    TOKENS = 150000
};

static void add_keys(gguf_builder *builder)
{
    gguf_string(builder, "general.architecture", "qwen3moe");
    gguf_u32(builder, "qwen3moe.block_count", LAYERS);
    gguf_u32(builder, "qwen3moe.context_length", 262144);
    gguf_u32(builder, "qwen3moe.embedding_length", WIDTH);
    gguf_u32(builder, "qwen3moe.feed_forward_length", EXPERT_WIDTH);
    gguf_u32(builder, "qwen3moe.attention.head_count", HEADS);
    gguf_u32(builder, "qwen3moe.attention.head_count_kv", KV_HEADS);
    gguf_u32(builder, "qwen3moe.attention.key_length", HEAD_SIZE);
    gguf_u32(builder, "qwen3moe.attention.value_length", HEAD_SIZE);
    gguf_u32(builder, "qwen3moe.expert_count", EXPERTS);
    gguf_u32(builder, "qwen3moe.expert_used_count", 8);
    gguf_u32(builder, "qwen3moe.expert_feed_forward_length", EXPERT_WIDTH);
    gguf_f32(builder, "qwen3moe.attention.layer_norm_rms_epsilon", 1e-6f);
}

static int add_vocabulary(gguf_builder *builder)
{
    char(*texts)[16] = calloc(TOKENS, sizeof *texts);
    const char **pointers = calloc(TOKENS, sizeof *pointers);
    int32_t *types = calloc(TOKENS, sizeof *types);
    int done = texts && pointers && types;
    for (int i = 0; done && i < TOKENS; i++) {
        snprintf(texts[i], sizeof texts[i], "token%d", i);
        pointers[i] = texts[i];
        types[i] = 1;
    }
    if (done) {
        gguf_string(builder, "tokenizer.ggml.model", "gpt2");
        gguf_strings(builder, "tokenizer.ggml.tokens", pointers, TOKENS);
        gguf_array(builder, "tokenizer.ggml.token_type", 5, types, TOKENS, sizeof *types);
        for (int i = 0; i < TOKENS; i++)
            snprintf(texts[i], sizeof texts[i], "tok en%d", i);
        gguf_strings(builder, "tokenizer.ggml.merges", pointers, TOKENS);
    }
    free(types);
    free(pointers);
    free(texts);
    return done;
}

static void add_tensors(gguf_builder *builder)
{
    static const struct {
        const char *name;
        uint32_t format;
        uint64_t shape[3];
    } layer[] = {
        {"attn_norm", F32, {WIDTH}},
        {"attn_q", Q8_0, {WIDTH, HEADS * HEAD_SIZE}},
        {"attn_k", Q8_0, {WIDTH, KV_HEADS * HEAD_SIZE}},
        {"attn_v", Q8_0, {WIDTH, KV_HEADS * HEAD_SIZE}},
        {"attn_output", Q8_0, {HEADS * HEAD_SIZE, WIDTH}},
        {"attn_q_norm", F32, {HEAD_SIZE}},
        {"attn_k_norm", F32, {HEAD_SIZE}},
        {"ffn_norm", F32, {WIDTH}},
        {"ffn_gate_inp", F32, {WIDTH, EXPERTS}},
        {"ffn_gate_exps", Q8_0, {WIDTH, EXPERT_WIDTH, EXPERTS}},
        {"ffn_up_exps", Q8_0, {WIDTH, EXPERT_WIDTH, EXPERTS}},
        {"ffn_down_exps", Q8_0, {EXPERT_WIDTH, WIDTH, EXPERTS}},
    };
    gguf_add(builder, "token_embd.weight", Q8_0, WIDTH, TOKENS, 0);
    gguf_add(builder, "output_norm.weight", F32, WIDTH, 0, 0);
    gguf_add(builder, "output.weight", Q8_0, WIDTH, TOKENS, 0);
    for (int i = 0; i < LAYERS; i++)
        for (size_t j = 0; j < sizeof layer / sizeof layer[0]; j++) {
            char name[64];
            snprintf(name, sizeof name, "blk.%d.%s.weight", i, layer[j].name);
            gguf_add(builder, name, layer[j].format, layer[j].shape[0], layer[j].shape[1],
                     layer[j].shape[2]);
        }
}

int large_pack_write(const char *path, uint64_t *out_bytes)
{
    gguf_builder *builder = gguf_new();
    uint64_t header_bytes, data_bytes;
    uint8_t *header;
    FILE *file;
    int done;
    add_keys(builder);
    done = add_vocabulary(builder);
    add_tensors(builder);
    header = gguf_header(builder, &header_bytes, &data_bytes);
    file = fopen(path, "wb");
    done = done && file && fwrite(header, 1, header_bytes, file) == header_bytes &&
           fflush(file) == 0 && ftruncate(fileno(file), (off_t)(header_bytes + data_bytes)) == 0;
    if (file)
        fclose(file);
    free(header);
    gguf_free(builder);
    *out_bytes = header_bytes + data_bytes;
    return done;
}

static uint64_t status_bytes(const char *field)
{
    char line[256];
    unsigned long long kibibytes = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, field, strlen(field)) == 0)
            sscanf(line + strlen(field), " %llu", &kibibytes);
    if (file)
        fclose(file);
    return kibibytes * 1024;
}

uint64_t resident_bytes(void)
{
    return status_bytes("VmRSS:");
}

uint64_t resident_peak_bytes(void)
{
    return status_bytes("VmHWM:");
}

int resident_peak_reset(void)
{
    FILE *file = fopen("/proc/self/clear_refs", "w");
    int done = file && fputs("5", file) >= 0;
    if (file && fclose(file) != 0)
        done = 0;
    return done;
}
