/* SPDX-License-Identifier: MIT */
#include "support/gguf_builder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STRING = 8, ARRAY = 9 };

/* Values and bytes of a block, as much as tests use; {0, 0} elsewhere. */
static const uint32_t blocks[64][2] = {
    [0] = {1, 4},     [1] = {1, 2},  [2] = {32, 18},  [8] = {32, 34},  [12] = {256, 144},
    [22] = {256, 82}, [30] = {1, 2}, [39] = {32, 17}, [42] = {64, 18},
};

static void *must(void *pointer)
{
    if (!pointer) {
        fprintf(stderr, "out of memory\n");
        exit(99);
    }
    return pointer;
}

static void append(gguf_bytes *bytes, const void *data, uint64_t count)
{
    if (bytes->capacity - bytes->count < count) {
        bytes->capacity = 2 * bytes->capacity + count + 64;
        bytes->data = must(realloc(bytes->data, bytes->capacity));
    }
    if (count)
        memcpy(bytes->data + bytes->count, data, count);
    bytes->count += count;
}

static void append_u32(gguf_bytes *bytes, uint32_t value)
{
    append(bytes, &value, sizeof value);
}

static void append_u64(gguf_bytes *bytes, uint64_t value)
{
    append(bytes, &value, sizeof value);
}

static void append_string(gguf_bytes *bytes, const void *text, uint64_t count)
{
    append_u64(bytes, count);
    append(bytes, text, count);
}

static int is_named(const gguf_bytes *name, const char *wanted)
{
    return name->count == strlen(wanted) && memcmp(name->data, wanted, name->count) == 0;
}

gguf_builder *gguf_new(void)
{
    gguf_builder *builder = must(calloc(1, sizeof *builder));
    builder->version = 3;
    builder->alignment = 32;
    return builder;
}

void gguf_free(gguf_builder *builder)
{
    for (uint64_t i = 0; i < builder->entry_count; i++) {
        free(builder->entries[i].name.data);
        free(builder->entries[i].value.data);
    }
    for (uint64_t i = 0; i < builder->tensor_count; i++)
        free(builder->tensors[i].name.data);
    free(builder->entries);
    free(builder->tensors);
    free(builder);
}

void gguf_add_raw(gguf_builder *builder, const void *key, uint64_t key_bytes, uint32_t type,
                  const void *payload, uint64_t bytes)
{
    gguf_entry entry;
    memset(&entry, 0, sizeof entry);
    append(&entry.name, key, key_bytes);
    append_u32(&entry.value, type);
    append(&entry.value, payload, bytes);
    builder->entries =
        must(realloc(builder->entries, (builder->entry_count + 1) * sizeof *builder->entries));
    builder->entries[builder->entry_count++] = entry;
}

void gguf_raw(gguf_builder *builder, const char *key, uint32_t type, const void *payload,
              uint64_t bytes)
{
    for (uint64_t i = 0; i < builder->entry_count; i++)
        if (is_named(&builder->entries[i].name, key)) {
            builder->entries[i].value.count = 0;
            append_u32(&builder->entries[i].value, type);
            append(&builder->entries[i].value, payload, bytes);
            return;
        }
    gguf_add_raw(builder, key, strlen(key), type, payload, bytes);
}

void gguf_remove(gguf_builder *builder, const char *key)
{
    for (uint64_t i = 0; i < builder->entry_count; i++)
        if (is_named(&builder->entries[i].name, key)) {
            free(builder->entries[i].name.data);
            free(builder->entries[i].value.data);
            memmove(builder->entries + i, builder->entries + i + 1,
                    (--builder->entry_count - i) * sizeof *builder->entries);
            return;
        }
}

void gguf_u32(gguf_builder *builder, const char *key, uint32_t value)
{
    gguf_raw(builder, key, 4, &value, sizeof value);
}

void gguf_f32(gguf_builder *builder, const char *key, float value)
{
    gguf_raw(builder, key, 6, &value, sizeof value);
}

void gguf_bool(gguf_builder *builder, const char *key, uint8_t value)
{
    gguf_raw(builder, key, 7, &value, sizeof value);
}

void gguf_string(gguf_builder *builder, const char *key, const char *value)
{
    gguf_bytes payload = {0};
    append_string(&payload, value, strlen(value));
    gguf_raw(builder, key, STRING, payload.data, payload.count);
    free(payload.data);
}

void gguf_strings(gguf_builder *builder, const char *key, const char *const *values, uint64_t count)
{
    gguf_bytes payload = {0};
    append_u32(&payload, STRING);
    append_u64(&payload, count);
    for (uint64_t i = 0; i < count; i++)
        append_string(&payload, values[i], strlen(values[i]));
    gguf_raw(builder, key, ARRAY, payload.data, payload.count);
    free(payload.data);
}

