/* SPDX-License-Identifier: MIT */
#include "json.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "utf8.h"

static void write_quoted(FILE *out, const char *bytes, uint64_t count)
{
    uint64_t i = 0;
    fputc('"', out);
    while (i < count) {
        unsigned char c = (unsigned char)bytes[i];
        uint32_t length = utf8_length(bytes + i, count - i);
        if (length == 0)
            fputs("\\ufffd", out);
        else if (length > 1)
            fwrite(bytes + i, 1, length, out);
        else if (c == '"' || c == '\\')
            fprintf(out, "\\%c", c);
        else if (c == '\n')
            fputs("\\n", out);
        else if (c < 0x20 || c == 0x7f)
            fprintf(out, "\\u%04x", c);
        else
            fputc(c, out);
        i += length ? length : 1;
    }
    fputc('"', out);
}

static void begin_value(json_writer *writer, const char *key)
{
    if (writer->depth > 0) {
        bool *filled = &writer->filled[writer->depth - 1];
        if (*filled)
            fputs(", ", writer->out);
        *filled = true;
    }
    if (key) {
        write_quoted(writer->out, key, strlen(key));
        fputs(": ", writer->out);
    }
}

static void open_value(json_writer *writer, const char *key, char opening, char closing)
{
    assert(writer->depth < JSON_MAX_DEPTH);
    begin_value(writer, key);
    fputc(opening, writer->out);
    writer->closing[writer->depth] = closing;
    writer->filled[writer->depth] = false;
    writer->depth++;
}

void json_start(json_writer *writer, FILE *out)
{
    writer->out = out;
    writer->depth = 0;
}

void json_object(json_writer *writer, const char *key)
{
    open_value(writer, key, '{', '}');
}

void json_array(json_writer *writer, const char *key)
{
    open_value(writer, key, '[', ']');
}

void json_end(json_writer *writer)
{
    assert(writer->depth > 0);
    fputc(writer->closing[--writer->depth], writer->out);
    if (writer->depth == 0)
        fputc('\n', writer->out);
}

void json_string(json_writer *writer, const char *key, const char *text)
{
    json_bytes(writer, key, text, strlen(text));
}

void json_bytes(json_writer *writer, const char *key, const char *bytes, uint64_t count)
{
    begin_value(writer, key);
    write_quoted(writer->out, bytes, count);
}

void json_u64(json_writer *writer, const char *key, uint64_t value)
{
    begin_value(writer, key);
    fprintf(writer->out, "%" PRIu64, value);
}

void json_i64(json_writer *writer, const char *key, int64_t value)
{
    begin_value(writer, key);
    fprintf(writer->out, "%" PRId64, value);
}

void json_f64(json_writer *writer, const char *key, double value)
{
    if (!isfinite(value)) {
        json_null(writer, key);
        return;
    }
    begin_value(writer, key);
    fprintf(writer->out, "%.9g", value);
}

void json_number(json_writer *writer, const char *key, const char *text)
{
    begin_value(writer, key);
    fputs(text, writer->out);
}

void json_bool(json_writer *writer, const char *key, bool value)
{
    json_number(writer, key, value ? "true" : "false");
}

void json_null(json_writer *writer, const char *key)
{
    json_number(writer, key, "null");
}
