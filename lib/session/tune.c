/* SPDX-License-Identifier: MIT */
/*
 * Every path and format is timed over a few experts of random blocks at two numbers of rows, gate,
 * up and down together. From the two times follow the rate at many rows and the rows at half of it.
 * Float formats cost what the others do on average.
 */
#include "session/tune.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/format.h"
#include "device/device.h"
#include "kernels/kernels.h"
#include "layout/layout.h"
#include "session/plan_input.h"
#include "session/region.h"
#include "session/step.h"

/* Shapes and rows that fill a device, and those that a host gets through. */
typedef struct shape {
    uint32_t experts, width, hidden;
    uint32_t rows[2]; /* of each expert */
    uint32_t rounds;
} shape;

static const shape on_accelerator = {32, 2048, 768, {64, 512}, 4};
static const shape on_host = {4, 512, 256, {4, 32}, 3};

static const uint32_t tuned_paths[] = {STRATA__PATH_FUSED, STRATA__PATH_MMQ, STRATA__PATH_FP16};

enum { TEXT_BYTES = 1 << 14, LINE_BYTES = 80, BLOB_ALIGNMENT = 256, PATHS = 3 };

/* More than all experts take decoded: the layout cuts it to what they do. */
static const uint64_t scratch_bytes = 1u << 30;

static const char purpose[] = "measuring costs";

typedef struct tuner {
    strata__device *device;
    strata__kernels *kernels;
    const strata__allocator *allocator;
    strata__stream *stream;
    strata__event *events[2];
    const shape *shape;
    uint64_t blob_bytes;  /* largest of a matrix */
    strata__region blobs; /* [3][experts] of blob_bytes */
    /* Of each path: a prompt whose tokens have one expert each. NULL: the path takes no format. */
    strata__layout *layouts[PATHS];
    strata__region memory; /* of the path that is measured */
    strata__region host;
    strata__step step; /* what strata__take() looks at */
    char *text;
    uint64_t length;
} tuner;

static bool is_tuned(const tuner *t, uint32_t id)
{
    const strata__format_info *format = strata__format_find(id);
    return format && format->block_values > 1 && t->shape->hidden % format->block_values == 0;
}

static bool is_tuned_on(const tuner *t, uint32_t path, uint32_t id)
{
    return is_tuned(t, id) && (t->kernels->facts.coverage[path] >> id & 1);
}

static uint64_t largest_blob(const tuner *t)
{
    uint64_t most = 0, bytes;
    for (uint32_t id = 0; id < STRATA__FORMAT_LIMIT; ++id)
        if (is_tuned(t, id) && strata__format_row_bytes(id, t->shape->width, &bytes) &&
            bytes * t->shape->hidden > most)
            most = bytes * t->shape->hidden;
    return (most + BLOB_ALIGNMENT - 1) / BLOB_ALIGNMENT * BLOB_ALIGNMENT;
}

/* Blocks whose half scales are no infinities, and whose values are all different. */
static void fill_blobs(uint8_t *blobs, uint64_t bytes)
{
    uint64_t state = 0x9e3779b97f4a7c15u;
    for (uint64_t i = 0; i < bytes; ++i) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        blobs[i] = (uint8_t)(state >> 32 & 0x3b);
    }
}

static strata_status put(tuner *t, void *target, const void *source, uint64_t bytes)
{
    const strata__device_ops *ops = t->device->ops;
    strata_status status = ops->copy(t->device, t->stream, target, source, bytes);
    return status == STRATA_OK ? ops->stream_synchronize(t->device, t->stream) : status;
}

/* Blobs for all measurements. */
static strata_status open_blobs(tuner *t)
{
    uint64_t bytes = 3 * t->shape->experts * t->blob_bytes;
    uint8_t *source = strata__alloc(t->allocator, bytes);
    strata_status status = source ? strata__region_alloc(&t->blobs, t->device, bytes, purpose)
                                  : strata__fail_memory(bytes, purpose);
    if (status == STRATA_OK) {
        fill_blobs(source, bytes);
        status = put(t, t->blobs.base, source, bytes);
    }
    strata__free(t->allocator, source, bytes);
    return status;
}

