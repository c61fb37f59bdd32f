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

/*
 * What the layout needs to know of an opened device and its kernels; `given` (or NULL) goes before.
 */
void strata__plan_facts(const strata__device_facts *device, const strata__kernels_facts *kernels,
                        const strata_device_facts *given, strata__layout_facts *out);

/* The same without a device: the caller's numbers and what is typical; NULL: the CPU. */
void strata__plan_facts_given(const strata_device_facts *given, strata__layout_facts *out);

/*
 * Reads "fused,8:fp16,13:fp16": one path for all layers, with exceptions by layer. layer_paths gets
 * `layers` entries, PATH_AUTO where there is no exception.
 */
strata_status strata__plan_policy_parse(const char *text, uint32_t layers, uint32_t *out_path,
                                        uint8_t *layer_paths);

strata_status strata__plan_input_init(strata__plan_input *plan, const strata__allocator *allocator,
                                      const strata__pack *pack, const strata__layout_facts *facts,
                                      const strata_plan_options *options);
void strata__plan_input_finish(strata__plan_input *plan); /* also half built */

#endif
