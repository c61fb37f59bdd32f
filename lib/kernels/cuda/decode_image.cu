/* SPDX-License-Identifier: MIT */
/*
 * Decoders to the image that the products read (products.h). A warp takes 256 consecutive values of
 * a row, eight a lane: it reads one piece of the row and writes four whole 128-byte lines.
 */
#include "kernels/cuda/codebooks.cuh"
#include "kernels/cuda/common.cuh"
#include "kernels/cuda/decode.cuh"
#include "kernels/cuda/products.h"

namespace
{

constexpr uint32_t WARPS = 8, WARP_ROWS = 4, BLOCK_ROWS = WARPS * WARP_ROWS;

/* The rows of the launch's expert `e`, cut to the range. */
__device__ __forceinline__ void expert_rows(const strata__cuda_range &range, uint32_t e,
                                            uint32_t *first, uint32_t *end)
{
    uint32_t last = range.first_row + range.rows;
    *first = range.first_row;
    *end = last;
    if (range.offsets) {
        *first = max(range.offsets[e], range.first_row);
        *end = min(range.offsets[e + 1], last);
    }
}

__device__ __forceinline__ void reset_row_scales(const strata__decode_args &args)
{
    uint32_t block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    uint32_t threads = gridDim.x * gridDim.y * gridDim.z * blockDim.x;
    for (uint32_t i = block * blockDim.x + threadIdx.x; i < args.range.rows; i += threads)
        args.row_scale[i] = 1.0f;
}

/* True, in all threads of the block, when this expert has work. */
__device__ __forceinline__ bool expert_wanted(const strata__decode_args &args, uint32_t e)
{
    uint32_t first, end;
    expert_rows(args.range, e, &first, &end);
    if (first >= end)
        return false;
    if (!args.only)
        return true;
    bool scaled = false;
    for (uint32_t row = first + threadIdx.x; row < end; row += blockDim.x)
        scaled |= args.only[row - args.range.first_row] > 1.0f;
    return __syncthreads_or(scaled);
}

template <int FORMAT>
__device__ __forceinline__ void decode_row(const uint8_t *blocks, const void *grid, uint32_t inputs,
                                           uint32_t chunks, uint8_t *row_image, uint32_t swizzle)
{
    constexpr uint32_t PARTS = block_shape<FORMAT>::VALUES / 8;
#pragma unroll 2
    for (uint32_t chunk = threadIdx.x % 32; chunk < chunks; chunk += 32) {
        uint4 halves = {0, 0, 0, 0};
        if (chunk * 8 < inputs) {
            float v[8];
            decode8<FORMAT>(blocks + (uint64_t)(chunk / PARTS) * block_shape<FORMAT>::BYTES,
                            chunk % PARTS, grid, v);
            halves = {pack_halves(v[0], v[1]), pack_halves(v[2], v[3]), pack_halves(v[4], v[5]),
                      pack_halves(v[6], v[7])};
        }
        uint8_t *to = row_image + (uint64_t)(chunk / 8) * STRATA__BLOCK_BYTES;
        *reinterpret_cast<uint4 *>(to + ((chunk % 8) ^ swizzle) * 16) = halves;
    }
}

/* Grid: groups of rows, experts, matrices. */
template <int FORMAT>
__global__ __launch_bounds__(WARPS *
                             32) void decode_image(const __grid_constant__ strata__decode_args args)
{
    __shared__ uint4 shared[codebook<FORMAT>::WORDS];
    uint32_t e = blockIdx.y, m = args.first_matrix + blockIdx.z;
    if (args.row_scale)
        reset_row_scales(args);
    if (!expert_wanted(args, e))
        return;
    codebook<FORMAT>::load(shared);

    const strata__cuda_matrix &matrix = args.matrix[m];
    uint32_t expert = args.range.first_expert + e;
    const uint8_t *blocks =
        static_cast<const uint8_t *>(matrix.blobs ? matrix.blobs[expert] : matrix.data);
    uint64_t row_bytes =
        (uint64_t)(args.inputs / block_shape<FORMAT>::VALUES) * block_shape<FORMAT>::BYTES;
    uint32_t k_blocks = (args.inputs + STRATA__BLOCK_VALUES - 1) / STRATA__BLOCK_VALUES;
    uint32_t slab_rows = STRATA__SLAB_ROWS / args.matrices;
    uint32_t first = args.first_slab * slab_rows;
    uint32_t end = min(first + args.slabs * slab_rows, args.outputs);
    uint8_t *image = args.image + (uint64_t)e * args.slabs * k_blocks * STRATA__BLOCK_BYTES;
    for (uint32_t i = 0; i < WARP_ROWS; i++) {
        uint32_t row = first + blockIdx.x * BLOCK_ROWS + i * WARPS + threadIdx.x / 32;
        if (row >= end)
            break;
        uint32_t at = row - first;
        if (args.matrices == 2)
            at = at / 8 * 16 + m * 8 + at % 8;
        uint32_t slab = at / STRATA__SLAB_ROWS, r = at % STRATA__SLAB_ROWS;
        decode_row<FORMAT>(blocks + row * row_bytes, shared, args.inputs, k_blocks * 8,
                           image + (uint64_t)slab * k_blocks * STRATA__BLOCK_BYTES + r * 128,
                           r & 7);
    }
}

typedef void (*decode_kernel)(strata__decode_args);

decode_kernel kernel_of(uint32_t format)
{
    switch (format) {
#define STRATA__CASE(f)                                                                            \
    case f:                                                                                        \
        return decode_image<f>;
        STRATA__FOR_EACH_FORMAT(STRATA__CASE)
#undef STRATA__CASE
    default:
        return nullptr;
    }
}

} /* namespace */

strata_status strata__cuda_decode_load(void)
{
    const void *kernels[] = {
#define STRATA__KERNEL(f) reinterpret_cast<const void *>(decode_image<f>),
        STRATA__FOR_EACH_FORMAT(STRATA__KERNEL)
#undef STRATA__KERNEL
    };
    return strata__cuda_load_kernels(kernels, sizeof kernels / sizeof kernels[0], 0);
}

static strata_status launch(cudaStream_t stream, const strata__decode_args &args, uint32_t matrices)
{
    uint32_t slab_rows = STRATA__SLAB_ROWS / args.matrices;
    uint32_t left = args.outputs - args.first_slab * slab_rows;
    uint32_t rows = args.slabs * slab_rows < left ? args.slabs * slab_rows : left;
    dim3 grid((rows + BLOCK_ROWS - 1) / BLOCK_ROWS, args.range.experts, matrices);
    kernel_of(args.matrix[args.first_matrix].format)<<<grid, WARPS * 32, 0, stream>>>(args);
    return strata__cuda_status(cudaGetLastError(), "decoding weights");
}

strata_status strata__cuda_decode(cudaStream_t stream, const strata__decode_args *args)
{
    strata__decode_args one = *args;
    one.first_matrix = 0;
    if (args->matrices == 1 || args->matrix[0].format == args->matrix[1].format)
        return launch(stream, one, args->matrices);
    strata_status status = launch(stream, one, 1);
    one.first_matrix = 1;
    one.row_scale = nullptr;
    return status == STRATA_OK ? launch(stream, one, 1) : status;
}
