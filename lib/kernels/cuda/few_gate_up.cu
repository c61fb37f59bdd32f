/* SPDX-License-Identifier: MIT */
/*
 * Gate and up of the routed experts: a thread block takes 16 outputs of both for all rows of an
 * expert and applies the activation. The blocks behind a sorted pair of row and expert work if the
 * pair is its expert's first, so that the grid needs no counts.
 */
#include "kernels/cuda/few.cuh"

namespace
{

/* Of a matrix's weights, so that all fits in 99 KiB with both and with what is KEPT free. */
constexpr strata__few_limits LIMITS = {24 * 1024, 12 * 1024, 8};
constexpr uint32_t SHARED_KEPT = 20 * 1024;

struct found_expert {
    uint32_t expert, rows; /* rows 0: the block has nothing to do */
    weight_tile gate, up;
    float scale[STRATA__DIRECT_ROWS]; /* of activation rows, where these have scales */
};

/* What a thread reads of an expert. */
struct own_expert {
    const void *gate, *up;
    uint32_t first, end; /* sorted rows */

    /* Tables are there before earlier kernels have run. */
    __device__ __forceinline__ void load_blobs(const strata__few_gate_up_args &args, uint32_t e)
    {
        gate = e < args.experts ? args.blobs[0][e] : nullptr;
        up = e < args.experts ? args.blobs[1][e] : nullptr;
    }

