/* SPDX-License-Identifier: MIT */
#include "simulate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { GUARD_BYTES = 4096, GUARD = 0xa5, DECODE_ROWS = 128, DECODE_VALUES = 64 };

/* What was written of a buffer: all its bytes from `first` to `end` are the tag. */
typedef struct content {
    uint64_t first;
    uint64_t end;
    uint8_t tag;
} content;

struct simulation {
    const layout_fixture *f;
    const strata__layout *layout;
    const strata__layout_work *work;
    uint8_t *memory;
    uint8_t *base; /* of the region */
    uint64_t region_bytes;
    uint64_t *reached; /* [configs][BUFFER_COUNT] bytes */
    uint8_t next_tag;
    content contents[STRATA__BUFFER_COUNT];
    /* of the launch at hand */
    const strata__layout_layer *layer;
    strata__layout_launch launch;
    uint32_t rows;
    uint32_t path;
};

simulation *simulation_make(const layout_fixture *f, const strata__layout *layout,
                            const strata__layout_work *work, uint64_t region_bytes)
{
    simulation *s = calloc(1, sizeof *s);
    assert_non_null(s);
    s->f = f;
    s->layout = layout;
    s->work = work;
    s->region_bytes = region_bytes;
    s->memory = malloc(region_bytes + 2 * GUARD_BYTES);
    s->reached = calloc((uint64_t)work->config_count * STRATA__BUFFER_COUNT, sizeof *s->reached);
    assert_non_null(s->memory);
    assert_non_null(s->reached);
    memset(s->memory, GUARD, region_bytes + 2 * GUARD_BYTES);
    s->base = s->memory + GUARD_BYTES;
    return s;
}

void simulation_free(simulation *s)
{
    free(s->reached);
    free(s->memory);
    free(s);
}

static const strata__layout_buffer *buffer_of(simulation *s, uint32_t id, uint64_t rows)
{
    const strata__layout_buffer *b = strata__layout_find(s->work, s->launch.config, id);
    fixture_ok(strata__layout_check(s->work, &s->launch, id, rows));
    return b ? b : strata__layout_find_work(s->work, id);
}

/* Writes `bytes` bytes from byte `at` of a buffer on, for `rows` rows up to there. */
static void write_bytes(simulation *s, uint32_t id, uint64_t rows, uint64_t at, uint64_t bytes)
{
    const strata__layout_buffer *b;
    content *c = &s->contents[id];
    uint64_t *reached = &s->reached[s->launch.config * STRATA__BUFFER_COUNT + id];
    if (bytes == 0)
        return;
    b = buffer_of(s, id, rows);
    assert_non_null(b);
    assert_true(b->offset + at + bytes <= s->region_bytes);
    if (at == 0) {
        s->next_tag = s->next_tag == 255 ? 1 : s->next_tag + 1;
        *c = (content){.tag = s->next_tag};
    }
    assert_int_equal(at, c->end); /* tiles follow one another */
    memset(s->base + b->offset + at, c->tag, bytes);
    c->end = at + bytes;
    if (c->end > *reached)
        *reached = c->end;
}

/* Rows [first, first + rows) of a buffer. */
static void put(simulation *s, uint32_t id, uint64_t first, uint64_t rows, uint64_t row_bytes)
{
    write_bytes(s, id, first + rows, first * row_bytes, rows * row_bytes);
}

/* What a reader needs: rows [0, rows). */
static void need(simulation *s, uint32_t id, uint64_t rows, uint64_t row_bytes)
{
    const strata__layout_buffer *b;
    const content *c = &s->contents[id];
    if (rows * row_bytes == 0)
        return;
    b = buffer_of(s, id, rows);
    assert_true(c->end >= rows * row_bytes);
    for (uint64_t i = 0; i < rows * row_bytes; ++i)
        if (s->base[b->offset + i] != c->tag)
            fail_msg("layer %u, path %s, %u rows: byte %llu of %s was overwritten", s->launch.layer,
                     strata__layout_path_name(s->path), s->rows, (unsigned long long)i,
                     strata__layout_buffer_name(id));
}

