/* SPDX-License-Identifier: MIT */
/*
 * Metadata entries: checked here once, so that whoever reads them later needs no bounds of the
 * file.
 */
#include "pack/metadata.h"

#include <stddef.h>

#include "base/error.h"
#include "pack/utf8.h"

static strata_status read_key(strata__pool *pool, strata__cursor *cursor, const char **out)
{
    uint64_t at = cursor->at;
    const uint8_t *bytes;
    uint64_t count;
    strata_status status = strata__cursor_string(cursor, "a metadata key", &bytes, &count);
    if (status != STRATA_OK)
        return status;
    if (count > STRATA__MAX_KEY_BYTES)
        return strata__fail(STRATA_ERR_FORMAT,
                            "%s: the metadata key at byte %" PRIu64 " has %" PRIu64
                            " bytes, more than %d",
                            cursor->file, at, count, STRATA__MAX_KEY_BYTES);
    if (!strata__utf8_is_name(bytes, count))
        return strata__fail(STRATA_ERR_FORMAT, "%s: the metadata key at byte %" PRIu64 " is %s",
                            cursor->file, at, count ? "no text" : "empty");
    *out = strata__pool_text(pool, bytes, count);
    return *out ? STRATA_OK : strata__fail_memory(count + 1, "a metadata key");
}

static strata_status read_strings(strata__pool *pool, strata__cursor *cursor, strata__value *value)
{
    uint64_t entries = (value->count + STRATA__STRING_STRIDE - 1) / STRATA__STRING_STRIDE;
    uint64_t start = cursor->at;
    uint64_t *index;
    if (value->count > STRATA__MAX_ENTRIES)
        return strata__fail(STRATA_ERR_FORMAT, "%s: key %s has %" PRIu64 " strings, more than %d",
                            cursor->file, value->key, value->count, STRATA__MAX_ENTRIES);
    /* Each string takes 8 bytes of the file, so the index takes no more than a 32nd of it. */
    if (value->count > (cursor->bytes - cursor->at) / sizeof(uint64_t))
        return strata__fail(STRATA_ERR_FORMAT,
                            "%s: key %s claims %" PRIu64 " strings, %" PRIu64
                            " bytes are left in the file",
                            cursor->file, value->key, value->count, cursor->bytes - cursor->at);
    index = strata__pool_alloc(pool, entries * sizeof *index);
    if (!index)
        return strata__fail_memory(entries * sizeof *index, value->key);
    for (uint64_t i = 0; i < value->count; i++) {
        const uint8_t *bytes;
        uint64_t count;
        strata_status status;
        if (i % STRATA__STRING_STRIDE == 0)
            index[i / STRATA__STRING_STRIDE] = cursor->at - start;
        status = strata__cursor_string(cursor, value->key, &bytes, &count);
        if (status != STRATA_OK)
            return status;
    }
    value->string_index = index;
    return STRATA_OK;
}

static strata_status read_array(strata__pool *pool, strata__cursor *cursor, strata__value *value)
{
    const uint8_t *bytes;
    uint32_t element_bytes;
    strata_status status = strata__cursor_u32(cursor, value->key, &value->element_type);
    if (status == STRATA_OK)
        status = strata__cursor_u64(cursor, value->key, &value->count);
    if (status != STRATA_OK)
        return status;
    if (value->element_type == STRATA__VALUE_ARRAY)
        return strata__fail(STRATA_ERR_FORMAT, "%s: key %s is an array of arrays", cursor->file,
                            value->key);
    if (value->count > STRATA__MAX_ELEMENTS)
        return strata__fail(STRATA_ERR_FORMAT, "%s: key %s has %" PRIu64 " elements, more than %d",
                            cursor->file, value->key, value->count, STRATA__MAX_ELEMENTS);
    value->data = cursor->data + cursor->at;
    if (value->element_type == STRATA__VALUE_STRING)
        return read_strings(pool, cursor, value);
    element_bytes = strata__value_bytes(value->element_type);
    if (element_bytes == 0)
        return strata__fail(STRATA_ERR_FORMAT,
                            "%s: key %s is an array of type %" PRIu32 ", which does not exist",
                            cursor->file, value->key, value->element_type);
    return strata__cursor_bytes(cursor, value->count * element_bytes, value->key, &bytes);
}

static strata_status read_value(strata__pool *pool, strata__cursor *cursor, strata__value *value)
{
    strata_status status = strata__cursor_u32(cursor, value->key, &value->type);
    uint32_t bytes;
    if (status != STRATA_OK)
        return status;
    value->element_type = value->type;
    value->count = 1;
    if (value->type == STRATA__VALUE_ARRAY)
        return read_array(pool, cursor, value);
    if (value->type == STRATA__VALUE_STRING)
        return strata__cursor_string(cursor, value->key, &value->data, &value->count);
    bytes = strata__value_bytes(value->type);
    if (bytes == 0)
        return strata__fail(STRATA_ERR_FORMAT,
                            "%s: key %s has type %" PRIu32 ", which does not exist", cursor->file,
                            value->key, value->type);
    return strata__cursor_bytes(cursor, bytes, value->key, &value->data);
}

strata_status strata__metadata_read(strata__pool *pool, strata__cursor *cursor, strata__value *out)
{
    strata__value value = {NULL, 0, 0, 0, NULL, NULL};
    strata_status status = read_key(pool, cursor, &value.key);
    if (status == STRATA_OK)
        status = read_value(pool, cursor, &value);
    if (status == STRATA_OK)
        *out = value;
    return status;
}
