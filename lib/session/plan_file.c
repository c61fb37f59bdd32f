/* SPDX-License-Identifier: MIT */
#include "session/plan_file.h"

#include <stdio.h>

#include "base/error.h"
#include "base/file.h"

/* Saved plans are smaller; a larger file is not read further. */
enum { MOST_BYTES = 1 << 17 };

strata_status strata__plan_save_path(const strata_plan *plan, const char *path)
{
    const strata__allocator *allocator = &plan->context->allocator;
    uint64_t bytes = strata__plan_save(plan, NULL, 0);
    void *data = strata__alloc(allocator, bytes);
    strata__file_writer writer;
    strata_status status;
    if (!data)
        return strata__fail_memory(bytes, "a saved plan");
    strata__plan_save(plan, data, bytes);
    status = strata__file_begin(&writer, allocator, path, "the plan");
    if (status == STRATA_OK)
        status = strata__file_write(&writer, data, bytes);
    if (status == STRATA_OK)
        status = strata__file_commit(&writer);
    strata__file_discard(&writer);
    strata__free(allocator, data, bytes);
    return status;
}

/* The bytes of a file: whatever is wrong with them names it. */
static strata_status load(strata__pack *pack, const char *path, const void *data, uint64_t bytes,
                          strata_plan **out)
{
    strata_status status = strata__plan_load(pack, data, bytes, out);
    if (status == STRATA_OK || status == STRATA_ERR_NO_MEMORY)
        return status;
    return strata__fail(status, "%s: %s", path, strata__error_text());
}

strata_status strata__plan_load_path(strata__pack *pack, const char *path, strata_plan **out)
{
    const strata__allocator *allocator = &strata__pack_context(pack)->allocator;
    FILE *file = fopen(path, "rb");
    strata_status status = STRATA_OK;
    uint64_t bytes = 0;
    void *data;
    if (!file)
        return strata__file_fail(path, "open", "the plan");
    data = strata__alloc(allocator, MOST_BYTES);
    if (!data)
        status = strata__fail_memory(MOST_BYTES, "a saved plan");
    else
        bytes = fread(data, 1, MOST_BYTES, file);
    if (data && ferror(file))
        status = strata__file_fail(path, "read", "the plan");
    fclose(file);
    if (status == STRATA_OK)
        status = load(pack, path, data, bytes, out);
    strata__free(allocator, data, MOST_BYTES);
    return status;
}
