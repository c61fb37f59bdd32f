/* SPDX-License-Identifier: MIT */
/* Tokenizers: what lib/text needs of a vocabulary is read from the pack here. */
#include <strata/text.h>

#include <stddef.h>
#include <string.h>

#include "base/error.h"
#include "base/struct_size.h"
#include "pack/pack.h"
#include "text/text.h"

/* Sizes of the structures in the release that brought them. */
enum { FIRST_INFO_BYTES = 96, FIRST_ENCODE_BYTES = 16, FIRST_DECODE_BYTES = 16 };

typedef struct pack_vocabulary {
    const strata_pack *pack;
    strata__value merges;
} pack_vocabulary;

static strata_status fail_null(const char *function, const char *argument)
{
    return strata__fail(STRATA_ERR_INVALID_ARGUMENT, "%s: %s is NULL", function, argument);
}

static strata_status pack_token(const void *user_data, uint64_t id, const uint8_t **out_bytes,
                                uint64_t *out_count, uint32_t *out_type, float *out_score)
{
    const pack_vocabulary *vocabulary = user_data;
    return strata__pack_token(vocabulary->pack, id, out_bytes, out_count, out_type, out_score);
}

static strata_status pack_merge(const void *user_data, uint64_t index, const uint8_t **out_bytes,
                                uint64_t *out_count)
{
    const pack_vocabulary *vocabulary = user_data;
    return strata__value_string(&vocabulary->merges, index, out_bytes, out_count);
}

static uint64_t pack_unescape(const void *user_data, uint32_t type, const uint8_t *stored,
                              uint64_t count, uint8_t *out)
{
    const pack_vocabulary *vocabulary = user_data;
    return strata__pack_unescape(vocabulary->pack, type, stored, count, out);
}

static strata__text_string find_string(const strata_pack *pack, const char *key)
{
    strata__value value;
    strata__text_string string = {NULL, 0};
    const uint8_t *bytes;
    if (strata__pack_value_find(pack, key, &value) &&
        strata__value_string(&value, 0, &bytes, &string.count) == STRATA_OK)
        string.bytes = (const char *)bytes;
    return string;
}

/* An id or a bool; -1 when the file has none. Ids were checked when the pack was opened. */
static int64_t find_number(const strata_pack *pack, const char *key)
{
    strata__value value;
    int64_t number;
    if (!strata__pack_value_find(pack, key, &value) ||
        strata__value_int64(&value, 0, &number) != STRATA_OK)
        return -1;
    return number;
}

/* A bool that is written as any other number counts as set. */
static int32_t find_bool(const strata_pack *pack, const char *key)
{
    int64_t number = find_number(pack, key);
    return number < 0 ? -1 : number != 0;
}

strata_status strata_tokenizer_create(const strata_pack *pack, strata_tokenizer **out)
{
    pack_vocabulary vocabulary = {pack, {0}};
    strata__text_source source = {.user_data = &vocabulary,
                                  .token = pack_token,
                                  .merge = pack_merge,
                                  .unescape = pack_unescape};
    if (!out)
        return fail_null("strata_tokenizer_create", "out");
    *out = NULL;
    if (!pack)
        return fail_null("strata_tokenizer_create", "pack");
    source.model = find_string(pack, "tokenizer.ggml.model");
    source.pre = find_string(pack, "tokenizer.ggml.pre");
    source.token_count = strata__pack_token_count(pack);
    if (strata__pack_value_find(pack, "tokenizer.ggml.merges", &vocabulary.merges))
        source.merge_count = vocabulary.merges.count;
    source.bos = find_number(pack, "tokenizer.ggml.bos_token_id");
    source.eos = find_number(pack, "tokenizer.ggml.eos_token_id");
    source.unknown = find_number(pack, "tokenizer.ggml.unknown_token_id");
    source.add_bos = find_bool(pack, "tokenizer.ggml.add_bos_token");
    source.add_eos = find_bool(pack, "tokenizer.ggml.add_eos_token");
    source.add_space_prefix = find_bool(pack, "tokenizer.ggml.add_space_prefix");
    return strata__text_create(strata__pack_context(pack), &source, out);
}

void strata_tokenizer_destroy(strata_tokenizer *tokenizer)
{
    strata__text_destroy(tokenizer);
}

strata_status strata_tokenizer_info_get(const strata_tokenizer *tokenizer,
                                        strata_tokenizer_info *inout)
{
    strata_tokenizer_info info;
    if (!tokenizer)
        return fail_null("strata_tokenizer_info_get", "tokenizer");
    strata__text_info(tokenizer, &info);
    return strata__struct_out(inout, &info, sizeof info, FIRST_INFO_BYTES, "strata_tokenizer_info");
}

void strata_encode_options_init(strata_encode_options *options, uint64_t caller_bytes)
{
    const strata_encode_options defaults = {0};
    strata__struct_init(options, caller_bytes, &defaults, sizeof defaults);
}

void strata_decode_options_init(strata_decode_options *options, uint64_t caller_bytes)
{
    const strata_decode_options defaults = {0};
    strata__struct_init(options, caller_bytes, &defaults, sizeof defaults);
}

strata_status strata_tokenizer_encode(const strata_tokenizer *tokenizer, const char *text,
                                      uint64_t text_bytes, const strata_encode_options *options,
                                      int32_t *tokens, uint64_t token_capacity, uint64_t *out_count)
{
    const char *function = "strata_tokenizer_encode";
    strata_encode_options local = {0};
    if (!tokenizer)
        return fail_null(function, "tokenizer");
    if (!text && text_bytes)
        return fail_null(function, "text");
    if (!tokens && token_capacity)
        return fail_null(function, "tokens");
    if (!out_count)
        return fail_null(function, "out_count");
    if (options) {
        strata_status status = strata__struct_in(&local, sizeof local, options, FIRST_ENCODE_BYTES,
                                                 "strata_encode_options");
        if (status != STRATA_OK)
            return status;
    }
    return strata__text_encode(tokenizer, (const uint8_t *)(text ? text : ""), text_bytes, &local,
                               tokens, token_capacity, out_count);
}

strata_status strata_tokenizer_decode(const strata_tokenizer *tokenizer, const int32_t *tokens,
                                      uint64_t token_count, const strata_decode_options *options,
                                      char *buffer, uint64_t buffer_bytes, uint64_t *out_bytes)
{
    const char *function = "strata_tokenizer_decode";
    strata_decode_options local = {0};
    if (!tokenizer)
        return fail_null(function, "tokenizer");
    if (!tokens && token_count)
        return fail_null(function, "tokens");
    if (!buffer && buffer_bytes)
        return fail_null(function, "buffer");
    if (!out_bytes)
        return fail_null(function, "out_bytes");
    if (options) {
        strata_status status = strata__struct_in(&local, sizeof local, options, FIRST_DECODE_BYTES,
                                                 "strata_decode_options");
        if (status != STRATA_OK)
            return status;
    }
    return strata__text_decode(tokenizer, tokens, token_count, &local, buffer, buffer_bytes,
                               out_bytes);
}
