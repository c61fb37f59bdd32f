/* SPDX-License-Identifier: MIT */
/*
 * Down of the routed experts and the sum over a row's experts: a thread block takes 16 outputs of
 * all experts that have rows, several side by side, and adds what they give to the residual in
 * ascending expert id. So nothing but the residual is written.
 */
#include "kernels/cuda/few.cuh"

namespace
{

/* SHARED_LIMIT: with the rest of a block every supported device has it; more only adds experts that
 * are multiplied side by side. */
constexpr uint32_t MAX_WARPS = 24, MAX_PAIRS = STRATA__FEW_MAX_PAIRS, SHARED_LIMIT = 72 * 1024,
                   SHARED_REST = 27 * 1024, SHARED_MOST = 128 * 1024;

uint32_t shared_bytes_of(uint64_t device_bytes)
{
    uint64_t left = device_bytes > SHARED_REST ? device_bytes - SHARED_REST : 0;
    return left > SHARED_MOST ? SHARED_MOST : left < SHARED_LIMIT ? SHARED_LIMIT : (uint32_t)left;
}

/* The experts with rows, in ascending order, and where each pair's rows are. */
struct routing {
    uint32_t count;
    uint32_t expert[MAX_PAIRS];
    uint32_t first[MAX_PAIRS + 1]; /* sorted row */
    uint16_t place[MAX_PAIRS];     /* of a sorted row's expert in the list */
    uint32_t sorted[MAX_PAIRS];    /* [row][top_k] */
    float weight[MAX_PAIRS];
    uint32_t warp_counts[MAX_WARPS];
};

/* Lists the experts; all threads of the block. */
__device__ __forceinline__ void read_routing(const strata__few_down_args &args, routing &found)
{
    uint32_t pairs = args.rows * args.top_k, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint32_t warps = blockDim.x / 32, listed = 0;
    for (uint32_t i = threadIdx.x; i < pairs; i += blockDim.x) {
        found.sorted[i] = args.sorted_index[i];
        found.weight[i] = args.weights[i];
    }
    for (uint32_t base = 0; base < args.experts; base += blockDim.x) {
        uint32_t e = base + threadIdx.x;
        uint32_t first = e < args.experts ? args.offsets[e] : 0;
        uint32_t end = e < args.experts ? args.offsets[e + 1] : 0;
        uint32_t used = __ballot_sync(0xffffffffu, first < end);
        if (lane == 0)
            found.warp_counts[warp] = __popc(used);
        __syncthreads();
        uint32_t at = listed + __popc(used & ((1u << lane) - 1));
        for (uint32_t w = 0; w < warps; w++) {
            at += w < warp ? found.warp_counts[w] : 0;
            listed += found.warp_counts[w];
        }
        if (first < end && end <= MAX_PAIRS) {
            found.expert[at] = e;
            found.first[at] = first;
            for (uint32_t p = first; p < end; p++)
                found.place[p] = (uint16_t)at;
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        found.count = listed;
        found.first[listed] = pairs;
    }
    __syncthreads();
}

/* A slice of an expert of the list, as the warp's stage number `used` holds it. */
struct work_item {
    uint32_t place, slice;
};

/* Item i of a warp: its slices of its expert of this round, then those of the next round. */
__device__ __forceinline__ bool item_of(const strata__few_down_args &args, const routing &found,
                                        uint32_t i, work_item &item)
{
    uint32_t warp = threadIdx.x / 32, share = warp % args.cut.warps;
    uint32_t each = (args.cut.slices - share + args.cut.warps - 1) / args.cut.warps;
    item.place = warp / args.cut.warps + i / each * args.at_once;
    item.slice = share + i % each * args.cut.warps;
    return item.place < found.count;
}

__device__ __forceinline__ tile_rows rows_of(const strata__few_down_args &args,
                                             const routing &found, const work_item &item)
{
    const uint8_t *weights = static_cast<const uint8_t *>(args.blobs[found.expert[item.place]]);
    return {weights, weights + (uint64_t)args.outputs * args.row_bytes, blockIdx.x * TILE,
            args.outputs - 1, args.row_bytes};
}

template <int FORMAT>
__device__ __forceinline__ void copy_item(const strata__few_down_args &args, const routing &found,
                                          uint32_t i, uint8_t *stage)
{
    work_item item;
    if (item_of(args, found, i, item))
        copy_slice<FORMAT>(stage, rows_of(args, found, item), item.slice,
                           bytes_of<FORMAT>(args.row_bytes, item.slice));
    copy_async_commit();
}

/* Adds the product of an item to the sums of its rows. */
template <int FORMAT>
__device__ __forceinline__ void
multiply_item(const strata__few_down_args &args, const routing &found, const work_item &item,
              const uint8_t *stage, const void *grid, float (&sum)[HALVES][4])
{
    uint32_t r = threadIdx.x % 32 / 4, steps = steps_of(args.inputs, item.slice);
    uint32_t first = found.first[item.place], count = found.first[item.place + 1] - first;
    tile_rows rows = rows_of(args, found, item);
#pragma unroll
    for (uint32_t half = 0; half < HALVES; half++) {
        if (half * COLUMNS >= count)
            break;
        uint32_t row = half * COLUMNS + r;
        bool valid = row < count;
        uint4 b[STEPS];
        float sliced[4] = {}, squares = 0.0f;
        float scale = load_scaled(b, args.h + (uint64_t)(first + (valid ? row : 0)) * args.inputs,
                                  nullptr, item.slice, steps, valid, squares);
        multiply_slice<FORMAT>(sliced, staged_row<FORMAT>(stage, rows, item.slice, r),
                               staged_row<FORMAT>(stage, rows, item.slice, r + 8), grid, b, steps);
        add_slice(sum[half], sliced, scale);
    }
}

/* The sum of one output of one sorted row over its expert's warps. */
__device__ __forceinline__ float finished(const strata__few_down_args &args, const routing &found,
                                          const float *sums, uint32_t place, uint32_t base,
                                          uint32_t pair, uint32_t at)
{
    uint32_t n = pair - found.first[place], expert = found.expert[place];
    uint32_t output = blockIdx.x * TILE + at;
    const float *from = sums + (place - base) * args.cut.warps * HALVES * SUMS +
                        n / COLUMNS * SUMS + n % COLUMNS * TILE + at;
    float y = 0.0f;
    for (uint32_t w = 0; w < args.cut.warps; w++)
        y += from[w * HALVES * SUMS];
    if (args.bias)
        y += args.bias[(uint64_t)expert * args.outputs + output];
    return args.expert_scale ? y * args.expert_scale[expert] : y;
}

/*
 * Adds a round's outputs. A thread has one output of a row, or of several rows; `next` is the first
 * of the row's experts that is still to be added.
 */
__device__ __forceinline__ void add_round(const strata__few_down_args &args, const routing &found,
                                          const float *sums, uint32_t base, uint8_t *next)
{
    for (uint32_t i = threadIdx.x; i < TILE * args.rows; i += blockDim.x) {
        uint32_t row = i / TILE, at = i % TILE, j = next[i];
        if (blockIdx.x * TILE + at >= args.outputs)
            continue;
        float *x = args.x + (uint64_t)row * args.outputs + blockIdx.x * TILE + at, sum = *x;
        for (; j < args.top_k; j++) {
            uint32_t pair = found.sorted[row * args.top_k + j], place = found.place[pair];
            if (place >= base + args.at_once)
                break;
            sum = fmaf(args.alpha * found.weight[row * args.top_k + j],
                       finished(args, found, sums, place, base, pair, at), sum);
        }
        next[i] = (uint8_t)j;
        *x = sum;
    }
}

/* Grid: tiles of the outputs. */
template <int FORMAT>
__global__ void __maxnreg__(FEW_REGISTERS)
    few_down(const __grid_constant__ strata__few_down_args args)
{
    extern __shared__ __align__(16) uint8_t memory[];
    __shared__ __align__(16) uint4 grid[codebook<FORMAT>::WORDS];
    __shared__ routing found;
    __shared__ uint8_t next[TILE * STRATA__FEW_ROWS];
    uint32_t warp = threadIdx.x / 32;
    float *sums = reinterpret_cast<float *>(memory);
    uint8_t *stage =
        memory + blockDim.x / 32 * HALVES * SUMS * 4 + warp * 2 * staged<FORMAT>::STAGE;
    let_next_start();
    for (uint32_t i = threadIdx.x; i < TILE * STRATA__FEW_ROWS; i += blockDim.x)
        next[i] = 0;
    codebook<FORMAT>::load(grid);
    wait_for_earlier();
    read_routing(args, found);
    copy_item<FORMAT>(args, found, 0, stage);
    copy_item<FORMAT>(args, found, 1, stage + staged<FORMAT>::STAGE);
    uint32_t i = 0;
    for (uint32_t base = 0; base < found.count; base += args.at_once) {
        float sum[HALVES][4] = {};
        work_item item;
        for (; item_of(args, found, i, item) && item.place < base + args.at_once; i++) {
            uint8_t *own = stage + i % 2 * staged<FORMAT>::STAGE;
            copy_async_wait<1>();
            __syncwarp();
            multiply_item<FORMAT>(args, found, item, own, grid, sum);
            __syncwarp();
            copy_item<FORMAT>(args, found, i + 2, own);
        }
#pragma unroll
        for (uint32_t half = 0; half < HALVES; half++)
            leave_sums(sums + (warp * HALVES + half) * SUMS, sum[half]);
        __syncthreads();
        add_round(args, found, sums, base, next);
        __syncthreads();
    }
    copy_async_wait<0>();
}

typedef void (*down_kernel)(strata__few_down_args);

down_kernel kernel_of(uint32_t format)
{
    switch (format) {
#define STRATA__CASE(f)                                                                            \
    case f:                                                                                        \
        return few_down<f>;
        STRATA__FOR_EACH_UNIT_FORMAT(STRATA__CASE)
#undef STRATA__CASE
    default:
        return nullptr;
    }
}

strata__few_cut cut_for(uint32_t format, uint32_t inputs)
{
    switch (format) {
#define STRATA__CASE(f)                                                                            \
    case f:                                                                                        \
        return cut_of<f>(inputs, 2);
        STRATA__FOR_EACH_UNIT_FORMAT(STRATA__CASE)
#undef STRATA__CASE
    default:
        return {};
    }
}

} /* namespace */

strata_status strata__few_down_load(const strata__cuda_state *state)
{
    const void *kernels[] = {
#define STRATA__KERNEL(f) reinterpret_cast<const void *>(few_down<f>),
        STRATA__FOR_EACH_UNIT_FORMAT(STRATA__KERNEL)
#undef STRATA__KERNEL
    };
    return strata__cuda_load_kernels(kernels, sizeof kernels / sizeof kernels[0],
                                     shared_bytes_of(state->shared_memory_bytes));
}

strata_status strata__few_down(const strata__cuda_state *state, cudaStream_t stream,
                               uint32_t format, strata__few_down_args *args)
{
    const strata__format_info *info = strata__format_find(format);
    args->cut = cut_for(format, args->inputs);
    args->row_bytes = args->inputs / info->block_values * info->block_bytes;
    uint32_t warp_bytes = HALVES * SUMS * 4 + 2 * args->cut.stage_bytes;
    uint32_t most = shared_bytes_of(state->shared_memory_bytes) / warp_bytes;
    /* Fewer warps than the cut asks for, where shared memory has no room for their stages. */
    if (args->cut.warps > SHARED_LIMIT / warp_bytes)
        args->cut.warps = SHARED_LIMIT / warp_bytes;
    args->at_once = (most < MAX_WARPS ? most : MAX_WARPS) / args->cut.warps;
    if (args->at_once > args->rows * args->top_k)
        args->at_once = args->rows * args->top_k;
    uint32_t warps = args->at_once * args->cut.warps;
    dim3 grid((args->outputs + TILE - 1) / TILE);
    return launch_overlapped(state, stream, kernel_of(format), grid, warps * 32, warps * warp_bytes,
                             *args, "multiplying down of few rows");
}
