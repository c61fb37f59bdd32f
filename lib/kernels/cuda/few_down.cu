/* SPDX-License-Identifier: MIT */
/*
 * Down of the routed experts and the sum over a row's experts: a thread block takes 16 outputs of
 * all experts that have rows, several side by side, and adds what they give to the residual in
 * ascending expert id. So nothing but the residual is written.
 */
#include "kernels/cuda/few.cuh"

namespace
{

/*
 * WEIGHTS_LIMIT: of an expert, so that one fits in 99 KiB with all that is beside it; a device with
 * more multiplies more experts side by side, for which there are named barriers.
 */
constexpr uint32_t MAX_WARPS = 24, MAX_PAIRS = STRATA__FEW_MAX_PAIRS, MAX_GROUPS = 15,
                   WEIGHTS_LIMIT = 40 * 1024, SHARED_MOST = 160 * 1024, SHARED_KEPT = 24 * 1024;

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

/* Item i of a group of warps: the chunks of its expert of this round, then of the next. */
struct work_item {
    uint32_t place; /* of the expert in the list */
    uint32_t chunk;
};

__device__ __forceinline__ bool item_of(const strata__few_down_args &args, const routing &found,
                                        uint32_t group, uint32_t i, work_item &item)
{
    item.place = group + i / args.cut.chunks * args.at_once;
    item.chunk = i % args.cut.chunks;
    return item.place < found.count;
}

__device__ __forceinline__ weight_tile tile_of_item(const strata__few_down_args &args,
                                                    const routing &found, const work_item &item)
{
    return tile_of(args.blobs[found.expert[item.place]], args.row_bytes, args.outputs, blockIdx.x);
}

template <int FORMAT>
__device__ __forceinline__ void copy_item(const strata__few_down_args &args, const routing &found,
                                          uint32_t group, uint32_t i, uint8_t *stages)
{
    uint32_t threads = args.cut.warps * 32;
    work_item item;
    if (item_of(args, found, group, i, item))
        copy_weights<FORMAT>(stages + i % 2 * args.cut.stage_bytes, tile_of_item(args, found, item),
                             args.cut, item.chunk, threadIdx.x % threads, threads);
    copy_async_commit();
}

/* Of the warps that share an expert. */
__device__ __forceinline__ void group_barrier(uint32_t group, uint32_t warps)
{
    if (warps == 1)
        __syncwarp();
    else
        asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "r"(warps * 32) : "memory");
}

/* Adds the product of the warp's slices of an item to the sums of its rows. */
template <int FORMAT>
__device__ __forceinline__ void
multiply_item(const strata__few_down_args &args, const routing &found, const work_item &item,
              uint8_t *rows, const uint8_t *stage, const unit_books<FORMAT> &books,
              float (&sum)[HALVES][4])
{
    uint32_t r = threadIdx.x % 32 / 4, warp = threadIdx.x / 32, warps = args.cut.warps;
    uint32_t first = found.first[item.place], count = found.first[item.place + 1] - first;
    weight_tile tile = tile_of_item(args, found, item);
    bool ready = false;
    for (uint32_t slice = item.chunk * args.cut.chunk + warp % warps;
         slice < chunk_end(args.cut, item.chunk); slice += warps)
#pragma unroll
        for (uint32_t half = 0; half < HALVES; half++) {
            if (half * COLUMNS >= count)
                break;
            uint32_t own = min(COLUMNS, count - half * COLUMNS);
            uint32_t steps = steps_of<FORMAT>(args.inputs, slice);
            const float *h = args.h + (uint64_t)(first + half * COLUMNS) * args.inputs;
            uint4 b[STEPS];
            float sliced[4] = {};
            row_facts facts = {};
            clear(b);
            for (uint32_t n = 0; n < own; n++) {
                stage_row(rows, n, h + (uint64_t)n * args.inputs, nullptr, slice, steps, facts);
                if (n % STAGED_ROWS == STAGED_ROWS - 1 || n + 1 == own)
                    load_staged(b, rows, n);
            }
            if (!ready) {
                copy_async_wait<1>();
                group_barrier(warp / warps, warps);
                ready = true;
            }
            multiply_slice<FORMAT>(sliced, staged_row<FORMAT>(stage, tile, args.cut, slice, r),
                                   staged_row<FORMAT>(stage, tile, args.cut, slice, r + 8), books,
                                   b, steps);
            add_slice(sum[half], sliced, facts.scale);
        }
    if (!ready) {
        copy_async_wait<1>();
        group_barrier(warp / warps, warps);
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
    __shared__ __align__(16) unit_books<FORMAT> books;
    __shared__ routing found;
    __shared__ uint8_t next[TILE * STRATA__DIRECT_ROWS];
    uint32_t warp = threadIdx.x / 32, warps = blockDim.x / 32, group = warp / args.cut.warps;
    float *sums = reinterpret_cast<float *>(memory);
    uint8_t *rows = memory + warps * HALVES * SUMS * 4 + warp * STAGED_ROWS * ROW_BYTES;
    uint8_t *stages = memory + warps * (HALVES * SUMS * 4 + STAGED_ROWS * ROW_BYTES) +
                      group * 2 * args.cut.stage_bytes;
    let_next_start();
    for (uint32_t i = threadIdx.x; i < TILE * STRATA__DIRECT_ROWS; i += blockDim.x)
        next[i] = 0;
    books.load();
    wait_for_earlier();
    read_routing(args, found);
    copy_item<FORMAT>(args, found, group, 0, stages);
    copy_item<FORMAT>(args, found, group, 1, stages);
    uint32_t i = 0;
    for (uint32_t base = 0; base < found.count; base += args.at_once) {
        float sum[HALVES][4] = {};
        work_item item;
        for (uint32_t chunk = 0; chunk < args.cut.chunks; chunk++, i++) {
            if (item_of(args, found, group, i, item))
                multiply_item<FORMAT>(args, found, item, rows,
                                      stages + i % 2 * args.cut.stage_bytes, books, sum);
            group_barrier(group, args.cut.warps);
            copy_item<FORMAT>(args, found, group, i + 2, stages);
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

template <int FORMAT> struct entry {
    static auto kernel()
    {
        return few_down<FORMAT>;
    }
};

} /* namespace */

strata_status strata__few_down_load(const strata__cuda_state *state)
{
    return load_kernels<entry>(state);
}

strata_status strata__few_down(const strata__cuda_state *state, cudaStream_t stream,
                               uint32_t format, strata__few_down_args *args)
{
    args->row_bytes = row_bytes_of(format, args->inputs);
    args->cut = cut_for(format, args->inputs, args->row_bytes, 1, WEIGHTS_LIMIT);
    uint32_t each =
        args->cut.warps * (HALVES * SUMS * 4 + STAGED_ROWS * ROW_BYTES) + 2 * args->cut.stage_bytes;
    uint64_t room = state->shared_memory_bytes - SHARED_KEPT;
    uint32_t most = (uint32_t)(room < SHARED_MOST ? room : SHARED_MOST) / each;
    uint32_t limits[] = {MAX_WARPS / args->cut.warps, MAX_GROUPS, args->rows * args->top_k};
    for (uint32_t limit : limits)
        most = limit < most ? limit : most;
    args->at_once = most;
    dim3 grid((args->outputs + TILE - 1) / TILE);
    return launch_overlapped(state, stream, kernel_of<entry>(format), grid,
                             most * args->cut.warps * 32, most * each, *args,
                             "multiplying down of few rows");
}
