/* SPDX-License-Identifier: MIT */
/* Overflow-checked arithmetic for every size that comes from a file or a caller. */
#ifndef STRATA_BASE_CHECKED_H
#define STRATA_BASE_CHECKED_H

#include <stdbool.h>
#include <stdint.h>

/* Those with `out` answer false, and leave it alone, when the exact result does not fit. */
static inline bool strata__add_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    if (a > UINT64_MAX - b)
        return false;
    *out = a + b;
    return true;
}

static inline bool strata__mul_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    if (b != 0 && a > UINT64_MAX / b)
        return false;
    *out = a * b;
    return true;
}

/* a / b, rounded up; b is not zero. No result overflows. */
static inline uint64_t strata__divide_up_u64(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}

/* Rounds up to a multiple of `alignment`, which must not be zero. */
static inline bool strata__round_up_u64(uint64_t value, uint64_t alignment, uint64_t *out)
{
    uint64_t rest = value % alignment;
    return strata__add_u64(value, rest ? alignment - rest : 0, out);
}

#endif
