/* SPDX-License-Identifier: MIT */
#include "pack/utf8.h"

uint32_t strata__utf8_next(const uint8_t *text, uint64_t count, uint32_t *out_code_point)
{
    static const uint32_t smallest[5] = {0, 0, 0x80, 0x800, 0x10000};
    uint32_t code_point, length;
    if (count == 0)
        return 0;
    code_point = text[0];
    length = code_point < 0x80   ? 1
             : code_point < 0xc0 ? 0
             : code_point < 0xe0 ? 2
             : code_point < 0xf0 ? 3
             : code_point < 0xf8 ? 4
                                 : 0;
    if (length == 0 || length > count)
        return 0;
    if (length > 1)
        code_point &= 0x7fu >> length;
    for (uint32_t i = 1; i < length; i++) {
        if ((text[i] & 0xc0) != 0x80)
            return 0;
        code_point = code_point << 6 | (text[i] & 0x3fu);
    }
    if (code_point < smallest[length] || code_point > 0x10ffff ||
        (code_point >= 0xd800 && code_point < 0xe000))
        return 0;
    *out_code_point = code_point;
    return length;
}

bool strata__utf8_is_name(const uint8_t *text, uint64_t count)
{
    if (count == 0)
        return false;
    while (count) {
        uint32_t code_point;
        uint32_t length = strata__utf8_next(text, count, &code_point);
        if (length == 0 || code_point < 0x20 || code_point == 0x7f)
            return false;
        text += length;
        count -= length;
    }
    return true;
}
