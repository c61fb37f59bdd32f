/* SPDX-License-Identifier: MIT */
/* Streams and events of the delaying test device, and the order in which work is run. */
#include <stddef.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "device/delaying_device.h"

/*
 * Asked that often, an event comes true, so that polling for it ends: soon where kernels are before
 * it, which hosts wait for by polling; late where there are copies alone, which hosts only look at.
 */
enum { PATIENCE_QUERIES = 8, PATIENCE_COPY_QUERIES = 500 };

static const strata__allocator *allocator_of(const delaying_device *d)
{
    return &d->base.context->allocator;
}

static uint64_t next_random(delaying_device *d)
{
    d->random ^= d->random << 13;
    d->random ^= d->random >> 7;
    d->random ^= d->random << 17;
    return d->random * 0x2545f4914f6cdd1dull >> 32;
}

delaying_op *strata__delaying_op(delaying_device *d, uint32_t kind)
{
    delaying_op *op = strata__calloc(allocator_of(d), 1, sizeof *op);
    if (op)
        op->kind = kind;
    return op;
}

void strata__delaying_op_free(delaying_device *d, delaying_op *op)
{
    if (op->snapshot)
        strata__free(allocator_of(d), op->snapshot, op->bytes);
    strata__free(allocator_of(d), op, sizeof *op);
}

static strata_status grow(delaying_stream *stream)
{
    const strata__allocator *allocator = allocator_of(stream->device);
    uint64_t capacity = stream->capacity ? 2 * stream->capacity : 64;
    delaying_op **ops;
    if (stream->first) {
        memmove(stream->ops, stream->ops + stream->first, stream->count * sizeof *ops);
        stream->first = 0;
        return STRATA_OK;
    }
    ops = strata__calloc(allocator, capacity, sizeof *ops);
    if (!ops)
        return strata__fail_memory(capacity * sizeof *ops, "a stream's work");
    if (stream->ops) {
        memcpy(ops, stream->ops, stream->count * sizeof *ops);
        strata__free(allocator, stream->ops, stream->capacity * sizeof *ops);
    }
    stream->ops = ops;
    stream->capacity = capacity;
    return STRATA_OK;
}

strata_status strata__delaying_push(delaying_stream *stream, delaying_op *op)
{
    strata_status status = STRATA_OK;
    if (stream->recording)
        return strata__delaying_record(stream, op);
    if (stream->first + stream->count == stream->capacity)
        status = grow(stream);
    if (status != STRATA_OK) {
        strata__delaying_op_free(stream->device, op);
        return status;
    }
    stream->ops[stream->first + stream->count++] = op;
    stream->device->usage.pending++;
    strata__delaying_advance(stream->device);
    return STRATA_OK;
}

static void execute(delaying_stream *stream, const delaying_op *op)
{
    switch (op->kind) {
    case OP_TASK:
        op->fn(op->arguments);
        break;
    case OP_COPY:
        memcpy(op->target, op->snapshot ? op->snapshot : op->source, op->bytes);
        break;
    case OP_FILL:
        memset(op->target, op->byte, op->bytes);
        break;
    case OP_RECORD:
        if (op->event->stream == stream && op->event->ticket == op->ticket)
            op->event->time_ns = strata__clock_ns();
        break;
    default:
        break;
    }
}

/* The head of a stream, which no wait holds back. Of a lost device nothing runs any more. */
static void step(delaying_stream *stream)
{
    delaying_device *d = stream->device;
    delaying_op *op = stream->ops[stream->first];
    if (strata__delaying_fault_hit(d, STRATA__FAULT_LOST))
        d->lost = true;
    if (!d->lost)
        execute(stream, op);
    stream->first = stream->count > 1 ? stream->first + 1 : 0;
    stream->count--;
    stream->done++;
    d->usage.executed++;
    d->usage.pending--;
    strata__delaying_op_free(d, op);
}

static bool is_held(const delaying_stream *stream)
{
    const delaying_op *op = stream->ops[stream->first];
    return op->kind == OP_WAIT && op->waited->done < op->ticket;
}

/* A step of some stream that has one to make; false: there is none. */
static bool random_step(delaying_device *d)
{
    delaying_stream *chosen = NULL;
    uint64_t choices = 0;
    for (delaying_stream *s = d->streams; s; s = s->next)
        if (s->count && !is_held(s) && next_random(d) % ++choices == 0)
            chosen = s;
    if (chosen)
        step(chosen);
    return chosen != NULL;
}

void strata__delaying_run(delaying_device *d, delaying_stream *stream, uint64_t ticket)
{
    while (stream->done < ticket) {
        const delaying_op *op = stream->ops[stream->first];
        if (d->policy == STRATA__DELAYING_RANDOM && next_random(d) % 2) {
            random_step(d);
            continue;
        }
        if (is_held(stream)) {
            strata__delaying_run(d, op->waited, op->ticket);
            continue;
        }
        step(stream);
        strata__delaying_advance(d);
    }
}

void strata__delaying_run_all(delaying_device *d)
{
    for (delaying_stream *s = d->streams; s; s = s->next)
        strata__delaying_run(d, s, s->done + s->count);
}

