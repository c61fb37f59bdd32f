/* SPDX-License-Identifier: MIT */
/* Decoders to the image of the int8 products: a warp takes 256 values of a row, eight a lane. */
#include "kernels/cuda/codebooks.cuh"
#include "kernels/cuda/decode.cuh"
#include "kernels/cuda/int8.h"

/* Every format that has an int8 form. */
#define STRATA__FOR_EACH_INT8_FORMAT(X)                                                            \
    X(STRATA__Q4_0)                                                                                \
    X(STRATA__Q4_1)                                                                                \
    X(STRATA__Q5_0)                                                                                \
    X(STRATA__Q5_1)                                                                                \
    X(STRATA__Q8_0)                                                                                \
    X(STRATA__Q2_K)                                                                                \
    X(STRATA__Q3_K)                                                                                \
    X(STRATA__Q4_K)                                                                                \
    X(STRATA__Q5_K)                                                                                \
    X(STRATA__Q6_K)                                                                                \
    X(STRATA__IQ2_XXS)                                                                             \
    X(STRATA__IQ2_XS)                                                                              \
    X(STRATA__IQ3_XXS)                                                                             \
    X(STRATA__IQ1_S)                                                                               \
    X(STRATA__IQ4_NL)                                                                              \
    X(STRATA__IQ3_S)                                                                               \
    X(STRATA__IQ2_S)                                                                               \
    X(STRATA__IQ4_XS)                                                                              \
    X(STRATA__IQ1_M)                                                                               \
    X(STRATA__MXFP4)                                                                               \
    X(STRATA__Q2_0)

namespace
{

constexpr uint32_t WARPS = 8, WARP_ROWS = 4, BLOCK_ROWS = WARPS * WARP_ROWS;

/* True when some of the expert's rows lie in the range. */
__device__ __forceinline__ bool expert_wanted(const strata__cuda_range &range, uint32_t e)
{
    uint32_t first = max(range.offsets[e], range.first_row);
    return first < min(range.offsets[e + 1], range.first_row + range.rows);
}

template <int FORMAT>
__device__ __forceinline__ void
decode_row(const uint8_t *blocks, const void *grid, const strata__int8_decode_args &args,
           const strata__int8_form &form, uint8_t *image, uint32_t r)
{
    constexpr uint32_t PARTS = block_shape<FORMAT>::VALUES / 8;
#pragma unroll 2
    for (uint32_t piece = threadIdx.x % 32; piece < args.inputs / 8; piece += 32) {
        int8_codes v;
        decode8<FORMAT>(blocks + (uint64_t)(piece / PARTS) * block_shape<FORMAT>::BYTES,
                        piece % PARTS, grid, v);
        uint32_t at = piece * 8 % STRATA__INT8_K;
        uint8_t *block = image + (uint64_t)(piece * 8 / STRATA__INT8_K) * STRATA__INT8_IMAGE_BYTES;
        uint32_t chunk = (at / 16) ^ (r & 7);
        *reinterpret_cast<uint2 *>(block + r * STRATA__INT8_K + chunk * 16 +
                                   at % 16) = {v.codes.low, v.codes.high};
        if (at % form.values)
            continue;
        float *scale = reinterpret_cast<float *>(block + STRATA__INT8_CODE_BYTES) +
                       at / form.values * STRATA__SLAB_ROWS + r;
        *scale = v.scale;
        if (form.offsets)
            scale[STRATA__INT8_SCALE_BYTES / 4] = v.offset;
    }
}

/* Grid: groups of rows, experts. */
template <int FORMAT>
__global__ void __launch_bounds__(WARPS * 32)
    decode_int8(const __grid_constant__ strata__int8_decode_args args, uint32_t m)
{
    __shared__ uint4 shared[codebook<FORMAT>::WORDS];
    uint32_t e = blockIdx.y;
    if (!expert_wanted(args.range, e))
        return;
    codebook<FORMAT>::load(shared);

    const uint8_t *blocks =
        static_cast<const uint8_t *>(args.matrix[m].blobs[args.range.first_expert + e]);
    uint64_t row_bytes =
        (uint64_t)(args.inputs / block_shape<FORMAT>::VALUES) * block_shape<FORMAT>::BYTES;
    uint32_t k_blocks = (args.inputs + STRATA__INT8_K - 1) / STRATA__INT8_K;
    uint64_t slab_bytes = (uint64_t)k_blocks * STRATA__INT8_IMAGE_BYTES;
    uint32_t slab_rows = STRATA__SLAB_ROWS / args.matrices;
    uint32_t first = args.first_slab * slab_rows;
    uint32_t end = min(first + args.slabs * slab_rows, args.outputs);
    for (uint32_t i = 0; i < WARP_ROWS; i++) {
        uint32_t row = first + blockIdx.x * BLOCK_ROWS + i * WARPS + threadIdx.x / 32;
        if (row >= end)
            break;
        uint32_t at = row - first;
        if (args.matrices == 2)
            at = at / 8 * 16 + m * 8 + at % 8;
        uint64_t slab = (uint64_t)e * args.slabs + at / STRATA__SLAB_ROWS;
        decode_row<FORMAT>(blocks + row * row_bytes, shared, args, args.form[m],
                           args.image + slab * slab_bytes, at % STRATA__SLAB_ROWS);
    }
}

typedef void (*decode_kernel)(strata__int8_decode_args, uint32_t);

decode_kernel kernel_of(uint32_t format)
{
    switch (format) {
#define STRATA__CASE(f)                                                                            \
    case f:                                                                                        \
        return decode_int8<f>;
        STRATA__FOR_EACH_INT8_FORMAT(STRATA__CASE)
#undef STRATA__CASE
    default:
        return nullptr;
    }
}

} /* namespace */

strata_status strata__cuda_int8_decode_load(void)
{
    const void *kernels[] = {
#define STRATA__KERNEL(f) reinterpret_cast<const void *>(decode_int8<f>),
        STRATA__FOR_EACH_INT8_FORMAT(STRATA__KERNEL)
#undef STRATA__KERNEL
    };
    return strata__cuda_load_kernels(kernels, sizeof kernels / sizeof kernels[0], 0);
}

strata_status strata__cuda_int8_decode(cudaStream_t stream, const strata__int8_decode_args *args)
{
    uint32_t slab_rows = STRATA__SLAB_ROWS / args->matrices;
    uint32_t left = args->outputs - args->first_slab * slab_rows;
    uint32_t rows = args->slabs * slab_rows < left ? args->slabs * slab_rows : left;
    dim3 grid((rows + BLOCK_ROWS - 1) / BLOCK_ROWS, args->range.experts);
    for (uint32_t m = 0; m < args->matrices; m++)
        kernel_of(args->matrix[m].format)<<<grid, WARPS * 32, 0, stream>>>(*args, m);
    return strata__cuda_status(cudaGetLastError(), "decoding weights to int8");
}
