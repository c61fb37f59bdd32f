/* SPDX-License-Identifier: MIT */
/*
 * Online softmax over blocks of keys (Milakov and Gimelshein, 2018; Dao, 2023) for accumulator
 * tiles in which four neighbouring lanes share a row.
 *
 * A block whose keys are all masked for a row leaves that row's state exactly as it was: the
 * maximum stays, the factor is exp2(0) = 1 and every probability is exp2(-inf) = 0. So a row's bits
 * do not depend on which other rows share its tile, nor on the first block that the tile looks at.
 */
#ifndef STRATA_KERNELS_CUDA_ATTENTION_SOFTMAX_CUH
#define STRATA_KERNELS_CUDA_ATTENTION_SOFTMAX_CUH

#include "attention_ptx.cuh"

#define ATTENTION_NEGATIVE_INFINITY (__int_as_float(0xff800000))

/* State of one row in one lane: the maximum of all its scores, and the lane's share of the sum. */
struct row_state {
    float maximum;
    float sum;
};

static __device__ __forceinline__ float quad_maximum(float x)
{
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

static __device__ __forceinline__ float quad_sum(float x)
{
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

/*
 * Scores of NT 8-key tiles (values HALF and HALF + 1 of each belong to the row) become
 * probabilities in place. Answers the factor for what was summed before.
 */
template <int NT, int HALF>
static __device__ __forceinline__ float softmax_step(float (&s)[NT][4], row_state &state,
                                                     float scale_log2)
{
    float block = s[0][HALF];
#pragma unroll
    for (int n = 0; n < NT; n++)
        block = fmaxf(block, fmaxf(s[n][HALF], s[n][HALF + 1]));
    float maximum = fmaxf(state.maximum, quad_maximum(block));
    float base = maximum == ATTENTION_NEGATIVE_INFINITY ? 0.0f : __fmul_rn(maximum, scale_log2);
    float factor = exp2_fast(__fsub_rn(__fmul_rn(state.maximum, scale_log2), base));
    float sum = 0.0f;
#pragma unroll
    for (int n = 0; n < NT; n++) {
        s[n][HALF] = exp2_fast(__fmaf_rn(s[n][HALF], scale_log2, -base));
        s[n][HALF + 1] = exp2_fast(__fmaf_rn(s[n][HALF + 1], scale_log2, -base));
        sum += s[n][HALF] + s[n][HALF + 1];
    }
    state.sum = __fmaf_rn(state.sum, factor, sum);
    state.maximum = maximum;
    return factor;
}

/* Masks keys that the row at `position` must not see; `key` is that of value HALF of tile 0. */
template <int NT, int HALF>
static __device__ __forceinline__ void mask_scores(float (&s)[NT][4], int key, int position,
                                                   int window)
{
    int first = window > 0 ? position - window + 1 : 0;
#pragma unroll
    for (int n = 0; n < NT; n++) {
        int k = key + n * 8;
        if (k > position || k < first)
            s[n][HALF] = ATTENTION_NEGATIVE_INFINITY;
        if (k + 1 > position || k + 1 < first)
            s[n][HALF + 1] = ATTENTION_NEGATIVE_INFINITY;
    }
}

/* Factor from the unnormalised sums to the output; the sink is a logit that has no value. */
static __device__ __forceinline__ float output_factor(row_state state, float scale_log2,
                                                      const float *sink)
{
    float sum = quad_sum(state.sum);
    if (sink == nullptr)
        return 1.0f / sum;
    const float log2_e = 1.44269504088896340736f;
    float maximum = __fmul_rn(state.maximum, scale_log2);
    float logit = __fmul_rn(*sink, log2_e);
    float top = fmaxf(maximum, logit);
    float factor = exp2_fast(__fsub_rn(maximum, top));
    return factor / __fmaf_rn(sum, factor, exp2_fast(__fsub_rn(logit, top)));
}

/* Half rows reach 65504 only; adding zero makes both zeros one. */
static __device__ __forceinline__ uint32_t output_pair(float low, float high, float factor)
{
    low = fminf(fmaxf(__fmaf_rn(low, factor, 0.0f), -65504.0f), 65504.0f);
    high = fminf(fmaxf(__fmaf_rn(high, factor, 0.0f), -65504.0f), 65504.0f);
    return pack_half2(low, high);
}

#endif
