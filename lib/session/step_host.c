/* SPDX-License-Identifier: MIT */
#include "session/step_host.h"

#include <string.h>

#include "base/error.h"

strata_status strata__step_host_init(strata__step_host *host, const strata__allocator *allocator,
                                     strata__device *device, const strata__layout_work *work,
                                     const char *what)
{
    /* There is a segment for each tile at least, and one entry more that ends the last. */
    uint64_t entries = (uint64_t)work->segment_capacity + 1;
    strata_status status;
    host->tile_segment = strata__calloc(allocator, entries, sizeof *host->tile_segment);
    if (!host->tile_segment)
        return strata__fail_memory(entries * sizeof *host->tile_segment, "the tiles of a step");
    host->tile_capacity = work->segment_capacity;
    status = strata__region_alloc_host(&host->region, device, work->host_bytes, what);
    /* No grouping has left its flag: values from 1 on. */
    if (status == STRATA_OK && host->region.base)
        memset(host->region.base, 0, host->region.bytes);
    return status;
}

void strata__step_host_finish(strata__step_host *host, const strata__allocator *allocator,
                              strata__device *device)
{
    strata__region_free(&host->region, device);
    if (host->tile_segment)
        strata__free(allocator, host->tile_segment,
                     (host->tile_capacity + 1ull) * sizeof *host->tile_segment);
    memset(host, 0, sizeof *host);
}
