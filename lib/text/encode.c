/* SPDX-License-Identifier: MIT */
/* From bytes to tokens: special tokens, words, symbols, merges. */
#include <stddef.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "text/ill_formed.h"
#include "text/merge.h"
#include "text/tokenizer.h"

enum { CACHED_BYTES = 32, CACHED_TOKENS = 6, CACHE_MOST = 1 << 14, MOST_BYTES = 0x7fffffff };

/* A word of this text and its tokens. */
typedef struct cached_word {
    const uint8_t *bytes; /* in the text; NULL: free */
    uint32_t byte_count;
    uint32_t token_count;
    int32_t tokens[CACHED_TOKENS];
} cached_word;

/* One call. */
typedef struct encoder {
    const strata_tokenizer *tokenizer;
    const strata__allocator *allocator;
    const uint8_t *text;
    uint64_t text_bytes;
    const uint8_t *shape; /* the text, well-formed */
    uint8_t *text_copy;   /* the text, when it is not the caller's */
    uint64_t text_copy_bytes;
    uint8_t *shape_copy; /* of text_bytes */
    int32_t *tokens;     /* the caller's */
    uint64_t capacity;
    uint64_t count; /* tokens so far, beyond the capacity too */
    cached_word *cache;
    uint64_t cache_count; /* a power of two */
    int32_t *symbols;
    uint64_t symbol_count;
    uint8_t *prefixed; /* a word with a space before it */
    uint64_t prefixed_bytes;
    strata__merge_memory memory;
} encoder;

static void give(encoder *e, int32_t token)
{
    if (e->count < e->capacity)
        e->tokens[e->count] = token;
    e->count++;
}

static void give_all(encoder *e, const int32_t *tokens, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        give(e, tokens[i]);
}

static strata_status no_token(uint8_t byte)
{
    return strata__fail(STRATA_ERR_UNSUPPORTED, "the vocabulary has no token for byte 0x%02x",
                        byte);
}

/* The token of one byte, else the unknown one. */
static strata_status byte_token(const encoder *e, uint8_t byte, int32_t *out)
{
    *out = e->tokenizer->vocabulary.byte_ids[byte];
    if (*out < 0)
        *out = e->tokenizer->info.unknown_token;
    return *out < 0 ? no_token(byte) : STRATA_OK;
}

static strata_status byte_symbols(encoder *e, const uint8_t *bytes, uint64_t count,
                                  uint64_t *out_count)
{
    strata_status status = STRATA_OK;
    for (uint64_t i = 0; status == STRATA_OK && i < count; i++)
        status = byte_token(e, bytes[i], &e->symbols[i]);
    *out_count = count;
    return status;
}

/* A character without a token falls into its bytes; those without one into one unknown token. */
static strata_status spell_character(encoder *e, const uint8_t *bytes, uint32_t length,
                                     uint64_t *inout_count)
{
    for (uint32_t i = 0; i < length; i++) {
        int32_t token;
        strata_status status = byte_token(e, bytes[i], &token);
        if (status != STRATA_OK)
            return status;
        if (token == e->tokenizer->info.unknown_token && *inout_count &&
            e->symbols[*inout_count - 1] == token)
            continue;
        e->symbols[(*inout_count)++] = token;
    }
    return STRATA_OK;
}

static strata_status character_symbols(encoder *e, const uint8_t *bytes, uint64_t count,
                                       uint64_t *out_count)
{
    const strata__text_vocabulary *v = &e->tokenizer->vocabulary;
    strata_status status = STRATA_OK;
    *out_count = 0;
    for (uint64_t at = 0; status == STRATA_OK && at < count;) {
        bool well_formed;
        uint32_t length = strata__text_character(bytes + at, count - at, &well_formed);
        int32_t token =
            well_formed && length > 1 ? strata__text_vocabulary_find(v, bytes + at, length) : -1;
        if (token >= 0)
            e->symbols[(*out_count)++] = token;
        else
            status = spell_character(e, bytes + at, length, out_count);
        at += length;
    }
    return status;
}

static strata_status hold_symbols(encoder *e, uint64_t count)
{
    uint64_t wanted = count < 256 ? 256 : count;
    if (count <= e->symbol_count)
        return STRATA_OK;
    strata__free(e->allocator, e->symbols, e->symbol_count * sizeof *e->symbols);
    e->symbol_count = 0;
    e->symbols = strata__calloc(e->allocator, wanted, sizeof *e->symbols);
    if (!e->symbols)
        return strata__fail_memory(wanted * sizeof *e->symbols, "the symbols of a word");
    e->symbol_count = wanted;
    return STRATA_OK;
}

/* Leaves the word's tokens in e->symbols. */
static strata_status merge_word(encoder *e, const uint8_t *bytes, uint64_t count,
                                uint64_t *out_count)
{
    const strata_tokenizer *t = e->tokenizer;
    strata_status status = hold_symbols(e, count);
    if (status != STRATA_OK)
        return status;
    if (t->whole_words) {
        int32_t token = strata__text_vocabulary_find(&t->vocabulary, bytes, count);
        if (token >= 0) {
            e->symbols[0] = token;
            *out_count = 1;
            return STRATA_OK;
        }
    }
    status = t->splitter ? byte_symbols(e, bytes, count, out_count)
                         : character_symbols(e, bytes, count, out_count);
    if (status == STRATA_OK)
        status = strata__merge(&t->pairs, &e->memory, e->symbols, out_count);
    return status;
}

