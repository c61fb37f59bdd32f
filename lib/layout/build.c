/* SPDX-License-Identifier: MIT */
#include "layout/build.h"

#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "layout/arena.h"
#include "layout/cost.h"
#include "layout/path.h"
#include "layout/region.h"

enum { MOST_LOGIT_ROWS = 256 };

uint64_t strata__layout_default_group_bytes(void)
{
    return 8u << 20;
}

uint64_t strata__layout_least_ring_bytes(const strata__layout_problem *problem,
                                         uint64_t group_bytes)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < problem->geometry.layer_count; ++i) {
        uint64_t bytes;
        if (problem->geometry.layers[i].expert_width == 0)
            continue;
        bytes = strata__layout_group_experts(problem, i, group_bytes) *
                problem->classes[problem->class_of[i]].slot_bytes;
        if (bytes > most)
            most = bytes;
    }
    return 2 * most;
}

static strata_status check_resident(const strata__layout_problem *p, const uint32_t *resident,
                                    bool *out_streamed)
{
    *out_streamed = false;
    for (uint32_t i = 0; i < p->geometry.layer_count; ++i) {
        uint32_t experts = p->geometry.layers[i].expert_width ? p->geometry.experts : 0;
        if (resident[i] > (p->copies ? experts : 0))
            return strata__fail(STRATA_ERR_INVALID_ARGUMENT,
                                "layer %u: %u experts cannot be resident, it has %u to be copied",
                                i, resident[i], p->copies ? experts : 0);
        if (p->copies && resident[i] < experts)
            *out_streamed = true;
    }
    if (*out_streamed && !p->request.expert_source)
        return strata__fail(STRATA_ERR_INVALID_ARGUMENT,
                            "experts that are not resident need a source");
    return STRATA_OK;
}

static uint32_t tile(uint32_t wanted, uint64_t most)
{
    return wanted && wanted < most ? wanted : (uint32_t)most;
}

strata_status strata__layout_spec_init(const strata__layout_problem *problem,
                                       const strata__layout_choice *choice,
                                       strata__layout_spec *spec, uint32_t *resident)
{
    uint32_t layers = problem->geometry.layer_count, top_k = problem->geometry.top_k;
    const uint64_t most = 1ull << 44;
    strata_status status;
    bool streamed;
    if (choice->chunk_tokens == 0 || choice->chunk_tokens > 1u << 24)
        return strata__fail(STRATA_ERR_INVALID_ARGUMENT, "a chunk of %u tokens, not 1 to %u",
                            choice->chunk_tokens, 1u << 24);
    if (choice->scratch_bytes > most || choice->ring_bytes > most || choice->group_bytes > most)
        return strata__fail(STRATA_ERR_INVALID_ARGUMENT,
                            "scratch, ring or group of more than %llu bytes",
                            (unsigned long long)most);
    if (choice->resident)
        memcpy(resident, choice->resident, layers * sizeof *resident);
    else
        memset(resident, 0, layers * sizeof *resident);
    status = check_resident(problem, resident, &streamed);
    if (status != STRATA_OK)
        return status;
    *spec = (strata__layout_spec){0};
    spec->chunk = choice->chunk_tokens;
    spec->dense_tile = tile(choice->dense_tile, spec->chunk);
    spec->attention_tile = tile(choice->attention_tile, spec->dense_tile);
    spec->expert_tile = tile(choice->expert_tile, (uint64_t)spec->chunk * (top_k ? top_k : 1));
    spec->logit_tile = tile(choice->logit_tile ? choice->logit_tile : 1, spec->chunk);
    spec->scratch_bytes = choice->scratch_bytes;
    if (streamed) {
        uint64_t group = choice->group_bytes;
        uint64_t least = strata__layout_least_ring_bytes(
            problem, group ? group : strata__layout_default_group_bytes());
        spec->ring_bytes = choice->ring_bytes ? choice->ring_bytes : least;
        if (spec->ring_bytes < least)
            return strata__fail(STRATA_ERR_INVALID_ARGUMENT,
                                "a ring of %llu bytes does not hold two groups, which take %llu",
                                (unsigned long long)spec->ring_bytes, (unsigned long long)least);
    }
    strata__layout_bands(spec);
    return STRATA_OK;
}