/*
 * One layer of experts, the least of everything else, all experts on the device. `format` is any
 * that the path takes: no buffer depends on it.
 */
static strata_status build_layout(tuner *t, uint32_t path, uint32_t format, strata__layout **out)
{
    const shape *s = t->shape;
    const uint32_t rows = s->experts * s->rows[1];
    const uint32_t resident = t->device->facts.host_addressable ? 0 : s->experts;
    const strata__layout_layer layer = {.heads = 1,
                                        .kv_heads = 1,
                                        .head_size = 64,
                                        .expert_width = s->hidden,
                                        .gate_format = format,
                                        .up_format = format,
                                        .down_format = format,
                                        .gate_bytes = t->blob_bytes,
                                        .up_bytes = t->blob_bytes,
                                        .down_bytes = t->blob_bytes};
    const strata__layout_choice choice = {.chunk_tokens = rows,
                                          .logit_tile = 1,
                                          .scratch_bytes = scratch_bytes,
                                          .resident = &resident};
    strata__layout_input input = {.geometry = {.layers = &layer,
                                               .layer_count = 1,
                                               .width = s->width,
                                               .vocabulary = 1,
                                               .experts = s->experts,
                                               .top_k = 1,
                                               .residual_streams = 1},
                                  .request = {.context_tokens = rows, .path = path}};
    strata__plan_facts(&t->device->facts, &t->kernels->facts, NULL, &input.facts);
    return strata__layout_build(t->allocator, &input, &choice, out);
}

static strata_status put_pointers(tuner *t)
{
    strata__taker taker = {&t->step, STRATA_OK};
    const uint8_t **host =
        strata__host_buffer(t->step.work, t->host.base, STRATA__BUFFER_HOST_POINTERS);
    void *pointers = strata__take_needed(&taker, STRATA__BUFFER_POINTERS, 0, 1);
    uint32_t count = 3 * t->shape->experts;
    if (taker.status != STRATA_OK)
        return taker.status;
    for (uint32_t i = 0; i < count; ++i)
        host[i] = t->blobs.base + i * t->blob_bytes;
    return put(t, pointers, host, count * sizeof *host);
}

/* Memory that serves each path in its turn: nothing is allocated between measurements. */
static strata_status open_memory(tuner *t)
{
    uint64_t bytes = 0, host_bytes = 0;
    strata_status status;
    for (uint32_t i = 0; i < PATHS; ++i) {
        uint32_t id = 0;
        while (id < STRATA__FORMAT_LIMIT && !is_tuned_on(t, tuned_paths[i], id))
            ++id;
        if (id == STRATA__FORMAT_LIMIT)
            continue;
        status = build_layout(t, tuned_paths[i], id, &t->layouts[i]);
        if (status != STRATA_OK)
            return status;
        if (t->layouts[i]->prompt_bytes > bytes)
            bytes = t->layouts[i]->prompt_bytes;
        if (t->layouts[i]->host_bytes > host_bytes)
            host_bytes = t->layouts[i]->host_bytes;
    }
    status = strata__region_alloc(&t->memory, t->device, bytes, purpose);
    if (status == STRATA_OK)
        status = strata__region_alloc_host(&t->host, t->device, host_bytes, purpose);
    return status;
}

static void close_memory(tuner *t) /* also half open */
{
    strata__region_free(&t->memory, t->device);
    strata__region_free(&t->host, t->device);
    strata__region_free(&t->blobs, t->device);
    for (uint32_t i = 0; i < PATHS; ++i)
        strata__layout_destroy(t->layouts[i]);
}

