/* SPDX-License-Identifier: MIT */
/*
 * Files that are written whole or not at all: bytes go to a new file beside the named one, which
 * takes its place when everything is on the disk. Whatever fails or is interrupted before that
 * leaves the named file as it was. A path that names a pipe, a device or a link to nothing is
 * written as it is.
 */
#ifndef STRATA_BASE_FILE_H
#define STRATA_BASE_FILE_H

#include <stdint.h>

#include <strata/base.h>

#include "base/alloc.h"

typedef struct strata__file_writer {
    const strata__allocator *allocator;
    const char *path;      /* the caller's, for texts */
    const char *what;      /* the thing that is written, for texts: "the plan" */
    char *target;          /* what `path` leads to; NULL: written as it is */
    char *temporary;       /* beside it */
    uint64_t target_bytes; /* of these two texts */
    uint64_t temporary_bytes;
    int descriptor; /* -1: none */
} strata__file_writer;

/* Creates the new file. `path` and `what` must outlive the writer. STRATA_ERR_IO, _NO_MEMORY. */
strata_status strata__file_begin(strata__file_writer *writer, const strata__allocator *allocator,
                                 const char *path, const char *what);

strata_status strata__file_write(strata__file_writer *writer, const void *data, uint64_t bytes);

/* Puts the new file in place; a failure removes it. The writer is finished either way. */
strata_status strata__file_commit(strata__file_writer *writer);

/* Removes the new file. After strata__file_commit(), or on zeros with descriptor -1: nothing. */
void strata__file_discard(strata__file_writer *writer);

/* STRATA_ERR_IO from errno: "PATH: cannot VERB WHAT: REASON". */
strata_status strata__file_fail(const char *path, const char *verb, const char *what);

#endif
