/* SPDX-License-Identifier: MIT */
#include "session/step.h"

#include <string.h>

#include "base/error.h"

void *strata__session_buffer(const strata_session *session, uint32_t id)
{
    const strata__layout_buffer *buffer = strata__layout_find_session(session->layout, id);
    return buffer ? session->memory.base + buffer->offset : NULL;
}

void *strata__host_buffer(const strata__layout_work *work, uint8_t *host_base, uint32_t id)
{
    const strata__layout_buffer *buffer = strata__layout_find_work_host(work, id);
    return buffer ? host_base + buffer->offset : NULL;
}

static const strata__layout_buffer *find(const strata__step *step, uint32_t id)
{
    const strata__layout_buffer *buffer = strata__layout_find(step->work, step->launch.config, id);
    return buffer ? buffer : strata__layout_find_work(step->work, id);
}

void *strata__take(strata__taker *taker, uint32_t id, uint64_t first, uint64_t rows)
{
    const strata__step *step = taker->step;
    const strata__layout_buffer *buffer = find(step, id);
    if (!buffer || taker->status != STRATA_OK)
        return NULL;
    taker->status = strata__layout_check(step->work, &step->launch, id, first + rows);
    if (taker->status != STRATA_OK)
        return NULL;
    return step->base + buffer->offset + first * buffer->row_bytes;
}

void *strata__take_needed(strata__taker *taker, uint32_t id, uint64_t first, uint64_t rows)
{
    void *at = strata__take(taker, id, first, rows);
    if (!at && taker->status == STRATA_OK)
        taker->status = strata__fail(STRATA_ERR_INTERNAL, "layer %u: the plan has no buffer %s",
                                     taker->step->launch.layer, strata__layout_buffer_name(id));
    return at;
}

strata__rows strata__take_rows(strata__taker *taker, uint32_t id, uint32_t scale_id, uint64_t first,
                               uint64_t rows)
{
    strata__rows out;
    out.data = strata__take_needed(taker, id, first, rows);
    out.scale = strata__take(taker, scale_id, first, rows);
    return out;
}

strata__scratch strata__take_scratch(strata__taker *taker, uint32_t id)
{
    const strata__layout_buffer *buffer = find(taker->step, id);
    strata__scratch scratch = {0};
    if (buffer) {
        scratch.data = taker->step->base + buffer->offset;
        scratch.bytes = buffer->bytes;
    }
    return scratch;
}

strata__ahead strata__step_ahead(const strata__weight *weight)
{
    strata__ahead none = {0};
    uint64_t row_bytes;
    if ((uintptr_t)weight->data % 16 != 0 ||
        !strata__format_row_bytes(weight->format, weight->inputs, &row_bytes))
        return none;
    return (strata__ahead){weight->data, row_bytes * weight->outputs / 16 * 16};
}

strata__kv_view strata__step_kv(const strata__step *step)
{
    const strata_session *session = step->session;
    const strata__layout *layout = session->layout;
    const strata__layout_place *place = &layout->layers[step->launch.layer];
    const strata__layer *layer = &session->layers[step->launch.layer];
    strata__kv_view view = {0};
    view.k = session->memory.base + place->k_offset;
    view.v = session->memory.base + place->v_offset;
    view.page_table = strata__session_buffer(session, STRATA__BUFFER_PAGE_TABLE);
    view.page_bytes = place->page_bytes;
    view.table_stride = layout->pages_per_sequence;
    view.page_tokens = layout->page_tokens;
    view.kv_heads = layer->kv_heads;
    view.head_size = layer->head_size;
    view.format = layout->kv_format;
    return view;
}

float *strata__step_residual(const strata__step *step, uint32_t row)
{
    return step->x + (uint64_t)row * step->session->geometry->width;
}

