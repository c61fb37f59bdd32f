/* SPDX-License-Identifier: MIT */
/*
 * A pool of threads that runs the items of one loop at a time.
 *
 * Items are handed out one by one in ascending order. Which thread runs an item changes from run to
 * run, so an item's result must depend on the item alone: it writes its own outputs, and uses its
 * worker's number only for working memory.
 */
#ifndef STRATA_KERNELS_CPU_POOL_H
#define STRATA_KERNELS_CPU_POOL_H

#include <stdint.h>

#include <strata/base.h>

#include "base/alloc.h"

typedef struct strata__pool strata__pool;

/* `worker` is below the number of threads; no two items run under the same worker at once. */
typedef void (*strata__pool_fn)(void *user_data, uint32_t item, uint32_t worker);

/* Cores this process may run on, at least 1. */
uint32_t strata__pool_cores(void);

/* The caller of strata__pool_run() is one of the `threads` (at least 1). */
strata_status strata__pool_create(const strata__allocator *allocator, uint32_t threads,
                                  strata__pool **out);
void strata__pool_destroy(strata__pool *pool); /* NULL is legal */

uint32_t strata__pool_threads(const strata__pool *pool);

/*
 * Runs fn for items 0 .. items - 1 and returns when all have ended. Calls from several threads
 * queue.
 */
void strata__pool_run(strata__pool *pool, uint32_t items, strata__pool_fn fn, void *user_data);

#endif
