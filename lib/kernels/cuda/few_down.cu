/* SPDX-License-Identifier: MIT */
/*
 * Down of the routed experts and the sum over a row's experts: a thread block takes 16 outputs of
 * all experts that have rows. Groups of warps take the experts in turn, each at its own pace; what
 * a pair of row and expert gives is kept until all are there and are added to the residual in
 * ascending expert id. So nothing but the residual is written.
 */
#include "kernels/cuda/few.cuh"

namespace
{

/*
 * LIMITS: of an expert's tile, of which there are two, so that one expert fits in 99 KiB with all
 * that is beside it; a device with more multiplies more experts side by side, for which there are
 * named barriers.
 */
constexpr uint32_t MAX_WARPS = 24, MAX_PAIRS = STRATA__FEW_MAX_PAIRS, MAX_GROUPS = 15,
                   SHARED_MOST = 160 * 1024, SHARED_KEPT = 18 * 1024;
constexpr strata__few_limits LIMITS = {20 * 1024, 20 * 1024, STRATA__FEW_WARPS};

/* The experts with rows, in ascending order, and where each pair's rows are. */
struct routing {
    uint32_t count;
    const void *blob[MAX_PAIRS];
    uint32_t expert[MAX_PAIRS];
    uint32_t first[MAX_PAIRS + 1]; /* sorted row */
    uint32_t sorted[MAX_PAIRS];    /* [row][top_k] */
    float weight[MAX_PAIRS];
    uint32_t warp_counts[MAX_WARPS];
};

/* The blob of expert `e`; tables are there before earlier kernels have run. */
__device__ __forceinline__ const void *blob_of(const strata__few_down_args &args, uint32_t e)
{
    return e < args.experts ? args.blobs[e] : nullptr;
}

/*
 * Lists the experts; all threads of the block. `blob` is that of the expert of the thread's number.
 * The pairs' places and weights are on their way when this ends.
 */
__device__ __forceinline__ void read_routing(const strata__few_down_args &args, const void *blob,
                                             routing &found)
{
    uint32_t pairs = args.rows * args.top_k, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint32_t warps = blockDim.x / 32, listed = 0;
    static_assert(MAX_WARPS <= 32, "a warp adds the counts of all");
    for (uint32_t i = threadIdx.x; i < pairs; i += blockDim.x) {
        copy_async_4(&found.sorted[i], args.sorted_index + i);
        copy_async_4(&found.weight[i], args.weights + i);
    }
    for (uint32_t base = 0; base < args.experts; base += blockDim.x) {
        uint32_t e = base + threadIdx.x;
        uint32_t first = e < args.experts ? args.offsets[e] : 0;
        uint32_t end = e < args.experts ? args.offsets[e + 1] : 0;
        uint32_t used = __ballot_sync(0xffffffffu, first < end);
        if (lane == 0)
            found.warp_counts[warp] = __popc(used);
        if (base > 0)
            blob = blob_of(args, e);
        __syncthreads();
        uint32_t counted = lane < warps ? found.warp_counts[lane] : 0;
        uint32_t at = listed + __popc(used & ((1u << lane) - 1)) +
                      __reduce_add_sync(0xffffffffu, lane < warp ? counted : 0);
        listed += __reduce_add_sync(0xffffffffu, counted);
        if (first < end && end <= MAX_PAIRS) {
            found.expert[at] = e;
            found.blob[at] = blob;
            found.first[at] = first;
        }
        if (base + blockDim.x < args.experts)
            __syncthreads();
    }
    if (threadIdx.x == 0) {
        found.count = listed;
        found.first[listed] = pairs;
    }
    __syncthreads();
}

/* What a group of warps does next: the chunks of an expert, then of its next expert. */
struct work_item {
    uint32_t place; /* of the expert in the list */
    uint32_t chunk;

