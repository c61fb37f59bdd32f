/* SPDX-License-Identifier: MIT */
/*
 * Products of few rows: a block's 16 rows of weights are copied to shared memory as they are, in
 * whole lines, so that host memory can be read in place at the link's rate; a warp multiplies
 * slices of 256 values by up to eight activation rows with tensor cores (mma m16n8k16: weights are
 * the 16 rows, activation rows the 8 columns, which need not all be there).
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
                   COLUMNS = 8, HALVES = STRATA__DIRECT_ROWS / COLUMNS;
static_assert(HALVES * COLUMNS == STRATA__DIRECT_ROWS, "every row has a column");

/* So that three blocks of 256 threads share a multiprocessor, or one of 768 fits. */
#define FEW_REGISTERS 80

/* What a warp leaves for the end of its block for eight activation rows: sums and squares. */
constexpr uint32_t SUMS = COLUMNS * TILE + COLUMNS;

template <int FORMAT> struct slice_of {
    static constexpr uint32_t BYTES =
        SLICE / block_shape<FORMAT>::VALUES * block_shape<FORMAT>::BYTES;
};

/* The rows of a tile in their matrix. */
struct weight_tile {
    const uint8_t *begin; /* of the matrix */
    const uint8_t *end;
    const uint8_t *start; /* of the tile's first row */
    uint32_t rows;        /* that the matrix has there, up to TILE */
    uint32_t row_bytes;
};

__device__ __forceinline__ weight_tile tile_of(const void *matrix, uint32_t row_bytes,
                                               uint32_t outputs, uint32_t tile)
{
    const uint8_t *begin = static_cast<const uint8_t *>(matrix);
    return {begin, begin + (uint64_t)outputs * row_bytes, begin + (uint64_t)tile * TILE * row_bytes,
            min(TILE, outputs - tile * TILE), row_bytes};
}

__host__ __device__ __forceinline__ uint32_t misplaced(const uint8_t *p)
{
    return (uint32_t) reinterpret_cast<uintptr_t>(p) & 15;
}

/* 16 bytes at `from`, without those outside the matrix. */
__device__ __forceinline__ void copy_16(uint8_t *to, const uint8_t *from, const weight_tile &tile)
{
    if (from >= tile.begin && from + 16 <= tile.end) {
        copy_async_16(shared_address(to), from, true);
        return;
    }
    for (uint32_t i = 0; i < 16; i++)
        if (from + i >= tile.begin && from + i < tile.end)
            to[i] = from[i];
}

/*
 * Bytes between the rows of a whole tile in shared memory: what they have, and 16 more where rows
 * of whole granules would share banks.
 */
__device__ __forceinline__ uint32_t whole_pitch(const weight_tile &tile)
{
    return tile.row_bytes % 32 == 0 && misplaced(tile.start) == 0 ? tile.row_bytes + 16
                                                                  : tile.row_bytes;
}

__host__ __device__ __forceinline__ uint32_t chunk_pitch(uint32_t piece_bytes)
{
    return 16 * ((piece_bytes + 30) / 16 | 1);
}

/* A tile as the contiguous piece of memory that it is, in lines of 128 bytes. */
__device__ __forceinline__ void copy_whole(uint8_t *stage, const weight_tile &tile, uint32_t thread,
                                           uint32_t threads)
{
    uint32_t before = (uint32_t) reinterpret_cast<uintptr_t>(tile.start) & 127, skip = before / 16;
    uint32_t granules = (before + tile.rows * tile.row_bytes + 15) / 16;
    uint32_t pad = whole_pitch(tile) - tile.row_bytes;
    const uint8_t *line = tile.start - before;
    for (uint32_t i = thread; i < granules; i += threads) {
        uint32_t at = 16 * (i - skip);
        if (i >= skip)
            copy_16(stage + at + (pad ? at / tile.row_bytes * pad : 0), line + 16 * i, tile);
    }
}

