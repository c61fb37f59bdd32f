/* SPDX-License-Identifier: MIT */
#include "session/kv.h"

#include <assert.h>
#include <string.h>

#include "base/error.h"
#include "base/kv_pages.h"

strata_status strata__kv_init(strata__kv *kv, const strata__allocator *allocator,
                              uint32_t sequence_count, uint32_t table_stride, uint32_t page_count,
                              uint32_t page_tokens)
{
    uint64_t cells = (uint64_t)sequence_count * table_stride;
    memset(kv, 0, sizeof *kv);
    kv->allocator = allocator;
    kv->sequence_count = sequence_count;
    kv->table_stride = table_stride;
    kv->page_count = page_count;
    kv->page_tokens = page_tokens;
    kv->sequences = strata__calloc(allocator, sequence_count, sizeof *kv->sequences);
    kv->table = strata__calloc(allocator, cells, sizeof *kv->table);
    kv->page_users = strata__calloc(allocator, page_count, sizeof *kv->page_users);
    kv->free_page = strata__calloc(allocator, page_count, sizeof *kv->free_page);
    if (!kv->sequences || !kv->table || !kv->page_users || !kv->free_page)
        return strata__fail_memory(cells * sizeof *kv->table, "the KV page tables");
    /* The lowest page is on top, so that a fresh sequence takes pages in ascending order. */
    for (uint32_t i = 0; i < page_count; ++i)
        kv->free_page[i] = page_count - 1 - i;
    kv->free_count = page_count;
    kv->changed = true;
    return STRATA_OK;
}

void strata__kv_finish(strata__kv *kv)
{
    if (!kv->allocator)
        return;
    strata__free(kv->allocator, kv->sequences, kv->sequence_count * sizeof *kv->sequences);
    strata__free(kv->allocator, kv->table,
                 (uint64_t)kv->sequence_count * kv->table_stride * sizeof *kv->table);
    strata__free(kv->allocator, kv->page_users, kv->page_count * sizeof *kv->page_users);
    strata__free(kv->allocator, kv->free_page, kv->page_count * sizeof *kv->free_page);
    memset(kv, 0, sizeof *kv);
}

static int32_t *row_of(const strata__kv *kv, uint32_t sequence)
{
    return kv->table + (uint64_t)sequence * kv->table_stride;
}

static uint32_t take_page(strata__kv *kv)
{
    uint32_t page = kv->free_page[--kv->free_count];
    kv->page_users[page] = 1;
    return page;
}

static void drop_page(strata__kv *kv, uint32_t page)
{
    if (--kv->page_users[page] == 0)
        kv->free_page[kv->free_count++] = page;
}

/* Whether tokens would be appended to a page that other sequences read. */
static bool appends_to_shared(const strata__kv *kv, uint32_t sequence, uint64_t tokens)
{
    uint64_t length = strata__kv_length(kv, sequence);
    return tokens > length && length % kv->page_tokens != 0 &&
           kv->page_users[row_of(kv, sequence)[length / kv->page_tokens]] > 1;
}

strata_status strata__kv_check_pages(const strata__kv *kv, uint32_t sequence, uint64_t tokens)
{
    uint64_t pages = strata__kv_pages(tokens, kv->page_tokens),
             held = kv->sequences[sequence].pages, needed = 0;
    if (pages > kv->table_stride)
        return strata__fail(STRATA_ERR_INVALID_ARGUMENT,
                            "sequence %u would hold %llu tokens; its page table holds %llu",
                            sequence, (unsigned long long)tokens,
                            (unsigned long long)kv->table_stride * kv->page_tokens);
    if (pages > held)
        needed = pages - held;
    needed += appends_to_shared(kv, sequence, tokens);
    if (needed > kv->free_count)
        return strata__fail(STRATA_ERR_CAPACITY,
                            "sequence %u needs %llu more KV pages of %u tokens for %llu tokens; %u "
                            "of %u are free",
                            sequence, (unsigned long long)needed, kv->page_tokens,
                            (unsigned long long)tokens, kv->free_count, kv->page_count);
    return STRATA_OK;
}

strata_status strata__kv_reserve(strata__kv *kv, uint32_t sequence, uint64_t tokens)
{
    strata__kv_sequence *entry = &kv->sequences[sequence];
    int32_t *row = row_of(kv, sequence);
    uint64_t pages = strata__kv_pages(tokens, kv->page_tokens);
    strata_status status = strata__kv_check_pages(kv, sequence, tokens);
    if (status == STRATA_OK && appends_to_shared(kv, sequence, tokens)) {
        int32_t *shared = &row[strata__kv_length(kv, sequence) / kv->page_tokens];
        uint32_t page = take_page(kv);
        status = kv->copy_page(kv->copy_user_data, (uint32_t)*shared, page);
        drop_page(kv, status == STRATA_OK ? (uint32_t)*shared : page);
        if (status == STRATA_OK) {
            *shared = (int32_t)page;
            kv->changed = true;
        }
    }
    while (status == STRATA_OK && entry->pages < pages) {
        row[entry->pages++] = (int32_t)take_page(kv);
        kv->changed = true;
    }
    return status;
}

void strata__kv_share(strata__kv *kv, uint32_t from, uint32_t to, uint64_t tokens)
{
    strata__kv_sequence *entry = &kv->sequences[to];
    const int32_t *source = row_of(kv, from);
    int32_t *row = row_of(kv, to);
    assert(entry->pages == 0 && tokens <= strata__kv_length(kv, from));
    for (; entry->pages < strata__kv_pages(tokens, kv->page_tokens); ++entry->pages) {
        row[entry->pages] = source[entry->pages];
        kv->page_users[source[entry->pages]]++;
        kv->changed = true;
    }
    atomic_store_explicit(&entry->tokens, tokens, memory_order_relaxed);
}

void strata__kv_set_length(strata__kv *kv, uint32_t sequence, uint64_t tokens)
{
    strata__kv_sequence *entry = &kv->sequences[sequence];
    int32_t *row = row_of(kv, sequence);
    uint64_t pages = strata__kv_pages(tokens, kv->page_tokens);
    assert(pages <= entry->pages);
    while (entry->pages > pages) {
        drop_page(kv, (uint32_t)row[--entry->pages]);
        row[entry->pages] = 0;
        kv->changed = true;
    }
    atomic_store_explicit(&entry->tokens, tokens, memory_order_relaxed);
}

uint64_t strata__kv_length(const strata__kv *kv, uint32_t sequence)
{
    return atomic_load_explicit(&kv->sequences[sequence].tokens, memory_order_relaxed);
}
