/* SPDX-License-Identifier: MIT */
#ifndef STRATA_BASE_KV_PAGES_H
#define STRATA_BASE_KV_PAGES_H

#include "base/checked.h"

/* Pages that the keys and values of `tokens` tokens of a sequence take; page_tokens is not 0. */
static inline uint64_t strata__kv_pages(uint64_t tokens, uint64_t page_tokens)
{
    return strata__divide_up_u64(tokens, page_tokens);
}

#endif
