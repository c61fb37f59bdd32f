/* SPDX-License-Identifier: MIT */
/*
 * The keys and values of one KV head as a stream of tiles in shared memory: K of 64-key block b, V
 * of block b, K of block b + 1, and so on. A ring of slots is filled ahead with cp.async. Half
 * tiles are used where they land; q8_0 and float32 tiles land as they are and are decoded, one at a
 * time, into a half tile in front of the ring.
 */
#ifndef STRATA_KERNELS_CUDA_ATTENTION_STREAM_CUH
#define STRATA_KERNELS_CUDA_ATTENTION_STREAM_CUH

#include "attention_ptx.cuh"
#include "cuda_kernels.h"
#include "launch.cuh"

enum { BLOCK_KEYS = 64, PORTABLE_SHARED_BYTES = 99 * 1024 };

template <int FORMAT, int HD> static __host__ __device__ constexpr int raw_tile_bytes()
{
    return FORMAT == STRATA__KV_F16    ? BLOCK_KEYS * HD * 2
           : FORMAT == STRATA__KV_Q8_0 ? BLOCK_KEYS * (HD + HD / 16)
                                       : BLOCK_KEYS * HD * 4;
}

template <int FORMAT, int HD> static __host__ __device__ constexpr int work_tile_bytes()
{
    return FORMAT == STRATA__KV_F16 ? 0 : BLOCK_KEYS * HD * 2;
}

template <int FORMAT, int HD, int SLOTS> static __host__ __device__ constexpr int stream_bytes()
{
    return work_tile_bytes<FORMAT, HD>() + SLOTS * raw_tile_bytes<FORMAT, HD>();
}

/* Two values of a cache as halves; values beyond half's range become its largest. */
static __device__ __forceinline__ uint32_t saturated_pair(float low, float high)
{
    low = fminf(fmaxf(low, -65504.0f), 65504.0f);
    high = fminf(fmaxf(high, -65504.0f), 65504.0f);
    return pack_half2(low, high);
}

