/* SPDX-License-Identifier: MIT */
#include "layout/region.h"

#include <string.h>

#include "base/checked.h"
#include "base/spans.h"

enum { STAGING_PIECES = 4 };

static const uint64_t decode_scratch_bytes = 4u << 20;

/* Of split attention, whose scratch grows with the context: rows go in turns beyond it. */
static const uint64_t decode_attention_bytes = 32u << 20;

uint64_t strata__layout_carve(strata__carver *carver, uint64_t bytes)
{
    uint64_t offset = carver->end;
    if (!strata__add_u64(offset, bytes, &carver->end) ||
        !strata__round_up_u64(carver->end, carver->alignment, &carver->end))
        carver->end = UINT64_MAX;
    return offset;
}

uint32_t strata__layout_place_work(const strata__layout_problem *problem,
                                   const strata__layout_spec *spec, uint64_t arena_bytes,
                                   strata__carver *carver, strata__layout_buffer *out,
                                   uint64_t *arena_offset)
{
    strata__demand_context context = {
        .problem = problem, .spec = spec, .path = STRATA__LAYOUT_PATH_NONE, .rows = spec->chunk};
    uint32_t count = strata__layout_demands(&context, STRATA__DEMANDS_PERSISTENT, out);
    for (uint32_t i = 0; i < count; ++i)
        out[i].offset = strata__layout_carve(carver, out[i].bytes);
    *arena_offset = strata__layout_carve(carver, arena_bytes);
    return count;
}

/* Rows of attention at a time in a step of decoding. */
static uint32_t decode_attention_rows(const strata__layout_problem *problem)
{
    uint64_t tokens = (uint64_t)problem->pages_per_sequence * problem->request.page_tokens;
    uint64_t most = 1, rows;
    if (!problem->facts.attention_split_keys)
        return problem->request.decode_rows;
    for (uint32_t i = 0; i < problem->kind_count; ++i) {
        const strata__layout_layer *l = &problem->geometry.layers[problem->kind_layer[i]];
        uint64_t bytes = strata__attention_split_bytes(1, l->heads, l->head_size, tokens,
                                                       problem->facts.attention_split_keys);
        most = bytes > most ? bytes : most;
    }
    rows = decode_attention_bytes / most;
    if (rows > problem->request.decode_rows)
        return problem->request.decode_rows;
    return rows ? (uint32_t)rows : 1;
}

void strata__layout_decode_spec(const strata__layout_problem *problem, strata__layout_spec *spec)
{
    const strata__layout_request *r = &problem->request;
    uint32_t top_k = problem->geometry.top_k;
    *spec = (strata__layout_spec){
        .chunk = r->decode_rows,
        .dense_tile = r->decode_rows,
        .attention_tile = decode_attention_rows(problem),
        .expert_tile = r->decode_rows * (top_k ? top_k : 1),
        .logit_tile = r->decode_rows,
        .scratch_bytes = decode_scratch_bytes,
        .split_keys = problem->facts.attention_split_keys,
    };
    if (problem->copies && r->expert_source && r->experts != STRATA__LAYOUT_EXPERTS_RESIDENT)
        spec->ring_bytes = 2 * top_k * problem->largest_slot_bytes;
    strata__layout_bands(spec);
}

static void add_session(strata__layout *layout, uint32_t id, uint64_t offset, uint64_t bytes,
                        uint64_t rows)
{
    if (!layout || bytes == 0)
        return;
    layout->session_buffers[layout->session_buffer_count++] =
        (strata__layout_buffer){.id = id,
                                .last_stage = STRATA__STAGE_COUNT - 1,
                                .offset = offset,
                                .bytes = bytes,
                                .row_capacity = rows,
                                .row_bytes = bytes / rows};
}

static uint64_t kv_row_bytes(uint32_t format, uint64_t values)
{
    switch (format) {
    case STRATA__LAYOUT_KV_F16:
        return 2 * values;
    case STRATA__LAYOUT_KV_Q8_0:
        return values + 2 * ((values + 31) / 32);
    default:
        return 4 * values;
    }
}

static void place_kv(const strata__layout_problem *problem, strata__carver *carver,
                     strata__layout *layout)
{
    const strata__layout_request *r = &problem->request;
    for (uint32_t i = 0; i < problem->geometry.layer_count; ++i) {
        const strata__layout_layer *l = &problem->geometry.layers[i];
        uint64_t page =
            l->kv_heads * (uint64_t)r->page_tokens * kv_row_bytes(r->kv_format, l->head_size);
        uint64_t bytes, k, v;
        if (!strata__mul_u64(page, problem->pages_total, &bytes))
            bytes = UINT64_MAX;
        k = strata__layout_carve(carver, bytes);
        v = strata__layout_carve(carver, bytes);
        if (layout) {
            layout->layers[i].page_bytes = page;
            layout->layers[i].k_offset = k;
            layout->layers[i].v_offset = v;
        }
    }
}

static void place_state(const strata__layout_problem *problem, strata__carver *carver,
                        strata__layout *layout)
{
    for (uint32_t i = 0; i < problem->geometry.layer_count; ++i) {
        uint64_t bytes = 2 * problem->geometry.layers[i].state_bytes * problem->request.sequences;
        uint64_t offset = strata__layout_carve(carver, bytes);
        if (layout)
            layout->layers[i].state_offset = offset;
    }
}