static void *take(const strata__allocator *allocator, uint64_t count, uint64_t size,
                  strata_status *status)
{
    void *memory = NULL;
    if (*status != STRATA_OK)
        return NULL;
    memory = strata__calloc(allocator, count, size);
    if (!memory)
        *status = strata__fail_memory(count * size, "a layout");
    return memory;
}

static void free_work(const strata__allocator *a, strata__layout_work *w)
{
    uint64_t cells = (uint64_t)w->layer_count * w->band_count;
    strata__free(a, w->configs, w->config_count * sizeof *w->configs);
    strata__free(a, w->persistent, STRATA__DEMANDS_MAX * sizeof *w->persistent);
    strata__free(a, w->buffers, (uint64_t)w->buffer_count * sizeof *w->buffers);
    strata__free(a, w->config_of, cells * sizeof *w->config_of);
    strata__free(a, w->paths, cells);
    strata__free(a, w->reasons, cells);
    strata__free(a, w->host, STRATA__DEMANDS_MAX * sizeof *w->host);
}

void strata__layout_destroy(strata__layout *layout)
{
    const strata__allocator *a;
    if (!layout)
        return;
    a = layout->allocator;
    strata__free(a, (void *)(uintptr_t)layout->request.layer_paths, layout->layer_count);
    free_work(a, &layout->prompt);
    free_work(a, &layout->decode);
    strata__free(a, layout->layers, layout->layer_count * sizeof *layout->layers);
    strata__free(a, layout->tensor_offsets, layout->tensor_count * sizeof *layout->tensor_offsets);
    strata__free(a, layout->session_buffers, STRATA__DEMANDS_MAX * sizeof *layout->session_buffers);
    strata__free(a, layout, sizeof *layout);
}

static void copy_spec(strata__layout_work *w, const strata__layout_problem *p,
                      const strata__layout_spec *spec)
{
    w->chunk_tokens = spec->chunk;
    w->dense_tile = spec->dense_tile;
    w->attention_tile = spec->attention_tile;
    w->expert_tile = spec->expert_tile;
    w->logit_tile = spec->logit_tile;
    w->split_keys = spec->split_keys;
    w->segment_capacity = strata__layout_segment_capacity(p, spec);
    w->layer_count = p->geometry.layer_count;
    w->band_count = spec->band_count;
    for (uint32_t i = 0; i < spec->band_count; ++i)
        w->bands[i].rows = spec->band_rows[i];
}

/* The path vector: the choice's, or by policy. */
static strata_status take_paths(strata__layout_problem *p, const strata__layout_spec *spec,
                                const uint8_t *paths, strata__layout_work *w)
{
    uint64_t cells = (uint64_t)w->layer_count * w->band_count;
    strata_status status = STRATA_OK;
    w->paths = take(p->allocator, cells, 1, &status);
    w->reasons = take(p->allocator, cells, 1, &status);
    w->config_of = take(p->allocator, cells, sizeof *w->config_of, &status);
    if (status == STRATA_OK)
        status = strata__layout_paths_choose(p, spec, w->paths, w->reasons);
    if (status != STRATA_OK || !paths)
        return status;
    status = strata__layout_paths_check(p, spec, paths);
    if (status == STRATA_OK)
        memcpy(w->paths, paths, cells);
    return status;
}

/* Fills configuration `index`, whose buffers are at `first` of the work's buffers. */
static void fill_config(const strata__layout_problem *p, const strata__layout_spec *spec,
                        strata__layout_work *w, uint32_t index, uint32_t first)
{
    const strata__layout_key *key = index < w->edge_config ? &p->keys[index] : NULL;
    strata__layout_buffer buffers[STRATA__DEMANDS_MAX];
    strata__layout_config *c = &w->configs[index];
    c->buffer_count = strata__layout_config_place(p, spec, key, buffers, &c->bytes);
    c->path = key ? key->path : (uint32_t)STRATA__LAYOUT_PATH_NONE;
    c->band = key ? key->band : spec->band_count - 1;
    c->rows = spec->band_rows[c->band];
    c->first_layer = w->layer_count;
    if (w->arena_bytes < c->bytes)
        w->arena_bytes = c->bytes;
    if (!w->buffers)
        return;
    c->buffers = &w->buffers[first];
    for (uint32_t i = 0; i < c->buffer_count; ++i) {
        c->buffers[i] = buffers[i];
        c->buffers[i].offset += w->arena_offset;
    }
}