template <int FORMAT, int HD, int SLOTS, int THREADS> struct kv_stream {
    static constexpr int ROW_CHUNKS = HD / 8; /* of 16 bytes in a half row */

    const strata__kv_view &view;
    const int32_t *pages;
    uint32_t head;
    int first_block;
    int end_block;
    int end_key;
    char *work;
    char *ring;
    uint32_t page_row; /* of the block that is loaded next, in its page */
    int32_t page;      /* whose number stands at `pages` */

    __device__ __forceinline__ kv_stream(const strata__kv_view &kv, uint32_t sequence,
                                         uint32_t kv_head, char *memory)
        : view(kv), pages(kv.page_table + (uint64_t)sequence * kv.table_stride), head(kv_head),
          first_block(0), end_block(0), end_key(0), work(memory),
          ring(memory + work_tile_bytes<FORMAT, HD>()), page_row(0), page(0)
    {
    }

    /*
     * Starts the stream; tile i is K (even) or V (odd) of block first + i / 2. EARLY: before the
     * wait for earlier kernels, which may write to blocks from `settled` on; those come behind it.
     */
    template <bool EARLY>
    __device__ __forceinline__ void start(int first, int end, int keys, int settled)
    {
        first_block = first;
        end_block = end;
        end_key = keys;
        pages += (uint32_t)first * BLOCK_KEYS / view.page_tokens;
        page_row = (uint32_t)first * BLOCK_KEYS % view.page_tokens;
        page = first < end ? *pages : 0;
        constexpr int AHEAD = FORMAT == STRATA__KV_F16 ? SLOTS - 1 : SLOTS;
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            if (EARLY && first + i / 2 >= settled)
                wait_for_earlier();
            fetch(i);
        }
        /* The caller's copies are part of the first tile's group, or have one of their own. */
        if constexpr (AHEAD == 0)
            copy_async_commit();
    }

    /* To the block behind, which tile 2 * i of the stream begins. */
    __device__ __forceinline__ void next_block(int block)
    {
        page_row += BLOCK_KEYS;
        if (page_row == view.page_tokens) {
            page_row = 0;
            page = block < end_block ? *++pages : 0;
        }
    }

    /* Start of the head's rows in a page. */
    __device__ __forceinline__ const char *locate(int tile, int32_t number) const
    {
        const char *base = (const char *)((tile & 1) ? view.v : view.k);
        return base + (uint64_t)number * view.page_bytes +
               (uint64_t)(head * view.page_tokens) * (raw_tile_bytes<FORMAT, HD>() / BLOCK_KEYS);
    }

    __device__ __forceinline__ void fetch(int tile)
    {
        int block = first_block + tile / 2;
        if (SLOTS > 0 && block < end_block) {
            char *slot = ring + (tile % (SLOTS > 0 ? SLOTS : 1)) * raw_tile_bytes<FORMAT, HD>();
            copy_tile(locate(tile, page), page_row, end_key - block * BLOCK_KEYS,
                      shared_address(slot));
            if (tile & 1)
                next_block(block + 1);
        }
        copy_async_commit();
    }

    /* Before the start: brings the head's rows of a block near, codes without scales. */
    __device__ __forceinline__ void fetch_near(int block) const
    {
        constexpr int ROW_BYTES = HD * (FORMAT == STRATA__KV_F16    ? 2
                                        : FORMAT == STRATA__KV_Q8_0 ? 1
                                                                    : 4);
        uint32_t index = (uint32_t)block * BLOCK_KEYS / view.page_tokens;
        uint32_t row = (uint32_t)block * BLOCK_KEYS - index * view.page_tokens;
        int32_t number = pages[index];
        for (int i = (int)threadIdx.x * 128; i < BLOCK_KEYS * ROW_BYTES; i += THREADS * 128) {
            fetch_line(locate(0, number) + row * ROW_BYTES + i);
            fetch_line(locate(1, number) + row * ROW_BYTES + i);
        }
    }

    __device__ __forceinline__ void copy_tile(const char *source, uint32_t row, int valid_rows,
                                              uint32_t target) const
    {
        if constexpr (FORMAT == STRATA__KV_F16) {
            source += (uint64_t)row * HD * 2;
#pragma unroll
            for (int i = 0; i < BLOCK_KEYS * ROW_CHUNKS / THREADS; i++) {
                int at = i * THREADS + (int)threadIdx.x;
                int r = at / ROW_CHUNKS, c = at % ROW_CHUNKS;
                copy_async_16(target + tile_offset<HD>(r, c), source + at * 16, r < valid_rows);
            }
        } else if constexpr (FORMAT == STRATA__KV_Q8_0) {
            const char *scales = source + (uint64_t)view.page_tokens * HD + row * (HD / 16);
            source += (uint64_t)row * HD;
            for (int at = threadIdx.x; at < BLOCK_KEYS * HD / 16; at += THREADS)
                copy_async_16(target + at * 16, source + at * 16, true);
            for (int at = threadIdx.x; at < BLOCK_KEYS * HD / 256; at += THREADS)
                copy_async_16(target + BLOCK_KEYS * HD + at * 16, scales + at * 16, true);
        } else {
            source += (uint64_t)row * HD * 4;
            for (int at = threadIdx.x; at < BLOCK_KEYS * HD / 4; at += THREADS)
                copy_async_16(target + at * 16, source + at * 16, true);
        }
    }

    /*
     * Waits for a tile and answers its address. All threads call it for every tile in order; nobody
     * may still read a tile once another thread has called it for the next.
     */
    __device__ __forceinline__ uint32_t acquire(int tile)
    {
        if constexpr (FORMAT == STRATA__KV_F16) {
            copy_async_wait<SLOTS - 2>();
            __syncthreads();
            fetch(tile + SLOTS - 1);
            return shared_address(ring + (tile % SLOTS) * raw_tile_bytes<FORMAT, HD>());
        } else {
            constexpr int RING = SLOTS > 0 ? SLOTS : 1;
            int valid_rows = end_key - (first_block + tile / 2) * BLOCK_KEYS;
            if constexpr (SLOTS > 0) {
                copy_async_wait<RING - 1>();
                __syncthreads();
                decode(ring + (tile % RING) * raw_tile_bytes<FORMAT, HD>(), valid_rows, 0);
            } else {
                copy_async_wait<0>(); /* of the queries, which came with the first tile */
                __syncthreads();
                decode(locate(tile, page), valid_rows, page_row);
                if (tile & 1)
                    next_block(first_block + tile / 2 + 1);
            }
            __syncthreads();
            if constexpr (SLOTS > 0)
                fetch(tile + SLOTS);
            return shared_address(work);
        }
    }

    /* Decodes 64 rows from `row` on to halves; rows from valid_rows on become zeros. */
    __device__ __forceinline__ void decode(const char *source, int valid_rows, uint32_t row) const
    {
        for (int at = threadIdx.x; at < BLOCK_KEYS * ROW_CHUNKS; at += THREADS) {
            int r = at / ROW_CHUNKS, c = at % ROW_CHUNKS;
            uint4 packed = make_uint4(0, 0, 0, 0);
            if (r < valid_rows) {
                if constexpr (FORMAT == STRATA__KV_Q8_0)
                    packed = decode_q8_0(source, r, c);
                else
                    packed = decode_f32(source + (uint64_t)row * HD * 4, r, c);
            }
            *reinterpret_cast<uint4 *>(work + tile_offset<HD>(r, c)) = packed;
        }
    }

    static __device__ __forceinline__ uint4 decode_q8_0(const char *tile, int row, int chunk)
    {
        uint2 codes = *reinterpret_cast<const uint2 *>(tile + row * HD + chunk * 8);
        const __half *scales = reinterpret_cast<const __half *>(tile + BLOCK_KEYS * HD);
        __half d = scales[row * (HD / 32) + chunk / 4];
        return make_uint4(q8_0_pair<0>(codes.x, d), q8_0_pair<1>(codes.x, d),
                          q8_0_pair<0>(codes.y, d), q8_0_pair<1>(codes.y, d));
    }

    /*
     * Codes 2 * PAIR and 2 * PAIR + 1 of a word times the scale. A byte with its sign bit turned
     * over, below 0x64, is the half 1024 + 128 + code: the code as a half is exact, and the product
     * is rounded once.
     */
    template <int PAIR>
    static __device__ __forceinline__ uint32_t q8_0_pair(uint32_t codes, __half scale)
    {
        uint32_t bits = __byte_perm(codes ^ 0x80808080u, 0x64646464u, PAIR ? 0x4342 : 0x4140);
        __half2 code = __hsub2(*reinterpret_cast<__half2 *>(&bits), __float2half2_rn(1152.0f));
        __half2 value = __hmul2(code, __half2half2(scale));
        value = __hmax2(__hmin2(value, __float2half2_rn(65504.0f)), __float2half2_rn(-65504.0f));
        return *reinterpret_cast<uint32_t *>(&value);
    }

    static __device__ __forceinline__ uint4 decode_f32(const char *tile, int row, int chunk)
    {
        const float4 *v = reinterpret_cast<const float4 *>(tile + row * HD * 4 + chunk * 32);
        float4 a = v[0], b = v[1];
        return make_uint4(saturated_pair(a.x, a.y), saturated_pair(a.z, a.w),
                          saturated_pair(b.x, b.y), saturated_pair(b.z, b.w));
    }
};

#endif
