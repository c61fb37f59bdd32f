/* SPDX-License-Identifier: MIT */
/* What the files of the pack module share. */
#ifndef STRATA_PACK_INTERNAL_H
#define STRATA_PACK_INTERNAL_H

#include <inttypes.h>
#include <stdatomic.h>

#include "pack/mapping.h"
#include "pack/pack.h"
#include "pack/pool.h"

/* Limits no real file comes near; they bound the work that a hostile one can cause. */
enum {
    STRATA__MAX_KEY_BYTES = 65535,
    STRATA__MAX_TENSOR_NAME_BYTES = 255,
    STRATA__MAX_ENTRIES = 1 << 24,  /* metadata entries, tensors, strings of an array */
    STRATA__MAX_ELEMENTS = 1 << 30, /* of an array */
    STRATA__STRING_STRIDE = 32      /* strings between two entries of a string index */
};

typedef enum strata__value_type {
    STRATA__VALUE_U8 = 0,
    STRATA__VALUE_I8 = 1,
    STRATA__VALUE_U16 = 2,
    STRATA__VALUE_I16 = 3,
    STRATA__VALUE_U32 = 4,
    STRATA__VALUE_I32 = 5,
    STRATA__VALUE_F32 = 6,
    STRATA__VALUE_BOOL = 7,
    STRATA__VALUE_STRING = 8,
    STRATA__VALUE_ARRAY = 9,
    STRATA__VALUE_U64 = 10,
    STRATA__VALUE_I64 = 11,
    STRATA__VALUE_F64 = 12
} strata__value_type;

/* One file of the pack. */
typedef struct strata__shard {
    const char *name;        /* path, or what stands for it in texts */
    strata__mapping mapping; /* zeroed when the memory is the caller's */
    const uint8_t *data;
    uint64_t bytes;
    uint64_t header_bytes; /* up to the end of the tensor infos */
    uint64_t alignment;
} strata__shard;

typedef enum strata__tokenizer {
    STRATA__TOKENIZER_OTHER,
    STRATA__TOKENIZER_BYTE_LEVEL,
    STRATA__TOKENIZER_SENTENCEPIECE
} strata__tokenizer;

typedef struct strata__vocabulary {
    strata__value tokens; /* zeroed: the file has none */
    strata__value types;
    strata__value scores;
    uint32_t tokenizer; /* strata__tokenizer */
} strata__vocabulary;

struct strata_pack {
    strata_context *context;
    atomic_uint references;
    strata__pool pool;
    strata__list shards;    /* strata__shard */
    strata__list values;    /* strata__value, of the first file */
    strata__list tensors;   /* strata__tensor, of all files */
    uint32_t *value_order;  /* by key */
    uint32_t *tensor_order; /* by name */
    const char *path;
    const char *architecture;
    const char *name;
    uint64_t file_bytes;
    uint64_t fingerprint;
    strata__vocabulary vocabulary;
    strata__geometry geometry;
    const strata__layer *layers;
    strata__pack_shared shared;
    strata_status model_status;
    char model_text[512];
};

/* Bytes of a scalar of a type; 0 for strings, arrays and what is no type. */
uint32_t strata__value_bytes(uint32_t type);
const char *strata__value_type_name(uint32_t type);

/*
 * Checks one file's header and indexes it: its entries are added to `values`, its tensors, marked
 * with `shard_index`, to `pack->tensors`.
 */
strata_status strata__header_read(strata__pack *pack, strata__shard *shard, uint32_t shard_index,
                                  strata__list *values);

/* First entry of the list with the key, or NULL; for lists that are not sorted yet. */
const strata__value *strata__values_search(const strata__list *values, const char *key);

/* Opens the other files of a split pack whose first file is indexed. */
strata_status strata__split_open(strata__pack *pack);

/* Sorts keys and names; refuses those that appear twice, and tensors that overlap. */
strata_status strata__index_build(strata__pack *pack);

strata_status strata__vocabulary_build(strata__pack *pack);

/* Geometry and layers. An error is a reason why the model cannot be run; NO_MEMORY is none. */
strata_status strata__model_build(strata__pack *pack);

static inline strata__shard *strata__pack_shard(const strata__pack *pack, uint32_t index)
{
    return (strata__shard *)pack->shards.items + index;
}

static inline strata__tensor *strata__pack_tensors(const strata__pack *pack)
{
    return pack->tensors.items;
}

static inline strata__value *strata__pack_values(const strata__pack *pack)
{
    return pack->values.items;
}

static inline const strata__allocator *strata__pack_allocator(const strata__pack *pack)
{
    return &pack->context->allocator;
}

#endif
