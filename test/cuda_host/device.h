/* SPDX-License-Identifier: MIT */
/* What the machine needs of its device: shared memory, the order of things, limits. */
#ifndef STRATA_CUDA_HOST_DEVICE_H
#define STRATA_CUDA_HOST_DEVICE_H

#include "shim/machine.h"

namespace cuda_host
{

/* Shared memory of a block that begins, poisoned, and of one that has ended. */
void shared_begin(size_t dynamic_bytes);
void shared_end();

/* Dynamic shared memory that a kernel may ask for. */
size_t shared_limit(const void *kernel);

/* 0 ... count - 1 as CUDA_HOST_ORDER has them. */
void make_order(uint32_t *order, uint32_t count);
bool copies_at_once();
void make_copy(const copy &what);

/* Remembers the code for cudaGetLastError. */
cudaError_t failed(cudaError_t code);

} /* namespace cuda_host */

#endif
