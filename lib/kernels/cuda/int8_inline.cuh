/* SPDX-License-Identifier: MIT */
/*
 * The int8 product without an image: raw blocks of weights come to shared memory as they are, and
 * warps decode them there to the fragments that tensor cores take, a panel of 128 values at a time.
 * A warp multiplies MTILES * 16 weight rows with 64 activation rows; where a tile has 128 of these,
 * two warps share weight rows, of which each decodes half.
 *
 * Activation rows are the columns of the fragments, eight a piece. A lane (r, c) decodes eight of
 * 32 values of rows r and r + 8, those that lie together in its format's blocks, and puts them
 * where the lane that multiplies them looks. Paired, rows r + 8 are the up rows of the gate rows r,
 * so that both results of an output meet in one lane.
 */
#ifndef STRATA_KERNELS_CUDA_INT8_INLINE_CUH
#define STRATA_KERNELS_CUDA_INT8_INLINE_CUH

#include "kernels/cuda/int8_inline_copy.cuh"
#include "kernels/cuda/int8_inline_out.cuh"

namespace
{

/*
 * Where a warp's fragments lie: those of 16 weight rows and 32 values are, for each lane, the 16
 * bytes that it takes, behind them those of the next 16 rows, then the next 32 values. Scales and
 * offsets are in the same order, of rows r and r + 8 side by side.
 */
template <class shape> struct weight_place {
    uint32_t fragments, terms;

    __device__ __forceinline__ weight_place(uint32_t group)
        : fragments(shape::FRAGMENTS + group * shape::GROUP_FRAGMENTS),
          terms(shape::TERMS_OF_WEIGHTS +
                group * (STEPS_OF_PANEL * shape::MTILES * shape::WEIGHT_TERM_BYTES))
    {
    }
};

/* Where among a fragment's bytes a lane puts the codes that it has decoded. */
template <int FORMAT> __device__ __forceinline__ uint32_t place_in_fragment()
{
    uint32_t lane = threadIdx.x % 32, c = lane % 4;
    if (int8_split<FORMAT>::VALUE)
        return (lane - c + c / 2) * 16 + c % 2 * 8;
    if (int8_sum_of<FORMAT>::D == 16)
        return (lane - c + c % 2 * 2) * 16 + c / 2 * 8;
    return lane * 16;
}

/*
 * Codes of a lane, eight of row r and eight of row r + 8, to where lanes take them: all eight to
 * one lane, or four each to two where lanes take other values than they decode.
 */
template <int FORMAT>
__device__ __forceinline__ void store_codes(uint8_t *to, code8 first, code8 second)
{
    if constexpr (int8_sum_of<FORMAT>::D == 16 || int8_split<FORMAT>::VALUE) {
        *reinterpret_cast<uint2 *>(to) = {first.low, second.low};
        *reinterpret_cast<uint2 *>(to + (int8_split<FORMAT>::VALUE ? 32 : 16)) = {first.high,
                                                                                  second.high};
    } else {
        *reinterpret_cast<uint4 *>(to) = {first.low, second.low, first.high, second.high};
    }
}

/* Scales and offsets of a weight row and 32 values: PARTS scales, then the offsets. */
template <int FORMAT, class shape>
__device__ __forceinline__ void store_terms(uint8_t *to, const int8_terms<FORMAT> &t)
{
    using sum = int8_sum_of<FORMAT>;
    if constexpr (shape::WEIGHT_TERMS == 1)
        *reinterpret_cast<float *>(to) = t.w[0];
    else if constexpr (sum::OFFSETS == 2)
        *reinterpret_cast<float4 *>(to) = {t.w[0], t.o[0], t.o[1], 0.0f};
    else
        *reinterpret_cast<float2 *>(to) = {t.w[0], sum::OFFSETS ? t.o[0] : t.w[sum::PARTS - 1]};
}

/* Where a lane finds raw weights, and those whose terms it decodes, and where it puts all that. */
template <int FORMAT, class shape> struct decode_places {
    static constexpr int TILES = shape::MTILES / shape::ROW_WARPS;
    uint32_t codes, terms, codes_to, terms_to;

    __device__ __forceinline__ decode_places()
    {
        uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, row = lane % 16;
        uint32_t group = warp % shape::WEIGHT_WARPS, first = warp / shape::WEIGHT_WARPS * TILES;
        uint32_t rows = shape::WEIGHTS + group * shape::GROUP_BYTES + 2 * first * shape::EIGHT_ROWS;
        const weight_place<shape> place(group);
        codes = kept<shape>(rows + place_of_row<shape>(lane / 4));
        terms = kept<shape>(rows + row / 8 * shape::EIGHT_ROWS + place_of_row<shape>(row % 8));
        codes_to = kept<shape>(place.fragments + first * shape::FRAGMENT_BYTES +
                               place_in_fragment<FORMAT>());
        terms_to = kept<shape>(place.terms +
                               (lane / 16 * shape::MTILES + first) * shape::WEIGHT_TERM_BYTES +
                               (row % 8 * 2 + row / 8) * (4 * shape::WEIGHT_TERMS));
    }
};

/*
 * A warp's part of the panel's weights: all of its group, or, where two warps share one, 16 rows.
 * `at`: byte of a weight row where the stage begins; `step`: the panel's first of the stage.
 */
template <int FORMAT, class shape>
__device__ __forceinline__ void
decode_panel(uint8_t *memory, const decode_places<FORMAT, shape> &places, uint32_t weight_bytes,
             uint32_t at, uint32_t step, const int8_books<FORMAT> &books)
{
    constexpr uint32_t NEXT = 2 * shape::MTILES * shape::WEIGHT_TERM_BYTES;
    const code_tables<FORMAT> tables = books.tables;
    uint32_t lane = threadIdx.x % 32, c = lane % 4;
    const uint8_t *own = memory + places.codes + misplaced_by<shape>(weight_bytes, lane / 4, at);
    const uint8_t *row = memory + places.terms + misplaced_by<shape>(weight_bytes, lane % 8, at);
#pragma unroll
    for (int i = 0; i < places.TILES; i++) {
        const uint32_t first = 2 * i * shape::EIGHT_ROWS;
        code8 low[STEPS_OF_PANEL], high[STEPS_OF_PANEL];
        int8_terms<FORMAT> terms[STEPS_OF_PANEL / 2];
        const int8_scales<FORMAT> scales(row + first, step);
        const int8_factors<FORMAT> low_factors(own, first, step, c / 2);
        const int8_factors<FORMAT> high_factors(own, first + shape::EIGHT_ROWS, step, c / 2);
        /* All reads, then all writes: the compiler cannot know that they do not meet. */
#pragma unroll
        for (uint32_t k = 0; k < STEPS_OF_PANEL; k++) {
            low[k] =
                low_factors.times(int8_codes_of<FORMAT>(own, first, step, k, c, books, tables), k);
            high[k] = high_factors.times(
                int8_codes_of<FORMAT>(own, first + shape::EIGHT_ROWS, step, k, c, books, tables),
                k);
        }
#pragma unroll
        for (uint32_t n = 0; n < STEPS_OF_PANEL / 2; n++)
            terms[n] = scales.of(2 * n + lane / 16);
        uint8_t *codes_to = memory + places.codes_to + i * shape::FRAGMENT_BYTES;
        uint8_t *terms_to = memory + places.terms_to + i * shape::WEIGHT_TERM_BYTES;
#pragma unroll
        for (uint32_t k = 0; k < STEPS_OF_PANEL; k++)
            store_codes<FORMAT>(codes_to + k * shape::MTILES * shape::FRAGMENT_BYTES, low[k],
                                high[k]);
#pragma unroll
        for (uint32_t n = 0; n < STEPS_OF_PANEL / 2; n++)
            store_terms<FORMAT, shape>(terms_to + n * NEXT, terms[n]);
    }
}

/* A lane's weights of 32 values, and what comes with them, of rows r and r + 8 of each tile. */
template <int FORMAT, int MTILES> struct fragments {
    using sum = int8_sum_of<FORMAT>;
    uint32_t a[MTILES][4];
    float w[MTILES][2][sum::PARTS], shift[MTILES][2], o[MTILES][2][sum::SUMS];
};

template <int FORMAT, class shape>
__device__ __forceinline__ void load_fragments(fragments<FORMAT, shape::MTILES> &f,
                                               const uint8_t *memory,
                                               const weight_place<shape> &place, uint32_t k)
{
    using sum = int8_sum_of<FORMAT>;
    constexpr int TERMS = shape::WEIGHT_TERMS;
    uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < shape::MTILES; i++) {
        *reinterpret_cast<uint4 *>(f.a[i]) = *reinterpret_cast<const uint4 *>(
            memory + place.fragments + (k * shape::MTILES + i) * shape::FRAGMENT_BYTES + lane * 16);
        const uint8_t *from = memory + place.terms +
                              (k * shape::MTILES + i) * shape::WEIGHT_TERM_BYTES +
                              lane / 4 * (2 * 4 * TERMS);
        float t[2 * TERMS];
        if constexpr (TERMS == 1) {
            *reinterpret_cast<float2 *>(t) = *reinterpret_cast<const float2 *>(from);
        } else {
#pragma unroll
            for (int n = 0; n < 2 * TERMS; n += 4)
                *reinterpret_cast<float4 *>(t + n) =
                    *reinterpret_cast<const float4 *>(from + 4 * n);
        }
#pragma unroll
        for (int h = 0; h < 2; h++) {
#pragma unroll
            for (int d = 0; d < sum::PARTS; d++)
                f.w[i][h][d] = t[h * TERMS + d];
#pragma unroll
            for (int d = 0; d < sum::OFFSETS; d++)
                f.o[i][h][d] = t[h * TERMS + sum::PARTS + d];
            f.shift[i][h] = __fmul_rn(f.w[i][h][0], -BIAS);
        }
    }
}