/* Whatever is no kernel, as far as waits allow. */
static void run_copies(delaying_device *d)
{
    bool moved = true;
    while (moved) {
        moved = false;
        for (delaying_stream *s = d->streams; s; s = s->next) {
            while (s->count && s->ops[s->first]->kind != OP_TASK && !is_held(s)) {
                step(s);
                moved = true;
            }
        }
    }
}

void strata__delaying_advance(delaying_device *d)
{
    if (d->policy == STRATA__DELAYING_KERNELS_LATE)
        run_copies(d);
    if (d->policy == STRATA__DELAYING_RANDOM)
        for (uint64_t n = next_random(d) % (d->eagerness + 1); n && random_step(d); --n)
            ;
}

static strata_status enqueue_task(strata__task_queue *queue, strata__task_fn fn,
                                  const void *arguments, uint64_t bytes)
{
    delaying_stream *stream =
        (delaying_stream *)(void *)((char *)queue - offsetof(delaying_stream, queue));
    delaying_device *d = stream->device;
    strata_status status;
    delaying_op *op;
    if (bytes > STRATA__TASK_BYTES)
        return strata__fail(STRATA_ERR_INTERNAL, "a task has %llu bytes of arguments, at most %d",
                            (unsigned long long)bytes, STRATA__TASK_BYTES);
    pthread_mutex_lock(&d->lock);
    status = strata__delaying_alive(d);
    op = status == STRATA_OK ? strata__delaying_op(d, OP_TASK) : NULL;
    if (op) {
        op->fn = fn;
        memcpy(op->arguments, arguments, bytes);
        status = strata__delaying_push(stream, op);
    } else if (status == STRATA_OK) {
        status = strata__fail_memory(sizeof *op, "a task");
    }
    pthread_mutex_unlock(&d->lock);
    return status;
}

static strata_status check(delaying_device *d, uint32_t fault, const char *what)
{
    if (strata__delaying_fault_hit(d, fault))
        return strata__fail(STRATA_ERR_DRIVER, "delaying: %s was made to fail", what);
    return strata__delaying_alive(d);
}

strata_status strata__delaying_stream_create(strata__device *device, strata__stream **out)
{
    delaying_device *d = delaying_of(device);
    delaying_stream *stream;
    strata_status status;
    pthread_mutex_lock(&d->lock);
    status = check(d, STRATA__FAULT_STREAM, "creating a stream");
    stream = status == STRATA_OK ? strata__calloc(allocator_of(d), 1, sizeof *stream) : NULL;
    if (stream) {
        stream->queue.enqueue = enqueue_task;
        stream->base.native = &stream->queue;
        stream->device = d;
        stream->next = d->streams;
        d->streams = stream;
        d->usage.streams++;
        *out = &stream->base;
    } else if (status == STRATA_OK) {
        status = strata__fail_memory(sizeof *stream, "a stream");
    }
    pthread_mutex_unlock(&d->lock);
    return status;
}

strata_status strata__delaying_stream_wrap(strata__device *device, void *native,
                                           strata__stream **out)
{
    (void)device;
    (void)native;
    (void)out;
    return strata__fail(STRATA_ERR_UNSUPPORTED, "delaying: the caller's stream cannot be used");
}

void strata__delaying_stream_destroy(strata__device *device, strata__stream *base)
{
    delaying_device *d = delaying_of(device);
    delaying_stream *stream = (delaying_stream *)base, **link;
    pthread_mutex_lock(&d->lock);
    /* Others may wait for what it has done. */
    strata__delaying_run_all(d);
    for (link = &d->streams; *link != stream; link = &(*link)->next)
        ;
    *link = stream->next;
    /* Events that were recorded on it go on asking what it has done. */
    stream->next = d->past_streams;
    d->past_streams = stream;
    d->usage.streams--;
    pthread_mutex_unlock(&d->lock);
}

void strata__delaying_free_streams(delaying_device *d)
{
    while (d->past_streams) {
        delaying_stream *stream = d->past_streams;
        d->past_streams = stream->next;
        strata__free(allocator_of(d), stream->ops, stream->capacity * sizeof *stream->ops);
        strata__free(allocator_of(d), stream, sizeof *stream);
    }
}

strata_status strata__delaying_stream_synchronize(strata__device *device, strata__stream *base)
{
    delaying_device *d = delaying_of(device);
    delaying_stream *stream = (delaying_stream *)base;
    strata_status status;
    pthread_mutex_lock(&d->lock);
    status = check(d, STRATA__FAULT_STREAM, "waiting for a stream");
    if (status == STRATA_OK && stream->recording)
        status = strata__fail(STRATA_ERR_DRIVER, "delaying: a stream is waited for that records");
    /* What a lost device is waited for is over. */
    if (status == STRATA_OK || d->lost)
        strata__delaying_run(d, stream, stream->done + stream->count);
    if (status == STRATA_OK)
        status = strata__delaying_alive(d);
    pthread_mutex_unlock(&d->lock);
    return status;
}

