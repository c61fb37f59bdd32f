/* SPDX-License-Identifier: MIT */
/*
 * The router's logits in the precision of float32. A value is cut in two parts of eleven bits,
 * which tensor cores multiply exactly: x w = x0 w0 + x0 w1 + x1 w0, where x1 w1 is below float32's
 * rounding. Tensor cores cut their sums off, which would add up along a row; so the sums of 32
 * values are taken there and added up in float32, in ascending order, whatever the rows of a
 * launch.
 *
 * Weights that are not float32 are decoded to float32 scratch first, as many experts at a time as
 * it holds.
 */
#include "kernels/cuda/common.cuh"
#include "kernels/cuda/products.h"

namespace
{

/* A block has 32 rows and 64 experts, a warp 16 and 16. A pitch of 36 spreads the banks. */
constexpr uint32_t THREADS = 256, ROWS = 32, COLUMNS = 64, STEP = 32, PITCH = STEP + 4, STAGES = 3;

struct router_launch {
    strata__router_args args;
    const float *weights; /* of the launch's experts */
    uint32_t first_expert;
    uint32_t experts;
};

/* The values of a step. */
struct router_stage {
    float x[ROWS][PITCH], w[COLUMNS][PITCH], norm[STEP];
};

/* Four values of a row from `k` on; zeros beyond the rows or the inputs. */
__device__ __forceinline__ void copy_four(float *to, const float *base, uint32_t row, uint32_t rows,
                                          uint32_t k, uint32_t inputs)
{
    bool valid = row < rows && k < inputs;
    const float *from = base + (valid ? (uint64_t)row * inputs + k : 0);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(
                     (uint32_t)__cvta_generic_to_shared(to)),
                 "l"(from), "r"(valid ? 16 : 0)
                 : "memory");
}

__device__ __forceinline__ void copy_step(const router_launch &launch, router_stage &stage,
                                          uint32_t step)
{
    const strata__router_args &args = launch.args;
    uint32_t inputs = args.weight.inputs, r = threadIdx.x / 8, at = threadIdx.x % 8 * 4;
    uint32_t k = step * STEP + at;
    copy_four(&stage.x[r][at], args.x, blockIdx.y * ROWS + r, args.rows, k, inputs);
    for (uint32_t i = 0; i < COLUMNS; i += 32)
        copy_four(&stage.w[r + i][at], launch.weights, blockIdx.x * COLUMNS + r + i, launch.experts,
                  k, inputs);
    if (r == 0)
        copy_four(&stage.norm[at], args.norm, 0, 1, k, inputs);
}

/* The nearest value of eleven bits, by integer instructions: conversions run at a lower rate. */
__device__ __forceinline__ float upper_part(float x)
{
    return __uint_as_float((__float_as_uint(x) + 0x1000u) & 0xffffe000u);
}

__device__ __forceinline__ void split(float value, float &high, float &low)
{
    high = upper_part(value);
    low = upper_part(value - high);
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

/* Adds the warp's products of a step. `inverse`: of rows lane / 4 and 8 further. */
__device__ __forceinline__ void multiply_step(float (&sums)[2][4], const router_stage &stage,
                                              const float (&inverse)[2])
{
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    uint32_t row = warp % 2 * 16 + lane / 4, column = warp / 2 * 16 + lane / 4;
    float step[2][4] = {};
#pragma unroll
    for (uint32_t k8 = 0; k8 < STEP; k8 += 8) {
        uint32_t k = k8 + lane % 4;
        float x0[4], x1[4];
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            split(stage.x[row + i % 2 * 8][k + i / 2 * 4] * inverse[i % 2] *
                      stage.norm[k + i / 2 * 4],
                  x0[i], x1[i]);
#pragma unroll
        for (uint32_t j = 0; j < 2; j++) {
            float w0[2], w1[2];
            split(stage.w[column + 8 * j][k], w0[0], w1[0]);
            split(stage.w[column + 8 * j][k + 4], w0[1], w1[1]);
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

/* Grid: tiles of experts, tiles of rows. Two steps are on their way while one is multiplied. */
__global__ void __launch_bounds__(THREADS) router(const __grid_constant__ router_launch launch)
{
    __shared__ __align__(16) router_stage stages[STAGES];
    const strata__router_args &args = launch.args;
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    uint32_t row = blockIdx.y * ROWS + warp % 2 * 16 + lane / 4;
    uint32_t column = blockIdx.x * COLUMNS + warp / 2 * 16 + lane % 4 * 2;
    uint32_t steps = (args.weight.inputs + STEP - 1) / STEP;
    float sums[2][4] = {}, inverse[2];
    for (uint32_t i = 0; i < 2; i++)
        inverse[i] = row + 8 * i < args.rows ? args.inv_rms[row + 8 * i] : 0.0f;
    for (uint32_t s = 0; s < STAGES - 1; s++) {
        if (s < steps)
            copy_step(launch, stages[s], s);
        asm volatile("cp.async.commit_group;\n" ::: "memory");
    }
    for (uint32_t s = 0; s < steps; s++) {
        asm volatile("cp.async.wait_group %0;\n" ::"n"(STAGES - 2) : "memory");
        __syncthreads();
        if (s + STAGES - 1 < steps)
            copy_step(launch, stages[(s + STAGES - 1) % STAGES], s + STAGES - 1);
        asm volatile("cp.async.commit_group;\n" ::: "memory");
        multiply_step(sums, stages[s % STAGES], inverse);
    }
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
