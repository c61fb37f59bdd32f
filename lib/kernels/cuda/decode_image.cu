/* SPDX-License-Identifier: MIT */
/*
 * Decoders to the image that the products read (products.h). A warp takes 256 consecutive values of
 * a row, eight a lane: it reads one piece of the row and writes four whole 128-byte lines. It does
 * so for four rows at a time, so that enough reads are on their way.
 */
#include "kernels/cuda/codebooks.cuh"
#include "kernels/cuda/common.cuh"
#include "kernels/cuda/decode.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/products.h"

namespace
{

constexpr uint32_t WARPS = 8, WARP_ROWS = 4, BLOCK_ROWS = WARPS * WARP_ROWS;
/* Fewer blocks would leave a large device waiting: then several share the rows. */
constexpr uint32_t ENOUGH_BLOCKS = 512;

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

/*
 * A warp's rows of the image: `at` + 8 i, of one slab. In a paired image even i are of the first
 * matrix and odd ones of the second. `source` are the first two rows' blocks, `step` leads to the
 * same rows two later; `valid` has a bit for each row that exists and has the launch's format.
 */
struct warp_rows {
    const uint8_t *source[2];
    uint8_t *image;
    uint32_t step;
    uint32_t valid;
};

template <int FORMAT>
__device__ __forceinline__ warp_rows find_rows(const strata__decode_args &args, uint32_t at,
                                               uint32_t k_blocks)
{
    uint32_t row_bytes = args.inputs / block_shape<FORMAT>::VALUES * block_shape<FORMAT>::BYTES;
    bool paired = args.matrices == 2;
    uint32_t first = args.first_slab * (STRATA__SLAB_ROWS / args.matrices) +
                     (paired ? at / 16 * 8 + at % 8 : at);
    uint64_t slab = (uint64_t)blockIdx.y * args.slabs + at / STRATA__SLAB_ROWS;
    warp_rows rows;
    rows.image = args.image + slab * k_blocks * STRATA__BLOCK_BYTES + at % STRATA__SLAB_ROWS * 128;
    rows.step = (paired ? 8 : 16) * row_bytes;
    rows.valid = 0;
#pragma unroll
    for (uint32_t i = 0; i < WARP_ROWS; i++) {
        const strata__cuda_matrix &matrix = args.matrix[paired ? i % 2 : 0];
        uint32_t row = first + (paired ? i / 2 * 8 : i * 8);
        if (matrix.format == FORMAT && row < args.outputs &&
            at + 8 * i < args.slabs * STRATA__SLAB_ROWS)
            rows.valid |= 1u << i;
        if (i >= 2)
            continue;
        const void *data =
            matrix.blobs ? matrix.blobs[args.range.first_expert + blockIdx.y] : matrix.data;
        rows.source[i] = static_cast<const uint8_t *>(data) + (uint64_t)row * row_bytes;
    }
    return rows;
}

/*
 * COUNT rows from row FIRST on. The loop has no branches, so that the reads of all its rows are on
 * their way together.
 */
template <int FORMAT, uint32_t FIRST, uint32_t COUNT>
__device__ __forceinline__ void decode_rows(const warp_rows &rows, uint32_t inputs,
                                            uint32_t k_blocks, const void *grid)
{
    constexpr uint32_t PARTS = block_shape<FORMAT>::VALUES / 8;
    uint32_t swizzle = threadIdx.x / 32 & 7, chunk = blockIdx.z * 32 + threadIdx.x % 32;
    uint32_t stride = gridDim.z * 32;
    for (; chunk < inputs / 8; chunk += stride) {
        uint32_t source = chunk / PARTS * block_shape<FORMAT>::BYTES;
        uint32_t target = chunk / 8 * STRATA__BLOCK_BYTES + ((chunk % 8) ^ swizzle) * 16;
        uint4 halves[COUNT];
#pragma unroll
        for (uint32_t i = 0; i < COUNT; i++) {
            float v[8];
            decode8<FORMAT>(rows.source[(FIRST + i) % 2] + ((FIRST + i) / 2 * rows.step + source),
                            chunk % PARTS, grid, v);
            halves[i] = {pack_halves(v[0], v[1]), pack_halves(v[2], v[3]), pack_halves(v[4], v[5]),
                         pack_halves(v[6], v[7])};
        }
#pragma unroll
        for (uint32_t i = 0; i < COUNT; i++)
            *reinterpret_cast<uint4 *>(rows.image + (target + (FIRST + i) * 1024)) = halves[i];
    }
    for (; chunk < k_blocks * 8; chunk += stride) {
        uint32_t target = chunk / 8 * STRATA__BLOCK_BYTES + ((chunk % 8) ^ swizzle) * 16;
#pragma unroll
        for (uint32_t i = 0; i < COUNT; i++)
            *reinterpret_cast<uint4 *>(rows.image + (target + (FIRST + i) * 1024)) = {0, 0, 0, 0};
    }
}

/* Grid: groups of image rows, experts, shares of a row. The warps take neighbouring rows. */
template <int FORMAT>
__global__ void __launch_bounds__(WARPS * 32, 4)
    decode_image(const __grid_constant__ strata__decode_args args)
{
    __shared__ uint4 shared[codebook<FORMAT>::WORDS];
    uint32_t k_blocks = (args.inputs + STRATA__BLOCK_VALUES - 1) / STRATA__BLOCK_VALUES;
    wait_for_earlier();
    let_next_start();
    if (args.row_scale)
        reset_row_scales(args);
    if (!expert_wanted(args, blockIdx.y))
        return;
    codebook<FORMAT>::load(shared);
    warp_rows rows = find_rows<FORMAT>(args, blockIdx.x * BLOCK_ROWS + threadIdx.x / 32, k_blocks);
    if (rows.valid == (1u << WARP_ROWS) - 1) {
        decode_rows<FORMAT, 0, WARP_ROWS>(rows, args.inputs, k_blocks, shared);
        return;
    }
    if (rows.valid & 1)
        decode_rows<FORMAT, 0, 1>(rows, args.inputs, k_blocks, shared);
    if (rows.valid & 2)
        decode_rows<FORMAT, 1, 1>(rows, args.inputs, k_blocks, shared);
    if (rows.valid & 4)
        decode_rows<FORMAT, 2, 1>(rows, args.inputs, k_blocks, shared);
    if (rows.valid & 8)
        decode_rows<FORMAT, 3, 1>(rows, args.inputs, k_blocks, shared);
}

static_assert(WARPS == 8 && WARP_ROWS == 4, "a warp has rows of four groups of eight");

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

static strata_status launch(const strata__cuda_state *state, cudaStream_t stream,
                            const strata__decode_args &args, uint32_t format)
{
    uint32_t slab_rows = STRATA__SLAB_ROWS / args.matrices;
    uint32_t left = args.outputs - args.first_slab * slab_rows;
    uint32_t rows = args.slabs * slab_rows < left ? args.slabs * slab_rows : left;
    if (args.matrices == 2)
        rows = (rows + 7) / 8 * 16;
    dim3 grid((rows + BLOCK_ROWS - 1) / BLOCK_ROWS, args.range.experts);
    while (grid.x * grid.y * grid.z < ENOUGH_BLOCKS && grid.z * 512 <= args.inputs)
        grid.z *= 2;
    return launch_overlapped(state, stream, kernel_of(format), grid, WARPS * 32, 0, args,
                             "decoding weights");
}

strata_status strata__cuda_decode(const strata__cuda_state *state, cudaStream_t stream,
                                  const strata__decode_args *args)
{
    strata_status status = launch(state, stream, *args, args->matrix[0].format);
    if (status != STRATA_OK || args->matrices == 1 ||
        args->matrix[1].format == args->matrix[0].format)
        return status;
    strata__decode_args other = *args;
    other.row_scale = nullptr;
    return launch(state, stream, other, args->matrix[1].format);
}
