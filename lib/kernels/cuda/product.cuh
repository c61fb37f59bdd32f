/* SPDX-License-Identifier: MIT */
/*
 * What the grouped products share, whatever instructions they use: which tile comes next, and what
 * becomes of a tile's sums.
 *
 * A launch's tiles are numbered expert by expert; an expert with no rows has none. Within an expert
 * they go down panels of up to sixteen tiles of rows, then across the outputs, so that tiles which
 * run together share weights and rows in the second-level cache. Every row's sums are formed by the
 * same instructions in the same order, wherever the row lies in a tile.
 */
#ifndef STRATA_KERNELS_CUDA_PRODUCT_CUH
#define STRATA_KERNELS_CUDA_PRODUCT_CUH

#include "kernels/cuda/common.cuh"
#include "kernels/cuda/products.h"

static constexpr uint32_t PANEL_TILES = 16;

struct product_tile {
    uint32_t expert;    /* of the launch */
    uint32_t first_row; /* sorted row */
    uint32_t rows;
    uint32_t column; /* tile across the outputs */
};

/* Tiles of ROWS rows before each expert of the launch. */
template <uint32_t ROWS> struct tile_table {
    uint32_t before[STRATA__PASS_EXPERTS + 1];
};

static __device__ __forceinline__ void rows_of_expert(const strata__cuda_range &range, uint32_t e,
                                                      uint32_t *first, uint32_t *end)
{
    *first = range.first_row;
    *end = range.first_row + range.rows;
    if (range.offsets) {
        *first = max(range.offsets[e], *first);
        *end = min(range.offsets[e + 1], *end);
    }
}

/* All threads of the block; ends with a barrier. */
template <uint32_t ROWS>
static __device__ __forceinline__ void build_tile_table(tile_table<ROWS> &table,
                                                        const strata__cuda_range &range)
{
    for (uint32_t e = threadIdx.x; e < range.experts; e += blockDim.x) {
        uint32_t first, end;
        rows_of_expert(range, e, &first, &end);
        uint32_t rows = end > first ? end - first : 0;
        table.before[e] = (rows + ROWS - 1) / ROWS;
    }
    __syncthreads();
    if (threadIdx.x < 32)
        sums_before(table.before, range.experts, [&](uint32_t e) { return table.before[e]; });
    __syncthreads();
}

/* Tile number `index` of a launch with `columns` tiles across; false past the end. */
template <uint32_t ROWS>
static __device__ __forceinline__ bool find_tile(const tile_table<ROWS> &table,
                                                 const strata__cuda_range &range, uint32_t columns,
                                                 uint32_t index, product_tile *tile)
{
    uint32_t row_tile = index / columns, low = 0, high = range.experts;
    if (row_tile >= table.before[range.experts])
        return false;
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if (table.before[middle] <= row_tile)
            low = middle;
        else
            high = middle;
    }
    uint32_t tiles = table.before[low + 1] - table.before[low];
    uint32_t within = index - table.before[low] * columns;
    uint32_t panel = within / (PANEL_TILES * columns);
    uint32_t panel_tiles = min(PANEL_TILES, tiles - panel * PANEL_TILES);
    within -= panel * PANEL_TILES * columns;
    uint32_t first, end;
    rows_of_expert(range, low, &first, &end);
    tile->expert = low;
    tile->column = within / panel_tiles;
    tile->first_row = first + (panel * PANEL_TILES + within % panel_tiles) * ROWS;
    tile->rows = min(end - tile->first_row, ROWS);
    return true;
}

/* The next tile at or after *index, which moves on by `stride`. Whole warps call it. */
template <uint32_t ROWS>
static __device__ __forceinline__ bool
next_tile(const tile_table<ROWS> &table, const strata__product_args &args, uint32_t columns,
          uint32_t stride, uint32_t *index, product_tile *tile)
{
    while (find_tile(table, args.range, columns, *index, tile)) {
        *index += stride;
        if (!args.fix)
            return true;
        bool scaled = false;
        for (uint32_t r = threadIdx.x % 32; r < tile->rows; r += 32)
            scaled |= args.out_scale[tile->first_row + r - args.range.first_row] > 1.0f;
        if (__any_sync(0xffffffffu, scaled))
            return true;
    }
    return false;
}

/*
 * Whether one of the block's tiles is to be written again: its warps look at all of them at once.
 * All threads of the block; a barrier.
 */
