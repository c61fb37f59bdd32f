/* SPDX-License-Identifier: MIT */
/* The tokens of a tokenizer: the bytes each stands for, and the way back. */
#ifndef STRATA_TEXT_VOCABULARY_H
#define STRATA_TEXT_VOCABULARY_H

#include <stdint.h>

#include "base/alloc.h"
#include "text/text.h"

typedef struct strata__text_vocabulary {
    uint32_t count;
    uint8_t *bytes; /* of all tokens, one after another */
    uint64_t byte_count;
    uint64_t *offsets; /* count + 1 */
    uint8_t *types;
    uint32_t *slots; /* id + 1 by hash of the bytes, 0: free; normal and user-defined tokens */
    uint64_t slot_count;
    int32_t byte_ids[256]; /* token of a single byte, -1: none */
} strata__text_vocabulary;

/* Fills a zeroed structure; release it also after a failure. */
strata_status strata__text_vocabulary_build(const strata__allocator *allocator,
                                            const strata__text_source *source,
                                            strata__text_vocabulary *out);
void strata__text_vocabulary_release(const strata__allocator *allocator,
                                     strata__text_vocabulary *vocabulary);

/* Token of exactly these bytes, -1: none. */
int32_t strata__text_vocabulary_find(const strata__text_vocabulary *vocabulary,
                                     const uint8_t *bytes, uint64_t count);

uint64_t strata__text_hash(const uint8_t *bytes, uint64_t count);

#endif
