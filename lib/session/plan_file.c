/* SPDX-License-Identifier: MIT */
#include "session/plan_file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"

/* Saved plans are smaller; a larger file is not read further. */
enum { MOST_BYTES = 1 << 17 };

static strata_status fail_io(const char *what, const char *path)
{
    char reason[128] = "";
    if (strerror_r(errno, reason, sizeof reason) != 0)
        snprintf(reason, sizeof reason, "error %d", errno);
    return strata__fail(STRATA_ERR_IO, "%s: cannot %s the plan: %s", path, what, reason);
}

static strata_status write_file(const char *path, const void *data, uint64_t bytes)
{
    FILE *file = fopen(path, "wb");
    bool good;
    if (!file)
        return fail_io("create", path);
    good = fwrite(data, 1, bytes, file) == bytes;
    if (fclose(file) == 0 && good)
        return STRATA_OK;
    return fail_io("write", path);
}

strata_status strata__plan_save_path(const strata_plan *plan, const char *path)
{
    const strata__allocator *allocator = &plan->context->allocator;
    uint64_t bytes = strata__plan_save(plan, NULL, 0);
    void *data = strata__alloc(allocator, bytes);
    strata_status status;
    if (!data)
        return strata__fail_memory(bytes, "a saved plan");
    strata__plan_save(plan, data, bytes);
    status = write_file(path, data, bytes);
    strata__free(allocator, data, bytes);
    return status;
}

strata_status strata__plan_load_path(strata__pack *pack, const char *path, strata_plan **out)
{
    const strata__allocator *allocator = &strata__pack_context(pack)->allocator;
    FILE *file = fopen(path, "rb");
    strata_status status = STRATA_OK;
    uint64_t bytes = 0;
    void *data;
    if (!file)
        return fail_io("open", path);
    data = strata__alloc(allocator, MOST_BYTES);
    if (!data)
        status = strata__fail_memory(MOST_BYTES, "a saved plan");
    else
        bytes = fread(data, 1, MOST_BYTES, file);
    if (data && ferror(file))
        status = fail_io("read", path);
    fclose(file);
    if (status == STRATA_OK)
        status = strata__plan_load(pack, data, bytes, out);
    strata__free(allocator, data, MOST_BYTES);
    return status;
}
