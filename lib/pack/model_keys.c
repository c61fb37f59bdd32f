/* SPDX-License-Identifier: MIT */
/* Keys of the model by type. A text names the key, what it must be and what it is. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "pack/architecture.h"

enum { KEY_BYTES = 256 };

static bool find(const strata__model *model, const char *suffix, char key[KEY_BYTES],
                 strata__value *out)
{
    snprintf(key, KEY_BYTES, "%s.%s", model->architecture->name, suffix);
    return strata__pack_value_find(model->pack, key, out);
}

static strata_status fail_missing(const char *key)
{
    return strata__fail(STRATA_ERR_FORMAT, "key %s is missing", key);
}

static strata_status fail_type(const strata__value *value, const char *wanted)
{
    return strata__fail(STRATA_ERR_FORMAT, "key %s: expected %s, found %s%s", value->key, wanted,
                        value->type == STRATA__VALUE_ARRAY ? "an array of " : "",
                        strata__value_type_name(value->element_type));
}

static strata_status find_element(const strata__model *model, const strata__value *value,
                                  int32_t layer, uint64_t *out)
{
    *out = 0;
    if (value->type != STRATA__VALUE_ARRAY)
        return STRATA_OK;
    if (layer == STRATA__NO_LAYER)
        return fail_type(value, "an integer");
    if (value->count != model->blocks && value->count != model->geometry->layers)
        return strata__fail(STRATA_ERR_FORMAT,
                            "key %s has %" PRIu64 " elements, the model has %" PRIu32 " blocks",
                            value->key, value->count, model->blocks);
    *out = (uint64_t)layer;
    return STRATA_OK;
}

strata_status strata__model_uint(const strata__model *model, const strata__key *key, int32_t layer,
                                 uint32_t *out)
{
    char name[KEY_BYTES];
    strata__value value;
    uint64_t element;
    int64_t number;
    strata_status status;
    if (!find(model, key->suffix, name, &value))
        return key->required ? fail_missing(name) : STRATA_OK;
    status = find_element(model, &value, layer, &element);
    if (status != STRATA_OK)
        return status;
    if (strata__value_int64(&value, element, &number) != STRATA_OK)
        return fail_type(&value, "an integer");
    if (number < key->lowest || number > key->highest)
        return strata__fail(STRATA_ERR_FORMAT,
                            "key %s: expected %" PRId64 " to %" PRId64 ", found %" PRId64, name,
                            key->lowest, key->highest, number);
    *out = (uint32_t)number;
    return STRATA_OK;
}

strata_status strata__model_float(const strata__model *model, const char *suffix, bool required,
                                  double lowest, float *out)
{
    char key[KEY_BYTES];
    strata__value value;
    double number;
    if (!find(model, suffix, key, &value))
        return required ? fail_missing(key) : STRATA_OK;
    if (value.type == STRATA__VALUE_ARRAY || strata__value_float64(&value, 0, &number) != STRATA_OK)
        return fail_type(&value, "a float");
    /* As it is kept, for the bound may be lost to rounding; written so that a NaN fails. */
    if (!((float)number > lowest) || !isfinite((float)number))
        return strata__fail(STRATA_ERR_FORMAT,
                            "key %s: expected a finite number above %g, found %g", key, lowest,
                            number);
    *out = (float)number;
    return STRATA_OK;
}

strata_status strata__model_bool(const strata__model *model, const char *suffix, bool *out)
{
    char key[KEY_BYTES];
    strata__value value;
    int64_t number;
    if (!find(model, suffix, key, &value))
        return STRATA_OK;
    if (value.type == STRATA__VALUE_ARRAY || strata__value_int64(&value, 0, &number) != STRATA_OK)
        return fail_type(&value, "a bool");
    *out = number != 0;
    return STRATA_OK;
}

strata_status strata__model_string(const strata__model *model, const char *suffix, char *out,
                                   uint64_t out_bytes)
{
    char key[KEY_BYTES];
    strata__value value;
    out[0] = '\0';
    if (!find(model, suffix, key, &value))
        return STRATA_OK;
    if (value.type != STRATA__VALUE_STRING)
        return fail_type(&value, "a string");
    if (value.count >= out_bytes || memchr(value.data, 0, value.count))
        return strata__fail(STRATA_ERR_FORMAT, "key %s: expected a text below %" PRIu64 " bytes",
                            key, out_bytes);
    memcpy(out, value.data, value.count);
    out[value.count] = '\0';
    return STRATA_OK;
}
