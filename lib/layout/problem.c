/* SPDX-License-Identifier: MIT */
#include "layout/problem.h"

#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/kv_pages.h"
#include "layout/region.h"

/* A number of the input, and what it may be. */
typedef struct range {
    const char *name;
    uint64_t value;
    uint64_t least;
    uint64_t most;
} range;

static strata_status check_ranges(const range *ranges, uint64_t count, const char *what)
{
    for (uint64_t i = 0; i < count; ++i)
        if (ranges[i].value < ranges[i].least || ranges[i].value > ranges[i].most)
            return strata__fail(STRATA_ERR_INVALID_ARGUMENT, "%s: %s is %llu, not %llu to %llu",
                                what, ranges[i].name, (unsigned long long)ranges[i].value,
                                (unsigned long long)ranges[i].least,
                                (unsigned long long)ranges[i].most);
    return STRATA_OK;
}

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static const uint64_t max_width = 1u << 20, max_heads = 4096, max_tokens = 1u << 31,
                      max_chunk = 1u << 24, max_state = 1u << 30, max_blob = 1ull << 40;

static strata_status check_geometry(const strata__layout_geometry *g)
{
    const range ranges[] = {
        {"layers", g->layer_count, 1, STRATA__MAX_LAYERS},
        {"width", g->width, 1, max_width},
        {"vocabulary", g->vocabulary, 1, 1u << 24},
        {"experts", g->experts, 0, STRATA__MAX_EXPERTS},
        {"experts per token", g->top_k, 0, STRATA__MAX_TOP_K},
        {"residual streams", g->residual_streams, 1, 16},
        {"dense tensors", g->tensor_count, 0, 1u << 20},
        {"experts per token", g->top_k, 0, g->experts},
    };
    return check_ranges(ranges, COUNT(ranges), "model");
}

static strata_status check_layer(const strata__layout_geometry *g, uint32_t index)
{
    const strata__layout_layer *l = &g->layers[index];
    const uint32_t experts = l->expert_width != 0;
    const range ranges[] = {
        {"heads", l->heads, 1, max_heads},
        {"kv heads", l->kv_heads, 1, l->heads},
        {"head size", l->head_size, 1, max_heads},
        {"expert width", l->expert_width, 0, max_width},
        {"feed-forward width", l->ffn_width, !experts, experts ? 0 : max_width},
        {"shared width", l->shared_width, 0, experts ? max_width : 0},
        {"experts of the model", g->experts, experts, STRATA__MAX_EXPERTS},
        {"experts per token of the model", g->top_k, experts, STRATA__MAX_TOP_K},
        {"gate bytes", l->gate_bytes, experts, max_blob},
        {"up bytes", l->up_bytes, experts, max_blob},
        {"down bytes", l->down_bytes, experts, max_blob},
        {"state bytes", l->state_bytes, 0, max_state},
    };
    char what[24];
    snprintf(what, sizeof what, "layer %u", index);
    for (uint32_t i = 0; i < STRATA__LAYOUT_PATH_COUNT; ++i)
        if (!(l->path_flops[i] == 0 || (l->path_flops[i] >= 1 && l->path_flops[i] <= 1e24)) ||
            !(l->path_half_rows[i] >= 0 && l->path_half_rows[i] <= 1e6))
            return strata__fail(
                STRATA_ERR_INVALID_ARGUMENT, "%s: path %s at %g per second, %g rows at half", what,
                strata__layout_path_name(i), l->path_flops[i], l->path_half_rows[i]);
    return check_ranges(ranges, COUNT(ranges), what);
}