static cached_word *cache_slot(const encoder *e, const uint8_t *bytes, uint64_t count)
{
    return &e->cache[strata__text_hash(bytes, count) >> 32 & (e->cache_count - 1)];
}

/* `lasting`: the bytes stay where they are until the call ends. */
static strata_status encode_word(encoder *e, const uint8_t *bytes, uint64_t count, bool lasting)
{
    cached_word *slot = count <= CACHED_BYTES ? cache_slot(e, bytes, count) : NULL;
    uint64_t token_count;
    strata_status status;
    if (slot && slot->byte_count == count && memcmp(slot->bytes, bytes, count) == 0) {
        give_all(e, slot->tokens, slot->token_count);
        return STRATA_OK;
    }
    status = merge_word(e, bytes, count, &token_count);
    if (status != STRATA_OK)
        return status;
    give_all(e, e->symbols, token_count);
    if (slot && lasting && token_count <= CACHED_TOKENS) {
        slot->bytes = bytes;
        slot->byte_count = (uint32_t)count;
        slot->token_count = (uint32_t)token_count;
        memcpy(slot->tokens, e->symbols, token_count * sizeof *slot->tokens);
    }
    return STRATA_OK;
}

static strata_status take_word(void *user_data, uint64_t begin, uint64_t end)
{
    encoder *e = user_data;
    return encode_word(e, e->text + begin, end - begin, true);
}

/* A word of a SentencePiece text ends before a space that no token joins to it. */
static uint64_t word_end(const encoder *e, uint64_t begin, uint64_t end)
{
    const bool *joins_space = e->tokenizer->joins_space;
    const uint8_t *text = e->text;
    uint64_t at = begin + 1;
    while (at < end && (text[at] != ' ' || text[at - 1] == ' ' || joins_space[text[at - 1]]))
        at++;
    return at;
}

static strata_status encode_prefixed(encoder *e, uint64_t begin, uint64_t end)
{
    uint64_t bytes = end - begin + 1;
    if (bytes > e->prefixed_bytes) {
        strata__free(e->allocator, e->prefixed, e->prefixed_bytes);
        e->prefixed_bytes = 0;
        e->prefixed = strata__alloc(e->allocator, bytes);
        if (!e->prefixed)
            return strata__fail_memory(bytes, "the first word of a text");
        e->prefixed_bytes = bytes;
    }
    e->prefixed[0] = ' ';
    memcpy(e->prefixed + 1, e->text + begin, bytes - 1);
    return encode_word(e, e->prefixed, bytes, false);
}

static strata_status encode_sentence(encoder *e, uint64_t begin, uint64_t end)
{
    strata_status status = STRATA_OK;
    bool prefix = e->tokenizer->info.add_space;
    while (status == STRATA_OK && begin < end) {
        uint64_t cut = word_end(e, begin, end);
        status = prefix ? encode_prefixed(e, begin, cut)
                        : encode_word(e, e->text + begin, cut - begin, true);
        prefix = false;
        begin = cut;
    }
    return status;
}

static strata_status encode_fragment(encoder *e, uint64_t begin, uint64_t end)
{
    if (begin == end)
        return STRATA_OK;
    if (!e->tokenizer->splitter)
        return encode_sentence(e, begin, end);
    return strata__splitter_run(e->tokenizer->splitter, e->shape, begin, end, take_word, e);
}

static strata_status encode_text(encoder *e, const strata_encode_options *options)
{
    const strata_tokenizer *t = e->tokenizer;
    strata_status status = STRATA_OK;
    uint64_t at = 0;
    if (t->info.add_bos && !options->bare)
        give(e, t->info.bos_token);
    while (status == STRATA_OK && at < e->text_bytes) {
        uint64_t special_at, special_bytes = 0;
        int32_t special =
            strata__special_next(&t->special, &t->vocabulary, e->text, at, e->text_bytes,
                                 options->special != 0, &special_at, &special_bytes);
        status = encode_fragment(e, at, special_at);
        if (status == STRATA_OK && special >= 0)
            give(e, special);
        at = special_at + special_bytes;
    }
    if (t->info.add_eos && !options->bare)
        give(e, t->info.eos_token);
    return status;
}

static strata_status too_long(uint64_t bytes)
{
    return strata__fail(STRATA_ERR_INVALID_ARGUMENT, "the text has %llu bytes, at most %d",
                        (unsigned long long)bytes, MOST_BYTES);
}

/* Makes the text the encoder's own. */
static strata_status own_text(encoder *e, uint64_t bytes)
{
    uint8_t *copy = strata__alloc(e->allocator, bytes);
    if (!copy)
        return strata__fail_memory(bytes, "a text's copy");
    e->text_copy = copy;
    e->text_copy_bytes = bytes;
    return STRATA_OK;
}

