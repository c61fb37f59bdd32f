/* SPDX-License-Identifier: MIT */
/*
 * Staging: experts that are not page-locked themselves go through page-locked buffers. Threads that
 * wait on condition variables fill the buffers from host memory; they make no call to the device.
 * The copies from a full buffer are enqueued by the prompt's thread, and its event says when it may
 * be filled again.
 *
 *   free -> posted -> full -> emptying -> free
 */
#ifndef STRATA_SESSION_STAGING_H
#define STRATA_SESSION_STAGING_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "device/device.h"

/* `rows` rows of row_bytes from host memory to the device. */
typedef struct strata__blob_copy {
    uint8_t *target;
    const uint8_t *source;
    uint64_t target_stride;
    uint64_t source_stride;
    uint64_t row_bytes;
    uint64_t rows;
    uint64_t staged_offset; /* of the rows, one behind the other, in a staging buffer */
    bool staged;            /* the source is not page-locked, and goes through a buffer that is */
    bool locked;            /* what is copied from is page-locked */
} strata__blob_copy;

typedef struct strata__copy_list {
    strata__blob_copy *copies;
    uint64_t capacity;
    uint64_t count;
    uint64_t bytes;
    uint64_t staged_bytes;
    uint64_t slow_bytes; /* from memory that is not page-locked, staged or not */
} strata__copy_list;

typedef enum strata__staging_state {
    STRATA__STAGING_FREE,
    STRATA__STAGING_POSTED,
    STRATA__STAGING_FULL,
    STRATA__STAGING_EMPTYING
} strata__staging_state;

typedef struct strata__staging_buffer {
    uint8_t *memory;
    strata__copy_list list;
    strata__event *emptied; /* the copies from it are done */
    uint64_t order;         /* of posting */
    uint32_t state;         /* strata__staging_state, under the lock */
    bool taken;             /* by a thread, under the lock */
} strata__staging_buffer;

enum { STRATA__STAGING_BUFFERS = 4, STRATA__STAGING_THREADS = 4 };

typedef struct strata__staging {
    strata__device *device;
    pthread_mutex_t lock;
    pthread_cond_t posted;
    pthread_cond_t filled;
    pthread_t threads[STRATA__STAGING_THREADS];
    strata__staging_buffer buffers[STRATA__STAGING_BUFFERS];
    uint64_t buffer_bytes; /* 0: there is no staging */
    uint64_t orders;
    uint32_t thread_count;
    bool stop; /* under the lock */
} strata__staging;

/* Cuts `memory` into buffers; each can have a list of `copy_capacity` copies. */
strata_status strata__staging_init(strata__staging *staging, strata__device *device,
                                   uint8_t *memory, uint64_t bytes, uint64_t copy_capacity);
void strata__staging_finish(strata__staging *staging); /* also half built, or zeros */

/*
 * A free buffer, its list empty, or NULL. With `wait` it waits for the oldest copies when that is
 * all there is to wait for.
 */
strata_status strata__staging_take(strata__staging *staging, bool wait,
                                   strata__staging_buffer **out);

/* The buffer's list is complete, and its sources stay as they are: threads fill it. */
void strata__staging_post(strata__staging *staging, strata__staging_buffer *buffer);

/* Fills it now, on this thread: sources that do not stay. */
void strata__staging_fill(strata__staging *staging, strata__staging_buffer *buffer);

/* Whether it is full; with `wait` it waits until it is. */
bool strata__staging_is_full(strata__staging *staging, strata__staging_buffer *buffer, bool wait);

/* The copies from it are enqueued on `stream`. */
strata_status strata__staging_emptying(strata__staging *staging, strata__staging_buffer *buffer,
                                       strata__stream *stream);

/* Waits for threads, then makes all buffers free. The copies must be done. */
void strata__staging_reset(strata__staging *staging);

#endif
