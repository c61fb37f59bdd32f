/* SPDX-License-Identifier: MIT */
/*
 * Graphs of the delaying test device: pieces of work that are kept instead of enqueued, and
 * enqueued anew by each launch. What real devices do not record is a failure of the recording.
 */
#include "base/error.h"
#include "device/delaying_device.h"

struct strata__device_graph {
    delaying_op **ops;
    uint64_t count;
    uint64_t capacity;
    strata_status status; /* of the recording */
};

static const strata__allocator *allocator_of(const delaying_device *d)
{
    return &d->base.context->allocator;
}

static void destroy(delaying_device *d, strata__device_graph *graph)
{
    for (uint64_t i = 0; i < graph->count; ++i)
        strata__delaying_op_free(d, graph->ops[i]);
    strata__free(allocator_of(d), graph->ops, graph->capacity * sizeof *graph->ops);
    strata__free(allocator_of(d), graph, sizeof *graph);
}

static strata_status check(delaying_device *d, const char *what)
{
    if (!d->base.facts.graphs)
        return strata__fail(STRATA_ERR_UNSUPPORTED, "delaying: no graphs");
    if (strata__delaying_fault_hit(d, STRATA__FAULT_GRAPH))
        return strata__fail(STRATA_ERR_DRIVER, "delaying: %s was made to fail", what);
    return strata__delaying_alive(d);
}

strata_status strata__delaying_capture_begin(strata__device *device, strata__stream *base)
{
    delaying_device *d = delaying_of(device);
    delaying_stream *stream = (delaying_stream *)base;
    strata_status status;
    pthread_mutex_lock(&d->lock);
    status = check(d, "beginning a recording");
    if (status == STRATA_OK && stream->recording)
        status = strata__fail(STRATA_ERR_INTERNAL, "delaying: a recording within a recording");
    if (status == STRATA_OK) {
        stream->recording = strata__calloc(allocator_of(d), 1, sizeof *stream->recording);
        if (!stream->recording)
            status = strata__fail_memory(sizeof *stream->recording, "a graph");
    }
    pthread_mutex_unlock(&d->lock);
    return status;
}

static strata_status append(delaying_device *d, strata__device_graph *graph, delaying_op *op)
{
    if (op->snapshot)
        return strata__fail(STRATA_ERR_DRIVER,
                            "delaying: a copy of memory that is not page-locked is recorded");
    if (op->kind == OP_RECORD || op->kind == OP_WAIT)
        return strata__fail(STRATA_ERR_DRIVER, "delaying: an event is recorded in a graph");
    if (graph->count == graph->capacity) {
        uint64_t capacity = graph->capacity ? 2 * graph->capacity : 64;
        delaying_op **ops = strata__calloc(allocator_of(d), capacity, sizeof *ops);
        if (!ops)
            return strata__fail_memory(capacity * sizeof *ops, "a graph");
        for (uint64_t i = 0; i < graph->count; ++i)
            ops[i] = graph->ops[i];
        strata__free(allocator_of(d), graph->ops, graph->capacity * sizeof *graph->ops);
        graph->ops = ops;
        graph->capacity = capacity;
    }
    graph->ops[graph->count++] = op;
    return STRATA_OK;
}

strata_status strata__delaying_record(delaying_stream *stream, delaying_op *op)
{
    strata__device_graph *graph = stream->recording;
    strata_status status = append(stream->device, graph, op);
    if (status == STRATA_OK)
        return STRATA_OK;
    strata__delaying_op_free(stream->device, op);
    graph->status = status;
    return status;
}

strata_status strata__delaying_capture_end(strata__device *device, strata__stream *base,
                                           strata__device_graph **out)
{
    delaying_device *d = delaying_of(device);
    delaying_stream *stream = (delaying_stream *)base;
    strata__device_graph *graph;
    strata_status status;
    pthread_mutex_lock(&d->lock);
    graph = stream->recording;
    stream->recording = NULL;
    status = check(d, "ending a recording");
    if (status == STRATA_OK && graph->status != STRATA_OK)
        status = strata__fail(graph->status, "delaying: the recording is not good");
    if (status == STRATA_OK && out)
        *out = graph;
    else
        destroy(d, graph);
    pthread_mutex_unlock(&d->lock);
    return status;
}

strata_status strata__delaying_graph_launch(strata__device *device, strata__device_graph *graph,
                                            strata__stream *base)
{
    delaying_device *d = delaying_of(device);
    strata_status status;
    pthread_mutex_lock(&d->lock);
    status = check(d, "launching a graph");
    for (uint64_t i = 0; i < graph->count && status == STRATA_OK; ++i) {
        delaying_op *op = strata__delaying_op(d, 0);
        if (!op) {
            status = strata__fail_memory(sizeof *op, "a piece of a graph");
            break;
        }
        *op = *graph->ops[i];
        status = strata__delaying_push((delaying_stream *)base, op);
    }
    pthread_mutex_unlock(&d->lock);
    return status;
}

void strata__delaying_graph_destroy(strata__device *device, strata__device_graph *graph)
{
    delaying_device *d = delaying_of(device);
    if (!graph)
        return;
    pthread_mutex_lock(&d->lock);
    destroy(d, graph);
    pthread_mutex_unlock(&d->lock);
}
