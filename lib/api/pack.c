/* SPDX-License-Identifier: MIT */
#include <strata/pack.h>

#include <stddef.h>
#include <string.h>

#include "base/error.h"
#include "base/struct_size.h"
#include "pack/pack.h"

/* Sizes of the structures in the release that brought them. */
enum {
    FIRST_PACK_BYTES = 528,
    FIRST_LAYER_BYTES = 80,
    FIRST_TENSOR_BYTES = 80,
    FIRST_METADATA_BYTES = 32,
    FIRST_TOKEN_BYTES = 32
};

static const uint32_t no_format = 0xffffffff;

static strata_status fail_null(const char *function, const char *argument)
{
    return strata__fail(STRATA_ERR_INVALID_ARGUMENT, "%s: %s is NULL", function, argument);
}

strata_status strata_pack_open_path(strata_context *context, const char *path, strata_pack **out)
{
    if (!out)
        return fail_null("strata_pack_open_path", "out");
    *out = NULL;
    if (!context)
        return fail_null("strata_pack_open_path", "context");
    if (!path)
        return fail_null("strata_pack_open_path", "path");
    return strata__pack_open_path(context, path, out);
}

strata_status strata_pack_open_memory(strata_context *context, const void *data,
                                      uint64_t data_bytes, strata_pack **out)
{
    if (!out)
        return fail_null("strata_pack_open_memory", "out");
    *out = NULL;
    if (!context)
        return fail_null("strata_pack_open_memory", "context");
    if (!data)
        return fail_null("strata_pack_open_memory", "data");
    return strata__pack_open_memory(context, data, data_bytes, out);
}

void strata_pack_close(strata_pack *pack)
{
    strata__pack_release(pack);
}

/* Cuts a text to a fixed field, never within a UTF-8 character. */
static void copy_text(char *field, uint64_t field_bytes, const char *text)
{
    uint64_t count = strlen(text);
    if (count >= field_bytes) {
        count = field_bytes - 1;
        while (count && ((unsigned char)text[count] & 0xc0) == 0x80)
            count--;
    }
    memcpy(field, text, count);
    field[count] = '\0';
}

static void fill_model(strata_pack_info *info, const strata__geometry *geometry)
{
    info->runnable = 1;
    info->layer_count = geometry->layers;
    info->width = geometry->width;
    info->vocabulary_count = geometry->vocabulary;
    info->context_tokens = geometry->context_tokens;
    info->expert_count = geometry->experts;
    info->experts_per_token = geometry->top_k;
    info->expert_bytes = geometry->expert_bytes;
    info->dense_bytes = geometry->dense_bytes;
}

strata_status strata_pack_info_get(const strata_pack *pack, strata_pack_info *inout)
{
    strata_pack_info info = {0};
    const strata__geometry *geometry;
    const strata__layer *layers;
    if (!pack)
        return fail_null("strata_pack_info_get", "pack");
    info.file_bytes = strata__pack_file_bytes(pack);
    info.tensor_count = strata__pack_tensor_count(pack);
    info.metadata_count = strata__pack_value_count(pack);
    info.token_count = strata__pack_token_count(pack);
    copy_text(info.architecture, sizeof info.architecture, strata__pack_architecture(pack));
    copy_text(info.name, sizeof info.name, strata__pack_name(pack));
    if (strata__pack_model(pack, &geometry, &layers) == STRATA_OK)
        fill_model(&info, geometry);
    else
        copy_text(info.runnable_reason, sizeof info.runnable_reason, strata__error_text());
    return strata__struct_out(inout, &info, sizeof info, FIRST_PACK_BYTES, "strata_pack_info");
}

static void fill_experts(strata_layer_info *info, const strata__layer *layer, uint32_t experts)
{
    info->expert_count = experts;
    info->expert_width = layer->expert_width;
    info->gate_format = layer->expert_gate.format;
    info->up_format = layer->expert_up.format;
    info->down_format = layer->expert_down.format;
    info->gate_blob_bytes = layer->expert_gate.bytes / experts;
    info->up_blob_bytes = layer->expert_up.bytes / experts;
    info->down_blob_bytes = layer->expert_down.bytes / experts;
}

strata_status strata_pack_layer_get(const strata_pack *pack, uint32_t layer,
                                    strata_layer_info *inout)
{
    strata_layer_info info = {0};
    const strata__geometry *geometry;
    const strata__layer *layers;
    if (!pack)
        return fail_null("strata_pack_layer_get", "pack");
    if (strata__pack_model(pack, &geometry, &layers) != STRATA_OK)
        return strata__fail(STRATA_ERR_UNSUPPORTED, "the pack cannot be run: %s",
                            strata__error_text());
    if (layer >= geometry->layers)
        return strata__fail(STRATA_ERR_INVALID_ARGUMENT,
                            "the pack has %u layers, there is no layer %u",
                            (unsigned)geometry->layers, (unsigned)layer);
    layers += layer;
    info.heads = layers->heads;
    info.kv_heads = layers->kv_heads;
    info.head_size = layers->head_size;
    info.window_tokens = layers->window;
    info.ffn_width = layers->ffn_width;
    info.shared_width = layers->shared_width;
    info.dense_bytes = layers->dense_bytes;
    info.gate_format = info.up_format = info.down_format = no_format;
    if (layers->ffn == STRATA__FFN_EXPERTS)
        fill_experts(&info, layers, geometry->experts);
    return strata__struct_out(inout, &info, sizeof info, FIRST_LAYER_BYTES, "strata_layer_info");
}

