/* SPDX-License-Identifier: MIT */
#include "base/checksum.h"

#include <string.h>

enum { STRIPE = 32 };

static const uint64_t prime1 = UINT64_C(0x9e3779b185ebca87);
static const uint64_t prime2 = UINT64_C(0xc2b2ae3d27d4eb4f);
static const uint64_t prime3 = UINT64_C(0x165667b19e3779f9);
static const uint64_t prime4 = UINT64_C(0x85ebca77c2b2ae63);
static const uint64_t prime5 = UINT64_C(0x27d4eb2f165667c5);

static uint64_t rotate(uint64_t value, int bits)
{
    return value << bits | value >> (64 - bits);
}

static uint64_t word64(const uint8_t *data)
{
    uint64_t word;
    memcpy(&word, data, sizeof word);
    return word;
}

static uint32_t word32(const uint8_t *data)
{
    uint32_t word;
    memcpy(&word, data, sizeof word);
    return word;
}

static uint64_t round_of(uint64_t lane, uint64_t word)
{
    return rotate(lane + word * prime2, 31) * prime1;
}

void strata__checksum_init(strata__checksum *sum, uint64_t seed)
{
    memset(sum, 0, sizeof *sum);
    sum->seed = seed;
    sum->lanes[0] = seed + prime1 + prime2;
    sum->lanes[1] = seed + prime2;
    sum->lanes[2] = seed;
    sum->lanes[3] = seed - prime1;
}

static void add_stripes(strata__checksum *sum, const uint8_t *data, uint64_t stripes)
{
    uint64_t a = sum->lanes[0], b = sum->lanes[1], c = sum->lanes[2], d = sum->lanes[3];
    for (; stripes; --stripes, data += STRIPE) {
        a = round_of(a, word64(data));
        b = round_of(b, word64(data + 8));
        c = round_of(c, word64(data + 16));
        d = round_of(d, word64(data + 24));
    }
    sum->lanes[0] = a;
    sum->lanes[1] = b;
    sum->lanes[2] = c;
    sum->lanes[3] = d;
}

void strata__checksum_add(strata__checksum *sum, const void *data, uint64_t bytes)
{
    const uint8_t *from = data;
    uint64_t held = sum->total_bytes % STRIPE;
    sum->total_bytes += bytes;
    if (held) {
        uint64_t part = bytes < STRIPE - held ? bytes : STRIPE - held;
        memcpy(sum->rest + held, from, part);
        from += part;
        bytes -= part;
        if (held + part < STRIPE)
            return;
        add_stripes(sum, sum->rest, 1);
    }
    add_stripes(sum, from, bytes / STRIPE);
    if (bytes % STRIPE)
        memcpy(sum->rest, from + bytes / STRIPE * STRIPE, bytes % STRIPE);
}

static uint64_t merged_lanes(const strata__checksum *sum)
{
    const uint64_t *lane = sum->lanes;
    uint64_t hash = rotate(lane[0], 1) + rotate(lane[1], 7) + rotate(lane[2], 12);
    hash += rotate(lane[3], 18);
    for (int i = 0; i < 4; ++i)
        hash = (hash ^ round_of(0, lane[i])) * prime1 + prime4;
    return hash;
}

uint64_t strata__checksum_value(const strata__checksum *sum)
{
    const uint8_t *rest = sum->rest;
    uint64_t left = sum->total_bytes % STRIPE, hash = sum->seed + prime5;
    if (sum->total_bytes >= STRIPE)
        hash = merged_lanes(sum);
    hash += sum->total_bytes;
    for (; left >= 8; left -= 8, rest += 8)
        hash = rotate(hash ^ round_of(0, word64(rest)), 27) * prime1 + prime4;
    if (left >= 4) {
        hash = rotate(hash ^ word32(rest) * prime1, 23) * prime2 + prime3;
        rest += 4;
        left -= 4;
    }
    for (; left; --left, ++rest)
        hash = rotate(hash ^ *rest * prime5, 11) * prime1;
    hash = (hash ^ hash >> 33) * prime2;
    hash = (hash ^ hash >> 29) * prime3;
    return hash ^ hash >> 32;
}

uint64_t strata__checksum_of(const void *data, uint64_t bytes, uint64_t seed)
{
    strata__checksum sum;
    strata__checksum_init(&sum, seed);
    strata__checksum_add(&sum, data, bytes);
    return strata__checksum_value(&sum);
}