static strata__expert_weight weight(const tuner *t, const void *const *pointers, uint32_t index,
                                    uint32_t format)
{
    bool down = index == 2;
    strata__expert_weight w = {.format = format};
    w.blobs = pointers + index * t->shape->experts;
    w.inputs = down ? t->shape->hidden : t->shape->width;
    w.outputs = down ? t->shape->width : t->shape->hidden;
    return w;
}

typedef struct products {
    strata__gate_up_args up;
    strata__down_args down;
} products;

/* All rows in one launch, with the buffers that the path's configuration has for them. */
static strata_status take_buffers(const tuner *t, uint32_t format, uint32_t rows, products *out)
{
    strata__taker taker = {&t->step, STRATA_OK};
    const void *const *pointers = strata__take_needed(&taker, STRATA__BUFFER_POINTERS, 0, 1);
    strata__gate_up_args up = {0};
    strata__down_args down = {0};
    if (!pointers)
        return taker.status;
    up.gate = weight(t, pointers, 0, format);
    up.up = weight(t, pointers, 1, format);
    down.down = weight(t, pointers, 2, format);
    up.range.offsets = strata__take_needed(&taker, STRATA__BUFFER_OFFSETS, 0, 1);
    up.range.host_offsets =
        strata__host_buffer(t->step.work, t->host.base, STRATA__BUFFER_HOST_OFFSETS);
    up.range.rows = rows;
    up.range.last_expert = t->shape->experts - 1;
    up.sorted_row = strata__take_needed(&taker, STRATA__BUFFER_SORTED_ROW, 0, rows);
    up.in.data = strata__take_needed(&taker, STRATA__BUFFER_FFN_XN, 0, rows);
    up.h.data = strata__take(&taker, STRATA__BUFFER_EXPERT_H, 0, rows);
    up.h.scale = strata__take(&taker, STRATA__BUFFER_EXPERT_H_SCALE, 0, rows);
    if (!up.h.data)
        up.h.data = strata__take_needed(&taker, STRATA__BUFFER_QUANTISED_H, 0, rows);
    up.gate_up = strata__take(&taker, STRATA__BUFFER_EXPERT_GATE_UP, 0, rows);
    up.quantised = strata__take(&taker, STRATA__BUFFER_QUANTISED_IN, 0, rows);
    up.scratch = strata__take_scratch(&taker, STRATA__BUFFER_EXPERT_SCRATCH);
    up.path = t->step.work->configs[t->step.launch.config].path;
    up.down_format = format;
    down.range = up.range;
    down.h = up.h;
    down.y = strata__take_needed(&taker, STRATA__BUFFER_EXPERT_Y, 0, rows);
    down.scratch = up.scratch;
    down.path = up.path;
    *out = (products){up, down};
    return taker.status;
}

/* As many rows for each expert, which all read the first row of inputs. */
static strata_status put_rows(tuner *t, const products *p, uint32_t each)
{
    const strata__device_ops *ops = t->device->ops;
    const strata__layout_buffer *in =
        strata__layout_find(t->step.work, t->step.launch.config, STRATA__BUFFER_FFN_XN);
    uint32_t *offsets =
        strata__host_buffer(t->step.work, t->host.base, STRATA__BUFFER_HOST_OFFSETS);
    strata_status status = ops->fill(t->device, t->stream, (void *)(uintptr_t)p->up.sorted_row, 0,
                                     p->up.range.rows * sizeof *p->up.sorted_row);
    if (status == STRATA_OK) /* half 0.94, float 2.8e-21; row scales are not given */
        status = ops->fill(t->device, t->stream, p->up.in.data, 0x3b, in->row_bytes);
    for (uint32_t e = 0; e <= t->shape->experts; ++e)
        offsets[e] = e * each;
    if (status != STRATA_OK)
        return status;
    return put(t, (void *)(uintptr_t)p->up.range.offsets, offsets,
               (t->shape->experts + 1) * sizeof *offsets);
}

