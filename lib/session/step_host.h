/* SPDX-License-Identifier: MIT */
/* What steps of one kind, those of prompts or those of decoding, have in host memory. */
#ifndef STRATA_SESSION_STEP_HOST_H
#define STRATA_SESSION_STEP_HOST_H

#include <stdint.h>

#include "base/alloc.h"
#include "layout/layout.h"
#include "session/region.h"

typedef struct strata__step_host {
    strata__region region;  /* page-locked: what goes in and out of a step; zeros: none */
    uint32_t *tile_segment; /* [tile_capacity + 1] see strata__step */
    uint32_t tile_capacity;
    uint32_t flag_value; /* of the last grouping */
} strata__step_host;

/* `what` goes in and out, for texts. What was made before a failure is for finish to free. */
strata_status strata__step_host_init(strata__step_host *host, const strata__allocator *allocator,
                                     strata__device *device, const strata__layout_work *work,
                                     const char *what);

/* With the device current and its streams idle; also half built, or zeros. */
void strata__step_host_finish(strata__step_host *host, const strata__allocator *allocator,
                              strata__device *device);

#endif
