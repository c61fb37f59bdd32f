/* SPDX-License-Identifier: MIT */
#ifndef STRATA_TOOL_UTF8_H
#define STRATA_TOOL_UTF8_H

#include <stdint.h>

/* Bytes of the well-formed UTF-8 character that `bytes` begins with; 0 when there is none. */
uint32_t utf8_length(const char *bytes, uint64_t count);

#endif
