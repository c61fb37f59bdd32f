/* SPDX-License-Identifier: MIT */
/*
 * The choice of a row's experts by a warp. A lane holds every 32nd expert's score in registers; the
 * largest is found top_k times, ties going to the lower id.
 */
#ifndef STRATA_KERNELS_CUDA_SELECT_CUH
#define STRATA_KERNELS_CUDA_SELECT_CUH

#include "kernels/cuda/common.cuh"

static constexpr float NOTHING = -INFINITY;

/* The larger value; of equal ones that with the lower id. */
static __device__ __forceinline__ void keep_better(float &value, uint32_t &id, float other,
                                                   uint32_t other_id)
{
    bool better = other > value || (other == value && other_id < id);
    value = better ? other : value;
    id = better ? other_id : id;
}

/* Unsigned integers in the order of floats; both zeros are one. */
static __device__ __forceinline__ uint32_t ordered(float value)
{
    uint32_t bits = __float_as_uint(value + 0.0f);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

/* Largest value of the warp and its id, the lowest of equal ones, in every lane. */
static __device__ __forceinline__ void warp_best(float &value, uint32_t &id)
{
    uint32_t own = ordered(value), best = __reduce_max_sync(0xffffffffu, own);
    id = __reduce_min_sync(0xffffffffu, own == best ? id : 0xffffffffu);
    value = __uint_as_float(best & 0x80000000u ? best & 0x7fffffffu : ~best);
}

/* Best of the lane's own scores. */
template <int COUNT>
static __device__ __forceinline__ void lane_best(const float (&scores)[COUNT], float &value,
                                                 uint32_t &id)
{
    value = NOTHING;
    id = 0xffffffffu;
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        keep_better(value, id, scores[i], threadIdx.x % 32 + 32 * i);
}

/*
 * Sets the scores of all groups but the best `groups_used` to nothing. A group is a run of
 * experts / groups ids; its score is the sum of its two largest. Lane g scores group g.
 */
template <int COUNT>
static __device__ __forceinline__ void limit_groups(const strata__select_args &args,
                                                    float (&scores)[COUNT], float *shared)
{
    uint32_t lane = threadIdx.x % 32, size = args.experts / args.groups, chosen = 0;
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        shared[lane + 32 * i] = scores[i];
    __syncwarp();
    float first = NOTHING, second = NOTHING;
    if (lane < args.groups)
        for (uint32_t e = lane * size; e < (lane + 1) * size; e++) {
            float score = shared[e];
            second = fmaxf(second, fminf(first, score));
            first = fmaxf(first, score);
        }
    float own = size > 1 ? first + second : first;
    own = lane < args.groups ? own : NOTHING;
    bool used = false;
    for (uint32_t i = 0; i < args.groups_used; i++) {
        float value = used ? NOTHING : own;
        uint32_t id = used || lane >= args.groups ? 0xffffffffu : lane;
        warp_best(value, id);
        used |= id == lane;
        chosen |= id < 32 ? 1u << id : 0;
    }
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        uint32_t e = lane + 32 * i;
        if (e >= args.experts || !(chosen >> (e / size) & 1))
            scores[i] = NOTHING;
    }
    __syncwarp();
}

/* Probabilities from logits, in place; missing experts have 0. */
template <int COUNT>
static __device__ __forceinline__ void gate(const strata__select_args &args, float (&values)[COUNT])
{
    uint32_t lane = threadIdx.x % 32;
    if (args.gating == STRATA__GATING_SIGMOID) {
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            values[i] = 1.0f / (1.0f + expf(-values[i]));
    } else if (args.gating == STRATA__GATING_SOFTMAX) {
        float largest = NOTHING, sum = 0.0f;
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            largest = fmaxf(largest, lane + 32 * i < args.experts ? values[i] : NOTHING);
        largest = warp_max(largest);
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            values[i] = lane + 32 * i < args.experts ? expf(values[i] - largest) : 0.0f;
            sum += values[i];
        }
        sum = warp_sum(sum);
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            values[i] /= sum;
    }
}

/* Lane j < top_k has the j-th choice: finishes its weight and writes it in its place by id. */
static __device__ __forceinline__ void write_choice(const strata__select_args &args, uint32_t row,
                                                    uint32_t id, float weight)
{
    uint32_t lane = threadIdx.x % 32, place = 0;
    bool mine = lane < args.top_k;
    if (args.gating == STRATA__GATING_SOFTMAX_SELECTED) {
        float largest = warp_max(mine ? weight : NOTHING);
        weight = mine ? expf(weight - largest) : 0.0f;
        weight /= warp_sum(weight);
    }
    if (args.normalise) {
        float sum = warp_sum(mine ? weight : 0.0f);
        weight /= fmaxf(sum, 6.103515625e-5f);
    }
    for (uint32_t j = 0; j < args.top_k; j++)
        place += __shfl_sync(0xffffffffu, id, j) < id;
    if (!mine)
        return;
    uint64_t at = (uint64_t)row * args.top_k + place;
    args.ids[at] = (int32_t)id;
    args.weights[at] = weight * args.weight_scale;
}

/* COUNT * 32 experts at most; `shared`: as many floats for the warp, where there are groups. */
template <int COUNT>
static __device__ __forceinline__ void select_row(const strata__select_args &args, uint32_t row,
                                                  float *shared)
{
    uint32_t lane = threadIdx.x % 32;
    const float *logits = args.logits + (uint64_t)row * args.experts;
    float values[COUNT], scores[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        values[i] = lane + 32 * i < args.experts ? logits[lane + 32 * i] : NOTHING;
    gate(args, values);
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        uint32_t e = lane + 32 * i;
        scores[i] = NOTHING;
        if (e < args.experts)
            scores[i] = values[i] + (args.selection_bias ? args.selection_bias[e] : 0.0f);
        if (isnan(scores[i]))
            scores[i] = NOTHING; /* so that every choice is an expert, whatever the logits */
    }
    if (args.groups > 1)
        limit_groups(args, scores, shared);
    uint32_t id = 0xffffffffu;
    float weight = 0.0f;
    for (uint32_t j = 0; j < args.top_k; j++) {
        float best;
        uint32_t best_id;
        lane_best(scores, best, best_id);
        warp_best(best, best_id);
        float chosen = 0.0f;
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            if (lane + 32 * i == best_id) {
                chosen = values[i];
                scores[i] = __int_as_float(0x7fc00000); /* compares false with everything */
            }
        chosen = __shfl_sync(0xffffffffu, chosen, best_id % 32);
        id = lane == j ? best_id : id;
        weight = lane == j ? chosen : weight;
    }
    write_choice(args, row, id, weight);
}

#endif
