/* SPDX-License-Identifier: MIT */
/*
 * Text that comes token by token, handed on as soon as it can be: bytes that begin a character are
 * held back until it is whole, and so is what may be the beginning of a text to stop at.
 */
#ifndef STRATA_TOOL_TEXT_STREAM_H
#define STRATA_TOOL_TEXT_STREAM_H

#include <stdbool.h>
#include <stdint.h>

typedef void (*text_stream_fn)(void *user_data, const char *bytes, uint64_t count);

typedef struct text_stream {
    const char *const *stops;
    uint64_t stop_count;
    text_stream_fn write;
    void *user_data;
    char *held; /* heap */
    uint64_t held_bytes;
    uint64_t capacity;
    bool stopped; /* one of `stops` came; what is before it was written, nothing else will be */
} text_stream;

void text_stream_start(text_stream *stream, const char *const *stops, uint64_t stop_count,
                       text_stream_fn write, void *user_data);

/* False when there is no memory. */
bool text_stream_add(text_stream *stream, const char *bytes, uint64_t count);

/* Writes what is held back, and frees. */
void text_stream_end(text_stream *stream);

#endif
