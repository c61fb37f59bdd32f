/* SPDX-License-Identifier: MIT */
/* The vocabulary: optional, and checked as a whole when the file has one. */
#include <stddef.h>
#include <string.h>

#include "base/error.h"
#include "pack/internal.h"
#include "pack/token_text.h"

enum { LAST_TOKEN_TYPE = 6 };

static const char prefix[] = "tokenizer.ggml.";
static const char id_suffix[] = "_token_id";

static const char *file_name(const strata__pack *pack)
{
    return strata__pack_shard(pack, 0)->name;
}

/* Leaves *out zeroed when the key is absent. `length` 0: any. */
static strata_status find_array(const strata__pack *pack, const char *key, uint32_t element_type,
                                uint64_t length, strata__value *out)
{
    strata__value value;
    if (!strata__pack_value_find(pack, key, &value))
        return STRATA_OK;
    if (value.type != STRATA__VALUE_ARRAY || value.element_type != element_type)
        return strata__fail(STRATA_ERR_FORMAT, "%s: key %s: expected an array of %s, found %s%s",
                            file_name(pack), key, strata__value_type_name(element_type),
                            value.type == STRATA__VALUE_ARRAY ? "an array of " : "",
                            strata__value_type_name(value.element_type));
    if (length && value.count != length)
        return strata__fail(STRATA_ERR_FORMAT,
                            "%s: key %s has %" PRIu64 " elements for %" PRIu64 " tokens",
                            file_name(pack), key, value.count, length);
    *out = value;
    return STRATA_OK;
}

static strata_status check_types(const strata__pack *pack)
{
    const strata__value *types = &pack->vocabulary.types;
    for (uint64_t i = 0; i < types->count; i++) {
        int32_t type;
        memcpy(&type, types->data + i * sizeof type, sizeof type);
        if (type < 0 || type > LAST_TOKEN_TYPE)
            return strata__fail(STRATA_ERR_FORMAT,
                                "%s: token %" PRIu64 " has type %" PRId32 "; 0 to %d exist",
                                file_name(pack), i, type, LAST_TOKEN_TYPE);
    }
    return STRATA_OK;
}

static bool is_special_id(const char *key)
{
    uint64_t length = strlen(key);
    return length > sizeof prefix + sizeof id_suffix - 2 &&
           strncmp(key, prefix, sizeof prefix - 1) == 0 &&
           strcmp(key + length - (sizeof id_suffix - 1), id_suffix) == 0;
}

static strata_status check_special_ids(const strata__pack *pack, uint64_t tokens)
{
    const strata__value *values = strata__pack_values(pack);
    for (uint32_t i = 0; i < pack->values.count; i++) {
        const strata__value *value = &values[i];
        int64_t id;
        if (!is_special_id(value->key))
            continue;
        if (value->type == STRATA__VALUE_ARRAY || strata__value_int64(value, 0, &id) != STRATA_OK)
            return strata__fail(STRATA_ERR_FORMAT, "%s: key %s: expected an integer, found %s",
                                file_name(pack), value->key, strata__value_type_name(value->type));
        if (id < 0 || (uint64_t)id >= tokens)
            return strata__fail(STRATA_ERR_FORMAT,
                                "%s: key %s is %" PRId64 ", the vocabulary has %" PRIu64 " tokens",
                                file_name(pack), value->key, id, tokens);
    }
    return STRATA_OK;
}

static strata_status find_tokenizer(strata__pack *pack)
{
    strata__value model;
    if (!strata__pack_value_find(pack, "tokenizer.ggml.model", &model))
        return STRATA_OK;
    if (model.type != STRATA__VALUE_STRING)
        return strata__fail(STRATA_ERR_FORMAT,
                            "%s: key tokenizer.ggml.model: expected a string, found %s",
                            file_name(pack), strata__value_type_name(model.type));
    if (model.count == 4 && memcmp(model.data, "gpt2", 4) == 0)
        pack->vocabulary.tokenizer = STRATA__TOKENIZER_BYTE_LEVEL;
    else if (model.count == 5 && memcmp(model.data, "llama", 5) == 0)
        pack->vocabulary.tokenizer = STRATA__TOKENIZER_SENTENCEPIECE;
    return STRATA_OK;
}

