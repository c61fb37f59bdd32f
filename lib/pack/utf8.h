/* SPDX-License-Identifier: MIT */
/* UTF-8, as much as names and token texts need. */
#ifndef STRATA_PACK_UTF8_H
#define STRATA_PACK_UTF8_H

#include <stdbool.h>
#include <stdint.h>

/* Bytes of the well-formed character at `text` (at most `count` bytes), or 0; its code point. */
uint32_t strata__utf8_next(const uint8_t *text, uint64_t count, uint32_t *out_code_point);

/* A name: not empty, well-formed, without control characters. */
bool strata__utf8_is_name(const uint8_t *text, uint64_t count);

#endif
