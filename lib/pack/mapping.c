/* SPDX-License-Identifier: MIT */
#include "pack/mapping.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

static strata_status fail_system(const char *path, const char *verb, int code)
{
    char reason[128];
    if (strerror_r(code, reason, sizeof reason) != 0)
        reason[0] = '\0';
    return strata__fail(STRATA_ERR_IO, "%s: cannot %s: %s", path, verb, reason);
}

static strata_status map_file(int file, const char *path, strata__mapping *out)
{
    struct stat before, after;
    void *data;
    if (fstat(file, &before) != 0)
        return fail_system(path, "read its size", errno);
    if (!S_ISREG(before.st_mode))
        return strata__fail(STRATA_ERR_IO, "%s: not a regular file", path);
    if (before.st_size == 0)
        return strata__fail(STRATA_ERR_FORMAT, "%s: the file is empty", path);
    data = mmap(NULL, (size_t)before.st_size, PROT_READ, MAP_SHARED, file, 0);
    if (data == MAP_FAILED)
        return fail_system(path, "map", errno);
    out->data = data;
    out->bytes = (uint64_t)before.st_size;
    /* A file that shrinks below its mapping ends the process with SIGBUS: look once more. */
    if (fstat(file, &after) != 0 || after.st_size != before.st_size) {
        strata__mapping_close(out);
        return strata__fail(STRATA_ERR_IO, "%s: its size changed while it was opened", path);
    }
    return STRATA_OK;
}

strata_status strata__mapping_open(const char *path, strata__mapping *out)
{
    /* Non-blocking, so that opening a named pipe by mistake returns. */
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    strata_status status;
    if (file < 0)
        return fail_system(path, "open", errno);
    status = map_file(file, path, out);
    close(file);
    return status;
}

void strata__mapping_close(strata__mapping *mapping)
{
    if (mapping->data)
        munmap((void *)(uintptr_t)mapping->data, (size_t)mapping->bytes);
    mapping->data = NULL;
    mapping->bytes = 0;
}
