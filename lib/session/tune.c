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

/* Shapes and rows that fill a device, and those that a host gets through. */
typedef struct shape {
    uint32_t experts, width, hidden;
    uint32_t rows[2]; /* of each expert */
    uint32_t rounds;
} shape;

static const shape on_accelerator = {32, 2048, 768, {64, 512}, 4};
static const shape on_host = {4, 512, 256, {4, 32}, 3};

enum { TEXT_BYTES = 1 << 14, LINE_BYTES = 80, ALIGNMENT = 256, PARTS = 10 };

/* Where things lie in the one range of device memory. */
enum part {
    PART_BLOBS,
    PART_TABLES,
    PART_OFFSETS,
    PART_SORTED,
    PART_IN,
    PART_QUANTISED,
    PART_H,
    PART_GATE_UP,
    PART_Y,
    PART_SCRATCH
};

typedef struct tuner {
    strata__device *device;
    strata__kernels *kernels;
    const strata__allocator *allocator;
    strata__stream *stream;
    strata__event *events[2];
    const shape *shape;
    uint64_t at[PARTS + 1]; /* offsets of the parts, and their end */
    uint8_t *memory;
    uint8_t *host;       /* source of blobs, tables and offsets */
    uint64_t blob_bytes; /* largest of a matrix */
    uint64_t host_bytes;
    char *text;
    uint64_t length;
} tuner;

static bool is_tuned(const tuner *t, uint32_t id)
{
    const strata__format_info *format = strata__format_find(id);
    return format && format->block_values > 1 && t->shape->hidden % format->block_values == 0;
}

