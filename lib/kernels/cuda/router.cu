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
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/products.h"

namespace
{

/*
 * A block has 32 rows and 32 experts for each group of eight columns that a warp has: warps are 2
 * (rows) by 4 (experts). A step's rows are 128 bytes; odd ones have their halves exchanged, so that
 * reads of 16 bytes meet no bank twice.
 */
constexpr uint32_t THREADS = 256, ROWS = 32, STEP = 32, STAGES = 4, MOST_GROUPS = 4;

struct router_launch {
    strata__router_args args;
    const float *weights; /* of the launch's experts */
    uint32_t first_expert;
    uint32_t experts;
};

/* The values of a step. */
template <int GROUPS> struct router_stage {
    float x[ROWS][STEP], w[32 * GROUPS][STEP], norm[STEP];
};

template <int GROUPS> constexpr uint32_t shared_bytes()
{
    return STAGES * sizeof(router_stage<GROUPS>);
}

/* Where group `four` of four values of a row lies. */
__device__ __forceinline__ uint32_t place_of(uint32_t row, uint32_t four)
{
    return (four ^ (row & 1) << 2) * 4;
}

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

template <int GROUPS>
__device__ __forceinline__ void copy_step(const router_launch &launch, router_stage<GROUPS> &stage,
                                          uint32_t step)
{
    const strata__router_args &args = launch.args;
    uint32_t inputs = args.weight.inputs, r = threadIdx.x / 8, four = threadIdx.x % 8;
    uint32_t k = step * STEP + four * 4, at = place_of(r, four);
    copy_four(&stage.x[r][at], args.x, blockIdx.y * ROWS + r, args.rows, k, inputs);
#pragma unroll
    for (uint32_t i = 0; i < 32 * GROUPS; i += 32)
        copy_four(&stage.w[r + i][at], launch.weights, blockIdx.x * 32 * GROUPS + r + i,
                  launch.experts, k, inputs);
    if (r == 0)
        copy_four(&stage.norm[four * 4], args.norm, 0, 1, k, inputs);
}

/*
 * The nearest value of eleven bits, by integer instructions: conversions run at a lower rate. What
 * is left is cut to eleven bits by the tensor cores.
 */
__device__ __forceinline__ void split(float value, uint32_t &high, uint32_t &low)
{
    high = (__float_as_uint(value) + 0x1000u) & 0xffffe000u;
    low = __float_as_uint(value - __uint_as_float(high));
}

/* d += a (16 x 8) * b (8 x 8) */
__device__ __forceinline__ void multiply(float (&d)[4], const uint32_t (&a)[4],
                                         const uint32_t (&b)[2])
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ __forceinline__ float4 load_four(const float *p)
{
    return *reinterpret_cast<const float4 *>(p);
}

/*
 * The warp's products of sixteen values: lane q of four has values 4 q to 4 q + 3, of which the
 * first two and the last two go into one product each. `inverse`: of rows lane / 4 and 8 further.
 */
template <int GROUPS>
__device__ __forceinline__ void multiply_sixteen(float (&sums)[GROUPS][4],
                                                 const router_stage<GROUPS> &stage,
                                                 const float (&inverse)[2], uint32_t half)
{
    uint32_t warp = threadIdx.x / 32, r = threadIdx.x % 32 / 4;
    uint32_t four = half * 4 + threadIdx.x % 4, at = place_of(r, four);
    uint32_t x0[2][4], x1[2][4];
    float4 norm = load_four(&stage.norm[four * 4]);
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
        float4 x = load_four(&stage.x[warp % 2 * 16 + r + i * 8][at]);
        split(x.x * inverse[i] * norm.x, x0[0][i], x1[0][i]);
        split(x.y * inverse[i] * norm.y, x0[0][2 + i], x1[0][2 + i]);
        split(x.z * inverse[i] * norm.z, x0[1][i], x1[1][i]);
        split(x.w * inverse[i] * norm.w, x0[1][2 + i], x1[1][2 + i]);
    }
#pragma unroll
    for (uint32_t j = 0; j < GROUPS; j++) {
        float4 w = load_four(&stage.w[(warp / 2 * GROUPS + j) * 8 + r][at]);
        uint32_t w0[2][2], w1[2][2];
        split(w.x, w0[0][0], w1[0][0]);
        split(w.y, w0[0][1], w1[0][1]);
        split(w.z, w0[1][0], w1[1][0]);
        split(w.w, w0[1][1], w1[1][1]);
#pragma unroll
        for (uint32_t part = 0; part < 2; part++) {
            multiply(sums[j], x1[part], w0[part]);
            multiply(sums[j], x0[part], w1[part]);
            multiply(sums[j], x0[part], w0[part]);
        }
    }
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

/*
 * Grid: tiles of experts, tiles of rows. STAGES - 1 steps are on their way while one is multiplied.
 */
template <int GROUPS>
__global__ void __launch_bounds__(THREADS) router(const __grid_constant__ router_launch launch)
{
    extern __shared__ __align__(16) uint8_t memory[];
    router_stage<GROUPS> *stages = reinterpret_cast<router_stage<GROUPS> *>(memory);
    const strata__router_args &args = launch.args;
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    uint32_t row = blockIdx.y * ROWS + warp % 2 * 16 + lane / 4;
    uint32_t column = (blockIdx.x * 4 + warp / 2) * GROUPS * 8 + lane % 4 * 2;
    uint32_t steps = (args.weight.inputs + STEP - 1) / STEP;
    float sums[GROUPS][4] = {}, inverse[2];
    wait_for_earlier();
    let_next_start();
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
        float step[GROUPS][4] = {};
        multiply_sixteen(step, stages[s % STAGES], inverse, 0);
        multiply_sixteen(step, stages[s % STAGES], inverse, 1);
#pragma unroll
        for (uint32_t j = 0; j < GROUPS; j++)
#pragma unroll
            for (uint32_t i = 0; i < 4; i++)
                sums[j][i] += step[j][i];
    }
#pragma unroll
    for (uint32_t j = 0; j < GROUPS; j++)
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            store_logit(launch, row + i / 2 * 8, column + 8 * j + i % 2, sums[j][i]);
}

