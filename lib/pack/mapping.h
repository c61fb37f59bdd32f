/* SPDX-License-Identifier: MIT */
/* A whole file as read-only memory. */
#ifndef STRATA_PACK_MAPPING_H
#define STRATA_PACK_MAPPING_H

#include <stdint.h>

#include <strata/base.h>

typedef struct strata__mapping {
    const uint8_t *data;
    uint64_t bytes;
} strata__mapping;

/* STRATA_ERR_IO names the path and what the system said. */
strata_status strata__mapping_open(const char *path, strata__mapping *out);
void strata__mapping_close(strata__mapping *mapping); /* a zeroed one is legal */

#endif
