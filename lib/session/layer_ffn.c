/* SPDX-License-Identifier: MIT */
/*
 * The feed-forward part of a layer. Layers with experts route all rows first, since routing reads
 * the residual that the shared experts and the experts add to; then come the shared experts in
 * tiles, and the experts in launches over the sorted rows (layer_experts.c).
 */
#include "session/step.h"

#include <string.h>

#include "base/error.h"

enum { FLAG_POLLS = 64 }; /* looks at the flag between two questions to the device */

/* Rows of the chunk where the layer has experts, else of a tile. */
static strata_status norm_args(strata__step *step, uint32_t first, uint32_t rows,
                               uint32_t buffer_first, strata__norm_args *out)
{
    const float *gain = step->session->weights.layers[step->launch.layer].ffn_norm;
    strata__taker taker = {step, STRATA_OK};
    *out = strata__step_norm(step, gain, first, rows);
    out->out = strata__take_rows(&taker, STRATA__BUFFER_FFN_XN, STRATA__BUFFER_FFN_XN_SCALE,
                                 buffer_first, rows);
    out->inv_rms = strata__take_needed(&taker, STRATA__BUFFER_FFN_INV_RMS, buffer_first, rows);
    return taker.status;
}

/* The three products of a dense feed-forward part, or of the shared experts. */
typedef struct dense_part {
    strata__weight gate;
    strata__weight up;
    strata__weight down;
    const float *row_factor;
    strata__norm_args norm; /* of the rows; x NULL: they are normalised */
    strata__rows xn;
    uint32_t first;
    uint32_t rows;
} dense_part;

static strata_status up_products(strata__step *step, const dense_part *part, float *gate_up)
{
    strata__kernels *kernels = step->session->kernels;
    void *stream = step->session->stream->native;
    strata__taker taker = {step, STRATA_OK};
    strata__project_args both = {.norm = part->norm, .part_count = 2};
    strata__dense_args args = {0};
    args.in = part->xn;
    args.scratch = strata__take_scratch(&taker, STRATA__BUFFER_DENSE_SCRATCH);
    args.rows = part->rows;
    args.out_stride = 2 * part->gate.outputs;
    args.few = step->is_decode;
    args.mode = STRATA__DENSE_STORE_F32;
    args.alpha = 1.0f;
    args.weight = part->gate;
    args.out_f32 = gate_up;
    both.parts[0] = args;
    args.weight = part->up;
    args.out_f32 = gate_up + part->gate.outputs;
    both.parts[1] = args;
    return step->is_blind ? kernels->ops->project(kernels, stream, &both)
                          : strata__compose_project(kernels, stream, &both);
}

static strata_status run_dense_part(strata__step *step, const dense_part *part)
{
    strata_session *session = step->session;
    strata__taker taker = {step, STRATA_OK};
    float *gate_up = strata__take_needed(&taker, STRATA__BUFFER_DENSE_GATE_UP, 0, part->rows);
    strata__rows h = strata__take_rows(&taker, STRATA__BUFFER_DENSE_H, STRATA__BUFFER_DENSE_H_SCALE,
                                       0, part->rows);
    strata__activate_args activate = {0};
    strata__dense_args down = {0};
    strata_status status = taker.status;
    if (status == STRATA_OK)
        status = up_products(step, part, gate_up);
    if (status != STRATA_OK)
        return status;
    activate.gate = gate_up;
    activate.up = gate_up + part->gate.outputs;
    activate.out = h;
    activate.rows = part->rows;
    activate.width = part->gate.outputs;
    activate.stride = 2 * part->gate.outputs;
    activate.activation = session->geometry->activation;
    status = session->kernels->ops->activate(session->kernels, session->stream->native, &activate);
    if (status != STRATA_OK)
        return status;
    down.weight = part->down;
    down.in = h;
    down.row_factor = part->row_factor;
    down.scratch = strata__take_scratch(&taker, STRATA__BUFFER_DENSE_SCRATCH);
    return strata__step_add_dense(step, &down, part->first, part->rows);
}

static strata_status dense_tile(strata__step *step, uint32_t first, uint32_t rows)
{
    const strata__layer_weights *weights = &step->session->weights.layers[step->launch.layer];
    strata__taker taker = {step, STRATA_OK};
    dense_part part = {0};
    strata_status status = norm_args(step, first, rows, 0, &part.norm);
    part.gate = weights->gate;
    part.up = weights->up;
    part.down = weights->down;
    part.first = first;
    part.rows = rows;
    part.xn =
        strata__take_rows(&taker, STRATA__BUFFER_FFN_XN, STRATA__BUFFER_FFN_XN_SCALE, 0, rows);
    return status == STRATA_OK ? run_dense_part(step, &part) : status;
}

