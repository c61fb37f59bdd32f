/* SPDX-License-Identifier: MIT */
/* Shared memory as instructions name it. */
#ifndef STRATA_KERNELS_CUDA_SHARED_CUH
#define STRATA_KERNELS_CUDA_SHARED_CUH

#include <stdint.h>

static __device__ __forceinline__ uint32_t shared_address(const void *pointer)
{
    return (uint32_t)__cvta_generic_to_shared(pointer);
}

#endif
