/* SPDX-License-Identifier: MIT */
/**
 * @file
 * From text to tokens and back, with the vocabulary that a pack carries.
 *
 * Vocabularies of byte pairs (`tokenizer.ggml.model` gpt2) split a text by the pattern that
 * `tokenizer.ggml.pre` names and then merge bytes; they need a library built with PCRE2.
 * SentencePiece vocabularies (llama) merge characters by score. No normalization is applied: a
 * text is tokenized as it is given.
 *
 * Patterns: default, gpt-2, olmo (all three GPT-2's); qwen2, deepseek-r1-qwen, hunyuan; llama-bpe,
 * llama3, llama-v3; gpt-4o, llama4, minimax-m2; glm4, chatglm-bpe; bailingmoe2, bailingmoe; refact,
 * starcoder; deepseek-llm; deepseek-coder; deepseek-v3, hunyuan-dense. A file that names none gets
 * "default".
 */
#ifndef STRATA_TEXT_H
#define STRATA_TEXT_H

#include <strata/base.h>
#include <strata/pack.h>

STRATA_BEGIN_DECLS

/** A tokenizer made from a pack. Opaque. Thread-safety: immutable after creation, any thread. */
typedef struct strata_tokenizer strata_tokenizer;

/** Facts of a tokenizer. */
typedef struct strata_tokenizer_info {
    uint32_t struct_size;  /**< sizeof this structure */
    uint32_t token_count;  /**< entries of the vocabulary */
    int32_t bos_token;     /**< begins a text; -1: none */
    int32_t eos_token;     /**< ends a text; -1: none */
    int32_t unknown_token; /**< stands for what has no token; -1: none */
    uint32_t add_bos;      /**< 1: strata_tokenizer_encode() begins with bos_token */
    uint32_t add_eos;      /**< 1: strata_tokenizer_encode() ends with eos_token */
    uint32_t add_space;    /**< 1: a space is put before a text (SentencePiece) */
    char model[32];        /**< tokenizer.ggml.model */
    char pre[32];          /**< tokenizer.ggml.pre, "default" when the file has none, else empty */
} strata_tokenizer_info;

/** What becomes of bytes that are no UTF-8. */
enum {
    STRATA_INVALID_UTF8_KEEP = 0, /**< they pass through as bytes; decoding gives them back */
    /** each maximal ill-formed part becomes U+FFFD, as Python's errors="replace" has it */
    STRATA_INVALID_UTF8_REPLACE = 1
};

/** How to encode. All zero (after struct_size) is a good default. */
typedef struct strata_encode_options {
    uint32_t struct_size;  /**< sizeof this structure */
    uint32_t special;      /**< 1: texts of control tokens become these tokens; 0: they are text */
    uint32_t bare;         /**< 1: nothing is put before or after, whatever the vocabulary says */
    uint32_t invalid_utf8; /**< STRATA_INVALID_UTF8_* */
} strata_encode_options;

/** How to decode. All zero (after struct_size) is a good default. */
typedef struct strata_decode_options {
    uint32_t struct_size; /**< sizeof this structure */
    uint32_t special;     /**< 1: control tokens are written as their texts; 0: they are left out */
    uint32_t continued;   /**< 1: the tokens continue a text, so that a first space is the text's */
    uint32_t reserved0;   /**< 0 */
} strata_decode_options;

/**
 * Makes the tokenizer of a pack. It need not be one whose model can be run.
 *
 * @param pack need not outlive the call
 * @param out  the caller's, to be destroyed; NULL on failure
 * @return STRATA_OK, STRATA_ERR_UNSUPPORTED (no vocabulary, a model or pattern this library does
 *         not know, by name, or the library was built without PCRE2), STRATA_ERR_FORMAT (a merge or
 *         score that is not sound), STRATA_ERR_NO_MEMORY, STRATA_ERR_INVALID_ARGUMENT
 */
STRATA_API STRATA_NODISCARD strata_status strata_tokenizer_create(const strata_pack *pack,
                                                                  strata_tokenizer **out);

/** Frees a tokenizer. NULL is legal. */
STRATA_API void strata_tokenizer_destroy(strata_tokenizer *tokenizer);

/** Fills `inout`, whose struct_size the caller set. */
STRATA_API STRATA_NODISCARD strata_status
strata_tokenizer_info_get(const strata_tokenizer *tokenizer, strata_tokenizer_info *inout);

/** Fills the defaults, never writing beyond caller_bytes, and sets struct_size to it. */
STRATA_API void strata_encode_options_init(strata_encode_options *options, uint64_t caller_bytes);

/** Fills the defaults, never writing beyond caller_bytes, and sets struct_size to it. */
STRATA_API void strata_decode_options_init(strata_decode_options *options, uint64_t caller_bytes);

/**
 * Turns a text into tokens. User-defined tokens are found in the text always, control tokens when
 * asked for; of several that begin at a place the longest is taken.
 *
 * @param text           any bytes, at most 2^31 - 1 of them; NULL when text_bytes is 0
 * @param options        copied; NULL for the defaults
 * @param tokens         destination, or NULL with capacity 0 to ask for the number
 * @param token_capacity ids that fit there
 * @param out_count      tokens of the text, also when they do not fit
 * @return STRATA_OK, STRATA_ERR_BUFFER_TOO_SMALL (out_count is set; what fits is written; not when
 *         tokens is NULL), STRATA_ERR_UNSUPPORTED (a stretch of text that the pattern's limits do
 *         not allow, or a byte that the vocabulary has no token for), STRATA_ERR_NO_MEMORY,
 *         STRATA_ERR_INVALID_ARGUMENT
 */
STRATA_API STRATA_NODISCARD strata_status
strata_tokenizer_encode(const strata_tokenizer *tokenizer, const char *text, uint64_t text_bytes,
                        const strata_encode_options *options, int32_t *tokens,
                        uint64_t token_capacity, uint64_t *out_count);

/**
 * Turns tokens into the bytes they stand for. A part of a sequence may begin or end within a UTF-8
 * character; the parts one after another give the whole.
 *
 * @param options      copied; NULL for the defaults
 * @param buffer       destination, not NUL-terminated; NULL with 0 bytes asks for the size
 * @param buffer_bytes its size
 * @param out_bytes    bytes needed, also when they do not fit
 * @return STRATA_OK, STRATA_ERR_BUFFER_TOO_SMALL (out_bytes is set, nothing is written),
 *         STRATA_ERR_INVALID_ARGUMENT (a token out of range, by index)
 */
STRATA_API STRATA_NODISCARD strata_status strata_tokenizer_decode(
    const strata_tokenizer *tokenizer, const int32_t *tokens, uint64_t token_count,
    const strata_decode_options *options, char *buffer, uint64_t buffer_bytes, uint64_t *out_bytes);

STRATA_END_DECLS

#endif
