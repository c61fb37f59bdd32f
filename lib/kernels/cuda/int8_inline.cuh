/* SPDX-License-Identifier: MIT */
/*
 * The int8 product without an image: raw blocks of weights come to shared memory as they are, and a
 * lane decodes them to the fragments that tensor cores take. A warp has MTILES * 16 weight rows and
 * 64 activation rows; where a tile has 128 of these, two warps decode the same weights.
 *
 * Activation rows are the columns of the fragments, eight a piece. A lane (r, c) decodes values 8 c
 * to 8 c + 7 of 32 of rows r and r + 8: any order of the values within a dot gives the same dot.
 * Paired, rows r + 8 are the up rows of the gate rows r, so that both results of an output meet in
 * one lane.
 */
#ifndef STRATA_KERNELS_CUDA_INT8_INLINE_CUH
#define STRATA_KERNELS_CUDA_INT8_INLINE_CUH

#include "kernels/cuda/int8_inline_copy.cuh"
#include "kernels/cuda/int8_inline_out.cuh"

namespace
{

/* A lane's weights of 32 values, and what comes with them, of rows r and r + 8 of each tile. */
template <int FORMAT, int MTILES> struct fragments {
    static constexpr int PARTS = int8_sum_of<FORMAT>::PARTS;
    uint32_t a[MTILES][4];
    float w[MTILES][2][PARTS], shift[MTILES][2], o[MTILES][2][PARTS];
};

/* Step `step` of the stage; `t`: terms of the row that the lane holds for its neighbours. */
template <int FORMAT, class shape>
__device__ __forceinline__ void
decode_step(fragments<FORMAT, shape::MTILES> &f, const uint8_t *row, uint32_t step,
            const int8_terms<int8_sum_of<FORMAT>::PARTS> &t, const int8_books<FORMAT> &books)
{
    using sum = int8_sum_of<FORMAT>;
    uint32_t c = threadIdx.x % 4;
#pragma unroll
    for (int p = 0; p < 2 * shape::MTILES; p++) {
        code8 v = int8_codes_of<FORMAT>(row, p * shape::EIGHT_ROWS, step, c, books);
        if (sum::D == 16) { /* the first half of the values to one dot, the rest to another */
            uint32_t other = __shfl_xor_sync(0xffffffffu, c < 2 ? v.high : v.low, 2);
            v = {c < 2 ? v.low : other, c < 2 ? other : v.high};
        }
        f.a[p / 2][p % 2] = v.low;
        f.a[p / 2][2 + p % 2] = v.high;
    }
#pragma unroll
    for (int p = 0; p < 2 * shape::MTILES; p++) {
#pragma unroll
        for (int d = 0; d < sum::PARTS; d++) {
            f.w[p / 2][p % 2][d] = __shfl_sync(0xffffffffu, t.w[d], p, 4);
            if (sum::OFFSETS)
                f.o[p / 2][p % 2][d] = __shfl_sync(0xffffffffu, t.o[d], p, 4);
        }
        f.shift[p / 2][p % 2] = __fmul_rn(f.w[p / 2][p % 2][0], -BIAS);
    }
}

/* What two activation rows of a piece bring: scales, sums of the values of each dot. */
template <int PARTS> struct row_terms {
    float2 scale, sum[PARTS];
};

template <class shape, int PARTS>
__device__ __forceinline__ void load_terms(row_terms<PARTS> &t, const uint8_t *terms)
{
    if constexpr (shape::JOINED) {
        const float4 *both = reinterpret_cast<const float4 *>(terms);
        t.scale = {both->x, both->z};
        t.sum[0] = {both->y, both->w};
    } else {
        t.scale = *reinterpret_cast<const float2 *>(terms);
#pragma unroll
        for (int d = 0; d < (int)shape::SUMS; d++)
            t.sum[d] = *reinterpret_cast<const float2 *>(terms + (d + 1) * shape::PLANE_BYTES);
    }
}

/* What the dots of two rows of weights by two of activations add to the sums. */
template <int FORMAT, int MTILES>
__device__ __forceinline__ void add_dots(float (&sums)[4],
                                         const int (&dots)[int8_sum_of<FORMAT>::PARTS][4],
                                         const fragments<FORMAT, MTILES> &f, int i,
                                         const row_terms<int8_sum_of<FORMAT>::PARTS> &row)
{
    using sum = int8_sum_of<FORMAT>;
#pragma unroll
    for (int v = 0; v < 4; v++) {
        float t = 0.0f;
#pragma unroll
        for (int d = 0; d < sum::PARTS; d++) {
            float dot = __int_as_float(dots[d][v]), w = f.w[i][v / 2][d];
            if (d)
                t = __fmaf_rn(w, __fsub_rn(dot, BIAS), t);
            else if (sum::WIDE)
                t = __fmul_rn(w, __fsub_rn(dot, BIAS));
            else
                t = __fmaf_rn(w, dot, f.shift[i][v / 2]);
            if (sum::OFFSETS)
                t = __fmaf_rn(f.o[i][v / 2][d], v % 2 ? row.sum[d].y : row.sum[d].x, t);
        }
        sums[v] = __fmaf_rn(t, v % 2 ? row.scale.y : row.scale.x, sums[v]);
    }
}

/* Where a lane's first activations of a panel lie; those of 32 k are at this, xor k * 32. */
template <int FORMAT, class shape>
__device__ __forceinline__ uint32_t place_of_codes(uint32_t buffer, uint32_t first_row)
{
    uint32_t lane = threadIdx.x % 32, n = lane / 4, c = lane % 4;
    uint32_t half = n >> 2, at = n * PANEL + (n & 3) * 32;
    if (int8_sum_of<FORMAT>::D == 16) /* the word that meets the lane's of the first dot */
        at += half * 16 + (c % 2 * 2 + c / 2) * 4;
    else
        at += (c / 2 ^ half) * 16 + c % 2 * 8;
    return buffer * shape::CODE_BYTES + first_row * PANEL + at;
}

template <int FORMAT>
__device__ __forceinline__ uint2 load_activations(const uint8_t *memory, uint32_t at,
                                                  const uint32_t far)
{
    if (int8_sum_of<FORMAT>::D == 16)
        return {*reinterpret_cast<const uint32_t *>(memory + at + far),
                *reinterpret_cast<const uint32_t *>(memory + (at ^ 16) + far)};
    return *reinterpret_cast<const uint2 *>(memory + at + far);
}

constexpr int GROUP = 4; /* pieces that are taken at once, or not */

/* GROUP pieces from `first` on; STEPS: of 32 values to a dot. */
template <int FORMAT, class shape, int STEPS>
__device__ __forceinline__ void multiply_group(float (&sums)[shape::MTILES][PIECES][4],
                                               const fragments<FORMAT, shape::MTILES> (&f)[STEPS],
                                               const uint8_t *memory, uint32_t codes_at,
                                               uint32_t terms_at, const int first)
{
    using sum = int8_sum_of<FORMAT>;
#pragma unroll
    for (int j = first; j < first + GROUP; j++) {
        uint2 b[STEPS];
        row_terms<sum::PARTS> row;
#pragma unroll
        for (int s = 0; s < STEPS; s++)
            b[s] = load_activations<FORMAT>(memory, codes_at ^ s * 32, j * 8 * PANEL);
        load_terms<shape>(row, memory + terms_at + j * 8 * shape::TERM_PITCH);
#pragma unroll
        for (int i = 0; i < shape::MTILES; i++) {
            int dots[sum::PARTS][4];
            if (sum::D == 16) {
                multiply_16(dots[0], f[0].a[i][0], f[0].a[i][1], b[0].x);
                multiply_16(dots[sum::PARTS - 1], f[0].a[i][2], f[0].a[i][3], b[0].y);
            } else {
                multiply_32(dots[0], f[0].a[i], b[0].x, b[0].y);
                if (STEPS == 2)
                    multiply_32_more(dots[0], f[STEPS - 1].a[i], b[STEPS - 1].x, b[STEPS - 1].y);
            }
            add_dots<FORMAT>(sums[i][j], dots, f[0], i, row);
        }
    }
}

/* What a warp multiplies: its part of the tile. */
struct warp_part {
    uint32_t group;     /* of weight rows */
    uint32_t first_row; /* of activations, of the tile */
    uint32_t rows;
};

template <class shape> __device__ __forceinline__ warp_part part_of_warp(uint32_t tile_rows)
{
    uint32_t warp = threadIdx.x / 32;
    uint32_t first = warp / shape::WEIGHT_WARPS * WARP_TILE_ROWS;
    return {warp % shape::WEIGHT_WARPS, first, tile_rows > first ? tile_rows - first : 0};
}

/* A panel of the tile; `left`: values from the panel's first on. */
template <int FORMAT, class shape>
__device__ __forceinline__ void multiply_panel(float (&sums)[shape::MTILES][PIECES][4],
                                               const uint8_t *memory, uint32_t weight_bytes,
                                               uint32_t tile_rows, uint32_t panel, uint32_t left,
                                               const int8_books<FORMAT> &books)
{
    constexpr uint32_t STAGE_STEPS = shape::STAGE / 32;
    constexpr int STEPS = int8_sum_of<FORMAT>::D == 64 ? 2 : 1;
    warp_part part = part_of_warp<shape>(tile_rows);
    uint32_t r = threadIdx.x % 32 / 4, c = threadIdx.x % 4, stage = panel / (shape::STAGE / PANEL);
    const uint8_t *row = memory + shape::WEIGHTS + stage % 2 * shape::WEIGHT_BYTES +
                         part.group * shape::GROUP_BYTES + place_of_row<shape>(r) +
                         misplaced_by<shape>(weight_bytes, r, stage * shape::PIECE);
    uint32_t codes_at = place_of_codes<FORMAT, shape>(panel % 2, part.first_row);
    uint32_t terms_at =
        shape::TERMS + panel % 2 * shape::TERM_BYTES + (part.first_row + 2 * c) * shape::TERM_PITCH;
    uint32_t step = panel * STEPS_OF_PANEL % STAGE_STEPS;
    /* Each of the lanes of a row holds the terms of one of its rows. */
    uint32_t own = threadIdx.x % (2 * shape::MTILES);
    const int8_scales<FORMAT> scales(row + own * shape::EIGHT_ROWS, step);
    if (part.rows == 0)
        return;
#pragma unroll 1
    for (uint32_t k = 0; k < STEPS_OF_PANEL; k += STEPS) {
        fragments<FORMAT, shape::MTILES> f[STEPS];
        if (shape::VALUES < 256 && k * 32 >= left)
            break;
        int8_terms<int8_sum_of<FORMAT>::PARTS> terms = scales.of(k);
#pragma unroll
        for (int s = 0; s < STEPS; s++)
            decode_step<FORMAT, shape>(f[s], row, step + k + s, terms, books);
        multiply_group<FORMAT, shape, STEPS>(sums, f, memory, codes_at ^ k * 32, terms_at, 0);
        if (part.rows > 8 * GROUP)
            multiply_group<FORMAT, shape, STEPS>(sums, f, memory, codes_at ^ k * 32, terms_at,
                                                 GROUP);
        terms_at += STEPS * shape::STEP_BYTES;
    }
}

/* The sums of a tile; weights are copied a stage ahead, activations a panel. */
template <int FORMAT, class shape>
__device__ __forceinline__ void multiply_tile(uint32_t inputs, const inline_tile &tile,
                                              uint8_t *memory, const int8_books<FORMAT> &books,
                                              float (&sums)[shape::MTILES][PIECES][4])
{
    constexpr uint32_t HALVES = shape::STAGE / PANEL;
    copy_rows<shape>(find_rows<shape>(tile, 0, inputs), 0, memory);
    copy_weights<shape>(find_weights<shape>(tile, 0), memory);
    copy_async_commit();
    for (uint32_t panel = 0; panel * PANEL < inputs; panel++) {
        uint32_t left = inputs - panel * PANEL, stage = panel / HALVES, half = panel % HALVES;
        row_copies rows = find_rows<shape>(tile, (panel + 1) * PANEL, left - PANEL);
        weight_copies weights = find_weights<shape>(tile, stage + 1);
        uint32_t weight_bytes = weights.weight_bytes, tile_rows = rows.rows;
        if (HALVES == 2 && half)
            copy_async_wait<1>();
        else
            copy_async_wait<0>();
        convert_terms<FORMAT, shape>(panel % 2, memory);
        __syncthreads();
        if (left > PANEL)
            copy_rows<shape>(rows, (panel + 1) % 2, memory);
        if (HALVES == 2)
            copy_async_commit();
        if (half == 0 && left > shape::STAGE)
            copy_weights<shape>(weights, memory);
        if (HALVES == 1 || half == 0)
            copy_async_commit();
        multiply_panel<FORMAT, shape>(sums, memory, weight_bytes, tile_rows, panel, left, books);
    }
}

template <int FORMAT, uint32_t ROW_WARPS>
__global__ void __launch_bounds__(THREADS, 2)
    product_inline(const __grid_constant__ strata__int8_inline_args args, uint32_t columns)
{
    using shape = inline_shape<FORMAT, ROW_WARPS>;
    extern __shared__ __align__(1024) uint8_t memory[];
    __shared__ int8_books<FORMAT> books;
    __shared__ work_list list;
    __shared__ work_tile next;
    __shared__ inline_tile tile;
    books.load();
    build_list<shape::TILE_ROWS>(list, args.product.range);
    for (uint32_t index = blockIdx.x;; index = tile.work.index + gridDim.x) {
        float sums[shape::MTILES][PIECES][4] = {};
        if (threadIdx.x < 32)
            find_work<shape::TILE_ROWS>(list, args.product.range.experts, columns, index, &next);
        __syncthreads();
        if (threadIdx.x == 0)
            place_tile<FORMAT, shape>(args, next, &tile);
        __syncthreads();
        if (tile.work.rows == 0)
            return;
        multiply_tile<FORMAT, shape>(args.product.inputs, tile, memory, books, sums);
        if (args.matrices == 1) {
            store_tile<shape>(args.product, tile.work, sums);
            continue;
        }
        float *gathered = reinterpret_cast<float *>(memory);
        activate_tile<shape>(args.product, tile.work, sums);
        __syncthreads();
        gather_tile<shape>(gathered, sums);
        __syncthreads();
        quantise_tile<shape>(args.product, tile.work, gathered);
    }
}

} /* namespace */

#endif
