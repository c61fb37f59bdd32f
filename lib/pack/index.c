/* SPDX-License-Identifier: MIT */
/* Keys and names in sorted order, each once; tensors that share no byte. */
#include <stddef.h>
#include <string.h>

#include "base/error.h"
#include "pack/internal.h"
#include "pack/sort.h"

static int compare_keys(const void *items, uint32_t a, uint32_t b)
{
    const strata__value *values = items;
    return strcmp(values[a].key, values[b].key);
}

static int compare_names(const void *items, uint32_t a, uint32_t b)
{
    const strata__tensor *tensors = items;
    return strcmp(tensors[a].name, tensors[b].name);
}

static int compare_places(const void *items, uint32_t a, uint32_t b)
{
    const strata__tensor *x = (const strata__tensor *)items + a;
    const strata__tensor *y = (const strata__tensor *)items + b;
    if (x->shard != y->shard)
        return x->shard < y->shard ? -1 : 1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static uint32_t *new_order(strata__pack *pack, uint32_t count, const char *what)
{
    uint32_t *order = strata__pool_alloc(&pack->pool, count * sizeof *order);
    if (!order)
        (void)strata__fail_memory(count * sizeof *order, what);
    return order;
}

static strata_status index_values(strata__pack *pack)
{
    const strata__value *values = strata__pack_values(pack);
    uint32_t count = pack->values.count;
    uint32_t *order = new_order(pack, count, "the order of the metadata");
    if (!order)
        return STRATA_ERR_NO_MEMORY;
    strata__sort(order, count, values, compare_keys);
    for (uint32_t i = 1; i < count; i++)
        if (compare_keys(values, order[i - 1], order[i]) == 0)
            return strata__fail(STRATA_ERR_FORMAT, "%s: key %s appears twice",
                                strata__pack_shard(pack, 0)->name, values[order[i]].key);
    pack->value_order = order;
    return STRATA_OK;
}

static strata_status index_tensors(strata__pack *pack)
{
    const strata__tensor *tensors = strata__pack_tensors(pack);
    uint32_t count = pack->tensors.count;
    uint32_t *order = new_order(pack, count, "the order of the tensors");
    if (!order)
        return STRATA_ERR_NO_MEMORY;
    strata__sort(order, count, tensors, compare_names);
    for (uint32_t i = 1; i < count; i++)
        if (compare_names(tensors, order[i - 1], order[i]) == 0)
            return strata__fail(STRATA_ERR_FORMAT, "%s: tensor %s appears twice",
                                strata__pack_shard(pack, tensors[order[i]].shard)->name,
                                tensors[order[i]].name);
    pack->tensor_order = order;
    return STRATA_OK;
}

/* A tensor of unknown size counts as one byte. `order` is scratch. */
static strata_status check_overlap(strata__pack *pack, uint32_t *order)
{
    const strata__tensor *tensors = strata__pack_tensors(pack);
    strata__sort(order, pack->tensors.count, tensors, compare_places);
    for (uint32_t i = 1; i < pack->tensors.count; i++) {
        const strata__tensor *first = tensors + order[i - 1];
        const strata__tensor *second = tensors + order[i];
        uint64_t bytes = first->bytes ? first->bytes : 1;
        if (first->shard == second->shard && bytes > second->offset - first->offset)
            return strata__fail(STRATA_ERR_FORMAT,
                                "%s: tensors %s and %s overlap at offset %" PRIu64,
                                strata__pack_shard(pack, first->shard)->name, first->name,
                                second->name, second->offset);
    }
    return STRATA_OK;
}

strata_status strata__index_build(strata__pack *pack)
{
    strata_status status = index_values(pack);
    uint64_t bytes = pack->tensors.count * sizeof(uint32_t);
    uint32_t *scratch;
    if (status == STRATA_OK)
        status = index_tensors(pack);
    if (status != STRATA_OK)
        return status;
    scratch = strata__alloc(strata__pack_allocator(pack), bytes);
    if (!scratch)
        return strata__fail_memory(bytes, "the order of the tensor data");
    status = check_overlap(pack, scratch);
    strata__free(strata__pack_allocator(pack), scratch, bytes);
    return status;
}

bool strata__pack_value_find(const strata__pack *pack, const char *key, strata__value *out)
{
    const strata__value *values = strata__pack_values(pack);
    uint32_t low = 0, high = pack->values.count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int order = strcmp(key, values[pack->value_order[middle]].key);
        if (order == 0) {
            *out = values[pack->value_order[middle]];
            return true;
        }
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return false;
}

const strata__tensor *strata__pack_tensor_find(const strata__pack *pack, const char *name)
{
    const strata__tensor *tensors = strata__pack_tensors(pack);
    uint32_t low = 0, high = pack->tensors.count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const strata__tensor *tensor = tensors + pack->tensor_order[middle];
        int order = strcmp(name, tensor->name);
        if (order == 0)
            return tensor;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}
