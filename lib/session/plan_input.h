/* SPDX-License-Identifier: MIT */
/* From a pack, a device and options to the numbers that the layout is made from. */
#ifndef STRATA_SESSION_PLAN_INPUT_H
#define STRATA_SESSION_PLAN_INPUT_H

#include <stdbool.h>
#include <stdint.h>

#include <strata/plan.h>

#include "base/alloc.h"
#include "device/device.h"
#include "kernels/kernels.h"
#include "layout/layout.h"
#include "pack/pack.h"

typedef struct strata__plan_input {
    const strata__allocator *allocator;
    strata__layout_input input;
    strata__layout_layer *layers; /* owned, as are the two below */
    uint64_t *tensor_bytes;
    uint8_t *layer_paths;
} strata__plan_input;

/* What the layout needs to know of an opened device and its kernels. */
void strata__plan_facts(const strata__device_facts *device, const strata__kernels_facts *kernels,
                        strata__layout_facts *out);

strata_status strata__plan_input_init(strata__plan_input *plan, const strata__allocator *allocator,
                                      const strata__pack *pack, const strata__layout_facts *facts,
                                      const strata_plan_options *options);
void strata__plan_input_finish(strata__plan_input *plan); /* also half built */

#endif
