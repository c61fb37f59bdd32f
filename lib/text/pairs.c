/* SPDX-License-Identifier: MIT */
#include "text/pairs.h"

#include <math.h>
#include <string.h>

#include "base/error.h"

/* Longer pieces come from no trainer; their splits would take time that grows with the square. */
enum { LONGEST_PIECE_BYTES = 1024 };

static strata_status resize(const strata__allocator *allocator, strata__pairs *pairs,
                            uint32_t slot_bits)
{
    strata__pairs grown = {NULL, (uint64_t)1 << slot_bits, 0, 64 - slot_bits};
    grown.slots = strata__calloc(allocator, grown.slot_count, sizeof *grown.slots);
    if (!grown.slots)
        return strata__fail_memory(grown.slot_count * sizeof *grown.slots,
                                   "a tokenizer's table of merges");
    for (uint64_t i = 0; i < grown.slot_count; i++)
        grown.slots[i].rank = STRATA__NO_RANK;
    for (uint64_t i = 0; i < pairs->slot_count; i++) {
        const strata__pair *pair = &pairs->slots[i];
        uint64_t slot = pair->key * 0x9e3779b97f4a7c15u >> grown.shift;
        if (pair->rank == STRATA__NO_RANK)
            continue;
        while (grown.slots[slot & (grown.slot_count - 1)].rank != STRATA__NO_RANK)
            slot++;
        grown.slots[slot & (grown.slot_count - 1)] = *pair;
        grown.used++;
    }
    strata__pairs_release(allocator, pairs);
    *pairs = grown;
    return STRATA_OK;
}

/* The first of two equal pairs stays. */
static strata_status add(const strata__allocator *allocator, strata__pairs *pairs, uint32_t left,
                         uint32_t right, uint32_t rank, uint32_t merged)
{
    const strata__pair pair = {(uint64_t)left << 32 | right, rank, merged};
    uint64_t slot;
    if (strata__pairs_find(pairs, left, right))
        return STRATA_OK;
    if (2 * (pairs->used + 1) > pairs->slot_count) {
        strata_status status = resize(allocator, pairs, 64 - pairs->shift + 1);
        if (status != STRATA_OK)
            return status;
    }
    slot = pair.key * 0x9e3779b97f4a7c15u >> pairs->shift;
    while (pairs->slots[slot & (pairs->slot_count - 1)].rank != STRATA__NO_RANK)
        slot++;
    pairs->slots[slot & (pairs->slot_count - 1)] = pair;
    pairs->used++;
    return STRATA_OK;
}

static strata_status start(const strata__allocator *allocator, strata__pairs *pairs, uint64_t count)
{
    uint32_t bits = 6;
    while (((uint64_t)1 << bits) < 2 * count && bits < 40)
        bits++;
    return resize(allocator, pairs, bits);
}

typedef struct merge_reader {
    const strata__allocator *allocator;
    const strata__text_source *source;
    const strata__text_vocabulary *vocabulary;
    uint8_t *scratch; /* both halves, unescaped */
    uint64_t scratch_bytes;
} merge_reader;

static strata_status hold(merge_reader *reader, uint64_t bytes)
{
    if (bytes <= reader->scratch_bytes)
        return STRATA_OK;
    strata__free(reader->allocator, reader->scratch, reader->scratch_bytes);
    reader->scratch_bytes = 0;
    reader->scratch = strata__alloc(reader->allocator, bytes);
    if (!reader->scratch)
        return strata__fail_memory(bytes, "a merge of the vocabulary");
    reader->scratch_bytes = bytes;
    return STRATA_OK;
}

