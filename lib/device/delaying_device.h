/* SPDX-License-Identifier: MIT */
/* What the files of the delaying test device share. */
#ifndef STRATA_DEVICE_DELAYING_DEVICE_H
#define STRATA_DEVICE_DELAYING_DEVICE_H

#include <pthread.h>

#include "base/task.h"
#include "device/delaying.h"

typedef enum op_kind { OP_TASK, OP_COPY, OP_FILL, OP_RECORD, OP_WAIT } op_kind;

struct delaying_stream;

/* A piece of work of a stream. */
typedef struct delaying_op {
    uint32_t kind;
    uint8_t byte; /* of a fill */
    strata__task_fn fn;
    void *target;
    const void *source;
    void *snapshot; /* owned: what a copy from pageable memory read */
    uint64_t bytes;
    strata__event *event;           /* recorded */
    struct delaying_stream *waited; /* wait: for its first `ticket` pieces of work */
    uint64_t ticket;
    uint8_t arguments[STRATA__TASK_BYTES];
} delaying_op;

typedef struct delaying_stream {
    strata__stream base;
    strata__task_queue queue;
    struct delaying_device *device;
    struct delaying_stream *next;
    delaying_op **ops; /* pending: [first, first + count) */
    uint64_t capacity;
    uint64_t first;
    uint64_t count;
    uint64_t done;                   /* pieces of work that have run */
    strata__device_graph *recording; /* what takes its work instead; or NULL */
} delaying_stream;

struct strata__event {
    delaying_stream *stream; /* NULL: never recorded */
    uint64_t ticket;         /* done when the stream has done that many */
    uint64_t time_ns;
    uint32_t queries; /* since it was recorded */
    bool recorded;
};

typedef enum block_kind { BLOCK_DEVICE, BLOCK_HOST, BLOCK_REGISTERED } block_kind;

typedef struct delaying_block {
    uint8_t *base;
    uint64_t bytes;
    uint32_t kind;
} delaying_block;

typedef struct delaying_device {
    strata__device base;
    pthread_mutex_t lock;
    uint32_t policy;
    uint32_t faults;
    uint64_t countdown;
    uint32_t for_good;
    bool lost;
    uint64_t random;
    uint64_t eagerness; /* of a random schedule: steps that a call may run */
    delaying_stream *streams;
    delaying_stream *past_streams; /* destroyed; kept for events */
    delaying_block *blocks;
    uint64_t block_count;
    uint64_t block_capacity;
    strata__delaying_usage usage;
} delaying_device;

static inline delaying_device *delaying_of(strata__device *device)
{
    return (delaying_device *)device;
}

/* With the lock held: whether a call of a kind is to fail now. */
bool strata__delaying_fault_hit(delaying_device *d, uint32_t kind);

/* The lost device's error, or STRATA_OK. */
strata_status strata__delaying_alive(delaying_device *d);

/* Runs what a stream needs to have done `ticket` pieces of work, in the policy's order. */
void strata__delaying_run(delaying_device *d, delaying_stream *stream, uint64_t ticket);
void strata__delaying_run_all(delaying_device *d);

void strata__delaying_free_streams(delaying_device *d);

/* Runs what the policy wants to have run after a call. */
void strata__delaying_advance(delaying_device *d);

/* Takes over op; frees it on failure. */
strata_status strata__delaying_push(delaying_stream *stream, delaying_op *op);
delaying_op *strata__delaying_op(delaying_device *d, uint32_t kind);
void strata__delaying_op_free(delaying_device *d, delaying_op *op);

/* The block that has all of [at, at + bytes); *out_cut: some block has a part of it. */
const delaying_block *strata__delaying_find(const delaying_device *d, const void *at,
                                            uint64_t bytes, bool *out_cut);
strata_status strata__delaying_add_block(delaying_device *d, void *base, uint64_t bytes,
                                         uint32_t kind);
/* Bytes of the block that begins at `base`, which is forgotten; 0: there is none. */
uint64_t strata__delaying_drop_block(delaying_device *d, const void *base, uint32_t kind);

strata_status strata__delaying_stream_create(strata__device *device, strata__stream **out);
strata_status strata__delaying_stream_wrap(strata__device *device, void *native,
                                           strata__stream **out);
void strata__delaying_stream_destroy(strata__device *device, strata__stream *stream);
strata_status strata__delaying_stream_synchronize(strata__device *device, strata__stream *stream);
strata_status strata__delaying_event_create(strata__device *device, bool timing,
                                            strata__event **out);
void strata__delaying_event_destroy(strata__device *device, strata__event *event);
strata_status strata__delaying_event_record(strata__device *device, strata__event *event,
                                            strata__stream *stream);
strata_status strata__delaying_event_query(strata__device *device, strata__event *event,
                                           bool *out_done);
strata_status strata__delaying_event_synchronize(strata__device *device, strata__event *event);
strata_status strata__delaying_event_elapsed_ns(strata__device *device, strata__event *start,
                                                strata__event *end, uint64_t *out_ns);
strata_status strata__delaying_stream_wait(strata__device *device, strata__stream *stream,
                                           strata__event *event);
strata_status strata__delaying_copy_many(strata__device *device, strata__stream *stream,
                                         const strata__copies *copies);
strata_status strata__delaying_copy(strata__device *device, strata__stream *stream, void *target,
                                    const void *source, uint64_t bytes);
strata_status strata__delaying_capture_begin(strata__device *device, strata__stream *stream);
strata_status strata__delaying_capture_end(strata__device *device, strata__stream *stream,
                                           strata__device_graph **out);
strata_status strata__delaying_graph_launch(strata__device *device, strata__device_graph *graph,
                                            strata__stream *stream);
void strata__delaying_graph_destroy(strata__device *device, strata__device_graph *graph);
/* Takes over op, for the stream's recording; frees it on failure. */
strata_status strata__delaying_record(delaying_stream *stream, delaying_op *op);
strata_status strata__delaying_fill(strata__device *device, strata__stream *stream, void *target,
                                    uint8_t byte, uint64_t bytes);

#endif