static strata_status multiply(const tuner *t, const products *p)
{
    const strata__kernels_ops *ops = t->kernels->ops;
    strata_status status = ops->gate_up(t->kernels, t->stream->native, &p->up);
    return status == STRATA_OK ? ops->down(t->kernels, t->stream->native, &p->down) : status;
}

/* Seconds of the least round after one. */
static strata_status measure(tuner *t, uint32_t format, uint32_t each, double *out)
{
    const strata__device_ops *ops = t->device->ops;
    uint32_t rows = t->shape->experts * each;
    uint64_t least = UINT64_MAX, ns = 0;
    strata_status status;
    products p;
    t->step.launch.config = strata__layout_config_of(t->step.work, 0, rows);
    status = take_buffers(t, format, rows, &p);
    if (status == STRATA_OK)
        status = put_rows(t, &p, each);
    for (uint32_t round = 0; round <= t->shape->rounds && status == STRATA_OK; ++round) {
        status = ops->event_record(t->device, t->events[0], t->stream);
        if (status == STRATA_OK)
            status = multiply(t, &p);
        if (status == STRATA_OK)
            status = ops->event_record(t->device, t->events[1], t->stream);
        if (status == STRATA_OK)
            status = ops->stream_synchronize(t->device, t->stream);
        if (status == STRATA_OK)
            status = ops->event_elapsed_ns(t->device, t->events[0], t->events[1], &ns);
        if (round && ns < least)
            least = ns;
    }
    *out = least ? (double)least * 1e-9 : 1e-9;
    return status;
}

static void append(tuner *t, const char *line)
{
    uint64_t length = strlen(line);
    if (t->length + length < TEXT_BYTES)
        memcpy(t->text + t->length, line, length + 1);
    t->length += length;
}

static uint64_t within(double value, double least, double most)
{
    return (uint64_t)(value < least ? least : value > most ? most : value);
}

/*
 * rate(r) = flops * r / (r + half) at both numbers of rows; where small rows are as good as many,
 * half is 0.
 */
static strata_status tune_format(tuner *t, uint32_t format, double *flops, double *half)
{
    const shape *s = t->shape;
    double per_row = 6.0 * s->experts * s->width * s->hidden, each[2]; /* seconds for one flop */
    for (int i = 0; i < 2; ++i) {
        double seconds;
        strata_status status = measure(t, format, s->rows[i], &seconds);
        if (status != STRATA_OK)
            return status;
        each[i] = seconds / (per_row * s->rows[i]);
    }
    double slope = (each[0] - each[1]) / (1.0 / s->rows[0] - 1.0 / s->rows[1]);
    double least = each[1] - slope / s->rows[1];
    if (slope < 0 || least < each[1] / 8) {
        slope = slope < 0 ? 0 : slope;
        least = slope > 0 ? each[1] / 8 : each[1];
    }
    *flops = 1 / least;
    *half = slope / least;
    return STRATA_OK;
}

/* A path's lines: what is usual of its formats first. */
static strata_status tune_path(tuner *t, uint32_t index)
{
    const uint32_t path = tuned_paths[index];
    double flops[STRATA__FORMAT_LIMIT] = {0}, flops_sum = 0, half_sum = 0;
    uint32_t count = 0;
    char line[LINE_BYTES];
    strata_status status;
    if (!t->layouts[index])
        return STRATA_OK;
    t->step = (strata__step){
        .work = &t->layouts[index]->prompt, .base = t->memory.base, .host = t->host.base};
    status = put_pointers(t);
    for (uint32_t id = 0; id < STRATA__FORMAT_LIMIT && status == STRATA_OK; ++id) {
        double half = 0;
        if (!is_tuned_on(t, path, id))
            continue;
        status = tune_format(t, id, &flops[id], &half);
        flops_sum += flops[id];
        half_sum += half;
        count++;
    }
    if (status != STRATA_OK)
        return status;
    snprintf(line, sizeof line, "%s * %llu %llu\n", strata__layout_path_name(path),
             (unsigned long long)within(flops_sum / count * 1e-9, 1, 1e9),
             (unsigned long long)within(half_sum / count, 0, 1e6));
    append(t, line);
    for (uint32_t id = 0; id < STRATA__FORMAT_LIMIT; ++id) {
        if (flops[id] <= 0)
            continue;
        snprintf(line, sizeof line, "%s %s %llu\n", strata__layout_path_name(path),
                 strata__format_name(id), (unsigned long long)within(flops[id] * 1e-9, 1, 1e9));
        append(t, line);
    }
    return STRATA_OK;
}

