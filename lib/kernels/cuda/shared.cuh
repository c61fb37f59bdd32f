/* SPDX-License-Identifier: MIT */
/* Shared memory as instructions name it, and copies to it that are waited for later. */
#ifndef STRATA_KERNELS_CUDA_SHARED_CUH
#define STRATA_KERNELS_CUDA_SHARED_CUH

#include <stdint.h>

static __device__ __forceinline__ uint32_t shared_address(const void *pointer)
{
    return (uint32_t)__cvta_generic_to_shared(pointer);
}

/* BYTES bytes, 16 or 8, of which the first `bytes` are read and the rest become zeros. */
template <int BYTES>
static __device__ __forceinline__ void copy_async(uint32_t target, const void *source,
                                                  uint32_t bytes)
{
    if constexpr (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(target), "l"(source),
                     "r"(bytes)
                     : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;\n" ::"r"(target), "l"(source),
                     "r"(bytes)
                     : "memory");
}

/* 16 bytes; with `valid` false zeros, and nothing is read. */
static __device__ __forceinline__ void copy_async_16(uint32_t target, const void *source,
                                                     bool valid)
{
    copy_async<16>(target, source, valid ? 16 : 0);
}

static __device__ __forceinline__ void copy_async_4(void *target, const void *source)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;\n" ::"r"(shared_address(target)),
                 "l"(source)
                 : "memory");
}

static __device__ __forceinline__ void copy_async_commit()
{
    asm volatile("cp.async.commit_group;\n" ::: "memory");
}

template <int PENDING> static __device__ __forceinline__ void copy_async_wait()
{
    asm volatile("cp.async.wait_group %0;\n" ::"n"(PENDING) : "memory");
}

#endif