static strata_status check_facts(const strata__layout_facts *f)
{
    const range ranges[] = {
        {"alignment", f->alignment_bytes, 1, 1u << 20},
        {"activation bytes", f->activation_bytes, 1, 8},
        {"row scale bytes", f->row_scale_bytes, 0, 8},
        {"decode bytes per value", f->decode_bytes_per_value, 1, 8},
        {"attention split keys", f->attention_split_keys, 0, 1u << 20},
        {"attention scratch bytes per row", f->attention_scratch_bytes_per_row, 0, 1u << 20},
        {"group scratch bytes per expert", f->group_scratch_bytes_per_expert, 0, 1u << 24},
        {"group scratch bytes", f->group_scratch_bytes_fixed, 0, 1u << 30},
    };
    const double rates[] = {f->link_bytes_per_second,
                            f->memory_bytes_per_second,
                            f->staging_bytes_per_second,
                            f->dense_flops,
                            f->attention_flops,
                            f->path_flops[STRATA__LAYOUT_DIRECT],
                            f->path_flops[STRATA__LAYOUT_FUSED],
                            f->path_flops[STRATA__LAYOUT_MMQ],
                            f->path_flops[STRATA__LAYOUT_FP16]};
    const double times[] = {f->link_latency_seconds,
                            f->launch_seconds,
                            f->path_half_rows[STRATA__LAYOUT_DIRECT],
                            f->path_half_rows[STRATA__LAYOUT_FUSED],
                            f->path_half_rows[STRATA__LAYOUT_MMQ],
                            f->path_half_rows[STRATA__LAYOUT_FP16]};
    if (f->alignment_bytes & (f->alignment_bytes - 1))
        return strata__fail(STRATA_ERR_INVALID_ARGUMENT,
                            "the device's alignment of %llu bytes is no power of two",
                            (unsigned long long)f->alignment_bytes);
    for (uint64_t i = 0; i < COUNT(rates); ++i)
        if (!(rates[i] >= 1 && rates[i] <= 1e24))
            return strata__fail(STRATA_ERR_INVALID_ARGUMENT,
                                "rate %llu of the device is %g per second, not 1 to 1e24",
                                (unsigned long long)i, rates[i]);
    for (uint64_t i = 0; i < COUNT(times); ++i)
        if (!(times[i] >= 0 && times[i] <= 1e6))
            return strata__fail(STRATA_ERR_INVALID_ARGUMENT,
                                "time %llu of the device is %g, not 0 to 1e6",
                                (unsigned long long)i, times[i]);
    if (!(f->round_outputs >= 0 && f->round_outputs <= 1e12))
        return strata__fail(STRATA_ERR_INVALID_ARGUMENT,
                            "outputs of a round of the device are %g, not 0 to 1e12",
                            f->round_outputs);
    return check_ranges(ranges, COUNT(ranges), "device");
}

/* Paths of the policy are seen to where paths are chosen; here only that they are paths. */
static strata_status check_policy(const strata__layout_request *r, uint32_t layers)
{
    for (uint32_t i = 0; i <= layers; ++i) {
        uint32_t path = r->path;
        if (i < layers && !r->layer_paths)
            continue;
        if (i < layers)
            path = r->layer_paths[i];
        if (path != STRATA__LAYOUT_PATH_AUTO && path >= STRATA__LAYOUT_PATH_COUNT)
            return strata__fail(STRATA_ERR_INVALID_ARGUMENT, "%u is no path", path);
    }
    return STRATA_OK;
}

void strata__layout_set_pages(strata__layout_problem *problem, uint32_t pages_per_sequence)
{
    const strata__layout_request *r = &problem->request;
    uint64_t all = (uint64_t)pages_per_sequence * r->sequences, together = all;
    if (r->kv_tokens)
        together = strata__kv_pages(r->kv_tokens, r->page_tokens);
    if (together < pages_per_sequence)
        together = pages_per_sequence;
    problem->pages_per_sequence = pages_per_sequence;
    problem->pages_total = (uint32_t)(together < all ? together : all);
}

static strata_status check_request(strata__layout_problem *p)
{
    strata__layout_request *r = &p->request;
    uint64_t pages;
    if (r->sequences == 0)
        r->sequences = 1;
    if (r->page_tokens == 0)
        r->page_tokens = 64;
    if (r->prompt_tokens == 0)
        r->prompt_tokens = r->context_tokens;
    if (r->chunk_tokens > r->context_tokens)
        r->chunk_tokens = r->context_tokens;
    const range ranges[] = {
        {"context tokens", r->context_tokens, 1, max_tokens},
        {"prompt tokens within the context", r->prompt_tokens, 1, r->context_tokens},
        {"chunk tokens", r->chunk_tokens, 0, max_chunk},
        {"sequences", r->sequences, 1, 1u << 16},
        {"kv tokens", r->kv_tokens ? r->kv_tokens : r->context_tokens, r->context_tokens,
         UINT64_MAX},
        {"page tokens", r->page_tokens, 1, 1u << 16},
        {"kv format", r->kv_format, 0, STRATA__LAYOUT_KV_F32},
        {"experts", r->experts, 0, STRATA__LAYOUT_EXPERTS_RESIDENT},
        {"decode rows", r->decode_rows, 0, STRATA__DIRECT_ROWS},
        {"the rest of page tokens by 64", r->page_tokens % 64, 0, 0},
    };
    strata_status status = check_ranges(ranges, COUNT(ranges), "request");
    if (status != STRATA_OK)
        return status;
    pages = strata__kv_pages(r->context_tokens, r->page_tokens) * r->sequences;
    if (pages > INT32_MAX)
        return strata__fail(
            STRATA_ERR_INVALID_ARGUMENT,
            "%u sequences of %llu tokens take %llu pages, more than can be numbered", r->sequences,
            (unsigned long long)r->context_tokens, (unsigned long long)pages);
    strata__layout_set_pages(p, (uint32_t)strata__kv_pages(r->context_tokens, r->page_tokens));
    return check_policy(r, p->geometry.layer_count);
}

uint64_t strata__layout_align(const strata__layout_problem *problem, uint64_t bytes)
{
    uint64_t mask = problem->facts.alignment_bytes - 1;
    return (bytes + mask) & ~mask;
}

