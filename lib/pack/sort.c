/* SPDX-License-Identifier: MIT */
/* Heap sort (Williams, 1964; Floyd, 1964). */
#include "pack/sort.h"

static void sift_down(uint32_t *order, uint32_t root, uint32_t count, const void *items,
                      strata__compare_fn compare)
{
    uint32_t moved = order[root];
    for (;;) {
        uint64_t child = 2 * (uint64_t)root + 1;
        if (child >= count)
            break;
        if (child + 1 < count && compare(items, order[child], order[child + 1]) < 0)
            child++;
        if (compare(items, moved, order[child]) >= 0)
            break;
        order[root] = order[child];
        root = (uint32_t)child;
    }
    order[root] = moved;
}

void strata__sort(uint32_t *order, uint32_t count, const void *items, strata__compare_fn compare)
{
    for (uint32_t i = 0; i < count; i++)
        order[i] = i;
    for (uint32_t root = count / 2; root-- > 0;)
        sift_down(order, root, count, items, compare);
    for (uint32_t last = count; last-- > 1;) {
        uint32_t largest = order[0];
        order[0] = order[last];
        order[last] = largest;
        sift_down(order, 0, last, items, compare);
    }
}