/*
 * Decoded weights, in blocks of 64 values: as many of `total` rows as the scratch has, 128 at
 * least.
 */
static void scratch(simulation *s, uint32_t id, uint64_t total, uint64_t values)
{
    uint64_t whole = (values + DECODE_VALUES - 1) / DECODE_VALUES * DECODE_VALUES;
    uint64_t row_bytes = whole * s->f->input.facts.decode_bytes_per_value;
    const strata__layout_buffer *b = strata__layout_find(s->work, s->launch.config, id);
    uint64_t rows = (total + DECODE_ROWS - 1) / DECODE_ROWS * DECODE_ROWS;
    assert_non_null(b);
    if (rows > b->bytes / row_bytes)
        rows = b->bytes / row_bytes / DECODE_ROWS * DECODE_ROWS;
    assert_true(rows >= DECODE_ROWS);
    write_bytes(s, id, 1, 0, rows * row_bytes);
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t activation(const simulation *s, uint64_t values)
{
    return values * s->f->input.facts.activation_bytes;
}

static uint64_t scale(const simulation *s)
{
    return s->f->input.facts.row_scale_bytes;
}

/* int8 codes, then float32 scales and as many sums, one for every 32, each in whole 16 bytes */
static uint64_t quantised(uint64_t values)
{
    uint64_t codes = values % 16 ? values + 16 - values % 16 : values;
    uint64_t scales = (values + 31) / 32 * 4;
    return codes + 2 * (scales % 16 ? scales + 16 - scales % 16 : scales);
}

/* A row's scratch: partial sums of each span of keys where decoding splits them. */
static uint64_t attention_scratch(const simulation *s)
{
    uint64_t tokens = (uint64_t)s->layout->pages_per_sequence * s->layout->page_tokens;
    uint64_t begin = 0, spans = 0, keys = s->f->input.facts.attention_split_keys;
    if (s->work == &s->layout->prompt || !keys)
        return s->f->input.facts.attention_scratch_bytes_per_row * s->layer->heads;
    for (; begin < tokens; ++spans)
        begin += spans < 64 ? keys : keys << 2 * (1 + (spans - 64) / 48);
    return spans * s->layer->heads * (s->layer->head_size + 4) * 4;
}

static void attention_tile(simulation *s, uint32_t first, uint32_t rows)
{
    const strata__layout_geometry *g = &s->f->input.geometry;
    const strata__layout_layer *l = s->layer;
    uint64_t q = (uint64_t)l->heads * l->head_size;
    uint64_t per_row = attention_scratch(s);
    uint32_t streams = g->residual_streams;
    if (streams > 1)
        put(s, STRATA__BUFFER_STREAM_SCALES, first, rows, 4 * streams);
    if (streams > 1 && !g->fused_residual_read)
        put(s, STRATA__BUFFER_STREAM_NORM, 0, rows, 4ull * streams * g->width);
    put(s, STRATA__BUFFER_ATTENTION_XN, 0, rows, activation(s, g->width));
    put(s, STRATA__BUFFER_ATTENTION_XN_SCALE, 0, rows, scale(s));
    put(s, STRATA__BUFFER_ATTENTION_INV_RMS, 0, rows, 4);

    scratch(s, STRATA__BUFFER_QKV_SCRATCH, q + 2ull * l->kv_heads * l->head_size, g->width);
    put(s, STRATA__BUFFER_QKV, 0, rows, 4 * (q + 2ull * l->kv_heads * l->head_size));
    need(s, STRATA__BUFFER_ATTENTION_XN, rows, activation(s, g->width));
    need(s, STRATA__BUFFER_ATTENTION_XN_SCALE, rows, scale(s));

    put(s, STRATA__BUFFER_Q, 0, rows, activation(s, q));
    put(s, STRATA__BUFFER_Q_SCALE, 0, rows, scale(s));
    need(s, STRATA__BUFFER_QKV, rows, 4 * (q + 2ull * l->kv_heads * l->head_size));

    for (uint32_t at = 0; at < rows; at += s->work->attention_tile) {
        uint32_t n = rows - at < s->work->attention_tile ? rows - at : s->work->attention_tile;
        put(s, STRATA__BUFFER_ATTENTION_SCRATCH, 0, n, per_row);
        put(s, STRATA__BUFFER_ATTENTION_OUT, at, n, activation(s, q));
        put(s, STRATA__BUFFER_ATTENTION_OUT_SCALE, at, n, scale(s));
        need(s, STRATA__BUFFER_Q, rows, activation(s, q));
        need(s, STRATA__BUFFER_Q_SCALE, rows, scale(s));
        need(s, STRATA__BUFFER_ATTENTION_SCRATCH, n, per_row);
    }
    scratch(s, STRATA__BUFFER_OUT_SCRATCH, g->width, q);
    need(s, STRATA__BUFFER_ATTENTION_OUT, rows, activation(s, q));
    need(s, STRATA__BUFFER_ATTENTION_OUT_SCALE, rows, scale(s));
}

/* Gate, up, activation and down of a dense or shared part; its input is checked by the caller. */
static void dense_part(simulation *s, uint32_t rows, uint64_t inner)
{
    uint64_t width = s->f->input.geometry.width;
    scratch(s, STRATA__BUFFER_DENSE_SCRATCH, larger(width, inner), larger(width, inner));
    put(s, STRATA__BUFFER_DENSE_GATE_UP, 0, rows, 8 * inner);
    put(s, STRATA__BUFFER_DENSE_H, 0, rows, activation(s, inner));
    put(s, STRATA__BUFFER_DENSE_H_SCALE, 0, rows, scale(s));
    need(s, STRATA__BUFFER_DENSE_GATE_UP, rows, 8 * inner);
    need(s, STRATA__BUFFER_DENSE_SCRATCH, 1, 1);
    scratch(s, STRATA__BUFFER_DENSE_SCRATCH, larger(width, inner), larger(width, inner));
    need(s, STRATA__BUFFER_DENSE_H, rows, activation(s, inner));
    need(s, STRATA__BUFFER_DENSE_H_SCALE, rows, scale(s));
}

static void dense_tile(simulation *s, uint32_t rows)
{
    uint64_t width = s->f->input.geometry.width;
    put(s, STRATA__BUFFER_FFN_XN, 0, rows, activation(s, width));
    put(s, STRATA__BUFFER_FFN_XN_SCALE, 0, rows, scale(s));
    put(s, STRATA__BUFFER_FFN_INV_RMS, 0, rows, 4);
    need(s, STRATA__BUFFER_FFN_XN, rows, activation(s, width));
    dense_part(s, rows, s->layer->ffn_width);
}

static void router_tile(simulation *s, uint32_t first, uint32_t rows)
{
    const strata__layout_geometry *g = &s->f->input.geometry;
    put(s, STRATA__BUFFER_FFN_XN, first, rows, activation(s, g->width));
    put(s, STRATA__BUFFER_FFN_XN_SCALE, first, rows, scale(s));
    put(s, STRATA__BUFFER_FFN_INV_RMS, first, rows, 4);
    scratch(s, STRATA__BUFFER_ROUTER_SCRATCH, g->experts, g->width);
    put(s, STRATA__BUFFER_ROUTER_LOGITS, 0, rows, 4ull * g->experts);
    need(s, STRATA__BUFFER_FFN_INV_RMS, first + rows, 4);
    put(s, STRATA__BUFFER_EXPERT_IDS, first, rows, 4ull * g->top_k);
    put(s, STRATA__BUFFER_EXPERT_WEIGHTS, first, rows, 4ull * g->top_k);
    need(s, STRATA__BUFFER_ROUTER_LOGITS, rows, 4ull * g->experts);
}

static void group_rows(simulation *s)
{
    const strata__layout_geometry *g = &s->f->input.geometry;
    const strata__layout_facts *f = &s->f->input.facts;
    uint64_t bytes = f->group_scratch_bytes_fixed + f->group_scratch_bytes_per_expert * g->experts;
    put(s, STRATA__BUFFER_GROUP_SCRATCH, 0, 1, bytes);
    put(s, STRATA__BUFFER_OFFSETS, 0, 1, 4ull * (g->experts + 1));
    put(s, STRATA__BUFFER_SORTED_ROW, 0, (uint64_t)s->rows * g->top_k, 4);
    put(s, STRATA__BUFFER_SORTED_INDEX, 0, s->rows, 4ull * g->top_k);
    need(s, STRATA__BUFFER_EXPERT_IDS, s->rows, 4ull * g->top_k);
    need(s, STRATA__BUFFER_GROUP_SCRATCH, 1, bytes);
}

static void shared_tile(simulation *s, uint32_t first, uint32_t rows)
{
    need(s, STRATA__BUFFER_FFN_XN, first + rows, activation(s, s->f->input.geometry.width));
    if (s->layer->shared_gated) {
        put(s, STRATA__BUFFER_SHARED_FACTOR, 0, rows, 4);
        need(s, STRATA__BUFFER_FFN_INV_RMS, first + rows, 4);
    }
    dense_part(s, rows, s->layer->shared_width);
    need(s, STRATA__BUFFER_SHARED_FACTOR, s->layer->shared_gated ? rows : 0, 4);
}

/* What launches of experts find from before the first of them. */
static void need_routing(simulation *s)
{
    const strata__layout_geometry *g = &s->f->input.geometry;
    need(s, STRATA__BUFFER_FFN_XN, s->rows, activation(s, g->width));
    need(s, STRATA__BUFFER_FFN_XN_SCALE, s->rows, scale(s));
    need(s, STRATA__BUFFER_OFFSETS, 1, 4ull * (g->experts + 1));
    need(s, STRATA__BUFFER_SORTED_ROW, (uint64_t)s->rows * g->top_k, 4);
    need(s, STRATA__BUFFER_SORTED_INDEX, s->rows, 4ull * g->top_k);
    need(s, STRATA__BUFFER_EXPERT_WEIGHTS, s->rows, 4ull * g->top_k);
}

static void expert_scratch(simulation *s)
{
    const strata__layout_geometry *g = &s->f->input.geometry;
    uint64_t inner = s->layer->expert_width, values = larger(g->width, inner);
    uint64_t one = (2 * inner * g->width + values - 1) / values;
    scratch(s, STRATA__BUFFER_EXPERT_SCRATCH, larger(one * g->experts, g->width), values);
}

static void expert_launch(simulation *s, uint64_t rows)
{
    const strata__layout_geometry *g = &s->f->input.geometry;
    uint64_t inner = s->layer->expert_width;
    bool int8 = s->path == STRATA__LAYOUT_FUSED || s->path == STRATA__LAYOUT_MMQ;
    bool gate_up = s->f->input.facts.gate_up_paths >> s->path & 1;
    expert_scratch(s);
    if (int8)
        put(s, STRATA__BUFFER_QUANTISED_IN, 0, rows, quantised(g->width));
    if (gate_up)
        put(s, STRATA__BUFFER_EXPERT_GATE_UP, 0, rows, 8 * inner);
    if (int8)
        put(s, STRATA__BUFFER_QUANTISED_H, 0, rows, quantised(inner));
    else
        put(s, STRATA__BUFFER_EXPERT_H, 0, rows, activation(s, inner));
    put(s, STRATA__BUFFER_EXPERT_H_SCALE, 0, int8 ? 0 : rows, scale(s));
    need(s, STRATA__BUFFER_QUANTISED_IN, int8 ? rows : 0, quantised(g->width));
    need(s, STRATA__BUFFER_EXPERT_GATE_UP, gate_up ? rows : 0, 8 * inner);
    need_routing(s);

    expert_scratch(s);
    put(s, STRATA__BUFFER_EXPERT_Y, 0, rows, 4ull * g->width);
    need(s, STRATA__BUFFER_QUANTISED_H, int8 ? rows : 0, quantised(inner));
    need(s, STRATA__BUFFER_EXPERT_H, int8 ? 0 : rows, activation(s, inner));
    need(s, STRATA__BUFFER_EXPERT_H_SCALE, int8 ? 0 : rows, scale(s));

    need(s, STRATA__BUFFER_EXPERT_Y, rows, 4ull * g->width);
    need_routing(s);
}

static void each_tile(simulation *s, void (*tile)(simulation *, uint32_t, uint32_t))
{
    uint32_t step = s->work->dense_tile;
    for (uint32_t first = 0; first < s->rows; first += step)
        tile(s, first, s->rows - first < step ? s->rows - first : step);
}

static void dense_at(simulation *s, uint32_t first, uint32_t rows)
{
    (void)first;
    dense_tile(s, rows);
}

static void run_layer(simulation *s, uint32_t layer)
{
    uint64_t pairs = (uint64_t)s->rows * s->f->input.geometry.top_k, step = s->work->expert_tile;
    s->layer = &s->f->layers[layer];
    s->launch.layer = layer;
    s->launch.config = strata__layout_config_of(s->work, layer, s->rows);
    assert_true(s->launch.config < s->work->config_count);
    s->path = s->work->configs[s->launch.config].path;
    each_tile(s, attention_tile);
    if (s->layer->expert_width == 0) {
        each_tile(s, dense_at);
        return;
    }
    each_tile(s, router_tile);
    group_rows(s);
    if (s->layer->shared_width)
        each_tile(s, shared_tile);
    for (uint64_t first = 0; first < pairs; first += step)
        expert_launch(s, pairs - first < step ? pairs - first : step);
}

static void logit_tile(simulation *s, uint32_t rows)
{
    const strata__layout_geometry *g = &s->f->input.geometry;
    put(s, STRATA__BUFFER_FINAL_XN, 0, rows, activation(s, g->width));
    put(s, STRATA__BUFFER_FINAL_XN_SCALE, 0, rows, scale(s));
    put(s, STRATA__BUFFER_FINAL_INV_RMS, 0, rows, 4);
    scratch(s, STRATA__BUFFER_LOGIT_SCRATCH, g->vocabulary, g->width);
    put(s, STRATA__BUFFER_LOGITS, 0, rows, 4ull * g->vocabulary);
    need(s, STRATA__BUFFER_FINAL_XN, rows, activation(s, g->width));
    need(s, STRATA__BUFFER_FINAL_XN_SCALE, rows, scale(s));
    need(s, STRATA__BUFFER_LOGITS, rows, 4ull * g->vocabulary);
}

static void check_guards(const simulation *s)
{
    for (uint64_t i = 0; i < GUARD_BYTES; ++i) {
        assert_int_equal(s->memory[i], GUARD);
        assert_int_equal(s->base[s->region_bytes + i], GUARD);
    }
}

void simulation_step(simulation *s, uint32_t rows)
{
    const strata__layout_geometry *g = &s->f->input.geometry;
    uint32_t step = s->work->logit_tile;
    memset(s->contents, 0, sizeof s->contents);
    s->rows = rows;
    s->launch.config = s->work->edge_config;
    put(s, STRATA__BUFFER_RESIDUAL, 0, rows, 4ull * g->width * g->residual_streams);
    put(s, STRATA__BUFFER_TOKENS, 0, rows, 4);
    for (uint32_t layer = 0; layer < g->layer_count; ++layer)
        run_layer(s, layer);
    s->launch.layer = g->layer_count;
    s->launch.config = s->work->edge_config;
    for (uint32_t first = 0; first < rows; first += step)
        logit_tile(s, rows - first < step ? rows - first : step);
    need(s, STRATA__BUFFER_RESIDUAL, rows, 4ull * g->width * g->residual_streams);
    need(s, STRATA__BUFFER_TOKENS, rows, 4);
    check_guards(s);
}

void simulation_reached(const simulation *s)
{
    for (uint32_t i = 0; i < s->work->config_count; ++i) {
        const strata__layout_config *c = &s->work->configs[i];
        for (uint32_t j = 0; j < c->buffer_count; ++j) {
            uint64_t reached = s->reached[i * STRATA__BUFFER_COUNT + c->buffers[j].id];
            if (reached != c->buffers[j].bytes)
                fail_msg("configuration %u (path %s, %u rows): %s has %llu bytes, launches reach "
                         "%llu",
                         i, strata__layout_path_name(c->path), c->rows,
                         strata__layout_buffer_name(c->buffers[j].id),
                         (unsigned long long)c->buffers[j].bytes, (unsigned long long)reached);
        }
    }
}
