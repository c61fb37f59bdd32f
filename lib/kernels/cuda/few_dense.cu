/* SPDX-License-Identifier: MIT */
/*
 * Dense products of few rows, several matrices of the same rows in a launch, with or without the
 * RMS norm before them: a thread block has all values of a row, so that it learns the row's mean
 * square on the way and divides at the end.
 */
#include "kernels/cuda/few.cuh"

namespace
{

/* Of weights, so that sums of sixteen rows and rows of float32 fit beside them in 99 KiB. */
constexpr uint32_t HALVES_LIMIT = 72 * 1024, FLOATS_LIMIT = 56 * 1024;

__device__ __forceinline__ const strata__few_part &part_of(const strata__few_dense_args &args,
                                                           uint32_t tile)
{
    uint32_t p = 0;
    while (p + 1 < args.parts && tile >= args.part[p + 1].first_tile)
        p++;
    return args.part[p];
}

/* What a block has in shared memory besides weights, in this order. */
__host__ __device__ __forceinline__ constexpr uint32_t sums_bytes(uint32_t warps, uint32_t rows)
{
    return warps * halves_of(rows) * SUMS * 4;
}

__host__ __device__ __forceinline__ constexpr uint32_t rows_bytes(uint32_t rows)
{
    return (rows < STAGED_ROWS ? rows : STAGED_ROWS) * ROW_BYTES;
}

/* What outputs take besides their sums, on its way to shared memory meanwhile. */
struct output_facts {
    float bias[TILE];
    float factor[2][STRATA__DIRECT_ROWS]; /* scales of `in`, and the part's row factors */
    float before[STRATA__DIRECT_ROWS * TILE];
};

template <int FORMAT, uint32_t DYNAMIC>
constexpr bool FITS = sizeof(unit_books<FORMAT>) + sizeof(output_facts) +
                          sizeof(weight_tile) + DYNAMIC
                      <= 99 * 1024;

__device__ __forceinline__ float inverse_rms(const strata__few_dense_args &args, const float *sums,
                                             uint32_t row)
{
    uint32_t halves = halves_of(args.rows);
    float squares = 0.0f;
    for (uint32_t w = 0; w < args.cut.warps; w++)
        squares += sums[(w * halves + row / COLUMNS) * SUMS + COLUMNS * TILE + row % COLUMNS];
    return 1.0f / sqrtf(squares / (float)args.inputs + args.eps);
}

/* Of those that there are, by the block's first threads: at least one warp. */
__device__ __forceinline__ void copy_facts(output_facts &facts, const strata__few_dense_args &args,
                                           const strata__few_part &part, uint32_t first)
{
    uint32_t i = threadIdx.x;
    if (part.bias && i < TILE && first + i < part.outputs)
        copy_async_4(&facts.bias[i], part.bias + first + i);
    if (args.in_scale && i < args.rows)
        copy_async_4(&facts.factor[0][i], args.in_scale + i);
    if (part.row_factor && i < args.rows)
        copy_async_4(&facts.factor[1][i], part.row_factor + i);
    if (part.mode == STRATA__DENSE_ADD_F32)
        for (; i < TILE * args.rows; i += blockDim.x)
            if (first + i % TILE < part.outputs)
                copy_async_4(&facts.before[i],
                             part.out + (uint64_t)(i / TILE) * part.out_stride + first + i % TILE);
}

/* All outputs of the tile: one of a row by a thread. */
__device__ __forceinline__ void store_tile(const strata__few_dense_args &args,
                                           const strata__few_part &part, const output_facts &facts,
                                           const float *sums, uint32_t first)
{
    uint32_t halves = halves_of(args.rows);
    for (uint32_t i = threadIdx.x; i < TILE * args.rows; i += blockDim.x) {
        uint32_t row = i / TILE, at = i % TILE, output = first + at;
        if (output >= part.outputs)
            continue;
        float y = 0.0f;
        for (uint32_t w = 0; w < args.cut.warps; w++)
            y += sums[(w * halves + row / COLUMNS) * SUMS + row % COLUMNS * TILE + at];
        if (!args.in)
            y *= inverse_rms(args, sums, row);
        else if (args.in_scale)
            y *= facts.factor[0][row];
        y = (y + (part.bias ? facts.bias[at] : 0.0f)) * part.alpha *
            (part.row_factor ? facts.factor[1][row] : 1.0f);
        float *out = part.out + (uint64_t)row * part.out_stride + output;
        *out = part.mode == STRATA__DENSE_ADD_F32 ? facts.before[i] + y : y;
    }
}

/* The values of up to eight rows of a slice, from halves or from float32. */
template <int FORMAT>
__device__ __forceinline__ row_facts load_rows(const strata__few_dense_args &args, uint32_t half,
                                               uint32_t slice, uint8_t *staging, uint4 (&b)[STEPS])
{
    uint32_t r = threadIdx.x % 32 / 4, first = half * COLUMNS;
    uint32_t count = min(COLUMNS, args.rows - first), steps = steps_of<FORMAT>(args.inputs, slice);
    if (args.in) {
        uint64_t start = (uint64_t)(first + min(r, count - 1)) * args.inputs;
        load_halves<FORMAT>(b, args.in + start, slice, steps, r < count);
        return {1.0f, 0.0f};
    }
    row_facts facts = {};
    clear(b);
    for (uint32_t n = 0; n < count; n += STAGED_ROWS) {
        bool both = n + 1 < count;
        stage_rows(staging, n, both, args.x + (uint64_t)first * args.inputs, args.inputs, args.gain,
                   slice, steps, facts);
        load_staged<FORMAT>(b, staging, both ? n + 1 : n);
    }
    return facts;
}

/* Grid: tiles of all parts. */
template <int FORMAT>
__global__ void __maxnreg__(FEW_REGISTERS)
    few_dense(const __grid_constant__ strata__few_dense_args args)
{
    constexpr uint32_t WARPS = STRATA__FEW_WARPS, ROWS = STRATA__DIRECT_ROWS;
    constexpr uint32_t SUMS_BYTES = sums_bytes(WARPS, ROWS), ROWS_BYTES = WARPS * rows_bytes(ROWS);
    static_assert(FITS<FORMAT, HALVES_LIMIT + SUMS_BYTES>, "halves fit");
    static_assert(FITS<FORMAT, FLOATS_LIMIT + SUMS_BYTES + ROWS_BYTES>, "float32 fits");
    extern __shared__ __align__(16) uint8_t memory[];
    __shared__ unit_books<FORMAT> books;
    __shared__ output_facts early;
    __shared__ weight_tile kept; /* there when the first chunk is, so that registers need not */
    const strata__few_part &part = part_of(args, blockIdx.x);
    uint32_t warp = threadIdx.x / 32, halves = halves_of(args.rows);
    float *sums = reinterpret_cast<float *>(memory);
    uint8_t *rows = memory + sums_bytes(args.cut.warps, args.rows);
    uint8_t *stages = rows + (args.in ? 0 : args.cut.warps * rows_bytes(args.rows));
    rows += warp * rows_bytes(args.rows);
    uint32_t first_tile = blockIdx.x - part.first_tile;
    weight_tile tile = tile_of(part.weights, args.row_bytes, part.outputs, first_tile);
    if (threadIdx.x == 0)
        kept = tile;
    let_next_start();
    for (uint32_t chunk = 0; chunk < 2; chunk++) {
        if (chunk < args.cut.chunks)
            copy_weights<FORMAT>(stages + chunk * args.cut.stage_bytes, tile, args.cut, chunk,
                                 threadIdx.x, blockDim.x);
        copy_async_commit();
    }
    books.load();
    if (!args.in)
        fetch_table(args.gain, args.inputs);
    wait_for_earlier();
    copy_facts(early, args, part, first_tile * TILE);
    for (uint32_t chunk = 0; chunk < args.cut.chunks; chunk++) {
        uint8_t *stage = stages + chunk % 2 * args.cut.stage_bytes;
        bool ready = false;
        for (uint32_t slice = chunk * args.cut.chunk + warp; slice < chunk_end(args.cut, chunk);
             slice += args.cut.warps)
#pragma unroll 1
            for (uint32_t half = 0; half < halves; half++) {
                uint4 b[STEPS];
                float sliced[1][4] = {};
                row_facts facts = load_rows<FORMAT>(args, half, slice, rows, b);
                if (!ready) {
                    copy_async_wait<1>();
                    __syncthreads();
                    ready = true;
                }
                row_pair own = staged_rows<FORMAT>(stage, kept, args.cut, chunk, slice);
                multiply_slice<FORMAT, 1>(sliced, {own.low}, {own.high}, books,
                                          kept_values<FORMAT>{b},
                                          steps_of<FORMAT>(args.inputs, slice));
                leave_slice(sums + (warp * halves + half) * SUMS, sliced[0], facts.scale,
                            facts.squares, slice != warp);
            }
        if (!ready) {
            copy_async_wait<1>();
            __syncthreads();
        }
        if (chunk + 2 < args.cut.chunks) {
            __syncthreads();
            copy_weights<FORMAT>(stage, kept, args.cut, chunk + 2, threadIdx.x, blockDim.x);
        }
        copy_async_commit();
    }
    copy_async_wait<0>();
    __syncthreads();
    store_tile(args, part, early, sums, first_tile * TILE);
}

template <int FORMAT> struct entry {
    static auto kernel()
    {
        return few_dense<FORMAT>;
    }
};

} /* namespace */

strata_status strata__few_dense_load(const strata__cuda_state *state)
{
    return load_kernels<entry>(state);
}

strata_status strata__few_dense(const strata__cuda_state *state, cudaStream_t stream,
                                uint32_t format, strata__few_dense_args *args)
{
    uint32_t tiles = 0, limit = args->in ? HALVES_LIMIT : FLOATS_LIMIT;
    args->row_bytes = row_bytes_of(format, args->inputs);
    args->cut =
        cut_for(format, args->inputs, args->row_bytes, {limit, limit / 2, STRATA__FEW_WARPS});
    for (uint32_t p = 0; p < args->parts; p++) {
        args->part[p].first_tile = tiles;
        tiles += (args->part[p].outputs + TILE - 1) / TILE;
    }
    uint32_t warps = args->cut.warps;
    uint32_t bytes = sums_bytes(warps, args->rows) +
                     (args->in ? 0 : warps * rows_bytes(args->rows)) +
                     (args->cut.chunks < 2 ? 1 : 2) * args->cut.stage_bytes;
    return launch_overlapped(state, stream, kernel_of<entry>(format), dim3(tiles), warps * 32,
                             bytes, *args, "multiplying few rows");
}
