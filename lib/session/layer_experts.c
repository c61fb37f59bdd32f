/* SPDX-License-Identifier: MIT */
/*
 * The experts of a layer: launches over the sorted rows in ascending order, each with as many rows
 * as the planned expert tile holds; where experts are streamed, with as many as are at hand or can
 * be waited for together. What a row gets does not depend on how the rows are cut into launches.
 */
#include "session/step.h"

typedef struct launch {
    strata__step *step;
    const strata__layer *layer;
    const strata__layer_weights *weights;
    uint32_t path;
    strata__expert_range range;
    const uint32_t *sorted_row;
    const uint32_t *sorted_index;
    const float *row_weights;
    strata__rows xn;
    strata__rows h;
    float *gate_up;
    float *y;
    void *quantised_in;
    void *quantised_h;
    strata__scratch scratch;
} launch;

/* All rows at once, whatever they are routed to. */
static strata__expert_range whole_range(const strata__step *step)
{
    strata__expert_range range = {0};
    range.rows = step->rows * step->session->geometry->top_k;
    range.last_expert = step->session->geometry->experts - 1;
    return range;
}

/* The rows from first_row on that one launch takes. */
static strata__expert_range next_range(const strata__step *step, uint32_t first_row,
                                       uint32_t first_expert)
{
    const uint32_t *offsets = step->host_offsets;
    uint32_t limit = step->session->geometry->experts;
    strata__expert_range range = {0};
    while (offsets[first_expert + 1] <= first_row)
        ++first_expert;
    if (step->feed)
        limit = strata__feed_limit(step->feed, first_expert);
    else if (step->session->experts.source == STRATA__SOURCE_STREAMED)
        limit = strata__decode_experts_limit(step, first_expert);
    range.first_row = first_row;
    range.rows = offsets[limit] - first_row;
    if (range.rows > step->work->expert_tile)
        range.rows = step->work->expert_tile;
    range.first_expert = first_expert;
    range.last_expert = first_expert;
    while (offsets[range.last_expert + 1] < first_row + range.rows)
        ++range.last_expert;
    range.host_offsets = offsets;
    return range;
}

static strata_status take_buffers(launch *l)
{
    strata__step *step = l->step;
    uint64_t rows = l->range.rows;
    uint64_t pairs = (uint64_t)step->rows * step->session->geometry->top_k;
    strata__taker taker = {step, STRATA_OK};
    l->range.offsets = strata__take_needed(&taker, STRATA__BUFFER_OFFSETS, 0, 1);
    l->sorted_row = strata__take_needed(&taker, STRATA__BUFFER_SORTED_ROW, 0, pairs);
    l->sorted_index = strata__take_needed(&taker, STRATA__BUFFER_SORTED_INDEX, 0, step->rows);
    l->row_weights = strata__take_needed(&taker, STRATA__BUFFER_EXPERT_WEIGHTS, 0, step->rows);
    l->xn = strata__take_rows(&taker, STRATA__BUFFER_FFN_XN, STRATA__BUFFER_FFN_XN_SCALE, 0,
                              step->rows);
    l->h.data = strata__take(&taker, STRATA__BUFFER_EXPERT_H, 0, rows);
    l->h.scale = strata__take(&taker, STRATA__BUFFER_EXPERT_H_SCALE, 0, rows);
    l->gate_up = strata__take(&taker, STRATA__BUFFER_EXPERT_GATE_UP, 0, rows);
    l->quantised_in = strata__take(&taker, STRATA__BUFFER_QUANTISED_IN, 0, rows);
    l->quantised_h = strata__take(&taker, STRATA__BUFFER_QUANTISED_H, 0, rows);
    l->y = strata__take_needed(&taker, STRATA__BUFFER_EXPERT_Y, 0, rows);
    l->scratch = strata__take_scratch(&taker, STRATA__BUFFER_EXPERT_SCRATCH);
    /* The int8 paths hand their intermediate on in the quantised form alone. */
    if (!l->h.data)
        l->h.data = l->quantised_h;
    return taker.status;
}

static strata__expert_weight expert_weight(const launch *l, uint32_t index,
                                           const strata__projection *projection, const float *bias)
{
    strata__expert_weight weight = {0};
    weight.blobs = l->step->pointers + (uint64_t)index * l->step->session->geometry->experts;
    weight.bias = bias;
    weight.format = projection->format;
    weight.inputs = projection->inputs;
    weight.outputs = projection->outputs;
    return weight;
}

