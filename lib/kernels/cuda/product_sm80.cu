/* SPDX-License-Identifier: MIT */
/*
 * The grouped product with the instructions of sm_80: tiles of 128 rows by 128 image columns, eight
 * warps of 64 x 32, three stages of 64 values filled by cp.async. Rows are gathered by the copies.
 */
#include "kernels/cuda/product.cuh"
#include "kernels/cuda/shared.cuh"

namespace
{

constexpr uint32_t THREADS = 256, STAGES = 3, STAGE_BYTES = 2 * STRATA__BLOCK_BYTES;
constexpr uint32_t COPIES = STRATA__BLOCK_BYTES / 16 / THREADS; /* of each operand, a thread */

static_assert(STAGES * STAGE_BYTES + sizeof(tile_table<STRATA__TILE_ROWS>) <= STRATA__SHARED_LIMIT,
              "the portable product must fit every supported device");

__device__ __forceinline__ void copy_16(uint32_t to, const void *from, bool valid)
{
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;\n" ::"r"(to), "l"(from),
                 "r"(valid ? 16 : 0)
                 : "memory");
}

__device__ __forceinline__ void load_matrices(uint32_t (&r)[4], uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

__device__ __forceinline__ void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                         uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Where a thread's copies of a tile come from. */
struct tile_source {
    const uint16_t *row[COPIES]; /* chunk of the thread in each of its rows */
    const uint8_t *image;        /* the slab */
    uint32_t valid;              /* bit i: row i exists */
    uint32_t first_value;        /* of the thread's chunk within a block */
};

__device__ __forceinline__ tile_source source_of(const strata__product_args &args,
                                                 const product_tile &tile, uint32_t k_blocks)
{
    tile_source source;
    source.valid = 0;
    source.first_value = threadIdx.x % 8 * 8;
#pragma unroll
    for (uint32_t i = 0; i < COPIES; i++) {
        uint32_t r = threadIdx.x / 8 + i * (THREADS / 8);
        bool valid = r < tile.rows;
        uint32_t row = input_row(args, tile.first_row + (valid ? r : 0));
        source.row[i] = args.in + (uint64_t)row * args.inputs + source.first_value;
        source.valid |= (uint32_t)valid << i;
    }
    source.image = args.image + ((uint64_t)tile.expert * args.slabs + tile.column) * k_blocks *
                                    STRATA__BLOCK_BYTES;
    return source;
}

__device__ __forceinline__ void load_stage(const tile_source &source, uint32_t inputs,
                                           uint32_t block, uint32_t stage)
{
    uint32_t r = threadIdx.x / 8, c = threadIdx.x % 8;
    uint32_t rows = stage + r * 128 + ((c ^ (r & 7)) << 4);
    bool inside = block * STRATA__BLOCK_VALUES + source.first_value < inputs;
#pragma unroll
    for (uint32_t i = 0; i < COPIES; i++) {
        bool valid = inside && source.valid >> i & 1;
        copy_16(rows + i * (THREADS / 8) * 128,
                source.row[i] + (valid ? block * STRATA__BLOCK_VALUES : 0), valid);
    }
    const uint8_t *image = source.image + (uint64_t)block * STRATA__BLOCK_BYTES + threadIdx.x * 16;
    uint32_t weights = stage + STRATA__BLOCK_BYTES + threadIdx.x * 16;
#pragma unroll
    for (uint32_t i = 0; i < COPIES; i++)
        copy_16(weights + i * THREADS * 16, image + i * THREADS * 16, true);
}

/* 64 values of the warp's 64 x 32 sums. */
__device__ __forceinline__ void multiply_stage(float (&sums)[4][4][4], uint32_t stage,
                                               uint32_t warp_row, uint32_t warp_column)
{
    uint32_t lane = threadIdx.x % 32;
    uint32_t a_row = warp_row + lane % 16, a_chunk = lane / 16;
    uint32_t b_row = warp_column + lane / 16 * 8 + lane % 8, b_chunk = lane / 8 % 2;
#pragma unroll
    for (uint32_t k = 0; k < 4; k++) {
        uint32_t a[4][4], b[2][4];
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            load_matrices(a[i], stage + (a_row + 16 * i) * 128 +
                                    (((2 * k + a_chunk) ^ (a_row & 7)) << 4));
#pragma unroll
        for (uint32_t i = 0; i < 2; i++)
            load_matrices(b[i], stage + STRATA__BLOCK_BYTES + (b_row + 16 * i) * 128 +
                                    (((2 * k + b_chunk) ^ (b_row & 7)) << 4));
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
#pragma unroll
            for (uint32_t j = 0; j < 4; j++)
                multiply(sums[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
    }
}

template <bool PAIRED>
__global__ void __launch_bounds__(THREADS, 1)
    product(const __grid_constant__ strata__product_args args)
{
    extern __shared__ __align__(1024) uint8_t stages[];
    __shared__ tile_table<STRATA__TILE_ROWS> table;
    uint32_t warp = threadIdx.x / 32;
    uint32_t warp_row = warp / 4 * 64, warp_column = warp % 4 * 32;
    uint32_t base = shared_address(stages);
    uint32_t k_blocks = (args.inputs + STRATA__BLOCK_VALUES - 1) / STRATA__BLOCK_VALUES;
    uint32_t index = blockIdx.x;
    product_tile tile;
    build_tile_table(table, args.range);
    if (args.fix && !any_scaled(table, args, args.slabs))
        return;
    while (next_tile(table, args, args.slabs, gridDim.x, &index, &tile)) {
        tile_source source = source_of(args, tile, k_blocks);
        strip_rows rows[4];
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            rows[i] = find_strip_rows(args, tile, warp_row + 16 * i + threadIdx.x % 32 / 4);
        float sums[4][4][4] = {};
        __syncthreads();
#pragma unroll
        for (uint32_t s = 0; s < STAGES - 1; s++) {
            if (s < k_blocks)
                load_stage(source, args.inputs, s, base + s * STAGE_BYTES);
            copy_async_commit();
        }
        for (uint32_t b = 0; b < k_blocks; b++) {
            copy_async_wait<STAGES - 2>();
            __syncthreads();
            uint32_t ahead = b + STAGES - 1;
            if (ahead < k_blocks)
                load_stage(source, args.inputs, ahead, base + ahead % STAGES * STAGE_BYTES);
            copy_async_commit();
            if (warp_row < tile.rows)
                multiply_stage(sums, base + b % STAGES * STAGE_BYTES, warp_row, warp_column);
        }
        uint32_t column = (args.first_slab + tile.column) * STRATA__SLAB_ROWS + warp_column;
        if (warp_row < tile.rows)
#pragma unroll
            for (uint32_t i = 0; i < 4; i++) {
                if (PAIRED)
                    store_paired_strip(args, tile, rows[i], column, sums[i]);
                else
                    store_strip(args, tile, rows[i], column, sums[i]);
            }
    }
}

} /* namespace */

strata_status strata__cuda_product_sm80_load(void)
{
    const void *kernels[] = {reinterpret_cast<const void *>(product<false>),
                             reinterpret_cast<const void *>(product<true>)};
    return strata__cuda_load_kernels(kernels, 2, STAGES * STAGE_BYTES);
}

strata_status strata__cuda_product_sm80(uint32_t multiprocessors, cudaStream_t stream, bool paired,
                                        const strata__product_args *args)
{
    uint64_t tiles = most_tiles(args, STRATA__TILE_ROWS, args->slabs);
    uint32_t blocks = tiles < multiprocessors ? (uint32_t)tiles : multiprocessors;
    if (paired)
        product<true><<<blocks, THREADS, STAGES * STAGE_BYTES, stream>>>(*args);
    else
        product<false><<<blocks, THREADS, STAGES * STAGE_BYTES, stream>>>(*args);
    return strata__cuda_status(cudaGetLastError(), "multiplying");
}
