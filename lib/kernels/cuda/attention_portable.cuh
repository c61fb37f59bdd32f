/* SPDX-License-Identifier: MIT */
/*
 * Attention with the instructions of sm_80, after FlashAttention-2 (Dao, 2023): scores stay in
 * registers, the softmax is online, K and V pass through shared memory in blocks of 64 keys.
 *
 * Two shapes with the same arithmetic, hence the same bits:
 *   wide    a warp owns 16 or 32 packed rows and works on all keys and all output columns
 *   narrow  16 packed rows a thread block: warps share the keys of the scores, then the columns;
 *           with split_keys a thread block works on one span of the keys only
 */
#ifndef STRATA_KERNELS_CUDA_ATTENTION_PORTABLE_CUH
#define STRATA_KERNELS_CUDA_ATTENTION_PORTABLE_CUH

#include "attention_partials.cuh"
#include "attention_rows.cuh"
#include "attention_softmax.cuh"
#include "attention_stream.cuh"
#include "launch.cuh"

enum { PORTABLE_WARPS = 4, PORTABLE_THREADS = 128, NARROW_ROWS = 16, SCORE_PITCH = BLOCK_KEYS + 8 };

/* Slots of the ring, so that a block stays within 99 KB and, where it can, two fit together. */
template <int FORMAT, int HD, int MT> static __host__ __device__ constexpr int wide_slots()
{
    return FORMAT == STRATA__KV_F32 ? (HD == 256 ? 0 : 1)
           : HD == 256              ? 2
           : MT == 2 || HD == 64    ? 3
                                    : 2;
}

template <int FORMAT, int HD> static __host__ __device__ constexpr int narrow_slots()
{
    return FORMAT == STRATA__KV_F32   ? (HD == 256 ? 0 : 2)
           : FORMAT == STRATA__KV_F16 ? (HD == 256   ? 2
                                         : HD == 128 ? 5
                                                     : 6)
                                      : (HD == 256 ? 3 : 6);
}

template <int FORMAT, int HD, int MT> static __host__ __device__ constexpr int wide_bytes()
{
    return PORTABLE_WARPS * MT * 16 * HD * 2 +
           stream_bytes<FORMAT, HD, wide_slots<FORMAT, HD, MT>()>();
}

template <int FORMAT, int HD> static __host__ __device__ constexpr int narrow_bytes()
{
    return NARROW_ROWS * SCORE_PITCH * 4 + stream_bytes<FORMAT, HD, narrow_slots<FORMAT, HD>()>();
}

/* Heavy tiles first: the last rows of a segment see the most keys. */
static __device__ __forceinline__ bool
place_tile(row_tile &tile, const strata__attention_args &args, uint32_t tile_rows)
{
    uint32_t tiles = gridDim.x / args.kv.kv_heads;
    return tile.place(args, tiles - 1 - blockIdx.x / args.kv.kv_heads,
                      blockIdx.x % args.kv.kv_heads, args.segments[blockIdx.y], tile_rows,
                      BLOCK_KEYS);
}

template <int HD>
static __device__ __forceinline__ void copy_queries(const strata__attention_args &args,
                                                    const row_tile &tile, int rows, uint32_t target)
{
    const __half *q = (const __half *)args.q.data;
    for (int at = threadIdx.x; at < rows * (HD / 8); at += PORTABLE_THREADS) {
        int r = at / (HD / 8), c = at % (HD / 8);
        bool valid = tile.has(r);
        const __half *source = valid ? q + tile.value_index(args, r) + c * 8 : q;
        copy_async_16(target + tile_offset<HD>(r, c), source, valid);
    }
}

/* s[m] = q rows of m-tile `m` of the warp times the block's keys */
template <int HD, int MT>
static __device__ __forceinline__ void wide_scores(float (&s)[MT][8][4], uint32_t q, int warp_row,
                                                   uint32_t k)
{
    int lane = threadIdx.x & 31;
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int n = 0; n < 8; n++)
            s[m][n][0] = s[m][n][1] = s[m][n][2] = s[m][n][3] = 0.0f;
