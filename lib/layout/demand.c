/* SPDX-License-Identifier: MIT */
/*
 * Demands. A buffer of the table is there when its path and its kind of layer are named and neither
 * rows nor row bytes are 0. First and last stage say how long its content is needed: what is
 * carried from one turn of a stage loop to the next (tiles, launches) lives through the whole loop.
 */
#include "layout/demand.h"

#include "base/checked.h"
#include "base/format.h"
#include "base/spans.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

typedef strata__demand_context ctx;

uint32_t strata__layout_dense_rows(const strata__layout_spec *spec, uint32_t rows)
{
    return rows < spec->dense_tile ? rows : spec->dense_tile;
}

uint32_t strata__layout_attention_rows(const strata__layout_spec *spec, uint32_t rows)
{
    uint32_t tile = strata__layout_dense_rows(spec, rows);
    return tile < spec->attention_tile ? tile : spec->attention_tile;
}

uint64_t strata__layout_expert_rows(const strata__layout_problem *problem,
                                    const strata__layout_spec *spec, uint32_t rows)
{
    uint64_t pairs = (uint64_t)rows * problem->geometry.top_k;
    return pairs < spec->expert_tile ? pairs : spec->expert_tile;
}

static uint32_t tiles_of(uint32_t rows, uint32_t tile)
{
    return (uint32_t)strata__divide_up_u64(rows, tile);
}

uint32_t strata__layout_segment_capacity(const strata__layout_problem *problem,
                                         const strata__layout_spec *spec)
{
    uint32_t dense = tiles_of(spec->chunk, spec->dense_tile);
    uint32_t whole = tiles_of(spec->dense_tile, spec->attention_tile);
    uint32_t sequences = problem->request.sequences;
    if (sequences > spec->chunk)
        sequences = spec->chunk;
    /* Each sequence opens one segment, each further tile cuts at most one in two. */
    return 2 * (sequences - 1) + dense + dense * whole;
}

/* Kernels may keep decoded rows in whole blocks of values. */
static uint64_t decoded_values(uint64_t values)
{
    const uint64_t step = STRATA__LAYOUT_DECODE_VALUES;
    return strata__divide_up_u64(values, step) * step;
}

uint64_t strata__layout_scratch_rows(const strata__layout_problem *problem,
                                     const strata__layout_spec *spec, uint64_t values,
                                     uint64_t total)
{
    const uint64_t step = STRATA__LAYOUT_DECODE_ROWS;
    uint64_t row_bytes = decoded_values(values) * problem->facts.decode_bytes_per_value;
    uint64_t wanted = spec->scratch_bytes / row_bytes / step * step;
    uint64_t most = strata__divide_up_u64(total, step) * step;
    if (wanted > most)
        wanted = most;
    return wanted < step ? step : wanted;
}

/* Rows. */
static uint64_t one(const ctx *c)
{
    (void)c;
    return 1;
}

static uint64_t chunk_rows(const ctx *c)
{
    return c->rows;
}

static uint64_t dense_rows(const ctx *c)
{
    return strata__layout_dense_rows(c->spec, c->rows);
}

static uint64_t attention_rows(const ctx *c)
{
    return strata__layout_attention_rows(c->spec, c->rows);
}

static uint64_t expert_rows(const ctx *c)
{
    return strata__layout_expert_rows(c->problem, c->spec, c->rows);
}

static uint64_t pair_rows(const ctx *c)
{
    return (uint64_t)c->rows * c->problem->geometry.top_k;
}

static uint64_t logit_rows(const ctx *c)
{
    return c->spec->logit_tile;
}

static uint64_t segment_rows(const ctx *c)
{
    return strata__layout_segment_capacity(c->problem, c->spec);
}

static uint64_t expert_layer_rows(const ctx *c)
{
    return c->problem->expert_layers;
}

static uint64_t twice_chunk_rows(const ctx *c)
{
    return 2ull * c->rows;
}

static uint64_t twice_segment_rows(const ctx *c)
{
    return 2 * segment_rows(c);
}

static uint64_t twice_expert_layer_rows(const ctx *c)
{
    return 2 * expert_layer_rows(c);
}

static uint64_t q_values(const ctx *c)
{
    return (uint64_t)c->layer->heads * c->layer->head_size;
}

