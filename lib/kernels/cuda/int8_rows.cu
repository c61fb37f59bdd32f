/* SPDX-License-Identifier: MIT */
/*
 * Rows to quantised rows. A thread has four values, so eight or sixteen threads share a scale and
 * four a sum.
 */
#include "kernels/cuda/int8.cuh"

namespace
{

constexpr uint32_t THREADS = 256;

__device__ __forceinline__ float4 half_values(const strata__int8_rows_args &args, uint32_t row,
                                              uint32_t at)
{
    uint32_t from = args.in_row[row];
    uint2 four = __ldg(reinterpret_cast<const uint2 *>(args.in + (uint64_t)from * args.width + at));
    float scale = args.in_scale ? args.in_scale[from] : 1.0f;
    float2 low = unpack_halves(four.x), high = unpack_halves(four.y);
    return {__fmul_rn(low.x, scale), __fmul_rn(low.y, scale), __fmul_rn(high.x, scale),
            __fmul_rn(high.y, scale)};
}

__device__ __forceinline__ float4 activated(const strata__int8_rows_args &args, uint32_t row,
                                            uint32_t at)
{
    const float *gate = args.gate_up + (uint64_t)row * 2 * args.width + at;
    float4 g = *reinterpret_cast<const float4 *>(gate);
    float4 u = *reinterpret_cast<const float4 *>(gate + args.width);
    return {activate_exact(args.activation, g.x, u.x), activate_exact(args.activation, g.y, u.y),
            activate_exact(args.activation, g.z, u.z), activate_exact(args.activation, g.w, u.w)};
}

template <bool ACTIVATE>
__global__ void __launch_bounds__(THREADS)
    quantise(const __grid_constant__ strata__int8_rows_args args)
{
    uint32_t row = blockIdx.x;
    /* Whole warps stay together for the exchanges; a warp's width is two groups of 64. */
    uint32_t end = (args.width + 127) / 128 * 128;
    for (uint32_t at = threadIdx.x * 4; at < end; at += THREADS * 4) {
        bool inside = at < args.width;
        float4 v = {0.0f, 0.0f, 0.0f, 0.0f};
        if (inside)
            v = ACTIVATE ? activated(args, row, at) : half_values(args, row, at);
        quantise_four({v.x, v.y, v.z, v.w}, args.group, args.out, row, at, args.width, inside);
    }
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
    if (args->gate_up)
        quantise<true><<<args->rows, THREADS, 0, stream>>>(*args);
    else
        quantise<false><<<args->rows, THREADS, 0, stream>>>(*args);
    return strata__cuda_status(cudaGetLastError(), "quantising rows");
}
