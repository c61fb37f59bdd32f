/* SPDX-License-Identifier: MIT */
/*
 * What becomes of the sums of an int8 product without an image: they are stored, or, of a paired
 * tile, activated and quantised.
 *
 * Of 16 weight rows of its warp a lane (r, c) has rows r and r + 8, and of each piece activation
 * rows 2 c and 2 c + 1. Paired, rows r + 8 are the up rows of the gate rows r.
 */
#ifndef STRATA_KERNELS_CUDA_INT8_INLINE_OUT_CUH
#define STRATA_KERNELS_CUDA_INT8_INLINE_OUT_CUH

#include "kernels/cuda/int8_work.cuh"

namespace
{

constexpr uint32_t WARPS = 8, THREADS = WARPS * 32;
constexpr uint32_t PIECES = 8; /* of a warp: eight activation rows each */
constexpr uint32_t WARP_TILE_ROWS = 8 * PIECES;

/* Where a lane's sums belong in a tile: WEIGHT_WARPS warps share activation rows. */
template <class shape> struct lane_place {
    uint32_t r = threadIdx.x % 32 / 4, c = threadIdx.x % 4;
    uint32_t weight_row = threadIdx.x / 32 % shape::WEIGHT_WARPS * shape::WARP_ROWS;
    uint32_t warp_row = threadIdx.x / 32 / shape::WEIGHT_WARPS * WARP_TILE_ROWS;
};

/* WHOLE: all of the lane's rows and outputs exist, and sums are stored as they are. */
template <class shape, bool WHOLE>
__device__ __forceinline__ void store_sums(const strata__int8_product_args &args, uint32_t expert,
                                           uint32_t rows, uint32_t first, float *out,
                                           const float (&sums)[shape::MTILES][PIECES][4])
{
    constexpr int OUTPUTS = 2 * shape::MTILES;
    float factor = args.expert_scale ? args.expert_scale[expert] : 1.0f, bias[OUTPUTS];
#pragma unroll
    for (int p = 0; p < OUTPUTS; p++) {
        bias[p] = NO_BIAS;
        if (!WHOLE && args.bias && first + 8 * p < args.outputs)
            bias[p] = __ldg(args.bias + (uint64_t)expert * args.outputs + first + 8 * p);
    }
#pragma unroll
    for (int n = 0; n < 2 * (int)PIECES; n++) {
        uint32_t row = 8 * (n / 2) + n % 2;
        float *own = out + row * args.out_stride;
#pragma unroll
        for (int p = 0; p < OUTPUTS; p++) {
            float sum = sums[p / 2][n / 2][p % 2 * 2 + n % 2];
            if (WHOLE)
                own[8 * p] = sum;
            else if (row < rows && first + 8 * p < args.outputs)
                own[8 * p] = __fmul_rn(__fadd_rn(sum, bias[p]), factor);
        }
    }
}

template <class shape>
__device__ __forceinline__ void store_tile(const strata__int8_product_args &args,
                                           const work_tile &tile,
                                           const float (&sums)[shape::MTILES][PIECES][4])
{
    const lane_place<shape> place;
    uint32_t expert = args.range.first_expert + tile.expert;
    uint32_t first = tile.column * shape::ROWS + place.weight_row;
    uint32_t first_row = place.warp_row + 2 * place.c,
             last_row = place.warp_row + WARP_TILE_ROWS - 1;
    float *out =
        args.out + (uint64_t)(tile.first_row + first_row) * args.out_stride + first + place.r;
    uint32_t rows = tile.rows > first_row ? tile.rows - first_row : 0;
    if (last_row < tile.rows && first + shape::WARP_ROWS <= args.outputs && !args.bias &&
        !args.expert_scale)
        store_sums<shape, true>(args, expert, rows, first + place.r, out, sums);
    else
        store_sums<shape, false>(args, expert, rows, first + place.r, out, sums);
}

/* Biases of the lane's gates (FIRST 0) or ups (FIRST 2) to their sums; `bias` is its first's. */
template <class shape, int FIRST>
__device__ __forceinline__ void add_bias(float (&sums)[shape::MTILES][PIECES][4], const float *bias)
{
#pragma unroll
    for (int i = 0; i < shape::MTILES; i++) {
        float own = __ldg(bias + 8 * i);
#pragma unroll
        for (int j = 0; j < (int)PIECES; j++) {
            sums[i][j][FIRST] = __fadd_rn(sums[i][j][FIRST], own);
            sums[i][j][FIRST + 1] = __fadd_rn(sums[i][j][FIRST + 1], own);
        }
    }
}

/* Hidden values of a piece in place of its gates, or no change; see activate_safely. */
template <uint32_t ACTIVATION, class shape>
__device__ __forceinline__ bool activate_piece(float (&sums)[shape::MTILES][PIECES][4], const int j)
{
    constexpr int VALUES = 2 * shape::MTILES;
    float gate[VALUES], up[VALUES];
#pragma unroll
    for (int n = 0; n < VALUES; n++) {
        gate[n] = sums[n / 2][j][n % 2];
        up[n] = sums[n / 2][j][n % 2 + 2];
    }
    bool safe = activate_safely<ACTIVATION>(gate, up);
#pragma unroll
    for (int n = 0; n < VALUES; n++)
        sums[n / 2][j][n % 2] = gate[n];
    return safe;
}

/* The pieces of `rows` rows, of which those that are left to activate_again are answered. */
template <uint32_t ACTIVATION, class shape>
__device__ __forceinline__ uint32_t activate_pieces(float (&sums)[shape::MTILES][PIECES][4],
                                                    uint32_t rows)
{
    uint32_t left = 0;
#pragma unroll
    for (int j = 0; j < (int)PIECES; j++)
        if (8 * (uint32_t)j < rows && !activate_piece<ACTIVATION, shape>(sums, j))
            left |= 1u << j;
    return left;
}

/* Any values, a piece at a time: seldom, so by little code. */
template <class shape>
__device__ __forceinline__ void activate_again(float (&sums)[shape::MTILES][PIECES][4],
                                               uint32_t activation, uint32_t pieces)
{
#pragma unroll 1
    for (; pieces; pieces &= pieces - 1) {
        int piece = __ffs(pieces) - 1;
        float own[shape::MTILES][4] = {};
#pragma unroll
        for (int n = 0; n < (int)PIECES * shape::MTILES * 4; n++)
            if (n / 4 % (int)PIECES == piece)
                own[n / 4 / PIECES][n % 4] = sums[n / 4 / PIECES][n / 4 % PIECES][n % 4];
#pragma unroll
        for (int n = 0; n < shape::MTILES * 2; n++)
            own[n / 2][n % 2] =
                activate_exact(activation, own[n / 2][n % 2], own[n / 2][n % 2 + 2]);
#pragma unroll
        for (int n = 0; n < (int)PIECES * shape::MTILES * 2; n++)
            if (n / 2 % (int)PIECES == piece)
                sums[n / 2 / PIECES][n / 2 % PIECES][n % 2] = own[n / 2 / PIECES][n % 2];
    }
}

/* Hidden values of a lane in place of its gates. Outputs of a warp are inside all or none. */
template <class shape>
__device__ __forceinline__ void activate_tile(const strata__int8_product_args &args,
                                              const work_tile &tile,
                                              float (&sums)[shape::MTILES][PIECES][4])
{
    const lane_place<shape> place;
    uint32_t output = tile.column * shape::OUTPUTS + place.weight_row / 2, left;
    if (place.warp_row >= tile.rows || output >= args.outputs)
        return;
    uint32_t rows = tile.rows - place.warp_row;
    uint64_t bias = (uint64_t)(args.range.first_expert + tile.expert) * args.outputs + output;
    if (args.bias)
        add_bias<shape, 0>(sums, args.bias + bias + place.r);
    if (args.up_bias)
        add_bias<shape, 2>(sums, args.up_bias + bias + place.r);
    if (args.activation == STRATA__ACT_SWIGLU)
        left = activate_pieces<STRATA__ACT_SWIGLU, shape>(sums, rows);
    else if (args.activation == STRATA__ACT_GEGLU_TANH)
        left = activate_pieces<STRATA__ACT_GEGLU_TANH, shape>(sums, rows);
    else
        left = activate_pieces<STRATA__ACT_SWIGLU_CLAMPED, shape>(sums, rows);
    if (left)
        activate_again<shape>(sums, args.activation, left);
}

/* Hidden values to shared memory, [row][output]. */
template <class shape>
__device__ __forceinline__ void gather_tile(float *gathered,
                                            const float (&sums)[shape::MTILES][PIECES][4])
{
    static_assert(shape::GATHER_PITCH % 16 == 4, "eight outputs of four row pairs: 32 banks");
    const lane_place<shape> place;
    float *to = gathered + (place.warp_row + 2 * place.c) * shape::GATHER_PITCH +
                place.weight_row / 2 + place.r;
#pragma unroll
    for (int i = 0; i < shape::MTILES; i++)
#pragma unroll
        for (int j = 0; j < (int)PIECES; j++)
#pragma unroll
            for (int v = 0; v < 2; v++)
                to[(8 * j + v) * shape::GATHER_PITCH + 8 * i] = sums[i][j][v];
}

/*
 * Gathered values, quantised: of eight rows by 64 outputs at once a lane has sixteen of a row.
 * Lanes side by side have rows one below the other, which lie in other banks.
 */
template <class shape>
__device__ __forceinline__ void quantise_tile(const strata__int8_product_args &args,
                                              const work_tile &tile, const float *gathered)
{
    constexpr uint32_t COLUMNS = shape::OUTPUTS / 64;
    static_assert(shape::OUTPUTS % 64 == 0 && WARPS % COLUMNS == 0, "groups of 64 are whole");
    uint32_t warp = threadIdx.x / 32, row = warp / COLUMNS * 8 + threadIdx.x % 8;
    uint32_t column = warp % COLUMNS * 64 + threadIdx.x % 32 / 8 * 16;
    uint32_t output = tile.column * shape::OUTPUTS + column;
    const uint32_t rows = tile.rows, first_row = tile.first_row;
    for (; (row & ~7u) < rows; row += WARPS / COLUMNS * 8) {
        float v[16];
#pragma unroll
        for (int i = 0; i < 16; i += 4)
            *reinterpret_cast<float4 *>(v + i) = *reinterpret_cast<const float4 *>(
                gathered + row * shape::GATHER_PITCH + column + i);
        quantise_sixteen<8>(v, args.h_group, args.h, first_row + row, output, args.outputs,
                            output < args.outputs && row < rows);
    }
}

} /* namespace */

#endif
