/* SPDX-License-Identifier: MIT */
/*
 * Opens any bytes as a pack and looks at everything in it. What must hold: no crash, every refusal
 * has a text, and whatever a model that can be run points to lies in the file.
 */
#include <stdint.h>
#include <string.h>

#define FUZZ_MODULES
#include "fuzz_target.h"
#include "must.h"
#include "pack/pack.h"

static volatile uint64_t sink;

/* Reads the ends of a range, for sanitizers. */
static void touch(const void *data, uint64_t bytes)
{
    if (data && bytes)
        sink += ((const uint8_t *)data)[0] + ((const uint8_t *)data)[bytes - 1];
}

static void look_at_values(const strata__pack *pack)
{
    for (uint64_t i = 0; i < strata__pack_value_count(pack); i++) {
        const uint64_t step = 37;
        strata__value value, again;
        must(strata__pack_value(pack, i, &value) == STRATA_OK, "an entry by index");
        must(strata__pack_value_find(pack, value.key, &again), "an entry by key");
        must(value.key == again.key, "the same entry both ways");
        for (uint64_t j = 0; j < value.count && j < 20 * step; j += step) {
            const uint8_t *bytes;
            uint64_t count;
            int64_t integer;
            double number;
            int read = strata__value_int64(&value, j, &integer) == STRATA_OK;
            read += strata__value_float64(&value, j, &number) == STRATA_OK;
            if (strata__value_string(&value, j, &bytes, &count) == STRATA_OK) {
                touch(bytes, count);
                read++;
            }
            must(read <= 1, "one type");
        }
    }
}

static void look_at_tensors(const strata__pack *pack)
{
    for (uint64_t i = 0; i < strata__pack_tensor_count(pack); i++) {
        const strata__tensor *tensor = strata__pack_tensor(pack, i);
        must(strata__pack_tensor_find(pack, tensor->name) == tensor, "a tensor by name");
        touch(tensor->data, tensor->bytes);
        sink += strlen(tensor->name);
    }
}

static void look_at_tokens(const strata__pack *pack)
{
    uint64_t count = strata__pack_token_count(pack);
    for (uint64_t id = 0; id <= count && id < 2000; id++) {
        char buffer[64];
        uint64_t needed = 0;
        strata_status status = strata__pack_token_text(pack, id, buffer, sizeof buffer, &needed);
        must(status != STRATA_OK || needed <= sizeof buffer, "a text that fits");
        must((status == STRATA_ERR_INVALID_ARGUMENT) == (id >= count), "tokens that are there");
    }
}

static void look_at_projection(const strata__projection *projection, uint32_t experts)
{
    uint64_t blob;
    if (!projection->data)
        return;
    experts = experts ? experts : 1;
    blob = projection->bytes / experts;
    touch(projection->data, (experts - 1) * projection->stride_bytes + blob);
    touch(projection->bias, projection->bias ? (uint64_t)experts * projection->outputs * 4 : 0);
    must(strata__format_find(projection->format) != NULL, "a decoded format");
    must(blob % projection->outputs == 0, "whole rows");
}

static void look_at_layer(const strata__layer *layer, const strata__geometry *geometry)
{
    must(layer->heads && layer->kv_heads && layer->heads % layer->kv_heads == 0, "heads");
    must(layer->head_size && layer->rope_width <= layer->head_size, "a head");
    touch(layer->attention_norm, 4 * (uint64_t)geometry->width);
    touch(layer->ffn_norm, 4 * (uint64_t)geometry->width);
    touch(layer->sinks, 4 * (uint64_t)layer->heads);
    touch(layer->selection_bias, 4 * (uint64_t)geometry->experts);
    look_at_projection(&layer->q, 0);
    look_at_projection(&layer->k, 0);
    look_at_projection(&layer->v, 0);
    look_at_projection(&layer->attention_out, 0);
    look_at_projection(&layer->gate, 0);
    look_at_projection(&layer->up, 0);
    look_at_projection(&layer->down, 0);
    look_at_projection(&layer->router, 0);
    look_at_projection(&layer->shared_gate, 0);
    look_at_projection(&layer->shared_up, 0);
    look_at_projection(&layer->shared_down, 0);
    look_at_projection(&layer->shared_router, 0);
    look_at_projection(&layer->expert_gate, geometry->experts);
    look_at_projection(&layer->expert_up, geometry->experts);
    look_at_projection(&layer->expert_down, geometry->experts);
}

static void look_at_model(const strata__pack *pack)
{
    const strata__geometry *geometry;
    const strata__layer *layers;
    strata_status status = strata__pack_model(pack, &geometry, &layers);
    must_have_text(status);
    if (status != STRATA_OK)
        return;
    must(geometry->top_k >= 1 && geometry->top_k <= geometry->experts, "experts of a token");
    must(geometry->layers >= 1 && geometry->layers <= STRATA__MAX_LAYERS, "layers");
    touch(geometry->output_norm, 4 * (uint64_t)geometry->width);
    look_at_projection(&geometry->embedding, 0);
    look_at_projection(&geometry->output, 0);
    for (uint32_t i = 0; i < geometry->layers; i++)
        look_at_layer(&layers[i], geometry);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    strata_context_options options = {.struct_size = sizeof options};
    strata_context *context;
    strata__pack *pack = NULL;
    strata_status status;
    must(strata__context_create(&options, &context) == STRATA_OK, "a context");
    strata__fail(STRATA_OK, "%s", "");
    status = strata__pack_open_memory(context, data, bytes, &pack);
    must_have_text(status);
    must((status == STRATA_OK) == (pack != NULL), "a pack or a refusal");
    if (pack) {
        look_at_values(pack);
        look_at_tensors(pack);
        look_at_tokens(pack);
        look_at_model(pack);
    }
    strata__pack_release(pack);
    strata__context_release(context);
    return 0;
}
