/* SPDX-License-Identifier: MIT */
/*
 * A layout as bytes, little-endian:
 *
 *   magic, version, size | fingerprint, layers, bands | request | facts | choice | totals
 *   | flag and [layers] policy exceptions | [layers] residents, rates of the paths
 *   | [layers][bands] paths | checksum
 *
 * Offsets are not stored: the tables are built again, and the totals must come out the same.
 */
#include <stddef.h>
#include <string.h>

#include "base/error.h"
#include "layout/layout.h"

static const char magic[8] = {'S', 'T', 'R', 'A', 'T', 'A', 'P', 'L'};

enum { VERSION = 3, MAX_BYTES = 1 << 16 };

/* A number of a structure: 4 or 8 bytes. */
typedef struct field {
    uint16_t offset;
    uint16_t bytes;
} field;

#define FIELD(type, member)                                                                        \
    {                                                                                              \
        offsetof(type, member), sizeof(((type *)0)->member)                                        \
    }
#define COUNT(array) (sizeof(array) / sizeof(array)[0])

#define R(member)    FIELD(strata__layout_request, member)
static const field request_fields[] = {
    R(device_budget_bytes),
    R(host_budget_bytes),
    R(context_tokens),
    R(prompt_tokens),
    R(chunk_tokens),
    R(sequences),
    R(page_tokens),
    R(kv_format),
    R(experts),
    R(expert_source),
    R(path),
    R(decode_rows),
    R(kv_tokens),
    R(borrow),
};

#define F(member) FIELD(strata__layout_facts, member)
static const field facts_fields[] = {
    F(compute_capability),
    F(host_addressable),
    F(activation_bytes),
    F(row_scale_bytes),
    F(decode_bytes_per_value),
    F(gate_up_paths),
    F(memory_bytes),
    F(shared_memory_bytes),
    F(alignment_bytes),
    F(coverage[0]),
    F(coverage[1]),
    F(coverage[2]),
    F(coverage[3]),
    F(attention_scratch_bytes_per_row),
    F(attention_split_keys),
    F(group_scratch_bytes_per_expert),
    F(group_scratch_bytes_fixed),
    F(link_bytes_per_second),
    F(link_latency_seconds),
    F(staging_bytes_per_second),
    F(memory_bytes_per_second),
    F(launch_seconds),
    F(dense_flops),
    F(attention_flops),
    F(path_flops[0]),
    F(path_flops[1]),
    F(path_flops[2]),
    F(path_flops[3]),
    F(path_half_rows[0]),
    F(path_half_rows[1]),
    F(path_half_rows[2]),
    F(path_half_rows[3]),
    F(round_outputs),
};

#define C(member) FIELD(strata__layout_choice, member)
static const field choice_fields[] = {
    C(chunk_tokens), C(dense_tile),    C(attention_tile), C(expert_tile),
    C(logit_tile),   C(scratch_bytes), C(ring_bytes),     C(group_bytes),
};

#define P(member) FIELD(strata__layout_place, member)
static const field place_fields[] = {
    P(resident_count),    P(path_flops[0]),     P(path_flops[1]),
    P(path_flops[2]),     P(path_flops[3]),     P(path_half_rows[0]),
    P(path_half_rows[1]), P(path_half_rows[2]), P(path_half_rows[3]),
};

/* What the tables must come to. */
typedef struct totals {
    uint64_t session_bytes;
    uint64_t prompt_bytes;
    uint64_t host_bytes;
} totals;

#define T(member) FIELD(totals, member)
static const field totals_fields[] = {T(session_bytes), T(prompt_bytes), T(host_bytes)};

/* Reading or writing position; a read beyond the end gives zeros and is remembered. */
typedef struct cursor {
    uint8_t *to; /* NULL: only counting */
    const uint8_t *from;
    uint64_t at;
    uint64_t bytes;
    bool beyond;
} cursor;

static void put(cursor *c, const void *data, uint64_t bytes)
{
    if (c->to)
        memcpy(c->to + c->at, data, bytes);
    c->at += bytes;
}

static void put_number(cursor *c, uint64_t value, uint32_t bytes)
{
    uint8_t little[8];
    for (uint32_t i = 0; i < bytes; ++i)
        little[i] = (uint8_t)(value >> 8 * i);
    put(c, little, bytes);
}

static void put_fields(cursor *c, const void *structure, const field *fields, uint64_t count)
{
    for (uint64_t i = 0; i < count; ++i) {
        const uint8_t *at = (const uint8_t *)structure + fields[i].offset;
        uint32_t small;
        uint64_t large = 0;
        if (fields[i].bytes == 4) {
            memcpy(&small, at, 4);
            large = small;
        } else {
            memcpy(&large, at, 8);
        }
        put_number(c, large, fields[i].bytes);
    }
}

