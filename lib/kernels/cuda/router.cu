/* SPDX-License-Identifier: MIT */
/*
 * The router's logits, in float32 from end to end: tiles of 64 rows by 64 experts, values in
 * ascending order, so that a row's logits depend on its own inputs alone. Weights that are not
 * float32 are decoded to float32 scratch first, as many experts at a time as it holds.
 */
#include "kernels/cuda/common.cuh"
#include "kernels/cuda/products.h"

namespace
{

constexpr uint32_t THREADS = 256, TILE = 64, STEP = 32, PITCH = TILE + 4;

struct router_launch {
    strata__router_args args;
    const float *weights; /* of the launch's experts */
    uint32_t first_expert;
    uint32_t experts;
};

/* Four values of a row of the tile, from `k` on; zeros beyond the rows or the inputs. */
__device__ __forceinline__ float4 load_four(const float *base, uint32_t row, uint32_t rows,
                                            uint32_t k, uint32_t inputs)
{
    if (row >= rows || k >= inputs)
        return {0.0f, 0.0f, 0.0f, 0.0f};
    return __ldg(reinterpret_cast<const float4 *>(base + (uint64_t)row * inputs + k));
}

__device__ __forceinline__ void scatter(float (&tile)[STEP][PITCH], uint32_t row, uint32_t k,
                                        float4 v)
{
    tile[k][row] = v.x;
    tile[k + 1][row] = v.y;
    tile[k + 2][row] = v.z;
    tile[k + 3][row] = v.w;
}

/* What a thread brings of a step: two groups of four values of rows and of weights, and the gains. */
struct router_step {
    float4 x[2], w[2], gain;
};

__device__ __forceinline__ router_step load_step(const router_launch &launch, uint32_t k)
{
    const strata__router_args &args = launch.args;
    uint32_t inputs = args.weight.inputs, r = threadIdx.x / 8;
    router_step step;
    step.gain = load_four(args.norm, 0, 1, k, inputs);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        step.x[i] = load_four(args.x, blockIdx.y * TILE + r + 32 * i, args.rows, k, inputs);
        step.w[i] =
            load_four(launch.weights, blockIdx.x * TILE + r + 32 * i, launch.experts, k, inputs);
    }
    return step;
}

/* Grid: tiles of experts, tiles of rows. The next step is read while this one is multiplied. */
__global__ void __launch_bounds__(THREADS) router(const __grid_constant__ router_launch launch)
{
    __shared__ __align__(16) float a[2][STEP][PITCH], b[2][STEP][PITCH];
    const strata__router_args &args = launch.args;
    uint32_t inputs = args.weight.inputs, k_of = threadIdx.x % 8 * 4, r_of = threadIdx.x / 8;
    uint32_t first_row = blockIdx.y * TILE, first_column = blockIdx.x * TILE;
    uint32_t tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    float inverse_rms[2], sums[4][4] = {};
    for (int i = 0; i < 2; i++) {
        uint32_t row = first_row + r_of + 32 * i;
        inverse_rms[i] = row < args.rows ? args.inv_rms[row] : 0.0f;
    }
    router_step step = load_step(launch, k_of);
    for (uint32_t k = 0, buffer = 0; k < inputs; k += STEP, buffer ^= 1) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float4 x = step.x[i], gain = step.gain;
            float inverse = inverse_rms[i];
            scatter(a[buffer], r_of + 32 * i, k_of,
                    {x.x * inverse * gain.x, x.y * inverse * gain.y, x.z * inverse * gain.z,
                     x.w * inverse * gain.w});
            scatter(b[buffer], r_of + 32 * i, k_of, step.w[i]);
        }
        __syncthreads();
        if (k + STEP < inputs)
            step = load_step(launch, k + STEP + k_of);
#pragma unroll 8
        for (uint32_t j = 0; j < STEP; j++) {
            float4 x = *reinterpret_cast<const float4 *>(&a[buffer][j][4 * ty]);
            float4 w = *reinterpret_cast<const float4 *>(&b[buffer][j][4 * tx]);
            const float xs[4] = {x.x, x.y, x.z, x.w}, ws[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
            for (int r = 0; r < 4; r++)
#pragma unroll
                for (int c = 0; c < 4; c++)
                    sums[r][c] = fmaf(xs[r], ws[c], sums[r][c]);
        }
    }
#pragma unroll
    for (int r = 0; r < 4; r++)
#pragma unroll
        for (int c = 0; c < 4; c++) {
            uint32_t row = first_row + 4 * ty + r, column = first_column + 4 * tx + c;
            if (row >= args.rows || column >= launch.experts)
                continue;
            uint32_t expert = launch.first_expert + column;
            float y = sums[r][c] + (args.weight.bias ? args.weight.bias[expert] : 0.0f);
            args.logits[(uint64_t)row * args.weight.outputs + expert] =
                args.sigmoid ? 1.0f / (1.0f + expf(-y)) : y;
        }
}

strata_status launch_router(cudaStream_t stream, const router_launch &launch)
{
    dim3 grid((launch.experts + TILE - 1) / TILE, (launch.args.rows + TILE - 1) / TILE);
    router<<<grid, THREADS, 0, stream>>>(launch);
    return strata__cuda_status(cudaGetLastError(), "router");
}

/* Decodes and multiplies in turns. */
strata_status run_decoded(cudaStream_t stream, const strata__router_args &args, uint64_t row_bytes)
{
    uint64_t capacity = args.scratch.bytes / (4ull * args.weight.inputs);
    strata_status status = STRATA_OK;
    if (capacity == 0)
        return strata__fail(STRATA_ERR_BUFFER_TOO_SMALL,
                            "cuda: %llu bytes of scratch for router weights: at least %llu",
                            (unsigned long long)args.scratch.bytes, 4ull * args.weight.inputs);
    for (uint32_t e = 0; e < args.weight.outputs && status == STRATA_OK; e += (uint32_t)capacity) {
        uint32_t left = args.weight.outputs - e;
        router_launch launch = {args, static_cast<const float *>(args.scratch.data), e,
                                left < capacity ? left : (uint32_t)capacity};
        strata__float_rows_args rows = {};
        rows.table = static_cast<const uint8_t *>(args.weight.data) + e * row_bytes;
        rows.out = static_cast<float *>(args.scratch.data);
        rows.format = args.weight.format;
        rows.inputs = args.weight.inputs;
        rows.rows = launch.experts;
        rows.scale = 1.0f;
        status = strata__cuda_float_rows(stream, &rows);
        if (status == STRATA_OK)
            status = launch_router(stream, launch);
    }
    return status;
}

} /* namespace */

strata_status strata__cuda_router_load(void)
{
    const void *kernels[] = {reinterpret_cast<const void *>(router)};
    return strata__cuda_load_kernels(kernels, 1, 0);
}

strata_status strata__cuda_router(const strata__cuda_state *state, cudaStream_t stream,
                                  const strata__router_args *args)
{
    uint64_t row_bytes;
    (void)state;
    if (!strata__format_row_bytes(args->weight.format, args->weight.inputs, &row_bytes) ||
        args->weight.inputs % 8)
        return strata__fail(STRATA_ERR_UNSUPPORTED, "cuda: router rows of %u values of type %u",
                            args->weight.inputs, args->weight.format);
    if (args->rows == 0)
        return STRATA_OK;
    if (args->weight.format != STRATA__F32)
        return run_decoded(stream, *args, row_bytes);
    router_launch launch = {*args, static_cast<const float *>(args->weight.data), 0,
                            args->weight.outputs};
    return launch_router(stream, launch);
}
