/* SPDX-License-Identifier: MIT */
/* Memory that lives as long as a pack: taken piece by piece, freed all at once. */
#ifndef STRATA_PACK_POOL_H
#define STRATA_PACK_POOL_H

#include <stdint.h>

#include <strata/base.h>

#include "base/alloc.h"

typedef struct strata__pool_block strata__pool_block;

typedef struct strata__pool {
    const strata__allocator *allocator;
    strata__pool_block *blocks;
} strata__pool;

/* Zeroed memory aligned to 16 bytes, or NULL. */
void *strata__pool_alloc(strata__pool *pool, uint64_t bytes);

/* A NUL-terminated copy of `count` bytes, or NULL. */
char *strata__pool_text(strata__pool *pool, const void *bytes, uint64_t count);

void strata__pool_release(strata__pool *pool);

/* A growing array outside the pool, so that what it outgrows is given back. */
typedef struct strata__list {
    void *items;
    uint32_t count;
    uint32_t capacity;
    uint32_t item_bytes;
    uint32_t reserved;
} strata__list;

/* Room for one more item, zeroed and counted; NULL when memory is out. */
void *strata__list_add(strata__list *list, const strata__allocator *allocator);
void strata__list_release(strata__list *list, const strata__allocator *allocator);

#endif
