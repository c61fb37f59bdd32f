/* SPDX-License-Identifier: MIT */
/*
 * The choice of a row's experts by a warp. A lane holds every 32nd expert's score in registers, as
 * an integer in the order of scores; the largest is taken top_k times, ties going to the lower id.
 */
#ifndef STRATA_KERNELS_CUDA_SELECT_CUH
#define STRATA_KERNELS_CUDA_SELECT_CUH

#include "kernels/cuda/common.cuh"

static constexpr float NOTHING = -INFINITY;

/* Unsigned integers in the order of floats, 0 none of them; both zeros are one. */
static __device__ __forceinline__ uint32_t ordered(float value)
{
    uint32_t bits = __float_as_uint(value + 0.0f);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

static __device__ __forceinline__ float value_of(uint32_t key)
{
    return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

/* Largest value of the warp and its id, the lowest of equal ones, in every lane. */
static __device__ __forceinline__ void warp_best(float &value, uint32_t &id)
{
    uint32_t own = ordered(value), best = __reduce_max_sync(0xffffffffu, own);
    id = __reduce_min_sync(0xffffffffu, own == best ? id : 0xffffffffu);
    value = value_of(best);
}

/* Takes the largest key out; answers its expert, the lowest of equal ones, to every lane. */
template <int COUNT> static __device__ __forceinline__ uint32_t take_best(uint32_t (&keys)[COUNT])
{
    uint32_t lane = threadIdx.x % 32, most = 0, id = 0xffffffffu;
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        most = max(most, keys[i]);
    most = __reduce_max_sync(0xffffffffu, most);
#pragma unroll
    for (int i = COUNT - 1; i >= 0; i--)
        id = keys[i] == most ? lane + 32 * i : id;
    id = __reduce_min_sync(0xffffffffu, id);
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        keys[i] = lane + 32 * i == id ? 0 : keys[i];
    return id;
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
        largest = value_of(__reduce_max_sync(0xffffffffu, ordered(largest)));
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

/* The value of expert `id`, of which every lane may ask for another. */
template <int COUNT>
static __device__ __forceinline__ float value_at(const float (&values)[COUNT], uint32_t id)
{
    float value = 0.0f;
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        float other = __shfl_sync(0xffffffffu, values[i], id % 32);
        value = id / 32 == (uint32_t)i ? other : value;
    }
    return value;
}

/*
 * Lane j < top_k has the j-th choice, other lanes none: finishes its weight and writes it in its
 * place by id, which `kept` learns too where it is not null.
 */
static __device__ __forceinline__ void write_choice(const strata__select_args &args, uint32_t row,
                                                    uint32_t id, float weight, uint32_t *kept)
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
    for (uint32_t first = 0; first < args.top_k; first += 8)
#pragma unroll
        for (uint32_t j = 0; j < 8; j++)
            place += __shfl_sync(0xffffffffu, id, (first + j) % 32) < id;
    if (!mine)
        return;
    uint64_t at = (uint64_t)row * args.top_k + place;
    args.ids[at] = (int32_t)id;
    if (kept)
        kept[at] = id;
    args.weights[at] = weight * args.weight_scale;
}

/*
 * COUNT * 32 experts at most; `shared`: as many floats for the warp, where there are groups;
 * `kept`: as args.ids, or null.
 */
template <int COUNT>
static __device__ __forceinline__ void select_row(const strata__select_args &args, uint32_t row,
                                                  float *shared, uint32_t *kept)
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
    uint32_t keys[COUNT], id = 0xffffffffu;
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        keys[i] = ordered(scores[i]);
    for (uint32_t j = 0; j < args.top_k; j++) {
        uint32_t best = take_best(keys);
        id = lane == j ? best : id;
    }
    write_choice(args, row, id, value_at(values, id), kept);
}

#endif
