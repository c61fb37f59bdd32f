/* SPDX-License-Identifier: MIT */
/* Host memory: every allocation of the library goes through the context's allocator. */
#ifndef STRATA_BASE_ALLOC_H
#define STRATA_BASE_ALLOC_H

#include <stdint.h>

typedef struct strata__allocator {
    void *(*alloc_fn)(void *user_data, uint64_t bytes, uint64_t alignment); /* NULL on failure */
    void (*free_fn)(void *user_data, void *pointer, uint64_t bytes);
    void *user_data;
} strata__allocator;

/* The C library's heap. */
const strata__allocator *strata__allocator_default(void);

/* Uninitialised memory aligned to 16 bytes, or NULL. Zero bytes give a valid pointer. */
void *strata__alloc(const strata__allocator *allocator, uint64_t bytes);

/* As above with an alignment, a power of two. */
void *strata__alloc_aligned(const strata__allocator *allocator, uint64_t bytes, uint64_t alignment);

/* Zeroed memory for count * size bytes, or NULL (also when the product overflows). */
void *strata__calloc(const strata__allocator *allocator, uint64_t count, uint64_t size);

/* Frees what one of the above gave; `bytes` is what was asked for (count * size). NULL is legal. */
void strata__free(const strata__allocator *allocator, void *pointer, uint64_t bytes);

#endif