strata_status strata__delaying_event_create(strata__device *device, bool timing,
                                            strata__event **out)
{
    delaying_device *d = delaying_of(device);
    strata__event *event;
    strata_status status;
    (void)timing;
    pthread_mutex_lock(&d->lock);
    status = check(d, STRATA__FAULT_EVENT, "creating an event");
    event = status == STRATA_OK ? strata__calloc(allocator_of(d), 1, sizeof *event) : NULL;
    if (event) {
        d->usage.events++;
        *out = event;
    } else if (status == STRATA_OK) {
        status = strata__fail_memory(sizeof *event, "an event");
    }
    pthread_mutex_unlock(&d->lock);
    return status;
}

void strata__delaying_event_destroy(strata__device *device, strata__event *event)
{
    delaying_device *d = delaying_of(device);
    if (!event)
        return;
    pthread_mutex_lock(&d->lock);
    /* A record of it may be pending, and must find it. */
    if (event->stream)
        strata__delaying_run(d, event->stream, event->ticket);
    d->usage.events--;
    pthread_mutex_unlock(&d->lock);
    strata__free(allocator_of(d), event, sizeof *event);
}

strata_status strata__delaying_event_record(strata__device *device, strata__event *event,
                                            strata__stream *base)
{
    delaying_device *d = delaying_of(device);
    delaying_stream *stream = (delaying_stream *)base;
    strata_status status;
    delaying_op *op;
    pthread_mutex_lock(&d->lock);
    status = check(d, STRATA__FAULT_EVENT, "recording an event");
    op = status == STRATA_OK ? strata__delaying_op(d, OP_RECORD) : NULL;
    if (op) {
        event->stream = stream;
        event->ticket = op->ticket = stream->done + stream->count + 1;
        event->recorded = true;
        event->queries = 0;
        op->event = event;
        status = strata__delaying_push(stream, op);
    } else if (status == STRATA_OK) {
        status = strata__fail_memory(sizeof *op, "an event's record");
    }
    pthread_mutex_unlock(&d->lock);
    return status;
}

static uint32_t patience_for(const strata__event *event)
{
    const delaying_stream *stream = event->stream;
    for (uint64_t i = 0; i < stream->count && stream->done + i < event->ticket; ++i)
        if (stream->ops[stream->first + i]->kind == OP_TASK)
            return PATIENCE_QUERIES;
    return PATIENCE_COPY_QUERIES;
}

strata_status strata__delaying_event_query(strata__device *device, strata__event *event,
                                           bool *out_done)
{
    delaying_device *d = delaying_of(device);
    strata_status status;
    pthread_mutex_lock(&d->lock);
    status = check(d, STRATA__FAULT_QUERY, "asking for an event");
    strata__delaying_advance(d);
    if (event->stream && ++event->queries > patience_for(event))
        strata__delaying_run(d, event->stream, event->ticket);
    *out_done = !event->stream || event->stream->done >= event->ticket;
    if (status == STRATA_OK)
        status = strata__delaying_alive(d);
    pthread_mutex_unlock(&d->lock);
    return status;
}

strata_status strata__delaying_event_synchronize(strata__device *device, strata__event *event)
{
    delaying_device *d = delaying_of(device);
    strata_status status;
    pthread_mutex_lock(&d->lock);
    status = check(d, STRATA__FAULT_EVENT, "waiting for an event");
    if ((status == STRATA_OK || d->lost) && event->stream)
        strata__delaying_run(d, event->stream, event->ticket);
    if (status == STRATA_OK)
        status = strata__delaying_alive(d);
    pthread_mutex_unlock(&d->lock);
    return status;
}

strata_status strata__delaying_event_elapsed_ns(strata__device *device, strata__event *start,
                                                strata__event *end, uint64_t *out_ns)
{
    delaying_device *d = delaying_of(device);
    strata_status status = STRATA_OK;
    pthread_mutex_lock(&d->lock);
    if (!start->recorded || !end->recorded || start->stream->done < start->ticket ||
        end->stream->done < end->ticket)
        status = strata__fail(STRATA_ERR_INTERNAL, "delaying: an event is timed before it is done");
    else
        *out_ns = end->time_ns > start->time_ns ? end->time_ns - start->time_ns : 0;
    pthread_mutex_unlock(&d->lock);
    return status;
}

strata_status strata__delaying_stream_wait(strata__device *device, strata__stream *base,
                                           strata__event *event)
{
    delaying_device *d = delaying_of(device);
    strata_status status;
    delaying_op *op = NULL;
    pthread_mutex_lock(&d->lock);
    status = check(d, STRATA__FAULT_EVENT, "making a stream wait");
    if (status == STRATA_OK && event->stream) {
        op = strata__delaying_op(d, OP_WAIT);
        if (!op)
            status = strata__fail_memory(sizeof *op, "a wait");
    }
    if (op) {
        op->waited = event->stream;
        op->ticket = event->ticket;
        status = strata__delaying_push((delaying_stream *)base, op);
    }
    pthread_mutex_unlock(&d->lock);
    return status;
}
