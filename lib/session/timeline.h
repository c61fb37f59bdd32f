/* SPDX-License-Identifier: MIT */
/*
 * Where the time of the kernels' stream goes, by events on it: a chunk from its first to its last
 * piece of work, and in it the spans in which the stream waits for blobs, or for the host to
 * enqueue more. What is left are the kernels.
 */
#ifndef STRATA_SESSION_TIMELINE_H
#define STRATA_SESSION_TIMELINE_H

#include <stdbool.h>
#include <stdint.h>

#include "device/device.h"

typedef enum strata__span_kind {
    STRATA__SPAN_BLOBS,
    STRATA__SPAN_HOST,
    STRATA__SPAN_CHUNK,
    STRATA__SPAN_KINDS
} strata__span_kind;

typedef struct strata__span {
    strata__event *begin;
    strata__event *end;
    uint32_t kind; /* strata__span_kind */
    uint32_t reserved;
} strata__span;

/* Spans of a layer or two; more of them are read as they come to their end. */
enum { STRATA__TIMELINE_SPANS = 512 };

typedef struct strata__timeline {
    strata__device *device;
    strata__stream *stream;
    strata__span spans[STRATA__TIMELINE_SPANS]; /* in use: [first, first + count), round */
    strata__span chunk;
    uint32_t first;
    uint32_t count;
    bool is_open; /* the last span has no end yet */
    bool has_chunk;
    uint64_t ns[STRATA__SPAN_KINDS];
} strata__timeline;

strata_status strata__timeline_init(strata__timeline *timeline, strata__device *device,
                                    strata__stream *stream);
void strata__timeline_finish(strata__timeline *timeline); /* also half built, or zeros */

/* A chunk's work begins, or has all been enqueued. */
strata_status strata__timeline_chunk_begin(strata__timeline *timeline);
strata_status strata__timeline_chunk_end(strata__timeline *timeline);

/* The stream is about to wait, or waits no longer. NULL is legal: nobody wants to know. */
strata_status strata__timeline_begin(strata__timeline *timeline, uint32_t kind);
strata_status strata__timeline_end(strata__timeline *timeline);

/* Adds up what is past, or, when the stream is idle, everything; forgets the rest. */
void strata__timeline_read(strata__timeline *timeline);

#endif
