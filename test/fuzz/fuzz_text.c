/* SPDX-License-Identifier: MIT */
/*
 * Any vocabulary and any text. What must hold: no crash, every refusal has a text, ids are of the
 * vocabulary, a short buffer gets the same beginning, and byte pairs decode to the text.
 *
 * Input: a byte of model and pattern, a byte of flags, numbers of tokens and merges, the tokens
 * (type, length, bytes), the merges (length, bytes), the text.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define FUZZ_MODULES
#include "fuzz_target.h"
#include "must.h"
#include "text/text.h"

enum {
    FLAG_BOS = 1,
    FLAG_EOS = 2,
    FLAG_SPACE = 4,
    FLAG_SPECIAL = 8,
    FLAG_REPLACE = 16,
    FLAG_BYTES = 32
};

static const char *const patterns[] = {"default",     "qwen2",          "llama-bpe",
                                       "gpt-4o",      "deepseek-llm",   "deepseek-coder",
                                       "deepseek-v3", "no such pattern"};

typedef struct part {
    const uint8_t *bytes;
    uint64_t count;
    uint8_t type;
} part;

typedef struct vocabulary {
    part tokens[512];
    part merges[256];
    uint8_t singles[256];
} vocabulary;

static strata_status token(const void *user_data, uint64_t id, const uint8_t **out_bytes,
                           uint64_t *out_count, uint32_t *out_type, float *out_score)
{
    const part *one = &((const vocabulary *)user_data)->tokens[id];
    *out_bytes = one->bytes;
    *out_count = one->count;
    *out_type = one->type;
    *out_score = -(float)id;
    return STRATA_OK;
}

static strata_status merge(const void *user_data, uint64_t index, const uint8_t **out_bytes,
                           uint64_t *out_count)
{
    const part *one = &((const vocabulary *)user_data)->merges[index];
    *out_bytes = one->bytes;
    *out_count = one->count;
    return STRATA_OK;
}

static uint64_t unescape(const void *user_data, uint32_t type, const uint8_t *stored,
                         uint64_t count, uint8_t *out)
{
    (void)user_data;
    (void)type;
    if (out && count)
        memcpy(out, stored, count);
    return count;
}

static uint8_t take(const uint8_t **data, uint64_t *left)
{
    if (*left == 0)
        return 0;
    --*left;
    return *(*data)++;
}

static void take_part(const uint8_t **data, uint64_t *left, part *out)
{
    out->count = take(data, left);
    if (out->count > *left)
        out->count = *left;
    out->bytes = *data;
    *data += out->count;
    *left -= out->count;
}

static void read_vocabulary(const uint8_t **data, uint64_t *left, uint8_t flags, vocabulary *v,
                            strata__text_source *source)
{
    uint64_t tokens = take(data, left), merges = take(data, left);
    for (uint64_t i = 0; i < tokens; i++) {
        v->tokens[i].type = take(data, left) % 7;
        take_part(data, left, &v->tokens[i]);
    }
    for (uint64_t i = 0; i < merges; i++)
        take_part(data, left, &v->merges[i]);
    for (int byte = 0; flags & FLAG_BYTES && byte < 256; byte++) {
        v->singles[byte] = (uint8_t)byte;
        v->tokens[tokens++] = (part){&v->singles[byte], 1, STRATA__TOKEN_NORMAL};
    }
    source->token_count = tokens;
    source->merge_count = merges;
}

static void use(const strata_tokenizer *tokenizer, const uint8_t *text, uint64_t bytes,
                uint8_t flags, uint64_t vocabulary_count, bool byte_pairs)
{
    strata_encode_options encode = {.bare = 1, .special = !!(flags & FLAG_SPECIAL)};
    strata_decode_options decode = {.special = 1};
    uint64_t room = 3 * bytes + 64, count = 0, again = 0, back_bytes = 0;
    int32_t *tokens = malloc(room * sizeof *tokens);
    int32_t few[3];
    char *back = NULL;
    strata_status status;
    encode.invalid_utf8 = !!(flags & FLAG_REPLACE);
    must(tokens != NULL, "memory");
    status = strata__text_encode(tokenizer, text, bytes, &encode, tokens, room, &count);
    if (status == STRATA_OK) {
        for (uint64_t i = 0; i < count; i++)
            must(tokens[i] >= 0 && (uint64_t)tokens[i] < vocabulary_count, "an id");
        status = strata__text_encode(tokenizer, text, bytes, &encode, few, 3, &again);
        must(status == (count > 3 ? STRATA_ERR_BUFFER_TOO_SMALL : STRATA_OK), "a short buffer");
        must(again == count, "the same number");
        must(memcmp(few, tokens, (count < 3 ? count : 3) * sizeof *few) == 0, "the same tokens");
        status = strata__text_decode(tokenizer, tokens, count, &decode, NULL, 0, &back_bytes);
        must(status == STRATA_OK, "decoding");
        back = malloc(back_bytes + 1);
        must(back && strata__text_decode(tokenizer, tokens, count, &decode, back, back_bytes,
                                         &back_bytes) == STRATA_OK,
             "decoding again");
        if (byte_pairs && !encode.invalid_utf8)
            must(back_bytes == bytes && memcmp(back, text, bytes) == 0, "the text again");
    } else {
        must_have_text(status);
        must(status == STRATA_ERR_UNSUPPORTED, "bytes without a token");
    }
    free(tokens);
    free(back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    strata_context_options options = {.struct_size = sizeof options};
    static vocabulary v;
    strata__text_source source = {.user_data = &v,
                                  .bos = -1,
                                  .eos = -1,
                                  .unknown = -1,
                                  .token = token,
                                  .merge = merge,
                                  .unescape = unescape};
    strata_context *context;
    strata_tokenizer *tokenizer = NULL;
    strata_status status;
    uint64_t left = bytes;
    uint8_t kind = take(&data, &left), flags = take(&data, &left);
    const bool byte_pairs = kind & 1;
    source.model.bytes = byte_pairs ? "gpt2" : "llama";
    source.model.count = strlen(source.model.bytes);
    source.pre.bytes = patterns[kind / 2 % 8];
    source.pre.count = strlen(source.pre.bytes);
    source.add_bos = !!(flags & FLAG_BOS);
    source.add_eos = !!(flags & FLAG_EOS);
    source.add_space_prefix = !!(flags & FLAG_SPACE);
    read_vocabulary(&data, &left, flags, &v, &source);
    must(strata__context_create(&options, &context) == STRATA_OK, "a context");
    strata__fail(STRATA_OK, "%s", "");
    status = strata__text_create(context, &source, &tokenizer);
    must_have_text(status);
    must((status == STRATA_OK) == (tokenizer != NULL), "a tokenizer or a refusal");
    if (tokenizer)
        use(tokenizer, data, left, flags, source.token_count, byte_pairs);
    strata__text_destroy(tokenizer);
    strata__context_release(context);
    return 0;
}
