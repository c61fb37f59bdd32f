/* SPDX-License-Identifier: MIT */
#include "inspect.h"
#include "json.h"

enum { LONGEST_ARRAY = 1024 };

static void write_head(const inspection *all, json_writer *json)
{
    const strata_pack_info *info = &all->info;
    json_string(json, "path", all->path);
    json_string(json, "architecture", info->architecture);
    json_string(json, "name", info->name);
    json_bool(json, "runnable", info->runnable);
    json_string(json, "runnable_reason", info->runnable_reason);
    json_u64(json, "file_bytes", info->file_bytes);
    json_u64(json, "expert_bytes", info->expert_bytes);
    json_u64(json, "dense_bytes", info->dense_bytes);
    json_u64(json, "tensor_count", info->tensor_count);
    json_u64(json, "metadata_count", info->metadata_count);
    json_u64(json, "token_count", info->token_count);
    json_u64(json, "layer_count", info->layer_count);
    json_u64(json, "width", info->width);
    json_u64(json, "vocabulary_count", info->vocabulary_count);
    json_u64(json, "context_tokens", info->context_tokens);
    json_u64(json, "expert_count", info->expert_count);
    json_u64(json, "experts_per_token", info->experts_per_token);
}

static void write_layer(const inspection *all, const strata_layer_info *layer, json_writer *json)
{
    json_object(json, NULL);
    json_u64(json, "heads", layer->heads);
    json_u64(json, "kv_heads", layer->kv_heads);
    json_u64(json, "head_size", layer->head_size);
    json_u64(json, "window_tokens", layer->window_tokens);
    json_u64(json, "ffn_width", layer->ffn_width);
    json_u64(json, "shared_width", layer->shared_width);
    json_u64(json, "dense_bytes", layer->dense_bytes);
    json_u64(json, "expert_count", layer->expert_count);
    if (layer->expert_count) {
        json_u64(json, "expert_width", layer->expert_width);
        json_string(json, "gate_format", inspection_format(all, layer->gate_format));
        json_string(json, "up_format", inspection_format(all, layer->up_format));
        json_string(json, "down_format", inspection_format(all, layer->down_format));
        json_u64(json, "gate_blob_bytes", layer->gate_blob_bytes);
        json_u64(json, "up_blob_bytes", layer->up_blob_bytes);
        json_u64(json, "down_blob_bytes", layer->down_blob_bytes);
    }
    json_end(json);
}

static strata_status write_tensors(const inspection *all, json_writer *json)
{
    json_array(json, "tensors");
    for (uint64_t i = 0; i < all->info.tensor_count; i++) {
        strata_tensor_info tensor = {.struct_size = sizeof tensor};
        strata_status status = strata_pack_tensor_get(all->pack, i, &tensor);
        if (status != STRATA_OK)
            return status;
        json_object(json, NULL);
        json_string(json, "name", tensor.name);
        json_string(json, "format", tensor.format_name);
        json_array(json, "shape");
        for (uint32_t d = 0; d < tensor.dimension_count; d++)
            json_u64(json, NULL, tensor.shape[d]);
        json_end(json);
        json_u64(json, "bytes", tensor.bytes);
        json_end(json);
    }
    json_end(json);
    return STRATA_OK;
}

static strata_status write_value(const inspection *all, const strata_metadata_info *entry,
                                 uint64_t element, const char *key, json_writer *json)
{
    metadata_text text;
    strata_status status = inspection_metadata_text(all, entry, element, &text);
    if (status != STRATA_OK)
        return status;
    if (text.is_string)
        json_bytes(json, key, text.bytes, text.count);
    else
        json_number(json, key, text.bytes);
    return STRATA_OK;
}

/* Arrays of arrays and long ones (vocabularies) are shown by their length alone. */
static strata_status write_entry(const inspection *all, const strata_metadata_info *entry,
                                 json_writer *json)
{
    strata_status status = STRATA_OK;
    if (entry->type != STRATA_VALUE_ARRAY)
        return write_value(all, entry, 0, entry->key, json);
    if (entry->element_type == STRATA_VALUE_ARRAY || entry->count > LONGEST_ARRAY) {
        json_object(json, entry->key);
        json_u64(json, "count", entry->count);
        json_end(json);
        return STRATA_OK;
    }
    json_array(json, entry->key);
    for (uint64_t i = 0; i < entry->count && status == STRATA_OK; i++)
        status = write_value(all, entry, i, NULL, json);
    json_end(json);
    return status;
}

static strata_status write_metadata(const inspection *all, json_writer *json)
{
    json_object(json, "metadata");
    for (uint64_t i = 0; i < all->info.metadata_count; i++) {
        strata_metadata_info entry = {.struct_size = sizeof entry};
        strata_status status = strata_pack_metadata_get(all->pack, i, &entry);
        if (status == STRATA_OK)
            status = write_entry(all, &entry, json);
        if (status != STRATA_OK)
            return status;
    }
    json_end(json);
    return STRATA_OK;
}

strata_status inspection_write_json(const inspection *all, FILE *out)
{
    strata_status status = STRATA_OK;
    json_writer json;
    json_start(&json, out);
    json_object(&json, NULL);
    write_head(all, &json);
    json_array(&json, "layers");
    for (uint32_t i = 0; i < all->info.layer_count; i++)
        write_layer(all, &all->layers[i], &json);
    json_end(&json);
    if (all->with_metadata)
        status = write_metadata(all, &json);
    if (all->with_tensors && status == STRATA_OK)
        status = write_tensors(all, &json);
    if (status == STRATA_OK)
        json_end(&json);
    return status;
}
