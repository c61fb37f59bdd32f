/* SPDX-License-Identifier: MIT */
/* Memory of the device or of the host: the library's own, or the caller's. */
#ifndef STRATA_SESSION_REGION_H
#define STRATA_SESSION_REGION_H

#include <stdbool.h>
#include <stdint.h>

#include "device/device.h"

typedef struct strata__region {
    uint8_t *base;
    uint64_t bytes;
    bool owned;
    bool host; /* page-locked host memory */
} strata__region;

/* Exactly `bytes` of device memory. */
strata_status strata__region_alloc(strata__region *region, strata__device *device, uint64_t bytes,
                                   const char *what);

/* Exactly `bytes` of page-locked host memory. */
strata_status strata__region_alloc_host(strata__region *region, strata__device *device,
                                        uint64_t bytes, const char *what);

/*
 * The caller's memory: STRATA_ERR_BUFFER_TOO_SMALL below `bytes`, STRATA_ERR_MISALIGNED when the
 * address is no multiple of `alignment_bytes`.
 */
strata_status strata__region_borrow(strata__region *region, void *memory, uint64_t memory_bytes,
                                    uint64_t bytes, uint64_t alignment_bytes, const char *what);

/* Frees what is owned. A region of zeros is legal. */
void strata__region_free(strata__region *region, strata__device *device);

#endif
