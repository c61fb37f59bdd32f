/* SPDX-License-Identifier: MIT */
#include "utf8.h"

/* The second byte is narrower for some first bytes: no overlong forms, no surrogates, no excess. */
static int second_is_valid(unsigned char first, unsigned char second)
{
    switch (first) {
    case 0xe0:
        return second >= 0xa0 && second <= 0xbf;
    case 0xed:
        return second >= 0x80 && second <= 0x9f;
    case 0xf0:
        return second >= 0x90 && second <= 0xbf;
    case 0xf4:
        return second >= 0x80 && second <= 0x8f;
    default:
        return second >= 0x80 && second <= 0xbf;
    }
}

uint32_t utf8_length(const char *bytes, uint64_t count)
{
    const unsigned char *b = (const unsigned char *)bytes;
    uint32_t length;
    if (count == 0)
        return 0;
    if (b[0] < 0x80)
        return 1;
    if (b[0] < 0xc2 || b[0] > 0xf4)
        return 0;
    length = b[0] < 0xe0 ? 2 : b[0] < 0xf0 ? 3 : 4;
    if (length > count || !second_is_valid(b[0], b[1]))
        return 0;
    for (uint32_t i = 2; i < length; i++)
        if (b[i] < 0x80 || b[i] > 0xbf)
            return 0;
    return length;
}