static bool same_kind(const strata__layout_layer *a, const strata__layout_layer *b)
{
    return a->heads == b->heads && a->kv_heads == b->kv_heads && a->head_size == b->head_size &&
           a->expert_width == b->expert_width && a->ffn_width == b->ffn_width &&
           a->shared_width == b->shared_width && a->shared_gated == b->shared_gated;
}

static uint32_t exception_of(const strata__layout_request *r, uint32_t layer)
{
    return r->layer_paths ? r->layer_paths[layer] : (uint32_t)STRATA__LAYOUT_PATH_AUTO;
}

static uint32_t find_kind(strata__layout_problem *p, uint32_t layer)
{
    const strata__layout_layer *layers = p->geometry.layers;
    for (uint32_t i = 0; i < p->kind_count; ++i)
        if (same_kind(&layers[layer], &layers[p->kind_layer[i]]))
            return i;
    p->kind_layer[p->kind_count] = layer;
    return p->kind_count++;
}

static uint32_t find_class(strata__layout_problem *p, uint32_t layer)
{
    const strata__layout_layer *layers = p->geometry.layers;
    uint32_t exception = exception_of(&p->request, layer);
    strata__layout_class *added;
    for (uint32_t i = 0; i < p->class_count; ++i)
        if (p->classes[i].exception == exception &&
            memcmp(&layers[layer], &layers[p->classes[i].layer], sizeof layers[0]) == 0)
            return i;
    added = &p->classes[p->class_count];
    added->layer = layer;
    added->kind = find_kind(p, layer);
    added->exception = exception;
    added->up_offset = strata__layout_align(p, layers[layer].gate_bytes);
    added->down_offset = added->up_offset + strata__layout_align(p, layers[layer].up_bytes);
    added->slot_bytes = added->down_offset + strata__layout_align(p, layers[layer].down_bytes);
    return p->class_count++;
}

static strata_status classify(strata__layout_problem *p)
{
    for (uint32_t i = 0; i < p->geometry.layer_count; ++i) {
        const strata__layout_layer *l = &p->geometry.layers[i];
        const strata__layout_class *c;
        strata_status status = check_layer(&p->geometry, i);
        if (status != STRATA_OK)
            return status;
        p->class_of[i] = (uint16_t)find_class(p, i);
        c = &p->classes[p->class_of[i]];
        p->state_bytes += strata__layout_align(p, 2 * l->state_bytes * p->request.sequences);
        if (l->expert_width == 0)
            continue;
        p->expert_layers++;
        p->expert_bytes += p->geometry.experts * c->slot_bytes;
        if (c->slot_bytes > p->largest_slot_bytes)
            p->largest_slot_bytes = c->slot_bytes;
    }
    p->copies = p->expert_layers && !p->facts.host_addressable;
    return STRATA_OK;
}

strata_status strata__layout_problem_init(strata__layout_problem *problem,
                                          const strata__allocator *allocator,
                                          const strata__layout_input *input)
{
    strata_status status;
    memset(problem, 0, sizeof *problem);
    problem->allocator = allocator;
    problem->geometry = input->geometry;
    problem->facts = input->facts;
    problem->request = input->request;
    problem->budget_bytes = input->request.device_budget_bytes;
    if (problem->budget_bytes == 0)
        problem->budget_bytes = input->facts.memory_bytes;
    if (problem->budget_bytes == 0)
        problem->budget_bytes = UINT64_MAX;
    problem->host_budget_bytes = input->request.host_budget_bytes;
    if (problem->host_budget_bytes == 0)
        problem->host_budget_bytes = UINT64_MAX;
    status = check_geometry(&problem->geometry);
    if (status == STRATA_OK)
        status = check_facts(&problem->facts);
    if (status == STRATA_OK)
        status = check_request(problem);
    if (status == STRATA_OK)
        status = classify(problem);
    if (status == STRATA_OK)
        problem->decode_host_bytes = strata__layout_place_decode_host(problem, NULL);
    return status;
}

uint32_t strata__layout_band_count(uint32_t chunk_tokens)
{
    strata__layout_spec spec = {.chunk = chunk_tokens};
    strata__layout_bands(&spec);
    return spec.band_count;
}

void strata__layout_bands(strata__layout_spec *spec)
{
    static const uint32_t rows[] = {STRATA__DIRECT_ROWS, 64, 512};
    spec->band_count = 0;
    for (uint32_t i = 0; i < COUNT(rows); ++i)
        if (rows[i] < spec->chunk)
            spec->band_rows[spec->band_count++] = rows[i];
    spec->band_rows[spec->band_count++] = spec->chunk;
}

uint32_t strata__layout_band_index(const strata__layout_spec *spec, uint64_t rows)
{
    uint32_t band = 0;
    while (band + 1 < spec->band_count && rows > spec->band_rows[band])
        band++;
    return band;
}