static const void *get(cursor *c, uint64_t bytes)
{
    static const uint8_t zeros[STRATA__MAX_LAYERS * 4];
    const void *at = c->from + c->at;
    if (bytes > c->bytes - c->at) {
        c->beyond = true;
        return zeros;
    }
    c->at += bytes;
    return at;
}

static uint64_t get_number(cursor *c, uint32_t bytes)
{
    const uint8_t *little = get(c, bytes);
    uint64_t value = 0;
    for (uint32_t i = bytes; i-- > 0;)
        value = value << 8 | little[i];
    return value;
}

static void get_fields(cursor *c, void *structure, const field *fields, uint64_t count)
{
    for (uint64_t i = 0; i < count; ++i) {
        uint8_t *at = (uint8_t *)structure + fields[i].offset;
        uint64_t large = get_number(c, fields[i].bytes);
        uint32_t small = (uint32_t)large;
        if (fields[i].bytes == 4)
            memcpy(at, &small, 4);
        else
            memcpy(at, &large, 8);
    }
}

/* FNV-1a (Fowler, Noll, Vo). */
static uint64_t checksum(const uint8_t *data, uint64_t bytes)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (uint64_t i = 0; i < bytes; ++i)
        hash = (hash ^ data[i]) * 0x100000001b3u;
    return hash;
}

static strata__layout_choice choice_of(const strata__layout *layout)
{
    const strata__layout_work *w = &layout->prompt;
    return (strata__layout_choice){.chunk_tokens = w->chunk_tokens,
                                   .dense_tile = w->dense_tile,
                                   .attention_tile = w->attention_tile,
                                   .expert_tile = w->expert_tile,
                                   .logit_tile = w->logit_tile,
                                   .scratch_bytes = layout->scratch_bytes,
                                   .ring_bytes = layout->ring_bytes,
                                   .group_bytes = layout->group_bytes};
}

static void put_body(cursor *c, const strata__layout *layout, uint64_t fingerprint)
{
    const uint8_t *exceptions = layout->request.layer_paths;
    strata__layout_choice choice = choice_of(layout);
    totals sums = {layout->session_bytes, layout->prompt_bytes, layout->host_bytes};
    put_number(c, fingerprint, 8);
    put_number(c, layout->layer_count, 4);
    put_number(c, layout->prompt.band_count, 4);
    put_fields(c, &layout->request, request_fields, COUNT(request_fields));
    put_fields(c, &layout->facts, facts_fields, COUNT(facts_fields));
    put_fields(c, &choice, choice_fields, COUNT(choice_fields));
    put_fields(c, &sums, totals_fields, COUNT(totals_fields));
    put_number(c, exceptions != NULL, 1);
    if (exceptions)
        put(c, exceptions, layout->layer_count);
    for (uint32_t i = 0; i < layout->layer_count; ++i)
        put_fields(c, &layout->layers[i], place_fields, COUNT(place_fields));
    put(c, layout->prompt.paths, (uint64_t)layout->layer_count * layout->prompt.band_count);
}

uint64_t strata__layout_save(const strata__layout *layout, uint64_t fingerprint, void *out,
                             uint64_t capacity)
{
    cursor c = {0};
    uint64_t bytes;
    put_body(&c, layout, fingerprint);
    bytes = sizeof magic + 8 + c.at + 8;
    if (bytes > capacity)
        return bytes;
    c = (cursor){.to = out};
    put(&c, magic, sizeof magic);
    put_number(&c, VERSION, 4);
    put_number(&c, bytes, 4);
    put_body(&c, layout, fingerprint);
    put_number(&c, checksum(out, c.at), 8);
    return bytes;
}

static strata_status check_frame(cursor *c, const void *data, uint64_t bytes)
{
    uint32_t version, size;
    uint64_t sum;
    *c = (cursor){.from = data, .bytes = bytes};
    if (bytes < sizeof magic + 16 || bytes > MAX_BYTES ||
        memcmp(get(c, sizeof magic), magic, sizeof magic) != 0)
        return strata__fail(STRATA_ERR_FORMAT, "not a saved plan");
    version = (uint32_t)get_number(c, 4);
    if (version != VERSION)
        return strata__fail(STRATA_ERR_UNSUPPORTED,
                            "a saved plan of version %u; version %u is read", version, VERSION);
    size = (uint32_t)get_number(c, 4);
    if (size != bytes)
        return strata__fail(STRATA_ERR_FORMAT, "a saved plan of %u bytes has %llu", size,
                            (unsigned long long)bytes);
    c->at = bytes - 8;
    sum = get_number(c, 8);
    c->at = sizeof magic + 8;
    c->bytes = bytes - 8;
    if (sum != checksum(data, c->bytes))
        return strata__fail(STRATA_ERR_FORMAT, "a saved plan's checksum does not match");
    return STRATA_OK;
}

