/* SPDX-License-Identifier: MIT */
/*
 * Rows to quantised rows. A warp has up to 512 values of a row, a lane sixteen, so that two or four
 * lanes share a scale.
 */
#include "kernels/cuda/int8.cuh"

namespace
{

constexpr uint32_t THREADS = 256, LANE_VALUES = 16, WARP_VALUES = 32 * LANE_VALUES;

__device__ __forceinline__ void load_halves(const strata__int8_rows_args &args, uint32_t row,
                                            uint32_t at, float (&v)[LANE_VALUES])
{
    uint32_t from = args.in_row[row];
    const uint16_t *in = args.in + (uint64_t)from * args.width + at;
    float scale = args.in_scale ? args.in_scale[from] : 1.0f;
    uint4 words[2] = {__ldg(reinterpret_cast<const uint4 *>(in)),
                      __ldg(reinterpret_cast<const uint4 *>(in) + 1)};
#pragma unroll
    for (uint32_t i = 0; i < LANE_VALUES; i += 2) {
        float2 two = unpack_halves(reinterpret_cast<const uint32_t *>(words)[i / 2]);
        v[i] = __fmul_rn(two.x, scale);
        v[i + 1] = __fmul_rn(two.y, scale);
    }
}

__device__ __forceinline__ void load_activated(const strata__int8_rows_args &args, uint32_t row,
                                               uint32_t at, float (&v)[LANE_VALUES])
{
    const float *from = args.gate_up + (uint64_t)row * 2 * args.width + at;
#pragma unroll
    for (uint32_t i = 0; i < LANE_VALUES; i += 4) {
        float gate[4], up[4];
        *reinterpret_cast<float4 *>(gate) = *reinterpret_cast<const float4 *>(from + i);
        *reinterpret_cast<float4 *>(up) = *reinterpret_cast<const float4 *>(from + args.width + i);
        activate_gates(args.activation, gate, up);
#pragma unroll
        for (uint32_t n = 0; n < 4; n++)
            v[i + n] = gate[n];
    }
}

template <bool ACTIVATE>
__global__ void __launch_bounds__(THREADS)
    quantise(const __grid_constant__ strata__int8_rows_args args)
{
    uint32_t row_warps = (args.width + WARP_VALUES - 1) / WARP_VALUES;
    uint32_t warp = blockIdx.x * (THREADS / 32) + threadIdx.x / 32, row = warp / row_warps;
    uint32_t at = warp % row_warps * WARP_VALUES + threadIdx.x % 32 * LANE_VALUES;
    bool inside = row < args.rows && at < args.width;
    float v[LANE_VALUES] = {};
    if (inside && ACTIVATE)
        load_activated(args, row, at, v);
    else if (inside)
        load_halves(args, row, at, v);
    quantise_sixteen<1>(v, args.group, args.out, row, at, args.width, inside);
}

} /* namespace */

strata_status strata__cuda_int8_load(strata__cuda_state *state)
{
    const void *kernels[] = {reinterpret_cast<const void *>(quantise<false>),
                             reinterpret_cast<const void *>(quantise<true>)};
    strata_status status = strata__cuda_load_kernels(kernels, 2, 0);
    if (status == STRATA_OK)
        status = strata__cuda_int8_decode_load();
    if (status == STRATA_OK)
        status = strata__cuda_int8_product_load(state);
    return status == STRATA_OK ? strata__cuda_int8_inline_load(state) : status;
}

strata_status strata__cuda_int8_rows(cudaStream_t stream, const strata__int8_rows_args *args)
{
    uint32_t row_warps = (args->width + WARP_VALUES - 1) / WARP_VALUES, block = THREADS / 32;
    uint32_t blocks = (uint32_t)(((uint64_t)args->rows * row_warps + block - 1) / block);
    if (args->gate_up)
        quantise<true><<<blocks, THREADS, 0, stream>>>(*args);
    else
        quantise<false><<<blocks, THREADS, 0, stream>>>(*args);
    return strata__cuda_status(cudaGetLastError(), "quantising rows");
}
