/* SPDX-License-Identifier: MIT */
#include "session/staging.h"

#include <string.h>

#include "base/error.h"

static void fill(const strata__staging_buffer *buffer)
{
    for (uint64_t i = 0; i < buffer->list.count; ++i) {
        const strata__blob_copy *copy = &buffer->list.copies[i];
        for (uint64_t row = 0; row < copy->rows && copy->staged; ++row)
            memcpy(buffer->memory + copy->staged_offset + row * copy->row_bytes,
                   copy->source + row * copy->source_stride, copy->row_bytes);
    }
}

/* The buffer that was posted first and that no thread has taken; with the lock held. */
static strata__staging_buffer *next_posted(strata__staging *staging)
{
    strata__staging_buffer *next = NULL;
    for (int i = 0; i < STRATA__STAGING_BUFFERS; ++i) {
        strata__staging_buffer *b = &staging->buffers[i];
        if (b->state == STRATA__STAGING_POSTED && !b->taken && (!next || b->order < next->order))
            next = b;
    }
    return next;
}

static void *run_thread(void *user_data)
{
    strata__staging *staging = user_data;
    pthread_mutex_lock(&staging->lock);
    while (!staging->stop) {
        strata__staging_buffer *buffer = next_posted(staging);
        if (!buffer) {
            pthread_cond_wait(&staging->posted, &staging->lock);
            continue;
        }
        buffer->taken = true;
        pthread_mutex_unlock(&staging->lock);
        fill(buffer);
        pthread_mutex_lock(&staging->lock);
        buffer->taken = false;
        buffer->state = STRATA__STAGING_FULL;
        pthread_cond_broadcast(&staging->filled);
    }
    pthread_mutex_unlock(&staging->lock);
    return NULL;
}

static strata_status init_buffer(strata__staging *staging, uint32_t index, uint8_t *memory,
                                 uint64_t copy_capacity)
{
    strata__device *device = staging->device;
    strata__staging_buffer *buffer = &staging->buffers[index];
    buffer->memory = memory + index * staging->buffer_bytes;
    buffer->list.copies =
        strata__calloc(&device->context->allocator, copy_capacity, sizeof *buffer->list.copies);
    if (!buffer->list.copies)
        return strata__fail_memory(copy_capacity * sizeof *buffer->list.copies,
                                   "the copies of a staging buffer");
    buffer->list.capacity = copy_capacity;
    return device->ops->event_create(device, false, &buffer->emptied);
}

strata_status strata__staging_init(strata__staging *staging, strata__device *device,
                                   uint8_t *memory, uint64_t bytes, uint64_t copy_capacity)
{
    strata_status status = STRATA_OK;
    memset(staging, 0, sizeof *staging);
    staging->device = device;
    staging->buffer_bytes = bytes / STRATA__STAGING_BUFFERS;
    pthread_mutex_init(&staging->lock, NULL);
    pthread_cond_init(&staging->posted, NULL);
    pthread_cond_init(&staging->filled, NULL);
    for (uint32_t i = 0; i < STRATA__STAGING_BUFFERS && status == STRATA_OK; ++i)
        status = init_buffer(staging, i, memory, copy_capacity);
    for (int i = 0; i < STRATA__STAGING_THREADS && status == STRATA_OK; ++i)
        if (pthread_create(&staging->threads[staging->thread_count], NULL, run_thread, staging) ==
            0)
            staging->thread_count++;
    return status;
}

void strata__staging_finish(strata__staging *staging)
{
    if (!staging->device)
        return;
    pthread_mutex_lock(&staging->lock);
    staging->stop = true;
    pthread_cond_broadcast(&staging->posted);
    pthread_mutex_unlock(&staging->lock);
    for (uint32_t i = 0; i < staging->thread_count; ++i)
        pthread_join(staging->threads[i], NULL);
    for (int i = 0; i < STRATA__STAGING_BUFFERS; ++i) {
        strata__staging_buffer *buffer = &staging->buffers[i];
        if (buffer->emptied)
            staging->device->ops->event_destroy(staging->device, buffer->emptied);
        strata__free(&staging->device->context->allocator, buffer->list.copies,
                     buffer->list.capacity * sizeof *buffer->list.copies);
    }
    pthread_cond_destroy(&staging->filled);
    pthread_cond_destroy(&staging->posted);
    pthread_mutex_destroy(&staging->lock);
    memset(staging, 0, sizeof *staging);
}