strata__norm_args strata__step_norm(const strata__step *step, const float *gain, uint32_t first,
                                    uint32_t rows)
{
    const strata__geometry *geometry = step->session->geometry;
    strata__norm_args args = {0};
    args.x = strata__step_residual(step, first);
    args.weight = gain;
    args.rows = rows;
    args.width = geometry->width;
    args.eps = geometry->norm_eps;
    return args;
}

strata_status strata__step_add_dense(const strata__step *step, strata__dense_args *args,
                                     uint32_t first, uint32_t rows)
{
    strata_session *session = step->session;
    args->out_f32 = strata__step_residual(step, first);
    args->rows = rows;
    args->out_stride = session->geometry->width;
    args->few = step->is_decode;
    args->mode = STRATA__DENSE_ADD_F32;
    args->alpha = session->geometry->residual_scale;
    return session->kernels->ops->dense(session->kernels, session->stream->native, args);
}

void strata__step_use(strata__step *step, strata__step_host *host)
{
    step->host = host->region.base;
    step->tile_segment = host->tile_segment;
    step->tile_capacity = host->tile_capacity;
    step->flag_value = &host->flag_value;
}

/* Segments of the rows [first, first + rows), which may lie in several parts. */
static strata_status add_tile(strata__step *step, strata__segment *segments, uint32_t *used,
                              uint32_t *tiles, uint32_t first, uint32_t rows)
{
    uint32_t part_first = 0, end = first + rows;
    if (*tiles >= step->tile_capacity)
        return strata__fail(STRATA_ERR_INTERNAL, "a step of %u rows has more than %u tiles",
                            step->rows, step->tile_capacity);
    step->tile_segment[(*tiles)++] = *used;
    for (uint32_t i = 0; i < step->part_count; ++i) {
        const strata__step_part *part = &step->parts[i];
        uint32_t from = part_first > first ? part_first : first;
        uint32_t to = part_first + part->rows < end ? part_first + part->rows : end;
        if (from < to) {
            strata__segment *segment = &segments[*used];
            if (*used >= step->work->segment_capacity)
                return strata__fail(STRATA_ERR_CAPACITY,
                                    "chunk %llu of %u rows has more segments than the %u planned",
                                    (unsigned long long)step->chunk, step->rows,
                                    step->work->segment_capacity);
            segment->first_row = from - first;
            segment->rows = to - from;
            segment->position = (uint32_t)(part->position + (from - part_first));
            segment->sequence = part->sequence;
            ++*used;
        }
        part_first += part->rows;
    }
    return STRATA_OK;
}

/* The dense tiles' segments, then the attention tiles'. */
static strata_status fill_segments(strata__step *step, strata__segment *segments, uint32_t *used)
{
    uint32_t dense = step->work->dense_tile, attention = step->work->attention_tile, tiles = 0;
    strata_status status = STRATA_OK;
    *used = 0;
    for (uint32_t first = 0; first < step->rows && status == STRATA_OK; first += dense) {
        uint32_t rows = step->rows - first < dense ? step->rows - first : dense;
        status = add_tile(step, segments, used, &tiles, first, rows);
    }
    step->dense_tiles = tiles;
    for (uint32_t outer = 0; outer < step->rows && status == STRATA_OK; outer += dense) {
        uint32_t end = step->rows - outer < dense ? step->rows : outer + dense;
        for (uint32_t first = outer; first < end && status == STRATA_OK; first += attention) {
            uint32_t rows = end - first < attention ? end - first : attention;
            status = add_tile(step, segments, used, &tiles, first, rows);
        }
    }
    step->tile_segment[tiles] = *used;
    return status;
}

static strata_status upload(const strata__step *step, void *target, const void *source,
                            uint64_t bytes)
{
    strata__device *device = step->session->device;
    return device->ops->copy(device, step->session->stream, target, source, bytes);
}