static uint32_t fill_configs(const strata__layout_problem *p, const strata__layout_spec *spec,
                             strata__layout_work *w)
{
    uint32_t first = 0;
    for (uint32_t i = 0; i < w->config_count; ++i) {
        fill_config(p, spec, w, i, first);
        first += w->configs[i].buffer_count;
    }
    for (uint32_t i = w->layer_count * w->band_count; i-- > 0;)
        w->configs[w->config_of[i]].first_layer = i / w->band_count;
    return first;
}

/* As many rows of logits as make the arena no larger. */
static void grow_logits(strata__layout_problem *p, const uint8_t *paths, strata__layout_spec *spec)
{
    strata__layout_buffer buffers[STRATA__DEMANDS_MAX];
    uint64_t arena = strata__layout_arena_bytes(p, spec, paths, false), bytes = UINT64_MAX;
    for (uint32_t rows = 2 * MOST_LOGIT_ROWS; rows > 1 && bytes > arena;) {
        rows /= 2;
        spec->logit_tile = tile(rows, spec->chunk);
        strata__layout_config_place(p, spec, NULL, buffers, &bytes);
    }
}

static strata_status build_work(strata__layout_problem *p, strata__layout_spec *spec,
                                const uint8_t *paths, strata__carver *carver,
                                strata__layout_work *w)
{
    strata_status status;
    copy_spec(w, p, spec);
    status = take_paths(p, spec, paths, w);
    if (status != STRATA_OK)
        return status;
    if (spec->logit_tile == 0)
        grow_logits(p, w->paths, spec);
    w->logit_tile = spec->logit_tile;
    w->edge_config = strata__layout_keys(p, spec, w->paths, w->config_of);
    w->config_count = w->edge_config + 1;
    w->configs = take(p->allocator, w->config_count, sizeof *w->configs, &status);
    w->persistent = take(p->allocator, STRATA__DEMANDS_MAX, sizeof *w->persistent, &status);
    if (status != STRATA_OK)
        return status;
    w->buffer_count = fill_configs(p, spec, w);
    w->buffers = take(p->allocator, w->buffer_count, sizeof *w->buffers, &status);
    if (status != STRATA_OK)
        return status;
    w->persistent_count =
        strata__layout_place_work(p, spec, w->arena_bytes, carver, w->persistent, &w->arena_offset);
    fill_configs(p, spec, w);
    return STRATA_OK;
}

/*
 * Bands are brought in the way that is best for `copies`; where all experts are on the device, for
 * the prompts of a session that has come to lack them.
 */
static void predict(const strata__layout_problem *p, const strata__layout_spec *spec,
                    const strata__layout_copies *copies, strata__layout_times *times,
                    strata__layout *layout)
{
    static const uint32_t none[STRATA__MAX_LAYERS];
    const strata__layout_buffer *ring = strata__layout_find_ring(layout);
    strata__layout_copies lacking = *copies;
    uint32_t fetch[STRATA__LAYOUT_MAX_BANDS];
    strata__layout_work *w = &layout->prompt;
    if (!spec->ring_bytes && ring) {
        lacking.resident = none;
        lacking.ring_bytes = ring->bytes;
        lacking.tail_bytes = ring->bytes / 2;
    }
    strata__layout_times_bands(times, p, spec, w->paths);
    strata__layout_predict(p, times, &lacking, fetch);
    for (uint32_t i = 0; i < spec->band_count; ++i)
        w->bands[i].fetch = fetch[i];
    strata__layout_times_init(times, p, spec, w->paths);
    layout->prediction = strata__layout_predict(p, times, copies, NULL);
    strata__layout_predict(p, times, &lacking, fetch);
    for (uint32_t i = 0; i < times->step_count; ++i)
        w->bands[times->steps[i].band].fetch = fetch[times->steps[i].band];
}

