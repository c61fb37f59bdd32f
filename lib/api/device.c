/* SPDX-License-Identifier: MIT */
#include <strata/device.h>

#include <string.h>

#include "base/struct_size.h"
#include "device/device.h"

/* Size of the structure in the release that brought it. */
enum { FIRST_INFO_BYTES = 144 };

strata_status strata_device_count(strata_context *context, uint32_t *out_count)
{
    if (!context || !out_count)
        return strata__fail(STRATA_ERR_INVALID_ARGUMENT, "strata_device_count: %s is NULL",
                            context ? "out_count" : "context");
    return strata__device_count(context, out_count);
}

strata_status strata_device_info_get(strata_context *context, uint32_t index,
                                     strata_device_info *inout)
{
    strata__device_facts facts;
    strata_device_info info = {0};
    strata_status status;
    if (!context || !inout)
        return strata__fail(STRATA_ERR_INVALID_ARGUMENT, "strata_device_info_get: %s is NULL",
                            context ? "inout" : "context");
    memset(&facts, 0, sizeof facts);
    status = strata__device_facts_get(context, index, &facts);
    if (status != STRATA_OK)
        return status;
    info.compute_capability = facts.compute_capability;
    info.multiprocessor_count = facts.multiprocessors;
    info.memory_total_bytes = facts.memory_bytes;
    info.memory_free_bytes = facts.memory_free_bytes;
    info.shared_memory_bytes = facts.shared_memory_bytes;
    memcpy(info.name, facts.name, sizeof info.name);
    memcpy(info.uuid, facts.uuid, sizeof info.uuid);
    return strata__struct_out(inout, &info, sizeof info, FIRST_INFO_BYTES, "strata_device_info");
}
