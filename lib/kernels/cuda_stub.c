/* SPDX-License-Identifier: MIT */
/* What builds without CUDA answer. */
#include "base/error.h"
#include "kernels/kernels.h"

strata_status strata__cuda_kernels_create(const strata__cuda_kernels_options *options,
                                          strata__kernels **out)
{
    (void)out;
    return strata__fail(STRATA_ERR_NO_DEVICE, "cuda:%d: the library was built without CUDA",
                        (int)options->device_ordinal);
}