static uint64_t dense_values(const ctx *c)
{
    return c->layer->expert_width ? c->layer->shared_width : c->layer->ffn_width;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t scratch_rows(const ctx *c, uint64_t values, uint64_t total)
{
    return strata__layout_scratch_rows(c->problem, c->spec, values, total);
}

static uint64_t qkv_scratch_rows(const ctx *c)
{
    uint64_t kv = (uint64_t)c->layer->kv_heads * c->layer->head_size;
    return scratch_rows(c, c->problem->geometry.width, q_values(c) + 2 * kv);
}

static uint64_t out_scratch_rows(const ctx *c)
{
    return scratch_rows(c, q_values(c), c->problem->geometry.width);
}

static uint64_t router_scratch_rows(const ctx *c)
{
    return scratch_rows(c, c->problem->geometry.width, c->problem->geometry.experts);
}

static uint64_t dense_scratch_rows(const ctx *c)
{
    uint64_t width = c->problem->geometry.width, inner = dense_values(c);
    return scratch_rows(c, larger(width, inner), larger(width, inner));
}

static uint64_t expert_scratch_rows(const ctx *c)
{
    uint64_t width = c->problem->geometry.width, inner = c->layer->expert_width;
    uint64_t values = larger(width, inner);
    uint64_t total =
        strata__divide_up_u64(2 * inner * width, values) * c->problem->geometry.experts;
    return scratch_rows(c, values, larger(total, width));
}

static uint64_t logit_scratch_rows(const ctx *c)
{
    return scratch_rows(c, c->problem->geometry.width, c->problem->geometry.vocabulary);
}

/* Row bytes. */
static uint64_t four(const ctx *c)
{
    (void)c;
    return 4;
}

static uint64_t sixteen(const ctx *c)
{
    (void)c;
    return 16;
}

static uint64_t row_scale(const ctx *c)
{
    return c->problem->facts.row_scale_bytes;
}

static uint64_t activation(const ctx *c, uint64_t values)
{
    return values * c->problem->facts.activation_bytes;
}

static uint64_t width_activation(const ctx *c)
{
    return activation(c, c->problem->geometry.width);
}

static uint64_t q_activation(const ctx *c)
{
    return activation(c, q_values(c));
}

static uint64_t dense_activation(const ctx *c)
{
    return activation(c, dense_values(c));
}

static uint64_t dense_scale(const ctx *c)
{
    return dense_values(c) ? row_scale(c) : 0;
}

static uint64_t expert_activation(const ctx *c)
{
    return activation(c, c->layer->expert_width);
}

static uint64_t width_float(const ctx *c)
{
    return 4ull * c->problem->geometry.width;
}

static uint64_t residual_float(const ctx *c)
{
    return width_float(c) * c->problem->geometry.residual_streams;
}

static uint64_t stream_norm_float(const ctx *c)
{
    const strata__layout_geometry *g = &c->problem->geometry;
    return g->residual_streams > 1 && !g->fused_residual_read ? residual_float(c) : 0;
}

static uint64_t stream_scales_float(const ctx *c)
{
    uint32_t streams = c->problem->geometry.residual_streams;
    return streams > 1 ? 4ull * streams : 0;
}

static uint64_t qkv_float(const ctx *c)
{
    return 4ull * (c->layer->heads + 2ull * c->layer->kv_heads) * c->layer->head_size;
}

static uint64_t dense_gate_up_float(const ctx *c)
{
    return 8 * dense_values(c);
}

static uint64_t shared_factor_float(const ctx *c)
{
    return c->layer->shared_width && c->layer->shared_gated ? 4 : 0;
}

static uint64_t expert_gate_up_float(const ctx *c)
{
    uint32_t needs = c->problem->facts.gate_up_paths >> c->path & 1;
    return needs ? 8ull * c->layer->expert_width : 0;
}

static uint64_t experts_float(const ctx *c)
{
    return 4ull * c->problem->geometry.experts;
}

static uint64_t top_k_float(const ctx *c)
{
    return 4ull * c->problem->geometry.top_k;
}

static uint64_t vocabulary_float(const ctx *c)
{
    return 4ull * c->problem->geometry.vocabulary;
}

static uint64_t width_quantised(const ctx *c)
{
    return strata__quantised_row_bytes(c->problem->geometry.width);
}

static uint64_t expert_quantised(const ctx *c)
{
    return strata__quantised_row_bytes(c->layer->expert_width);
}

static uint64_t decoded(const ctx *c, uint64_t values)
{
    return decoded_values(values) * c->problem->facts.decode_bytes_per_value;
}

static uint64_t width_decoded(const ctx *c)
{
    return decoded(c, c->problem->geometry.width);
}

static uint64_t q_decoded(const ctx *c)
{
    return decoded(c, q_values(c));
}

static uint64_t dense_decoded(const ctx *c)
{
    uint64_t inner = dense_values(c);
    return inner ? decoded(c, larger(inner, c->problem->geometry.width)) : 0;
}

static uint64_t expert_decoded(const ctx *c)
{
    return decoded(c, larger(c->layer->expert_width, c->problem->geometry.width));
}

static uint64_t attention_scratch(const ctx *c)
{
    const strata__layout_problem *p = c->problem;
    uint64_t tokens = (uint64_t)p->pages_per_sequence * p->request.page_tokens;
    if (c->spec->split_keys)
        return strata__attention_split_bytes(1, c->layer->heads, c->layer->head_size, tokens,
                                             c->spec->split_keys);
    return p->facts.attention_scratch_bytes_per_row * c->layer->heads;
}

static uint64_t group_scratch(const ctx *c)
{
    const strata__layout_facts *f = &c->problem->facts;
    return f->group_scratch_bytes_fixed +
           f->group_scratch_bytes_per_expert * c->problem->geometry.experts;
}

static uint64_t offsets_bytes(const ctx *c)
{
    return 4ull * (c->problem->geometry.experts + 1);
}

static uint64_t pointer_bytes(const ctx *c)
{
    return 3ull * 8 * c->problem->geometry.experts;
}

/* The flag word behind the offsets, on cache lines of its own layer. */
static uint64_t host_offsets_bytes(const ctx *c)
{
    return (offsets_bytes(c) + 4 + 63) / 64 * 64;
}

static uint64_t ring_bytes(const ctx *c)
{
    return c->spec->ring_bytes;
}

static uint64_t staging_bytes(const ctx *c)
{
    return c->staging_bytes;
}

enum { DENSE = 1, EXPERTS = 2, LAYERS = DENSE | EXPERTS, EDGE = 4 };

enum {
    ANY_PATH = 15,
    INT8_PATHS = 1 << STRATA__LAYOUT_FUSED | 1 << STRATA__LAYOUT_MMQ,
    H_PATHS = ANY_PATH & ~INT8_PATHS
};

typedef struct demand {
    uint32_t id;
    uint32_t first_stage;
    uint32_t last_stage;
    uint32_t kinds; /* of layers */
    uint32_t paths; /* of layers with experts */
    uint64_t (*rows)(const ctx *);
    uint64_t (*row_bytes)(const ctx *);
} demand;

#define B(name) STRATA__BUFFER_##name
#define S(name) STRATA__STAGE_##name

/* clang-format off */
static const demand config_demands[] = {
    {B(STREAM_NORM), S(ATTENTION_NORM), S(FFN_NORM), LAYERS, ANY_PATH, dense_rows, stream_norm_float},
    {B(STREAM_SCALES), S(ATTENTION_NORM), S(COMBINE), LAYERS, ANY_PATH, chunk_rows, stream_scales_float},
    {B(ATTENTION_XN), S(ATTENTION_NORM), S(QKV), LAYERS, ANY_PATH, dense_rows, width_activation},
    {B(ATTENTION_XN_SCALE), S(ATTENTION_NORM), S(QKV), LAYERS, ANY_PATH, dense_rows, row_scale},
    {B(ATTENTION_INV_RMS), S(ATTENTION_NORM), S(ATTENTION_NORM), LAYERS, ANY_PATH, dense_rows, four},
    {B(QKV), S(QKV), S(QKV_POST), LAYERS, ANY_PATH, dense_rows, qkv_float},
    {B(QKV_SCRATCH), S(QKV), S(QKV), LAYERS, ANY_PATH, qkv_scratch_rows, width_decoded},
    {B(Q), S(QKV_POST), S(ATTENTION), LAYERS, ANY_PATH, dense_rows, q_activation},
    {B(Q_SCALE), S(QKV_POST), S(ATTENTION), LAYERS, ANY_PATH, dense_rows, row_scale},
    {B(ATTENTION_SCRATCH), S(ATTENTION), S(ATTENTION), LAYERS, ANY_PATH, attention_rows, attention_scratch},
    {B(ATTENTION_OUT), S(ATTENTION), S(ATTENTION_OUT), LAYERS, ANY_PATH, dense_rows, q_activation},
    {B(ATTENTION_OUT_SCALE), S(ATTENTION), S(ATTENTION_OUT), LAYERS, ANY_PATH, dense_rows, row_scale},
    {B(OUT_SCRATCH), S(ATTENTION_OUT), S(ATTENTION_OUT), LAYERS, ANY_PATH, out_scratch_rows, q_decoded},

    {B(FFN_XN), S(FFN_NORM), S(DENSE_UP), DENSE, ANY_PATH, dense_rows, width_activation},
    {B(FFN_XN), S(FFN_NORM), S(COMBINE), EXPERTS, ANY_PATH, chunk_rows, width_activation},
    {B(FFN_XN_SCALE), S(FFN_NORM), S(DENSE_UP), DENSE, ANY_PATH, dense_rows, row_scale},
    {B(FFN_XN_SCALE), S(FFN_NORM), S(COMBINE), EXPERTS, ANY_PATH, chunk_rows, row_scale},
    {B(FFN_INV_RMS), S(FFN_NORM), S(DENSE_UP), DENSE, ANY_PATH, dense_rows, four},
    {B(FFN_INV_RMS), S(FFN_NORM), S(DENSE_DOWN), EXPERTS, ANY_PATH, chunk_rows, four},
    {B(ROUTER_SCRATCH), S(ROUTER), S(ROUTER), EXPERTS, ANY_PATH, router_scratch_rows, width_decoded},
    {B(ROUTER_LOGITS), S(ROUTER), S(SELECT), EXPERTS, ANY_PATH, dense_rows, experts_float},
    {B(EXPERT_IDS), S(FFN_NORM), S(GROUP), EXPERTS, ANY_PATH, chunk_rows, top_k_float},
    {B(EXPERT_WEIGHTS), S(FFN_NORM), S(COMBINE), EXPERTS, ANY_PATH, chunk_rows, top_k_float},
    {B(OFFSETS), S(GROUP), S(COMBINE), EXPERTS, ANY_PATH, one, offsets_bytes},
    {B(SORTED_ROW), S(GROUP), S(COMBINE), EXPERTS, ANY_PATH, pair_rows, four},
    {B(SORTED_INDEX), S(GROUP), S(COMBINE), EXPERTS, ANY_PATH, chunk_rows, top_k_float},
    {B(GROUP_SCRATCH), S(GROUP), S(GROUP), EXPERTS, ANY_PATH, one, group_scratch},
    {B(SHARED_FACTOR), S(DENSE_UP), S(DENSE_DOWN), EXPERTS, ANY_PATH, dense_rows, shared_factor_float},
    {B(DENSE_SCRATCH), S(DENSE_UP), S(DENSE_DOWN), LAYERS, ANY_PATH, dense_scratch_rows, dense_decoded},
    {B(DENSE_GATE_UP), S(DENSE_UP), S(DENSE_UP), LAYERS, ANY_PATH, dense_rows, dense_gate_up_float},
    {B(DENSE_H), S(DENSE_UP), S(DENSE_DOWN), LAYERS, ANY_PATH, dense_rows, dense_activation},
    {B(DENSE_H_SCALE), S(DENSE_UP), S(DENSE_DOWN), LAYERS, ANY_PATH, dense_rows, dense_scale},

    {B(EXPERT_SCRATCH), S(EXPERT_UP), S(EXPERT_DOWN), EXPERTS, ANY_PATH, expert_scratch_rows, expert_decoded},
    {B(QUANTISED_IN), S(EXPERT_UP), S(EXPERT_UP), EXPERTS, INT8_PATHS, expert_rows, width_quantised},
    {B(EXPERT_GATE_UP), S(EXPERT_UP), S(EXPERT_UP), EXPERTS, ANY_PATH, expert_rows, expert_gate_up_float},
    {B(EXPERT_H), S(EXPERT_UP), S(EXPERT_DOWN), EXPERTS, H_PATHS, expert_rows, expert_activation},
    {B(EXPERT_H_SCALE), S(EXPERT_UP), S(EXPERT_DOWN), EXPERTS, H_PATHS, expert_rows, row_scale},
    {B(QUANTISED_H), S(EXPERT_UP), S(EXPERT_DOWN), EXPERTS, INT8_PATHS, expert_rows, expert_quantised},
    {B(EXPERT_Y), S(EXPERT_DOWN), S(COMBINE), EXPERTS, ANY_PATH, expert_rows, width_float},

    {B(FINAL_XN), S(FINAL_NORM), S(LOGITS), EDGE, ANY_PATH, logit_rows, width_activation},
    {B(FINAL_XN_SCALE), S(FINAL_NORM), S(LOGITS), EDGE, ANY_PATH, logit_rows, row_scale},
    {B(FINAL_INV_RMS), S(FINAL_NORM), S(LOGITS), EDGE, ANY_PATH, logit_rows, four},
    {B(LOGIT_SCRATCH), S(LOGITS), S(LOGITS), EDGE, ANY_PATH, logit_scratch_rows, width_decoded},
    {B(LOGITS), S(LOGITS), S(LOGITS), EDGE, ANY_PATH, logit_rows, vocabulary_float},
};

static const demand persistent_demands[] = {
    {B(RESIDUAL), 0, S(LOGITS), EDGE, ANY_PATH, chunk_rows, residual_float},
    {B(TOKENS), 0, S(LOGITS), EDGE, ANY_PATH, chunk_rows, four},
    {B(SEGMENTS), 0, S(LOGITS), EDGE, ANY_PATH, segment_rows, sixteen},
    {B(POINTERS), 0, S(LOGITS), EDGE, ANY_PATH, expert_layer_rows, pointer_bytes},
    {B(RING), 0, S(LOGITS), EDGE, ANY_PATH, one, ring_bytes},
};

static const demand host_demands[] = {
    {B(HOST_TOKENS), 0, S(LOGITS), EDGE, ANY_PATH, twice_chunk_rows, four},
    {B(HOST_SEGMENTS), 0, S(LOGITS), EDGE, ANY_PATH, twice_segment_rows, sixteen},
    {B(HOST_POINTERS), 0, S(LOGITS), EDGE, ANY_PATH, twice_expert_layer_rows, pointer_bytes},
    {B(HOST_OFFSETS), 0, S(LOGITS), EDGE, ANY_PATH, expert_layer_rows, host_offsets_bytes},
    {B(HOST_LOGITS), 0, S(LOGITS), EDGE, ANY_PATH, logit_rows, vocabulary_float},
    {B(HOST_STAGING), 0, S(LOGITS), EDGE, ANY_PATH, one, staging_bytes},
};
/* clang-format on */

static uint32_t write_demands(const ctx *c, const demand *table, uint64_t count,
                              strata__layout_buffer *out)
{
    uint32_t kind = EDGE, written = 0;
    uint32_t path = c->path < STRATA__LAYOUT_PATH_COUNT ? 1u << c->path : (uint32_t)ANY_PATH;
    if (c->layer)
        kind = c->layer->expert_width ? EXPERTS : DENSE;
    for (uint64_t i = 0; i < count; ++i) {
        const demand *d = &table[i];
        strata__layout_buffer *b = &out[written];
        if (!(d->kinds & kind) || !(d->paths & path))
            continue;
        *b = (strata__layout_buffer){.id = d->id,
                                     .first_stage = d->first_stage,
                                     .last_stage = d->last_stage,
                                     .row_capacity = d->rows(c),
                                     .row_bytes = d->row_bytes(c)};
        b->bytes = b->row_capacity * b->row_bytes;
        written += b->bytes != 0;
    }
    return written;
}

uint32_t strata__layout_demands(const strata__demand_context *context, strata__demand_set set,
                                strata__layout_buffer *out)
{
    if (set == STRATA__DEMANDS_CONFIG)
        return write_demands(context, config_demands, COUNT(config_demands), out);
    if (set == STRATA__DEMANDS_PERSISTENT)
        return write_demands(context, persistent_demands, COUNT(persistent_demands), out);
    return write_demands(context, host_demands, COUNT(host_demands), out);
}
