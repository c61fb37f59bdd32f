/* SPDX-License-Identifier: MIT */
/* Opening and closing; everything about an opened pack is fixed when opening returns. */
#include "pack/pack.h"

#include <stddef.h>
#include <string.h>

#include "base/error.h"
#include "pack/internal.h"
#include "pack/utf8.h"

static strata_status create(strata_context *context, const char *path, strata__pack **out)
{
    strata__pack *pack = strata__calloc(&context->allocator, 1, sizeof *pack);
    if (!pack)
        return strata__fail_memory(sizeof *pack, "the pack");
    pack->context = strata__context_retain(context);
    atomic_init(&pack->references, 1);
    pthread_mutex_init(&pack->shared.lock, NULL);
    pack->pool.allocator = &context->allocator;
    pack->shards.item_bytes = sizeof(strata__shard);
    pack->values.item_bytes = sizeof(strata__value);
    pack->tensors.item_bytes = sizeof(strata__tensor);
    pack->architecture = pack->name = "";
    *out = pack;
    pack->path = strata__pool_text(&pack->pool, path, strlen(path));
    return pack->path ? STRATA_OK : strata__fail_memory(strlen(path) + 1, "the pack's path");
}

static strata_status read_text(strata__pack *pack, const char *key, const char **out)
{
    strata__value value;
    char *text;
    if (!strata__pack_value_find(pack, key, &value))
        return STRATA_OK;
    if (value.type != STRATA__VALUE_STRING)
        return strata__fail(STRATA_ERR_FORMAT, "%s: key %s: expected a string, found %s",
                            strata__pack_shard(pack, 0)->name, key,
                            strata__value_type_name(value.type));
    if (memchr(value.data, 0, value.count))
        return strata__fail(STRATA_ERR_FORMAT, "%s: key %s is no text",
                            strata__pack_shard(pack, 0)->name, key);
    text = strata__pool_text(&pack->pool, value.data, value.count);
    if (!text)
        return strata__fail_memory(value.count + 1, key);
    *out = text;
    return STRATA_OK;
}

static strata_status read_names(strata__pack *pack)
{
    strata_status status = read_text(pack, "general.name", &pack->name);
    if (status == STRATA_OK)
        status = read_text(pack, "general.architecture", &pack->architecture);
    if (status == STRATA_OK && pack->architecture[0] &&
        !strata__utf8_is_name((const uint8_t *)pack->architecture, strlen(pack->architecture)))
        return strata__fail(STRATA_ERR_FORMAT, "%s: key general.architecture is no text",
                            strata__pack_shard(pack, 0)->name);
    return status;
}

static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 32;
}

static void fingerprint(strata__pack *pack)
{
    uint64_t hash = 0;
    for (uint32_t i = 0; i < pack->shards.count; i++) {
        const strata__shard *shard = strata__pack_shard(pack, i);
        uint64_t word;
        for (uint64_t at = 0; at < shard->header_bytes; at += sizeof word) {
            uint64_t left = shard->header_bytes - at;
            word = 0;
            memcpy(&word, shard->data + at, left < sizeof word ? left : sizeof word);
            hash = mix(hash, word);
        }
        hash = mix(hash, shard->bytes);
        pack->file_bytes += shard->bytes;
    }
    pack->fingerprint = hash;
}

/* The model's refusal is kept, not returned: what the file says can be looked at all the same. */
static strata_status build_model(strata__pack *pack)
{
    pack->model_status = strata__model_build(pack);
    if (pack->model_status == STRATA_ERR_NO_MEMORY)
        return pack->model_status;
    if (pack->model_status != STRATA_OK) {
        strncpy(pack->model_text, strata__error_text(), sizeof pack->model_text - 1);
        strata__log(pack->context, STRATA_LOG_INFO, "the pack cannot be run: %s", pack->model_text);
    }
    return STRATA_OK;
}

static strata_status index_pack(strata__pack *pack)
{
    strata_status status = strata__header_read(pack, strata__pack_shard(pack, 0), 0, &pack->values);
    if (status == STRATA_OK)
        status = strata__split_open(pack);
    if (status == STRATA_OK)
        status = strata__index_build(pack);
    if (status == STRATA_OK)
        status = read_names(pack);
    if (status == STRATA_OK)
        status = strata__vocabulary_build(pack);
    if (status != STRATA_OK)
        return status;
    fingerprint(pack);
    return build_model(pack);
}

