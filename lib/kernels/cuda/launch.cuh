/* SPDX-License-Identifier: MIT */
/*
 * Launches that overlap (programmatic dependent launch, compute capability 9.0): the next kernel's
 * thread blocks may start while those of the one before still run, and so on along the stream.
 *
 *   - Every thread of such a kernel waits before it ends, and before it touches what an earlier
 *     kernel writes or reads; so all that is before a kernel has run when its wait is over.
 *   - Before the wait it may read what copies and the host wrote (a copy, like a launch without the
 *     attribute, starts when everything before it has run, and nothing behind it starts earlier):
 *     weights, tables, segments, page tables. What kernels wrote may be read there only if such a
 *     copy or launch lies between, as at the start of every step.
 *   - What an earlier kernel wrote is read with plain loads, never through the read-only path.
 *   - A kernel that does not wait is launched without the attribute.
 *   - A launch that has to follow another stream waits for its event. The wait stays whole: only
 *     the edge to the kernel before in the same stream is shortened, also when a graph is captured.
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

/*
 * Asks for `bytes` behind `from`, a multiple of 16 both, to be brought to the level 2 cache: a part
 * of them by each of the grid's blocks. Before the wait, for what a kernel soon after reads.
 */
static __device__ __forceinline__ void fetch_ahead(const strata__ahead &ahead)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if (threadIdx.x != blockDim.x - 1)
        return;
    uint32_t blocks = gridDim.x * gridDim.y * gridDim.z, pieces = (uint32_t)(ahead.bytes / 16);
    uint32_t block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    uint32_t each = pieces / blocks + 1, first = block * each;
    if (first >= pieces)
        return;
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(
                     static_cast<const uint8_t *>(ahead.data) + first * 16ull),
                 "r"(min(each, pieces - first) * 16)
                 : "memory");
#else
    (void)ahead;
#endif
}

/* The line at an address, likewise. */
static __device__ __forceinline__ void fetch_line(const void *at)
{
    asm volatile("prefetch.global.L2 [%0];" ::"l"(at) : "memory");
}

/* `count` floats of a small table, by all threads of a block. */
static __device__ __forceinline__ void fetch_table(const float *table, uint32_t count)
{
    for (uint32_t i = threadIdx.x * 32; table && i < count; i += blockDim.x * 32)
        fetch_line(table + i);
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
    config.numAttrs = state->overlaps ? 1 : 0;
    return strata__cuda_status(cudaLaunchKernelEx(&config, kernel, args), what);
}

#endif
