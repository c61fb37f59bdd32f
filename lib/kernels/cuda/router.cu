/* SPDX-License-Identifier: MIT */
/*
 * The router's logits in the precision of float32. A value is cut in two parts of eleven bits, which
 * tensor cores multiply exactly: x w = x0 w0 + x0 w1 + x1 w0, where x1 w1 is below float32's rounding.
 * Tensor cores cut their sums off, which would add up along a row; so the sums of 32 values are taken
 * there and added up in float32, in ascending order, whatever the rows of a launch.
 *
 * Weights that are not float32 are decoded to float32 scratch first, as many experts at a time as it
 * holds.
 */
#include "kernels/cuda/common.cuh"
#include "kernels/cuda/products.h"

namespace
{

/* A block has 32 rows and 64 experts, a warp 16 and 16. A pitch of 36 spreads the banks. */
constexpr uint32_t THREADS = 256, ROWS = 32, COLUMNS = 64, STEP = 32, PITCH = STEP + 4;

struct router_launch {
    strata__router_args args;
    const float *weights; /* of the launch's experts */
    uint32_t first_expert;
    uint32_t experts;
};

/* The two parts of the values of a step, [row][value]. */
template <uint32_t COUNT> struct split_tile {
    float high[COUNT][PITCH], low[COUNT][PITCH];
};

/* Four values of a row of the tile, from `k` on; zeros beyond the rows or the inputs. */
__device__ __forceinline__ float4 load_four(const float *base, uint32_t row, uint32_t rows,
                                            uint32_t k, uint32_t inputs)
{
    if (row >= rows || k >= inputs)
        return {0.0f, 0.0f, 0.0f, 0.0f};
    return __ldg(reinterpret_cast<const float4 *>(base + (uint64_t)row * inputs + k));
}

/* The nearest value of eleven bits. */
__device__ __forceinline__ float upper_part(float x)
{
    uint32_t bits;
    asm("cvt.rna.tf32.f32 %0, %1;\n" : "=r"(bits) : "f"(x));
    return __uint_as_float(bits);
}

template <uint32_t COUNT>
__device__ __forceinline__ void store_split(split_tile<COUNT> &tile, uint32_t row, uint32_t k,
                                            float4 v)
{
    float4 high = {upper_part(v.x), upper_part(v.y), upper_part(v.z), upper_part(v.w)};
    *reinterpret_cast<float4 *>(&tile.high[row][k]) = high;
    *reinterpret_cast<float4 *>(&tile.low[row][k]) = {
        upper_part(v.x - high.x), upper_part(v.y - high.y), upper_part(v.z - high.z),
        upper_part(v.w - high.w)};
}

/* d += a (16 x 8) * b (8 x 8) */
__device__ __forceinline__ void multiply(float (&d)[4], const float (&a)[4], const float (&b)[2])
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])),
                   "r"(__float_as_uint(a[2])), "r"(__float_as_uint(a[3])),
                   "r"(__float_as_uint(b[0])), "r"(__float_as_uint(b[1])));
}

/* The lane's values of rows `row` and `row` + 8, columns `k` and `k` + 4. */
__device__ __forceinline__ void load_rows(float (&a)[4], const float (&part)[ROWS][PITCH],
                                          uint32_t row, uint32_t k)
{
    a[0] = part[row][k];
    a[1] = part[row + 8][k];
    a[2] = part[row][k + 4];
    a[3] = part[row + 8][k + 4];
}

