/* SPDX-License-Identifier: MIT */
#include "text_stream.h"

#include <stdlib.h>
#include <string.h>

void text_stream_start(text_stream *stream, const char *const *stops, uint64_t stop_count,
                       text_stream_fn write, void *user_data)
{
    memset(stream, 0, sizeof *stream);
    stream->stops = stops;
    stream->stop_count = stop_count;
    stream->write = write;
    stream->user_data = user_data;
}

static bool append(text_stream *stream, const char *bytes, uint64_t count)
{
    uint64_t wanted = stream->held_bytes + count;
    if (wanted > stream->capacity) {
        char *larger = realloc(stream->held, 2 * wanted);
        if (!larger)
            return false;
        stream->held = larger;
        stream->capacity = 2 * wanted;
    }
    if (count)
        memcpy(stream->held + stream->held_bytes, bytes, count);
    stream->held_bytes = wanted;
    return true;
}

/* Where the first text to stop at begins; the number of bytes held when there is none. */
static uint64_t find_stop(const text_stream *stream)
{
    uint64_t found = stream->held_bytes;
    for (uint64_t i = 0; i < stream->stop_count; i++) {
        uint64_t length = strlen(stream->stops[i]);
        for (uint64_t at = 0; length && at < found && at + length <= stream->held_bytes; at++)
            if (memcmp(stream->held + at, stream->stops[i], length) == 0)
                found = at;
    }
    return found;
}

/* Bytes at the end that a text to stop at may begin with. */
static uint64_t begun_stop(const text_stream *stream)
{
    uint64_t longest = 0;
    for (uint64_t i = 0; i < stream->stop_count; i++) {
        uint64_t length = strlen(stream->stops[i]);
        for (uint64_t part = longest + 1; part < length && part <= stream->held_bytes; part++)
            if (memcmp(stream->held + stream->held_bytes - part, stream->stops[i], part) == 0)
                longest = part;
    }
    return longest;
}

/* Bytes at the end of a text that begin a UTF-8 character without being all of it. */
static uint64_t begun_character(const char *bytes, uint64_t count)
{
    for (uint64_t back = 1; back <= 3 && back <= count; back++) {
        unsigned char byte = (unsigned char)bytes[count - back];
        uint64_t length = byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
        if (byte >= 0x80 && byte < 0xc0)
            continue;
        return byte >= 0xc2 && byte <= 0xf4 && length > back ? back : 0;
    }
    return 0;
}

static void write_first(text_stream *stream, uint64_t count)
{
    if (count)
        stream->write(stream->user_data, stream->held, count);
    stream->held_bytes -= count;
    if (stream->held_bytes)
        memmove(stream->held, stream->held + count, stream->held_bytes);
}

bool text_stream_add(text_stream *stream, const char *bytes, uint64_t count)
{
    uint64_t stop, ready;
    if (stream->stopped)
        return true;
    if (!append(stream, bytes, count))
        return false;
    stop = find_stop(stream);
    if (stop < stream->held_bytes) {
        write_first(stream, stop);
        stream->held_bytes = 0;
        stream->stopped = true;
        return true;
    }
    ready = stream->held_bytes - begun_stop(stream);
    write_first(stream, ready - begun_character(stream->held, ready));
    return true;
}

void text_stream_end(text_stream *stream)
{
    write_first(stream, stream->held_bytes);
    free(stream->held);
    stream->held = NULL;
    stream->capacity = 0;
}
