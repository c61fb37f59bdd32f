/* SPDX-License-Identifier: MIT */
/*
 * Products of few rows that read the quantised blocks in place: a warp for each output. Lanes take
 * eight values each in ascending steps, for up to eight rows at once; their sums meet in a fixed
 * order, so that a row's result depends on its own inputs alone.
 */
#include "kernels/cuda/codebooks.cuh"
#include "kernels/cuda/common.cuh"
#include "kernels/cuda/decode.cuh"
#include "kernels/cuda/product.cuh"

namespace
{

constexpr uint32_t WARPS = 8, MAX_BATCH = 8;
/* Chunks a lane has on their way for a single row. */
constexpr uint32_t AHEAD = 4;

/* sums[m][i] += the lane's part of in[row i] . weights of matrix m */
template <int FORMAT, uint32_t BATCH>
__device__ __forceinline__ void
multiply_rows(const strata__direct_args &args, const uint8_t *const (&blocks)[2],
              const uint16_t *const (&rows)[BATCH], uint32_t count, float (&sums)[2][BATCH])
{
    constexpr uint32_t PARTS = block_shape<FORMAT>::VALUES / 8;
    const void *grid = codebook<FORMAT>::source();
#pragma unroll(BATCH == 1 ? AHEAD : 1)
    for (uint32_t chunk = threadIdx.x % 32; chunk < args.product.inputs / 8; chunk += 32) {
        uint64_t at = (uint64_t)(chunk / PARTS) * block_shape<FORMAT>::BYTES;
        float weights[2][8];
        decode8<FORMAT>(blocks[0] + at, chunk % PARTS, grid, weights[0]);
        if (args.matrices == 2)
            decode8<FORMAT>(blocks[1] + at, chunk % PARTS, grid, weights[1]);
#pragma unroll
        for (uint32_t i = 0; i < BATCH; i++) {
            if (i >= count)
                break;
            uint4 halves = __ldg(reinterpret_cast<const uint4 *>(rows[i]) + chunk);
            const uint32_t words[4] = {halves.x, halves.y, halves.z, halves.w};
#pragma unroll
            for (uint32_t w = 0; w < 4; w++) {
                float2 x = unpack_halves(words[w]);
                sums[0][i] = fmaf(x.x, weights[0][2 * w], sums[0][i]);
                sums[0][i] = fmaf(x.y, weights[0][2 * w + 1], sums[0][i]);
                if (args.matrices == 2) {
                    sums[1][i] = fmaf(x.x, weights[1][2 * w], sums[1][i]);
                    sums[1][i] = fmaf(x.y, weights[1][2 * w + 1], sums[1][i]);
                }
            }
        }
    }
}

/* One output of one row, by one thread. */
__device__ __forceinline__ void store_output(const strata__direct_args &direct, uint32_t expert,
                                             uint32_t sorted, uint32_t column, float y, float up)
{
    const strata__product_args &args = direct.product;
    uint32_t row = sorted - args.range.first_row;
    uint64_t bias = (uint64_t)expert * args.outputs + column;
    float in_scale = args.in_scale ? args.in_scale[input_row(args, sorted)] : 1.0f;
    float inverse = args.fix ? 1.0f / args.out_scale[row] : 1.0f;
    y = y * in_scale + bias_at(args.bias, bias);
    if (direct.matrices == 2)
        y = activate(args.activation, y, up * in_scale + bias_at(args.up_bias, bias));
    else
        y *= args.alpha * (args.expert_scale ? args.expert_scale[expert] : 1.0f) *
             (args.row_factor ? args.row_factor[row] : 1.0f);
    if (direct.matrices == 2 || args.mode == STRATA__DENSE_STORE_ROWS) {
        reinterpret_cast<__half *>(args.out_rows)[(uint64_t)row * args.outputs + column] =
            __float2half_rn(row_value(args, row, inverse, y));
        return;
    }
    float *out = args.out + (uint64_t)row * args.out_stride + column;
    *out = args.mode == STRATA__DENSE_ADD_F32 ? *out + y : y;
}

/* Grid: groups of outputs, experts. BATCH rows are multiplied at once; the bits do not show it. */
template <int FORMAT, uint32_t BATCH>
__global__ void __launch_bounds__(WARPS * 32)
    direct(const __grid_constant__ strata__direct_args args)
{
    const strata__product_args &product = args.product;
    uint32_t lane = threadIdx.x % 32, column = blockIdx.x * WARPS + threadIdx.x / 32;
    uint32_t expert = product.range.first_expert + blockIdx.y, first, end;
    rows_of_expert(product.range, blockIdx.y, &first, &end);
    if (column >= product.outputs || first >= end)
        return;
    uint64_t row_bytes =
        (uint64_t)(product.inputs / block_shape<FORMAT>::VALUES) * block_shape<FORMAT>::BYTES;
    const uint8_t *blocks[2] = {};
    for (uint32_t m = 0; m < args.matrices; m++)
        blocks[m] = static_cast<const uint8_t *>(args.matrix[m].blobs ? args.matrix[m].blobs[expert]
                                                                      : args.matrix[m].data) +
                    column * row_bytes;
    for (uint32_t row = first; row < end; row += BATCH) {
        uint32_t count = min(BATCH, end - row);
        bool scaled = product.fix && lane < count &&
                      product.out_scale[row + lane - product.range.first_row] > 1.0f;
        if (product.fix && !__any_sync(0xffffffffu, scaled))
            continue;
        const uint16_t *rows[BATCH];
        float sums[2][BATCH] = {};
#pragma unroll
        for (uint32_t i = 0; i < BATCH; i++)
            rows[i] = product.in +
                      (uint64_t)input_row(product, row + (i < count ? i : 0)) * product.inputs;
        multiply_rows<FORMAT, BATCH>(args, blocks, rows, count, sums);
        float own = 0.0f, own_up = 0.0f;
#pragma unroll
        for (uint32_t i = 0; i < BATCH; i++) {
            float sum = warp_sum(sums[0][i]);
            float up = args.matrices == 2 ? warp_sum(sums[1][i]) : 0.0f;
            own = lane == i ? sum : own;
            own_up = lane == i ? up : own_up;
        }
        if (lane < count)
            store_output(args, expert, row + lane, column, own, own_up);
    }
}

typedef void (*direct_kernel)(strata__direct_args);

template <uint32_t BATCH> direct_kernel kernel_of(uint32_t format)
{
    switch (format) {
#define STRATA__CASE(f)                                                                            \
    case f:                                                                                        \
        return direct<f, BATCH>;
        STRATA__FOR_EACH_FORMAT(STRATA__CASE)
#undef STRATA__CASE
    default:
        return nullptr;
    }
}

} /* namespace */

strata_status strata__cuda_direct_load(void)
{
    const void *kernels[] = {
#define STRATA__KERNEL(f)                                                                          \
    reinterpret_cast<const void *>(direct<f, 1>),                                                  \
        reinterpret_cast<const void *>(direct<f, MAX_BATCH>),
        STRATA__FOR_EACH_FORMAT(STRATA__KERNEL)
#undef STRATA__KERNEL
    };
    return strata__cuda_load_kernels(kernels, sizeof kernels / sizeof kernels[0], 0);
}

strata_status strata__cuda_direct(cudaStream_t stream, const strata__direct_args *args)
{
    dim3 grid((args->product.outputs + WARPS - 1) / WARPS, args->product.range.experts);
    /* With about a row an expert a batch would hold little else. */
    bool single = args->product.range.rows <= args->product.range.experts;
    direct_kernel kernel = single ? kernel_of<1>(args->matrix[0].format)
                                  : kernel_of<MAX_BATCH>(args->matrix[0].format);
    kernel<<<grid, WARPS * 32, 0, stream>>>(*args);
    return strata__cuda_status(cudaGetLastError(), "multiplying few rows");
}