template <uint32_t ROWS>
static __device__ __forceinline__ bool
any_scaled(const tile_table<ROWS> &table, const strata__product_args &args, uint32_t columns)
{
    uint32_t warp = threadIdx.x / 32, warps = blockDim.x / 32;
    uint32_t index = blockIdx.x + warp * gridDim.x;
    product_tile tile;
    return __syncthreads_or(next_tile(table, args, columns, warps * gridDim.x, &index, &tile));
}

/* Row of `in` of a sorted row. */
static __device__ __forceinline__ uint32_t input_row(const strata__product_args &args,
                                                     uint32_t sorted_row)
{
    return args.in_row ? args.in_row[sorted_row] : sorted_row - args.range.first_row;
}

/*
 * A value for an activation row. Without `fix` a value beyond half's range only raises the row's
 * scale; the launch with `fix` that follows writes such rows again with the scale they came to.
 */
static __device__ __forceinline__ float row_value(const strata__product_args &args, uint32_t row,
                                                  float inverse, float value)
{
    if (!args.fix && fabsf(value) > HALF_MAX)
        atomicMax(reinterpret_cast<int *>(args.out_scale + row),
                  __float_as_int(row_scale_of(fabsf(value))));
    return value * inverse;
}

static __device__ __forceinline__ float bias_at(const float *bias, uint64_t index)
{
    return bias ? __ldg(bias + index) : 0.0f;
}

/* One row's two neighbouring outputs. */
static __device__ __forceinline__ void store_pair(const strata__product_args &args, uint32_t row,
                                                  uint32_t column, float y0, float y1,
                                                  float inverse)
{
    bool second = column + 1 < args.end;
    if (args.mode == STRATA__DENSE_STORE_ROWS) {
        uint64_t at = (uint64_t)row * args.outputs + column;
        __half *out = reinterpret_cast<__half *>(args.out_rows) + at;
        y0 = row_value(args, row, inverse, y0);
        out[0] = __float2half_rn(y0);
        if (second)
            out[1] = __float2half_rn(row_value(args, row, inverse, y1));
        return;
    }
    float *out = args.out + (uint64_t)row * args.out_stride + column;
    if (second && args.out_stride % 2 == 0) {
        float2 *pair = reinterpret_cast<float2 *>(out);
        float2 old = {0.0f, 0.0f};
        if (args.mode == STRATA__DENSE_ADD_F32)
            old = *pair;
        *pair =
            args.mode == STRATA__DENSE_ADD_F32 ? float2{old.x + y0, old.y + y1} : float2{y0, y1};
        return;
    }
    out[0] = args.mode == STRATA__DENSE_ADD_F32 ? out[0] + y0 : y0;
    if (second)
        out[1] = args.mode == STRATA__DENSE_ADD_F32 ? out[1] + y1 : y1;
}

/*
 * Rows `row` and `row` + 8 of a tile, which a thread has sums of. Read before the sums are formed,
 * so that the reads take no time of their own.
 */
struct strip_rows {
    uint32_t out_row[2];
    float in_scale[2];
    float factor[2];
    bool valid[2];
};

static __device__ __forceinline__ strip_rows find_strip_rows(const strata__product_args &args,
                                                             const product_tile &tile, uint32_t row)
{
    uint32_t expert = args.range.first_expert + tile.expert;
    float factor = args.alpha * (args.expert_scale ? args.expert_scale[expert] : 1.0f);
    strip_rows rows;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        rows.valid[h] = row + 8 * h < tile.rows;
        uint32_t sorted = tile.first_row + (rows.valid[h] ? row + 8 * h : 0);
        rows.out_row[h] = sorted - args.range.first_row;
        rows.in_scale[h] = args.in_scale ? args.in_scale[input_row(args, sorted)] : 1.0f;
        rows.factor[h] = factor * (args.row_factor ? args.row_factor[rows.out_row[h]] : 1.0f);
    }
    return rows;
}

/*
 * Stores or adds whole columns without a bias: what nearly every tile of most models needs.
 * Neighbouring lanes exchange, so that each has four values of one of two groups of columns and a
 * row's lanes store 64 bytes. Whole warps call it; a lane's row may not exist.
 */
