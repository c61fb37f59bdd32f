/* SPDX-License-Identifier: MIT */
/* Merging the symbols of one word, lowest rank first, of equal ranks the leftmost. */
#ifndef STRATA_TEXT_MERGE_H
#define STRATA_TEXT_MERGE_H

#include "text/pairs.h"

/* A pair of neighbours that may merge. */
typedef struct strata__candidate {
    uint32_t rank;
    uint32_t at; /* index of the left one */
    uint32_t left, right;
    uint32_t merged;
} strata__candidate;

/* Memory that long words take; grown as needed, zeroed at first, kept for the next word. */
typedef struct strata__merge_memory {
    const strata__allocator *allocator;
    uint32_t *links; /* next and previous of every symbol */
    uint64_t link_count;
    strata__candidate *heap;
    uint64_t heap_count;
} strata__merge_memory;

void strata__merge_memory_release(strata__merge_memory *memory);

/* Merges in place; *inout_count becomes the number of tokens left. */
strata_status strata__merge(const strata__pairs *pairs, strata__merge_memory *memory, int32_t *ids,
                            uint64_t *inout_count);

#endif
