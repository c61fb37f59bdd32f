/* SPDX-License-Identifier: MIT */
/*
 * XXH64 (Y. Collet, "xxHash fast digest algorithm", specification 0.1.1) of bytes that come piece
 * by piece: several bytes a cycle, for state of gigabytes. It finds damage, not forgery.
 */
#ifndef STRATA_BASE_CHECKSUM_H
#define STRATA_BASE_CHECKSUM_H

#include <stdint.h>

typedef struct strata__checksum {
    uint64_t lanes[4];
    uint64_t total_bytes;
    uint64_t seed;
    uint8_t rest[32]; /* bytes that do not fill a stripe yet */
} strata__checksum;

void strata__checksum_init(strata__checksum *sum, uint64_t seed);
void strata__checksum_add(strata__checksum *sum, const void *data, uint64_t bytes);
uint64_t strata__checksum_value(const strata__checksum *sum);

/* All at once. */
uint64_t strata__checksum_of(const void *data, uint64_t bytes, uint64_t seed);

#endif