static strata_status run(tuner *t)
{
    char line[LINE_BYTES];
    strata_status status = open_memory(t);
    if (status == STRATA_OK)
        status = open_blobs(t);
    snprintf(line, sizeof line, "strata costs 1\ncompute_capability %u\n",
             t->device->facts.compute_capability);
    append(t, line);
    append(t, "# path, format or *, GFLOP/s at many rows, rows an expert at half of that\n");
    for (uint32_t i = 0; i < PATHS && status == STRATA_OK; ++i)
        status = tune_path(t, i);
    close_memory(t);
    if (status == STRATA_OK && t->length >= TEXT_BYTES)
        status = strata__fail(STRATA_ERR_INTERNAL, "costs: the text of %llu bytes is too long",
                              (unsigned long long)t->length);
    return status;
}

static strata_status tune_opened(tuner *t)
{
    const strata__device_ops *ops = t->device->ops;
    strata_status status = STRATA_OK;
    t->shape = t->device->facts.compute_capability ? &on_accelerator : &on_host;
    t->blob_bytes = largest_blob(t);
    t->text = strata__alloc(t->allocator, TEXT_BYTES);
    if (!t->text)
        return strata__fail_memory(TEXT_BYTES, purpose);
    status = ops->stream_create(t->device, &t->stream);
    for (int i = 0; i < 2 && status == STRATA_OK; ++i)
        status = ops->event_create(t->device, true, &t->events[i]);
    if (status == STRATA_OK)
        status = run(t);
    for (int i = 0; i < 2; ++i)
        if (t->events[i])
            ops->event_destroy(t->device, t->events[i]);
    if (t->stream)
        ops->stream_destroy(t->device, t->stream);
    return status;
}

static strata_status open_kernels(tuner *t)
{
    if (t->device->facts.kind == STRATA__DEVICE_CUDA) {
        strata__cuda_kernels_options cuda = {.allocator = t->allocator};
        cuda.device_ordinal = (int32_t)t->device->facts.ordinal;
        return strata__cuda_kernels_create(&cuda, &t->kernels);
    }
    strata__cpu_kernels_options cpu = {.allocator = t->allocator, .any_order = true};
    return strata__cpu_kernels_create(&cpu, &t->kernels);
}

strata_status strata__tune(strata_context *context, const char *name, char *text, uint64_t capacity,
                           uint64_t *out_bytes)
{
    uint8_t saved[STRATA__DEVICE_SAVED_BYTES];
    tuner t = {.allocator = &context->allocator};
    strata_status status = strata__device_open(context, name, &t.device);
    if (status != STRATA_OK)
        return status;
    status = t.device->ops->enter(t.device, saved);
    if (status == STRATA_OK) {
        status = open_kernels(&t);
        if (status == STRATA_OK)
            status = tune_opened(&t);
        if (t.kernels)
            t.kernels->ops->destroy(t.kernels);
        t.device->ops->leave(t.device, saved);
    }
    strata__device_release(t.device);
    if (status == STRATA_OK) {
        *out_bytes = t.length + 1;
        if (capacity > t.length)
            memcpy(text, t.text, t.length + 1);
        else
            status = strata__fail(STRATA_ERR_BUFFER_TOO_SMALL, "costs: %llu bytes of text in %llu",
                                  (unsigned long long)(t.length + 1), (unsigned long long)capacity);
    }
    strata__free(t.allocator, t.text, TEXT_BYTES);
    return status;
}
