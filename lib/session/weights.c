/* SPDX-License-Identifier: MIT */
#include "session/weights.h"

#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"

/* What the walk does with each tensor. The first failure stays; later calls do nothing. */
typedef struct placer {
    const strata__weights_target *target; /* NULL: nothing is copied */
    uint64_t *bytes;                      /* NULL: sizes are not wanted */
    uint32_t index;                       /* of the next tensor */
    strata_status status;
} placer;

/*
 * Pages that a tensor shares with experts may be page-locked while the rest of it is not. Drivers
 * refuse copies from both kinds at once, so the first and the last page are copied on their own.
 */
static strata_status copy_by_pages(const strata__weights_target *to, uint8_t *target,
                                   const uint8_t *host, uint64_t bytes)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    strata_status status = STRATA_OK;
    while (bytes && status == STRATA_OK) {
        uint64_t begin = (uintptr_t)host % page, part = page - begin;
        if (!begin && bytes > page)
            part = bytes / page * page;
        if (part > bytes)
            part = bytes;
        status = to->device->ops->copy(to->device, to->stream, target, host, part);
        target += part;
        host += part;
        bytes -= part;
    }
    return status;
}

static const void *copy_to_target(placer *p, const void *host, uint64_t bytes)
{
    const strata__weights_target *to = p->target;
    uint8_t *at;
    if (p->status != STRATA_OK)
        return NULL;
    if (p->index >= to->count) {
        p->status = strata__fail(STRATA_ERR_INTERNAL,
                                 "the plan has %u dense tensors, the pack more", to->count);
        return NULL;
    }
    at = to->base + to->offsets[p->index];
    p->status = copy_by_pages(to, at, host, bytes);
    return at;
}

static const void *place(placer *p, const void *host, uint64_t bytes)
{
    const void *at = host;
    if (!host)
        return NULL;
    if (p->bytes)
        p->bytes[p->index] = bytes;
    if (p->target)
        at = copy_to_target(p, host, bytes);
    p->index++;
    return at;
}

static const float *place_floats(placer *p, const float *host, uint64_t count)
{
    return place(p, host, count * sizeof *host);
}

static strata__weight place_weight(placer *p, const strata__projection *from)
{
    strata__weight weight = {0};
    if (!from->data)
        return weight;
    weight.data = place(p, from->data, from->bytes);
    weight.bias = place_floats(p, from->bias, from->outputs);
    weight.format = from->format;
    weight.inputs = from->inputs;
    weight.outputs = from->outputs;
    return weight;
}

static void place_attention(placer *p, const strata__layer *from, strata__layer_weights *to)
{
    bool whole_row = from->qk_norm == STRATA__QK_NORM_ROW_BEFORE_ROPE;
    uint64_t q_gains = (whole_row ? (uint64_t)from->heads : 1) * from->head_size;
    uint64_t k_gains = (whole_row ? (uint64_t)from->kv_heads : 1) * from->head_size;
    to->q = place_weight(p, &from->q);
    to->k = place_weight(p, &from->k);
    to->v = place_weight(p, &from->v);
    to->attention_out = place_weight(p, &from->attention_out);
    to->q_norm = place_floats(p, from->q_norm, q_gains);
    to->k_norm = place_floats(p, from->k_norm, k_gains);
    to->sinks = place_floats(p, from->sinks, from->heads);
}

static void place_ffn(placer *p, const strata__layer *from, uint64_t experts,
                      strata__layer_weights *to)
{
    to->gate = place_weight(p, &from->gate);
    to->up = place_weight(p, &from->up);
    to->down = place_weight(p, &from->down);
    to->shared_gate = place_weight(p, &from->shared_gate);
    to->shared_up = place_weight(p, &from->shared_up);
    to->shared_down = place_weight(p, &from->shared_down);
    to->shared_router = place_weight(p, &from->shared_router);
    to->router = place_weight(p, &from->router);
    to->selection_bias = place_floats(p, from->selection_bias, experts);
    to->expert_gate_bias =
        place_floats(p, from->expert_gate.bias, experts * from->expert_gate.outputs);
    to->expert_up_bias = place_floats(p, from->expert_up.bias, experts * from->expert_up.outputs);
    to->expert_down_bias =
        place_floats(p, from->expert_down.bias, experts * from->expert_down.outputs);
    to->expert_scale = place_floats(p, from->expert_scale, experts);
}

