/* SPDX-License-Identifier: MIT */
#include "text/ill_formed.h"

#include <string.h>

/* Bytes that a first byte announces, 0 when it begins nothing, and the range of the second byte. */
static uint32_t announced(uint8_t first, uint8_t *out_low, uint8_t *out_high)
{
    *out_low = 0x80;
    *out_high = 0xbf;
    if (first < 0x80)
        return 1;
    if (first < 0xc2 || first > 0xf4)
        return 0;
    if (first < 0xe0)
        return 2;
    if (first == 0xe0)
        *out_low = 0xa0;
    if (first == 0xed)
        *out_high = 0x9f;
    if (first < 0xf0)
        return 3;
    if (first == 0xf0)
        *out_low = 0x90;
    if (first == 0xf4)
        *out_high = 0x8f;
    return 4;
}

uint32_t strata__text_character(const uint8_t *text, uint64_t count, bool *out_well_formed)
{
    uint8_t low, high;
    uint32_t length = announced(text[0], &low, &high);
    *out_well_formed = false;
    if (length == 0)
        return 1;
    for (uint32_t i = 1; i < length; i++) {
        if (i >= count || text[i] < low || text[i] > high)
            return i;
        low = 0x80;
        high = 0xbf;
    }
    *out_well_formed = true;
    return length;
}

uint64_t strata__text_well_formed(const uint8_t *text, uint64_t count)
{
    const uint64_t high_bits = 0x8080808080808080u;
    uint64_t at = 0;
    while (at < count) {
        uint64_t eight;
        bool well_formed;
        uint32_t length;
        if (count - at >= sizeof eight) {
            memcpy(&eight, text + at, sizeof eight);
            if ((eight & high_bits) == 0) {
                at += sizeof eight;
                continue;
            }
        }
        length = strata__text_character(text + at, count - at, &well_formed);
        if (!well_formed)
            break;
        at += length;
    }
    return at;
}

uint64_t strata__text_replace(const uint8_t *text, uint64_t count, uint8_t *out)
{
    static const uint8_t replacement[3] = {0xef, 0xbf, 0xbd};
    uint64_t written = 0;
    for (uint64_t at = 0; at < count;) {
        bool well_formed;
        uint32_t length = strata__text_character(text + at, count - at, &well_formed);
        uint32_t copied = well_formed ? length : sizeof replacement;
        if (out)
            memcpy(out + written, well_formed ? text + at : replacement, copied);
        written += copied;
        at += length;
    }
    return written;
}

void strata__text_shape(const uint8_t *text, uint64_t count, uint8_t *out)
{
    for (uint64_t at = 0; at < count;) {
        bool well_formed;
        uint32_t length = strata__text_character(text + at, count - at, &well_formed);
        if (well_formed)
            memcpy(out + at, text + at, length);
        else
            memset(out + at, '$', length);
        at += length;
    }
}
