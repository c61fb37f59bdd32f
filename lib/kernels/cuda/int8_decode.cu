/* SPDX-License-Identifier: MIT */
/*
 * Decoders to the image of the int8 products: a warp takes 256 values of a row, eight a lane.
 * Scales and offsets are gathered in shared memory, for in the image those of neighbouring rows are
 * neighbours.
 */
#include "kernels/cuda/codebooks.cuh"
#include "kernels/cuda/decode.cuh"
#include "kernels/cuda/int8.h"

namespace
{

/* Weight rows of a thread block: many share a codebook, few rows keep more of the device busy. */
constexpr uint32_t WARPS = 8, MOST_ROWS = 32, LEAST_ROWS = 8, ENOUGH_BLOCKS = 1024;
constexpr uint32_t CHUNK = 1024; /* values of a row between two gatherings */

template <int FORMAT> struct gathered_terms {
    /* Rows may have scales of 32 values where the format has them of 64. */
    static constexpr uint32_t GROUPS = CHUNK / 32 * int8_sum_of<FORMAT>::PARTS;
    static constexpr uint32_t OFFSET_VALUES = 32 / int8_sum_of<FORMAT>::SUMS;
    static constexpr uint32_t OFFSETS = int8_sum_of<FORMAT>::OFFSETS ? CHUNK / OFFSET_VALUES : 1;
    float scales[GROUPS][MOST_ROWS + 1];
    float offsets[OFFSETS][MOST_ROWS + 1];
};

/* True when some of the expert's rows lie in the range. */
__device__ __forceinline__ bool expert_wanted(const strata__cuda_range &range, uint32_t e)
{
    uint32_t first = max(range.offsets[e], range.first_row);
    return first < min(range.offsets[e + 1], range.first_row + range.rows);
}

/* Values [first, end) of row r of the image, which is row `own` of the thread block. */
template <int FORMAT>
__device__ __forceinline__ void decode_row(const uint8_t *blocks, const void *grid, uint32_t values,
                                           gathered_terms<FORMAT> &terms, uint8_t *image,
                                           uint32_t r, uint32_t own, uint32_t first, uint32_t end)
{
    constexpr uint32_t PARTS = block_shape<FORMAT>::VALUES / 8;
#pragma unroll 2
    for (uint32_t piece = first / 8 + threadIdx.x % 32; piece < end / 8; piece += 32) {
        int8_codes v;
        decode8<FORMAT>(blocks + (uint64_t)(piece / PARTS) * block_shape<FORMAT>::BYTES,
                        piece % PARTS, grid, v);
        uint32_t at = piece * 8 % STRATA__INT8_K;
        uint8_t *block = image + (uint64_t)(piece * 8 / STRATA__INT8_K) * STRATA__INT8_IMAGE_BYTES;
        uint32_t chunk = (at / 16) ^ (r & 7);
        *reinterpret_cast<uint2 *>(block + r * STRATA__INT8_K + chunk * 16 +
                                   at % 16) = {v.codes.low, v.codes.high};
        constexpr uint32_t OFFSET_VALUES = gathered_terms<FORMAT>::OFFSET_VALUES;
        if (at % values == 0)
            terms.scales[(piece * 8 - first) / values][own] = v.scale;
        if (int8_sum_of<FORMAT>::OFFSETS && at % OFFSET_VALUES == 0)
            terms.offsets[(piece * 8 - first) / OFFSET_VALUES][own] = v.offset;
    }
}

/* What was gathered of a row's values [first, end), one of every `values`, to a plane of blocks. */
template <uint32_t GROUPS>
__device__ __forceinline__ void store_terms(const float (&terms)[GROUPS][MOST_ROWS + 1],
                                            uint32_t own, uint32_t values, uint32_t first,
                                            uint32_t end, uint32_t block_rows, uint8_t *plane)
{
    for (uint32_t g = threadIdx.x / block_rows; g < (end - first) / values;
         g += WARPS * 32 / block_rows) {
        uint32_t from = first + g * values;
        uint8_t *to = plane + (uint64_t)(from / STRATA__INT8_K) * STRATA__INT8_IMAGE_BYTES +
                      from % STRATA__INT8_K / values * (STRATA__SLAB_ROWS * 4);
        *reinterpret_cast<float *>(to) = terms[g][own];
    }
}

/* Row of the image in the experts' slabs of a weight row. */
__device__ __forceinline__ uint32_t image_row(const strata__int8_decode_args &args, uint32_t m,
                                              uint32_t row)
{
    return args.matrices == 2 ? row / 8 * 16 + m * 8 + row % 8 : row;
}

/* Grid: `block_rows` rows each, experts, matrices from `first_matrix` on. */
template <int FORMAT>
__global__ void __launch_bounds__(WARPS * 32)
    decode_int8(const __grid_constant__ strata__int8_decode_args args, uint32_t first_matrix,
                uint32_t block_rows)
{
    __shared__ uint4 shared[codebook<FORMAT>::WORDS];
    __shared__ gathered_terms<FORMAT> terms;
    uint32_t e = blockIdx.y, m = first_matrix + blockIdx.z, values = args.form[m].values;
    if (!expert_wanted(args.range, e))
        return;
    codebook<FORMAT>::load(shared);

    const uint8_t *blocks =
        static_cast<const uint8_t *>(args.matrix[m].blobs[args.range.first_expert + e]);
    uint64_t row_bytes =
        (uint64_t)(args.inputs / block_shape<FORMAT>::VALUES) * block_shape<FORMAT>::BYTES;
    uint32_t k_blocks = (args.inputs + STRATA__INT8_K - 1) / STRATA__INT8_K;
    uint64_t slab_bytes = (uint64_t)k_blocks * STRATA__INT8_IMAGE_BYTES;
    uint32_t slab_rows = STRATA__SLAB_ROWS / args.matrices, first = args.first_slab * slab_rows;
    uint32_t begin = blockIdx.x * block_rows;
    uint32_t rows = min(min(args.slabs * slab_rows, args.outputs - first) - begin, block_rows);
    uint8_t *images = args.image + (uint64_t)e * args.slabs * slab_bytes;
    blocks += (uint64_t)(first + begin) * row_bytes;
    for (uint32_t k = 0; k < args.inputs; k += CHUNK) {
        uint32_t end = min(k + CHUNK, args.inputs);
        for (uint32_t own = threadIdx.x / 32; own < rows; own += WARPS) {
            uint32_t at = image_row(args, m, begin + own);
            decode_row<FORMAT>(blocks + own * row_bytes, shared, values, terms,
                               images + at / STRATA__SLAB_ROWS * slab_bytes, at % STRATA__SLAB_ROWS,
                               own, k, end);
        }
        __syncthreads();
        uint32_t own = threadIdx.x % block_rows, at = image_row(args, m, begin + own);
        uint8_t *image = images + at / STRATA__SLAB_ROWS * slab_bytes + STRATA__INT8_CODE_BYTES +
                         at % STRATA__SLAB_ROWS * 4;
        if (own < rows)
            store_terms(terms.scales, own, values, k, end, block_rows, image);
        if (int8_sum_of<FORMAT>::OFFSETS && own < rows)
            store_terms(terms.offsets, own, terms.OFFSET_VALUES, k, end, block_rows,
                        image + STRATA__INT8_SCALE_BYTES);
        __syncthreads();
    }
}

typedef void (*decode_kernel)(strata__int8_decode_args, uint32_t, uint32_t);

decode_kernel kernel_of(uint32_t format)
{
    switch (format) {
#define STRATA__CASE(f)                                                                            \
    case f:                                                                                        \
        return decode_int8<f>;
        STRATA__FOR_EACH_BLOCK_FORMAT(STRATA__CASE)
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
        STRATA__FOR_EACH_BLOCK_FORMAT(STRATA__KERNEL)
#undef STRATA__KERNEL
    };
    return strata__cuda_load_kernels(kernels, sizeof kernels / sizeof kernels[0], 0);
}

strata_status strata__cuda_int8_decode(cudaStream_t stream, const strata__int8_decode_args *args)
{
    uint32_t slab_rows = STRATA__SLAB_ROWS / args->matrices;
    uint32_t left = args->outputs - args->first_slab * slab_rows;
    uint32_t rows = args->slabs * slab_rows < left ? args->slabs * slab_rows : left;
    bool both = args->matrices == 2 && args->matrix[0].format == args->matrix[1].format;
    uint32_t most_blocks = rows / MOST_ROWS * args->range.experts * args->matrices;
    uint32_t block_rows = most_blocks < ENOUGH_BLOCKS ? LEAST_ROWS : MOST_ROWS;
    dim3 grid((rows + block_rows - 1) / block_rows, args->range.experts, both ? 2 : 1);
    kernel_of(args->matrix[0].format)<<<grid, WARPS * 32, 0, stream>>>(*args, 0, block_rows);
    if (args->matrices == 2 && !both)
        kernel_of(args->matrix[1].format)<<<grid, WARPS * 32, 0, stream>>>(*args, 1, block_rows);
    return strata__cuda_status(cudaGetLastError(), "decoding weights to int8");
}
