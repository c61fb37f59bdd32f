/* SPDX-License-Identifier: MIT */
#include "text/vocabulary.h"

#include <stddef.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"

/* Eight bytes at a time, each multiplied in; the constant is 2^64 over the golden ratio. */
uint64_t strata__text_hash(const uint8_t *bytes, uint64_t count)
{
    const uint64_t factor = 0x9e3779b97f4a7c15u;
    uint64_t hash = count * factor;
    while (count >= 8) {
        uint64_t part;
        memcpy(&part, bytes, 8);
        hash = (hash ^ part) * factor;
        hash ^= hash >> 32;
        bytes += 8;
        count -= 8;
    }
    if (count) {
        uint64_t part = 0;
        for (uint64_t i = 0; i < count; i++)
            part |= (uint64_t)bytes[i] << (8 * i);
        hash = (hash ^ part) * factor;
        hash ^= hash >> 32;
    }
    return hash * factor;
}

static uint64_t token_bytes(const strata__text_vocabulary *vocabulary, uint32_t id,
                            const uint8_t **out)
{
    *out = vocabulary->bytes + vocabulary->offsets[id];
    return vocabulary->offsets[id + 1] - vocabulary->offsets[id];
}

int32_t strata__text_vocabulary_find(const strata__text_vocabulary *vocabulary,
                                     const uint8_t *bytes, uint64_t count)
{
    const uint64_t mask = vocabulary->slot_count - 1;
    uint64_t slot = strata__text_hash(bytes, count) >> 20;
    for (;; slot++) {
        const uint8_t *own;
        uint32_t entry = vocabulary->slots[slot & mask];
        if (entry == 0)
            return -1;
        if (token_bytes(vocabulary, entry - 1, &own) == count && memcmp(own, bytes, count) == 0)
            return (int32_t)(entry - 1);
    }
}

/* The first token of some bytes keeps them. */
static void insert(strata__text_vocabulary *vocabulary, uint32_t id)
{
    const uint64_t mask = vocabulary->slot_count - 1;
    const uint8_t *bytes;
    uint64_t count = token_bytes(vocabulary, id, &bytes), slot;
    if (count == 0 || strata__text_vocabulary_find(vocabulary, bytes, count) >= 0)
        return;
    slot = strata__text_hash(bytes, count) >> 20;
    while (vocabulary->slots[slot & mask])
        slot++;
    vocabulary->slots[slot & mask] = id + 1;
}

static strata_status allocate(const strata__allocator *allocator, strata__text_vocabulary *v)
{
    v->slot_count = 16;
    while (v->slot_count < 2 * (uint64_t)v->count)
        v->slot_count *= 2;
    v->offsets = strata__calloc(allocator, (uint64_t)v->count + 1, sizeof *v->offsets);
    v->types = strata__calloc(allocator, v->count, sizeof *v->types);
    v->slots = strata__calloc(allocator, v->slot_count, sizeof *v->slots);
    if (v->offsets && v->types && v->slots)
        return STRATA_OK;
    return strata__fail_memory(v->slot_count * sizeof *v->slots, "a tokenizer's vocabulary");
}

/* Sizes first, then the bytes at once. */
static strata_status read_tokens(const strata__allocator *allocator,
                                 const strata__text_source *source, strata__text_vocabulary *v)
{
    for (uint32_t pass = 0; pass < 2; pass++) {
        for (uint32_t id = 0; id < v->count; id++) {
            const uint8_t *stored;
            uint64_t count;
            uint32_t type;
            float score;
            strata_status status =
                source->token(source->user_data, id, &stored, &count, &type, &score);
            if (status != STRATA_OK)
                return status;
            v->types[id] = (uint8_t)type;
            count = source->unescape(source->user_data, type, stored, count,
                                     pass ? v->bytes + v->offsets[id] : NULL);
            if (!strata__add_u64(v->offsets[id], count, &v->offsets[id + 1]))
                return strata__fail(STRATA_ERR_FORMAT, "the vocabulary is too large");
        }
        if (pass)
            return STRATA_OK;
        v->byte_count = v->offsets[v->count];
        v->bytes = strata__alloc(allocator, v->byte_count);
        if (!v->bytes)
            return strata__fail_memory(v->byte_count, "the texts of a tokenizer's vocabulary");
    }
    return STRATA_OK;
}

static void index_tokens(strata__text_vocabulary *v)
{
    static const uint8_t kinds[][2] = {{STRATA__TOKEN_ABSENT, STRATA__TOKEN_NORMAL},
                                       {STRATA__TOKEN_USER, STRATA__TOKEN_USER}};
    for (int kind = 0; kind < 2; kind++)
        for (uint32_t id = 0; id < v->count; id++)
            if (v->types[id] == kinds[kind][0] || v->types[id] == kinds[kind][1])
                insert(v, id);
    for (int byte = 0; byte < 256; byte++) {
        uint8_t text = (uint8_t)byte;
        v->byte_ids[byte] = strata__text_vocabulary_find(v, &text, 1);
    }
    for (uint32_t id = 0; id < v->count; id++) {
        const uint8_t *bytes;
        if (v->types[id] == STRATA__TOKEN_BYTE && token_bytes(v, id, &bytes) == 1 &&
            v->byte_ids[bytes[0]] < 0)
            v->byte_ids[bytes[0]] = (int32_t)id;
    }
}

strata_status strata__text_vocabulary_build(const strata__allocator *allocator,
                                            const strata__text_source *source,
                                            strata__text_vocabulary *out)
{
    strata_status status;
    if (source->token_count == 0)
        return strata__fail(STRATA_ERR_UNSUPPORTED, "the pack has no vocabulary");
    if (source->token_count > INT32_MAX)
        return strata__fail(STRATA_ERR_UNSUPPORTED, "the vocabulary has %llu tokens",
                            (unsigned long long)source->token_count);
    out->count = (uint32_t)source->token_count;
    status = allocate(allocator, out);
    if (status == STRATA_OK)
        status = read_tokens(allocator, source, out);
    if (status == STRATA_OK)
        index_tokens(out);
    return status;
}

void strata__text_vocabulary_release(const strata__allocator *allocator, strata__text_vocabulary *v)
{
    strata__free(allocator, v->bytes, v->byte_count);
    strata__free(allocator, v->offsets, ((uint64_t)v->count + 1) * sizeof *v->offsets);
    strata__free(allocator, v->types, v->count * sizeof *v->types);
    strata__free(allocator, v->slots, v->slot_count * sizeof *v->slots);
}
