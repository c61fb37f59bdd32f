/* SPDX-License-Identifier: MIT */
/*
 * The tokenizer: byte-pair vocabularies (model "gpt2") and SentencePiece ones (model "llama") as
 * GGUF files carry them. It knows no pack: what it needs of a file comes through
 * strata__text_source.
 */
#ifndef STRATA_TEXT_TEXT_H
#define STRATA_TEXT_TEXT_H

#include <stdbool.h>
#include <stdint.h>

#include <strata/text.h>

#include "base/context.h"

/* A string of a file, not NUL-terminated; bytes NULL: the file has none. */
typedef struct strata__text_string {
    const char *bytes;
    uint64_t count;
} strata__text_string;

/* A vocabulary as a file has it. Called only while a tokenizer is made. */
typedef struct strata__text_source {
    const void *user_data;
    strata__text_string model;
    strata__text_string pre;
    uint64_t token_count;
    uint64_t merge_count;
    int64_t bos; /* ids, -1: none */
    int64_t eos;
    int64_t unknown;
    int32_t add_bos; /* 0, 1, or -1: as the model is used to */
    int32_t add_eos;
    int32_t add_space_prefix;
    strata_status (*token)(const void *user_data, uint64_t id, const uint8_t **out_bytes,
                           uint64_t *out_count, uint32_t *out_type, float *out_score);
    strata_status (*merge)(const void *user_data, uint64_t index, const uint8_t **out_bytes,
                           uint64_t *out_count);
    /* The bytes that a stored text stands for, never more than `count`; `out` NULL: only that. */
    uint64_t (*unescape)(const void *user_data, uint32_t type, const uint8_t *stored,
                         uint64_t count, uint8_t *out);
} strata__text_source;

/* Names of token types. */
enum {
    STRATA__TOKEN_ABSENT = 0,
    STRATA__TOKEN_NORMAL = 1,
    STRATA__TOKEN_UNKNOWN = 2,
    STRATA__TOKEN_CONTROL = 3,
    STRATA__TOKEN_USER = 4,
    STRATA__TOKEN_UNUSED = 5,
    STRATA__TOKEN_BYTE = 6
};

/* Retains the context. */
strata_status strata__text_create(strata_context *context, const strata__text_source *source,
                                  strata_tokenizer **out);
void strata__text_destroy(strata_tokenizer *tokenizer); /* NULL is legal */

void strata__text_info(const strata_tokenizer *tokenizer, strata_tokenizer_info *out);

/* Options are checked; *out_count is set also when the buffer is too small. */
strata_status strata__text_encode(const strata_tokenizer *tokenizer, const uint8_t *text,
                                  uint64_t bytes, const strata_encode_options *options,
                                  int32_t *tokens, uint64_t capacity, uint64_t *out_count);
strata_status strata__text_decode(const strata_tokenizer *tokenizer, const int32_t *tokens,
                                  uint64_t count, const strata_decode_options *options,
                                  char *buffer, uint64_t buffer_bytes, uint64_t *out_bytes);

#endif