static uint64_t rounded(uint64_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static void place_parts(tuner *t)
{
    const shape *s = t->shape;
    uint64_t rows = (uint64_t)s->experts * s->rows[1], width = s->width, hidden = s->hidden;
    uint64_t element = t->kernels->facts.activation_bytes;
    uint64_t quantised = strata__quantised_row_bytes(s->width);
    uint64_t quantised_h = strata__quantised_row_bytes(s->hidden);
    uint64_t h = hidden * element > quantised_h ? hidden * element : quantised_h;
    uint64_t values = 2 * (uint64_t)s->experts * width * (hidden + 128);
    const uint64_t bytes[PARTS] = {
        [PART_BLOBS] = 3 * s->experts * t->blob_bytes,
        [PART_TABLES] = 3 * s->experts * sizeof(void *),
        [PART_OFFSETS] = (s->experts + 1) * sizeof(uint32_t),
        [PART_SORTED] = rows * sizeof(uint32_t),
        [PART_IN] = width * element + sizeof(float),
        [PART_QUANTISED] = rows * quantised,
        [PART_H] = rows * (h + sizeof(float)),
        [PART_GATE_UP] = rows * 2 * hidden * sizeof(float),
        [PART_Y] = rows * width * sizeof(float),
        [PART_SCRATCH] = values * t->kernels->facts.decode_bytes_per_value,
    };
    for (uint32_t i = 0; i < PARTS; ++i)
        t->at[i + 1] = t->at[i] + rounded(bytes[i]);
    t->host_bytes = t->at[PART_SORTED];
}

static void *part(const tuner *t, enum part which)
{
    return t->memory + t->at[which];
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

static strata_status put(tuner *t, enum part which, uint64_t bytes)
{
    return t->device->ops->copy(t->device, t->stream, part(t, which), t->host + t->at[which],
                                bytes);
}

/* Blobs and pointers to them, for all measurements; rows that read the one row of inputs. */
static strata_status fill(tuner *t)
{
    const strata__device_ops *ops = t->device->ops;
    uint32_t count = 3 * t->shape->experts;
    strata_status status;
    fill_blobs(t->host, count * t->blob_bytes);
    for (uint32_t i = 0; i < count; ++i) {
        const uint8_t *blob = t->memory + t->at[PART_BLOBS] + i * t->blob_bytes;
        memcpy(t->host + t->at[PART_TABLES] + i * sizeof blob, &blob, sizeof blob);
    }
    status = put(t, PART_BLOBS, t->at[PART_OFFSETS]);
    if (status == STRATA_OK)
        status = ops->fill(t->device, t->stream, part(t, PART_SORTED), 0,
                           t->at[PART_IN] - t->at[PART_SORTED]);
    if (status == STRATA_OK) /* half 0.94, float 2.8e-21; row scales are not given */
        status = ops->fill(t->device, t->stream, part(t, PART_IN), 0x3b,
                           t->at[PART_QUANTISED] - t->at[PART_IN]);
    return status == STRATA_OK ? ops->stream_synchronize(t->device, t->stream) : status;
}

static strata_status set_rows(tuner *t, uint32_t rows)
{
    uint32_t *offsets = (uint32_t *)(void *)(t->host + t->at[PART_OFFSETS]);
    strata_status status;
    for (uint32_t e = 0; e <= t->shape->experts; ++e)
        offsets[e] = e * rows;
    status = put(t, PART_OFFSETS, (t->shape->experts + 1) * sizeof *offsets);
    return status == STRATA_OK ? t->device->ops->stream_synchronize(t->device, t->stream) : status;
}

static strata__expert_weight weight(const tuner *t, uint32_t index, uint32_t format)
{
    const void *const *tables = part(t, PART_TABLES);
    bool down = index == 2;
    strata__expert_weight w = {.format = format};
    w.blobs = tables + index * t->shape->experts;
    w.inputs = down ? t->shape->hidden : t->shape->width;
    w.outputs = down ? t->shape->width : t->shape->hidden;
    return w;
}

static strata_status multiply(const tuner *t, uint32_t path, uint32_t format, uint32_t rows)
{
    const shape *s = t->shape;
    uint64_t scratch = t->at[PART_SCRATCH + 1] - t->at[PART_SCRATCH];
    uint64_t all = (uint64_t)s->experts * rows;
    bool scales = t->kernels->facts.row_scale_bytes != 0;
    float *h_scale = (float *)(void *)((uint8_t *)part(t, PART_GATE_UP) - all * sizeof(float));
    strata__gate_up_args up = {.gate = weight(t, 0, format), .up = weight(t, 1, format)};
    strata__down_args down = {.down = weight(t, 2, format)};
    strata_status status;
    up.range.offsets = part(t, PART_OFFSETS);
    up.range.host_offsets = (const uint32_t *)(const void *)(t->host + t->at[PART_OFFSETS]);
    up.range.rows = (uint32_t)all;
    up.range.last_expert = s->experts - 1;
    up.sorted_row = part(t, PART_SORTED);
    up.in.data = part(t, PART_IN);
    up.h.data = part(t, PART_H);
    up.h.scale = scales ? h_scale : NULL;
    up.gate_up = part(t, PART_GATE_UP);
    up.quantised = part(t, PART_QUANTISED);
    up.scratch = (strata__scratch){part(t, PART_SCRATCH), scratch};
    up.path = path;
    up.down_format = format;
    down.range = up.range;
    down.h = up.h;
    down.y = part(t, PART_Y);
    down.scratch = up.scratch;
    down.path = path;
    status = t->kernels->ops->gate_up(t->kernels, t->stream->native, &up);
    return status == STRATA_OK ? t->kernels->ops->down(t->kernels, t->stream->native, &down)
                               : status;
}

/* Seconds of the least round after one. */
static strata_status measure(tuner *t, uint32_t path, uint32_t format, uint32_t rows, double *out)
{
    const strata__device_ops *ops = t->device->ops;
    uint64_t least = UINT64_MAX, ns = 0;
    strata_status status = set_rows(t, rows);
    for (uint32_t round = 0; round <= t->shape->rounds && status == STRATA_OK; ++round) {
        status = ops->event_record(t->device, t->events[0], t->stream);
        if (status == STRATA_OK)
            status = multiply(t, path, format, rows);
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
static strata_status tune_format(tuner *t, uint32_t path, uint32_t format, double *flops,
                                 double *half)
{
    const shape *s = t->shape;
    double per_row = 6.0 * s->experts * s->width * s->hidden, each[2]; /* seconds for one flop */
    for (int i = 0; i < 2; ++i) {
        double seconds;
        strata_status status = measure(t, path, format, s->rows[i], &seconds);
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
static strata_status tune_path(tuner *t, uint32_t path)
{
    const uint64_t covered = t->kernels->facts.coverage[path];
    double flops[STRATA__FORMAT_LIMIT] = {0}, flops_sum = 0, half_sum = 0;
    uint32_t count = 0;
    char line[LINE_BYTES];
    for (uint32_t id = 0; id < STRATA__FORMAT_LIMIT; ++id) {
        double half;
        strata_status status;
        if (!is_tuned(t, id) || !(covered >> id & 1))
            continue;
        status = tune_format(t, path, id, &flops[id], &half);
        if (status != STRATA_OK)
            return status;
        flops_sum += flops[id];
        half_sum += half;
        count++;
    }
    if (!count)
        return STRATA_OK;
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

static uint64_t largest_blob(const tuner *t)
{
    uint64_t most = 0, bytes;
    for (uint32_t id = 0; id < STRATA__FORMAT_LIMIT; ++id)
        if (is_tuned(t, id) && strata__format_row_bytes(id, t->shape->width, &bytes) &&
            bytes * t->shape->hidden > most)
            most = bytes * t->shape->hidden;
    return rounded(most);
}

static strata_status run(tuner *t)
{
    static const uint32_t paths[] = {STRATA__PATH_FUSED, STRATA__PATH_MMQ, STRATA__PATH_FP16};
    char line[LINE_BYTES];
    strata_status status = fill(t);
    snprintf(line, sizeof line, "strata costs 1\ncompute_capability %u\n",
             t->device->facts.compute_capability);
    append(t, line);
    append(t, "# path, format or *, GFLOP/s at many rows, rows an expert at half of that\n");
    for (uint32_t i = 0; i < sizeof paths / sizeof paths[0] && status == STRATA_OK; ++i)
        status = tune_path(t, paths[i]);
    if (status == STRATA_OK && t->length >= TEXT_BYTES)
        status = strata__fail(STRATA_ERR_INTERNAL, "costs: the text of %llu bytes is too long",
                              (unsigned long long)t->length);
    return status;
}

static strata_status tune_opened(tuner *t)
{
    const strata__device_ops *ops = t->device->ops;
    strata_status status;
    t->shape = t->device->facts.compute_capability ? &on_accelerator : &on_host;
    t->blob_bytes = largest_blob(t);
    place_parts(t);
    t->host = strata__alloc(t->allocator, t->host_bytes);
    t->text = strata__alloc(t->allocator, TEXT_BYTES);
    status = t->host && t->text
                 ? ops->alloc(t->device, t->at[PARTS], "measuring costs", (void **)&t->memory)
                 : strata__fail_memory(t->host_bytes + TEXT_BYTES, "measuring costs");
    if (status == STRATA_OK)
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
    if (t->memory)
        ops->free(t->device, t->memory, t->at[PARTS]);
    return status;
}

static strata_status open_kernels(tuner *t)
{
    if (t->device->facts.kind == STRATA__DEVICE_CUDA) {
        strata__cuda_kernels_options cuda = {.allocator = t->allocator};
        cuda.device_ordinal = (int32_t)t->device->facts.ordinal;
        return strata__cuda_kernels_create(&cuda, &t->kernels);
    }
    strata__cpu_kernels_options cpu = {.allocator = t->allocator, .use_blas = true};
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
    strata__free(t.allocator, t.host, t.host_bytes);
    strata__free(t.allocator, t.text, TEXT_BYTES);
    return status;
}