static uint64_t rope_values(const strata__geometry *geometry, const strata__layer *layers,
                            uint32_t table)
{
    uint64_t values = 0;
    for (uint32_t i = 0; i < geometry->layers; ++i)
        if (layers[i].rope_table == table && layers[i].rope_width / 2 > values)
            values = layers[i].rope_width / 2;
    return values;
}

/*
 * Every dense tensor of the model once, in a fixed order; `to` may hold one layer that is reused.
 */
static void walk(placer *p, const strata__geometry *geometry, const strata__layer *layers,
                 strata__weights *to, bool keep_layers)
{
    to->embedding = place_weight(p, &geometry->embedding);
    if (geometry->output.data == geometry->embedding.data) {
        to->output = to->embedding;
        to->output.bias = place_floats(p, geometry->output.bias, geometry->output.outputs);
    } else {
        to->output = place_weight(p, &geometry->output);
    }
    to->output_norm = place_floats(p, geometry->output_norm, geometry->width);
    for (uint32_t i = 0; i < geometry->rope_table_count; ++i)
        to->rope_frequencies[i] =
            place_floats(p, geometry->rope_frequencies[i], rope_values(geometry, layers, i));
    for (uint32_t i = 0; i < geometry->layers; ++i) {
        strata__layer_weights *layer = &to->layers[keep_layers ? i : 0];
        layer->attention_norm = place_floats(p, layers[i].attention_norm, geometry->width);
        layer->ffn_norm = place_floats(p, layers[i].ffn_norm, geometry->width);
        place_attention(p, &layers[i], layer);
        place_ffn(p, &layers[i], geometry->experts, layer);
    }
}

uint32_t strata__weights_list(const strata__geometry *geometry, const strata__layer *layers,
                              uint64_t *bytes)
{
    placer p = {.bytes = bytes};
    strata__layer_weights layer = {0};
    strata__weights weights = {.layers = &layer};
    walk(&p, geometry, layers, &weights, false);
    return p.index;
}

static strata_status make_layers(strata__weights *weights, const strata__allocator *allocator,
                                 uint32_t layer_count)
{
    memset(weights, 0, sizeof *weights);
    weights->layers = strata__calloc(allocator, layer_count, sizeof *weights->layers);
    if (!weights->layers)
        return strata__fail_memory(layer_count * sizeof *weights->layers,
                                   "the addresses of the dense weights");
    weights->allocator = allocator;
    weights->layer_count = layer_count;
    return STRATA_OK;
}

strata_status strata__weights_init(strata__weights *weights, const strata__allocator *allocator,
                                   const strata__geometry *geometry, const strata__layer *layers)
{
    placer p = {0};
    strata_status status = make_layers(weights, allocator, geometry->layers);
    if (status == STRATA_OK)
        walk(&p, geometry, layers, weights, true);
    return status;
}

strata_status strata__weights_upload(strata__weights *weights, const strata__allocator *allocator,
                                     const strata__geometry *geometry, const strata__layer *layers,
                                     const strata__weights_target *target)
{
    placer p = {.target = target};
    strata_status status = make_layers(weights, allocator, geometry->layers);
    if (status != STRATA_OK)
        return status;
    walk(&p, geometry, layers, weights, true);
    if (p.status == STRATA_OK && p.index != target->count)
        return strata__fail(STRATA_ERR_INTERNAL, "the plan has %u dense tensors, the pack %u",
                            target->count, p.index);
    return p.status;
}

void strata__weights_finish(strata__weights *weights)
{
    if (weights->allocator)
        strata__free(weights->allocator, weights->layers,
                     weights->layer_count * sizeof *weights->layers);
    memset(weights, 0, sizeof *weights);
}
