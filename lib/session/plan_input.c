/* SPDX-License-Identifier: MIT */
#include "session/plan_input.h"

#include <string.h>

#include "base/error.h"
#include "session/plan_costs.h"
#include "session/weights.h"

enum { DEFAULT_CONTEXT_TOKENS = 4096, Q8_0_GROUP = 32 /* values that share a scale */ };

static strata__layout_layer layer_numbers(const strata__layer *l, uint32_t experts)
{
    strata__layout_layer out = {0};
    bool has_experts = l->ffn == STRATA__FFN_EXPERTS;
    out.heads = l->heads;
    out.kv_heads = l->kv_heads;
    out.head_size = l->head_size;
    out.window = l->window;
    out.ffn_width = has_experts ? 0 : l->ffn_width;
    out.dense_bytes = l->dense_bytes;
    if (!has_experts)
        return out;
    out.expert_width = l->expert_width;
    out.shared_width = l->shared_width;
    out.shared_gated = l->shared_router.data != NULL;
    out.gate_format = l->expert_gate.format;
    out.up_format = l->expert_up.format;
    out.down_format = l->expert_down.format;
    out.gate_bytes = l->expert_gate.bytes / experts;
    out.up_bytes = l->expert_up.bytes / experts;
    out.down_bytes = l->expert_down.bytes / experts;
    return out;
}

static strata_status make_geometry(strata__plan_input *plan, const strata__geometry *geometry,
                                   const strata__layer *layers)
{
    strata__layout_geometry *out = &plan->input.geometry;
    uint32_t tensors =
        plan->input.facts.host_addressable ? 0 : strata__weights_list(geometry, layers, NULL);
    plan->layers = strata__calloc(plan->allocator, geometry->layers, sizeof *plan->layers);
    plan->tensor_bytes = strata__calloc(plan->allocator, tensors, sizeof *plan->tensor_bytes);
    out->layer_count = geometry->layers;
    out->tensor_count = tensors;
    if (!plan->layers || !plan->tensor_bytes)
        return strata__fail_memory(geometry->layers * sizeof *plan->layers, "the plan's input");
    if (tensors)
        strata__weights_list(geometry, layers, plan->tensor_bytes);
    for (uint32_t i = 0; i < geometry->layers; ++i)
        plan->layers[i] = layer_numbers(&layers[i], geometry->experts);
    out->layers = plan->layers;
    out->tensor_bytes = plan->tensor_bytes;
    out->width = geometry->width;
    out->vocabulary = geometry->vocabulary;
    out->experts = geometry->experts;
    out->top_k = geometry->top_k;
    out->residual_streams = geometry->residual_streams ? geometry->residual_streams : 1;
    out->output_bytes = geometry->output.bytes;
    return STRATA_OK;
}

static strata_status make_policy(strata__plan_input *plan, uint32_t layers, const char *text)
{
    plan->input.request.path = STRATA__LAYOUT_PATH_AUTO;
    if (!text)
        return STRATA_OK;
    plan->layer_paths = strata__alloc(plan->allocator, layers);
    if (!plan->layer_paths)
        return strata__fail_memory(layers, "the path policy");
    plan->input.request.layer_paths = plan->layer_paths;
    return strata__plan_policy_parse(text, layers, &plan->input.request.path, plan->layer_paths);
}

/* Before anything is read: kernels would refuse it at the first token. */
static strata_status check_kv(const strata__geometry *geometry, const strata__layer *layers,
                              uint32_t kv_format)
{
    for (uint32_t i = 0; i < geometry->layers && kv_format == STRATA_KV_Q8_0; ++i)
        if (layers[i].head_size % Q8_0_GROUP)
            return strata__fail(STRATA_ERR_UNSUPPORTED,
                                "layer %u: heads of %u values cannot be kept as q8_0, which has "
                                "groups of %d; as f16 or f32 they can",
                                i, layers[i].head_size, Q8_0_GROUP);
    return STRATA_OK;
}

static void make_request(strata__plan_input *plan, const strata__geometry *geometry,
                         const strata_plan_options *options)
{
    strata__layout_request *out = &plan->input.request;
    out->device_budget_bytes = options->device_budget_bytes;
    out->host_budget_bytes = options->host_budget_bytes;
    out->context_tokens = options->context_tokens;
    if (!out->context_tokens) {
        out->context_tokens = DEFAULT_CONTEXT_TOKENS;
        if (geometry->context_tokens && geometry->context_tokens < DEFAULT_CONTEXT_TOKENS)
            out->context_tokens = geometry->context_tokens;
    }
    out->prompt_tokens = options->prompt_tokens;
    out->chunk_tokens = options->chunk_tokens;
    out->sequences = options->sequence_count;
    out->kv_tokens = options->kv_tokens;
    out->kv_format = options->kv_format;
    out->experts = options->experts;
    out->expert_source = 1;
    out->borrow = options->lend_cache;
    out->decode_rows = options->decode_rows ? options->decode_rows : STRATA_DECODE_MOST_ROWS;
    if (options->decode_rows == STRATA_DECODE_ROWS_NONE)
        out->decode_rows = 0;
}

/* Costs of the device, then the caller's. */
static strata_status set_costs(strata__plan_input *plan, const char *text)
{
    const strata__layout_facts *facts = &plan->input.facts;
    strata__plan_costs costs;
    strata_status status = STRATA_OK;
    strata__plan_costs_default(facts, &costs);
    if (text)
        status = strata__plan_costs_parse(text, facts->compute_capability, &costs);
    for (uint32_t i = 0; i < plan->input.geometry.layer_count; ++i)
        if (plan->layers[i].expert_width)
            strata__plan_costs_layer(&costs, &plan->layers[i]);
    return status;
}

strata_status strata__plan_input_init(strata__plan_input *plan, const strata__allocator *allocator,
                                      const strata__pack *pack, const strata__layout_facts *facts,
                                      const strata_plan_options *options)
{
    const strata__geometry *geometry;
    const strata__layer *layers;
    strata_status status;
    memset(plan, 0, sizeof *plan);
    plan->allocator = allocator;
    plan->input.facts = *facts;
    status = strata__pack_model(pack, &geometry, &layers);
    if (status == STRATA_OK)
        status = make_geometry(plan, geometry, layers);
    if (status == STRATA_OK)
        status = check_kv(geometry, layers, options->kv_format);
    if (status == STRATA_OK)
        status = set_costs(plan, options->costs);
    if (status != STRATA_OK)
        return status;
    make_request(plan, geometry, options);
    return make_policy(plan, geometry->layers, options->path);
}

void strata__plan_input_finish(strata__plan_input *plan)
{
    const strata__layout_geometry *g = &plan->input.geometry;
    if (!plan->allocator)
        return;
    strata__free(plan->allocator, plan->layers, g->layer_count * sizeof *plan->layers);
    strata__free(plan->allocator, plan->tensor_bytes, g->tensor_count * sizeof *plan->tensor_bytes);
    strata__free(plan->allocator, plan->layer_paths, g->layer_count);
    memset(plan, 0, sizeof *plan);
}
