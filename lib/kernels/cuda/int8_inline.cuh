/* SPDX-License-Identifier: MIT */
/*
 * The int8 product without an image: raw blocks of weights come to shared memory as they are, and a
 * lane decodes them to the fragments that tensor cores take. A tile is 64 activation rows of an
 * expert by ROWS weight rows; a warp has MTILES * 16 weight rows and all activation rows, so that
 * a weight is decoded once a tile.
 *
 * Activation rows are the columns of the fragments, eight a piece. A lane (r, c) decodes values 8 c
 * to 8 c + 7 of 32 of rows r and r + 8: any order of the values within a dot gives the same dot.
 * Paired, rows r + 8 are the up rows of the gate rows r, so that both results of an output meet in
 * one lane.
 */
#ifndef STRATA_KERNELS_CUDA_INT8_INLINE_CUH
#define STRATA_KERNELS_CUDA_INT8_INLINE_CUH

#include "kernels/cuda/int8_inline_out.cuh"
#include "kernels/cuda/int8_units.cuh"
#include "kernels/cuda/int8_work.cuh"

namespace
{

constexpr uint32_t TILE_ROWS = 8 * PIECES, PANEL = STRATA__INT8_K;

constexpr uint32_t greatest_divisor(uint32_t a, uint32_t b)
{
    return b ? greatest_divisor(b, a % b) : a;
}

/*
 * How weights of a format come: STAGE values of a row at a time, in granules that are aligned in
 * the matrix, of which a row's may begin in the midst of one.
 */
template <int FORMAT> struct inline_shape {
    static constexpr uint32_t VALUES = block_shape<FORMAT>::VALUES;
    static constexpr uint32_t STAGE = VALUES == 256 ? 256 : 128;
    static constexpr uint32_t PIECE = STAGE / VALUES * block_shape<FORMAT>::BYTES;
    static constexpr uint32_t GRANULE = VALUES == 256 ? 16 : 8;
    static constexpr uint32_t MOST_MISPLACED =
        GRANULE - greatest_divisor(block_shape<FORMAT>::BYTES, GRANULE);
    static constexpr bool PLACED = block_shape<FORMAT>::BYTES % GRANULE == 0;
    static constexpr uint32_t GRANULES = (PIECE + MOST_MISPLACED + GRANULE - 1) / GRANULE;
    static constexpr int MTILES = FORMAT == STRATA__Q6_K ? 1 : 2;
    /* Rows begin in other banks; where their heads are read whole, those eight apart as well. */
    static constexpr uint32_t PITCH = GRANULE * (GRANULES | 1);
    static constexpr uint32_t EIGHT_ROWS = 8 * PITCH + (VALUES == 256 && PLACED ? 2 * GRANULE : 0);
    static constexpr uint32_t WARP_BYTES = (2 * MTILES - 1) * EIGHT_ROWS + 8 * PITCH;
    static constexpr uint32_t WARP_ROWS = MTILES * 16, ROWS = WARPS * WARP_ROWS;
    static constexpr uint32_t OUTPUTS = ROWS / 2; /* of a paired tile */

    /* Two buffers each: activations, their scales and sums [32 values][row], weights. */
    static constexpr uint32_t CODE_BYTES = TILE_ROWS * PANEL;
    static constexpr uint32_t TERM_BYTES = PANEL / 32 * TILE_ROWS * 4;
    static constexpr uint32_t WEIGHT_BYTES = WARPS * WARP_BYTES;
    static constexpr uint32_t SCALES = 2 * CODE_BYTES, SUMS = SCALES + 2 * TERM_BYTES;
    static constexpr uint32_t WEIGHTS =
        SUMS + (int8_sum_of<FORMAT>::OFFSETS ? 2 * TERM_BYTES * int8_sum_of<FORMAT>::PARTS : 0);
    static constexpr uint32_t SLACK = 16; /* words are read in pairs */
    static constexpr uint32_t GATHER_PITCH = 2 * OUTPUTS + 4;
    static constexpr uint32_t STAGES_BYTES = WEIGHTS + 2 * WEIGHT_BYTES + SLACK;
    static constexpr uint32_t GATHER_BYTES = GATHERED_ROWS * GATHER_PITCH * 4;
    static constexpr uint32_t BYTES = STAGES_BYTES > GATHER_BYTES ? STAGES_BYTES : GATHER_BYTES;
};

/*
 * The thread, hidden from the compiler: what is derived from it is found anew each time, where it
 * would be kept in registers that spill.
 */
__device__ __forceinline__ uint32_t thread_anew()
{
    uint32_t thread = threadIdx.x;
    asm volatile("" : "+r"(thread));
    return thread;
}

/* Where the operands of a tile begin: in shared memory, since registers are scarce. */
struct inline_tile {
    work_tile work;
    const uint8_t *rows;
    const uint8_t *weights[2]; /* of gate and up, or of rows 0 ... and rows 8 ... */
    uint32_t row_bytes, codes; /* of a row, and of its codes */
    uint32_t step;             /* between rows of a lane in a matrix */
    uint32_t outputs;          /* from the first on */
    uint32_t aligned;          /* weights lie in whole granules */
};

/* By one thread. */
template <int FORMAT>
__device__ __forceinline__ void place_tile(const strata__int8_inline_args &args,
                                           const work_tile &work, inline_tile *tile)
{
    using shape = inline_shape<FORMAT>;
    const strata__int8_product_args &product = args.product;
    uint32_t expert = product.range.first_expert + work.expert;
    uint32_t first = work.column * (shape::ROWS / args.matrices);
    uint64_t weight_bytes = product.inputs / shape::VALUES * block_shape<FORMAT>::BYTES;
    tile->codes = codes_bytes(product.inputs);
    tile->row_bytes = tile->codes + 2 * scales_bytes(product.inputs);
    tile->work = work;
    if (work.rows == 0)
        return;
    const uint8_t *gate = static_cast<const uint8_t *>(args.matrix[0].blobs[expert]);
    const uint8_t *up = gate + 8 * weight_bytes;
    if (args.matrices == 2)
        up = static_cast<const uint8_t *>(args.matrix[1].blobs[expert]);
    tile->rows = product.rows + (uint64_t)work.first_row * tile->row_bytes;
    tile->weights[0] = gate + first * weight_bytes;
    tile->weights[1] = up + first * weight_bytes;
    tile->step = 16 / args.matrices;
    tile->outputs = product.outputs - first;
    tile->aligned =
        (reinterpret_cast<uintptr_t>(gate) | reinterpret_cast<uintptr_t>(up)) % shape::GRANULE == 0;
}

/* A panel of activations. */
template <int FORMAT>
__device__ __forceinline__ void load_rows(const inline_tile &tile, uint32_t inputs, uint32_t panel,
                                          uint8_t *memory)
{
    using shape = inline_shape<FORMAT>;
    uint32_t first = panel * PANEL, left = inputs - first, buffer = panel % 2;
    uint32_t row_bytes = tile.row_bytes, codes = tile.codes, rows = tile.work.rows;
    uint32_t r = threadIdx.x / 8, chunk = threadIdx.x % 8 * 16;
    uint32_t t = threadIdx.x % TILE_ROWS, part = threadIdx.x / TILE_ROWS;
    uint8_t *to = memory + buffer * shape::CODE_BYTES + r * PANEL +
                  (chunk ^ ((r & 3) * 2 + (r >> 2 & 1)) << 4);
    const uint8_t *from = tile.rows + (r * row_bytes + first + chunk);
    if (chunk < left && r < rows)
        copy_async_16(shared_address(to), from, true);
    if (chunk < left && r + THREADS / 8 < rows)
        copy_async_16(shared_address(to + shape::CODE_BYTES / 2), from + THREADS / 8 * row_bytes,
                      true);
    if (part * 32 < left && t < rows) {
        const uint8_t *terms = tile.rows + (t * row_bytes + codes + first / 8 + part * 4);
        to = memory + shape::SCALES + buffer * shape::TERM_BYTES + threadIdx.x * 4;
        copy_async_4(to, terms);
        if (int8_sum_of<FORMAT>::OFFSETS)
            copy_async_4(to + shape::SUMS - shape::SCALES, terms + (row_bytes - codes) / 2);
    }
}

/* The sums that a thread has copied, as floats; those of second halves stand behind the first. */
template <int FORMAT> __device__ __forceinline__ void convert_sums(uint32_t buffer, uint8_t *memory)
{
    using shape = inline_shape<FORMAT>;
    using sum = int8_sum_of<FORMAT>;
    if constexpr (sum::OFFSETS) {
        float *own = reinterpret_cast<float *>(memory + shape::SUMS + buffer * shape::TERM_BYTES) +
                     threadIdx.x;
        int halves = __float_as_int(*own);
        own[0] = (float)(sum::PARTS == 2 ? (short)halves : __dp2a_lo(halves, 0x0101, 0));
        if (sum::PARTS == 2)
            own[2 * shape::TERM_BYTES / 4] = (float)(halves >> 16);
    }
}

/* Bytes by which row `r` of eight is misplaced in a stage that begins at byte `at` of its rows. */
template <int FORMAT>
__device__ __forceinline__ uint32_t misplaced_by(uint32_t inputs, uint32_t r, uint32_t at)
{
    using shape = inline_shape<FORMAT>;
    uint32_t row_bytes = inputs / shape::VALUES * block_shape<FORMAT>::BYTES;
    if (shape::PLACED)
        return 0;
    return (r * row_bytes + at) % shape::GRANULE;
}

/*
 * Where one of eight rows lies. Half a warp reads the first four at once: with another row between
 * them, 32 bytes of each are in other banks.
 */
template <int FORMAT> __device__ __forceinline__ uint32_t place_of_row(uint32_t r)
{
    return (r % 4 * 2 + r / 4) * inline_shape<FORMAT>::PITCH;
}

/* A row's part of a stage, by four lanes; `bytes` of it are wanted, from `before` on. */
template <int FORMAT>
__device__ __forceinline__ void copy_row(uint8_t *to, const uint8_t *from, uint32_t own,
                                         uint32_t before, uint32_t bytes, bool aligned)
{
    using shape = inline_shape<FORMAT>;
    constexpr uint32_t G = shape::GRANULE;
#pragma unroll
    for (uint32_t at = 0; aligned && at < shape::GRANULES * G; at += 4 * G) {
        /* Stages of 256 values are whole. */
        if (shape::VALUES == 256 && at + 4 * G <= shape::PIECE)
            copy_async<G>(shared_address(to + own + at), from + own + at, G);
        else if (own + at < bytes)
            copy_async<G>(shared_address(to + own + at), from + own + at,
                          shape::PLACED ? G : min(G, bytes - at - own));
    }
    /* Of matrices that begin at odd addresses the same bytes, one by one. */
#pragma unroll 1
    for (uint32_t i = before; !aligned && own == 0 && i < bytes; i++)
        to[i] = from[i];
}

/*
 * A stage of weights, each warp its own: of eight rows at once, four lanes a row. Rows eight apart
 * are misplaced alike, since a row has an even number of bytes or granules are of eight.
 */
template <int FORMAT>
__device__ __forceinline__ void load_weights(const inline_tile &tile, uint32_t inputs,
                                             uint32_t stage, uint8_t *memory)
{
    using shape = inline_shape<FORMAT>;
    uint32_t thread = thread_anew();
    constexpr uint32_t BYTES = block_shape<FORMAT>::BYTES;
    uint32_t warp = thread / 32, r = thread % 32 / 4, at = stage * shape::PIECE;
    uint32_t row_bytes = inputs / shape::VALUES * BYTES;
    uint32_t before = misplaced_by<FORMAT>(inputs, r, at), bytes = before + shape::PIECE;
    if (shape::VALUES < 256)
        bytes = before + min(shape::PIECE, row_bytes - at);
    uint32_t step = tile.step, first = warp * shape::MTILES * step + r;
    uint32_t own = thread % 4 * shape::GRANULE;
    uint8_t *to = memory + shape::WEIGHTS + stage % 2 * shape::WEIGHT_BYTES +
                  warp * shape::WARP_BYTES + place_of_row<FORMAT>(r);
    auto copy_rows = [&](bool aligned) {
#pragma unroll
        for (uint32_t p = 0; p < 2 * shape::MTILES; p++) {
            uint32_t row = first + p / 2 * step;
            const uint8_t *from = tile.weights[p % 2] + ((uint64_t)row * row_bytes + at - before);
            if (row + p % 2 * (step - 8) < tile.outputs)
                copy_row<FORMAT>(to + p * shape::EIGHT_ROWS, from, own, before, bytes, aligned);
        }
    };
    if (tile.aligned)
        copy_rows(true);
    else
        copy_rows(false);
}

/* A lane's weights of 32 values, and what comes with them, of rows r and r + 8 of each tile. */
template <int FORMAT> struct fragments {
    static constexpr int MTILES = inline_shape<FORMAT>::MTILES;
    static constexpr int PARTS = int8_sum_of<FORMAT>::PARTS;
    uint32_t a[MTILES][4];
    float w[MTILES][2][PARTS], shift[MTILES][2], o[MTILES][2][PARTS];
};

/* Step `step` of the stage; `t`: terms of the row that the lane holds for its neighbours. */
template <int FORMAT>
__device__ __forceinline__ void decode_step(fragments<FORMAT> &f, const uint8_t *row, uint32_t step,
                                            const int8_terms<int8_sum_of<FORMAT>::PARTS> &t,
                                            const int8_books<FORMAT> &books)
{
    using sum = int8_sum_of<FORMAT>;
    constexpr uint32_t FAR = inline_shape<FORMAT>::EIGHT_ROWS;
    uint32_t c = threadIdx.x % 4;
#pragma unroll
    for (int p = 0; p < 2 * fragments<FORMAT>::MTILES; p++) {
        code8 v = int8_codes_of<FORMAT>(row, p * FAR, step, c, books);
        if (sum::D == 16) { /* the first half of the values to one dot, the rest to another */
            uint32_t other = __shfl_xor_sync(0xffffffffu, c < 2 ? v.high : v.low, 2);
            v = {c < 2 ? v.low : other, c < 2 ? other : v.high};
        }
        f.a[p / 2][p % 2] = v.low;
        f.a[p / 2][2 + p % 2] = v.high;
    }
#pragma unroll
    for (int p = 0; p < 2 * fragments<FORMAT>::MTILES; p++) {
#pragma unroll
        for (int d = 0; d < sum::PARTS; d++) {
            f.w[p / 2][p % 2][d] = __shfl_sync(0xffffffffu, t.w[d], p, 4);
            if (sum::OFFSETS)
                f.o[p / 2][p % 2][d] = __shfl_sync(0xffffffffu, t.o[d], p, 4);
        }
        f.shift[p / 2][p % 2] = __fmul_rn(f.w[p / 2][p % 2][0], -BIAS);
    }
}

/* What two activation rows of a piece bring: scales, sums of the values of each dot. */
template <int PARTS> struct row_terms {
    float2 scale, sum[PARTS];
};

template <int FORMAT, int PARTS>
__device__ __forceinline__ void load_terms(row_terms<PARTS> &t, const uint8_t *scales)
{
    using shape = inline_shape<FORMAT>;
    t.scale = *reinterpret_cast<const float2 *>(scales);
    if constexpr (int8_sum_of<FORMAT>::OFFSETS) {
#pragma unroll
        for (int d = 0; d < PARTS; d++)
            t.sum[d] = *reinterpret_cast<const float2 *>(scales + shape::SUMS - shape::SCALES +
                                                         d * 2 * shape::TERM_BYTES);
    }
}

/* What the dots of two rows of weights by two of activations add to the sums. */
template <int FORMAT>
__device__ __forceinline__ void
add_dots(float (&sums)[4], const int (&dots)[int8_sum_of<FORMAT>::PARTS][4],
         const fragments<FORMAT> &f, int i, const row_terms<int8_sum_of<FORMAT>::PARTS> &row)
{
    using sum = int8_sum_of<FORMAT>;
#pragma unroll
    for (int v = 0; v < 4; v++) {
        float t = 0.0f;
#pragma unroll
        for (int d = 0; d < sum::PARTS; d++) {
            float dot = __int_as_float(dots[d][v]), w = f.w[i][v / 2][d];
            if (d)
                t = __fmaf_rn(w, __fsub_rn(dot, BIAS), t);
            else if (sum::WIDE)
                t = __fmul_rn(w, __fsub_rn(dot, BIAS));
            else
                t = __fmaf_rn(w, dot, f.shift[i][v / 2]);
            if (sum::OFFSETS)
                t = __fmaf_rn(f.o[i][v / 2][d], v % 2 ? row.sum[d].y : row.sum[d].x, t);
        }
        sums[v] = __fmaf_rn(t, v % 2 ? row.scale.y : row.scale.x, sums[v]);
    }
}

/* Where a lane's first activations of a panel lie; those of 32 k are at this, xor k * 32. */
template <int FORMAT> __device__ __forceinline__ uint32_t place_of_codes(uint32_t buffer)
{
    uint32_t lane = threadIdx.x % 32, n = lane / 4, c = lane % 4;
    uint32_t half = n >> 2, at = n * PANEL + (n & 3) * 32;
    if (int8_sum_of<FORMAT>::D == 16) /* the word that meets the lane's of the first dot */
        at += half * 16 + (c % 2 * 2 + c / 2) * 4;
    else
        at += (c / 2 ^ half) * 16 + c % 2 * 8;
    return buffer * inline_shape<FORMAT>::CODE_BYTES + at;
}

template <int FORMAT>
__device__ __forceinline__ uint2 load_activations(const uint8_t *memory, uint32_t at,
                                                  const uint32_t far)
{
    if (int8_sum_of<FORMAT>::D == 16)
        return {*reinterpret_cast<const uint32_t *>(memory + at + far),
                *reinterpret_cast<const uint32_t *>(memory + (at ^ 16) + far)};
    return *reinterpret_cast<const uint2 *>(memory + at + far);
}

constexpr int GROUP = 4; /* pieces that are taken at once, or not */

/* GROUP pieces from `first` on; STEPS: of 32 values to a dot. */
template <int FORMAT, int STEPS>
__device__ __forceinline__ void
multiply_group(float (&sums)[inline_shape<FORMAT>::MTILES][PIECES][4],
               const fragments<FORMAT> (&f)[STEPS], const uint8_t *memory, uint32_t codes_at,
               uint32_t terms_at, const int first)
{
    using sum = int8_sum_of<FORMAT>;
#pragma unroll
    for (int j = first; j < first + GROUP; j++) {
        uint2 b[STEPS];
        row_terms<sum::PARTS> row;
#pragma unroll
        for (int s = 0; s < STEPS; s++)
            b[s] = load_activations<FORMAT>(memory, codes_at ^ s * 32, j * 8 * PANEL);
        load_terms<FORMAT>(row, memory + terms_at + j * 32);
#pragma unroll
        for (int i = 0; i < inline_shape<FORMAT>::MTILES; i++) {
            int dots[sum::PARTS][4];
            if (sum::D == 16) {
                multiply_16(dots[0], f[0].a[i][0], f[0].a[i][1], b[0].x);
                multiply_16(dots[sum::PARTS - 1], f[0].a[i][2], f[0].a[i][3], b[0].y);
            } else {
                multiply_32(dots[0], f[0].a[i], b[0].x, b[0].y);
                if (STEPS == 2)
                    multiply_32_more(dots[0], f[STEPS - 1].a[i], b[STEPS - 1].x, b[STEPS - 1].y);
            }
            add_dots<FORMAT>(sums[i][j], dots, f[0], i, row);
        }
    }
}

/*
 * A panel. `row`: the first of the lane's, `own`: the one whose terms it holds, `left`: values from
 * the panel's first on.
 */
template <int FORMAT>
__device__ __forceinline__ void
multiply_panel(float (&sums)[inline_shape<FORMAT>::MTILES][PIECES][4], const uint8_t *memory,
               const uint8_t *row, const uint8_t *own, uint32_t panel, uint32_t left, bool many,
               const int8_books<FORMAT> &books)
{
    using shape = inline_shape<FORMAT>;
    constexpr int STEPS = int8_sum_of<FORMAT>::D == 64 ? 2 : 1;
    uint32_t codes_at = place_of_codes<FORMAT>(panel % 2), step = panel * 4 % (shape::STAGE / 32);
    uint32_t terms_at = shape::SCALES + panel % 2 * shape::TERM_BYTES + threadIdx.x % 4 * 8;
    const int8_scales<FORMAT> scales(own, step);
#pragma unroll 1
    for (uint32_t k = 0; k < PANEL / 32; k += STEPS) {
        fragments<FORMAT> f[STEPS];
        if (shape::VALUES < 256 && k * 32 >= left)
            break;
        int8_terms<int8_sum_of<FORMAT>::PARTS> terms = scales.of(k);
#pragma unroll
        for (int s = 0; s < STEPS; s++)
            decode_step<FORMAT>(f[s], row, step + k + s, terms, books);
        multiply_group<FORMAT, STEPS>(sums, f, memory, codes_at ^ k * 32, terms_at, 0);
        if (many)
            multiply_group<FORMAT, STEPS>(sums, f, memory, codes_at ^ k * 32, terms_at, GROUP);
        terms_at += STEPS * TILE_ROWS * 4;
    }
}

/* The sums of a tile; weights are copied a stage ahead, activations a panel. */
template <int FORMAT>
__device__ __forceinline__ void
multiply_tile(const strata__int8_inline_args &args, const inline_tile &tile, uint8_t *memory,
              const int8_books<FORMAT> &books,
              float (&sums)[inline_shape<FORMAT>::MTILES][PIECES][4])
{
    using shape = inline_shape<FORMAT>;
    constexpr uint32_t HALVES = shape::STAGE / PANEL;
    uint32_t inputs = args.product.inputs;
    load_rows<FORMAT>(tile, inputs, 0, memory);
    load_weights<FORMAT>(tile, inputs, 0, memory);
    copy_async_commit();
    for (uint32_t panel = 0; panel * PANEL < inputs; panel++) {
        uint32_t left = inputs - panel * PANEL, stage = panel / HALVES, half = panel % HALVES;
        if (HALVES == 2 && half)
            copy_async_wait<1>();
        else
            copy_async_wait<0>();
        convert_sums<FORMAT>(panel % 2, memory);
        __syncthreads();
        if (left > PANEL)
            load_rows<FORMAT>(tile, inputs, panel + 1, memory);
        if (HALVES == 2)
            copy_async_commit();
        if (half == 0 && left > shape::STAGE)
            load_weights<FORMAT>(tile, inputs, stage + 1, memory);
        if (HALVES == 1 || half == 0)
            copy_async_commit();
        uint32_t warp = threadIdx.x / 32, r = threadIdx.x % 32 / 4;
        uint32_t own = threadIdx.x % (2 * shape::MTILES);
        const uint8_t *raw = memory + shape::WEIGHTS + stage % 2 * shape::WEIGHT_BYTES +
                             warp * shape::WARP_BYTES + place_of_row<FORMAT>(r) +
                             misplaced_by<FORMAT>(inputs, r, stage * shape::PIECE);
        multiply_panel<FORMAT>(sums, memory, raw, raw + own * shape::EIGHT_ROWS, panel, left,
                               tile.work.rows > 8 * GROUP, books);
    }
}

template <int FORMAT>
__global__ void __launch_bounds__(THREADS, 2)
    product_inline(const __grid_constant__ strata__int8_inline_args args, uint32_t columns)
{
    using shape = inline_shape<FORMAT>;
    extern __shared__ __align__(1024) uint8_t memory[];
    __shared__ int8_books<FORMAT> books;
    __shared__ work_list list;
    __shared__ work_tile next;
    __shared__ inline_tile tile;
    books.load();
    build_list<TILE_ROWS>(list, args.product.range);
    for (uint32_t index = blockIdx.x;; index += gridDim.x) {
        float sums[shape::MTILES][PIECES][4] = {};
        if (threadIdx.x < 32)
            find_work<TILE_ROWS>(list, args.product.range.experts, columns, index, &next);
        __syncthreads();
        if (threadIdx.x == 0)
            place_tile<FORMAT>(args, next, &tile);
        __syncthreads();
        if (tile.work.rows == 0)
            return;
        multiply_tile<FORMAT>(args, tile, memory, books, sums);
        if (args.matrices == 1) {
            store_tile<shape>(args.product, tile.work, sums);
            continue;
        }
        float *gathered = reinterpret_cast<float *>(memory);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            if (half * GATHERED_ROWS >= tile.work.rows)
                break;
            __syncthreads();
            gather_half<shape>(gathered, sums, half * (int)PIECES / 2);
            __syncthreads();
            quantise_half<shape>(args.product, tile.work, gathered, half * GATHERED_ROWS);
        }
    }
}

} /* namespace */

#endif