void gguf_array(gguf_builder *builder, const char *key, uint32_t element_type, const void *data,
                uint64_t count, uint64_t element_bytes)
{
    gguf_bytes payload = {0};
    append_u32(&payload, element_type);
    append_u64(&payload, count);
    append(&payload, data, count * element_bytes);
    gguf_raw(builder, key, ARRAY, payload.data, payload.count);
    free(payload.data);
}

gguf_tensor *gguf_find(gguf_builder *builder, const char *name)
{
    for (uint64_t i = 0; i < builder->tensor_count; i++)
        if (is_named(&builder->tensors[i].name, name))
            return &builder->tensors[i];
    return NULL;
}

static uint64_t data_end(const gguf_builder *builder)
{
    uint64_t end = 0;
    for (uint64_t i = 0; i < builder->tensor_count; i++) {
        uint64_t bytes = builder->tensors[i].offset + builder->tensors[i].bytes;
        end = bytes > end ? bytes : end;
    }
    return (end + builder->alignment - 1) / builder->alignment * builder->alignment;
}

gguf_tensor *gguf_add(gguf_builder *builder, const char *name, uint32_t format, uint64_t d0,
                      uint64_t d1, uint64_t d2)
{
    gguf_tensor *tensor = gguf_find(builder, name);
    const uint32_t *block = format < 64 ? blocks[format] : blocks[63];
    uint64_t offset = data_end(builder);
    if (!tensor) {
        builder->tensors =
            must(realloc(builder->tensors, (builder->tensor_count + 1) * sizeof *tensor));
        tensor = &builder->tensors[builder->tensor_count++];
        memset(tensor, 0, sizeof *tensor);
        append(&tensor->name, name, strlen(name));
    }
    tensor->dimensions = d2 ? 3 : d1 ? 2 : 1;
    tensor->shape[0] = d0;
    tensor->shape[1] = d1;
    tensor->shape[2] = d2;
    tensor->format = format;
    tensor->offset = offset;
    tensor->fill = 1;
    tensor->bytes = builder->alignment;
    if (block[0])
        tensor->bytes = d0 / block[0] * block[1] * (d1 ? d1 : 1) * (d2 ? d2 : 1);
    return tensor;
}

void gguf_remove_tensor(gguf_builder *builder, const char *name)
{
    gguf_tensor *tensor = gguf_find(builder, name);
    uint64_t index = (uint64_t)(tensor - builder->tensors);
    free(tensor->name.data);
    memmove(tensor, tensor + 1, (--builder->tensor_count - index) * sizeof *tensor);
}

static void append_header(const gguf_builder *builder, gguf_bytes *image)
{
    append(image, "GGUF", 4);
    append_u32(image, builder->version);
    append_u64(image, builder->tensor_count + builder->tensor_surplus);
    append_u64(image, builder->entry_count + builder->entry_surplus);
    for (uint64_t i = 0; i < builder->entry_count; i++) {
        append_string(image, builder->entries[i].name.data, builder->entries[i].name.count);
        append(image, builder->entries[i].value.data, builder->entries[i].value.count);
    }
    for (uint64_t i = 0; i < builder->tensor_count; i++) {
        const gguf_tensor *tensor = &builder->tensors[i];
        append_string(image, tensor->name.data, tensor->name.count);
        append_u32(image, tensor->dimensions);
        append(image, tensor->shape, (tensor->dimensions < 5 ? tensor->dimensions : 5) * 8);
        append_u32(image, tensor->format);
        append_u64(image, tensor->offset);
    }
}

uint8_t *gguf_header(const gguf_builder *builder, uint64_t *out_bytes, uint64_t *out_data)
{
    gguf_bytes head = {0};
    append_header(builder, &head);
    while (head.count % builder->alignment)
        append(&head, "", 1);
    *out_bytes = head.count;
    *out_data = data_end(builder);
    return head.data;
}

uint8_t *gguf_image(const gguf_builder *builder, uint64_t *out_bytes, uint64_t *out_header)
{
    gguf_bytes head = {0};
    uint64_t end = 0, start;
    uint8_t *image;
    append_header(builder, &head);
    start = (head.count + builder->alignment - 1) / builder->alignment * builder->alignment;
    for (uint64_t i = 0; i < builder->tensor_count; i++) {
        uint64_t bytes = builder->tensors[i].offset + builder->tensors[i].bytes;
        if (bytes > end && bytes < (UINT64_C(1) << 32))
            end = bytes;
    }
    end = (start + end + 63) / 64 * 64;
    image = must(aligned_alloc(64, end));
    memset(image, 0, end);
    memcpy(image, head.data, head.count);
    for (uint64_t i = 0; i < builder->tensor_count; i++) {
        const gguf_tensor *tensor = &builder->tensors[i];
        if (tensor->format == 0 && tensor->offset + tensor->bytes <= end - start)
            for (uint64_t j = 0; j < tensor->bytes / sizeof(float); j++)
                memcpy(image + start + tensor->offset + j * sizeof(float), &tensor->fill,
                       sizeof(float));
    }
    free(head.data);
    *out_bytes = end;
    if (out_header)
        *out_header = start;
    return image;
}
