/* SPDX-License-Identifier: MIT */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

enum {
    SUFFIX_BYTES = 32,          /* of ".PID-N.tmp" and its end */
    MOST_TRIES = 1000,          /* of names for the new file */
    MOST_WRITE_BYTES = 1 << 30, /* of one call to the system */
    FILE_MODE = 0666
};

strata_status strata__file_fail(const char *path, const char *verb, const char *what)
{
    int code = errno;
    char reason[128] = "";
    if (strerror_r(code, reason, sizeof reason) != 0)
        snprintf(reason, sizeof reason, "error %d", code);
    return strata__fail(STRATA_ERR_IO, "%s: cannot %s %s: %s", path, verb, what, reason);
}

static void forget(strata__file_writer *writer)
{
    if (writer->descriptor >= 0)
        close(writer->descriptor);
    strata__free(writer->allocator, writer->target, writer->target_bytes);
    strata__free(writer->allocator, writer->temporary, writer->temporary_bytes);
    writer->target = NULL;
    writer->temporary = NULL;
    writer->descriptor = -1;
}

void strata__file_discard(strata__file_writer *writer)
{
    if (writer->descriptor >= 0 && writer->temporary)
        unlink(writer->temporary);
    forget(writer);
}

static strata_status take_names(strata__file_writer *writer, const char *target)
{
    uint64_t length = strlen(target);
    writer->target_bytes = length + 1;
    writer->temporary_bytes = length + SUFFIX_BYTES;
    writer->target = strata__alloc(writer->allocator, writer->target_bytes);
    writer->temporary = strata__alloc(writer->allocator, writer->temporary_bytes);
    if (!writer->target || !writer->temporary)
        return strata__fail_memory(writer->temporary_bytes, "a file's name");
    memcpy(writer->target, target, length + 1);
    return STRATA_OK;
}

/* A new file under a name that nothing has. */
static strata_status create_temporary(strata__file_writer *writer, const struct stat *old)
{
    for (unsigned i = 0; i < MOST_TRIES && writer->descriptor < 0; i++) {
        snprintf(writer->temporary, writer->temporary_bytes, "%s.%ld-%u.tmp", writer->target,
                 (long)getpid(), i);
        writer->descriptor =
            open(writer->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, FILE_MODE);
        if (writer->descriptor < 0 && errno != EEXIST)
            break;
    }
    if (writer->descriptor < 0)
        return strata__file_fail(writer->path, "create", writer->what);
    /* Who may read the old file may read the new one; where that is refused, the default holds. */
    if (old && fchmod(writer->descriptor, old->st_mode & 07777) != 0)
        errno = 0;
    return STRATA_OK;
}

strata_status strata__file_begin(strata__file_writer *writer, const strata__allocator *allocator,
                                 const char *path, const char *what)
{
    struct stat old;
    char resolved[PATH_MAX];
    bool exists = stat(path, &old) == 0;
    bool leads_nowhere = !exists && lstat(path, &old) == 0;
    strata_status status;
    *writer =
        (strata__file_writer){.allocator = allocator, .path = path, .what = what, .descriptor = -1};
    if (leads_nowhere || (exists && !S_ISREG(old.st_mode))) {
        writer->descriptor = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, FILE_MODE);
        return writer->descriptor < 0 ? strata__file_fail(path, "create", what) : STRATA_OK;
    }
    /* A link stays a link: what it leads to is replaced. */
    if (exists && !realpath(path, resolved))
        return strata__file_fail(path, "create", what);
    status = take_names(writer, exists ? resolved : path);
    if (status == STRATA_OK)
        status = create_temporary(writer, exists ? &old : NULL);
    if (status != STRATA_OK)
        forget(writer);
    return status;
}

strata_status strata__file_write(strata__file_writer *writer, const void *data, uint64_t bytes)
{
    const uint8_t *next = data;
    while (bytes > 0) {
        size_t most = bytes < MOST_WRITE_BYTES ? (size_t)bytes : MOST_WRITE_BYTES;
        ssize_t done = write(writer->descriptor, next, most);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return strata__file_fail(writer->path, "write", writer->what);
        next += done;
        bytes -= (uint64_t)done;
    }
    return STRATA_OK;
}

strata_status strata__file_commit(strata__file_writer *writer)
{
    strata_status status = STRATA_OK;
    if (writer->target &&
        (fsync(writer->descriptor) != 0 || rename(writer->temporary, writer->target) != 0)) {
        status = strata__file_fail(writer->path, "write", writer->what);
        unlink(writer->temporary);
    }
    forget(writer);
    return status;
}