    __device__ __forceinline__ void load_rows(const strata__few_gate_up_args &args, uint32_t e)
    {
        first = e < args.experts ? args.offsets[e] : 0;
        end = e < args.experts ? args.offsets[e + 1] : 0;
    }
};

/*
 * The expert whose first sorted row is `pair`; all threads of the block, the first of which has set
 * the rows to 0 before an earlier barrier. `own` is the expert of the thread's number.
 */
__device__ __forceinline__ void find_expert(const strata__few_gate_up_args &args, uint32_t pair,
                                            own_expert own, found_expert &found)
{
    for (uint32_t e = threadIdx.x; e < args.experts; e += blockDim.x) {
        if (e >= blockDim.x) {
            own.load_blobs(args, e);
            own.load_rows(args, e);
        }
        if (own.first == pair && own.first < own.end) {
            found.expert = e;
            found.rows = own.end - own.first;
            found.gate = tile_of(own.gate, args.row_bytes, args.outputs, blockIdx.x);
            found.up = tile_of(own.up, args.row_bytes, args.outputs, blockIdx.x);
        }
    }
    __syncthreads();
}

/* A warp's sums of a matrix. */
__device__ __forceinline__ float *sums_of(const strata__few_gate_up_args &args, uint8_t *memory,
                                          uint32_t warp, uint32_t matrix)
{
    uint32_t at = (warp + 1) * warp_bytes(args.pass_rows, args.rows, 2);
    return reinterpret_cast<float *>(memory + at) - (2 - matrix) * args.rows * TILE;
}

/* Over all warps, whose sums are loaded side by side. */
__device__ __forceinline__ float sum_of(const strata__few_gate_up_args &args, uint8_t *memory,
                                        uint32_t matrix, uint32_t row, uint32_t at)
{
    const float *from = sums_of(args, memory, 0, matrix) + row * TILE + at;
    uint32_t stride = warp_bytes(args.pass_rows, args.rows, 2) / 4;
    float y = 0.0f;
#pragma unroll
    for (uint32_t w = 0; w < LIMITS.warps; w++)
        if (w < args.cut.warps)
            y += from[w * stride];
    return y;
}

/* Activation row of a sorted row. */
__device__ __forceinline__ uint32_t row_of(const strata__few_gate_up_args &args, uint32_t sorted)
{
    return args.rows > 1 ? args.sorted_row[sorted] : 0;
}

/* The scales of the expert's rows, on their way to shared memory meanwhile. */
__device__ __forceinline__ void copy_scales(const strata__few_gate_up_args &args, uint32_t pair,
                                            found_expert &found)
{
    uint32_t n = threadIdx.x;
    if (args.in_scale && n < found.rows)
        copy_async_4(&found.scale[n], args.in_scale + row_of(args, pair + n));
}

/* A row by a warp: half of its threads have gate of an output each, the other half up. */
__device__ __forceinline__ void store_tile(const strata__few_gate_up_args &args, uint8_t *memory,
                                           const found_expert &found, uint32_t pair, uint32_t first)
{
    static_assert(2 * TILE == 32, "a warp has both of a row's tile");
    uint32_t matrix = threadIdx.x / TILE % 2, at = threadIdx.x % TILE, output = first + at;
    uint64_t bias = (uint64_t)found.expert * args.outputs + output;
    bool valid = output < args.outputs;
    for (uint32_t i = threadIdx.x; i < 32 * found.rows; i += blockDim.x) {
        uint32_t row = i / 32;
        float scale = args.in_scale ? found.scale[row] : 1.0f;
        float own = sum_of(args, memory, matrix, row, at) * scale;
        own += args.bias[matrix] && valid ? args.bias[matrix][bias] : 0.0f;
        float up = __shfl_down_sync(0xffffffffu, own, TILE);
        if (matrix == 0 && valid)
            args.h[(uint64_t)(pair + row) * args.outputs + output] =
                activate(args.activation, own, up);
    }
}

/* Begins the copy of a chunk of both matrices, by all threads. */
template <int FORMAT>
__device__ __forceinline__ void copy_both(const strata__few_gate_up_args &args, uint8_t *stage,
                                          const weight_tile &gate, const weight_tile &up,
                                          uint32_t chunk)
{
    if (chunk < args.cut.chunks) {
        copy_weights<FORMAT>(stage, gate, args.cut, chunk, threadIdx.x, blockDim.x);
        copy_weights<FORMAT>(stage + args.cut.stage_bytes, up, args.cut, chunk, threadIdx.x,
                             blockDim.x);
    }
    copy_async_commit();
}

/* Begins the copies of the first two chunks. `meanwhile` is done while they are under way. */
template <int FORMAT, typename DO>
__device__ __forceinline__ void begin_copies(const strata__few_gate_up_args &args, uint8_t *stages,
                                             const weight_tile &gate, const weight_tile &up,
                                             DO meanwhile)
{
    if (by_granules(gate, args.cut) && by_granules(up, args.cut)) {
        uint8_t *second = stages + args.cut.stage_bytes;
        granules of_gate, of_up;
        of_gate.load(gate, threadIdx.x, blockDim.x);
        of_up.load(up, threadIdx.x, blockDim.x);
        meanwhile();
        of_gate.store(stages, gate, args.cut, blockDim.x);
        of_up.store(second, up, args.cut, blockDim.x);
        move_rest(stages, gate, args.cut, threadIdx.x, blockDim.x);
        move_rest(second, up, args.cut, threadIdx.x, blockDim.x);
    } else {
        copy_both<FORMAT>(args, stages, gate, up, 0);
        copy_both<FORMAT>(args, stages + 2 * args.cut.stage_bytes, gate, up, 1);
        meanwhile();
    }
}

/* This lane's values of a slice of the activation rows of a pass, on their way to shared memory. */
template <int FORMAT> struct pass_halves {
    static constexpr uint32_t MOST = unit_form<FORMAT>::SIGNED ? SIGNED_PASS_ROWS : PASS_ROWS;
    uint4 v[MOST];

    /* Of sorted rows [first, first + count). */
    __device__ __forceinline__ void load(const strata__few_gate_up_args &args, uint32_t first,
                                         uint32_t count, uint32_t slice)
    {
        uint32_t at = slice * SLICE + threadIdx.x % 32 * 8;
        if (at >= args.inputs)
            return;
#pragma unroll
        for (uint32_t n = 0; n < MOST; n++)
            if (n < count) {
                uint64_t row = row_of(args, first + n);
                v[n] = *reinterpret_cast<const uint4 *>(args.in + row * args.inputs + at);
            }
    }

    __device__ __forceinline__ void store(const strata__few_gate_up_args &args, uint8_t *rows,
                                          uint32_t count, uint32_t slice) const
    {
        uint32_t lane = threadIdx.x % 32;
        if (slice * SLICE + lane * 8 >= args.inputs)
            return;
#pragma unroll
        for (uint32_t n = 0; n < MOST; n++)
            if (n < count)
                *reinterpret_cast<uint4 *>(rows + n * ROW_BYTES + lane * 16) = v[n];
    }
};

/* A slice of both matrices by the staged rows of a pass, to the warp's sums. */
template <int FORMAT>
__device__ __forceinline__ void
multiply_both(const strata__few_gate_up_args &args, const found_expert &found, uint8_t *memory,
              const uint8_t *stage, const unit_books<FORMAT> &books, const uint8_t *rows,
              uint32_t chunk, uint32_t slice, uint32_t first, uint32_t count)
{
    uint32_t warp = threadIdx.x / 32, steps = steps_of<FORMAT>(args.inputs, slice);
    const uint8_t *second = stage + args.cut.stage_bytes;
    bool more = slice != warp;
    if constexpr (block_shape<FORMAT>::VALUES < SLICE) {
        row_pair gate = staged_rows<FORMAT>(stage, found.gate, args.cut, chunk, slice);
        row_pair up = staged_rows<FORMAT>(second, found.up, args.cut, chunk, slice);
        float part[2][4] = {};
        multiply_pass<FORMAT, 2>(part, {gate.low, up.low}, {gate.high, up.high}, books, rows, first,
                                 count, steps);
        for (uint32_t m = 0; m < 2; m++)
            leave_pass<FORMAT>(sums_of(args, memory, warp, m), part[m], 1.0f, first, count, more);
    } else {
        /* One after the other: registers are too few for both. */
#pragma unroll
        for (uint32_t m = 0; m < 2; m++) {
            row_pair own = staged_rows<FORMAT>(
                m == 0 ? stage : second, m == 0 ? found.gate : found.up, args.cut, chunk, slice);
            float part[1][4] = {};
            multiply_pass<FORMAT, 1>(part, {own.low}, {own.high}, books, rows, first, count, steps);
            leave_pass<FORMAT>(sums_of(args, memory, warp, m), part[0], 1.0f, first, count, more);
        }
    }
}

/* Four blocks share a multiprocessor where a format's registers suffice for that. */
template <int FORMAT>
constexpr uint32_t REGISTERS =
    FORMAT == STRATA__IQ2_XXS || FORMAT == STRATA__IQ2_XS || FORMAT == STRATA__IQ3_S
        ? 64
        : FEW_REGISTERS;

/* Grid: tiles, pairs. */
template <int FORMAT>
__global__ void __maxnreg__(REGISTERS<FORMAT>)
    few_gate_up(const __grid_constant__ strata__few_gate_up_args args)
{
    extern __shared__ __align__(16) uint8_t memory[];
    __shared__ unit_books<FORMAT> books;
    __shared__ found_expert found;
    uint32_t warp = threadIdx.x / 32, pair = blockIdx.y;
    uint32_t own_bytes = warp_bytes(args.pass_rows, args.rows, 2);
    uint8_t *rows = memory + warp * own_bytes, *stages = memory + args.cut.warps * own_bytes;
    let_next_start();
    own_expert mine;
    mine.load_blobs(args, threadIdx.x);
    if (threadIdx.x == 0)
        found.rows = 0;
    books.load();
    __syncthreads();
    wait_for_earlier();
    mine.load_rows(args, threadIdx.x);
    /* Before it is known how many of these rows are the expert's, where registers hold them. */
    constexpr bool EARLY = pass_halves<FORMAT>::MOST <= 2;
    pass_halves<FORMAT> halves;
    if (EARLY)
        halves.load(args, pair, min(gridDim.y - pair, args.pass_rows), warp);
    find_expert(args, pair, mine, found);
    uint32_t count = found.rows;
    if (count == 0)
        return;
    copy_scales(args, pair, found);
    begin_copies<FORMAT>(args, stages, found.gate, found.up, [&] {
        if (!EARLY)
            halves.load(args, pair, min(count, args.pass_rows), warp);
        halves.store(args, rows, min(count, args.pass_rows), warp);
    });
    bool staged = true;
    for (uint32_t chunk = 0; chunk < args.cut.chunks; chunk++) {
        uint8_t *stage = stages + chunk % 2 * 2 * args.cut.stage_bytes;
        copy_async_wait<1>();
        __syncthreads();
        for (uint32_t slice = chunk * args.cut.chunk + warp; slice < chunk_end(args.cut, chunk);
             slice += args.cut.warps)
            for (uint32_t first = 0; first < count; first += args.pass_rows) {
                uint32_t own = min(count - first, args.pass_rows);
                if (!staged) {
                    __syncwarp();
                    pass_halves<FORMAT> next;
                    next.load(args, pair + first, own, slice);
                    next.store(args, rows, own, slice);
                    __syncwarp();
                }
                staged = false;
                multiply_both<FORMAT>(args, found, memory, stage, books, rows, chunk, slice, first,
                                      own);
            }
        if (chunk + 2 < args.cut.chunks)
            __syncthreads();
        copy_both<FORMAT>(args, stage, found.gate, found.up, chunk + 2);
    }
    copy_async_wait<0>();
    __syncthreads();
    store_tile(args, memory, found, pair, blockIdx.x * TILE);
}

template <int FORMAT> struct entry {
    static auto kernel()
    {
        return few_gate_up<FORMAT>;
    }
};

} /* namespace */

strata_status strata__few_gate_up_load(const strata__cuda_state *state)
{
    return load_kernels<entry>(state);
}

strata_status strata__few_gate_up(const strata__cuda_state *state, cudaStream_t stream,
                                  uint32_t format, uint32_t pairs, strata__few_gate_up_args *args)
{
    args->row_bytes = row_bytes_of(format, args->inputs);
    args->cut = cut_for(format, args->inputs, args->row_bytes, LIMITS);
    uint32_t warps = args->cut.warps;
    uint32_t stages = 2 * (args->cut.chunks < 2 ? 1 : 2) * args->cut.stage_bytes;
    uint32_t room = (uint32_t)state->shared_memory_bytes - SHARED_KEPT;
    args->pass_rows = pass_rows_for(args->cut, args->rows, 2, stages, room);
    uint32_t bytes = warps * warp_bytes(args->pass_rows, args->rows, 2) + stages;
    dim3 grid((args->outputs + TILE - 1) / TILE, pairs);
    return launch_overlapped(state, stream, kernel_of<entry>(format), grid, warps * 32, bytes,
                             *args, "multiplying gate and up of few rows");
}
