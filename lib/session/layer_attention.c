/* SPDX-License-Identifier: MIT */
/*
 * The attention part of a layer in tiles of rows: norm, projections, attention over the cache,
 * output projection added to the residual. A tile's keys and values are in the cache before its
 * attention runs, and tiles go in ascending order, so that every row sees all rows before it.
 */
#include "session/step.h"

typedef struct tile {
    strata__step *step;
    const strata__layer *layer;
    const strata__layer_weights *weights;
    uint32_t index; /* of the dense tile */
    uint32_t first;
    uint32_t rows;
    strata__rows xn;
    strata__rows q;
    strata__rows out;
    float *inv_rms;
    float *qkv;
    uint32_t qkv_stride;
} tile;

static strata_status take_tile(tile *t)
{
    strata__taker taker = {t->step, STRATA_OK};
    t->xn = strata__take_rows(&taker, STRATA__BUFFER_ATTENTION_XN,
                              STRATA__BUFFER_ATTENTION_XN_SCALE, 0, t->rows);
    t->inv_rms = strata__take_needed(&taker, STRATA__BUFFER_ATTENTION_INV_RMS, 0, t->rows);
    t->qkv = strata__take_needed(&taker, STRATA__BUFFER_QKV, 0, t->rows);
    t->q = strata__take_rows(&taker, STRATA__BUFFER_Q, STRATA__BUFFER_Q_SCALE, 0, t->rows);
    t->out = strata__take_rows(&taker, STRATA__BUFFER_ATTENTION_OUT,
                               STRATA__BUFFER_ATTENTION_OUT_SCALE, 0, t->rows);
    t->qkv_stride = (t->layer->heads + 2 * t->layer->kv_heads) * t->layer->head_size;
    return taker.status;
}

/* Takes in `next` when its rows lie behind those of `weight`, so that one product serves both. */
static bool join(strata__weight *weight, const strata__weight *next)
{
    uint64_t row_bytes;
    if (weight->format != next->format || weight->inputs != next->inputs || weight->bias ||
        next->bias || !strata__format_row_bytes(weight->format, weight->inputs, &row_bytes) ||
        next->data != (const uint8_t *)weight->data + row_bytes * weight->outputs)
        return false;
    weight->outputs += next->outputs;
    return true;
}

/* Of a layer, in memory: those that join() puts together. */
static strata__weight first_projection(const strata__layer_weights *weights)
{
    strata__weight first = weights->q;
    if (join(&first, &weights->k))
        (void)join(&first, &weights->v);
    return first;
}

strata__ahead strata__step_next_projections(const strata__step *step)
{
    const strata_session *session = step->session;
    strata__weight first;
    if (step->launch.layer + 1 >= session->geometry->layers)
        return (strata__ahead){0};
    first = first_projection(&session->weights.layers[step->launch.layer + 1]);
    return strata__step_ahead(&first);
}

/* The products of q, k and v; returns their number. */
static uint32_t projections(const tile *t, strata__dense_args *out)
{
    const strata__weight *weights[3] = {&t->weights->q, &t->weights->k, &t->weights->v};
    strata__taker taker = {t->step, STRATA_OK};
    strata__dense_args args = {0};
    uint32_t column = 0, count = 0;
    args.in = t->xn;
    args.scratch = strata__take_scratch(&taker, STRATA__BUFFER_QKV_SCRATCH);
    args.rows = t->rows;
    args.out_stride = t->qkv_stride;
    args.few = t->step->is_decode;
    args.mode = STRATA__DENSE_STORE_F32;
    args.alpha = 1.0f;
    for (int i = 0; i < 3;) {
        args.weight = *weights[i++];
        while (i < 3 && join(&args.weight, weights[i]))
            ++i;
        args.out_f32 = t->qkv + column;
        column += args.weight.outputs;
        out[count++] = args;
    }
    return count;
}

static strata_status project(const tile *t)
{
    strata__kernels *kernels = t->step->session->kernels;
    void *stream = t->step->session->stream->native;
    strata__project_args args = {0};
    args.norm = strata__step_norm(t->step, t->weights->attention_norm, t->first, t->rows);
    args.norm.out = t->xn;
    args.norm.inv_rms = t->inv_rms;
    args.part_count = projections(t, args.parts);
    return t->step->is_blind ? kernels->ops->project(kernels, stream, &args)
                             : strata__compose_project(kernels, stream, &args);
}

