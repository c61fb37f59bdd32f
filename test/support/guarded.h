/* SPDX-License-Identifier: MIT */
/*
 * Memory of an exact size between guards: poisoned under AddressSanitizer, else a pattern to check.
 */
#ifndef TEST_SUPPORT_GUARDED_H
#define TEST_SUPPORT_GUARDED_H

#include <stdint.h>

typedef struct guarded {
    uint8_t *block;
    uint8_t *memory; /* aligned to 4096 bytes, plus the offset asked for */
    uint64_t bytes;
} guarded;

void guarded_make(guarded *g, uint64_t bytes, uint64_t offset);

/* Fails the running test when a guard was written to, then frees. */
void guarded_free(guarded *g);

#endif
