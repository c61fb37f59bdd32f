/* SPDX-License-Identifier: MIT */
/* An allocator that keeps book of what lives and fails at one allocation. */
#ifndef TEST_OOM_BOOK_H
#define TEST_OOM_BOOK_H

#include <stdint.h>

typedef struct book {
    uint64_t live_bytes;
    uint64_t live_count;
    uint64_t count;   /* allocations so far */
    uint64_t fail_at; /* the allocation that fails, from 1; 0: none */
} book;

/* For strata_context_options, with a book as alloc_user_data. */
void *book_alloc(void *user_data, uint64_t bytes, uint64_t alignment);
void book_free(void *user_data, void *pointer, uint64_t bytes);

#endif
