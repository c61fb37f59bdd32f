/* SPDX-License-Identifier: MIT */
/*
 * Which KV pages belong to which sequence. A page number is good for every layer: page p of a
 * layer's K and V lies at p * page_bytes of that layer's buffers. The table is host memory that a
 * step uploads when it has changed.
 *
 * Sequences may share pages, each of which counts its users. A page is written to only by a single
 * user: whoever is about to append to a shared page that is partly filled gets a copy of it first.
 * Making the copy is the owner's business (copy_page); nothing else here touches device memory.
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

/* Copies page `from` to page `to` in every layer, before whatever is enqueued from here on. */
typedef strata_status (*strata__kv_copy_fn)(void *user_data, uint32_t from, uint32_t to);

typedef struct strata__kv {
    const strata__allocator *allocator;
    strata__kv_sequence *sequences;
    int32_t *table;       /* [sequence_count][table_stride] page numbers, 0 where there is none */
    uint32_t *page_users; /* [page_count] sequences that hold it */
    uint32_t *free_page;  /* stack of pages that no sequence holds */
    strata__kv_copy_fn copy_page; /* the owner's, set before anything is shared */
    void *copy_user_data;
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

/*
 * Whether strata__kv_reserve() finds the pages. STRATA_ERR_CAPACITY names the sequence, and the
 * pages that it needs and that are free.
 */
strata_status strata__kv_check_pages(const strata__kv *kv, uint32_t sequence, uint64_t tokens);

/*
 * Gives a sequence the pages that positions from its length to below `tokens` need, to be written
 * to by it alone. Nothing changes on failure.
 */
strata_status strata__kv_reserve(strata__kv *kv, uint32_t sequence, uint64_t tokens);

/* The empty sequence `to` gets the first `tokens` tokens of `from`, which has as many. */
void strata__kv_share(strata__kv *kv, uint32_t from, uint32_t to, uint64_t tokens);

/* Makes `tokens` the length, which pages have been reserved for, and lets go of pages beyond it. */
void strata__kv_set_length(strata__kv *kv, uint32_t sequence, uint64_t tokens);

uint64_t strata__kv_length(const strata__kv *kv, uint32_t sequence);

#endif
