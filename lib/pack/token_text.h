/* SPDX-License-Identifier: MIT */
/* From a token as the file stores it to the bytes it stands for. */
#ifndef STRATA_PACK_TOKEN_TEXT_H
#define STRATA_PACK_TOKEN_TEXT_H

#include <stdint.h>

/* Returns the bytes needed, never more than `count`, and writes them when `out` is not NULL. */
uint64_t strata__token_text(uint32_t tokenizer, uint32_t type, const uint8_t *text, uint64_t count,
                            uint8_t *out);

#endif
