/* SPDX-License-Identifier: MIT */
#include "text/merge.h"

#include <string.h>

#include "base/error.h"

/*
 * Short words look through all their pairs for each merge. Longer ones keep the pairs in a heap, so
 * that no word takes more than n log n.
 */
enum { SHORT_SYMBOLS = 32 };

static const uint32_t none = 0xffffffff;

static void short_pair(const strata__pairs *pairs, const int32_t *ids, uint64_t at, uint32_t *ranks,
                       int32_t *merged)
{
    const strata__pair *pair = strata__pairs_find(pairs, (uint32_t)ids[at], (uint32_t)ids[at + 1]);
    ranks[at] = pair ? pair->rank : STRATA__NO_RANK;
    merged[at] = pair ? (int32_t)pair->merged : 0;
}

static uint64_t merge_short(const strata__pairs *pairs, int32_t *ids, uint64_t count)
{
    uint32_t ranks[SHORT_SYMBOLS];
    int32_t merged[SHORT_SYMBOLS];
    for (uint64_t i = 0; i + 1 < count; i++)
        short_pair(pairs, ids, i, ranks, merged);
    while (count > 1) {
        uint64_t best = 0, rest;
        for (uint64_t i = 1; i + 1 < count; i++)
            if (ranks[i] < ranks[best])
                best = i;
        if (ranks[best] == STRATA__NO_RANK)
            break;
        ids[best] = merged[best];
        rest = count - best - 2;
        memmove(ids + best + 1, ids + best + 2, rest * sizeof *ids);
        if (rest) {
            memmove(ranks + best, ranks + best + 1, rest * sizeof *ranks);
            memmove(merged + best, merged + best + 1, rest * sizeof *merged);
        }
        count--;
        if (best + 1 < count)
            short_pair(pairs, ids, best, ranks, merged);
        if (best > 0)
            short_pair(pairs, ids, best - 1, ranks, merged);
    }
    return count;
}

static int earlier(const strata__candidate *a, const strata__candidate *b)
{
    return a->rank < b->rank || (a->rank == b->rank && a->at < b->at);
}

static void sift_down(strata__candidate *heap, uint64_t count, uint64_t at)
{
    const strata__candidate moved = heap[at];
    for (;;) {
        uint64_t child = 2 * at + 1;
        if (child >= count)
            break;
        if (child + 1 < count && earlier(&heap[child + 1], &heap[child]))
            child++;
        if (!earlier(&heap[child], &moved))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moved;
}

static void sift_up(strata__candidate *heap, uint64_t at)
{
    const strata__candidate moved = heap[at];
    while (at > 0 && earlier(&moved, &heap[(at - 1) / 2])) {
        heap[at] = heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap[at] = moved;
}

/* Fills a candidate; 0 when the two do not merge. */
static int candidate_of(const strata__pairs *pairs, const int32_t *ids, uint32_t left_at,
                        uint32_t right_at, strata__candidate *out)
{
    const strata__pair *pair =
        strata__pairs_find(pairs, (uint32_t)ids[left_at], (uint32_t)ids[right_at]);
    if (!pair)
        return 0;
    *out = (strata__candidate){pair->rank, left_at, (uint32_t)ids[left_at], (uint32_t)ids[right_at],
                               pair->merged};
    return 1;
}

/* A merge takes one candidate and brings at most two: 2 n of them hold every word of n symbols. */
static strata_status reserve(strata__merge_memory *memory, uint64_t count)
{
    if (memory->link_count >= 2 * count)
        return STRATA_OK;
    strata__merge_memory_release(memory);
    memory->links = strata__alloc(memory->allocator, 2 * count * sizeof *memory->links);
    memory->link_count = memory->links ? 2 * count : 0;
    memory->heap = strata__alloc(memory->allocator, 2 * count * sizeof *memory->heap);
    memory->heap_count = memory->heap ? 2 * count : 0;
    if (memory->links && memory->heap)
        return STRATA_OK;
    strata__merge_memory_release(memory);
    return strata__fail_memory(2 * count * sizeof *memory->heap, "merging a long word");
}

static void push(strata__candidate *heap, uint64_t *count, const strata__candidate *candidate)
{
    heap[*count] = *candidate;
    sift_up(heap, (*count)++);
}

/* Joins a candidate's symbols and pushes the pairs that arise. -1 marks a symbol that is gone. */
static void join(const strata__pairs *pairs, int32_t *ids, uint32_t *next, uint32_t *previous,
                 const strata__candidate *taken, strata__candidate *heap, uint64_t *heap_count)
{
    strata__candidate arisen;
    uint32_t right = next[taken->at];
    ids[taken->at] = (int32_t)taken->merged;
    ids[right] = -1;
    next[taken->at] = next[right];
    if (next[right] != none)
        previous[next[right]] = taken->at;
    if (previous[taken->at] != none &&
        candidate_of(pairs, ids, previous[taken->at], taken->at, &arisen))
        push(heap, heap_count, &arisen);
    if (next[taken->at] != none && candidate_of(pairs, ids, taken->at, next[taken->at], &arisen))
        push(heap, heap_count, &arisen);
}

static uint64_t compact(int32_t *ids, uint64_t count)
{
    uint64_t kept = 0;
    for (uint64_t i = 0; i < count; i++)
        if (ids[i] >= 0)
            ids[kept++] = ids[i];
    return kept;
}

static strata_status merge_long(const strata__pairs *pairs, strata__merge_memory *memory,
                                int32_t *ids, uint64_t *inout_count)
{
    uint64_t count = *inout_count, heap_count = 0;
    uint32_t *next, *previous;
    strata__candidate *heap;
    strata_status status = reserve(memory, count);
    if (status != STRATA_OK)
        return status;
    next = memory->links;
    previous = next + count;
    heap = memory->heap;
    for (uint32_t i = 0; i < count; i++) {
        next[i] = i + 1 < count ? i + 1 : none;
        previous[i] = i > 0 ? i - 1 : none;
        if (i + 1 < count && candidate_of(pairs, ids, i, i + 1, &heap[heap_count]))
            heap_count++;
    }
    for (uint64_t i = heap_count / 2; i-- > 0;)
        sift_down(heap, heap_count, i);
    while (heap_count) {
        const strata__candidate taken = heap[0];
        uint32_t right;
        heap[0] = heap[--heap_count];
        if (heap_count)
            sift_down(heap, heap_count, 0);
        right = next[taken.at];
        if (ids[taken.at] == (int32_t)taken.left && right != none &&
            ids[right] == (int32_t)taken.right)
            join(pairs, ids, next, previous, &taken, heap, &heap_count);
    }
    *inout_count = compact(ids, count);
    return STRATA_OK;
}

void strata__merge_memory_release(strata__merge_memory *memory)
{
    strata__free(memory->allocator, memory->links, memory->link_count * sizeof *memory->links);
    strata__free(memory->allocator, memory->heap, memory->heap_count * sizeof *memory->heap);
    memory->links = NULL;
    memory->heap = NULL;
    memory->link_count = memory->heap_count = 0;
}

strata_status strata__merge(const strata__pairs *pairs, strata__merge_memory *memory, int32_t *ids,
                            uint64_t *inout_count)
{
    if (*inout_count > SHORT_SYMBOLS)
        return merge_long(pairs, memory, ids, inout_count);
    *inout_count = merge_short(pairs, ids, *inout_count);
    return STRATA_OK;
}
