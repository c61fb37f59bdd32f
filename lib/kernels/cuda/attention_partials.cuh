/* SPDX-License-Identifier: MIT */
/* Where split attention keeps the sums of its spans. */
#ifndef STRATA_KERNELS_CUDA_ATTENTION_PARTIALS_CUH
#define STRATA_KERNELS_CUDA_ATTENTION_PARTIALS_CUH

#include "cuda_kernels.h"

enum { PARTIAL_EXTRA = 4 }; /* floats behind the columns: maximum, sum, and two of padding */

static __host__ __device__ __forceinline__ uint32_t span_count(const strata__attention_args &args)
{
    return strata__span_count(args.max_kv_tokens, args.split_keys);
}

static __device__ __forceinline__ float *partial_of(const strata__attention_args &args,
                                                    uint32_t row, uint32_t head, uint32_t span)
{
    uint64_t index = ((uint64_t)row * args.heads + head) * span_count(args) + span;
    return (float *)args.scratch.data + index * (args.kv.head_size + PARTIAL_EXTRA);
}

#endif