static strata_status replace_ill_formed(encoder *e)
{
    uint64_t bytes = strata__text_replace(e->text, e->text_bytes, NULL);
    strata_status status = bytes > MOST_BYTES ? too_long(bytes) : own_text(e, bytes);
    if (status != STRATA_OK)
        return status;
    strata__text_replace(e->text, e->text_bytes, e->text_copy);
    e->text = e->shape = e->text_copy;
    e->text_bytes = bytes;
    return STRATA_OK;
}

/* What the splitter sees of ill-formed bytes is a symbol each. */
static strata_status shape_ill_formed(encoder *e)
{
    e->shape_copy = strata__alloc(e->allocator, e->text_bytes);
    if (!e->shape_copy)
        return strata__fail_memory(e->text_bytes, "a text's copy");
    strata__text_shape(e->text, e->text_bytes, e->shape_copy);
    e->shape = e->shape_copy;
    return STRATA_OK;
}

static const uint8_t *find_escape(const uint8_t *text, uint64_t bytes)
{
    const uint8_t *end = text + bytes;
    while (end - text >= 3) {
        const uint8_t *first = memchr(text, 0xe2, (uint64_t)(end - text) - 2);
        if (!first || (first[1] == 0x96 && first[2] == 0x81))
            return first;
        text = first + 1;
    }
    return NULL;
}

/* SentencePiece writes spaces as U+2581, so that this character in a text is one. */
static strata_status unescape_spaces(encoder *e)
{
    const uint8_t *from = e->text, *end = e->text + e->text_bytes, *escape;
    uint8_t *to;
    if (!find_escape(from, e->text_bytes))
        return STRATA_OK;
    if (!e->text_copy) {
        strata_status status = own_text(e, e->text_bytes);
        if (status != STRATA_OK)
            return status;
    }
    to = e->text_copy;
    while ((escape = find_escape(from, (uint64_t)(end - from)))) {
        memmove(to, from, (uint64_t)(escape - from));
        to += escape - from;
        *to++ = ' ';
        from = escape + 3;
    }
    memmove(to, from, (uint64_t)(end - from));
    to += end - from;
    e->text = e->shape = e->text_copy;
    e->text_bytes = (uint64_t)(to - e->text_copy);
    return STRATA_OK;
}

static strata_status prepare(encoder *e, uint32_t invalid_utf8)
{
    strata_status status = STRATA_OK;
    if (strata__text_well_formed(e->text, e->text_bytes) < e->text_bytes) {
        if (invalid_utf8 == STRATA_INVALID_UTF8_REPLACE)
            status = replace_ill_formed(e);
        else if (e->tokenizer->splitter)
            status = shape_ill_formed(e);
    }
    if (status == STRATA_OK && !e->tokenizer->splitter)
        status = unescape_spaces(e);
    if (status != STRATA_OK)
        return status;
    e->cache_count = 64;
    while (e->cache_count < CACHE_MOST && e->cache_count < e->text_bytes / 8)
        e->cache_count *= 2;
    e->cache = strata__calloc(e->allocator, e->cache_count, sizeof *e->cache);
    return e->cache ? STRATA_OK
                    : strata__fail_memory(e->cache_count * sizeof *e->cache, "a cache of words");
}

static void release(encoder *e, uint64_t shape_bytes)
{
    strata__free(e->allocator, e->text_copy, e->text_copy_bytes);
    strata__free(e->allocator, e->shape_copy, shape_bytes);
    strata__free(e->allocator, e->cache, e->cache_count * sizeof *e->cache);
    strata__free(e->allocator, e->symbols, e->symbol_count * sizeof *e->symbols);
    strata__free(e->allocator, e->prefixed, e->prefixed_bytes);
    strata__merge_memory_release(&e->memory);
}

strata_status strata__text_encode(const strata_tokenizer *tokenizer, const uint8_t *text,
                                  uint64_t bytes, const strata_encode_options *options,
                                  int32_t *tokens, uint64_t capacity, uint64_t *out_count)
{
    const strata__allocator *allocator = &tokenizer->context->allocator;
    encoder e = {.tokenizer = tokenizer,
                 .allocator = allocator,
                 .text = text,
                 .text_bytes = bytes,
                 .shape = text,
                 .tokens = tokens,
                 .capacity = capacity,
                 .memory.allocator = allocator};
    strata_status status;
    if (options->invalid_utf8 > STRATA_INVALID_UTF8_REPLACE)
        return strata__fail(STRATA_ERR_UNSUPPORTED, "strata_encode_options: invalid_utf8 is %u",
                            (unsigned)options->invalid_utf8);
    if (bytes > MOST_BYTES)
        return too_long(bytes);
    status = prepare(&e, options->invalid_utf8);
    if (status == STRATA_OK)
        status = encode_text(&e, options);
    release(&e, bytes);
    if (status != STRATA_OK)
        return status;
    *out_count = e.count;
    if (tokens && e.count > capacity)
        return strata__fail(STRATA_ERR_BUFFER_TOO_SMALL,
                            "the text has %llu tokens, the buffer holds %llu",
                            (unsigned long long)e.count, (unsigned long long)capacity);
    return STRATA_OK;
}
