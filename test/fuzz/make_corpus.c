/* SPDX-License-Identifier: MIT */
/*
 * Writes the seeds of corpus/pack (small models, and one file for each part of the format) and of
 * corpus/text.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/gguf_builder.h"

enum { F32 = 0, MXFP4 = 39, Q2_0 = 42 };

static const char *folder;

static void write_seed(const char *name, gguf_builder *builder)
{
    char path[512];
    uint64_t bytes, header;
    uint8_t *image = gguf_image(builder, &bytes, &header);
    FILE *file;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    file = fopen(path, "wb");
    if (!file || fwrite(image, 1, bytes, file) != bytes || fclose(file) != 0) {
        fprintf(stderr, "%s: cannot be written\n", path);
        exit(1);
    }
    printf("%s: %llu bytes\n", path, (unsigned long long)bytes);
    free(image);
    gguf_free(builder);
}

/* The products in formats of about two and four bits, so that seeds are small. */
static gguf_builder *small_model(const char *architecture)
{
    gguf_builder *wide = gguf_model(architecture), *result = gguf_model(architecture);
    while (result->tensor_count) {
        char name[64] = {0};
        gguf_tensor *last = &result->tensors[result->tensor_count - 1];
        memcpy(name, last->name.data, last->name.count);
        gguf_remove_tensor(result, name);
    }
    for (uint64_t i = 0; i < wide->tensor_count; i++) {
        const gguf_tensor *tensor = &wide->tensors[i];
        uint32_t format = F32;
        char name[64] = {0};
        memcpy(name, tensor->name.data, tensor->name.count);
        if (tensor->dimensions > 1 && strstr(name, ".weight"))
            format = tensor->shape[0] % 64 ? MXFP4 : Q2_0;
        gguf_add(result, name, format, tensor->shape[0], tensor->shape[1], tensor->shape[2]);
    }
    gguf_free(wide);
    return result;
}

static gguf_builder *every_value_type(void)
{
    static const uint8_t bytes[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    static const uint8_t sizes[13] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    static const char *const words[] = {"a", "bc", "", "d"};
    gguf_builder *builder = gguf_new();
    for (uint32_t type = 0; type < 13; type++) {
        char key[32];
        if (!sizes[type])
            continue;
        snprintf(key, sizeof key, "scalar.%u", type);
        gguf_raw(builder, key, type, bytes, sizes[type]);
        snprintf(key, sizeof key, "array.%u", type);
        gguf_array(builder, key, type, bytes, 8 / sizes[type], sizes[type]);
    }
    gguf_string(builder, "text", "some text");
    gguf_strings(builder, "texts", words, 4);
    gguf_array(builder, "nothing", 4, bytes, 0, 4);
    return builder;
}

static gguf_builder *sentencepiece(void)
{
    static const char *const tokens[] = {"<unk>", "<s>", "<0x0A>", "\xe2\x96\x81the", "a"};
    static const int32_t types[] = {2, 3, 6, 1, 1};
    static const float scores[] = {0, 0, 0, -1, -2};
    gguf_builder *builder = gguf_new();
    gguf_string(builder, "general.architecture", "llama");
    gguf_string(builder, "tokenizer.ggml.model", "llama");
    gguf_strings(builder, "tokenizer.ggml.tokens", tokens, 5);
    gguf_array(builder, "tokenizer.ggml.token_type", 5, types, 5, 4);
    gguf_array(builder, "tokenizer.ggml.scores", 6, scores, 5, 4);
    gguf_u32(builder, "tokenizer.ggml.bos_token_id", 1);
    return builder;
}

static gguf_builder *yarn_and_groups(void)
{
    gguf_builder *builder = small_model("bailingmoe2");
    gguf_string(builder, "bailingmoe2.rope.scaling.type", "yarn");
    gguf_f32(builder, "bailingmoe2.rope.scaling.factor", 4);
    gguf_u32(builder, "bailingmoe2.rope.scaling.original_context_length", 64);
    gguf_u32(builder, "bailingmoe2.rope.dimension_count", 16);
    gguf_u32(builder, "bailingmoe2.expert_group_count", 2);
    gguf_u32(builder, "bailingmoe2.expert_group_used_count", 1);
    gguf_u32(builder, "bailingmoe2.expert_gating_func", 2);
    return builder;
}

static gguf_builder *split_part(void)
{
    gguf_builder *builder = gguf_new();
    gguf_u32(builder, "split.no", 0);
    gguf_u32(builder, "split.count", 2);
    gguf_u32(builder, "split.tensors.count", 1);
    gguf_u32(builder, "general.alignment", 64);
    builder->alignment = 64;
    gguf_add(builder, "a", 8, 32, 2, 0);
    return builder;
}

/* Inputs of fuzz_text.c: the same small vocabulary and text for every model and pattern. */
static void write_text_seed(uint8_t kind, uint8_t flags)
{
    static const char *const tokens[] = {"th",     "he",       "the", " t", " the", "<s>",
                                         "<tool>", "\xc3\xa9", "1",   "12", "  "};
    static const uint8_t types[] = {1, 1, 1, 1, 1, 3, 4, 1, 1, 1, 4};
    static const char *const merges[] = {"t h", "h e", "th e"};
    static const char text[] = "the<s> the 123\r\n  'll THE\xc3\xa9\xff\xe4\xb8\x80<tool>!?";
    enum { TOKENS = sizeof types, MERGES = 3 };
    char path[512];
    FILE *file;
    snprintf(path, sizeof path, "%s/%02x-%02x", folder, kind, flags);
    file = fopen(path, "wb");
    if (!file) {
        fprintf(stderr, "%s: cannot be written\n", path);
        exit(1);
    }
    fprintf(file, "%c%c%c%c", kind, flags, TOKENS, kind & 1 ? MERGES : 0);
    for (int i = 0; i < TOKENS; i++)
        fprintf(file, "%c%c%s", types[i], (int)strlen(tokens[i]), tokens[i]);
    for (int i = 0; kind & 1 && i < MERGES; i++)
        fprintf(file, "%c%s", (int)strlen(merges[i]), merges[i]);
    fprintf(file, "%s", text);
    if (fclose(file) != 0)
        exit(1);
}

int main(int argc, char **argv)
{
    gguf_builder *version_2 = gguf_new();
    if (argc != 3) {
        fprintf(stderr, "usage: %s PACKS TEXTS\n", argv[0]);
        return 2;
    }
    folder = argv[1];
    version_2->version = 2;
    write_seed("empty-v2", version_2);
    write_seed("values", every_value_type());
    write_seed("sentencepiece", sentencepiece());
    write_seed("split", split_part());
    write_seed("qwen3moe", small_model("qwen3moe"));
    write_seed("gpt-oss", small_model("gpt-oss"));
    write_seed("glm4moe", small_model("glm4moe"));
    write_seed("granitemoe", small_model("granitemoe"));
    write_seed("bailingmoe2", yarn_and_groups());
    folder = argv[2];
    for (uint8_t pattern = 0; pattern < 7; pattern++) {
        write_text_seed((uint8_t)(2 * pattern + 1), 32);
        write_text_seed((uint8_t)(2 * pattern + 1), 32 | 16 | 8);
    }
    write_text_seed(0, 32 | 4);
    write_text_seed(0, 32 | 8);
    write_text_seed(0, 0);
    return 0;
}
