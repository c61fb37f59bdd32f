/* SPDX-License-Identifier: MIT */
/* Rows of any format to float32: the embedding, and router weights that are not float32. */
#include "kernels/cuda/codebooks.cuh"
#include "kernels/cuda/decode.cuh"
#include "kernels/cuda/products.h"

namespace
{

constexpr uint32_t THREADS = 256;

/* Grid: rows. */
template <int FORMAT>
__global__ void __launch_bounds__(THREADS)
    float_rows(const __grid_constant__ strata__float_rows_args args)
{
    constexpr uint32_t PARTS = block_shape<FORMAT>::VALUES / 8;
    uint64_t row_bytes =
        (uint64_t)(args.inputs / block_shape<FORMAT>::VALUES) * block_shape<FORMAT>::BYTES;
    uint64_t row = args.index ? (uint64_t)args.index[blockIdx.x] : blockIdx.x;
    const uint8_t *blocks = static_cast<const uint8_t *>(args.table) + row * row_bytes;
    float *out = args.out + (uint64_t)blockIdx.x * args.inputs;
    for (uint32_t chunk = threadIdx.x; chunk < args.inputs / 8; chunk += THREADS) {
        float v[8];
        decode8<FORMAT>(blocks + (uint64_t)(chunk / PARTS) * block_shape<FORMAT>::BYTES,
                        chunk % PARTS, codebook<FORMAT>::source(), v);
        float4 *to = reinterpret_cast<float4 *>(out + 8 * chunk);
        to[0] = {v[0] * args.scale, v[1] * args.scale, v[2] * args.scale, v[3] * args.scale};
        to[1] = {v[4] * args.scale, v[5] * args.scale, v[6] * args.scale, v[7] * args.scale};
    }
}

typedef void (*float_rows_kernel)(strata__float_rows_args);

float_rows_kernel kernel_of(uint32_t format)
{
    switch (format) {
#define STRATA__CASE(f)                                                                            \
    case f:                                                                                        \
        return float_rows<f>;
        STRATA__FOR_EACH_FORMAT(STRATA__CASE)
#undef STRATA__CASE
    default:
        return nullptr;
    }
}

} /* namespace */

strata_status strata__cuda_float_rows_load(void)
{
    const void *kernels[] = {
#define STRATA__KERNEL(f) reinterpret_cast<const void *>(float_rows<f>),
        STRATA__FOR_EACH_FORMAT(STRATA__KERNEL)
#undef STRATA__KERNEL
    };
    return strata__cuda_load_kernels(kernels, sizeof kernels / sizeof kernels[0], 0);
}

strata_status strata__cuda_float_rows(cudaStream_t stream, const strata__float_rows_args *args)
{
    if (args->rows == 0)
        return STRATA_OK;
    kernel_of(args->format)<<<args->rows, THREADS, 0, stream>>>(*args);
    return strata__cuda_status(cudaGetLastError(), "decoding rows");
}
