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
    uint32_t row = blockIdx.x, codes = codes_bytes(args.width), scales = scales_bytes(args.width);
    uint8_t *out = args.out + (uint64_t)row * (codes + 2 * scales);
    /* Whole warps stay together for the exchanges; a warp's width is two groups of 64. */
    uint32_t end = (args.width + 127) / 128 * 128;
    for (uint32_t at = threadIdx.x * 4; at < end; at += THREADS * 4) {
        bool inside = at < args.width;
        float4 v = {0.0f, 0.0f, 0.0f, 0.0f};
        if (inside)
            v = ACTIVATE ? activated(args, row, at) : half_values(args, row, at);
        uint32_t most = max(max(magnitude_bits(v.x), magnitude_bits(v.y)),
                            max(magnitude_bits(v.z), magnitude_bits(v.w)));
        for (uint32_t lanes = 1; lanes < args.group / 4; lanes *= 2)
            most = max(most, __shfl_xor_sync(0xffffffffu, most, lanes));
        float inverse, scale = group_scale(most, &inverse);
        int a = quantised(v.x, inverse), b = quantised(v.y, inverse);
        int c = quantised(v.z, inverse), d = quantised(v.w, inverse), sum = a + b + c + d;
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        if (!inside)
            continue;
        *reinterpret_cast<uint32_t *>(out + at) = pack_codes(a, b, c, d);
        if (at % STRATA__INT8_BLOCK == 0)
            *reinterpret_cast<float *>(out + codes + at / STRATA__INT8_BLOCK * 4) = scale;
        if (at % STRATA__INT8_HALF == 0)
            *reinterpret_cast<int16_t *>(out + codes + scales + at / STRATA__INT8_HALF * 2) =
                (int16_t)sum;
    }
}

} /* namespace */

strata_status strata__cuda_int8_load(void)
{
    const void *kernels[] = {reinterpret_cast<const void *>(quantise<false>),
                             reinterpret_cast<const void *>(quantise<true>)};
    strata_status status = strata__cuda_load_kernels(kernels, 2, 0);
    if (status == STRATA_OK)
        status = strata__cuda_int8_decode_load();
    return status == STRATA_OK ? strata__cuda_int8_product_load() : status;
}

strata_status strata__cuda_int8_rows(cudaStream_t stream, const strata__int8_rows_args *args)
{
    if (args->gate_up)
        quantise<true><<<args->rows, THREADS, 0, stream>>>(*args);
    else
        quantise<false><<<args->rows, THREADS, 0, stream>>>(*args);
    return strata__cuda_status(cudaGetLastError(), "quantising rows");
}