strata_status strata__step_upload_pages(strata__step *step)
{
    strata__kv *kv = &step->session->kv;
    uint64_t cells = (uint64_t)kv->sequence_count * kv->table_stride;
    strata_status status;
    if (!kv->changed)
        return STRATA_OK;
    status = upload(step, strata__session_buffer(step->session, STRATA__BUFFER_PAGE_TABLE),
                    kv->table, cells * sizeof *kv->table);
    if (status == STRATA_OK)
        kv->changed = false;
    return status;
}

strata_status strata__step_prepare(strata__step *step)
{
    const strata__layout_buffer *tokens =
        strata__layout_find_work(step->work, STRATA__BUFFER_TOKENS);
    const strata__layout_buffer *entries =
        strata__layout_find_work(step->work, STRATA__BUFFER_SEGMENTS);
    uint64_t half = step->chunk % 2;
    uint8_t *host_tokens = strata__host_buffer(step->work, step->host, STRATA__BUFFER_HOST_TOKENS);
    uint8_t *host_segments =
        strata__host_buffer(step->work, step->host, STRATA__BUFFER_HOST_SEGMENTS);
    strata__taker taker = {step, STRATA_OK};
    uint32_t row = 0;
    strata__step_layer(step, 0);
    step->x = strata__take_needed(&taker, STRATA__BUFFER_RESIDUAL, 0, step->rows);
    step->tokens = strata__take_needed(&taker, STRATA__BUFFER_TOKENS, 0, step->rows);
    if (taker.status != STRATA_OK)
        return taker.status;
    host_tokens += half * tokens->bytes;
    host_segments += half * entries->bytes;
    for (uint32_t i = 0; i < step->part_count; row += step->parts[i++].rows)
        memcpy(host_tokens + row * sizeof(int32_t), step->parts[i].tokens,
               step->parts[i].rows * sizeof(int32_t));
    step->host_tokens = host_tokens;
    step->segments = (const strata__segment *)(step->base + entries->offset);
    step->host_segments = (const strata__segment *)host_segments;
    return fill_segments(step, (strata__segment *)host_segments, &step->segment_count);
}

strata_status strata__step_upload(const strata__step *step)
{
    const strata__layout_buffer *tokens =
        strata__layout_find_work(step->work, STRATA__BUFFER_TOKENS);
    const strata__layout_buffer *entries =
        strata__layout_find_work(step->work, STRATA__BUFFER_SEGMENTS);
    strata_status status =
        upload(step, step->base + tokens->offset, step->host_tokens, step->rows * sizeof(int32_t));
    return status == STRATA_OK ? upload(step, step->base + entries->offset, step->host_segments,
                                        step->segment_count * sizeof(strata__segment))
                               : status;
}

strata_status strata__step_begin(strata__step *step)
{
    strata_status status = strata__step_prepare(step);
    if (status == STRATA_OK)
        status = strata__step_upload_pages(step);
    return status == STRATA_OK ? strata__step_upload(step) : status;
}

void strata__step_layer(strata__step *step, uint32_t layer)
{
    const strata_session *session = step->session;
    step->launch.layer = layer;
    step->launch.chunk = step->chunk;
    step->acquired_experts = 0;
    step->host_offsets = NULL;
    if (layer == session->geometry->layers) {
        step->launch.config = step->work->edge_config;
        return;
    }
    step->launch.config = strata__layout_config_of(step->work, layer, step->rows);
    step->expert_layer = 0;
    for (uint32_t i = 0; i < layer; ++i)
        step->expert_layer += session->layers[i].ffn == STRATA__FFN_EXPERTS;
}

strata_status strata__step_advance(strata__step *step)
{
    return step->feed ? strata__feed_advance(step->feed) : STRATA_OK;
}

strata_status strata__step_embed(strata__step *step)
{
    const strata_session *session = step->session;
    strata__embed_args args = {0};
    args.table = session->weights.embedding;
    args.tokens = step->tokens;
    args.x = step->x;
    args.rows = step->rows;
    args.scale = session->geometry->embedding_scale;
    return session->kernels->ops->embed(session->kernels, session->stream->native, &args);
}