/*
 * Logits of the experts, or factors of the shared experts: args says whose; the rest is set here.
 */
static strata_status router_args(strata__step *step, uint32_t first, strata__router_args *args)
{
    strata__taker taker = {step, STRATA_OK};
    args->x = strata__step_residual(step, first);
    args->inv_rms = strata__take_needed(&taker, STRATA__BUFFER_FFN_INV_RMS, first, args->rows);
    args->norm = step->session->weights.layers[step->launch.layer].ffn_norm;
    return taker.status;
}

static strata_status shared_tile(strata__step *step, uint32_t first, uint32_t rows)
{
    strata_session *session = step->session;
    const strata__layer_weights *weights = &session->weights.layers[step->launch.layer];
    strata__taker taker = {step, STRATA_OK};
    dense_part part = {0};
    part.gate = weights->shared_gate;
    part.up = weights->shared_up;
    part.down = weights->shared_down;
    part.first = first;
    part.rows = rows;
    part.xn =
        strata__take_rows(&taker, STRATA__BUFFER_FFN_XN, STRATA__BUFFER_FFN_XN_SCALE, first, rows);
    if (weights->shared_router.data) {
        strata__router_args args = {0};
        args.weight = weights->shared_router;
        args.scratch = strata__take_scratch(&taker, STRATA__BUFFER_DENSE_SCRATCH);
        args.logits = strata__take_needed(&taker, STRATA__BUFFER_SHARED_FACTOR, 0, rows);
        args.rows = rows;
        args.sigmoid = 1;
        part.row_factor = args.logits;
        if (taker.status == STRATA_OK)
            taker.status = router_args(step, first, &args);
        if (taker.status == STRATA_OK)
            taker.status =
                session->kernels->ops->router(session->kernels, session->stream->native, &args);
    }
    return taker.status == STRATA_OK ? run_dense_part(step, &part) : taker.status;
}

/* What routes rows [first, first + rows), but for the grouping. */
static strata_status route_args(strata__step *step, uint32_t first, uint32_t rows,
                                strata__route_args *out)
{
    const strata__geometry *geometry = step->session->geometry;
    const strata__layer_weights *weights = &step->session->weights.layers[step->launch.layer];
    strata__taker taker = {step, STRATA_OK};
    strata__router_args *router = &out->router;
    strata__select_args *select = &out->select;
    memset(out, 0, sizeof *out);
    router->weight = weights->router;
    router->scratch = strata__take_scratch(&taker, STRATA__BUFFER_ROUTER_SCRATCH);
    router->logits = strata__take_needed(&taker, STRATA__BUFFER_ROUTER_LOGITS, 0, rows);
    router->rows = rows;
    select->logits = router->logits;
    select->selection_bias = weights->selection_bias;
    select->ids = strata__take_needed(&taker, STRATA__BUFFER_EXPERT_IDS, first, rows);
    select->weights = strata__take_needed(&taker, STRATA__BUFFER_EXPERT_WEIGHTS, first, rows);
    select->rows = rows;
    select->experts = geometry->experts;
    select->top_k = geometry->top_k;
    select->gating = geometry->gating;
    select->normalise = geometry->normalise_weights;
    select->groups = geometry->expert_groups;
    select->groups_used = geometry->expert_groups_used;
    select->weight_scale = geometry->expert_weight_scale;
    if (taker.status == STRATA_OK)
        taker.status = norm_args(step, first, rows, first, &out->norm);
    return taker.status == STRATA_OK ? router_args(step, first, router) : taker.status;
}

static strata_status route_tile(strata__step *step, uint32_t first, uint32_t rows)
{
    strata__kernels *kernels = step->session->kernels;
    void *stream = step->session->stream->native;
    strata__route_args args;
    strata_status status = route_args(step, first, rows, &args);
    if (status == STRATA_OK)
        status = kernels->ops->norm(kernels, stream, &args.norm);
    if (status == STRATA_OK)
        status = kernels->ops->router(kernels, stream, &args.router);
    if (status == STRATA_OK)
        status = kernels->ops->select(kernels, stream, &args.select);
    return status;
}

/* Until a grouping, the last one or the one before, has set its flag. */
static strata_status wait_for_flag(strata__step *step, const uint32_t *flag, uint32_t value)
{
    strata_session *session = step->session;
    strata_status status = STRATA_OK;
    bool done = false;
    while (status == STRATA_OK) {
        for (int i = 0; i < FLAG_POLLS; ++i)
            if (__atomic_load_n(flag, __ATOMIC_ACQUIRE) == value)
                return STRATA_OK;
        if (done)
            return strata__fail(STRATA_ERR_INTERNAL, "grouping has run and its counts are missing");
        status = session->device->ops->event_query(session->device, session->routed, &done);
        if (status == STRATA_OK)
            status = strata__step_advance(step);
    }
    return status;
}

