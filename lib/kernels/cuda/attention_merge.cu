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

enum { MERGE_THREADS = 256, MAX_SPANS = 640, MERGE_AHEAD = 8 };

/* Spans that a row sees. */
struct span_range {
    uint32_t first, count;
};

static __device__ __forceinline__ span_range spans_of(const strata__attention_args &args,
                                                      uint32_t position)
{
    uint32_t first_key = args.window && position + 1 > args.window ? position + 1 - args.window : 0;
    uint32_t first = strata__span_count((uint64_t)first_key + 1, args.split_keys) - 1;
    return {first, strata__span_count((uint64_t)position + 1, args.split_keys) - first};
}

struct merge_shared {
    float factor[MAX_SPANS]; /* of each span's sums */
    float share[MAX_SPANS];  /* of each span in the denominator */
    float top[MERGE_THREADS / 32];
    float2 value[MERGE_THREADS];
};

/* Fills factors and shares, with all threads; answers the sink's share. */
static __device__ __forceinline__ float weigh_spans(const strata__attention_args &args,
                                                    const float *partials, uint32_t head,
                                                    const span_range &spans, merge_shared &shared)
{
    const float log2_e = 1.44269504088896340736f;
    uint32_t size = args.kv.head_size, stride = size + PARTIAL_EXTRA;
    float logit = args.sinks ? __fmul_rn(args.sinks[head], log2_e) : ATTENTION_NEGATIVE_INFINITY;
    float top = logit;
    for (uint32_t i = threadIdx.x; i < spans.count; i += MERGE_THREADS) {
        float2 facts =
            *reinterpret_cast<const float2 *>(partials + (spans.first + i) * stride + size);
        shared.factor[i] = facts.x;
        shared.share[i] = facts.y;
        top = fmaxf(top, facts.x);
    }
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, step));
    if (threadIdx.x % 32 == 0)
        shared.top[threadIdx.x / 32] = top;
    __syncthreads();
    for (uint32_t w = 0; w < MERGE_THREADS / 32; w++)
        top = fmaxf(top, shared.top[w]);
    for (uint32_t i = threadIdx.x; i < spans.count; i += MERGE_THREADS) {
        float factor = exp2_fast(__fsub_rn(shared.factor[i], top));
        shared.factor[i] = factor;
        shared.share[i] = __fmul_rn(shared.share[i], factor);
    }
    __syncthreads();
    return exp2_fast(__fsub_rn(logit, top));
}

static __device__ __forceinline__ void add_span(float2 &value, float2 x, float factor)
{
    value.x = __fmaf_rn(x.x, factor, value.x);
    value.y = __fmaf_rn(x.y, factor, value.y);
}

/*
 * A thread block takes a row and a query head, a thread two columns of every groups-th span, the
 * first of them on their way while the spans are weighed; the groups' sums are added in ascending
 * order.
 */
static __global__ void __launch_bounds__(MERGE_THREADS)
    merge_spans(const __grid_constant__ strata__attention_args args)
{
    __shared__ merge_shared shared;
    uint32_t row = blockIdx.x, head = blockIdx.y, position;
    let_next_start();
    if (!find_position(args, row, &position)) {
        wait_for_earlier();
        return;
    }
    span_range spans = spans_of(args, position);
    uint32_t size = args.kv.head_size, pairs = size / 2, groups = MERGE_THREADS / pairs;
    uint32_t group = threadIdx.x / pairs, column = threadIdx.x % pairs * 2;
    uint32_t step = groups * (size + PARTIAL_EXTRA), end = group < groups ? spans.count : 0;
    const float *partials = partial_of(args, row, head, 0);
    const float *from =
        partials + (uint64_t)(spans.first + group) * (size + PARTIAL_EXTRA) + column;
    float2 value = make_float2(0.0f, 0.0f), ahead[MERGE_AHEAD];
    wait_for_earlier();
#pragma unroll
    for (uint32_t i = 0; i < MERGE_AHEAD; i++)
        if (group + i * groups < end)
            ahead[i] = *reinterpret_cast<const float2 *>(from + i * step);
    float sum = weigh_spans(args, partials, head, spans, shared);
#pragma unroll
    for (uint32_t i = 0; i < MERGE_AHEAD; i++)
        if (group + i * groups < end)
            add_span(value, ahead[i], shared.factor[group + i * groups]);
#pragma unroll 8
    for (uint32_t i = MERGE_AHEAD; group + i * groups < end; i++)
        add_span(value, *reinterpret_cast<const float2 *>(from + (uint64_t)i * step),
                 shared.factor[group + i * groups]);
    shared.value[threadIdx.x] = value;
    __syncthreads();
    if (group > 0)
        return;
    for (uint32_t g = 1; g < groups; g++) {
        value.x += shared.value[g * pairs + threadIdx.x].x;
        value.y += shared.value[g * pairs + threadIdx.x].y;
    }
    for (uint32_t i = 0; i < spans.count; i++)
        sum += shared.share[i];
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
                             MERGE_THREADS, 0, *args, "merging the spans of attention");
}

extern "C" strata_status strata__cuda_attention_merge_load(void)
{
    const void *kernel = (const void *)merge_spans;
    return strata__cuda_load_kernels(&kernel, 1, 0);
}
