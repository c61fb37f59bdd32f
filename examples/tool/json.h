/* SPDX-License-Identifier: MIT */
/* Writes one JSON value to a stream as it is produced; valid UTF-8 whatever the bytes given. */
#ifndef STRATA_TOOL_JSON_H
#define STRATA_TOOL_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { JSON_MAX_DEPTH = 16 };

typedef struct json_writer {
    FILE *out;
    int depth;
    char closing[JSON_MAX_DEPTH]; /* '}' or ']' of each open value */
    bool filled[JSON_MAX_DEPTH];  /* something was written in it */
} json_writer;

void json_start(json_writer *writer, FILE *out);

/* Opens an object or an array; `key` is NULL at the top and inside arrays, here and below. */
void json_object(json_writer *writer, const char *key);
void json_array(json_writer *writer, const char *key);

/* Closes the innermost; after the outermost a newline is written. */
void json_end(json_writer *writer);

void json_string(json_writer *writer, const char *key, const char *text);
void json_bytes(json_writer *writer, const char *key, const char *bytes, uint64_t count);
void json_u64(json_writer *writer, const char *key, uint64_t value);
void json_i64(json_writer *writer, const char *key, int64_t value);
void json_f64(json_writer *writer, const char *key, double value);        /* null unless finite */
void json_number(json_writer *writer, const char *key, const char *text); /* as JSON has it */
void json_bool(json_writer *writer, const char *key, bool value);
void json_null(json_writer *writer, const char *key);

#endif