/* "left right", separated by the first space that is not the first byte. */
static strata_status read_merge(merge_reader *reader, uint64_t index, strata__pairs *out)
{
    const strata__text_source *source = reader->source;
    const strata__text_vocabulary *vocabulary = reader->vocabulary;
    const uint8_t *stored, *space;
    uint64_t count, left_bytes, bytes;
    int32_t left, right, merged;
    strata_status status = source->merge(source->user_data, index, &stored, &count);
    if (status != STRATA_OK)
        return status;
    space = count > 1 ? memchr(stored + 1, ' ', count - 1) : NULL;
    if (!space)
        return strata__fail(STRATA_ERR_FORMAT, "merge %llu of the vocabulary has no two parts",
                            (unsigned long long)index);
    status = hold(reader, count);
    if (status != STRATA_OK)
        return status;
    left_bytes = source->unescape(source->user_data, STRATA__TOKEN_NORMAL, stored,
                                  (uint64_t)(space - stored), reader->scratch);
    bytes = left_bytes + source->unescape(source->user_data, STRATA__TOKEN_NORMAL, space + 1,
                                          count - (uint64_t)(space - stored) - 1,
                                          reader->scratch + left_bytes);
    left = strata__text_vocabulary_find(vocabulary, reader->scratch, left_bytes);
    right =
        strata__text_vocabulary_find(vocabulary, reader->scratch + left_bytes, bytes - left_bytes);
    merged = strata__text_vocabulary_find(vocabulary, reader->scratch, bytes);
    if (left < 0 || right < 0 || merged < 0)
        return strata__fail(
            STRATA_ERR_FORMAT, "merge %llu of the vocabulary, \"%.*s\": %s is no token",
            (unsigned long long)index, count < 64 ? (int)count : 64, (const char *)stored,
            left < 0    ? "its left part"
            : right < 0 ? "its right part"
                        : "the whole");
    return add(reader->allocator, out, (uint32_t)left, (uint32_t)right, (uint32_t)index,
               (uint32_t)merged);
}

strata_status strata__pairs_from_merges(const strata__allocator *allocator,
                                        const strata__text_source *source,
                                        const strata__text_vocabulary *vocabulary,
                                        strata__pairs *out)
{
    merge_reader reader = {allocator, source, vocabulary, NULL, 0};
    strata_status status;
    if (source->merge_count >= STRATA__NO_RANK)
        return strata__fail(STRATA_ERR_UNSUPPORTED, "the vocabulary has %llu merges",
                            (unsigned long long)source->merge_count);
    status = start(allocator, out, source->merge_count);
    for (uint64_t i = 0; status == STRATA_OK && i < source->merge_count; i++)
        status = read_merge(&reader, i, out);
    strata__free(allocator, reader.scratch, reader.scratch_bytes);
    return status;
}

/* Higher scores give lower ranks, equal scores equal ones; a score is no NaN. */
static uint32_t rank_of_score(float score)
{
    uint32_t bits;
    score += 0.0f; /* one zero */
    memcpy(&bits, &score, sizeof bits);
    return ~(bits & 0x80000000u ? ~bits : bits | 0x80000000u);
}

static strata_status add_splits(const strata__allocator *allocator,
                                const strata__text_vocabulary *vocabulary, uint32_t id, float score,
                                strata__pairs *out)
{
    const uint8_t *bytes = vocabulary->bytes + vocabulary->offsets[id];
    uint64_t count = vocabulary->offsets[id + 1] - vocabulary->offsets[id];
    if (strata__text_vocabulary_find(vocabulary, bytes, count) != (int32_t)id)
        return STRATA_OK;
    if (count > LONGEST_PIECE_BYTES)
        return strata__fail(STRATA_ERR_UNSUPPORTED,
                            "token %u has %llu bytes, pieces have at most %d", (unsigned)id,
                            (unsigned long long)count, LONGEST_PIECE_BYTES);
    if (isnan(score))
        return strata__fail(STRATA_ERR_FORMAT, "the score of token %u is not a number",
                            (unsigned)id);
    for (uint64_t cut = 1; cut < count; cut++) {
        int32_t left, right;
        strata_status status;
        if ((bytes[cut] & 0xc0) == 0x80)
            continue;
        left = strata__text_vocabulary_find(vocabulary, bytes, cut);
        right = left < 0 ? -1 : strata__text_vocabulary_find(vocabulary, bytes + cut, count - cut);
        if (right < 0)
            continue;
        status = add(allocator, out, (uint32_t)left, (uint32_t)right, rank_of_score(score), id);
        if (status != STRATA_OK)
            return status;
    }
    return STRATA_OK;
}

strata_status strata__pairs_from_scores(const strata__allocator *allocator,
                                        const strata__text_source *source,
                                        const strata__text_vocabulary *vocabulary,
                                        strata__pairs *out)
{
    strata_status status = start(allocator, out, vocabulary->count);
    for (uint32_t id = 0; status == STRATA_OK && id < vocabulary->count; id++) {
        const uint8_t *stored;
        uint64_t count;
        uint32_t type;
        float score;
        status = source->token(source->user_data, id, &stored, &count, &type, &score);
        if (status == STRATA_OK)
            status = add_splits(allocator, vocabulary, id, score, out);
    }
    return status;
}

void strata__pairs_release(const strata__allocator *allocator, strata__pairs *pairs)
{
    strata__free(allocator, pairs->slots, pairs->slot_count * sizeof *pairs->slots);
    pairs->slots = NULL;
}
