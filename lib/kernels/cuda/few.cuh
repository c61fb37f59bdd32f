/* SPDX-License-Identifier: MIT */
/*
 * A warp's part of a product of few rows: a slice of 256 values of 16 rows of weights, copied to
 * shared memory as it is and multiplied by up to eight activation rows with tensor cores (mma
 * m16n8k16: weights are the 16 rows, activation rows the 8 columns, which need not all be there).
 *
 * The order of values within a step of 32 is free as long as both sides have the same: lane (r, c),
 * r = lane / 4 and c = lane % 4, holds values 8 c ... 8 c + 7 of weight rows r and r + 8 and of
 * activation row r, so that both are read in pieces of eight.
 */
#ifndef STRATA_KERNELS_CUDA_FEW_CUH
#define STRATA_KERNELS_CUDA_FEW_CUH

#include "kernels/cuda/attention_ptx.cuh"
#include "kernels/cuda/common.cuh"
#include "kernels/cuda/few.h"
#include "kernels/cuda/few_units.cuh"
#include "kernels/cuda/launch.cuh"

namespace
{

constexpr uint32_t TILE = STRATA__FEW_TILE, SLICE = STRATA__FEW_SLICE, STEPS = SLICE / 32,
                   COLUMNS = 8, HALVES = STRATA__FEW_ROWS / COLUMNS;

/* So that three blocks of 256 threads share a multiprocessor, or one of 768 fits. */
#define FEW_REGISTERS 80

/* What a warp leaves for the end of its block where it had its slices: sums and row squares. */
constexpr uint32_t SUMS = COLUMNS * TILE + COLUMNS;

/* A slice in shared memory. Rows keep their place within 16 bytes, so that copies are whole. */
template <int FORMAT> struct staged {
    static constexpr uint32_t BYTES =
        SLICE / block_shape<FORMAT>::VALUES * block_shape<FORMAT>::BYTES;
    static constexpr uint32_t GRANULES = (BYTES + 30) / 16;
    static constexpr uint32_t PITCH = 16 * (GRANULES | 1); /* odd: spreads the banks */
    static constexpr uint32_t STAGE = TILE * PITCH + 16;   /* loads of words may reach beyond */
    static_assert(HALVES * SUMS * 4 <= STAGE, "sums replace a slice");
};

/* Rows of a matrix from the first of a tile on. */
struct tile_rows {
    const uint8_t *begin; /* of the matrix */
    const uint8_t *end;
    uint32_t first;
    uint32_t last; /* of the matrix; rows behind it are taken for it */
    uint32_t row_bytes;