static strata__gate_up_args gate_up_args(const launch *l)
{
    strata__gate_up_args args = {0};
    args.gate = expert_weight(l, 0, &l->layer->expert_gate, l->weights->expert_gate_bias);
    args.up = expert_weight(l, 1, &l->layer->expert_up, l->weights->expert_up_bias);
    args.range = l->range;
    args.sorted_row = l->sorted_row;
    args.in = l->xn;
    args.h = l->h;
    args.gate_up = l->gate_up;
    args.quantised = l->quantised_in;
    args.scratch = l->scratch;
    args.activation = l->step->session->geometry->activation;
    args.down_format = l->layer->expert_down.format;
    args.path = l->path;
    args.few = l->step->is_decode;
    return args;
}

static strata__down_args down_args(const launch *l)
{
    strata__down_args args = {0};
    args.down = expert_weight(l, 2, &l->layer->expert_down, l->weights->expert_down_bias);
    args.range = l->range;
    args.expert_scale = l->weights->expert_scale;
    args.h = l->h;
    args.y = l->y;
    args.scratch = l->scratch;
    args.path = l->path;
    args.few = l->step->is_decode;
    return args;
}

static strata__combine_args combine_args(const launch *l)
{
    const strata__geometry *geometry = l->step->session->geometry;
    strata__combine_args args = {0};
    args.y = l->y;
    args.weights = l->row_weights;
    args.sorted_index = l->sorted_index;
    args.x = l->step->x;
    args.tokens = l->step->rows;
    args.top_k = geometry->top_k;
    args.width = geometry->width;
    args.first_row = l->range.first_row;
    args.rows = l->range.rows;
    args.alpha = geometry->residual_scale;
    return args;
}

/* The rows of the range, from the products to the residual. */
static strata_status multiply(const launch *l)
{
    strata__kernels *kernels = l->step->session->kernels;
    void *stream = l->step->session->stream->native;
    const strata__experts_args args = {gate_up_args(l), down_args(l), combine_args(l)};
    bool is_one = l->step->is_blind && l->path == STRATA__PATH_DIRECT;
    return is_one ? kernels->ops->experts(kernels, stream, &args)
                  : strata__compose_experts(kernels, stream, &args);
}

static strata_status run(launch *l)
{
    strata__counters *counters = &l->step->session->counters;
    strata_status status = take_buffers(l);
    if (status == STRATA_OK)
        status = strata__experts_acquire(l->step, l->range.first_expert, l->range.last_expert);
    if (status == STRATA_OK)
        status = multiply(l);
    /* Blind steps may be launched again without a call of this. */
    if (!l->step->is_blind) {
        strata__counter_add(&counters->expert_launches, 1);
        strata__counter_add(&counters->expert_rows, l->range.rows);
    }
    return status;
}

/* Experts whose last row has been launched are done with. */
static strata_status release(const launch *l)
{
    const strata__expert_range *r = &l->range;
    bool is_last_done = r->host_offsets[r->last_expert + 1] == r->first_row + r->rows;
    if (!l->step->feed)
        return STRATA_OK;
    return strata__feed_release(l->step->feed, r->last_expert + is_last_done);
}

strata_status strata__step_experts(strata__step *step)
{
    strata_session *session = step->session;
    uint32_t total = 0;
    strata_status status = STRATA_OK;
    launch l = {0};
    l.step = step;
    l.layer = &session->layers[step->launch.layer];
    l.weights = &session->weights.layers[step->launch.layer];
    l.path = step->work->configs[step->launch.config].path;
    if (step->is_blind || step->is_paced) {
        l.range = whole_range(step);
        return run(&l);
    }
    total = step->host_offsets[session->geometry->experts];
    for (uint32_t row = 0; row < total && status == STRATA_OK; row += l.range.rows) {
        l.range = next_range(step, row, l.range.last_expert);
        status = run(&l);
        if (status == STRATA_OK)
            status = release(&l);
        if (status == STRATA_OK)
            status = strata__step_advance(step);
    }
    if (status == STRATA_OK && step->feed)
        status = strata__feed_release(step->feed, session->geometry->experts);
    return status;
}
