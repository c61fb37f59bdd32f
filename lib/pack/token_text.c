/* SPDX-License-Identifier: MIT */
#include "pack/token_text.h"

#include <stdbool.h>
#include <string.h>

#include "pack/internal.h"
#include "pack/utf8.h"

enum { TYPE_ABSENT = 0, TYPE_NORMAL = 1, TYPE_BYTE = 6, LOWER_ONE_EIGHTH_BLOCK = 0x2581 };

/*
 * Byte-level vocabularies (Radford et al., 2019) write printable Latin-1 as it is and the 68 other
 * bytes, in ascending order, as the characters from U+0100 on.
 */
static int32_t byte_of_character(uint32_t code_point)
{
    uint32_t rank = code_point - 0x100;
    if ((code_point >= 33 && code_point <= 126) || (code_point >= 161 && code_point <= 172) ||
        (code_point >= 174 && code_point <= 255))
        return (int32_t)code_point;
    if (code_point < 0x100 || rank > 67)
        return -1;
    return (int32_t)(rank < 33 ? rank : rank < 67 ? rank - 33 + 127 : 173);
}

static uint64_t byte_level_text(const uint8_t *text, uint64_t count, uint8_t *out)
{
    uint64_t written = 0;
    for (uint64_t at = 0; at < count;) {
        uint32_t code_point = 0;
        uint32_t length = strata__utf8_next(text + at, count - at, &code_point);
        int32_t byte = length ? byte_of_character(code_point) : -1;
        uint32_t copied = byte >= 0 ? 1 : length ? length : 1;
        if (out && byte >= 0)
            out[written] = (uint8_t)byte;
        else if (out)
            memcpy(out + written, text + at, copied);
        written += copied;
        at += length ? length : 1;
    }
    return written;
}

static uint64_t sentencepiece_text(const uint8_t *text, uint64_t count, uint8_t *out)
{
    uint64_t written = 0;
    for (uint64_t at = 0; at < count;) {
        uint32_t code_point = 0;
        uint32_t length = strata__utf8_next(text + at, count - at, &code_point);
        bool space = length && code_point == LOWER_ONE_EIGHTH_BLOCK;
        uint32_t copied = space ? 1 : length ? length : 1;
        if (out && space)
            out[written] = ' ';
        else if (out)
            memcpy(out + written, text + at, copied);
        written += copied;
        at += length ? length : 1;
    }
    return written;
}

static int32_t hex_digit(uint8_t character)
{
    if (character >= '0' && character <= '9')
        return character - '0';
    if (character >= 'A' && character <= 'F')
        return character - 'A' + 10;
    if (character >= 'a' && character <= 'f')
        return character - 'a' + 10;
    return -1;
}

/* "<0x1F>", nothing else. */
static bool parse_byte(const uint8_t *text, uint64_t count, uint8_t *out)
{
    int32_t high, low;
    if (count != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>')
        return false;
    high = hex_digit(text[3]);
    low = hex_digit(text[4]);
    if (high < 0 || low < 0)
        return false;
    *out = (uint8_t)(high * 16 + low);
    return true;
}

uint64_t strata__token_text(uint32_t tokenizer, uint32_t type, const uint8_t *text, uint64_t count,
                            uint8_t *out)
{
    uint8_t byte;
    if (type == TYPE_BYTE && parse_byte(text, count, &byte)) {
        if (out)
            *out = byte;
        return 1;
    }
    if (type == TYPE_NORMAL || type == TYPE_ABSENT) {
        if (tokenizer == STRATA__TOKENIZER_BYTE_LEVEL)
            return byte_level_text(text, count, out);
        if (tokenizer == STRATA__TOKENIZER_SENTENCEPIECE)
            return sentencepiece_text(text, count, out);
    }
    if (out && count)
        memcpy(out, text, count);
    return count;
}