/* Some slices of each row. */
template <int FORMAT>
__device__ __forceinline__ void copy_chunk(uint8_t *stage, const weight_tile &tile,
                                           const strata__few_cut &cut, uint32_t chunk,
                                           uint32_t thread, uint32_t threads)
{
    uint32_t piece = cut.chunk * slice_of<FORMAT>::BYTES, first = chunk * piece;
    uint32_t bytes = min(piece, tile.row_bytes - first), granules = (piece + 30) / 16;
    for (uint32_t i = thread; i < tile.rows * granules; i += threads) {
        uint32_t r = i / granules, at = i % granules * 16;
        const uint8_t *from = tile.start + (uint64_t)r * tile.row_bytes + first;
        if (at < misplaced(from) + bytes)
            copy_16(stage + r * chunk_pitch(piece) + at, from - misplaced(from) + at, tile);
    }
}

/* Begins the copy of a chunk, by some threads of the block; each closes a group of its own. */
template <int FORMAT>
__device__ __forceinline__ void copy_weights(uint8_t *stage, const weight_tile &tile,
                                             const strata__few_cut &cut, uint32_t chunk,
                                             uint32_t thread, uint32_t threads)
{
    if (cut.chunks == 1)
        copy_whole(stage, tile, thread, threads);
    else
        copy_chunk<FORMAT>(stage, tile, cut, chunk, thread, threads);
}

/* Where a slice of row r lies; rows that are not there are taken for the last. */
template <int FORMAT>
__device__ __forceinline__ const uint8_t *staged_row(const uint8_t *stage, const weight_tile &tile,
                                                     const strata__few_cut &cut, uint32_t slice,
                                                     uint32_t r)
{
    r = min(r, tile.rows - 1);
    if (cut.chunks == 1)
        return stage + misplaced(tile.start) + r * whole_pitch(tile) +
               slice * slice_of<FORMAT>::BYTES;
    uint32_t piece = cut.chunk * slice_of<FORMAT>::BYTES, chunk = slice / cut.chunk;
    const uint8_t *from = tile.start + (uint64_t)r * tile.row_bytes + chunk * piece;
    return stage + r * chunk_pitch(piece) + misplaced(from) +
           slice % cut.chunk * slice_of<FORMAT>::BYTES;
}

/* d = a (16 x 16) * b (16 x 8), or added to d */
template <bool FIRST>
__device__ __forceinline__ void multiply_units(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                               uint32_t a3, uint32_t b0, uint32_t b1)
{
    if (FIRST)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};\n"
                     : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
                     : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "f"(0.0f));
    else
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

template <bool FIRST>
__device__ __forceinline__ void multiply_step(float (&d)[4], const uint32_t (&low)[4],
                                              const uint32_t (&high)[4], const uint4 &b)
{
    multiply_units<FIRST>(d, low[0], high[0], low[1], high[1], b.x, b.y);
    multiply_units<false>(d, low[2], high[2], low[3], high[3], b.z, b.w);
}

/* sum += d * scale, with the scales of weight rows r and r + 8 */
__device__ __forceinline__ void add_scaled(float (&sum)[4], const float (&d)[4], float low,
                                           float high)
{
    sum[0] = fmaf(d[0], low, sum[0]);
    sum[1] = fmaf(d[1], low, sum[1]);
    sum[2] = fmaf(d[2], high, sum[2]);
    sum[3] = fmaf(d[3], high, sum[3]);
}

/* The products of a step of 32 values, after others of the same scale or as the first of them. */
template <int FORMAT, bool FIRST>
__device__ __forceinline__ void
multiply_values(float (&d)[4], float (&minimum)[4], const uint8_t *low, const uint8_t *high,
                const unit_books<FORMAT> &books, const uint4 &b, uint32_t step)
{
    uint32_t c = threadIdx.x % 4;
    unit8 u, v;
    unit_values<FORMAT>(low, step, c, books, u);
    unit_values<FORMAT>(high, step, c, books, v);
    multiply_step<FIRST>(d, u.value, v.value, b);
    if constexpr (unit_form<FORMAT>::HAS_LOW)
        multiply_step<false>(d, u.low, v.low, b);
    if constexpr (unit_form<FORMAT>::HAS_MINIMUM) {
        multiply_units<FIRST>(minimum, u.minimum, v.minimum, u.minimum, v.minimum, b.x, b.y);
        multiply_units<false>(minimum, u.minimum, v.minimum, u.minimum, v.minimum, b.z, b.w);
    }
}

/*
 * Adds a slice to the sums of weight rows r and r + 8 by activation rows 2 c and 2 c + 1. `low` and
 * `high` are this lane's two staged rows, b[step] its values of activation row r.
 */
