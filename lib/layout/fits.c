/* SPDX-License-Identifier: MIT */
#include "base/error.h"
#include "layout/layout.h"

/* A number of the facts that sizes depend on. */
typedef struct number {
    const char *name;
    uint64_t planned;
    uint64_t found;
} number;

static strata_status check_paths(const strata__layout *layout, const strata__layout_facts *facts)
{
    const strata__layout_work *work = &layout->prompt;
    for (uint32_t i = 0; i < work->config_count; ++i) {
        uint32_t path = work->configs[i].path;
        if (path < STRATA__LAYOUT_PATH_COUNT &&
            (layout->facts.coverage[path] & ~facts->coverage[path]) != 0)
            return strata__fail(STRATA_ERR_INVALID_ARGUMENT,
                                "the plan uses path %s, which takes fewer formats on this device",
                                strata__layout_path_name(path));
    }
    return STRATA_OK;
}

strata_status strata__layout_fits_device(const strata__layout *layout,
                                         const strata__layout_facts *facts)
{
    const strata__layout_facts *f = &layout->facts;
    const number numbers[] = {
        {"host addressable", f->host_addressable, facts->host_addressable},
        {"activation bytes", f->activation_bytes, facts->activation_bytes},
        {"row scale bytes", f->row_scale_bytes, facts->row_scale_bytes},
        {"decode bytes per value", f->decode_bytes_per_value, facts->decode_bytes_per_value},
        {"paths with gate and up rows", f->gate_up_paths, facts->gate_up_paths},
        {"attention scratch bytes per row", f->attention_scratch_bytes_per_row,
         facts->attention_scratch_bytes_per_row},
        {"keys of an attention span", f->attention_split_keys, facts->attention_split_keys},
        {"group scratch bytes per expert", f->group_scratch_bytes_per_expert,
         facts->group_scratch_bytes_per_expert},
        {"group scratch bytes", f->group_scratch_bytes_fixed, facts->group_scratch_bytes_fixed},
        {"rest of the alignment", f->alignment_bytes % facts->alignment_bytes, 0},
    };
    for (uint32_t i = 0; i < sizeof numbers / sizeof numbers[0]; ++i)
        if (numbers[i].planned != numbers[i].found)
            return strata__fail(STRATA_ERR_INVALID_ARGUMENT,
                                "the plan is for another device: %s is %llu there, %llu here",
                                numbers[i].name, (unsigned long long)numbers[i].planned,
                                (unsigned long long)numbers[i].found);
    return check_paths(layout, facts);
}