/* What two activation rows of a piece bring: scales, sums of the values of each offset. */
template <int FORMAT> struct row_terms {
    float2 scale, sum[int8_sum_of<FORMAT>::SUMS];
};

template <class shape, int FORMAT>
__device__ __forceinline__ void load_terms(row_terms<FORMAT> &t, const uint8_t *terms)
{
    if constexpr (shape::JOINED) {
        const float4 *both = reinterpret_cast<const float4 *>(terms);
        t.scale = {both->x, both->z};
        t.sum[0] = {both->y, both->w};
    } else {
        t.scale = *reinterpret_cast<const float2 *>(terms);
#pragma unroll
        for (int d = 0; d < (int)shape::SUMS; d++)
            t.sum[d] = *reinterpret_cast<const float2 *>(terms + (d + 1) * shape::PLANE_BYTES);
    }
}

/* What the dots of two rows of weights by two of activations add to the sums. */
template <int FORMAT, int MTILES>
__device__ __forceinline__ void
add_dots(float (&sums)[4], const int (&dots)[int8_sum_of<FORMAT>::PARTS][4],
         const fragments<FORMAT, MTILES> &f, int i, const row_terms<FORMAT> &row)
{
    using sum = int8_sum_of<FORMAT>;
#pragma unroll
    for (int v = 0; v < 4; v++) {
        int own[sum::PARTS];
        float row_sums[sum::SUMS] = {};
#pragma unroll
        for (int d = 0; d < sum::PARTS; d++)
            own[d] = dots[d][v];
#pragma unroll
        for (int d = 0; d < sum::OFFSETS; d++)
            row_sums[d] = v % 2 ? row.sum[d].y : row.sum[d].x;
        sums[v] = with_dots<sum>(sums[v], own, f.w[i][v / 2], f.shift[i][v / 2], f.o[i][v / 2],
                                 row_sums, v % 2 ? row.scale.y : row.scale.x);
    }
}

