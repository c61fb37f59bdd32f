/* SPDX-License-Identifier: MIT */
/*
 * Split packs: PREFIX-00001-of-00003.gguf and its siblings. The siblings' names come from the path
 * that the caller gave: in a cache the files are links to names that tell nothing.
 */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "pack/internal.h"

enum { MAX_FILES = 99999, NUMBER_DIGITS = 5, TAIL_BYTES = 20 /* "-00001-of-00003.gguf" */ };

static strata_status read_number(const strata__shard *shard, const strata__list *values,
                                 const char *key, int64_t lowest, int64_t highest,
                                 int64_t *out_or_default)
{
    const strata__value *value = strata__values_search(values, key);
    int64_t number;
    if (!value)
        return STRATA_OK;
    if (value->type == STRATA__VALUE_ARRAY || strata__value_int64(value, 0, &number) != STRATA_OK)
        return strata__fail(STRATA_ERR_FORMAT, "%s: key %s is no integer", shard->name, key);
    if (number < lowest || number > highest)
        return strata__fail(STRATA_ERR_FORMAT,
                            "%s: key %s: expected %" PRId64 " to %" PRId64 ", found %" PRId64,
                            shard->name, key, lowest, highest, number);
    *out_or_default = number;
    return STRATA_OK;
}

static strata_status read_split_keys(const strata__shard *shard, const strata__list *values,
                                     int64_t *out_number, int64_t *out_count)
{
    strata_status status;
    *out_number = 0;
    *out_count = 1;
    status = read_number(shard, values, "split.count", 0, MAX_FILES, out_count);
    if (status == STRATA_OK)
        status = read_number(shard, values, "split.no", 0, MAX_FILES - 1, out_number);
    if (*out_count == 0) /* some writers */
        *out_count = 1;
    return status;
}

static void format_tail(char tail[TAIL_BYTES + 1], int64_t number, int64_t count)
{
    /* The remainders change nothing below MAX_FILES; they tell the compiler the width. */
    snprintf(tail, TAIL_BYTES + 1, "-%05u-of-%05u.gguf", (unsigned)(number + 1) % 100000,
             (unsigned)count % 100000);
}

static strata_status check_first(const strata__pack *pack, int64_t number, int64_t count)
{
    char tail[TAIL_BYTES + 1];
    uint64_t length = strlen(pack->path);
    if (!pack->path[0])
        return strata__fail(STRATA_ERR_UNSUPPORTED,
                            "%s: one of %" PRId64 " files of a split pack; open it by its path",
                            strata__pack_shard(pack, 0)->name, count);
    if (number != 0) {
        format_tail(tail, 0, count);
        return strata__fail(STRATA_ERR_FORMAT,
                            "%s: file %" PRId64 " of %" PRId64
                            " of a split pack; open the first, whose name ends in %s",
                            pack->path, number + 1, count, tail);
    }
    format_tail(tail, 0, count);
    if (length < TAIL_BYTES || strcmp(pack->path + length - TAIL_BYTES, tail) != 0)
        return strata__fail(STRATA_ERR_FORMAT,
                            "%s: the first of %" PRId64
                            " files of a split pack, whose name must end in %s",
                            pack->path, count, tail);
    return STRATA_OK;
}

static strata_status add_shard(strata__pack *pack, int64_t number, int64_t count,
                               strata__shard **out)
{
    uint64_t length = strlen(pack->path);
    char *path = strata__pool_text(&pack->pool, pack->path, length);
    strata__shard *shard = NULL;
    strata_status status;
    if (!path)
        return strata__fail_memory(length + 1, "a file name");
    format_tail(path + length - TAIL_BYTES, number, count);
    shard = strata__list_add(&pack->shards, strata__pack_allocator(pack));
    if (!shard)
        return strata__fail_memory(sizeof *shard, "the list of files");
    shard->name = path;
    status = strata__mapping_open(path, &shard->mapping);
    shard->data = shard->mapping.data;
    shard->bytes = shard->mapping.bytes;
    *out = shard;
    return status;
}

/* Tensors of all files together, as one of them says; -1: it does not. All must say the same. */
static strata_status read_tensor_count(const strata__shard *shard, const strata__list *values,
                                       int64_t *inout_tensors)
{
    int64_t found = -1;
    strata_status status = read_number(shard, values, "split.tensors.count", 0, INT64_MAX, &found);
    if (status != STRATA_OK || found < 0)
        return status;
    if (*inout_tensors >= 0 && found != *inout_tensors)
        return strata__fail(STRATA_ERR_FORMAT,
                            "%s: split.tensors.count is %" PRId64 ", in the files before %" PRId64,
                            shard->name, found, *inout_tensors);
    *inout_tensors = found;
    return STRATA_OK;
}

static strata_status open_shard(strata__pack *pack, int64_t number, int64_t count,
                                int64_t *inout_tensors)
{
    strata__list values = {.item_bytes = sizeof(strata__value)};
    strata__shard *shard = NULL;
    int64_t found_number, found_count;
    strata_status status = add_shard(pack, number, count, &shard);
    if (status == STRATA_OK)
        status = strata__header_read(pack, shard, (uint32_t)number, &values);
    if (status == STRATA_OK)
        status = read_split_keys(shard, &values, &found_number, &found_count);
    if (status == STRATA_OK && (found_number != number || found_count != count))
        status = strata__fail(STRATA_ERR_FORMAT,
                              "%s: expected split.no %" PRId64 " of %" PRId64 ", found %" PRId64
                              " of %" PRId64,
                              shard->name, number, count, found_number, found_count);
    if (status == STRATA_OK)
        status = read_tensor_count(shard, &values, inout_tensors);
    strata__list_release(&values, strata__pack_allocator(pack));
    return status;
}

strata_status strata__split_open(strata__pack *pack)
{
    const strata__shard *first = strata__pack_shard(pack, 0);
    int64_t number, count, tensors = -1;
    strata_status status = read_split_keys(first, &pack->values, &number, &count);
    if (status != STRATA_OK || count == 1)
        return status;
    status = read_tensor_count(first, &pack->values, &tensors);
    if (status == STRATA_OK)
        status = check_first(pack, number, count);
    for (int64_t i = 1; status == STRATA_OK && i < count; i++)
        status = open_shard(pack, i, count, &tensors);
    if (status == STRATA_OK && tensors >= 0 && tensors != pack->tensors.count)
        return strata__fail(STRATA_ERR_FORMAT,
                            "%s: split.tensors.count is %" PRId64 ", the files hold %" PRIu32
                            " tensors",
                            pack->path, tensors, pack->tensors.count);
    return status;
}
