/* SPDX-License-Identifier: MIT */
/* Sorted indexes: in place, without memory, n log n whatever a hostile file holds. */
#ifndef STRATA_PACK_SORT_H
#define STRATA_PACK_SORT_H

#include <stdint.h>

/* Negative, zero or positive, as item a comes before, with or after item b. */
typedef int (*strata__compare_fn)(const void *items, uint32_t a, uint32_t b);

/* Fills `order` with 0 to count - 1 in the order of `compare` over `items`. */
void strata__sort(uint32_t *order, uint32_t count, const void *items, strata__compare_fn compare);

#endif