static strata_status allocate(strata__layout_problem *p, strata__layout **out)
{
    strata_status status = STRATA_OK;
    strata__layout *layout = take(p->allocator, 1, sizeof *layout, &status);
    uint8_t *layer_paths = NULL;
    *out = layout;
    if (!layout)
        return status;
    layout->allocator = p->allocator;
    layout->facts = p->facts;
    layout->request = p->request;
    layout->layer_count = p->geometry.layer_count;
    layout->tensor_count = p->geometry.tensor_count;
    if (p->request.layer_paths)
        layer_paths = take(p->allocator, layout->layer_count, 1, &status);
    if (layer_paths)
        memcpy(layer_paths, p->request.layer_paths, layout->layer_count);
    layout->request.layer_paths = layer_paths;
    layout->layers = take(p->allocator, layout->layer_count, sizeof *layout->layers, &status);
    layout->tensor_offsets =
        take(p->allocator, layout->tensor_count, sizeof *layout->tensor_offsets, &status);
    layout->session_buffers =
        take(p->allocator, STRATA__DEMANDS_MAX, sizeof *layout->session_buffers, &status);
    layout->host_buffers =
        take(p->allocator, STRATA__DEMANDS_MAX, sizeof *layout->host_buffers, &status);
    layout->prompt.host = layout->host_buffers;
    return status;
}

static void copy_request(const strata__layout_problem *p, const strata__layout_spec *spec,
                         strata__layout *layout)
{
    const strata__layout_request *r = &p->request;
    layout->alignment_bytes = p->facts.alignment_bytes;
    layout->sequences = r->sequences;
    layout->page_tokens = r->page_tokens;
    layout->kv_format = r->kv_format;
    layout->pages_per_sequence = p->pages_per_sequence;
    layout->pages_total = p->pages_total;
    layout->context_tokens = r->context_tokens;
    layout->prompt_tokens = r->prompt_tokens;
    layout->budget_bytes = p->budget_bytes;
    layout->chunk_count = (uint32_t)strata__divide_up_u64(r->prompt_tokens, spec->chunk);
    layout->scratch_bytes = spec->scratch_bytes;
    layout->ring_bytes = spec->ring_bytes;
}

static strata_status build_decode_host(const strata__layout_problem *p, strata__layout_work *w)
{
    strata_status status = STRATA_OK;
    strata__layout_host host;
    w->host_bytes = strata__layout_place_decode_host(p, &host);
    w->host_count = host.buffer_count;
    w->host = take(p->allocator, STRATA__DEMANDS_MAX, sizeof *w->host, &status);
    if (w->host)
        memcpy(w->host, host.buffers, host.buffer_count * sizeof host.buffers[0]);
    return status;
}

/* Regions: the prompt's first, because a loan of its size is part of the session's. */
static strata_status build_regions(strata__layout_problem *p, strata__layout_spec *spec,
                                   const strata__layout_choice *choice, const uint32_t *resident,
                                   strata__layout *layout)
{
    strata__carver prompt = {.alignment = p->facts.alignment_bytes}, session = prompt;
    strata__layout_spec decode;
    strata_status status = build_work(p, spec, choice->paths, &prompt, &layout->prompt);
    if (status != STRATA_OK)
        return status;
    strata__layout_place_session(p, &session, layout);
    if (p->request.decode_rows) {
        strata__layout_decode_spec(p, &decode);
        status = build_work(p, &decode, NULL, &session, &layout->decode);
        if (status == STRATA_OK)
            status = build_decode_host(p, &layout->decode);
        if (status != STRATA_OK)
            return status;
    }
    layout->prompt_bytes = prompt.end;
    strata__layout_place_cache(p, resident, p->request.borrow ? prompt.end : 0, &session, layout);
    layout->session_bytes = session.end;
    layout->device_bytes = session.end;
    if (!p->request.borrow) {
        strata__layout_carve(&session, prompt.end);
        layout->device_bytes = session.end;
    }
    if (session.end == UINT64_MAX)
        return strata__fail(STRATA_ERR_INVALID_ARGUMENT,
                            "weights, pages and experts together exceed 64 bits of bytes");
    return STRATA_OK;
}

