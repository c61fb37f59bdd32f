/* SPDX-License-Identifier: MIT */
/*
 * Writes GGUF images entry by entry, right or wrong: tests of readers take a sound file and break
 * one thing of it. Lack of memory ends the test.
 */
#ifndef TEST_SUPPORT_GGUF_BUILDER_H
#define TEST_SUPPORT_GGUF_BUILDER_H

#include <stdint.h>

typedef struct gguf_bytes {
    uint8_t *data;
    uint64_t count;
    uint64_t capacity;
} gguf_bytes;

typedef struct gguf_entry {
    gguf_bytes name;  /* as the file writes it, without its length */
    gguf_bytes value; /* type and payload */
} gguf_entry;

typedef struct gguf_tensor {
    gguf_bytes name;
    uint32_t dimensions;
    uint64_t shape[5];
    uint32_t format;
    uint64_t bytes;  /* of the data */
    uint64_t offset; /* in the file's data */
    float fill;      /* value of F32 data */
} gguf_tensor;

typedef struct gguf_builder {
    uint32_t version;
    uint64_t alignment;
    uint64_t entry_surplus; /* added to the counts that the file claims */
    uint64_t tensor_surplus;
    uint64_t entry_count;
    uint64_t tensor_count;
    gguf_entry *entries;
    gguf_tensor *tensors;
} gguf_builder;

gguf_builder *gguf_new(void);
void gguf_free(gguf_builder *builder);

/* Each replaces an entry of that key, or adds it at the end. */
void gguf_u32(gguf_builder *builder, const char *key, uint32_t value);
void gguf_f32(gguf_builder *builder, const char *key, float value);
void gguf_bool(gguf_builder *builder, const char *key, uint8_t value);
void gguf_string(gguf_builder *builder, const char *key, const char *value);
void gguf_strings(gguf_builder *builder, const char *key, const char *const *values,
                  uint64_t count);
void gguf_array(gguf_builder *builder, const char *key, uint32_t element_type, const void *data,
                uint64_t count, uint64_t element_bytes);

/* A type and any payload. */
void gguf_raw(gguf_builder *builder, const char *key, uint32_t type, const void *payload,
              uint64_t bytes);

/* As gguf_raw() with a key of any bytes, added even when the key exists. */
void gguf_add_raw(gguf_builder *builder, const void *key, uint64_t key_bytes, uint32_t type,
                  const void *payload, uint64_t bytes);
void gguf_remove(gguf_builder *builder, const char *key);

/*
 * Adds or replaces a tensor behind the present ones. Dimensions that are 0 end the shape. The data
 * is sized for known formats, and one alignment for others.
 */
gguf_tensor *gguf_add(gguf_builder *builder, const char *name, uint32_t format, uint64_t d0,
                      uint64_t d1, uint64_t d2);
gguf_tensor *gguf_find(gguf_builder *builder, const char *name);
void gguf_remove_tensor(gguf_builder *builder, const char *name);

/*
 * What lies before the data, padded to it, to be freed with free(); *out_data: bytes of the data.
 */
uint8_t *gguf_header(const gguf_builder *builder, uint64_t *out_bytes, uint64_t *out_data);

/* The whole file, 64-byte aligned, to be freed with free(); *out_header: bytes before the data. */
uint8_t *gguf_image(const gguf_builder *builder, uint64_t *out_bytes, uint64_t *out_header);

/*
 * A small sound model of an architecture this library runs, in float32: width 64, 2 layers (the
 * first dense where the architecture starts so), 2 heads of 32, 1 KV head, 4 experts of width 32, 2
 * per token, 16 tokens.
 */
gguf_builder *gguf_model(const char *architecture);

#endif
