/* SPDX-License-Identifier: MIT */
#include "inspect.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tool.h"

static strata_status read_layers(inspection *all)
{
    strata_status status = STRATA_OK;
    all->layers = calloc(all->info.layer_count + 1, sizeof *all->layers);
    if (!all->layers)
        return tool_own(STRATA_ERR_NO_MEMORY);
    for (uint32_t i = 0; i < all->info.layer_count && status == STRATA_OK; i++) {
        all->layers[i].struct_size = sizeof all->layers[i];
        status = strata_pack_layer_get(all->pack, i, &all->layers[i]);
    }
    return status;
}

static strata_status read_format_names(inspection *all)
{
    for (uint64_t i = 0; i < all->info.tensor_count; i++) {
        strata_tensor_info tensor = {.struct_size = sizeof tensor};
        strata_status status = strata_pack_tensor_get(all->pack, i, &tensor);
        if (status != STRATA_OK)
            return status;
        if (tensor.format < FORMAT_IDS)
            all->format_names[tensor.format] = tensor.format_name;
    }
    return STRATA_OK;
}

strata_status inspection_read(const strata_pack *pack, const char *path, inspection *out)
{
    strata_status status;
    memset(out, 0, sizeof *out);
    out->pack = pack;
    out->path = path;
    out->info.struct_size = sizeof out->info;
    status = strata_pack_info_get(pack, &out->info);
    if (status == STRATA_OK)
        status = read_layers(out);
    if (status == STRATA_OK)
        status = read_format_names(out);
    if (status != STRATA_OK)
        inspection_free(out);
    return status;
}

void inspection_free(inspection *all)
{
    free(all->layers);
    all->layers = NULL;
}

const char *inspection_format(const inspection *all, uint32_t format)
{
    if (format < FORMAT_IDS && all->format_names[format])
        return all->format_names[format];
    return "-";
}

static strata_status float_text(const inspection *all, const char *key, uint64_t element,
                                metadata_text *out)
{
    double value;
    strata_status status = strata_pack_metadata_float64(all->pack, key, element, &value);
    if (status == STRATA_OK)
        snprintf(out->number, sizeof out->number, isfinite(value) ? "%.9g" : "null", value);
    return status;
}

static strata_status integer_text(const inspection *all, const char *key, uint64_t element,
                                  bool is_bool, metadata_text *out)
{
    int64_t value;
    strata_status status = strata_pack_metadata_int64(all->pack, key, element, &value);
    if (status == STRATA_ERR_INVALID_ARGUMENT) {
        snprintf(out->number, sizeof out->number, "null");
        return STRATA_OK;
    }
    if (status != STRATA_OK)
        return status;
    if (is_bool)
        snprintf(out->number, sizeof out->number, "%s", value ? "true" : "false");
    else
        snprintf(out->number, sizeof out->number, "%" PRId64, value);
    return status;
}

strata_status inspection_metadata_text(const inspection *all, const strata_metadata_info *entry,
                                       uint64_t element, metadata_text *out)
{
    uint32_t type = entry->type == STRATA_VALUE_ARRAY ? entry->element_type : entry->type;
    strata_status status;
    memset(out, 0, sizeof *out);
    if (type == STRATA_VALUE_STRING) {
        out->is_string = true;
        return strata_pack_metadata_string(all->pack, entry->key, element, &out->bytes,
                                           &out->count);
    }
    if (type == STRATA_VALUE_FLOAT32 || type == STRATA_VALUE_FLOAT64)
        status = float_text(all, entry->key, element, out);
    else
        status = integer_text(all, entry->key, element, type == STRATA_VALUE_BOOL, out);
    out->bytes = out->number;
    out->count = strlen(out->number);
    return status;
}