static strata_status rotate_and_store(const tile *t)
{
    strata_session *session = t->step->session;
    const strata__step *step = t->step;
    const strata__layer *layer = t->layer;
    uint32_t segment = step->tile_segment[t->index];
    strata__qkv_args args = {0};
    args.q = t->qkv;
    args.k = args.q + (uint64_t)layer->heads * layer->head_size;
    args.v = args.k + (uint64_t)layer->kv_heads * layer->head_size;
    args.q_norm = t->weights->q_norm;
    args.k_norm = t->weights->k_norm;
    args.rope_frequencies = session->weights.rope_frequencies[layer->rope_table];
    args.q_out = t->q;
    args.kv = strata__step_kv(step);
    args.segments = step->segments + segment;
    args.segment_count = step->tile_segment[t->index + 1] - segment;
    args.rows = t->rows;
    args.qkv_stride = t->qkv_stride;
    args.heads = layer->heads;
    args.rope_width = layer->rope_width;
    args.rope_style = layer->rope_style;
    args.qk_norm = layer->qk_norm;
    args.rope_magnitude = layer->rope_magnitude;
    args.clamp = layer->qkv_clamp;
    args.eps = session->geometry->norm_eps;
    return session->kernels->ops->qkv(session->kernels, session->stream->native, &args);
}

/* Rows [first, first + rows) of the tile. */
static strata_status attend(const tile *t, uint32_t index, uint32_t first, uint32_t rows)
{
    const strata__step *step = t->step;
    strata_session *session = step->session;
    uint32_t segment = step->tile_segment[index], end = step->tile_segment[index + 1];
    strata__taker taker = {step, STRATA_OK};
    strata__attention_args args = {0};
    args.q = strata__take_rows(&taker, STRATA__BUFFER_Q, STRATA__BUFFER_Q_SCALE, first, rows);
    args.out = strata__take_rows(&taker, STRATA__BUFFER_ATTENTION_OUT,
                                 STRATA__BUFFER_ATTENTION_OUT_SCALE, first, rows);
    strata__take(&taker, STRATA__BUFFER_ATTENTION_SCRATCH, 0, rows);
    if (taker.status != STRATA_OK)
        return taker.status;
    args.scratch = strata__take_scratch(&taker, STRATA__BUFFER_ATTENTION_SCRATCH);
    args.kv = strata__step_kv(step);
    args.sinks = t->weights->sinks;
    args.segments = step->segments + segment;
    args.segment_count = end - segment;
    args.rows = rows;
    for (; segment < end; ++segment) {
        const strata__segment *s = &step->host_segments[segment];
        if (s->rows > args.max_segment_rows)
            args.max_segment_rows = s->rows;
        if (s->position + s->rows > args.max_kv_tokens)
            args.max_kv_tokens = s->position + s->rows;
    }
    if (step->kv_bound) {
        args.max_segment_rows = rows;
        args.max_kv_tokens = (uint32_t)step->kv_bound;
    }
    args.split_keys = step->work->split_keys;
    args.settled = args.split_keys && t->first == 0 && first == 0;
    if (step->is_blind)
        args.ahead = strata__step_ahead(&t->weights->attention_out);
    args.heads = t->layer->heads;
    args.window = t->layer->window;
    args.scale = t->layer->attention_scale;
    return session->kernels->ops->attention(session->kernels, session->stream->native, &args);
}

static strata_status add_output(const tile *t)
{
    strata__taker taker = {t->step, STRATA_OK};
    strata__dense_args args = {0};
    args.weight = t->weights->attention_out;
    args.in = t->out;
    args.scratch = strata__take_scratch(&taker, STRATA__BUFFER_OUT_SCRATCH);
    return strata__step_add_dense(t->step, &args, t->first, t->rows);
}

static strata_status run_tile(tile *t, uint32_t *attention_tile)
{
    uint32_t most = t->step->work->attention_tile;
    strata_status status = take_tile(t);
    if (status == STRATA_OK)
        status = project(t);
    if (status == STRATA_OK)
        status = rotate_and_store(t);
    for (uint32_t first = 0; first < t->rows && status == STRATA_OK; first += most) {
        uint32_t rows = t->rows - first < most ? t->rows - first : most;
        status = attend(t, (*attention_tile)++, first, rows);
    }
    if (status == STRATA_OK)
        status = add_output(t);
    return status == STRATA_OK ? strata__step_advance(t->step) : status;
}

strata_status strata__step_attention(strata__step *step)
{
    uint32_t most = step->work->dense_tile, attention_tile = step->dense_tiles;
    strata_status status = STRATA_OK;
    tile t = {0};
    t.step = step;
    t.layer = &step->session->layers[step->launch.layer];
    t.weights = &step->session->weights.layers[step->launch.layer];
    for (; t.first < step->rows && status == STRATA_OK; t.first += most, ++t.index) {
        t.rows = step->rows - t.first < most ? step->rows - t.first : most;
        status = run_tile(&t, &attention_tile);
    }
    return status;
}