template <int FORMAT>
__device__ __forceinline__ void multiply_slice(float (&sum)[4], const uint8_t *low,
                                               const uint8_t *high, const unit_books<FORMAT> &books,
                                               const uint4 (&b)[STEPS], uint32_t steps)
{
    using form = unit_form<FORMAT>;
    float d[4], minimum[4];
#pragma unroll
    for (uint32_t step = 0; step < STEPS; step++) {
        if (step >= steps)
            break;
        if (step % form::SCALE_STEPS == 0)
            multiply_values<FORMAT, true>(d, minimum, low, high, books, b[step], step);
        else
            multiply_values<FORMAT, false>(d, minimum, low, high, books, b[step], step);
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

/* Activation rows that a warp stages at a time, with room that spreads the banks. */
constexpr uint32_t STAGED_ROWS = 2, ROW_BYTES = SLICE * 2 + 16;

/* What the lanes know of the rows of a slice: lane n of row n. */
struct row_facts {
    float scale;   /* of the slice's halves */
    float squares; /* sum over the row's slices so far */
};

__device__ __forceinline__ float4 times(float4 v, float4 g)
{
    return {v.x * g.x, v.y * g.y, v.z * g.z, v.w * g.w};
}

__device__ __forceinline__ float largest_of(float4 v)
{
    return fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w)));
}

__device__ __forceinline__ float squares_of(float4 v, float sum)
{
    return fmaf(v.w, v.w, fmaf(v.z, v.z, fmaf(v.y, v.y, fmaf(v.x, v.x, sum))));
}

/*
 * The power of two that brings a magnitude to [2^8, 2^9), so that a slice's halves are as exact as
 * they can be, whatever the row's range; 1 for zeros, infinities and NaNs.
 */
__device__ __forceinline__ float slice_scale_of(uint32_t magnitude)
{
    uint32_t exponent = magnitude >> 23;
    if (exponent < 16 || exponent == 255)
        return 1.0f;
    return __uint_as_float((exponent - 8) << 23);
}

/*
 * A slice of row n of float32, times the gains where there are any, to shared memory as halves over
 * a scale of the slice. All lanes, eight values each.
 */
__device__ __forceinline__ void stage_row(uint8_t *rows, uint32_t n, const float *row,
                                          const float *gain, uint32_t slice, uint32_t steps,
                                          row_facts &facts)
{
    uint32_t lane = threadIdx.x % 32, at = slice * SLICE + lane * 8;
    float4 low = {}, high = {}, low_gain = {}, high_gain = {};
    if (lane / 4 < steps) {
        low = *reinterpret_cast<const float4 *>(row + at);
        high = *reinterpret_cast<const float4 *>(row + at + 4);
    }
    if (gain) {
        /* With the row's values, not behind the sum of their squares. */
        if (lane / 4 < steps) {
            low_gain = __ldg(reinterpret_cast<const float4 *>(gain + at));
            high_gain = __ldg(reinterpret_cast<const float4 *>(gain + at + 4));
        }
        float squares = warp_sum(squares_of(high, squares_of(low, 0.0f)));
        if (lane == n)
            facts.squares += squares;
        low = times(low, low_gain);
        high = times(high, high_gain);
    }
    uint32_t most = __float_as_uint(fmaxf(largest_of(low), largest_of(high)));
    float scale = slice_scale_of(__reduce_max_sync(0xffffffffu, most)), inverse = 1.0f / scale;
    if (lane == n)
        facts.scale = scale;
    *reinterpret_cast<uint4 *>(rows + n % STAGED_ROWS * ROW_BYTES +
                               lane * 16) = {pack_halves(low.x * inverse, low.y * inverse),
                                             pack_halves(low.z * inverse, low.w * inverse),
                                             pack_halves(high.x * inverse, high.y * inverse),
                                             pack_halves(high.z * inverse, high.w * inverse)};
}

__device__ __forceinline__ void clear(uint4 (&b)[STEPS])
{
#pragma unroll
    for (uint32_t step = 0; step < STEPS; step++)
        b[step] = make_uint4(0, 0, 0, 0);
}