    __device__ __forceinline__ void advance(const strata__few_down_args &args)
    {
        chunk++;
        if (chunk == args.cut.chunks) {
            chunk = 0;
            place += args.at_once;
        }
    }
};

__device__ __forceinline__ weight_tile tile_of_item(const strata__few_down_args &args,
                                                    const routing &found, const work_item &item)
{
    return tile_of(found.blob[item.place], args.row_bytes, args.outputs, blockIdx.x);
}

template <int FORMAT>
__device__ __forceinline__ void copy_item(const strata__few_down_args &args, const routing &found,
                                          const work_item &item, uint8_t *stage)
{
    uint32_t threads = args.cut.warps * 32;
    if (item.place < found.count)
        copy_weights<FORMAT>(stage, tile_of_item(args, found, item), args.cut, item.chunk,
                             threadIdx.x % threads, threads);
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

/* The rows of a pass of a slice, `first` the first of its expert's, to the warp's shared memory. */
__device__ __forceinline__ void stage_pass(const strata__few_down_args &args, const float *h,
                                           uint8_t *rows, uint32_t slice, uint32_t steps,
                                           uint32_t count, row_facts &facts)
{
#pragma unroll 1
    for (uint32_t n = 0; n < count; n += STAGED_ROWS)
        stage_rows(rows + n * ROW_BYTES, n, n + 1 < count, h, args.inputs, nullptr, slice, steps,
                   facts);
}

/* Hidden values of row `first` of an item's expert, and how many rows follow in its pass. */
__device__ __forceinline__ const float *rows_of_pass(const strata__few_down_args &args,
                                                     const routing &found, const work_item &item,
                                                     uint32_t first, uint32_t &count)
{
    uint32_t start = found.first[item.place] + first;
    count = min(found.first[item.place + 1] - start, args.pass_rows);
    return args.h + (uint64_t)start * args.inputs;
}

/*
 * Begins the copy of a group's first item and stages the first rows meanwhile; false where it has
 * none.
 */
template <int FORMAT>
__device__ __forceinline__ bool begin_first(const strata__few_down_args &args, const routing &found,
                                            const work_item &item, uint8_t *stage, uint8_t *rows,
                                            row_facts &facts)
{
    uint32_t threads = args.cut.warps * 32, thread = threadIdx.x % threads, slice = thread / 32;
    uint32_t steps = steps_of<FORMAT>(args.inputs, slice), count;
    if (item.place >= found.count) {
        copy_async_commit();
        return false;
    }
    const float *h = rows_of_pass(args, found, item, 0, count);
    weight_tile tile = tile_of_item(args, found, item);
    if (by_granules(tile, args.cut)) {
        granules pieces;
        pieces.load(tile, thread, threads);
        stage_pass(args, h, rows, slice, steps, count, facts);
        pieces.store(stage, tile, args.cut, threads);
        move_rest(stage, tile, args.cut, thread, threads);
        copy_async_commit();
    } else {
        copy_item<FORMAT>(args, found, item, stage);
        stage_pass(args, h, rows, slice, steps, count, facts);
    }
    return true;
}

/* Adds the product of the warp's slices of an item to the sums of its rows. */
template <int FORMAT>
__device__ __forceinline__ void
multiply_item(const strata__few_down_args &args, const routing &found, const work_item &item,
              uint8_t *rows, const uint8_t *stage, const unit_books<FORMAT> &books, bool staged,
              row_facts &facts)
{
    uint32_t warp = threadIdx.x / 32, warps = args.cut.warps;
    uint32_t all = found.first[item.place + 1] - found.first[item.place];
    weight_tile tile = tile_of_item(args, found, item);
    bool ready = false;
    for (uint32_t slice = item.chunk * args.cut.chunk + warp % warps;
         slice < chunk_end(args.cut, item.chunk); slice += warps)
        for (uint32_t first = 0; first < all; first += args.pass_rows) {
            uint32_t steps = steps_of<FORMAT>(args.inputs, slice), count;
            const float *h = rows_of_pass(args, found, item, first, count);
            float part[1][4] = {};
            if (!staged) {
                __syncwarp();
                stage_pass(args, h, rows, slice, steps, count, facts);
                __syncwarp();
            }
            staged = false;
            if (!ready) {
                copy_async_wait<1>();
                group_barrier(warp / warps, warps);
                ready = true;
            }
            row_pair own = staged_rows<FORMAT>(stage, tile, args.cut, item.chunk, slice);
            multiply_pass<FORMAT, 1>(part, {own.low}, {own.high}, books, rows, first, count, steps);
            leave_pass<FORMAT>(reinterpret_cast<float *>(rows + args.pass_rows * ROW_BYTES),
                               part[0], facts.scale, first, count, slice != warp % warps);
        }
    if (!ready) {
        copy_async_wait<1>();
        group_barrier(warp / warps, warps);
    }
}

/* Outputs of a row and its experts meet here: what was there, what each pair gives. */
struct outputs {
    float *before; /* [rows][TILE] */
    float *pairs;  /* [sorted row][TILE] */
};

/* The residual's values that are added to, on their way to shared memory meanwhile. */
__device__ __forceinline__ void copy_before(const strata__few_down_args &args, const outputs &out)
{
    for (uint32_t i = threadIdx.x; i < TILE * args.rows; i += blockDim.x) {
        uint32_t output = blockIdx.x * TILE + i % TILE;
        if (output < args.outputs)
            copy_async_4(&out.before[i], args.x + (uint64_t)(i / TILE) * args.outputs + output);
    }
}

/* The sums of an item's rows over its group's warps, which begin at `warps`. */
__device__ __forceinline__ void finish_item(const strata__few_down_args &args, const routing &found,
                                            const work_item &item, const uint8_t *warps,
                                            const outputs &out)
{
    uint32_t first = found.first[item.place], rows = found.first[item.place + 1] - first;
    uint32_t expert = found.expert[item.place], threads = args.cut.warps * 32;
    uint32_t bytes = warp_bytes(args.pass_rows, args.rows, 1);
    for (uint32_t i = threadIdx.x % threads; i < TILE * rows; i += threads) {
        const uint8_t *from = warps + args.pass_rows * ROW_BYTES + i * 4;
        uint32_t output = blockIdx.x * TILE + i % TILE;
        float y = 0.0f;
        for (uint32_t w = 0; w < args.cut.warps; w++)
            y += *reinterpret_cast<const float *>(from + w * bytes);
        if (args.bias && output < args.outputs)
            y += args.bias[(uint64_t)expert * args.outputs + output];
        out.pairs[first * TILE + i] = args.expert_scale ? y * args.expert_scale[expert] : y;
    }
}

/* Adds all of a row's experts, an output of a row by a thread. */
__device__ __forceinline__ void add_pairs(const strata__few_down_args &args, const routing &found,
                                          const outputs &out)
{
    for (uint32_t i = threadIdx.x; i < TILE * args.rows; i += blockDim.x) {
        uint32_t row = i / TILE, at = i % TILE, output = blockIdx.x * TILE + at;
        const uint32_t *sorted = found.sorted + row * args.top_k;
        const float *weight = found.weight + row * args.top_k;
        float sum = out.before[i];
        if (output >= args.outputs)
            continue;
#pragma unroll 8
        for (uint32_t j = 0; j < args.top_k; j++)
            sum = fmaf(args.alpha * weight[j], out.pairs[sorted[j] * TILE + at], sum);
        args.x[(uint64_t)row * args.outputs + output] = sum;
    }
}

/* Grid: tiles of the outputs. */
template <int FORMAT>
__global__ void __maxnreg__(FEW_REGISTERS)
    few_down(const __grid_constant__ strata__few_down_args args)
{
    extern __shared__ __align__(16) uint8_t memory[];
    __shared__ unit_books<FORMAT> books;
    __shared__ routing found;
    uint32_t warp = threadIdx.x / 32, warps = blockDim.x / 32, group = warp / args.cut.warps;
    uint32_t own_bytes = warp_bytes(args.pass_rows, args.rows, 1);
    uint8_t *rows = memory + warp * own_bytes, *of_group = memory + warps * own_bytes;
    uint8_t *stage = of_group + group * 2 * args.cut.stage_bytes;
    uint8_t *second = stage + args.cut.stage_bytes;
    outputs out;
    out.before = reinterpret_cast<float *>(of_group + args.at_once * 2 * args.cut.stage_bytes);
    out.pairs = out.before + TILE * args.rows;
    of_group = memory + group * args.cut.warps * own_bytes;
    let_next_start();
    const void *blob = blob_of(args, threadIdx.x);
    books.load();
    wait_for_earlier();
    copy_before(args, out);
    read_routing(args, blob, found);
    row_facts facts = {};
    work_item item = {group, 0}, ahead = item;
    bool staged = begin_first<FORMAT>(args, found, item, stage, rows, facts);
    ahead.advance(args);
    copy_item<FORMAT>(args, found, ahead, second);
    for (; item.place < found.count; item.advance(args)) {
        multiply_item<FORMAT>(args, found, item, rows, stage, books, staged, facts);
        staged = false;
        group_barrier(group, args.cut.warps);
        ahead.advance(args);
        copy_item<FORMAT>(args, found, ahead, stage);
        /* The next item's barrier comes before its sums. */
        if (item.chunk + 1 == args.cut.chunks)
            finish_item(args, found, item, of_group, out);
        uint8_t *done = stage;
        stage = second;
        second = done;
    }
    copy_async_wait<0>();
    __syncthreads();
    add_pairs(args, found, out);
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
    args->cut = cut_for(format, args->inputs, args->row_bytes, LIMITS);
    uint32_t stages = 2 * args->cut.stage_bytes;
    uint32_t outputs = (args->rows + args->rows * args->top_k) * TILE * 4;
    uint64_t room = state->shared_memory_bytes - SHARED_KEPT;
    room = (room < SHARED_MOST ? room : SHARED_MOST) - outputs;
    args->pass_rows = pass_rows_for(args->cut, args->rows, 1, stages, (uint32_t)room);
    uint32_t each = args->cut.warps * warp_bytes(args->pass_rows, args->rows, 1) + stages;
    uint32_t most = (uint32_t)room / each;
    uint32_t limits[] = {MAX_WARPS / args->cut.warps, MAX_GROUPS, args->rows * args->top_k};
    for (uint32_t limit : limits)
        most = limit < most ? limit : most;
    args->at_once = most;
    dim3 grid((args->outputs + TILE - 1) / TILE);
    return launch_overlapped(state, stream, kernel_of<entry>(format), grid,
                             most * args->cut.warps * 32, most * each + outputs, *args,
                             "multiplying down of few rows");
}
