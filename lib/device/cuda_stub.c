/* SPDX-License-Identifier: MIT */
/* What builds without CUDA answer: no accelerators, and why. */
#include "base/error.h"
#include "device/device.h"

strata_status strata__cuda_device_count(uint32_t *out_count)
{
    *out_count = 0;
    return STRATA_OK;
}

strata_status strata__cuda_device_facts(uint32_t index, strata__device_facts *out)
{
    (void)out;
    return strata__fail(STRATA_ERR_NO_DEVICE, "cuda:%u: the library was built without CUDA", index);
}

strata_status strata__cuda_device_open(strata_context *context, uint32_t index,
                                       strata__device **out)
{
    (void)context;
    (void)out;
    return strata__fail(STRATA_ERR_NO_DEVICE, "cuda:%u: the library was built without CUDA", index);
}
