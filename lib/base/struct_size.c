/* SPDX-License-Identifier: MIT */
#include "base/struct_size.h"

#include <string.h>

#include "base/error.h"

enum { MAX_STRUCT_BYTES = 4096 };

static uint32_t size_of(const void *caller)
{
    uint32_t size;
    memcpy(&size, caller, sizeof size);
    return size;
}

static strata_status check_size(const void *caller, uint64_t first_bytes, const char *name)
{
    uint32_t size;
    if (!caller)
        return strata__fail(STRATA_ERR_INVALID_ARGUMENT, "%s is NULL", name);
    size = size_of(caller);
    if (size < first_bytes || size > MAX_STRUCT_BYTES || size % 8)
        return strata__fail(STRATA_ERR_ABI_SIZE,
                            "%s: struct_size is %u; it must be a multiple of 8 from %llu to %d",
                            name, (unsigned)size, (unsigned long long)first_bytes,
                            MAX_STRUCT_BYTES);
    return STRATA_OK;
}

strata_status strata__struct_in(void *local, uint64_t local_bytes, const void *caller,
                                uint64_t first_bytes, const char *name)
{
    strata_status status = check_size(caller, first_bytes, name);
    uint32_t size;
    const unsigned char *bytes = caller;
    if (status != STRATA_OK)
        return status;
    size = size_of(caller);
    for (uint64_t i = local_bytes; i < size; i++)
        if (bytes[i])
            return strata__fail(STRATA_ERR_ABI_FIELD,
                                "%s: byte %llu is set, this library knows only the first %llu",
                                name, (unsigned long long)i, (unsigned long long)local_bytes);
    memset(local, 0, local_bytes);
    memcpy(local, caller, size < local_bytes ? size : local_bytes);
    return STRATA_OK;
}

strata_status strata__struct_out(void *caller, const void *local, uint64_t local_bytes,
                                 uint64_t first_bytes, const char *name)
{
    strata_status status = check_size(caller, first_bytes, name);
    uint32_t valid;
    if (status != STRATA_OK)
        return status;
    valid = size_of(caller) < local_bytes ? size_of(caller) : (uint32_t)local_bytes;
    memcpy(caller, local, valid);
    memcpy(caller, &valid, sizeof valid);
    return STRATA_OK;
}

strata_status strata__struct_out_optional(void *caller, const void *local, uint64_t local_bytes,
                                          uint64_t first_bytes, const char *name)
{
    if (!caller)
        return STRATA_OK;
    return strata__struct_out(caller, local, local_bytes, first_bytes, name);
}

void strata__struct_init(void *caller, uint64_t caller_bytes, const void *local,
                         uint64_t local_bytes)
{
    uint32_t size = (uint32_t)caller_bytes;
    if (!caller || caller_bytes < sizeof size || caller_bytes > MAX_STRUCT_BYTES)
        return;
    memset(caller, 0, caller_bytes);
    memcpy(caller, local, caller_bytes < local_bytes ? caller_bytes : local_bytes);
    memcpy(caller, &size, sizeof size);
}
