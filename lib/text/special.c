/* SPDX-License-Identifier: MIT */
#include "text/special.h"

#include <stddef.h>
#include <string.h>

#include "base/error.h"
#include "text/ill_formed.h"

/* Bounds the work at each place of a text. */
enum { LONGEST_SPECIAL_BYTES = 1024 };

enum { USER_BIT = 1, CONTROL_BIT = 2 };

static const uint8_t *bytes_of(const strata__text_vocabulary *v, uint32_t id, uint64_t *out_count)
{
    *out_count = v->offsets[id + 1] - v->offsets[id];
    return v->bytes + v->offsets[id];
}

static uint8_t bit_of(const strata__text_vocabulary *v, uint32_t id)
{
    switch (v->types[id]) {
    case STRATA__TOKEN_USER:
        return USER_BIT;
    case STRATA__TOKEN_CONTROL:
    case STRATA__TOKEN_UNKNOWN:
        return CONTROL_BIT;
    default:
        return 0;
    }
}

/* Texts that are no whole characters are left out: they would cut the text's within. */
static bool can_be_found(const strata__text_vocabulary *v, uint32_t id)
{
    uint64_t count;
    const uint8_t *bytes = bytes_of(v, id, &count);
    return bit_of(v, id) && count && strata__text_well_formed(bytes, count) == count;
}

/* By bytes, then by id, so that the first of equal texts comes first. */
static bool before(const strata__text_vocabulary *v, uint32_t a, uint32_t b)
{
    uint64_t a_count, b_count;
    const uint8_t *a_bytes = bytes_of(v, a, &a_count), *b_bytes = bytes_of(v, b, &b_count);
    int order = memcmp(a_bytes, b_bytes, a_count < b_count ? a_count : b_count);
    if (order != 0)
        return order < 0;
    return a_count != b_count ? a_count < b_count : a < b;
}

static void sift(const strata__text_vocabulary *v, uint32_t *ids, uint64_t count, uint64_t at)
{
    const uint32_t moved = ids[at];
    for (;;) {
        uint64_t child = 2 * at + 1;
        if (child >= count)
            break;
        if (child + 1 < count && before(v, ids[child], ids[child + 1]))
            child++;
        if (!before(v, moved, ids[child]))
            break;
        ids[at] = ids[child];
        at = child;
    }
    ids[at] = moved;
}

static void sort(const strata__text_vocabulary *v, uint32_t *ids, uint64_t count)
{
    for (uint64_t i = count / 2; i-- > 0;)
        sift(v, ids, count, i);
    for (uint64_t last = count; last-- > 1;) {
        uint32_t largest = ids[0];
        ids[0] = ids[last];
        ids[last] = largest;
        sift(v, ids, last, 0);
    }
}

strata_status strata__special_build(const strata__allocator *allocator,
                                    const strata__text_vocabulary *v, strata__special *out)
{
    uint64_t filled = 0, bytes;
    for (uint32_t id = 0; id < v->count; id++)
        if (can_be_found(v, id))
            out->count++;
    out->ids = strata__calloc(allocator, out->count, sizeof *out->ids);
    if (!out->ids)
        return strata__fail_memory(out->count * sizeof *out->ids, "a tokenizer's special tokens");
    for (uint32_t id = 0; id < v->count; id++) {
        const uint8_t *text = bytes_of(v, id, &bytes);
        if (!can_be_found(v, id))
            continue;
        if (bytes > LONGEST_SPECIAL_BYTES)
            return strata__fail(STRATA_ERR_UNSUPPORTED,
                                "token %u has %llu bytes, special tokens have at most %d",
                                (unsigned)id, (unsigned long long)bytes, LONGEST_SPECIAL_BYTES);
        out->first[text[0]] |= bit_of(v, id);
        out->ids[filled++] = id;
    }
    sort(v, out->ids, out->count);
    return STRATA_OK;
}

void strata__special_release(const strata__allocator *allocator, strata__special *special)
{
    strata__free(allocator, special->ids, special->count * sizeof *special->ids);
}

/* First of [low, high) whose byte at `depth` is at least `byte`; all are longer than `depth`. */
static uint64_t lower_bound(const strata__special *special, const strata__text_vocabulary *v,
                            uint64_t low, uint64_t high, uint64_t depth, uint32_t byte)
{
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (v->bytes[v->offsets[special->ids[middle]] + depth] < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The longest token that begins at `text`, narrowing the sorted range byte by byte. */
static int32_t longest(const strata__special *special, const strata__text_vocabulary *v,
                       const uint8_t *text, uint64_t count, uint8_t wanted, uint64_t *out_bytes)
{
    uint64_t low = 0, high = special->count, bytes;
    int32_t found = -1;
    for (uint64_t depth = 0; low < high; depth++) {
        while (low < high && bytes_of(v, special->ids[low], &bytes) && bytes == depth) {
            if ((bit_of(v, special->ids[low]) & wanted) && (found < 0 || *out_bytes < depth)) {
                found = (int32_t)special->ids[low];
                *out_bytes = depth;
            }
            low++;
        }
        if (depth == count)
            break;
        low = lower_bound(special, v, low, high, depth, text[depth]);
        high = lower_bound(special, v, low, high, depth, text[depth] + 1u);
    }
    return found;
}

int32_t strata__special_next(const strata__special *special, const strata__text_vocabulary *v,
                             const uint8_t *text, uint64_t begin, uint64_t end, bool control,
                             uint64_t *out_at, uint64_t *out_bytes)
{
    const uint8_t wanted = control ? USER_BIT | CONTROL_BIT : USER_BIT;
    if (special->count)
        for (uint64_t at = begin; at < end; at++) {
            int32_t id;
            if (!(special->first[text[at]] & wanted))
                continue;
            id = longest(special, v, text + at, end - at, wanted, out_bytes);
            if (id >= 0) {
                *out_at = at;
                return id;
            }
        }
    *out_at = end;
    return -1;
}
