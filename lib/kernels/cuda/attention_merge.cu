/* SPDX-License-Identifier: MIT */
/* Merges the spans of split attention, in ascending order, into output rows. */
#include <cuda_fp16.h>

#include "attention_internal.h"
#include "attention_partials.cuh"
#include "attention_softmax.cuh"
#include "launch.cuh"

/* The row's place in its segment; every thread looks through the few segments of a step. */
static __device__ __forceinline__ bool find_position(const strata__attention_args &args,
                                                     uint32_t row, uint32_t *out_position)
{
    for (uint32_t i = 0; i < args.segment_count; i++) {
        strata__segment segment = args.segments[i];
        if (row >= segment.first_row && row - segment.first_row < segment.rows) {
            *out_position = segment.position + (row - segment.first_row);
            return true;
        }
    }
    return false;
}

/* A thread block takes a row and a query head, a thread two columns. */
static __global__ void merge_spans(const __grid_constant__ strata__attention_args args)
{
    uint32_t row = blockIdx.x, head = blockIdx.y, position;
    let_next_start();
    wait_for_earlier();
    if (!find_position(args, row, &position))
        return;
    uint32_t first_key = args.window && position + 1 > args.window ? position + 1 - args.window : 0;
    uint32_t first = strata__span_count((uint64_t)first_key + 1, args.split_keys) - 1;
    uint32_t last = strata__span_count((uint64_t)position + 1, args.split_keys) - 1;
    uint32_t size = args.kv.head_size, stride = size + PARTIAL_EXTRA, column = threadIdx.x * 2;
    const float *partials = partial_of(args, row, head, 0);
    const float log2_e = 1.44269504088896340736f;
    float logit = args.sinks ? __fmul_rn(args.sinks[head], log2_e) : ATTENTION_NEGATIVE_INFINITY;
    float top = logit;
    for (uint32_t span = first; span <= last; span++)
        top = fmaxf(top, partials[span * stride + size]);
    float sum = exp2_fast(__fsub_rn(logit, top));
    float2 value = make_float2(0.0f, 0.0f);
#pragma unroll 4
    for (uint32_t span = first; span <= last; span++) {
        const float *from = partials + span * stride;
        float factor = exp2_fast(__fsub_rn(from[size], top));
        float2 x = *reinterpret_cast<const float2 *>(from + column);
        sum = __fmaf_rn(from[size + 1], factor, sum);
        value.x = __fmaf_rn(x.x, factor, value.x);
        value.y = __fmaf_rn(x.y, factor, value.y);
    }
    __half *out = (__half *)args.out.data + ((uint64_t)row * args.heads + head) * size + column;
    *reinterpret_cast<uint32_t *>(out) = output_pair(value.x, value.y, 1.0f / sum);
    if (args.out.scale && head == 0 && threadIdx.x == 0)
        args.out.scale[row] = 1.0f;
}

extern "C" strata_status strata__cuda_attention_merge(const strata__cuda_state *state,
                                                      cudaStream_t stream,
                                                      const strata__attention_args *args)
{
    return launch_overlapped(state, stream, merge_spans, dim3(args->rows, args->heads),
                             args->kv.head_size / 2, 0, *args, "merging the spans of attention");
}

extern "C" strata_status strata__cuda_attention_merge_load(void)
{
    const void *kernel = (const void *)merge_spans;
    return strata__cuda_load_kernels(&kernel, 1, 0);
}
