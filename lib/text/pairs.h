/* SPDX-License-Identifier: MIT */
/* Which two neighbouring tokens merge, into what, and how early. */
#ifndef STRATA_TEXT_PAIRS_H
#define STRATA_TEXT_PAIRS_H

#include <stddef.h>
#include <stdint.h>

#include "text/vocabulary.h"

#define STRATA__NO_RANK UINT32_MAX

typedef struct strata__pair {
    uint64_t key;  /* left << 32 | right */
    uint32_t rank; /* lower merges earlier; STRATA__NO_RANK: a free slot */
    uint32_t merged;
} strata__pair;

typedef struct strata__pairs {
    strata__pair *slots;
    uint64_t slot_count; /* a power of two */
    uint64_t used;
    uint32_t shift; /* 64 - log2(slot_count) */
} strata__pairs;

/* Byte-pair vocabularies: the merges, in the order of the file. Fills a zeroed structure. */
strata_status strata__pairs_from_merges(const strata__allocator *allocator,
                                        const strata__text_source *source,
                                        const strata__text_vocabulary *vocabulary,
                                        strata__pairs *out);

/* SentencePiece vocabularies: every split of a token into two, the highest score first. */
strata_status strata__pairs_from_scores(const strata__allocator *allocator,
                                        const strata__text_source *source,
                                        const strata__text_vocabulary *vocabulary,
                                        strata__pairs *out);

void strata__pairs_release(const strata__allocator *allocator, strata__pairs *pairs);

/* NULL when the two do not merge. */
static inline const strata__pair *strata__pairs_find(const strata__pairs *pairs, uint32_t left,
                                                     uint32_t right)
{
    const uint64_t mask = pairs->slot_count - 1, key = (uint64_t)left << 32 | right;
    uint64_t slot = key * 0x9e3779b97f4a7c15u >> pairs->shift;
    for (;; slot++) {
        const strata__pair *pair = &pairs->slots[slot & mask];
        if (pair->key == key && pair->rank != STRATA__NO_RANK)
            return pair;
        if (pair->rank == STRATA__NO_RANK)
            return NULL;
    }
}

#endif
