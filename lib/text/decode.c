/* SPDX-License-Identifier: MIT */
/* From tokens to bytes. */
#include <stddef.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "text/tokenizer.h"

static bool is_control(const strata_tokenizer *t, int32_t token)
{
    uint8_t type = t->vocabulary.types[token];
    return type == STRATA__TOKEN_CONTROL || type == STRATA__TOKEN_UNKNOWN;
}

/*
 * Bytes of a token. `first`: nothing but control tokens came before, so that the space that stands
 * before a text falls away.
 */
static uint64_t bytes_of(const strata_tokenizer *t, const strata_decode_options *options,
                         int32_t token, bool first, const uint8_t **out)
{
    const strata__text_vocabulary *v = &t->vocabulary;
    uint64_t count = v->offsets[token + 1] - v->offsets[token];
    *out = v->bytes + v->offsets[token];
    if (is_control(t, token))
        return options->special ? count : 0;
    if (first && t->info.add_space && !options->continued && count && **out == ' ' &&
        v->types[token] != STRATA__TOKEN_USER) {
        ++*out;
        count--;
    }
    return count;
}

static strata_status write(const strata_tokenizer *t, const int32_t *tokens, uint64_t count,
                           const strata_decode_options *options, char *buffer, uint64_t *out_bytes)
{
    uint64_t written = 0;
    bool first = true;
    for (uint64_t i = 0; i < count; i++) {
        const uint8_t *bytes;
        uint64_t part;
        if (tokens[i] < 0 || (uint32_t)tokens[i] >= t->vocabulary.count)
            return strata__fail(
                STRATA_ERR_INVALID_ARGUMENT, "token %llu is %d; the vocabulary has %u tokens",
                (unsigned long long)i, (int)tokens[i], (unsigned)t->vocabulary.count);
        part = bytes_of(t, options, tokens[i], first, &bytes);
        first = first && is_control(t, tokens[i]);
        if (buffer && part)
            memcpy(buffer + written, bytes, part);
        if (!strata__add_u64(written, part, &written))
            return strata__fail(STRATA_ERR_INVALID_ARGUMENT, "the text is too long");
    }
    *out_bytes = written;
    return STRATA_OK;
}

strata_status strata__text_decode(const strata_tokenizer *tokenizer, const int32_t *tokens,
                                  uint64_t count, const strata_decode_options *options,
                                  char *buffer, uint64_t buffer_bytes, uint64_t *out_bytes)
{
    strata_status status = write(tokenizer, tokens, count, options, NULL, out_bytes);
    if (status != STRATA_OK || !buffer)
        return status;
    if (*out_bytes > buffer_bytes)
        return strata__fail(STRATA_ERR_BUFFER_TOO_SMALL,
                            "the text takes %llu bytes, the buffer has %llu",
                            (unsigned long long)*out_bytes, (unsigned long long)buffer_bytes);
    return write(tokenizer, tokens, count, options, buffer, out_bytes);
}