template <int GROUPS>
strata_status launch_tiles(const strata__cuda_state *state, cudaStream_t stream,
                           const router_launch &launch)
{
    dim3 grid((launch.experts + 32 * GROUPS - 1) / (32 * GROUPS),
              (launch.args.rows + ROWS - 1) / ROWS);
    return launch_overlapped(state, stream, router<GROUPS>, grid, THREADS, shared_bytes<GROUPS>(),
                             launch, "router");
}

/* The widest tiles that do not leave most of the device idle; a logit's sum is the same in all. */
strata_status launch_router(const strata__cuda_state *state, cudaStream_t stream,
                            const router_launch &launch)
{
    uint32_t groups = MOST_GROUPS, row_tiles = (launch.args.rows + ROWS - 1) / ROWS;
    while (groups > 1 &&
           (launch.experts <= 16 * groups ||
            (uint64_t)row_tiles * ((launch.experts + 32 * groups - 1) / (32 * groups)) * 2 <
                state->multiprocessors))
        groups /= 2;
    if (groups == 4)
        return launch_tiles<4>(state, stream, launch);
    return groups == 2 ? launch_tiles<2>(state, stream, launch)
                       : launch_tiles<1>(state, stream, launch);
}

/* Decodes and multiplies in turns. */
strata_status run_decoded(const strata__cuda_state *state, cudaStream_t stream,
                          const strata__router_args &args, uint64_t row_bytes)
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
            status = launch_router(state, stream, launch);
    }
    return status;
}

} /* namespace */

strata_status strata__cuda_router_load(void)
{
    const void *kernels[] = {reinterpret_cast<const void *>(router<1>),
                             reinterpret_cast<const void *>(router<2>),
                             reinterpret_cast<const void *>(router<4>)};
    const uint32_t bytes[] = {shared_bytes<1>(), shared_bytes<2>(), shared_bytes<4>()};
    strata_status status = STRATA_OK;
    static_assert(shared_bytes<4>() <= STRATA__SHARED_LIMIT, "what every device gives a block");
    for (int i = 0; i < 3 && status == STRATA_OK; i++)
        status = strata__cuda_load_kernels(&kernels[i], 1, bytes[i]);
    return status;
}

strata_status strata__cuda_router(const strata__cuda_state *state, cudaStream_t stream,
                                  const strata__router_args *args)
{
    uint64_t row_bytes;
    if (!strata__format_row_bytes(args->weight.format, args->weight.inputs, &row_bytes) ||
        args->weight.inputs % 8)
        return strata__fail(STRATA_ERR_UNSUPPORTED, "cuda: router rows of %u values of type %u",
                            args->weight.inputs, args->weight.format);
    if (args->rows == 0)
        return STRATA_OK;
    if (args->weight.format != STRATA__F32)
        return run_decoded(state, stream, *args, row_bytes);
    router_launch launch = {*args, static_cast<const float *>(args->weight.data), 0,
                            args->weight.outputs};
    return launch_router(state, stream, launch);
}