/* Where a lane's first activations of a panel lie; those of 32 k are at this, xor k * 32. */
template <int FORMAT, class shape>
__device__ __forceinline__ uint32_t place_of_activations(uint32_t buffer, uint32_t first_row)
{
    uint32_t lane = threadIdx.x % 32, n = lane / 4, c = lane % 4;
    uint32_t half = n >> 2, at = n * PANEL + (n & 3) * 32;
    if (int8_sum_of<FORMAT>::D == 16) /* the word that meets the lane's of the first dot */
        at += half * 16 + c * 4;
    else
        at += (c / 2 ^ half) * 16 + c % 2 * 8;
    return shape::CODES + buffer * shape::CODE_BYTES + first_row * PANEL + at;
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
template <int FORMAT, class shape, int STEPS>
__device__ __forceinline__ void multiply_group(float (&sums)[shape::MTILES][PIECES][4],
                                               const fragments<FORMAT, shape::MTILES> (&f)[STEPS],
                                               const uint8_t *memory, uint32_t codes_at,
                                               uint32_t terms_at, const int first)
{
    using sum = int8_sum_of<FORMAT>;
#pragma unroll
    for (int j = first; j < first + GROUP; j++) {
        uint2 b[STEPS];
        row_terms<FORMAT> row;
#pragma unroll
        for (int s = 0; s < STEPS; s++)
            b[s] = load_activations<FORMAT>(memory, codes_at ^ s * 32, j * 8 * PANEL);
        load_terms<shape>(row, memory + terms_at + j * 8 * shape::TERM_PITCH);
#pragma unroll
        for (int i = 0; i < shape::MTILES; i++) {
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

/* What a warp multiplies: its part of the tile. */
struct warp_part {
    uint32_t group;     /* of weight rows */
    uint32_t first_row; /* of activations, of the tile */
    uint32_t rows;
};

template <class shape> __device__ __forceinline__ warp_part part_of_warp(uint32_t tile_rows)
{
    uint32_t warp = threadIdx.x / 32;
    uint32_t first = warp / shape::WEIGHT_WARPS * WARP_TILE_ROWS;
    return {warp % shape::WEIGHT_WARPS, first, tile_rows > first ? tile_rows - first : 0};
}

/* A panel of the warp's part of the tile; `left`: values from the panel's first on. */
template <int FORMAT, class shape>
__device__ __forceinline__ void
multiply_panel(float (&sums)[shape::MTILES][PIECES][4], const uint8_t *memory,
               const weight_place<shape> &place, const warp_part &part, uint32_t buffer,
               uint32_t left)
{
    constexpr int STEPS = shape::DOT_STEPS;
    uint32_t codes_at = place_of_activations<FORMAT, shape>(buffer, part.first_row);
    uint32_t terms_at = shape::TERMS + buffer * shape::TERM_BYTES +
                        (part.first_row + threadIdx.x % 4 * 2) * shape::TERM_PITCH;
#pragma unroll 1
    for (uint32_t k = 0; k < STEPS_OF_PANEL; k += STEPS) {
        fragments<FORMAT, shape::MTILES> f[STEPS];
        if (shape::VALUES < 256 && k * 32 >= left)
            break;
#pragma unroll
        for (int s = 0; s < STEPS; s++)
            load_fragments<FORMAT, shape>(f[s], memory, place, k + s);
        multiply_group<FORMAT, shape, STEPS>(sums, f, memory, codes_at ^ k * 32, terms_at, 0);
        if (part.rows > 8 * GROUP)
            multiply_group<FORMAT, shape, STEPS>(sums, f, memory, codes_at ^ k * 32, terms_at,
                                                 GROUP);
        terms_at += STEPS * shape::STEP_BYTES;
    }
}

/* Of the warps that share weight rows; what each has copied can be read by all. */
template <class shape> __device__ __forceinline__ void meet_in_group(uint32_t group)
{
    if constexpr (shape::ROW_WARPS == 1)
        __syncwarp();
    else
        asm volatile("bar.sync %0, %1;\n" ::"r"(group + 1), "n"(shape::ROW_WARPS * 32) : "memory");
}

/* The copies of a tile's first panel. */
template <class shape>
__device__ __forceinline__ void begin_tile(uint32_t inputs, const inline_tile &tile,
                                           uint8_t *memory)
{
    copy_rows<shape>(find_rows<shape>(tile, 0, inputs), 0, row_places<shape>(memory));
    copy_weights<shape>(find_weights<shape>(tile, 0), memory);
    copy_async_commit();
}

/*
 * The sums of a tile that has begun. Panel after panel, weights are decoded, the next panel's
 * copies begin, and what has been decoded is multiplied.
 */
template <int FORMAT, class shape>
__device__ __forceinline__ void multiply_tile(uint32_t inputs, const inline_tile &tile,
                                              uint8_t *memory, const int8_books<FORMAT> &books,
                                              float (&sums)[shape::MTILES][PIECES][4])
{
    constexpr uint32_t HALVES = shape::STAGE / PANEL;
    const row_places<shape> row_to(memory);
    const convert_places<shape> convert;
    const decode_places<FORMAT, shape> decode;
    for (uint32_t panel = 0; panel * PANEL < inputs; panel++) {
        uint32_t left = inputs - panel * PANEL, stage = panel / HALVES, half = panel % HALVES;
        warp_part part = part_of_warp<shape>(tile.work.rows);
        weight_place<shape> place(part.group);
        uint32_t weight_bytes = tile.weight_bytes;
        copy_async_wait<0>();
        convert_terms<shape>(panel % 2, convert, memory);
        meet_in_group<shape>(part.group);
        decode_panel<FORMAT, shape>(memory, decode, weight_bytes, stage * shape::PIECE,
                                    half * STEPS_OF_PANEL, books);
        row_copies rows = find_rows<shape>(tile, (panel + 1) * PANEL, left - PANEL);
        weight_copies weights = find_weights<shape>(tile, stage + 1);
        __syncthreads();
        if (left > PANEL) {
            copy_rows<shape>(rows, (panel + 1) % 2, row_to);
            if (half == HALVES - 1)
                copy_weights<shape>(weights, memory);
        }
        copy_async_commit();
        if (part.rows)
            multiply_panel<FORMAT, shape>(sums, memory, place, part, panel % 2, left);
    }
}

/* What becomes of the sums, while the next tile's first copies arrive. */
template <class shape>
__device__ __forceinline__ void finish_tile(const strata__int8_inline_args &args,
                                            const work_tile &tile, uint8_t *memory,
                                            float (&sums)[shape::MTILES][PIECES][4])
{
    float *gathered = reinterpret_cast<float *>(memory + shape::GATHERED);
    if (args.matrices == 1) {
        store_tile<shape>(args.product, tile, sums);
        return;
    }
    activate_tile<shape>(args.product, tile, sums);
    gather_tile<shape>(gathered, sums);
    __syncthreads();
    quantise_tile<shape>(args.product, tile, gathered);
}

template <int FORMAT, uint32_t ROW_WARPS>
__global__ void __launch_bounds__(THREADS, 2)
    product_inline(const __grid_constant__ strata__int8_inline_args args, uint32_t columns)
{
    using shape = inline_shape<FORMAT, ROW_WARPS>;
    extern __shared__ __align__(1024) uint8_t memory[];
    __shared__ int8_books<FORMAT> books;
    __shared__ work_list list;
    __shared__ inline_tile tiles[2]; /* the one that is multiplied, and the next */
    static_assert(ROW_WARPS == 1 || shape::BYTES + sizeof books + sizeof list + sizeof tiles <=
                                        STRATA__SHARED_LIMIT,
                  "tiles of 128 rows must fit every supported device");
    uint32_t inputs = args.product.inputs;
    auto find_tile = [&](uint32_t index, inline_tile *tile) {
        work_tile work;
        if (threadIdx.x < 32 &&
            find_work<shape::TILE_ROWS>(list, args.product.range.experts, columns, index, &work))
            place_tile<FORMAT, shape>(args, work, tile);
    };
    books.load();
    build_list<shape::TILE_ROWS>(list, args.product.range);
    find_tile(blockIdx.x, &tiles[0]);
    __syncthreads();
    if (tiles[0].work.rows)
        begin_tile<shape>(inputs, tiles[0], memory);
    for (uint32_t n = 0; tiles[n % 2].work.rows; n++) {
        const inline_tile &tile = tiles[n % 2], &next = tiles[(n + 1) % 2];
        float sums[shape::MTILES][PIECES][4] = {};
        find_tile(tile.work.index + gridDim.x, &tiles[(n + 1) % 2]);
        multiply_tile<FORMAT, shape>(inputs, tile, memory, books, sums);
        __syncthreads();
        if (next.work.rows)
            begin_tile<shape>(inputs, next, memory);
        finish_tile<shape>(args, tile.work, memory, sums);
        __syncthreads();
    }
}

} /* namespace */

#endif