void strata__layout_place_session(const strata__layout_problem *problem, strata__carver *carver,
                                  strata__layout *layout)
{
    uint64_t start = carver->end, table_bytes;
    for (uint32_t i = 0; i < problem->geometry.tensor_count; ++i) {
        uint64_t offset = 0;
        if (!problem->facts.host_addressable)
            offset = strata__layout_carve(carver, problem->geometry.tensor_bytes[i]);
        if (layout)
            layout->tensor_offsets[i] = offset;
    }
    add_session(layout, STRATA__BUFFER_WEIGHTS, start, carver->end - start, 1);
    start = carver->end;
    place_kv(problem, carver, layout);
    add_session(layout, STRATA__BUFFER_KV_PAGES, start, carver->end - start, 1);
    start = carver->end;
    table_bytes = 4ull * problem->pages_per_sequence * problem->request.sequences;
    strata__layout_carve(carver, table_bytes);
    add_session(layout, STRATA__BUFFER_PAGE_TABLE, start, table_bytes, problem->request.sequences);
    start = carver->end;
    place_state(problem, carver, layout);
    add_session(layout, STRATA__BUFFER_STATE, start, carver->end - start, 1);
}

void strata__layout_place_cache(const strata__layout_problem *problem, const uint32_t *resident,
                                uint64_t lent, strata__carver *carver, strata__layout *layout)
{
    uint64_t start = carver->end;
    for (uint32_t i = 0; i < problem->geometry.layer_count; ++i) {
        const strata__layout_class *c = &problem->classes[problem->class_of[i]];
        strata__layout_place *place = &layout->layers[i];
        place->slot_bytes = c->slot_bytes;
        place->up_offset = c->up_offset;
        place->down_offset = c->down_offset;
        place->resident_count = resident[i];
        memcpy(place->path_flops, problem->geometry.layers[i].path_flops, sizeof place->path_flops);
        memcpy(place->path_half_rows, problem->geometry.layers[i].path_half_rows,
               sizeof place->path_half_rows);
        place->cache_offset = strata__layout_carve(carver, resident[i] * c->slot_bytes);
    }
    layout->loan_bytes = lent;
    layout->loan_offset = strata__layout_carve(carver, lent);
    layout->cache_bytes = carver->end - start;
    add_session(layout, STRATA__BUFFER_CACHE, start, layout->cache_bytes, 1);
}

uint64_t strata__layout_missing_bytes(const strata__layout_problem *problem,
                                      const uint32_t *resident)
{
    uint64_t bytes = problem->copies ? problem->expert_bytes : 0;
    for (uint32_t i = 0; i < problem->geometry.layer_count; ++i)
        bytes -= resident[i] * problem->classes[problem->class_of[i]].slot_bytes;
    return bytes;
}

static void place_host_buffers(const strata__layout_problem *problem,
                               const strata__layout_spec *spec, uint64_t staging_bytes,
                               strata__layout_host *out)
{
    strata__demand_context context = {.problem = problem,
                                      .spec = spec,
                                      .path = STRATA__LAYOUT_PATH_NONE,
                                      .rows = spec->chunk,
                                      .staging_bytes = staging_bytes};
    strata__carver carver = {.alignment = problem->facts.alignment_bytes};
    if (carver.alignment < 64)
        carver.alignment = 64;
    out->buffer_count = strata__layout_demands(&context, STRATA__DEMANDS_HOST, out->buffers);
    for (uint32_t i = 0; i < out->buffer_count; ++i)
        out->buffers[i].offset = strata__layout_carve(&carver, out->buffers[i].bytes);
    out->bytes = carver.end;
}

uint64_t strata__layout_place_decode_host(const strata__layout_problem *problem,
                                          strata__layout_host *out)
{
    strata__layout_host local = {0};
    strata__layout_spec spec;
    if (problem->request.decode_rows) {
        strata__layout_decode_spec(problem, &spec);
        place_host_buffers(problem, &spec, 0, &local);
    }
    if (out)
        *out = local;
    return local.bytes;
}

/* What decoding leaves of the host budget. */
static uint64_t prompt_host_budget(const strata__layout_problem *problem)
{
    if (problem->host_budget_bytes == UINT64_MAX)
        return UINT64_MAX;
    if (problem->host_budget_bytes < problem->decode_host_bytes)
        return 0;
    return problem->host_budget_bytes - problem->decode_host_bytes;
}

void strata__layout_place_host(const strata__layout_problem *problem,
                               const strata__layout_spec *spec, uint64_t missing_bytes,
                               uint64_t group_bytes, strata__layout_host *out)
{
    const strata__layout_facts *f = &problem->facts;
    uint64_t budget = prompt_host_budget(problem), left;
    double link = 1 / f->link_bytes_per_second, staging = 1 / f->staging_bytes_per_second;
    if (group_bytes < problem->largest_slot_bytes)
        group_bytes = problem->largest_slot_bytes;
    place_host_buffers(problem, spec, 0, out);
    left = budget > out->bytes ? budget - out->bytes : 0;
    out->pinned_bytes = missing_bytes;
    if (missing_bytes > left) {
        place_host_buffers(problem, spec, STAGING_PIECES * group_bytes, out);
        out->pinned_bytes = budget > out->bytes ? budget - out->bytes : 0;
    }
    out->fits = out->bytes <= budget;
    out->staged_bytes = missing_bytes - out->pinned_bytes;
    out->seconds_per_byte = link;
    if (out->staged_bytes)
        out->seconds_per_byte = ((double)out->pinned_bytes * link +
                                 (double)out->staged_bytes * (staging > link ? staging : link)) /
                                (double)missing_bytes;
}
