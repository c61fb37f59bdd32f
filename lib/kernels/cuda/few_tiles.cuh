/* SPDX-License-Identifier: MIT */
/*
 * Tiles of weights for products of few rows: how 16 rows of a matrix come to shared memory as they
 * are, in whole lines, and where a row's slices lie there.
 */
#ifndef STRATA_KERNELS_CUDA_FEW_TILES_CUH
#define STRATA_KERNELS_CUDA_FEW_TILES_CUH

#include "kernels/cuda/attention_ptx.cuh"
#include "kernels/cuda/decode.cuh"
#include "kernels/cuda/few.h"

namespace
{

constexpr uint32_t TILE = STRATA__FEW_TILE, SLICE = STRATA__FEW_SLICE;

template <int FORMAT> struct slice_of {
    static constexpr uint32_t BYTES =
        SLICE / block_shape<FORMAT>::VALUES * block_shape<FORMAT>::BYTES;
};

/* The rows of a tile in their matrix. */
struct weight_tile {
    const uint8_t *begin; /* of the matrix */
    const uint8_t *end;
    const uint8_t *start; /* of the tile's first row */
    uint32_t rows;        /* that the matrix has there, up to TILE */
    uint32_t row_bytes;
    uint32_t bytes;       /* of all rows */
    uint32_t whole_pitch; /* between rows of a whole tile in shared memory */
};

__host__ __device__ __forceinline__ uint32_t misplaced(const uint8_t *p)
{
    return (uint32_t) reinterpret_cast<uintptr_t>(p) & 15;
}

__device__ __forceinline__ weight_tile tile_of(const void *matrix, uint32_t row_bytes,
                                               uint32_t outputs, uint32_t tile)
{
    const uint8_t *begin = static_cast<const uint8_t *>(matrix);
    const uint8_t *start = begin + (uint64_t)tile * TILE * row_bytes;
    uint32_t rows = min(TILE, outputs - tile * TILE);
    /* What rows have, and 16 more where rows of whole granules would share banks. */
    uint32_t pad = row_bytes % 32 == 0 && misplaced(start) == 0 ? 16 : 0;
    const uint8_t *end = begin + (uint64_t)outputs * row_bytes;
    return {begin, end, start, rows, row_bytes, rows * row_bytes, row_bytes + pad};
}

__device__ __forceinline__ bool inside(const uint8_t *from, const weight_tile &tile)
{
    return from >= tile.begin && from + 16 <= tile.end;
}

/* Those of 16 bytes at `from` that lie in the matrix. */
__device__ __forceinline__ void copy_bytes(uint8_t *to, const uint8_t *from,
                                           const weight_tile &tile)
{
#pragma unroll 1
    for (uint32_t i = 0; i < 16; i++)
        if (from + i >= tile.begin && from + i < tile.end)
            to[i] = from[i];
}

/* 16 bytes in the matrix; whole lines are fetched, since host memory is slow in pieces. */
__device__ __forceinline__ void copy_16(uint8_t *to, const uint8_t *from)
{
    asm volatile(
        "cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;\n" ::"r"(shared_address(to)),
        "l"(from), "r"(16)
        : "memory");
}

/* 16 bytes of weights, which are used once. */
__device__ __forceinline__ uint4 load_16(const uint8_t *from)
{
    uint4 v;
    asm volatile("ld.global.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from)
                 : "memory");
    return v;
}

__host__ __device__ __forceinline__ uint32_t chunk_pitch(uint32_t piece_bytes)
{
    return 16 * ((piece_bytes + 30) / 16 | 1);
}

/*
 * A tile as the contiguous piece of memory that it is, in granules of 16 bytes that begin where a
 * line of 128 begins, so that a warp reads whole lines.
 */
struct whole_lines {
    const uint8_t *line;   /* the first */
    uint32_t skip, end;    /* granules before the tile, and where it ends */
    uint32_t first, count; /* granules that lie in the matrix as a whole */
    uint32_t pad, row_inverse;

    __device__ __forceinline__ whole_lines(const weight_tile &tile, const strata__few_cut &cut)
    {
        uint32_t before = (uint32_t) reinterpret_cast<uintptr_t>(tile.start) & 127;
        line = tile.start - before;
        skip = before / 16;
        end = (before + tile.bytes + 15) / 16;
        first = skip + (line + 16 * skip < tile.begin);
        count = end - (line + 16 * end > tile.end) - first;
        pad = tile.whole_pitch - tile.row_bytes;
        row_inverse = cut.row_inverse;
    }

    __device__ __forceinline__ bool has(uint32_t i) const
    {
        return i - first < count;
    }

    /* Where granule i goes. */
    __device__ __forceinline__ uint32_t place(uint32_t i) const
    {
        uint32_t at = 16 * (i - skip);
        return at + __umulhi(at, row_inverse) * pad;
    }

    /* What the granules before and behind those have of the matrix. */
    __device__ __forceinline__ void copy_ends(uint8_t *stage, const weight_tile &tile,
                                              uint32_t thread) const
    {
        uint32_t i = thread == 0 ? skip : end - 1;
        if (thread < 2 && !has(i))
            copy_bytes(stage + place(i), line + 16 * i, tile);
    }
};

__device__ __forceinline__ void copy_whole(uint8_t *stage, const weight_tile &tile,
                                           const strata__few_cut &cut, uint32_t thread,
                                           uint32_t threads)
{
    whole_lines lines(tile, cut);
#pragma unroll 1
    for (uint32_t i = thread; i < lines.first + lines.count; i += threads)
        if (lines.has(i))
            copy_16(stage + lines.place(i), lines.line + 16 * i);
    lines.copy_ends(stage, tile, thread);
}

/*
 * A whole tile that begins at a multiple of 16 on its way through the registers of the threads:
 * thread t has granules t, t + threads ... counted from where the tile's line of 128 begins.
 */
struct granules {
    static constexpr uint32_t COUNT = 3;
    uint4 v[COUNT];
    uint32_t at; /* of the first, counted from the tile's start */

