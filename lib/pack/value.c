/* SPDX-License-Identifier: MIT */
/* Metadata values by type, whatever integer or float type the writer chose. */
#include <stddef.h>
#include <string.h>

#include "base/error.h"
#include "pack/internal.h"

static const struct {
    const char *name;
    uint32_t bytes;
} types[] = {
    [STRATA__VALUE_U8] = {"u8", 1},         [STRATA__VALUE_I8] = {"i8", 1},
    [STRATA__VALUE_U16] = {"u16", 2},       [STRATA__VALUE_I16] = {"i16", 2},
    [STRATA__VALUE_U32] = {"u32", 4},       [STRATA__VALUE_I32] = {"i32", 4},
    [STRATA__VALUE_F32] = {"f32", 4},       [STRATA__VALUE_BOOL] = {"bool", 1},
    [STRATA__VALUE_STRING] = {"string", 0}, [STRATA__VALUE_ARRAY] = {"array", 0},
    [STRATA__VALUE_U64] = {"u64", 8},       [STRATA__VALUE_I64] = {"i64", 8},
    [STRATA__VALUE_F64] = {"f64", 8},
};

uint32_t strata__value_bytes(uint32_t type)
{
    return type < sizeof types / sizeof types[0] ? types[type].bytes : 0;
}

const char *strata__value_type_name(uint32_t type)
{
    return type < sizeof types / sizeof types[0] ? types[type].name : "?";
}

static uint64_t element_count(const strata__value *value)
{
    return value->type == STRATA__VALUE_ARRAY ? value->count : 1;
}

static strata_status check_element(const strata__value *value, uint64_t element)
{
    if (element < element_count(value))
        return STRATA_OK;
    return strata__fail(STRATA_ERR_INVALID_ARGUMENT,
                        "key %s has %" PRIu64 " elements, there is no element %" PRIu64, value->key,
                        element_count(value), element);
}

static strata_status fail_type(const strata__value *value, const char *wanted)
{
    bool array = value->type == STRATA__VALUE_ARRAY;
    return strata__fail(STRATA_ERR_INVALID_ARGUMENT, "key %s: expected %s, found %s%s", value->key,
                        wanted, array ? "an array of " : "",
                        strata__value_type_name(value->element_type));
}

static const uint8_t *element_data(const strata__value *value, uint64_t element)
{
    return value->data + element * strata__value_bytes(value->element_type);
}

strata_status strata__value_int64(const strata__value *value, uint64_t element, int64_t *out)
{
    uint64_t bits = 0;
    uint32_t bytes = strata__value_bytes(value->element_type);
    bool is_signed = false;
    strata_status status = check_element(value, element);
    if (status != STRATA_OK)
        return status;
    switch (value->element_type) {
    case STRATA__VALUE_I8:
    case STRATA__VALUE_I16:
    case STRATA__VALUE_I32:
    case STRATA__VALUE_I64:
        is_signed = true;
        break;
    case STRATA__VALUE_U8:
    case STRATA__VALUE_U16:
    case STRATA__VALUE_U32:
    case STRATA__VALUE_U64:
    case STRATA__VALUE_BOOL:
        break;
    default:
        return fail_type(value, "an integer");
    }
    memcpy(&bits, element_data(value, element), bytes);
    if (value->element_type == STRATA__VALUE_BOOL)
        bits = bits != 0;
    if (!is_signed && bits > INT64_MAX)
        return strata__fail(STRATA_ERR_INVALID_ARGUMENT, "key %s: %" PRIu64 " is out of range",
                            value->key, bits);
    if (is_signed && bytes < 8 && bits >> (8 * bytes - 1))
        bits |= UINT64_MAX << (8 * bytes);
    memcpy(out, &bits, sizeof *out);
    return STRATA_OK;
}

strata_status strata__value_float64(const strata__value *value, uint64_t element, double *out)
{
    strata_status status = check_element(value, element);
    if (status != STRATA_OK)
        return status;
    if (value->element_type == STRATA__VALUE_F32) {
        float single;
        memcpy(&single, element_data(value, element), sizeof single);
        *out = single;
    } else if (value->element_type == STRATA__VALUE_F64) {
        memcpy(out, element_data(value, element), sizeof *out);
    } else {
        return fail_type(value, "a float");
    }
    return STRATA_OK;
}

static uint64_t load_u64(const uint8_t *data)
{
    uint64_t value;
    memcpy(&value, data, sizeof value);
    return value;
}

strata_status strata__value_string(const strata__value *value, uint64_t element,
                                   const uint8_t **out_bytes, uint64_t *out_count)
{
    const uint8_t *at;
    strata_status status = check_element(value, element);
    if (status != STRATA_OK)
        return status;
    if (value->element_type != STRATA__VALUE_STRING)
        return fail_type(value, "a string");
    if (value->type == STRATA__VALUE_STRING) {
        *out_bytes = value->data;
        *out_count = value->count;
        return STRATA_OK;
    }
    at = value->data + value->string_index[element / STRATA__STRING_STRIDE];
    for (uint64_t i = element % STRATA__STRING_STRIDE; i > 0; i--)
        at += sizeof(uint64_t) + load_u64(at);
    *out_bytes = at + sizeof(uint64_t);
    *out_count = load_u64(at);
    return STRATA_OK;
}

const strata__value *strata__values_search(const strata__list *values, const char *key)
{
    const strata__value *items = values->items;
    for (uint32_t i = 0; i < values->count; i++)
        if (strcmp(items[i].key, key) == 0)
            return &items[i];
    return NULL;
}
