/* SPDX-License-Identifier: MIT */
/*
 * Files that are read whole, up to a limit, and files that are written whole or not at all. What
 * fails is a text to be shown behind the file's name.
 */
#ifndef STRATA_TOOL_FILE_H
#define STRATA_TOOL_FILE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <strata/strata.h>

/* The most that is read of a text, of a profile, and of a file that people write. */
enum {
    FILE_MOST_TEXT_BYTES = 1 << 28,
    FILE_MOST_PROFILE_BYTES = 1 << 26,
    FILE_MOST_SETTINGS_BYTES = 1 << 20
};

typedef struct file_fault {
    strata_status status;
    int error; /* errno, or 0 */
    char text[192];
} file_fault;

/* What a file that is read is called in messages: "-" is standard input. */
const char *file_name(const char *path);

/* The whole of a file, "-" for standard input, with a NUL behind it; heap memory, NULL on failure.
 */
char *file_read(const char *path, uint64_t most_bytes, uint64_t *out_bytes, file_fault *fault);

/* As above; a file with a NUL in it is no text. */
char *file_read_text(const char *path, uint64_t most_bytes, uint64_t *out_bytes, file_fault *fault);

/*
 * A new file beside the named one, which takes its place when it is complete. A path that names a
 * pipe, a device or a link to nothing is written as it is.
 */
typedef struct file_writer {
    FILE *stream;
    char *target;    /* heap; what the path leads to, NULL: written as it is */
    char *temporary; /* heap; beside it */
    int error;       /* errno of the first write that failed */
} file_writer;

bool file_create(file_writer *writer, const char *path, file_fault *fault);

/* What fails is kept for file_finish(). */
void file_write(file_writer *writer, const void *data, uint64_t bytes);

/* Puts the new file in place, or removes it when something failed. */
bool file_finish(file_writer *writer, file_fault *fault);

/* All of the above for data at hand. */
bool file_save(const char *path, const void *data, uint64_t bytes, file_fault *fault);

/* Whether file_create() would work: asked before work whose result goes there. */
bool file_can_create(const char *path, file_fault *fault);

#endif
