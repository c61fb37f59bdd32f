/* SPDX-License-Identifier: MIT */
/*
 * Memory that in a session an earlier kernel writes. Where kernels run on the CPU, every block of a
 * launch that overlaps with earlier ones finds bytes of 0xff there until one of its threads has
 * waited for these; on a device nothing is done.
 */
#ifndef STRATA_TEST_GPU_LATE_H
#define STRATA_TEST_GPU_LATE_H

#include <stddef.h>

#include <cuda_runtime.h>

#if defined(__CUDACC__)
inline void cuda_host_late(void *, size_t)
{
}

inline void cuda_host_late_none()
{
}
#endif

#endif
