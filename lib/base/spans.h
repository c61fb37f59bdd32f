/* SPDX-License-Identifier: MIT */
/*
 * Spans of split attention: 64 of split_keys keys, then 48 of four times as many, 48 of sixteen
 * times as many, and so on, so that long sequences have few and short ones fill a device.
 */
#ifndef STRATA_BASE_SPANS_H
#define STRATA_BASE_SPANS_H

#include <stdint.h>

#ifdef __CUDACC__
#define STRATA__ANYWHERE __host__ __device__
#else
#define STRATA__ANYWHERE
#endif

enum { STRATA__SPANS_FIRST = 64, STRATA__SPANS_LEVEL = 48 };

/* First key of a span. */
static inline STRATA__ANYWHERE uint64_t strata__span_first(uint32_t span, uint32_t split_keys)
{
    uint64_t first = 0, keys = split_keys;
    uint32_t spans = STRATA__SPANS_FIRST;
    while (span > spans) {
        first += spans * keys;
        span -= spans;
        keys *= 4;
        spans = STRATA__SPANS_LEVEL;
    }
    return first + span * keys;
}

/* Spans that hold `tokens` keys. */
static inline STRATA__ANYWHERE uint32_t strata__span_count(uint64_t tokens, uint32_t split_keys)
{
    uint64_t keys = split_keys, spans = STRATA__SPANS_FIRST, count = 0;
    while (tokens > spans * keys) {
        tokens -= spans * keys;
        count += spans;
        keys *= 4;
        spans = STRATA__SPANS_LEVEL;
    }
    if (tokens == 0)
        return 0;
    /* Accelerators divide 32 bits at a time. */
    if (tokens >> 32 == 0)
        return (uint32_t)count + (uint32_t)(tokens - 1) / (uint32_t)keys + 1;
    return (uint32_t)(count + (tokens - 1) / keys + 1);
}

/* Scratch of split attention, for sequences of up to `tokens` keys. */
static inline uint64_t strata__attention_split_bytes(uint64_t rows, uint64_t heads,
                                                     uint64_t head_size, uint64_t tokens,
                                                     uint32_t split_keys)
{
    return rows * heads * strata__span_count(tokens, split_keys) * (head_size + 4) * 4;
}

#endif
