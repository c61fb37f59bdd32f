/* SPDX-License-Identifier: MIT */
#include "session/region.h"

#include <string.h>

#include "base/error.h"

strata_status strata__region_alloc(strata__region *region, strata__device *device, uint64_t bytes,
                                   const char *what)
{
    void *memory = NULL;
    strata_status status = STRATA_OK;
    if (bytes)
        status = device->ops->alloc(device, bytes, what, &memory);
    if (status == STRATA_OK)
        *region = (strata__region){memory, bytes, true, false};
    return status;
}

strata_status strata__region_alloc_host(strata__region *region, strata__device *device,
                                        uint64_t bytes, const char *what)
{
    void *memory = NULL;
    strata_status status = STRATA_OK;
    if (bytes)
        status = device->ops->host_alloc(device, bytes, what, &memory);
    if (status == STRATA_OK)
        *region = (strata__region){memory, bytes, true, true};
    return status;
}

strata_status strata__region_borrow(strata__region *region, void *memory, uint64_t memory_bytes,
                                    uint64_t bytes, uint64_t alignment_bytes, const char *what)
{
    if (memory_bytes < bytes)
        return strata__fail(STRATA_ERR_BUFFER_TOO_SMALL,
                            "%s needs %llu bytes; the caller's memory has %llu", what,
                            (unsigned long long)bytes, (unsigned long long)memory_bytes);
    if ((uintptr_t)memory % alignment_bytes)
        return strata__fail(STRATA_ERR_MISALIGNED,
                            "%s needs an address that is a multiple of %llu; the caller's is %p",
                            what, (unsigned long long)alignment_bytes, memory);
    *region = (strata__region){memory, bytes, false, false};
    return STRATA_OK;
}

void strata__region_free(strata__region *region, strata__device *device)
{
    if (region->owned && region->base && region->host)
        device->ops->host_free(device, region->base, region->bytes);
    else if (region->owned && region->base)
        device->ops->free(device, region->base, region->bytes);
    memset(region, 0, sizeof *region);
}
