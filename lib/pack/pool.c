/* SPDX-License-Identifier: MIT */
#include "pack/pool.h"

#include <stddef.h>
#include <string.h>

#include "base/checked.h"

enum { BLOCK_BYTES = 16384, ALIGNMENT = 16, FIRST_ITEMS = 32 };

struct strata__pool_block {
    strata__pool_block *next;
    uint64_t bytes; /* of the whole block */
    uint64_t used;
    uint64_t reserved;
};

static strata__pool_block *add_block(strata__pool *pool, uint64_t bytes)
{
    uint64_t block_bytes;
    strata__pool_block *block;
    if (!strata__add_u64(bytes, sizeof *block, &block_bytes))
        return NULL;
    if (block_bytes < BLOCK_BYTES)
        block_bytes = BLOCK_BYTES;
    block = strata__calloc(pool->allocator, 1, block_bytes);
    if (!block)
        return NULL;
    block->bytes = block_bytes;
    block->used = sizeof *block;
    block->next = pool->blocks;
    pool->blocks = block;
    return block;
}

void *strata__pool_alloc(strata__pool *pool, uint64_t bytes)
{
    strata__pool_block *block = pool->blocks;
    void *result;
    if (!strata__round_up_u64(bytes ? bytes : 1, ALIGNMENT, &bytes))
        return NULL;
    if (!block || bytes > block->bytes - block->used)
        block = add_block(pool, bytes);
    if (!block)
        return NULL;
    result = (unsigned char *)block + block->used;
    block->used += bytes;
    return result;
}

char *strata__pool_text(strata__pool *pool, const void *bytes, uint64_t count)
{
    char *text = count < UINT64_MAX ? strata__pool_alloc(pool, count + 1) : NULL;
    if (text && count)
        memcpy(text, bytes, count);
    return text;
}

void strata__pool_release(strata__pool *pool)
{
    while (pool->blocks) {
        strata__pool_block *block = pool->blocks;
        pool->blocks = block->next;
        strata__free(pool->allocator, block, block->bytes);
    }
}

void *strata__list_add(strata__list *list, const strata__allocator *allocator)
{
    unsigned char *item;
    if (list->count == list->capacity) {
        uint32_t capacity = list->capacity ? list->capacity * 2 : FIRST_ITEMS;
        void *items = strata__calloc(allocator, capacity, list->item_bytes);
        if (!items)
            return NULL;
        if (list->count)
            memcpy(items, list->items, (uint64_t)list->count * list->item_bytes);
        strata__free(allocator, list->items, (uint64_t)list->capacity * list->item_bytes);
        list->items = items;
        list->capacity = capacity;
    }
    item = (unsigned char *)list->items + (uint64_t)list->count * list->item_bytes;
    list->count++;
    return item;
}

void strata__list_release(strata__list *list, const strata__allocator *allocator)
{
    strata__free(allocator, list->items, (uint64_t)list->capacity * list->item_bytes);
    list->items = NULL;
    list->count = list->capacity = 0;
}
