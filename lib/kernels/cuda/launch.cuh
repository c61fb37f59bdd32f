/* SPDX-License-Identifier: MIT */
/*
 * Launches that overlap (programmatic dependent launch, compute capability 9.0): the next kernel's
 * thread blocks may start, and read what never changes, while those of the one before still run.
 * Every thread of such a kernel waits before it touches anything else, and before it ends. What an
 * earlier kernel wrote is read with plain loads after the wait, never through the read-only path.
 */
#ifndef STRATA_KERNELS_CUDA_LAUNCH_CUH
#define STRATA_KERNELS_CUDA_LAUNCH_CUH

#include "kernels/cuda/cuda_kernels.h"

/* Waits until what the stream was given before has run. */
static __device__ __forceinline__ void wait_for_earlier()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* Lets the kernel behind this one start once all blocks have come here. */
static __device__ __forceinline__ void let_next_start()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* A kernel of one structure that begins as above. */
template <typename ARGS>
static strata_status launch_overlapped(const strata__cuda_state *state, cudaStream_t stream,
                                       void (*kernel)(ARGS), dim3 grid, uint32_t threads,
                                       uint32_t shared_bytes, const ARGS &args, const char *what)
{
    cudaLaunchAttribute attribute = {};
    cudaLaunchConfig_t config = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = grid;
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = state->compute_capability >= 90 ? 1 : 0;
    return strata__cuda_status(cudaLaunchKernelEx(&config, kernel, args), what);
}

#endif