static strata_status give_tensor(const strata__tensor *tensor, strata_tensor_info *inout)
{
    const char *format = strata__format_name(tensor->format);
    strata_tensor_info info = {0};
    info.format = tensor->format;
    info.dimension_count = tensor->dimensions;
    info.shard = tensor->shard;
    memcpy(info.shape, tensor->shape, sizeof info.shape);
    info.bytes = tensor->bytes;
    info.data = tensor->data;
    info.name = tensor->name;
    info.format_name = format ? format : "?";
    return strata__struct_out(inout, &info, sizeof info, FIRST_TENSOR_BYTES, "strata_tensor_info");
}

strata_status strata_pack_tensor_get(const strata_pack *pack, uint64_t index,
                                     strata_tensor_info *inout)
{
    const strata__tensor *tensor;
    if (!pack)
        return fail_null("strata_pack_tensor_get", "pack");
    tensor = strata__pack_tensor(pack, index);
    if (!tensor)
        return strata__fail(
            STRATA_ERR_INVALID_ARGUMENT, "the pack has %llu tensors, there is no tensor %llu",
            (unsigned long long)strata__pack_tensor_count(pack), (unsigned long long)index);
    return give_tensor(tensor, inout);
}

strata_status strata_pack_tensor_find(const strata_pack *pack, const char *name,
                                      strata_tensor_info *inout)
{
    const strata__tensor *tensor;
    if (!pack)
        return fail_null("strata_pack_tensor_find", "pack");
    if (!name)
        return fail_null("strata_pack_tensor_find", "name");
    tensor = strata__pack_tensor_find(pack, name);
    if (!tensor)
        return strata__fail(STRATA_ERR_INVALID_ARGUMENT, "the pack has no tensor %s", name);
    return give_tensor(tensor, inout);
}

static strata_status give_metadata(const strata__value *value, strata_metadata_info *inout)
{
    strata_metadata_info info = {0};
    info.type = value->type;
    info.element_type = value->element_type;
    info.count = value->type == STRATA_VALUE_ARRAY ? value->count : 1;
    info.key = value->key;
    return strata__struct_out(inout, &info, sizeof info, FIRST_METADATA_BYTES,
                              "strata_metadata_info");
}

strata_status strata_pack_metadata_get(const strata_pack *pack, uint64_t index,
                                       strata_metadata_info *inout)
{
    strata__value value;
    strata_status status;
    if (!pack)
        return fail_null("strata_pack_metadata_get", "pack");
    status = strata__pack_value(pack, index, &value);
    return status == STRATA_OK ? give_metadata(&value, inout) : status;
}

static strata_status find_value(const char *function, const strata_pack *pack, const char *key,
                                strata__value *out)
{
    if (!pack)
        return fail_null(function, "pack");
    if (!key)
        return fail_null(function, "key");
    if (!strata__pack_value_find(pack, key, out))
        return strata__fail(STRATA_ERR_INVALID_ARGUMENT, "the pack has no key %s", key);
    return STRATA_OK;
}

strata_status strata_pack_metadata_find(const strata_pack *pack, const char *key,
                                        strata_metadata_info *inout)
{
    strata__value value;
    strata_status status = find_value("strata_pack_metadata_find", pack, key, &value);
    return status == STRATA_OK ? give_metadata(&value, inout) : status;
}

strata_status strata_pack_metadata_int64(const strata_pack *pack, const char *key, uint64_t element,
                                         int64_t *out_value)
{
    strata__value value;
    strata_status status;
    if (!out_value)
        return fail_null("strata_pack_metadata_int64", "out_value");
    status = find_value("strata_pack_metadata_int64", pack, key, &value);
    return status == STRATA_OK ? strata__value_int64(&value, element, out_value) : status;
}

strata_status strata_pack_metadata_float64(const strata_pack *pack, const char *key,
                                           uint64_t element, double *out_value)
{
    strata__value value;
    strata_status status;
    if (!out_value)
        return fail_null("strata_pack_metadata_float64", "out_value");
    status = find_value("strata_pack_metadata_float64", pack, key, &value);
    return status == STRATA_OK ? strata__value_float64(&value, element, out_value) : status;
}

strata_status strata_pack_metadata_string(const strata_pack *pack, const char *key,
                                          uint64_t element, const char **out_bytes,
                                          uint64_t *out_byte_count)
{
    const uint8_t *bytes;
    strata__value value;
    strata_status status;
    if (!out_bytes)
        return fail_null("strata_pack_metadata_string", "out_bytes");
    if (!out_byte_count)
        return fail_null("strata_pack_metadata_string", "out_byte_count");
    status = find_value("strata_pack_metadata_string", pack, key, &value);
    if (status == STRATA_OK)
        status = strata__value_string(&value, element, &bytes, out_byte_count);
    if (status == STRATA_OK)
        *out_bytes = (const char *)bytes;
    return status;
}

strata_status strata_pack_token_get(const strata_pack *pack, uint64_t token,
                                    strata_token_info *inout)
{
    strata_token_info info = {0};
    const uint8_t *bytes;
    strata_status status;
    if (!pack)
        return fail_null("strata_pack_token_get", "pack");
    status = strata__pack_token(pack, token, &bytes, &info.byte_count, &info.type, &info.score);
    if (status != STRATA_OK)
        return status;
    info.bytes = (const char *)bytes;
    return strata__struct_out(inout, &info, sizeof info, FIRST_TOKEN_BYTES, "strata_token_info");
}

strata_status strata_pack_token_text(const strata_pack *pack, uint64_t token, char *buffer,
                                     uint64_t buffer_bytes, uint64_t *out_bytes)
{
    if (!pack)
        return fail_null("strata_pack_token_text", "pack");
    if (!out_bytes)
        return fail_null("strata_pack_token_text", "out_bytes");
    if (!buffer && buffer_bytes)
        return fail_null("strata_pack_token_text", "buffer");
    return strata__pack_token_text(pack, token, buffer, buffer_bytes, out_bytes);
}