/*
 * The host needs the counts: for exact launches, and to know which experts are routed. A paced step
 * needs none: it waits for the layer before, so that the device never idles and a prompt can still
 * be stopped within a layer or two.
 */
static strata_status wait_for_offsets(strata__step *step)
{
    const uint32_t *flag = step->host_offsets + step->session->geometry->experts + 1;
    const uint32_t *earlier = step->earlier_flag;
    strata_status status;
    step->earlier_flag = flag;
    if (step->is_paced)
        return earlier ? wait_for_flag(step, earlier, *step->flag_value - 1) : STRATA_OK;
    status = strata__timeline_begin(step->timeline, STRATA__SPAN_HOST);
    if (status == STRATA_OK)
        status = wait_for_flag(step, flag, *step->flag_value);
    return status == STRATA_OK ? strata__timeline_end(step->timeline) : status;
}

static strata_status group_args(strata__step *step, strata__group_args *out)
{
    uint32_t experts = step->session->geometry->experts, top_k = step->session->geometry->top_k;
    const strata__layout_buffer *host =
        strata__layout_find_work_host(step->work, STRATA__BUFFER_HOST_OFFSETS);
    uint64_t pairs = (uint64_t)step->rows * top_k;
    strata__taker taker = {step, STRATA_OK};
    strata__group_args args = {0};
    args.ids = strata__take_needed(&taker, STRATA__BUFFER_EXPERT_IDS, 0, step->rows);
    args.offsets = strata__take_needed(&taker, STRATA__BUFFER_OFFSETS, 0, 1);
    args.sorted_row = strata__take_needed(&taker, STRATA__BUFFER_SORTED_ROW, 0, pairs);
    args.sorted_index = strata__take_needed(&taker, STRATA__BUFFER_SORTED_INDEX, 0, step->rows);
    args.scratch = strata__take_scratch(&taker, STRATA__BUFFER_GROUP_SCRATCH).data;
    if (taker.status != STRATA_OK)
        return taker.status;
    args.host_offsets =
        (uint32_t *)(step->host + host->offset + step->expert_layer * host->row_bytes);
    args.rows = step->rows;
    args.top_k = top_k;
    args.experts = experts;
    step->host_offsets = args.host_offsets;
    *out = args;
    return STRATA_OK;
}

static strata_status group(strata__step *step)
{
    strata_session *session = step->session;
    strata__group_args args = {0};
    strata_status status = group_args(step, &args);
    if (status != STRATA_OK)
        return status;
    args.host_flag = args.host_offsets + session->geometry->experts + 1;
    args.flag_value = ++*step->flag_value;
    status = session->kernels->ops->group(session->kernels, session->stream->native, &args);
    if (status == STRATA_OK)
        status =
            session->device->ops->event_record(session->device, session->routed, session->stream);
    return status;
}

/* All rows at once; the host does not look at where they go before the step is over. */
static strata_status route_blindly(strata__step *step)
{
    strata_session *session = step->session;
    strata__route_args args;
    strata_status status = route_args(step, 0, step->rows, &args);
    if (status == STRATA_OK)
        status = group_args(step, &args.group);
    if (status != STRATA_OK)
        return status;
    args.ahead = strata__step_next_projections(step);
    return session->kernels->ops->route(session->kernels, session->stream->native, &args);
}

typedef strata_status (*tile_fn)(strata__step *step, uint32_t first, uint32_t rows);

static strata_status for_tiles(strata__step *step, tile_fn fn)
{
    uint32_t most = step->work->dense_tile;
    strata_status status = STRATA_OK;
    for (uint32_t first = 0; first < step->rows && status == STRATA_OK; first += most) {
        status = fn(step, first, step->rows - first < most ? step->rows - first : most);
        if (status == STRATA_OK)
            status = strata__step_advance(step);
    }
    return status;
}

strata_status strata__step_ffn(strata__step *step)
{
    const strata__layer *layer = &step->session->layers[step->launch.layer];
    strata_status status;
    if (layer->ffn == STRATA__FFN_DENSE)
        return for_tiles(step, dense_tile);
    status = step->is_blind ? route_blindly(step) : for_tiles(step, route_tile);
    if (status == STRATA_OK && !step->is_blind)
        status = group(step);
    if (status == STRATA_OK && layer->shared_width)
        status = for_tiles(step, shared_tile);
    if (status == STRATA_OK && !step->is_blind)
        status = wait_for_offsets(step);
    if (status == STRATA_OK && step->feed)
        strata__feed_routed(step->feed, step->launch.layer, step->host_offsets);
    return status == STRATA_OK ? strata__step_experts(step) : status;
}