static strata_status build_host(const strata__layout_problem *p, const strata__layout_spec *spec,
                                const uint32_t *resident, strata__layout_host *host,
                                strata__layout *layout)
{
    strata__layout_times *times;
    strata__layout_copies copies = {.resident = resident,
                                    .ring_bytes = spec->ring_bytes,
                                    .group_bytes = layout->group_bytes,
                                    .tail_bytes = spec->ring_bytes / 2,
                                    .refill_bytes = 0};
    uint64_t missing = strata__layout_missing_bytes(p, resident);
    strata_status status = STRATA_OK;
    strata__layout_place_host(p, spec, missing, layout->group_bytes, host);
    copies.seconds_per_byte = host->seconds_per_byte;
    copies.refill_bytes = layout->loan_bytes < missing ? layout->loan_bytes : missing;
    layout->host_bytes = host->bytes;
    layout->pinned_bytes = host->pinned_bytes;
    layout->staged_bytes = host->staged_bytes;
    layout->host_buffer_count = host->buffer_count;
    memcpy(layout->host_buffers, host->buffers, host->buffer_count * sizeof host->buffers[0]);
    layout->prompt.host_count = host->buffer_count;
    layout->prompt.host_bytes = host->bytes;
    times = take(p->allocator, 1, sizeof *times, &status);
    if (!times)
        return status;
    predict(p, spec, &copies, times, layout);
    strata__free(p->allocator, times, sizeof *times);
    return STRATA_OK;
}

/* Two groups fit the ring, also where all experts are on the device and it is that of decoding. */
static void set_group(strata__layout *layout, uint64_t group_bytes)
{
    const strata__layout_buffer *ring = strata__layout_find_ring(layout);
    layout->group_bytes = group_bytes ? group_bytes : strata__layout_default_group_bytes();
    if (!layout->ring_bytes && ring && layout->group_bytes > ring->bytes / 2)
        layout->group_bytes = ring->bytes / 2;
}

static void fill_groups(const strata__layout_problem *p, strata__layout *layout)
{
    for (uint32_t i = 0; i < layout->layer_count; ++i) {
        strata__layout_place *place = &layout->layers[i];
        uint32_t experts = p->geometry.layers[i].expert_width ? p->geometry.experts : 0;
        if (p->copies && place->resident_count < experts)
            place->group_experts = strata__layout_group_experts(p, i, layout->group_bytes);
    }
}

strata_status strata__layout_build_problem(strata__layout_problem *problem,
                                           const strata__layout_choice *choice,
                                           strata__layout **out)
{
    uint32_t resident[STRATA__MAX_LAYERS];
    strata__layout_spec spec;
    strata__layout_host host;
    strata__layout *layout = NULL;
    strata_status status;
    *out = NULL;
    status = strata__layout_policy_check(problem);
    if (status == STRATA_OK)
        status = strata__layout_spec_init(problem, choice, &spec, resident);
    if (status != STRATA_OK)
        return status;
    status = allocate(problem, &layout);
    if (status == STRATA_OK) {
        /* Rows of logits take page-locked memory, which may be short. */
        if (choice->logit_tile == 0 && problem->host_budget_bytes == UINT64_MAX)
            spec.logit_tile = 0;
        copy_request(problem, &spec, layout);
        status = build_regions(problem, &spec, choice, resident, layout);
    }
    if (status == STRATA_OK) {
        set_group(layout, choice->group_bytes);
        status = build_host(problem, &spec, resident, &host, layout);
    }
    if (status == STRATA_OK) {
        fill_groups(problem, layout);
        *out = layout;
        return STRATA_OK;
    }
    strata__layout_destroy(layout);
    return status;
}

strata_status strata__layout_build(const strata__allocator *allocator,
                                   const strata__layout_input *input,
                                   const strata__layout_choice *choice, strata__layout **out)
{
    strata_status status = STRATA_OK;
    strata__layout_problem *problem = take(allocator, 1, sizeof *problem, &status);
    *out = NULL;
    if (!problem)
        return status;
    status = strata__layout_problem_init(problem, allocator, input);
    if (status == STRATA_OK)
        status = strata__layout_build_problem(problem, choice, out);
    strata__free(allocator, problem, sizeof *problem);
    return status;
}