static uint32_t state_of(strata__staging *staging, const strata__staging_buffer *buffer)
{
    uint32_t state;
    pthread_mutex_lock(&staging->lock);
    state = buffer->state;
    pthread_mutex_unlock(&staging->lock);
    return state;
}

static void set_state(strata__staging *staging, strata__staging_buffer *buffer, uint32_t state)
{
    pthread_mutex_lock(&staging->lock);
    buffer->state = state;
    pthread_mutex_unlock(&staging->lock);
}

/* Frees buffers whose copies are done, and finds the one whose copies were enqueued first. */
static strata_status look(strata__staging *staging, strata__staging_buffer **out_free,
                          strata__staging_buffer **out_oldest)
{
    *out_free = *out_oldest = NULL;
    for (int i = 0; i < STRATA__STAGING_BUFFERS; ++i) {
        strata__staging_buffer *b = &staging->buffers[i];
        uint32_t state = state_of(staging, b);
        bool done = false;
        if (state == STRATA__STAGING_EMPTYING) {
            strata_status status =
                staging->device->ops->event_query(staging->device, b->emptied, &done);
            if (status != STRATA_OK)
                return status;
            if (!done && (!*out_oldest || b->order < (*out_oldest)->order))
                *out_oldest = b;
        }
        if (done)
            set_state(staging, b, STRATA__STAGING_FREE);
        if (done || state == STRATA__STAGING_FREE)
            *out_free = b;
    }
    return STRATA_OK;
}

strata_status strata__staging_take(strata__staging *staging, bool wait,
                                   strata__staging_buffer **out)
{
    strata__staging_buffer *oldest;
    strata_status status = look(staging, out, &oldest);
    if (status == STRATA_OK && !*out && wait && oldest) {
        status = staging->device->ops->event_synchronize(staging->device, oldest->emptied);
        if (status == STRATA_OK)
            *out = oldest;
    }
    if (status != STRATA_OK || !*out)
        return status;
    (*out)->list.count = (*out)->list.bytes = 0;
    (*out)->list.staged_bytes = (*out)->list.slow_bytes = 0;
    return STRATA_OK;
}

void strata__staging_post(strata__staging *staging, strata__staging_buffer *buffer)
{
    if (!staging->thread_count) {
        strata__staging_fill(staging, buffer);
        return;
    }
    pthread_mutex_lock(&staging->lock);
    buffer->order = ++staging->orders;
    buffer->state = STRATA__STAGING_POSTED;
    pthread_cond_signal(&staging->posted);
    pthread_mutex_unlock(&staging->lock);
}

void strata__staging_fill(strata__staging *staging, strata__staging_buffer *buffer)
{
    fill(buffer);
    buffer->order = ++staging->orders;
    set_state(staging, buffer, STRATA__STAGING_FULL);
}

bool strata__staging_is_full(strata__staging *staging, strata__staging_buffer *buffer, bool wait)
{
    bool full;
    pthread_mutex_lock(&staging->lock);
    while (wait && buffer->state == STRATA__STAGING_POSTED)
        pthread_cond_wait(&staging->filled, &staging->lock);
    full = buffer->state == STRATA__STAGING_FULL;
    pthread_mutex_unlock(&staging->lock);
    return full;
}

strata_status strata__staging_emptying(strata__staging *staging, strata__staging_buffer *buffer,
                                       strata__stream *stream)
{
    set_state(staging, buffer, STRATA__STAGING_EMPTYING);
    return staging->device->ops->event_record(staging->device, buffer->emptied, stream);
}

void strata__staging_reset(strata__staging *staging)
{
    if (!staging->device)
        return;
    for (int i = 0; i < STRATA__STAGING_BUFFERS; ++i) {
        strata__staging_is_full(staging, &staging->buffers[i], true);
        set_state(staging, &staging->buffers[i], STRATA__STAGING_FREE);
    }
}