#pragma unroll
    for (int step = 0; step < HD / 16; step++) {
        uint32_t a[MT][4];
#pragma unroll
        for (int m = 0; m < MT; m++)
            load_matrix_x4(
                a[m], q + tile_offset<HD>(warp_row + m * 16 + (lane & 15), step * 2 + (lane >> 4)));
#pragma unroll
        for (int n = 0; n < 4; n++) {
            uint32_t b[4];
            int row = n * 16 + (lane & 7) + ((lane >> 4) << 3);
            load_matrix_x4(b, k + tile_offset<HD>(row, step * 2 + ((lane >> 3) & 1)));
#pragma unroll
            for (int m = 0; m < MT; m++) {
                multiply_16x8x16(s[m][2 * n], a[m], b[0], b[1]);
                multiply_16x8x16(s[m][2 * n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

/* o[m] += probabilities (rounded to half) times the block's values */
template <int HD, int MT>
static __device__ __forceinline__ void wide_values(float (&o)[MT][HD / 8][4],
                                                   const float (&p)[MT][8][4], uint32_t v)
{
    int lane = threadIdx.x & 31;
#pragma unroll
    for (int step = 0; step < BLOCK_KEYS / 16; step++) {
        uint32_t a[MT][4];
#pragma unroll
        for (int m = 0; m < MT; m++) {
            a[m][0] = pack_half2(p[m][2 * step][0], p[m][2 * step][1]);
            a[m][1] = pack_half2(p[m][2 * step][2], p[m][2 * step][3]);
            a[m][2] = pack_half2(p[m][2 * step + 1][0], p[m][2 * step + 1][1]);
            a[m][3] = pack_half2(p[m][2 * step + 1][2], p[m][2 * step + 1][3]);
        }
#pragma unroll
        for (int n = 0; n < HD / 16; n++) {
            uint32_t b[4];
            load_matrix_x4_transposed(
                b, v + tile_offset<HD>(step * 16 + (lane & 15), n * 2 + (lane >> 4)));
#pragma unroll
            for (int m = 0; m < MT; m++) {
                multiply_16x8x16(o[m][2 * n], a[m], b[0], b[1]);
                multiply_16x8x16(o[m][2 * n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

/* One m-tile's rows: mask, softmax, and the factors on what `o` holds. */
template <int NT>
static __device__ __forceinline__ void
softmax_rows(float (&s)[8][4], float (&o)[NT][4], row_state (&state)[2], const float (&scale)[2],
             const int (&position)[2], int block, bool masked, int window)
{
    if (masked) {
        int key = block * BLOCK_KEYS + ((threadIdx.x & 3) << 1);
        mask_scores<8, 0>(s, key, position[0], window);
        mask_scores<8, 2>(s, key, position[1], window);
    }
    float low = softmax_step<8, 0>(s, state[0], scale[0]);
    float high = softmax_step<8, 2>(s, state[1], scale[1]);
#pragma unroll
    for (int n = 0; n < NT; n++) {
        o[n][0] *= low;
        o[n][1] *= low;
        o[n][2] *= high;
        o[n][3] *= high;
    }
}

/* Writes columns first_column + 8 n of two rows of the tile. */
template <int NT>
static __device__ __forceinline__ void
write_rows(const strata__attention_args &args, const row_tile &tile, const float (&o)[NT][4],
           const row_state (&state)[2], const float (&scale)[2], const tile_row (&rows)[2],
           int first_column)
{
    int column = first_column + ((threadIdx.x & 3) << 1);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const tile_row &r = rows[half];
        const float *sink = args.sinks && r.is_there ? args.sinks + r.query_head : nullptr;
        float factor = output_factor(state[half], scale[half], sink);
        if (!r.is_there)
            continue;
        __half *out = (__half *)args.out.data + tile.value_index(args, r) + column;
#pragma unroll
        for (int n = 0; n < NT; n++)
            *reinterpret_cast<uint32_t *>(out + n * 8) =
                output_pair(o[n][half * 2], o[n][half * 2 + 1], factor);
        bool writes_scale = args.out.scale && r.query_head == 0 && column == 0;
        if (writes_scale)
            args.out.scale[tile.token_row(r)] = 1.0f;
    }
}

template <int FORMAT, int HD, int MT>
static __global__ void __launch_bounds__(PORTABLE_THREADS)
    attention_wide(const __grid_constant__ strata__attention_args args)
{
    constexpr int ROWS = PORTABLE_WARPS * MT * 16;
    extern __shared__ __align__(128) char memory[];
    row_tile tile;
    if (!place_tile(tile, args, ROWS))
        return;
    uint32_t q = shared_address(memory);
    copy_queries<HD>(args, tile, ROWS, q);
    kv_stream<FORMAT, HD, wide_slots<FORMAT, HD, MT>(), PORTABLE_THREADS> stream(
        args.kv, tile.segment.sequence, tile.kv_head, memory + ROWS * HD * 2);
    stream.template start<false>(tile.first_key_block, tile.end_key_block, tile.last_position + 1,
                                 tile.end_key_block);

    int warp_row = (int)(threadIdx.x >> 5) * MT * 16;
    uint32_t row = warp_row + ((threadIdx.x & 31) >> 2);
    float o[MT][HD / 8][4] = {};
    row_state state[MT][2];
    float scale[MT][2];
    int position[MT][2];
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            state[m][half] = {ATTENTION_NEGATIVE_INFINITY, 0.0f};
            scale[m][half] = tile.scale_log2(args, row + m * 16 + half * 8);
            position[m][half] = tile.position(row + m * 16 + half * 8);
        }

    int blocks = tile.end_key_block - tile.first_key_block;
    for (int i = 0; i < blocks; i++) {
        int block = tile.first_key_block + i;
        float s[MT][8][4];
        wide_scores<HD, MT>(s, q, warp_row, stream.acquire(2 * i));
        bool masked = !tile.sees_all(block, BLOCK_KEYS, args.window);
#pragma unroll
        for (int m = 0; m < MT; m++)
            softmax_rows<HD / 8>(s[m], o[m], state[m], scale[m], position[m], block, masked,
                                 (int)args.window);
        wide_values<HD, MT>(o, s, stream.acquire(2 * i + 1));
    }
    copy_async_wait<0>();
#pragma unroll
    for (int m = 0; m < MT; m++) {
        tile_row rows[2] = {tile.row_of(row + m * 16), tile.row_of(row + m * 16 + 8)};
        write_rows<HD / 8>(args, tile, o[m], state[m], scale[m], rows, 0);
    }
}

/* Q fragments of the 16 rows, from global memory; rows that the segment lacks are zeros. */
template <int HD>
static __device__ __forceinline__ void
narrow_queries(uint32_t (&a)[HD / 16][4], const strata__attention_args &args, const row_tile &tile,
               const tile_row (&rows)[2])
{
    int lane = threadIdx.x & 31;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const __half *q = (const __half *)args.q.data;
        if (rows[half].is_there)
            q += tile.value_index(args, rows[half]) + ((lane & 3) << 1);
#pragma unroll
        for (int step = 0; step < HD / 16; step++)
#pragma unroll
            for (int part = 0; part < 2; part++) {
                const void *at = q + step * 16 + part * 8;
                a[step][half + part * 2] = rows[half].is_there ? *(const uint32_t *)at : 0;
            }
    }
}

/* The warp's 16 keys of the block, to the score tile that all warps read. */
template <int HD>
static __device__ __forceinline__ void narrow_scores(const uint32_t (&a)[HD / 16][4], uint32_t k,
                                                     float *scores)
{
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    float s[2][4] = {};
#pragma unroll
    for (int step = 0; step < HD / 16; step++) {
        uint32_t b[4];
        int row = warp * 16 + (lane & 7) + ((lane >> 4) << 3);
        load_matrix_x4(b, k + tile_offset<HD>(row, step * 2 + ((lane >> 3) & 1)));
        multiply_16x8x16(s[0], a[step], b[0], b[1]);
        multiply_16x8x16(s[1], a[step], b[2], b[3]);
    }
#pragma unroll
    for (int n = 0; n < 2; n++) {
        float *at = scores + (lane >> 2) * SCORE_PITCH + warp * 16 + n * 8 + ((lane & 3) << 1);
        *reinterpret_cast<float2 *>(at) = make_float2(s[n][0], s[n][1]);
        *reinterpret_cast<float2 *>(at + 8 * SCORE_PITCH) = make_float2(s[n][2], s[n][3]);
    }
}

static __device__ __forceinline__ void read_scores(float (&s)[8][4], const float *scores)
{
    int lane = threadIdx.x & 31;
#pragma unroll
    for (int n = 0; n < 8; n++) {
        const float *at = scores + (lane >> 2) * SCORE_PITCH + n * 8 + ((lane & 3) << 1);
        float2 low = *reinterpret_cast<const float2 *>(at);
        float2 high = *reinterpret_cast<const float2 *>(at + 8 * SCORE_PITCH);
        s[n][0] = low.x;
        s[n][1] = low.y;
        s[n][2] = high.x;
        s[n][3] = high.y;
    }
}

/* The warp's quarter of the output columns. */
template <int HD>
static __device__ __forceinline__ void narrow_values(float (&o)[HD / 32][4], const float (&p)[8][4],
                                                     uint32_t v)
{
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
#pragma unroll
    for (int step = 0; step < BLOCK_KEYS / 16; step++) {
        uint32_t a[4] = {pack_half2(p[2 * step][0], p[2 * step][1]),
                         pack_half2(p[2 * step][2], p[2 * step][3]),
                         pack_half2(p[2 * step + 1][0], p[2 * step + 1][1]),
                         pack_half2(p[2 * step + 1][2], p[2 * step + 1][3])};
#pragma unroll
        for (int n = 0; n < HD / 32; n++) {
            uint32_t b0, b1;
            load_matrix_x2_transposed(
                b0, b1, v + tile_offset<HD>(step * 16 + (lane & 15), warp * (HD / 32) + n));
            multiply_16x8x16(o[n], a, b0, b1);
        }
    }
}

/* Keeps a tile's keys within the span of this thread block; false when none are left. */
static __device__ __forceinline__ bool keep_span(row_tile &tile, uint32_t split_keys)
{
    int first = (int)(strata__span_first(blockIdx.z, split_keys) / BLOCK_KEYS);
    int end = (int)(strata__span_first(blockIdx.z + 1, split_keys) / BLOCK_KEYS);
    tile.first_key_block = max(tile.first_key_block, first);
    tile.end_key_block = min(tile.end_key_block, end);
    return tile.first_key_block < tile.end_key_block;
}

/* Leaves the sums of a span for the merge: columns, then the maximum's exponent of two, the sum. */
template <int NT>
static __device__ __forceinline__ void
write_partials(const strata__attention_args &args, const row_tile &tile, const float (&o)[NT][4],
               const row_state (&state)[2], const float (&scale)[2], const tile_row (&rows)[2],
               int first_column)
{
    int column = first_column + ((threadIdx.x & 3) << 1);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float sum = quad_sum(state[half].sum);
        if (!rows[half].is_there)
            continue;
        float *to = partial_of(args, tile.token_row(rows[half]), rows[half].query_head, blockIdx.z);
#pragma unroll
        for (int n = 0; n < NT; n++)
            *reinterpret_cast<float2 *>(to + column + n * 8) =
                make_float2(o[n][half * 2], o[n][half * 2 + 1]);
        if (column == 0) {
            to[args.kv.head_size] = __fmul_rn(state[half].maximum, scale[half]);
            to[args.kv.head_size + 1] = sum;
        }
    }
}

template <int FORMAT, int HD>
static __global__ void __launch_bounds__(PORTABLE_THREADS)
    attention_narrow(const __grid_constant__ strata__attention_args args)
{
    extern __shared__ __align__(128) char memory[];
    row_tile tile;
    let_next_start();
    if (args.split_keys)
        fetch_ahead(args.ahead);
    if (!args.settled)
        wait_for_earlier();
    if (!place_tile(tile, args, NARROW_ROWS) ||
        (args.split_keys && !keep_span(tile, args.split_keys))) {
        wait_for_earlier();
        return;
    }
    float *scores = reinterpret_cast<float *>(memory);
    kv_stream<FORMAT, HD, narrow_slots<FORMAT, HD>(), PORTABLE_THREADS> stream(
        args.kv, tile.segment.sequence, tile.kv_head, memory + NARROW_ROWS * SCORE_PITCH * 4);
    int settled = (int)(tile.segment.position / BLOCK_KEYS);
    if (args.settled && settled < tile.end_key_block)
        stream.fetch_near(max(settled, tile.first_key_block));
    stream.template start<true>(tile.first_key_block, tile.end_key_block, tile.last_position + 1,
                                settled);
    uint32_t row = (threadIdx.x & 31) >> 2;
    tile_row rows[2] = {tile.row_of(row), tile.row_of(row + 8)};
    wait_for_earlier();
    uint32_t q[HD / 16][4];
    narrow_queries<HD>(q, args, tile, rows);

    float o[HD / 32][4] = {};
    row_state state[2];
    float scale[2];
    int position[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        state[half] = {ATTENTION_NEGATIVE_INFINITY, 0.0f};
        scale[half] = tile.scale_log2(args, rows[half]);
        position[half] = tile.position(rows[half]);
    }

    int blocks = tile.end_key_block - tile.first_key_block;
    for (int i = 0; i < blocks; i++) {
        int block = tile.first_key_block + i;
        narrow_scores<HD>(q, stream.acquire(2 * i), scores);
        uint32_t v = stream.acquire(2 * i + 1);
        float s[8][4];
        read_scores(s, scores);
        bool masked = !tile.sees_all(block, BLOCK_KEYS, args.window);
        softmax_rows<HD / 32>(s, o, state, scale, position, block, masked, (int)args.window);
        narrow_values<HD>(o, s, v);
    }
    copy_async_wait<0>();
    int column = (int)(threadIdx.x >> 5) * (HD / 4);
    if (args.split_keys)
        write_partials<HD / 32>(args, tile, o, state, scale, rows, column);
    else
        write_rows<HD / 32>(args, tile, o, state, scale, rows, column);
}

#endif
