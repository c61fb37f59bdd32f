/* SPDX-License-Identifier: MIT */
/*
 * The device interface: memory, streams, events, copies. Three devices implement it: the CPU, CUDA,
 * and a test device that delays every copy to the last moment that the recorded waits allow.
 *
 * A stream handed to kernels is stream->native: a strata__task_queue on host devices, a
 * cudaStream_t on CUDA. Functions may be called from the session's thread and from its staging
 * threads.
 */
#ifndef STRATA_DEVICE_DEVICE_H
#define STRATA_DEVICE_DEVICE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <strata/base.h>

#include "base/context.h"

typedef struct strata__device strata__device;

typedef struct strata__stream {
    void *native;
} strata__stream;

typedef struct strata__event strata__event; /* defined by each device */
typedef struct strata__device_graph strata__device_graph;

typedef enum strata__device_kind {
    STRATA__DEVICE_CPU,
    STRATA__DEVICE_CUDA,
    STRATA__DEVICE_DELAYING
} strata__device_kind;

/* Of every buffer; what plans that are made without a device assume. */
enum { STRATA__CPU_ALIGNMENT_BYTES = 64, STRATA__CUDA_ALIGNMENT_BYTES = 256 };

typedef struct strata__device_facts {
    uint32_t kind; /* strata__device_kind */
    /* 1: kernels read host memory at any address in place, at full speed */
    uint32_t host_addressable;
    uint32_t compute_capability; /* 90 = 9.0; 0 on host devices */
    uint32_t multiprocessors;    /* or threads of a host device */
    uint32_t ordinal;            /* N of "cuda:N"; 0 on host devices */
    uint32_t graphs;             /* 1: work can be captured and launched as a graph */
    uint32_t reads_locked; /* 1: kernels read page-locked host memory at its address, slowly */
    uint32_t reserved;
    uint64_t memory_bytes;
    uint64_t memory_free_bytes;   /* when the facts were read */
    uint64_t shared_memory_bytes; /* a block may have */
    uint64_t alignment_bytes;     /* of every buffer */
    uint64_t context_bytes; /* of device memory that opening the device took; 0: none, or unknown */
    char name[64];
    char uuid[40];
} strata__device_facts;

/* Copies: arrays of `count`. */
typedef struct strata__copies {
    void **targets;
    const void **sources;
    uint64_t *bytes;
    uint64_t count;
} strata__copies;

typedef struct strata__device_ops {
    void (*destroy)(strata__device *);
    /* Makes the device current for this thread and remembers the caller's; leave restores it. */
    strata_status (*enter)(strata__device *, void *out_saved);
    void (*leave)(strata__device *, const void *saved);

    strata_status (*memory_free_bytes)(strata__device *, uint64_t *out_bytes);
    strata_status (*alloc)(strata__device *, uint64_t bytes, const char *what, void **out);
    void (*free)(strata__device *, void *pointer, uint64_t bytes);
    /* Page-locked host memory that kernels can read and write at the same address. */
    strata_status (*host_alloc)(strata__device *, uint64_t bytes, const char *what, void **out);
    void (*host_free)(strata__device *, void *pointer, uint64_t bytes);
    strata_status (*host_register)(strata__device *, const void *pointer, uint64_t bytes);
    void (*host_unregister)(strata__device *, const void *pointer);

    strata_status (*stream_create)(strata__device *, strata__stream **out);
    strata_status (*stream_wrap)(strata__device *, void *native, strata__stream **out);
    void (*stream_destroy)(strata__device *, strata__stream *);
    strata_status (*stream_synchronize)(strata__device *, strata__stream *);

    strata_status (*event_create)(strata__device *, bool timing, strata__event **out);
    void (*event_destroy)(strata__device *, strata__event *);
    strata_status (*event_record)(strata__device *, strata__event *, strata__stream *);
    strata_status (*event_query)(strata__device *, strata__event *, bool *out_done);
    strata_status (*event_synchronize)(strata__device *, strata__event *);
    strata_status (*event_elapsed_ns)(strata__device *, strata__event *start, strata__event *end,
                                      uint64_t *out_ns);
    /* The event must have been recorded: a wait on one that was not would be no wait. */
    strata_status (*stream_wait)(strata__device *, strata__stream *, strata__event *);

    /* Direction follows from the addresses. Asynchronous when host memory is page-locked. */
    strata_status (*copy)(strata__device *, strata__stream *, void *target, const void *source,
                          uint64_t bytes);
    /*
     * Copies between the device and page-locked memory, all behind what the stream has and in any
     * order among themselves.
     */
    strata_status (*copy_many)(strata__device *, strata__stream *, const strata__copies *);
    strata_status (*fill)(strata__device *, strata__stream *, void *target, uint8_t byte,
                          uint64_t bytes);

    /*
     * Graphs, where facts.graphs is 1; elsewhere STRATA_ERR_UNSUPPORTED, also for a wrapped stream
     * that cannot be captured (the legacy default stream), and the work is enqueued directly.
     * From capture_begin to capture_end kernels, fills, and copies of device and page-locked memory
     * that this thread enqueues on the stream are recorded and not run. Meanwhile nothing waits
     * for the stream, and no event is recorded on it. Every begin needs its end, which answers the
     * first failure of the recording; `out` NULL drops what was recorded. A launch runs the graph
     * in the stream's order with the addresses and numbers that were recorded; it may be launched
     * any number of times. A graph is destroyed when no launch of it is running.
     */
    strata_status (*capture_begin)(strata__device *, strata__stream *);
    strata_status (*capture_end)(strata__device *, strata__stream *, strata__device_graph **out);
    strata_status (*graph_launch)(strata__device *, strata__device_graph *, strata__stream *);
    void (*graph_destroy)(strata__device *, strata__device_graph *); /* NULL is legal */
} strata__device_ops;

enum { STRATA__DEVICE_SAVED_BYTES = 16 };

struct strata__device {
    const strata__device_ops *ops;
    strata__device_facts facts;
    strata_context *context;   /* retained */
    atomic_uint extra_holders; /* beside the one who opened it */
};

/* One more holder, and one less: the last one destroys the device. */
void strata__device_hold(strata__device *device);
void strata__device_release(strata__device *device); /* NULL is legal */

/* The four graph operations of devices that have no graphs. */
strata_status strata__no_capture_begin(strata__device *device, strata__stream *stream);
strata_status strata__no_capture_end(strata__device *device, strata__stream *stream,
                                     strata__device_graph **out);
strata_status strata__no_graph_launch(strata__device *device, strata__device_graph *graph,
                                      strata__stream *stream);
void strata__no_graph_destroy(strata__device *device, strata__device_graph *graph);

/* Accelerators present; 0 without driver or in builds without CUDA. The CPU is not counted. */
strata_status strata__device_count(strata_context *context, uint32_t *out_count);

strata_status strata__device_facts_get(strata_context *context, uint32_t index,
                                       strata__device_facts *out);

/* `name`: "cpu" or "cuda:N". STRATA_ERR_NO_DEVICE names what is missing. */
strata_status strata__device_open(strata_context *context, const char *name, strata__device **out);

/* Runs every task and copy at once, in order, on the calling thread. */
strata_status strata__cpu_device_open(strata_context *context, strata__device **out);

strata_status strata__cuda_device_open(strata_context *context, uint32_t index,
                                       strata__device **out);
strata_status strata__cuda_device_count(uint32_t *out_count);
strata_status strata__cuda_device_facts(uint32_t index, strata__device_facts *out);

#endif