    __device__ __forceinline__ void load(const weight_tile &tile, uint32_t thread, uint32_t threads)
    {
        at = 16 * thread - ((uint32_t) reinterpret_cast<uintptr_t>(tile.start) & 127);
        const uint8_t *from = tile.start + (int32_t)at;
#pragma unroll
        for (uint32_t k = 0; k < COUNT; k++)
            if (at + k * 16 * threads < tile.bytes)
                v[k] = load_16(from + k * 16 * threads);
    }

    __device__ __forceinline__ void store(uint8_t *stage, const weight_tile &tile,
                                          const strata__few_cut &cut, uint32_t threads) const
    {
        uint32_t pad = tile.whole_pitch - tile.row_bytes;
#pragma unroll
        for (uint32_t k = 0; k < COUNT; k++) {
            uint32_t to = at + k * 16 * threads;
            if (to < tile.bytes)
                *reinterpret_cast<uint4 *>(stage + to + __umulhi(to, cut.row_inverse) * pad) = v[k];
        }
    }
};

/*
 * Whether a tile that is waited for at once is loaded to registers and stored from there, which is
 * faster than cp.async, from host memory more than twice as fast: a whole one that begins at a
 * multiple of 16.
 */
__device__ __forceinline__ bool by_granules(const weight_tile &tile, const strata__few_cut &cut)
{
    return cut.chunks == 1 && misplaced(tile.start) == 0;
}

/* What there is of a tile beyond the granules that are loaded first. */
__device__ __forceinline__ void move_rest(uint8_t *stage, const weight_tile &tile,
                                          const strata__few_cut &cut, uint32_t thread,
                                          uint32_t threads)
{
    uint32_t before = (uint32_t) reinterpret_cast<uintptr_t>(tile.start) & 127;
    uint32_t end = (before + tile.bytes) / 16;
    granules next;
#pragma unroll 1
    for (uint32_t i = granules::COUNT * threads; i < end; i += granules::COUNT * threads) {
        next.load(tile, i + thread, threads);
        next.store(stage, tile, cut, threads);
    }
}

__device__ __forceinline__ void copy_chunk_16(uint8_t *to, const uint8_t *from,
                                              const weight_tile &tile)
{
    if (inside(from, tile))
        copy_16(to, from);
    else
        copy_bytes(to, from, tile);
}

/* Some slices of each row. */
template <int FORMAT>
__device__ __forceinline__ void copy_chunk(uint8_t *stage, const weight_tile &tile,
                                           const strata__few_cut &cut, uint32_t chunk,
                                           uint32_t thread, uint32_t threads)
{
    uint32_t piece = cut.chunk * slice_of<FORMAT>::BYTES, first = chunk * piece;
    uint32_t bytes = min(piece, tile.row_bytes - first), granules = (piece + 30) / 16;
#pragma unroll 1
    for (uint32_t i = thread; i < tile.rows * granules; i += threads) {
        uint32_t r = i / granules, at = i % granules * 16;
        const uint8_t *from = tile.start + (uint64_t)r * tile.row_bytes + first;
        if (at < misplaced(from) + bytes)
            copy_chunk_16(stage + r * chunk_pitch(piece) + at, from - misplaced(from) + at, tile);
    }
}

/* Begins the copy of a chunk, by some threads of the block; each closes a group of its own. */
template <int FORMAT>
__device__ __forceinline__ void copy_weights(uint8_t *stage, const weight_tile &tile,
                                             const strata__few_cut &cut, uint32_t chunk,
                                             uint32_t thread, uint32_t threads)
{
    if (cut.chunks == 1)
        copy_whole(stage, tile, cut, thread, threads);
    else
        copy_chunk<FORMAT>(stage, tile, cut, chunk, thread, threads);
}

/* Where a slice of a chunk of rows r and r + 8 lies; rows that are not there are the last. */
struct row_pair {
    const uint8_t *low, *high;
};

template <int FORMAT>
__device__ __forceinline__ row_pair staged_rows(const uint8_t *stage, const weight_tile &tile,
                                                const strata__few_cut &cut, uint32_t chunk,
                                                uint32_t slice)
{
    uint32_t low = min(threadIdx.x % 32 / 4, tile.rows - 1);
    uint32_t high = min(threadIdx.x % 32 / 4 + 8, tile.rows - 1);
    if (cut.chunks == 1) {
        stage += misplaced(tile.start) + slice * slice_of<FORMAT>::BYTES;
        return {stage + low * tile.whole_pitch, stage + high * tile.whole_pitch};
    }
    uint32_t piece = cut.chunk * slice_of<FORMAT>::BYTES, pitch = chunk_pitch(piece);
    uint32_t before = misplaced(tile.start) + chunk * piece;
    stage += (slice - chunk * cut.chunk) * slice_of<FORMAT>::BYTES;
    return {stage + low * pitch + ((before + low * tile.row_bytes) & 15),
            stage + high * pitch + ((before + high * tile.row_bytes) & 15)};
}

} /* namespace */

#endif
