/* SPDX-License-Identifier: MIT */
/*
 * Decoders to the image that the products read (products.h). A warp takes 256 consecutive values of
 * a row, eight a lane: it reads one piece of the row and writes four whole 128-byte lines. It does so
 * for four rows at a time, so that enough reads are on their way.
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
    uint32_t block = blockIdx.x + gridDim.x * blockIdx.y;
    uint32_t threads = gridDim.x * gridDim.y * blockDim.x;
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

/* One row of the image and where its weights come from; blocks NULL: not this launch's. */
struct image_row {
    const uint8_t *blocks;
    uint8_t *image;
};

/* Image row `at` of the slabs of expert `e`. */
template <int FORMAT>
__device__ __forceinline__ image_row find_row(const strata__decode_args &args, uint32_t e,
                                              uint32_t at, uint32_t k_blocks)
{
    uint32_t m = args.matrices == 2 ? at / 8 % 2 : 0;
    uint32_t row = args.first_slab * (STRATA__SLAB_ROWS / args.matrices) +
                   (args.matrices == 2 ? at / 16 * 8 + at % 8 : at);
    const strata__cuda_matrix &matrix = args.matrix[m];
    if (row >= args.outputs || at >= args.slabs * STRATA__SLAB_ROWS || matrix.format != FORMAT)
        return {nullptr, nullptr};
    uint64_t row_bytes =
        (uint64_t)(args.inputs / block_shape<FORMAT>::VALUES) * block_shape<FORMAT>::BYTES;
    const void *data = matrix.blobs ? matrix.blobs[args.range.first_expert + e] : matrix.data;
    uint64_t slab = (uint64_t)e * args.slabs + at / STRATA__SLAB_ROWS;
    return {static_cast<const uint8_t *>(data) + row * row_bytes,
            args.image + slab * k_blocks * STRATA__BLOCK_BYTES + at % STRATA__SLAB_ROWS * 128};
}

/* Grid: groups of image rows, experts. The block's warps take neighbouring rows. */
template <int FORMAT>
__global__ void __launch_bounds__(WARPS * 32, 4)
    decode_image(const __grid_constant__ strata__decode_args args)
{
    constexpr uint32_t PARTS = block_shape<FORMAT>::VALUES / 8;
    __shared__ uint4 shared[codebook<FORMAT>::WORDS];
    uint32_t warp = threadIdx.x / 32,
             k_blocks = (args.inputs + STRATA__BLOCK_VALUES - 1) / STRATA__BLOCK_VALUES;
    if (args.row_scale)
        reset_row_scales(args);
    if (!expert_wanted(args, blockIdx.y))
        return;
    codebook<FORMAT>::load(shared);
    image_row rows[WARP_ROWS];
#pragma unroll
    for (uint32_t i = 0; i < WARP_ROWS; i++)
        rows[i] = find_row<FORMAT>(args, blockIdx.y, blockIdx.x * BLOCK_ROWS + i * WARPS + warp,
                                   k_blocks);
    for (uint32_t chunk = threadIdx.x % 32; chunk < k_blocks * 8; chunk += 32) {
        uint32_t source = chunk / PARTS * block_shape<FORMAT>::BYTES;
        uint32_t target = chunk / 8 * STRATA__BLOCK_BYTES + ((chunk % 8) ^ (warp & 7)) * 16;
#pragma unroll
        for (uint32_t i = 0; i < WARP_ROWS; i++) {
            float v[8] = {};
            if (!rows[i].blocks)
                continue;
            if (chunk * 8 < args.inputs)
                decode8<FORMAT>(rows[i].blocks + source, chunk % PARTS, shared, v);
            *reinterpret_cast<uint4 *>(rows[i].image +
                                       target) = {pack_halves(v[0], v[1]), pack_halves(v[2], v[3]),
                                                  pack_halves(v[4], v[5]), pack_halves(v[6], v[7])};
        }
    }
}

static_assert(WARPS == 8, "a warp's rows share their place in groups of eight");

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

static strata_status launch(cudaStream_t stream, const strata__decode_args &args, uint32_t format)
{
    uint32_t slab_rows = STRATA__SLAB_ROWS / args.matrices;
    uint32_t left = args.outputs - args.first_slab * slab_rows;
    uint32_t rows = args.slabs * slab_rows < left ? args.slabs * slab_rows : left;
    if (args.matrices == 2)
        rows = (rows + 7) / 8 * 16;
    dim3 grid((rows + BLOCK_ROWS - 1) / BLOCK_ROWS, args.range.experts);
    kernel_of(format)<<<grid, WARPS * 32, 0, stream>>>(args);
    return strata__cuda_status(cudaGetLastError(), "decoding weights");
}

strata_status strata__cuda_decode(cudaStream_t stream, const strata__decode_args *args)
{
    strata_status status = launch(stream, *args, args->matrix[0].format);
    if (status != STRATA_OK || args->matrices == 1 ||
        args->matrix[1].format == args->matrix[0].format)
        return status;
    strata__decode_args other = *args;
    other.row_scale = nullptr;
    return launch(stream, other, args->matrix[1].format);
}