/* Adds the warp's products of a step. */
__device__ __forceinline__ void multiply_step(float (&sums)[2][4], const split_tile<ROWS> &x,
                                              const split_tile<COLUMNS> &w)
{
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    uint32_t row = warp % 2 * 16 + lane / 4, column = warp / 2 * 16 + lane / 4;
    float step[2][4] = {};
#pragma unroll
    for (uint32_t k = 0; k < STEP; k += 8) {
        float x0[4], x1[4];
        load_rows(x0, x.high, row, k + lane % 4);
        load_rows(x1, x.low, row, k + lane % 4);
#pragma unroll
        for (uint32_t j = 0; j < 2; j++) {
            const float *high = &w.high[column + 8 * j][k + lane % 4];
            const float *low = &w.low[column + 8 * j][k + lane % 4];
            const float w0[2] = {high[0], high[4]}, w1[2] = {low[0], low[4]};
            multiply(step[j], x1, w0);
            multiply(step[j], x0, w1);
            multiply(step[j], x0, w0);
        }
    }
#pragma unroll
    for (uint32_t j = 0; j < 2; j++)
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            sums[j][i] += step[j][i];
}

/* What a thread brings of a step: four values of a row, twice four of weights, and the gains. */
struct router_step {
    float4 x, w[2], gain;
};

__device__ __forceinline__ router_step load_step(const router_launch &launch, uint32_t k)
{
    const strata__router_args &args = launch.args;
    uint32_t inputs = args.weight.inputs, r = threadIdx.x / 8;
    router_step step;
    step.gain = load_four(args.norm, 0, 1, k, inputs);
    step.x = load_four(args.x, blockIdx.y * ROWS + r, args.rows, k, inputs);
#pragma unroll
    for (int i = 0; i < 2; i++)
        step.w[i] =
            load_four(launch.weights, blockIdx.x * COLUMNS + r + 32 * i, launch.experts, k, inputs);
    return step;
}

__device__ __forceinline__ void store_logit(const router_launch &launch, uint32_t row,
                                            uint32_t column, float y)
{
    const strata__router_args &args = launch.args;
    if (row >= args.rows || column >= launch.experts)
        return;
    uint32_t expert = launch.first_expert + column;
    y += args.weight.bias ? args.weight.bias[expert] : 0.0f;
    args.logits[(uint64_t)row * args.weight.outputs + expert] =
        args.sigmoid ? 1.0f / (1.0f + expf(-y)) : y;
}

/* Grid: tiles of experts, tiles of rows. The next step is read while this one is multiplied. */
__global__ void __launch_bounds__(THREADS) router(const __grid_constant__ router_launch launch)
{
    __shared__ __align__(16) split_tile<ROWS> x;
    __shared__ __align__(16) split_tile<COLUMNS> w;
    const strata__router_args &args = launch.args;
    uint32_t inputs = args.weight.inputs, k_of = threadIdx.x % 8 * 4, r_of = threadIdx.x / 8;
    uint32_t own_row = blockIdx.y * ROWS + r_of;
    float inverse = own_row < args.rows ? args.inv_rms[own_row] : 0.0f, sums[2][4] = {};
    router_step step = load_step(launch, k_of);
    for (uint32_t k = 0; k < inputs; k += STEP) {
        float4 v = step.x, gain = step.gain;
        __syncthreads();
        store_split(x, r_of, k_of,
                    {v.x * inverse * gain.x, v.y * inverse * gain.y, v.z * inverse * gain.z,
                     v.w * inverse * gain.w});
        store_split(w, r_of, k_of, step.w[0]);
        store_split(w, r_of + 32, k_of, step.w[1]);
        __syncthreads();
        if (k + STEP < inputs)
            step = load_step(launch, k + STEP + k_of);
        multiply_step(sums, x, w);
    }
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    uint32_t row = blockIdx.y * ROWS + warp % 2 * 16 + lane / 4;
    uint32_t column = blockIdx.x * COLUMNS + warp / 2 * 16 + lane % 4 * 2;
#pragma unroll
    for (uint32_t j = 0; j < 2; j++)
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            store_logit(launch, row + i / 2 * 8, column + 8 * j + i % 2, sums[j][i]);
}

strata_status launch_router(cudaStream_t stream, const router_launch &launch)
{
    dim3 grid((launch.experts + COLUMNS - 1) / COLUMNS, (launch.args.rows + ROWS - 1) / ROWS);
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