    __device__ __forceinline__ const uint8_t *row(uint32_t r) const
    {
        return begin + (uint64_t)min(first + r, last) * row_bytes;
    }
};

/* 16 bytes at `from`, of which those outside the matrix must not be touched. */
__device__ __forceinline__ void copy_edge(uint8_t *to, const uint8_t *from, const tile_rows &rows)
{
    for (uint32_t i = 0; i < 16; i++)
        if (from + i >= rows.begin && from + i < rows.end)
            to[i] = from[i];
}

/* Begins the copy of a slice; `bytes` of each row are there. */
template <int FORMAT>
__device__ __forceinline__ void copy_slice(uint8_t *stage, const tile_rows &rows, uint32_t slice,
                                           uint32_t bytes)
{
    using form = staged<FORMAT>;
    constexpr uint32_t COUNT = TILE * form::GRANULES;
#pragma unroll 4
    for (uint32_t i = threadIdx.x % 32; i < COUNT; i += 32) {
        uint32_t r = i / form::GRANULES, g = i % form::GRANULES;
        const uint8_t *piece = rows.row(r) + slice * form::BYTES;
        const uint8_t *from = piece - (reinterpret_cast<uintptr_t>(piece) & 15) + 16 * g;
        uint8_t *to = stage + r * form::PITCH + 16 * g;
        if (from >= piece + bytes)
            continue;
        if (from >= rows.begin && from + 16 <= rows.end)
            copy_async_16(shared_address(to), from, true);
        else
            copy_edge(to, from, rows);
    }
}

/* Where row r of a copied slice lies. */
template <int FORMAT>
__device__ __forceinline__ const uint8_t *staged_row(const uint8_t *stage, const tile_rows &rows,
                                                     uint32_t slice, uint32_t r)
{
    const uint8_t *piece = rows.row(r) + slice * staged<FORMAT>::BYTES;
    return stage + r * staged<FORMAT>::PITCH + (reinterpret_cast<uintptr_t>(piece) & 15);
}

/* d += a (16 x 16) * b (16 x 8) */
__device__ __forceinline__ void multiply_units(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                               uint32_t a3, uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void multiply_step(float (&d)[4], const uint32_t (&low)[4],
                                              const uint32_t (&high)[4], const uint4 &b)
{
    multiply_units(d, low[0], high[0], low[1], high[1], b.x, b.y);
    multiply_units(d, low[2], high[2], low[3], high[3], b.z, b.w);
}

/* sum += d * scale, with the scales of weight rows r and r + 8; d starts again. */
__device__ __forceinline__ void add_scaled(float (&sum)[4], float (&d)[4], float low, float high)
{
    sum[0] = fmaf(d[0], low, sum[0]);
    sum[1] = fmaf(d[1], low, sum[1]);
    sum[2] = fmaf(d[2], high, sum[2]);
    sum[3] = fmaf(d[3], high, sum[3]);
    d[0] = d[1] = d[2] = d[3] = 0.0f;
}

/*
 * Adds a slice to the sums of weight rows r and r + 8 by activation rows 2 c and 2 c + 1. `low` and
 * `high` are this lane's two staged rows, b[step] its values of activation row r.
 */
template <int FORMAT>
__device__ __forceinline__ void multiply_slice(float (&sum)[4], const uint8_t *low,
                                               const uint8_t *high, const void *grid,
                                               const uint4 (&b)[STEPS], uint32_t steps)
{
    using form = unit_form<FORMAT>;
    uint32_t c = threadIdx.x % 4;
    float d[4] = {}, minimum[4] = {};
#pragma unroll
    for (uint32_t step = 0; step < STEPS; step++) {
        if (step >= steps)
            break;
        unit8 u, v;
        unit_values<FORMAT>(low, step, c, grid, u);
        unit_values<FORMAT>(high, step, c, grid, v);
        multiply_step(d, u.value, v.value, b[step]);
        if constexpr (form::HAS_LOW)
            multiply_step(d, u.low, v.low, b[step]);
        if constexpr (form::HAS_MINIMUM) {
            multiply_units(minimum, u.minimum, v.minimum, u.minimum, v.minimum, b[step].x,
                           b[step].y);
            multiply_units(minimum, u.minimum, v.minimum, u.minimum, v.minimum, b[step].z,
                           b[step].w);
        }
        if ((step + 1) % form::SCALE_STEPS == 0 || step + 1 == steps) {
            add_scaled(sum, d, unit_scale<FORMAT>(low, step), unit_scale<FORMAT>(high, step));
            if constexpr (form::HAS_MINIMUM)
                add_scaled(sum, minimum, unit_minimum<FORMAT>(low, step),
                           unit_minimum<FORMAT>(high, step));
        }
    }
}

/* This lane's values of an activation row of halves; zeros where the row is not there. */
__device__ __forceinline__ void load_halves(uint4 (&b)[STEPS], const uint16_t *row, uint32_t slice,
                                            uint32_t steps, bool valid)
{
    const uint4 *from = reinterpret_cast<const uint4 *>(row + slice * SLICE) + threadIdx.x % 4;
#pragma unroll
    for (uint32_t step = 0; step < STEPS; step++)
        b[step] = valid && step < steps ? from[4 * step] : make_uint4(0, 0, 0, 0);
}

/* Eight values of a row of float32, times their gains where there are any. */
struct float8 {
    float4 low, high;
};

__device__ __forceinline__ float8 load_floats(const float *row, uint32_t at)
{
    return {*reinterpret_cast<const float4 *>(row + at),
            *reinterpret_cast<const float4 *>(row + at + 4)};
}

__device__ __forceinline__ float8 with_gain(float8 v, const float *gain, uint32_t at)
{
    if (!gain)
        return v;
    float4 a = __ldg(reinterpret_cast<const float4 *>(gain + at));
    float4 b = __ldg(reinterpret_cast<const float4 *>(gain + at + 4));
    return {{v.low.x * a.x, v.low.y * a.y, v.low.z * a.z, v.low.w * a.w},
            {v.high.x * b.x, v.high.y * b.y, v.high.z * b.z, v.high.w * b.w}};
}

__device__ __forceinline__ float largest_of(float4 v)
{
    return fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w)));
}

__device__ __forceinline__ float squares_of(float4 v, float sum)
{
    return fmaf(v.w, v.w, fmaf(v.z, v.z, fmaf(v.y, v.y, fmaf(v.x, v.x, sum))));
}

