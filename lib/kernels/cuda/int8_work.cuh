/* SPDX-License-Identifier: MIT */
/*
 * What the int8 products share: the tiles of a launch, copies to shared memory, exact dots.
 */
#ifndef STRATA_KERNELS_CUDA_INT8_WORK_CUH
#define STRATA_KERNELS_CUDA_INT8_WORK_CUH

#include "kernels/cuda/int8.cuh"
#include "kernels/cuda/shared.cuh"

namespace
{

/* Of each expert of the launch: row tiles before it, its first row in the range. */
struct work_list {
    uint32_t before[STRATA__PASS_EXPERTS + 1];
    uint32_t first[STRATA__PASS_EXPERTS + 1];
};

struct work_tile {
    uint32_t index;     /* of the launch's tiles */
    uint32_t expert;    /* of the launch */
    uint32_t first_row; /* of the range */
    uint32_t rows;      /* 0: no work is left */
    uint32_t column;    /* of the row tile's tiles */
};

/* All threads of the block; ends with a barrier. */
template <uint32_t ROWS>
__device__ __forceinline__ void build_list(work_list &list, const strata__cuda_range &range)
{
    for (uint32_t e = threadIdx.x; e <= range.experts; e += blockDim.x)
        list.first[e] = min(max(range.offsets[e], range.first_row), range.first_row + range.rows) -
                        range.first_row;
    __syncthreads();
    if (threadIdx.x < 32)
        sums_before(list.before, range.experts, [&](uint32_t e) {
            return (list.first[e + 1] - list.first[e] + ROWS - 1) / ROWS;
        });
    __syncthreads();
}

/*
 * By one warp, of which one lane has the tile and true. Expert after expert, within one the columns
 * of a row tile side by side.
 */
template <uint32_t ROWS>
__device__ __forceinline__ bool find_work(const work_list &list, uint32_t experts, uint32_t columns,
                                          uint32_t index, work_tile *tile)
{
    uint32_t row_tile = index / columns, counted = 0, lane = threadIdx.x;
    bool none = row_tile >= list.before[experts];
    for (uint32_t base = 0; base < experts; base += 32) {
        uint32_t e = base + lane;
        counted += __popc(__ballot_sync(0xffffffffu, e < experts && list.before[e] <= row_tile));
    }
    if (lane != 0)
        return false;
    uint32_t expert = counted - 1, skip = (row_tile - list.before[expert]) * ROWS;
    uint32_t first = list.first[expert] + skip;
    tile->index = index;
    tile->expert = expert;
    tile->first_row = first;
    tile->rows = none ? 0 : min(list.first[expert + 1] - first, ROWS);
    tile->column = index % columns;
    return true;
}

/* The bits of BIAS: integer sums that start there are, as float32, BIAS plus the sum. */
constexpr int BIAS_BITS = 0x4b400000;

/* Added where there is no bias: a sum that has underflowed may be -0, of which 0 would make 0. */
constexpr float NO_BIAS = -0.0f;

/* Dots of 32 values, and 32 more of them. */
__device__ __forceinline__ void multiply_32(int (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                            uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};\n"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(BIAS_BITS));
}

__device__ __forceinline__ void multiply_32_more(int (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                                 uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Dots of 16 values: half a fragment of 32. */
__device__ __forceinline__ void multiply_16(int (&d)[4], uint32_t a0, uint32_t a1, uint32_t b)
{
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 "
        "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %7, %7, %7};\n"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
        : "r"(a0), "r"(a1), "r"(b), "r"(BIAS_BITS));
}

/*
 * y and what the dots of 32 or 64 values add to it. `form` has PARTS dots, each with a scale w, and
 * OFFSETS offsets o, each with the sum of its activations. `shift` is -BIAS * w of the first: that
 * is exact, because w has at most 22 bits, so that one fma gives w * dot, rounded once. Scales of
 * powers of two up to 2^126 (WIDE) would overflow there.
 */
template <class form>
__device__ __forceinline__ float
with_dots(float y, const int (&dots)[form::PARTS], const float (&w)[form::PARTS], float shift,
          const float (&o)[form::SUMS], const float (&sums)[form::SUMS], float scale)
{
    float first = __int_as_float(dots[0]);
    float t = form::WIDE ? __fmul_rn(w[0], __fsub_rn(first, BIAS)) : __fmaf_rn(w[0], first, shift);
#pragma unroll
    for (int p = 1; p < form::PARTS; p++)
        t = __fmaf_rn(w[p], __fsub_rn(__int_as_float(dots[p]), BIAS), t);
#pragma unroll
    for (int p = 0; p < form::OFFSETS; p++)
        t = __fmaf_rn(o[p], sums[p], t);
    return __fmaf_rn(t, scale, y);
}

__device__ __forceinline__ float with_bias(float sum, const float *bias, uint64_t at)
{
    return bias ? __fadd_rn(sum, __ldg(bias + at)) : sum;
}

} /* namespace */

#endif