template <int COUNT, bool ADD>
static __device__ __forceinline__ void store_whole_row(float *out, bool valid, float factor,
                                                       int half, const float (&sums)[COUNT][4])
{
    constexpr int BATCH = COUNT < 8 ? COUNT : 8;
    bool odd = threadIdx.x & 1;
#pragma unroll
    for (int first = 0; first < COUNT; first += BATCH) {
        float4 y[BATCH / 2], old[BATCH / 2];
#pragma unroll
        for (int j = 0; j < BATCH; j += 2) {
            const float *a = &sums[first + j][2 * half], *b = &sums[first + j + 1][2 * half];
            float s0 = __shfl_xor_sync(0xffffffffu, odd ? a[0] : b[0], 1);
            float s1 = __shfl_xor_sync(0xffffffffu, odd ? a[1] : b[1], 1);
            y[j / 2] = odd ? float4{s0, s1, b[0], b[1]} : float4{a[0], a[1], s0, s1};
        }
#pragma unroll
        for (int j = 0; j < BATCH / 2; j++)
            old[j] = ADD && valid ? *reinterpret_cast<const float4 *>(out + 8 * first + 16 * j)
                                  : float4{0, 0, 0, 0};
#pragma unroll
        for (int j = 0; j < BATCH / 2; j++) {
            float4 v = {y[j].x * factor, y[j].y * factor, y[j].z * factor, y[j].w * factor};
            if (ADD)
                v = {old[j].x + v.x, old[j].y + v.y, old[j].z + v.z, old[j].w + v.w};
            if (valid)
                *reinterpret_cast<float4 *>(out + 8 * first + 16 * j) = v;
        }
    }
}

/*
 * The sums of a strip: two rows, image columns `column` + 8 j + 2 q + {0, 1} for lane = 4 r + q of
 * the warp, as sums[j][0, 1] and sums[j][2, 3]. Whole warps call it.
 */
template <int COUNT>
static __device__ __forceinline__ void store_strip(const strata__product_args &args,
                                                   const product_tile &tile, const strip_rows &rows,
                                                   uint32_t column, const float (&sums)[COUNT][4])
{
    uint32_t q = threadIdx.x % 4, expert = args.range.first_expert + tile.expert;
    /* 16-byte stores need an aligned row. */
    bool whole = !args.bias && args.mode != STRATA__DENSE_STORE_ROWS && args.out_stride % 4 == 0 &&
                 column + 8 * COUNT <= args.end && reinterpret_cast<uintptr_t>(args.out) % 16 == 0;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        uint32_t out_row = rows.out_row[h];
        float in_scale = rows.in_scale[h], factor = rows.factor[h];
        if (!whole && !rows.valid[h])
            continue;
        if (whole) {
            float *out =
                args.out + (uint64_t)out_row * args.out_stride + column + 8 * (q & 1) + 2 * (q & 2);
            if (args.mode == STRATA__DENSE_ADD_F32)
                store_whole_row<COUNT, true>(out, rows.valid[h], in_scale * factor, h, sums);
            else
                store_whole_row<COUNT, false>(out, rows.valid[h], in_scale * factor, h, sums);
            continue;
        }
        float inverse = args.fix ? 1.0f / args.out_scale[out_row] : 1.0f;
#pragma unroll
        for (int j = 0; j < COUNT; j++) {
            uint32_t c = column + 8 * j + 2 * q;
            if (c >= args.end)
                continue;
            uint64_t bias = (uint64_t)expert * args.outputs + c;
            float b0 = bias_at(args.bias, bias);
            float b1 = c + 1 < args.end ? bias_at(args.bias, bias + 1) : 0.0f;
            store_pair(args, out_row, c, (sums[j][2 * h] * in_scale + b0) * factor,
                       (sums[j][2 * h + 1] * in_scale + b1) * factor, inverse);
        }
    }
}

/* Two neighbouring hidden values from the sums of gate and up. */
static __device__ __forceinline__ uint32_t hidden_pair(const strata__product_args &args,
                                                       uint32_t row, uint64_t bias, float in_scale,
                                                       float inverse, const float *gate,
                                                       const float *up)
{
    float v0 = activate(args.activation, gate[0] * in_scale + bias_at(args.bias, bias),
                        up[0] * in_scale + bias_at(args.up_bias, bias));
    float v1 = activate(args.activation, gate[1] * in_scale + bias_at(args.bias, bias + 1),
                        up[1] * in_scale + bias_at(args.up_bias, bias + 1));
    return pack_halves(row_value(args, row, inverse, v0), row_value(args, row, inverse, v1));
}