static strata_status finish(strata__pack *pack, strata_status status, strata__pack **out)
{
    if (status == STRATA_OK)
        status = index_pack(pack);
    if (status == STRATA_OK)
        *out = pack;
    else
        strata__pack_release(pack);
    return status;
}

strata_status strata__pack_open_path(strata_context *context, const char *path, strata__pack **out)
{
    strata__pack *pack = NULL;
    strata_status status;
    *out = NULL;
    if (!path[0])
        return strata__fail(STRATA_ERR_INVALID_ARGUMENT, "the path of the pack is empty");
    status = create(context, path, &pack);
    if (status == STRATA_OK) {
        strata__shard *shard = strata__list_add(&pack->shards, strata__pack_allocator(pack));
        if (shard) {
            shard->name = pack->path;
            status = strata__mapping_open(path, &shard->mapping);
            shard->data = shard->mapping.data;
            shard->bytes = shard->mapping.bytes;
        } else {
            status = strata__fail_memory(sizeof *shard, "the list of files");
        }
    }
    return finish(pack, status, out);
}

strata_status strata__pack_open_memory(strata_context *context, const void *data, uint64_t bytes,
                                       strata__pack **out)
{
    strata__pack *pack = NULL;
    strata_status status;
    *out = NULL;
    status = create(context, "", &pack);
    if (status == STRATA_OK) {
        strata__shard *shard = strata__list_add(&pack->shards, strata__pack_allocator(pack));
        if (shard) {
            shard->name = "pack in memory";
            shard->data = data;
            shard->bytes = bytes;
        } else {
            status = strata__fail_memory(sizeof *shard, "the list of files");
        }
    }
    return finish(pack, status, out);
}

strata__pack *strata__pack_retain(strata__pack *pack)
{
    atomic_fetch_add_explicit(&pack->references, 1, memory_order_relaxed);
    return pack;
}

void strata__pack_release(strata__pack *pack)
{
    strata_context *context;
    if (!pack || atomic_fetch_sub_explicit(&pack->references, 1, memory_order_acq_rel) != 1)
        return;
    context = pack->context;
    for (uint32_t i = 0; i < pack->shards.count; i++)
        strata__mapping_close(&strata__pack_shard(pack, i)->mapping);
    strata__list_release(&pack->shards, &context->allocator);
    strata__list_release(&pack->values, &context->allocator);
    strata__list_release(&pack->tensors, &context->allocator);
    strata__pool_release(&pack->pool);
    pthread_mutex_destroy(&pack->shared.lock);
    strata__free(&context->allocator, pack, sizeof *pack);
    strata__context_release(context);
}

strata__pack_shared *strata__pack_shared_of(strata__pack *pack)
{
    return &pack->shared;
}

strata_context *strata__pack_context(const strata__pack *pack)
{
    return pack->context;
}

const char *strata__pack_path(const strata__pack *pack)
{
    return pack->path;
}

const char *strata__pack_architecture(const strata__pack *pack)
{
    return pack->architecture;
}

const char *strata__pack_name(const strata__pack *pack)
{
    return pack->name;
}

uint64_t strata__pack_file_bytes(const strata__pack *pack)
{
    return pack->file_bytes;
}

uint64_t strata__pack_fingerprint(const strata__pack *pack)
{
    return pack->fingerprint;
}

strata_status strata__pack_model(const strata__pack *pack, const strata__geometry **out_geometry,
                                 const strata__layer **out_layers)
{
    if (pack->model_status != STRATA_OK)
        return strata__fail(pack->model_status, "%s", pack->model_text);
    *out_geometry = &pack->geometry;
    *out_layers = pack->layers;
    return STRATA_OK;
}

uint64_t strata__pack_tensor_count(const strata__pack *pack)
{
    return pack->tensors.count;
}

const strata__tensor *strata__pack_tensor(const strata__pack *pack, uint64_t index)
{
    return index < pack->tensors.count ? strata__pack_tensors(pack) + index : NULL;
}

uint64_t strata__pack_value_count(const strata__pack *pack)
{
    return pack->values.count;
}

strata_status strata__pack_value(const strata__pack *pack, uint64_t index, strata__value *out)
{
    if (index >= pack->values.count)
        return strata__fail(STRATA_ERR_INVALID_ARGUMENT,
                            "the pack has %" PRIu32 " metadata entries, there is no entry %" PRIu64,
                            pack->values.count, index);
    *out = strata__pack_values(pack)[index];
    return STRATA_OK;
}
