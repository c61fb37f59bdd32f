/* SPDX-License-Identifier: MIT */
/*
 * One file's header:
 *
 *   magic, version, counts | metadata entries | tensor infos | padding | data
 *
 * Every size is held against what is left in the file by subtraction, and memory is taken only for
 * entries that have been read. The data itself is never touched.
 */
#include <stddef.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "pack/cursor.h"
#include "pack/internal.h"
#include "pack/metadata.h"
#include "pack/utf8.h"

enum { DEFAULT_ALIGNMENT = 32, MAX_DIMENSIONS = 4 };

typedef struct counts {
    uint64_t tensors;
    uint64_t values;
} counts;

static strata_status check_version(const strata__cursor *cursor, uint32_t version)
{
    if (version == 2 || version == 3)
        return STRATA_OK;
    if (version && (version & 0xffff) == 0)
        return strata__fail(STRATA_ERR_FORMAT,
                            "%s: the file is big-endian; only little-endian files "
                            "can be read",
                            cursor->file);
    return strata__fail(STRATA_ERR_FORMAT,
                        "%s: GGUF version %" PRIu32 "; versions 2 and 3 can be read", cursor->file,
                        version);
}

static strata_status read_preamble(strata__cursor *cursor, counts *out)
{
    const uint8_t *magic;
    uint32_t version;
    strata_status status = strata__cursor_bytes(cursor, 4, "the magic number", &magic);
    if (status != STRATA_OK)
        return status;
    if (memcmp(magic, "GGUF", 4) != 0)
        return strata__fail(STRATA_ERR_FORMAT,
                            "%s: not a GGUF file, it starts with %02x %02x %02x "
                            "%02x",
                            cursor->file, magic[0], magic[1], magic[2], magic[3]);
    status = strata__cursor_u32(cursor, "the version", &version);
    if (status == STRATA_OK)
        status = check_version(cursor, version);
    if (status == STRATA_OK)
        status = strata__cursor_u64(cursor, "the number of tensors", &out->tensors);
    if (status == STRATA_OK)
        status = strata__cursor_u64(cursor, "the number of metadata entries", &out->values);
    if (status != STRATA_OK)
        return status;
    if (out->tensors > STRATA__MAX_ENTRIES || out->values > STRATA__MAX_ENTRIES)
        return strata__fail(STRATA_ERR_FORMAT,
                            "%s: %" PRIu64 " tensors and %" PRIu64
                            " metadata entries; at most %d of each can be read",
                            cursor->file, out->tensors, out->values, STRATA__MAX_ENTRIES);
    return STRATA_OK;
}

static strata_status read_values(strata__pack *pack, strata__cursor *cursor, uint64_t count,
                                 strata__list *values)
{
    for (uint64_t i = 0; i < count; i++) {
        strata__value value;
        strata__value *item;
        strata_status status = strata__metadata_read(&pack->pool, cursor, &value);
        if (status != STRATA_OK)
            return status;
        item = strata__list_add(values, strata__pack_allocator(pack));
        if (!item)
            return strata__fail_memory(sizeof *item, "the metadata index");
        *item = value;
    }
    return STRATA_OK;
}

static strata_status read_alignment(strata__shard *shard, const strata__list *values)
{
    const strata__value *value = strata__values_search(values, "general.alignment");
    uint32_t alignment;
    shard->alignment = DEFAULT_ALIGNMENT;
    if (!value)
        return STRATA_OK;
    if (value->type != STRATA__VALUE_U32)
        return strata__fail(STRATA_ERR_FORMAT, "%s: key general.alignment: expected u32, found %s",
                            shard->name, strata__value_type_name(value->type));
    memcpy(&alignment, value->data, sizeof alignment);
    if (alignment == 0 || (alignment & (alignment - 1)))
        return strata__fail(STRATA_ERR_FORMAT,
                            "%s: key general.alignment: %" PRIu32 " is no power of two",
                            shard->name, alignment);
    shard->alignment = alignment;
    return STRATA_OK;
}

static strata_status read_name(strata__pack *pack, strata__cursor *cursor, const char **out)
{
    uint64_t at = cursor->at;
    const uint8_t *bytes;
    uint64_t count;
    strata_status status = strata__cursor_string(cursor, "a tensor name", &bytes, &count);
    if (status != STRATA_OK)
        return status;
    if (count > STRATA__MAX_TENSOR_NAME_BYTES)
        return strata__fail(STRATA_ERR_FORMAT,
                            "%s: the tensor name at byte %" PRIu64 " has %" PRIu64
                            " bytes, more than %d",
                            cursor->file, at, count, STRATA__MAX_TENSOR_NAME_BYTES);
    if (!strata__utf8_is_name(bytes, count))
        return strata__fail(STRATA_ERR_FORMAT, "%s: the tensor name at byte %" PRIu64 " is %s",
                            cursor->file, at, count ? "no text" : "empty");
    *out = strata__pool_text(&pack->pool, bytes, count);
    return *out ? STRATA_OK : strata__fail_memory(count + 1, "a tensor name");
}