strata_status strata__vocabulary_build(strata__pack *pack)
{
    strata__vocabulary *vocabulary = &pack->vocabulary;
    strata__value merges = {0};
    uint64_t tokens;
    strata_status status = find_tokenizer(pack);
    if (status == STRATA_OK)
        status =
            find_array(pack, "tokenizer.ggml.tokens", STRATA__VALUE_STRING, 0, &vocabulary->tokens);
    tokens = vocabulary->tokens.count;
    if (status != STRATA_OK || tokens == 0)
        return status;
    status = find_array(pack, "tokenizer.ggml.token_type", STRATA__VALUE_I32, tokens,
                        &vocabulary->types);
    if (status == STRATA_OK)
        status = find_array(pack, "tokenizer.ggml.scores", STRATA__VALUE_F32, tokens,
                            &vocabulary->scores);
    if (status == STRATA_OK)
        status = find_array(pack, "tokenizer.ggml.merges", STRATA__VALUE_STRING, 0, &merges);
    if (status == STRATA_OK)
        status = check_types(pack);
    return status == STRATA_OK ? check_special_ids(pack, tokens) : status;
}

uint64_t strata__pack_token_count(const strata__pack *pack)
{
    return pack->vocabulary.tokens.count;
}

strata_status strata__pack_token(const strata__pack *pack, uint64_t id, const uint8_t **out_bytes,
                                 uint64_t *out_count, uint32_t *out_type, float *out_score)
{
    const strata__vocabulary *vocabulary = &pack->vocabulary;
    strata_status status;
    if (id >= vocabulary->tokens.count)
        return strata__fail(STRATA_ERR_INVALID_ARGUMENT,
                            "the vocabulary has %" PRIu64 " tokens, there is no token %" PRIu64,
                            vocabulary->tokens.count, id);
    status = strata__value_string(&vocabulary->tokens, id, out_bytes, out_count);
    if (status != STRATA_OK)
        return status;
    *out_type = 0;
    *out_score = 0;
    if (vocabulary->types.count)
        memcpy(out_type, vocabulary->types.data + id * sizeof *out_type, sizeof *out_type);
    if (vocabulary->scores.count)
        memcpy(out_score, vocabulary->scores.data + id * sizeof *out_score, sizeof *out_score);
    return STRATA_OK;
}

uint64_t strata__pack_unescape(const strata__pack *pack, uint32_t type, const uint8_t *stored,
                               uint64_t count, uint8_t *out)
{
    return strata__token_text(pack->vocabulary.tokenizer, type, stored, count, out);
}

strata_status strata__pack_token_text(const strata__pack *pack, uint64_t id, char *buffer,
                                      uint64_t buffer_bytes, uint64_t *out_bytes)
{
    const uint8_t *text;
    uint64_t count, needed;
    uint32_t type = 0;
    float score;
    strata_status status = strata__pack_token(pack, id, &text, &count, &type, &score);
    if (status != STRATA_OK)
        return status;
    needed = strata__token_text(pack->vocabulary.tokenizer, type, text, count, NULL);
    *out_bytes = needed;
    if (!buffer && buffer_bytes == 0)
        return STRATA_OK;
    if (needed > buffer_bytes)
        return strata__fail(STRATA_ERR_BUFFER_TOO_SMALL,
                            "token %" PRIu64 " takes %" PRIu64 " bytes, the buffer has %" PRIu64,
                            id, needed, buffer_bytes);
    strata__token_text(pack->vocabulary.tokenizer, type, text, count, (uint8_t *)buffer);
    return STRATA_OK;
}
