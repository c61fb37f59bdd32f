/* SPDX-License-Identifier: MIT */
/*
 * Which KV pages belong to which sequence. A page number is good for every layer: page p of a
 * layer's K and V lies at p * page_bytes of that layer's buffers. Nothing here touches device
 * memory; the table is host memory that the prompt loop uploads when it has changed.
 */
#ifndef STRATA_SESSION_KV_H
#define STRATA_SESSION_KV_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <strata/base.h>

#include "base/alloc.h"

typedef struct strata__kv_sequence {
    _Atomic uint64_t tokens; /* committed; other threads may read it */
    uint32_t pages;          /* that it holds, in order of position */
} strata__kv_sequence;

typedef struct strata__kv {
    const strata__allocator *allocator;
    strata__kv_sequence *sequences;
    int32_t *table;      /* [sequence_count][table_stride] page numbers, 0 where there is none */
    uint32_t *free_page; /* stack of pages that no sequence holds */
    uint32_t free_count;
    uint32_t sequence_count;
    uint32_t table_stride; /* pages of the longest sequence */
    uint32_t page_count;
    uint32_t page_tokens;
    bool changed; /* since the table was last uploaded */
} strata__kv;

strata_status strata__kv_init(strata__kv *kv, const strata__allocator *allocator,
                              uint32_t sequence_count, uint32_t table_stride, uint32_t page_count,
                              uint32_t page_tokens);
void strata__kv_finish(strata__kv *kv);

/* Gives a sequence the pages that positions below `tokens` need. Nothing changes on failure. */
strata_status strata__kv_reserve(strata__kv *kv, uint32_t sequence, uint64_t tokens);

/* Makes `tokens` the length, which pages have been reserved for, and frees pages beyond it. */
void strata__kv_set_length(strata__kv *kv, uint32_t sequence, uint64_t tokens);

uint64_t strata__kv_length(const strata__kv *kv, uint32_t sequence);

#endif
