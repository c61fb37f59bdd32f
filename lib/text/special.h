/* SPDX-License-Identifier: MIT */
/* Control and user-defined tokens: found in a text before it is cut into words. */
#ifndef STRATA_TEXT_SPECIAL_H
#define STRATA_TEXT_SPECIAL_H

#include <stdbool.h>

#include "text/vocabulary.h"

typedef struct strata__special {
    uint32_t *ids; /* by their bytes, ascending */
    uint64_t count;
    uint8_t first[256]; /* 1: begins a user-defined token, 2: a control token */
} strata__special;

/* Fills a zeroed structure. */
strata_status strata__special_build(const strata__allocator *allocator,
                                    const strata__text_vocabulary *vocabulary,
                                    strata__special *out);
void strata__special_release(const strata__allocator *allocator, strata__special *special);

/*
 * The first of these tokens in [begin, end), the longest of those that begin there; -1: none, and
 * *out_at is `end`. Control tokens count when `control`.
 */
int32_t strata__special_next(const strata__special *special,
                             const strata__text_vocabulary *vocabulary, const uint8_t *text,
                             uint64_t begin, uint64_t end, bool control, uint64_t *out_at,
                             uint64_t *out_bytes);

#endif