static strata_status read_shape(strata__cursor *cursor, strata__tensor *tensor)
{
    uint64_t values = 1;
    strata_status status = strata__cursor_u32(cursor, tensor->name, &tensor->dimensions);
    if (status != STRATA_OK)
        return status;
    if (tensor->dimensions < 1 || tensor->dimensions > MAX_DIMENSIONS)
        return strata__fail(STRATA_ERR_FORMAT,
                            "%s: tensor %s has %" PRIu32 " dimensions; 1 to %d are possible",
                            cursor->file, tensor->name, tensor->dimensions, MAX_DIMENSIONS);
    for (uint32_t i = 0; i < MAX_DIMENSIONS; i++)
        tensor->shape[i] = 1;
    for (uint32_t i = 0; i < tensor->dimensions; i++) {
        status = strata__cursor_u64(cursor, tensor->name, &tensor->shape[i]);
        if (status != STRATA_OK)
            return status;
        if (tensor->shape[i] == 0)
            return strata__fail(STRATA_ERR_FORMAT, "%s: tensor %s: dimension %" PRIu32 " is 0",
                                cursor->file, tensor->name, i);
        if (!strata__mul_u64(values, tensor->shape[i], &values) || values > INT64_MAX)
            return strata__fail(STRATA_ERR_FORMAT,
                                "%s: tensor %s: the number of its values overflows", cursor->file,
                                tensor->name);
    }
    return STRATA_OK;
}

/* Leaves bytes at 0 for a format that is not decoded: such a tensor can be listed, not read. */
static strata_status size_tensor(const strata__cursor *cursor, strata__tensor *tensor)
{
    const strata__format_info *format = strata__format_find(tensor->format);
    uint64_t bytes;
    if (!format)
        return STRATA_OK;
    if (tensor->shape[0] % format->block_values)
        return strata__fail(STRATA_ERR_FORMAT,
                            "%s: tensor %s: rows of %" PRIu64
                            " values are no multiple of the %" PRIu32 " values of a %s block",
                            cursor->file, tensor->name, tensor->shape[0], format->block_values,
                            format->name);
    if (!strata__format_row_bytes(tensor->format, tensor->shape[0], &bytes) ||
        !strata__mul_u64(bytes, tensor->shape[1] * tensor->shape[2] * tensor->shape[3], &bytes))
        return strata__fail(STRATA_ERR_FORMAT, "%s: tensor %s: its size overflows", cursor->file,
                            tensor->name);
    tensor->bytes = bytes;
    return STRATA_OK;
}

static strata_status read_tensor(strata__pack *pack, strata__cursor *cursor, uint32_t shard_index)
{
    strata__tensor tensor;
    strata__tensor *item;
    strata_status status;
    memset(&tensor, 0, sizeof tensor);
    tensor.shard = shard_index;
    status = read_name(pack, cursor, &tensor.name);
    if (status == STRATA_OK)
        status = read_shape(cursor, &tensor);
    if (status == STRATA_OK)
        status = strata__cursor_u32(cursor, tensor.name, &tensor.format);
    if (status == STRATA_OK)
        status = strata__cursor_u64(cursor, tensor.name, &tensor.offset);
    if (status == STRATA_OK)
        status = size_tensor(cursor, &tensor);
    if (status != STRATA_OK)
        return status;
    if (pack->tensors.count == STRATA__MAX_ENTRIES)
        return strata__fail(STRATA_ERR_FORMAT, "%s: more than %d tensors", cursor->file,
                            STRATA__MAX_ENTRIES);
    item = strata__list_add(&pack->tensors, strata__pack_allocator(pack));
    if (!item)
        return strata__fail_memory(sizeof *item, "the tensor index");
    *item = tensor;
    return STRATA_OK;
}

/* Points the file's tensors, from `first` on, to their data, which begins where the header ends. */
static strata_status place_tensors(strata__pack *pack, const strata__shard *shard, uint32_t first)
{
    uint64_t start, left;
    if (first == pack->tensors.count)
        return STRATA_OK;
    if (!strata__round_up_u64(shard->header_bytes, shard->alignment, &start) ||
        start > shard->bytes)
        return strata__fail(STRATA_ERR_FORMAT, "%s: the file ends before the tensor data",
                            shard->name);
    left = shard->bytes - start;
    for (uint32_t i = first; i < pack->tensors.count; i++) {
        strata__tensor *tensor = strata__pack_tensors(pack) + i;
        if (tensor->offset % shard->alignment)
            return strata__fail(STRATA_ERR_FORMAT,
                                "%s: tensor %s: offset %" PRIu64
                                " is no multiple of the alignment %" PRIu64,
                                shard->name, tensor->name, tensor->offset, shard->alignment);
        if (tensor->offset > left || tensor->bytes > left - tensor->offset)
            return strata__fail(STRATA_ERR_FORMAT,
                                "%s: tensor %s: %" PRIu64 " bytes at offset %" PRIu64 " of %" PRIu64
                                " bytes of data: beyond the end of the file",
                                shard->name, tensor->name, tensor->bytes, tensor->offset, left);
        tensor->data = shard->data + start + tensor->offset;
    }
    return STRATA_OK;
}

strata_status strata__header_read(strata__pack *pack, strata__shard *shard, uint32_t shard_index,
                                  strata__list *values)
{
    strata__cursor cursor = {shard->name, shard->data, shard->bytes, 0};
    uint32_t first_tensor = pack->tensors.count;
    counts claimed;
    strata_status status = read_preamble(&cursor, &claimed);
    if (status == STRATA_OK)
        status = read_values(pack, &cursor, claimed.values, values);
    if (status == STRATA_OK)
        status = read_alignment(shard, values);
    for (uint64_t i = 0; status == STRATA_OK && i < claimed.tensors; i++)
        status = read_tensor(pack, &cursor, shard_index);
    if (status != STRATA_OK)
        return status;
    shard->header_bytes = cursor.at;
    return place_tensors(pack, shard, first_tensor);
}