/* All numbers of a saved plan; arrays stay in its bytes but for the residents. */
typedef struct saved {
    strata__layout_input input;
    strata__layout_choice choice;
    totals sums;
    uint32_t resident[STRATA__MAX_LAYERS];
    strata__layout_layer *layers; /* of the geometry, with rates of the plan */
} saved;

static strata_status read_saved(cursor *c, uint64_t fingerprint, saved *out)
{
    uint64_t pack = get_number(c, 8);
    uint32_t layers = (uint32_t)get_number(c, 4), bands = (uint32_t)get_number(c, 4);
    if (pack != fingerprint || layers != out->input.geometry.layer_count ||
        layers > STRATA__MAX_LAYERS)
        return strata__fail(STRATA_ERR_INVALID_ARGUMENT, "the saved plan is that of another pack");
    get_fields(c, &out->input.request, request_fields, COUNT(request_fields));
    get_fields(c, &out->input.facts, facts_fields, COUNT(facts_fields));
    get_fields(c, &out->choice, choice_fields, COUNT(choice_fields));
    get_fields(c, &out->sums, totals_fields, COUNT(totals_fields));
    if (get_number(c, 1))
        out->input.request.layer_paths = get(c, layers);
    for (uint32_t i = 0; i < layers; ++i) {
        strata__layout_place place = {0};
        get_fields(c, &place, place_fields, COUNT(place_fields));
        out->resident[i] = place.resident_count;
        memcpy(out->layers[i].path_flops, place.path_flops, sizeof place.path_flops);
        memcpy(out->layers[i].path_half_rows, place.path_half_rows, sizeof place.path_half_rows);
    }
    if (bands != strata__layout_band_count(out->choice.chunk_tokens))
        return strata__fail(STRATA_ERR_FORMAT, "a saved plan with %u bands for chunks of %u", bands,
                            out->choice.chunk_tokens);
    out->choice.resident = out->resident;
    out->choice.paths = get(c, (uint64_t)layers * bands);
    if (c->beyond || c->at != c->bytes)
        return strata__fail(STRATA_ERR_FORMAT, "a saved plan has the wrong length");
    return STRATA_OK;
}

static strata_status check_totals(const strata__layout *layout, const totals *sums)
{
    if (layout->device_bytes > layout->budget_bytes)
        return strata__fail(STRATA_ERR_FORMAT, "a saved plan of %llu device bytes for %llu",
                            (unsigned long long)layout->device_bytes,
                            (unsigned long long)layout->budget_bytes);
    if (layout->session_bytes == sums->session_bytes &&
        layout->prompt_bytes == sums->prompt_bytes && layout->host_bytes == sums->host_bytes)
        return STRATA_OK;
    return strata__fail(
        STRATA_ERR_FORMAT,
        "a saved plan of %llu and %llu device bytes and %llu host bytes comes to %llu, %llu and "
        "%llu here",
        (unsigned long long)sums->session_bytes, (unsigned long long)sums->prompt_bytes,
        (unsigned long long)sums->host_bytes, (unsigned long long)layout->session_bytes,
        (unsigned long long)layout->prompt_bytes, (unsigned long long)layout->host_bytes);
}

/* With a copy of the layers in `plan`. */
static strata_status load(const strata__allocator *allocator, saved *plan, uint64_t fingerprint,
                          const void *data, uint64_t bytes, strata__layout **out)
{
    cursor c;
    strata_status status = check_frame(&c, data, bytes);
    if (status == STRATA_OK)
        status = read_saved(&c, fingerprint, plan);
    if (status == STRATA_OK)
        status = strata__layout_build(allocator, &plan->input, &plan->choice, out);
    return status == STRATA_OK ? check_totals(*out, &plan->sums) : status;
}

strata_status strata__layout_load(const strata__allocator *allocator,
                                  const strata__layout_geometry *geometry, uint64_t fingerprint,
                                  const void *data, uint64_t bytes, strata__layout **out)
{
    saved plan = {.input.geometry = *geometry};
    uint64_t layer_bytes = geometry->layer_count * sizeof *plan.layers;
    strata__layout *layout = NULL;
    strata_status status;
    *out = NULL;
    plan.layers = strata__alloc(allocator, layer_bytes);
    if (!plan.layers)
        return strata__fail_memory(layer_bytes, "a saved plan's layers");
    memcpy(plan.layers, geometry->layers, layer_bytes);
    plan.input.geometry.layers = plan.layers;
    status = load(allocator, &plan, fingerprint, data, bytes, &layout);
    strata__free(allocator, plan.layers, layer_bytes);
    if (status != STRATA_OK) {
        strata__layout_destroy(layout);
        return status;
    }
    *out = layout;
    return STRATA_OK;
}
