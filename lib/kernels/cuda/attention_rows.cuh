/* SPDX-License-Identifier: MIT */
/*
 * Which rows a tile of attention holds. The query heads of one KV head are packed: packed row i of
 * a segment is token i / group, query head kv_head * group + i % group. So a tile reads K and V
 * once for all heads that share them, whether the segment has one token or thousands.
 */
#ifndef STRATA_KERNELS_CUDA_ATTENTION_ROWS_CUH
#define STRATA_KERNELS_CUDA_ATTENTION_ROWS_CUH

#include "cuda_kernels.h"

/* A row of a tile. */
struct tile_row {
    bool is_there;
    uint32_t token; /* of the segment */
    uint32_t query_head;
};

struct row_tile {
    strata__segment segment;
    uint32_t kv_head;
    uint32_t group;     /* query heads of a KV head */
    uint32_t first;     /* packed row */
    uint32_t packed;    /* packed rows of the segment */
    int first_position; /* of the tile's rows */
    int last_position;
    int first_key_block; /* the tile's keys, in blocks of the given size */
    int end_key_block;

    /* False when the segment has no rows there. */
    __device__ __forceinline__ bool place(const strata__attention_args &args, uint32_t tile,
                                          uint32_t head, const strata__segment &rows_of,
                                          uint32_t tile_rows, int block_keys)
    {
        segment = rows_of;
        kv_head = head;
        group = args.heads / args.kv.kv_heads;
        first = tile * tile_rows;
        packed = segment.rows * group;
        if (first >= packed)
            return false;
        uint32_t last = min(first + tile_rows, packed) - 1;
        first_position = (int)(segment.position + first / group);
        last_position = (int)(segment.position + last / group);
        int first_key = args.window > 0 ? max(0, first_position - (int)args.window + 1) : 0;
        first_key_block = first_key / block_keys;
        end_key_block = last_position / block_keys + 1;
        return true;
    }

    /* True when no row of the tile masks a key of the block. */
    __device__ __forceinline__ bool sees_all(int block, int block_keys, uint32_t window) const
    {
        int first_key = block * block_keys;
        return first_key + block_keys - 1 <= first_position &&
               (window == 0 || first_key > last_position - (int)window);
    }

    __device__ __forceinline__ bool has(uint32_t row) const
    {
        return first + row < packed;
    }

    __device__ __forceinline__ tile_row row_of(uint32_t row) const
    {
        uint32_t token = (first + row) / group;
        return {has(row), token, kv_head * group + (first + row) - token * group};
    }

    __device__ __forceinline__ uint32_t token_row(const tile_row &row) const
    {
        return segment.first_row + row.token;
    }

    /* Rows behind the segment's last take its position. */
    __device__ __forceinline__ int position(const tile_row &row) const
    {
        return row.is_there ? (int)(segment.position + row.token) : last_position;
    }

    /* Index of the row's first value in q and out. */
    __device__ __forceinline__ uint64_t value_index(const strata__attention_args &args,
                                                    const tile_row &row) const
    {
        return ((uint64_t)token_row(row) * args.heads + row.query_head) * args.kv.head_size;
    }

    /* Factor from q . k to the exponent of two. */
    __device__ __forceinline__ float scale_log2(const strata__attention_args &args,
                                                const tile_row &row) const
    {
        const float log2_e = 1.44269504088896340736f;
        float scale = args.scale * log2_e;
        return row.is_there && args.q.scale ? scale * args.q.scale[token_row(row)] : scale;
    }

    /* The same of rows by number. */
    __device__ __forceinline__ uint32_t token_row(uint32_t row) const
    {
        return token_row(row_of(row));
    }

    __device__ __forceinline__ uint32_t query_head(uint32_t row) const
    {
        return row_of(row).query_head;
    }

    __device__ __forceinline__ int position(uint32_t row) const
    {
        return position(row_of(row));
    }

    __device__ __forceinline__ uint64_t value_index(const strata__attention_args &args,
                                                    uint32_t row) const
    {
        return value_index(args, row_of(row));
    }

    __device__ __forceinline__ float scale_log2(const strata__attention_args &args,
                                                uint32_t row) const
    {
        return scale_log2(args, row_of(row));
    }
};

#endif