/* Neighbouring lanes exchange, so that each has four values of one of two groups of outputs. */
static __device__ __forceinline__ uint2 exchange_pairs(uint32_t first, uint32_t second,
                                                       uint32_t odd)
{
    uint32_t other = __shfl_xor_sync(0xffffffffu, odd ? first : second, 1);
    return odd ? uint2{other, second} : uint2{first, other};
}

/* SwiGLU of whole columns without biases; the scale of a row beyond half's range is raised once. */
template <int COUNT>
static __device__ __forceinline__ void
store_whole_hidden(const strata__product_args &args, uint32_t out_row, uint32_t column,
                   float in_scale, bool valid, int half, const float (&sums)[COUNT][4])
{
    uint32_t q = threadIdx.x % 4, odd = q & 1;
    uint16_t *out =
        args.out_rows + (uint64_t)out_row * args.outputs + column / 2 + 8 * odd + 2 * (q & 2);
    float largest = 0.0f;
#pragma unroll
    for (int j = 0; j < COUNT; j += 4) {
        uint32_t halves[2];
#pragma unroll
        for (int p = 0; p < 2; p++) {
            const float *gate = &sums[j + 2 * p][2 * half], *up = &sums[j + 2 * p + 1][2 * half];
            float v0 = activate(STRATA__ACT_SWIGLU, gate[0] * in_scale, up[0] * in_scale);
            float v1 = activate(STRATA__ACT_SWIGLU, gate[1] * in_scale, up[1] * in_scale);
            largest = fmaxf(largest, fmaxf(fabsf(v0), fabsf(v1)));
            halves[p] = pack_halves(v0, v1);
        }
        uint2 four = exchange_pairs(halves[0], halves[1], odd);
        if (valid)
            *reinterpret_cast<uint2 *>(out + 4 * j) = four;
    }
    if (valid && largest > HALF_MAX)
        atomicMax(reinterpret_cast<int *>(args.out_scale + out_row),
                  __float_as_int(row_scale_of(largest)));
}

/*
 * As above for a paired image: sums[j] with even j are of gate, those after of up. Neighbouring
 * lanes exchange what they have so that each stores eight bytes and a row's lanes 32.
 */
template <int COUNT>
static __device__ __forceinline__ void
store_paired_strip(const strata__product_args &args, const product_tile &tile,
                   const strip_rows &rows, uint32_t column, const float (&sums)[COUNT][4])
{
    static_assert(COUNT % 4 == 0, "two groups of outputs are exchanged");
    uint32_t q = threadIdx.x % 4, odd = q & 1, expert = args.range.first_expert + tile.expert;
    bool whole = !args.bias && !args.up_bias && !args.fix &&
                 args.activation == STRATA__ACT_SWIGLU && (column + 8 * COUNT) / 2 <= args.end;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        bool valid = rows.valid[h];
        uint32_t out_row = rows.out_row[h];
        float in_scale = rows.in_scale[h];
        if (whole) {
            store_whole_hidden(args, out_row, column, in_scale, valid, h, sums);
            continue;
        }
        float inverse = args.fix ? 1.0f / args.out_scale[out_row] : 1.0f;
#pragma unroll
        for (int j = 0; j < COUNT; j += 4) {
            uint32_t first = (column + 8 * j) / 2, halves[2];
#pragma unroll
            for (int p = 0; p < 2; p++) {
                uint32_t c = first + 8 * p + 2 * q;
                halves[p] = 0;
                if (valid && c < args.end)
                    halves[p] =
                        hidden_pair(args, out_row, (uint64_t)expert * args.outputs + c, in_scale,
                                    inverse, &sums[j + 2 * p][2 * h], &sums[j + 2 * p + 1][2 * h]);
            }
            uint2 four = exchange_pairs(halves[0], halves[1], odd);
            uint32_t c = first + 8 * odd + 2 * (q & 2);
            if (valid && c < args.end)
                *reinterpret_cast<uint2 *>(args.out_rows + (uint64_t)out_row * args.outputs + c) =
                    four;
        }
    }
}

/* Tiles of `tile_rows` rows that a launch may have. */
static inline uint64_t most_tiles(const strata__product_args *args, uint32_t tile_rows,
                                  uint32_t columns)
{
    uint64_t row_tiles = args->range.offsets ? args->range.rows / tile_rows + args->range.experts
                                             : (args->range.rows + tile_rows - 1) / tile_rows;
    return row_tiles * columns;
}

#endif