/* Over the four lanes that hold an activation row. */
__device__ __forceinline__ float quad_add(float x)
{
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

__device__ __forceinline__ float quad_most(float x)
{
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

/*
 * The power of two that brings a magnitude to [2^8, 2^9), so that a slice's halves are as exact as
 * they can be, whatever the row's range; 1 for zeros, infinities and NaNs.
 */
__device__ __forceinline__ float slice_scale_of(float magnitude)
{
    uint32_t exponent = __float_as_uint(magnitude) >> 23 & 255;
    if (exponent < 16 || exponent == 255)
        return 1.0f;
    return __uint_as_float((exponent - 8) << 23);
}

/*
 * This lane's values of a row of float32 as halves, over a scale of the slice that it answers; adds
 * the squares of the row's values to `squares`.
 */
__device__ __forceinline__ float load_scaled(uint4 (&b)[STEPS], const float *row, const float *gain,
                                             uint32_t slice, uint32_t steps, bool valid,
                                             float &squares)
{
    uint32_t at = slice * SLICE + threadIdx.x % 4 * 8;
    float most = 0.0f, sum = 0.0f;
#pragma unroll
    for (uint32_t step = 0; step < STEPS; step++) {
        if (!valid || step >= steps)
            break;
        float8 v = load_floats(row, at + 32 * step);
        sum = squares_of(v.high, squares_of(v.low, sum));
        v = with_gain(v, gain, at + 32 * step);
        most = fmaxf(most, fmaxf(largest_of(v.low), largest_of(v.high)));
    }
    squares += quad_add(sum);
    float scale = slice_scale_of(quad_most(most)), inverse = 1.0f / scale;
#pragma unroll
    for (uint32_t step = 0; step < STEPS; step++) {
        b[step] = make_uint4(0, 0, 0, 0);
        if (!valid || step >= steps)
            continue;
        float8 v = with_gain(load_floats(row, at + 32 * step), gain, at + 32 * step);
        b[step] = {pack_halves(v.low.x * inverse, v.low.y * inverse),
                   pack_halves(v.low.z * inverse, v.low.w * inverse),
                   pack_halves(v.high.x * inverse, v.high.y * inverse),
                   pack_halves(v.high.z * inverse, v.high.w * inverse)};
    }
    return scale;
}

/* sum += part * scale, where lane 4 r has the scale of activation row r. */
__device__ __forceinline__ void add_slice(float (&sum)[4], const float (&part)[4], float scale)
{
    uint32_t c = threadIdx.x % 4;
    float even = __shfl_sync(0xffffffffu, scale, 8 * c);
    float odd = __shfl_sync(0xffffffffu, scale, 8 * c + 4);
    sum[0] = fmaf(part[0], even, sum[0]);
    sum[1] = fmaf(part[1], odd, sum[1]);
    sum[2] = fmaf(part[2], even, sum[2]);
    sum[3] = fmaf(part[3], odd, sum[3]);
}

/* A warp's sums to shared memory: [activation row][weight row]. */
__device__ __forceinline__ void leave_sums(float *to, const float (&sum)[4])
{
    uint32_t r = threadIdx.x % 32 / 4, c = threadIdx.x % 4;
    to[2 * c * TILE + r] = sum[0];
    to[(2 * c + 1) * TILE + r] = sum[1];
    to[2 * c * TILE + r + 8] = sum[2];
    to[(2 * c + 1) * TILE + r + 8] = sum[3];
}

/* Steps of 32 values that slice `slice` of a row has. */
__device__ __forceinline__ uint32_t steps_of(uint32_t inputs, uint32_t slice)
{
    return min(STEPS, (inputs - slice * SLICE) / 32);
}

/* Bytes of a row's piece in a slice. */
template <int FORMAT>
__device__ __forceinline__ uint32_t bytes_of(uint32_t row_bytes, uint32_t slice)
{
    return min(staged<FORMAT>::BYTES, row_bytes - slice * staged<FORMAT>::BYTES);
}

/*
 * Shares out the slices of a row of one matrix or of two: as many warps as there are slices, if they
 * fit with what they have in shared memory, else fewer that take several in turn, two of them under
 * way.
 */
template <int FORMAT> strata__few_cut cut_of(uint32_t inputs, uint32_t matrices)
{
    strata__few_cut cut = {(inputs + SLICE - 1) / SLICE, 0, 0, staged<FORMAT>::STAGE};
    uint32_t most = STRATA__FEW_WARPS / matrices;
    for (uint32_t w = cut.slices < most ? cut.slices : most; w > 0; w--) {
        uint32_t rounds = (cut.slices + w - 1) / w;
        cut.warps = (cut.slices + rounds - 1) / rounds;
        cut.stages = rounds < 2 ? rounds : 2;
        if (cut.warps * cut.stages * cut.stage_bytes * matrices <= STRATA__FEW_STAGED_LIMIT)
            break;
    }
    return cut;
}

} /* namespace */

#endif
