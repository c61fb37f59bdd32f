/* SPDX-License-Identifier: MIT */
/* What the kernels say of themselves. It needs no device, so that plans can be made without one. */
#include <string.h>

#include "kernels/cuda/group.h"
#include "kernels/kernels.h"

static uint64_t every_format(void)
{
    uint64_t formats = 0;
    for (uint32_t id = 0; id < STRATA__FORMAT_LIMIT; ++id)
        if (strata__format_find(id))
            formats |= (uint64_t)1 << id;
    return formats;
}

/* Formats with an exact int8 form. */
static uint64_t int8_formats(void)
{
    uint64_t formats = 0;
    for (uint32_t id = 0; id < STRATA__FORMAT_LIMIT; ++id)
        if (strata__format_find(id) && strata__format_find(id)->int8_group)
            formats |= (uint64_t)1 << id;
    return formats;
}

void strata__kernels_facts_of(uint32_t compute_capability, strata__kernels_facts *out)
{
    memset(out, 0, sizeof *out);
    out->coverage[STRATA__PATH_DIRECT] = every_format();
    out->coverage[STRATA__PATH_FP16] = every_format();
    out->coverage[STRATA__PATH_FUSED] = int8_formats();
    out->coverage[STRATA__PATH_MMQ] = int8_formats();
    out->gate_up_paths = 1u << STRATA__PATH_MMQ;
    if (compute_capability == 0) {
        out->activation_bytes = sizeof(float);
        out->decode_bytes_per_value = sizeof(float);
        return;
    }
    out->gate_up_paths |= 1u << STRATA__PATH_DIRECT;
    out->split_keys = 128;
    out->activation_bytes = 2;
    out->row_scale_bytes = 4;
    out->decode_bytes_per_value = 2;
    out->group_scratch_bytes_per_expert = STRATA__GROUP_BYTES_PER_EXPERT;
}