/* This lane's values, if its row is among those staged, up to row `last`. */
__device__ __forceinline__ void load_staged(uint4 (&b)[STEPS], const uint8_t *rows, uint32_t last)
{
    uint32_t r = threadIdx.x % 32 / 4, c = threadIdx.x % 4;
    __syncwarp();
    if (r / STAGED_ROWS == last / STAGED_ROWS && r <= last) {
#pragma unroll
        for (uint32_t step = 0; step < STEPS; step++)
            b[step] = *reinterpret_cast<const uint4 *>(rows + r % STAGED_ROWS * ROW_BYTES +
                                                       step * 64 + c * 16);
    }
    __syncwarp();
}

/* sum += part * scale, where lane n has the scale of activation row n. */
__device__ __forceinline__ void add_slice(float (&sum)[4], const float (&part)[4], float scale)
{
    uint32_t c = threadIdx.x % 4;
    float even = __shfl_sync(0xffffffffu, scale, 2 * c);
    float odd = __shfl_sync(0xffffffffu, scale, 2 * c + 1);
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

/*
 * Steps of 32 values that slice `slice` of a row has: all of them, known to the compiler, where a
 * block has as many values as a slice.
 */
template <int FORMAT> __device__ __forceinline__ uint32_t steps_of(uint32_t inputs, uint32_t slice)
{
    if (block_shape<FORMAT>::VALUES == SLICE)
        return STEPS;
    return min(STEPS, (inputs - slice * SLICE) / 32);
}

/* End of the slices of a chunk. */
__device__ __forceinline__ uint32_t chunk_end(const strata__few_cut &cut, uint32_t chunk)
{
    return min((chunk + 1) * cut.chunk, cut.slices);
}

/*
 * Whole tiles where they fit, else as large chunks as there is room for two of; `matrices` of them
 * at a time. As many warps as a chunk has slices, or such a part of them that all have as many.
 */
template <int FORMAT>
strata__few_cut cut_of(uint32_t inputs, uint32_t row_bytes, uint32_t matrices, uint32_t limit)
{
    uint32_t slices = (inputs + SLICE - 1) / SLICE, most = STRATA__FEW_WARPS;
    strata__few_cut cut = {slices, 0, slices, 1, TILE * (row_bytes + 16) + 32};
    for (uint32_t chunk = most;
         cut.stage_bytes * matrices > limit / (cut.chunks == 1 ? 1 : 2) && chunk > 0; chunk--) {
        cut.chunk = chunk < slices ? chunk : slices;
        cut.chunks = 2 > (slices + chunk - 1) / chunk ? 2 : (slices + chunk - 1) / chunk;
        cut.stage_bytes = TILE * chunk_pitch(cut.chunk * slice_of<FORMAT>::BYTES) + 32;
    }
    uint32_t turns = (cut.chunk + most - 1) / most;
    cut.warps = (cut.chunk + turns - 1) / turns;
    return cut;
}

inline strata__few_cut cut_for(uint32_t format, uint32_t inputs, uint32_t row_bytes,
                               uint32_t matrices, uint32_t limit)
{
    switch (format) {
#define STRATA__CASE(f)                                                                            \
    case f:                                                                                        \
        return cut_of<f>(inputs, row_bytes, matrices, limit);
        STRATA__FOR_EACH_UNIT_FORMAT(STRATA__CASE)
#undef STRATA__CASE
    default:
        return {};
    }
}

inline uint32_t row_bytes_of(uint32_t format, uint32_t inputs)
{
    const strata__format_info *info = strata__format_find(format);
    return inputs / info->block_values * info->block_bytes;
}

/* ENTRY<FORMAT>::kernel() of a format. */
template <template <int> class ENTRY>
auto kernel_of(uint32_t format) -> decltype(ENTRY<STRATA__F16>::kernel())
{
    switch (format) {
#define STRATA__CASE(f)                                                                            \
    case f:                                                                                        \
        return ENTRY<f>::kernel();
        STRATA__FOR_EACH_UNIT_FORMAT(STRATA__CASE)
#undef STRATA__CASE
    default:
        return nullptr;
    }
}

template <template <int> class ENTRY> strata_status load_kernels(const strata__cuda_state *state)
{
    const void *kernels[] = {
#define STRATA__KERNEL(f) reinterpret_cast<const void *>(ENTRY<f>::kernel()),
        STRATA__FOR_EACH_UNIT_FORMAT(STRATA__KERNEL)
#undef STRATA__KERNEL
    };
    return strata__few_load_kernels(state, kernels, sizeof kernels / sizeof kernels[0]);
}

} /* namespace */

#endif
