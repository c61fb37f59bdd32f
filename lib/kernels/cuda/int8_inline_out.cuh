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
constexpr uint32_t PIECES = 8;                     /* of a warp: eight activation rows each */
constexpr uint32_t GATHERED_ROWS = 8 * PIECES / 2; /* rows of h that are quantised at once */

template <class shape>
__device__ __forceinline__ void store_tile(const strata__int8_product_args &args,
                                           const work_tile &tile,
                                           const float (&sums)[shape::MTILES][PIECES][4])
{
    uint32_t expert = args.range.first_expert + tile.expert;
    uint32_t warp = threadIdx.x / 32, r = threadIdx.x % 32 / 4, c = threadIdx.x % 4;
    uint32_t first = tile.column * shape::ROWS + warp % shape::WEIGHT_WARPS * shape::WARP_ROWS + r;
    uint32_t first_row = warp / shape::WEIGHT_WARPS * 64;
    float factor = args.expert_scale ? args.expert_scale[expert] : 1.0f;
#pragma unroll
    for (int p = 0; p < 2 * shape::MTILES; p++) {
        uint32_t output = first + 8 * p;
        if (output >= args.outputs)
            continue;
        float bias = args.bias ? __ldg(args.bias + (uint64_t)expert * args.outputs + output) : 0.0f;
        float *out = args.out + (uint64_t)tile.first_row * args.out_stride + output;
#pragma unroll
        for (int j = 0; j < (int)PIECES; j++)
#pragma unroll
            for (int v = 0; v < 2; v++) {
                uint32_t row = first_row + 8 * j + 2 * c + v;
                if (row < tile.rows)
                    out[(uint64_t)row * args.out_stride] =
                        __fmul_rn(__fadd_rn(sums[p / 2][j][p % 2 * 2 + v], bias), factor);
            }
    }
}

/* Sums of half the activation rows to shared memory, [row][gates, then ups]. */
template <class shape>
__device__ __forceinline__ void
gather_half(float *gathered, const float (&sums)[shape::MTILES][PIECES][4], const int first)
{
    uint32_t warp = threadIdx.x / 32, r = threadIdx.x % 32 / 4, c = threadIdx.x % 4;
    float *to = gathered + (warp / shape::WEIGHT_WARPS * 32 + 2 * c) * shape::GATHER_PITCH +
                warp % shape::WEIGHT_WARPS * shape::WARP_ROWS / 2 + r;
#pragma unroll
    for (int i = 0; i < shape::MTILES; i++)
#pragma unroll
        for (int j = 0; j < (int)PIECES / 2; j++)
#pragma unroll
            for (int v = 0; v < 4; v++)
                to[(8 * j + v % 2) * shape::GATHER_PITCH + v / 2 * shape::OUTPUTS + 8 * i] =
                    sums[i][first + j][v];
}

template <uint32_t ACTIVATION>
__device__ __forceinline__ void activate_four(float (&gate)[4], const float (&up)[4])
{
#pragma unroll
    for (int v = 0; v < 4; v++)
        gate[v] = activate_exact(ACTIVATION, gate[v], up[v]);
}

__device__ __forceinline__ void add_biases(float (&sums)[4], const float *bias)
{
#pragma unroll
    for (int v = 0; v < 4; v++)
        sums[v] = with_bias(sums[v], bias, v);
}

/* Hidden values of the gathered sums, quantised: four a thread. `first`: row of the tile. */
template <class shape>
__device__ __forceinline__ void quantise_half(const strata__int8_product_args &args,
                                              const work_tile &tile, const float *gathered,
                                              uint32_t first)
{
    constexpr uint32_t QUADS = shape::OUTPUTS / 4;
    uint32_t column = threadIdx.x % QUADS * 4, output = tile.column * shape::OUTPUTS + column;
    uint64_t bias = (uint64_t)(args.range.first_expert + tile.expert) * args.outputs + output;
    bool inside = output < args.outputs;
    uint32_t rows = shape::ROW_WARPS * 32;
    for (uint32_t own = threadIdx.x / QUADS; (own & ~1u) < rows; own += THREADS / QUADS) {
        uint32_t row = own + own / 32 * 32;
        float gate[4], up[4];
        const float *from = gathered + own * shape::GATHER_PITCH + column;
        *reinterpret_cast<float4 *>(gate) = *reinterpret_cast<const float4 *>(from);
        *reinterpret_cast<float4 *>(up) = *reinterpret_cast<const float4 *>(from + shape::OUTPUTS);
        if (args.bias && inside)
            add_biases(gate, args.bias + bias);
        if (args.up_bias && inside)
            add_biases(up, args.up_bias + bias);
        if (args.activation == STRATA__ACT_SWIGLU)
            activate_four<STRATA__ACT_SWIGLU>(gate, up);
        else if (args.activation == STRATA__ACT_GEGLU_TANH)
            activate_four<STRATA__ACT_GEGLU_TANH>(gate, up);
        else
            activate_four<STRATA__ACT_SWIGLU_CLAMPED>(gate, up);
#pragma unroll
        for (int v = 0; v < 4; v++)
            gate[v] = inside ? gate[v] : 0.0f;
        quantise_four(gate, args.h_group, args.h, (uint64_t)tile.first_row + first + row, output,
                      args.outputs, inside && first + row < tile.rows);
    }
}

} /* namespace */

#endif
