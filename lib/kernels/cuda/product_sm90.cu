/* SPDX-License-Identifier: MIT */
/*
 * The grouped product with the instructions of sm_90a: tiles of 128 rows by 256 image columns.
 *
 * Three warpgroups. One only loads: one of its threads starts a bulk copy for each 16 KiB block of
 * the image. Activation rows that lie in order are a tensor copy of the same thread; others are
 * gathered by all of its threads with cp.async, swizzled as they land. The other two warpgroups
 * multiply 64 rows each by the same 256 columns. Four stages of 64 values go round between them: a
 * stage's `full` barrier completes when all copies have landed, its `empty` barrier when all eight
 * multiplying warps have left it. Loading runs ahead across tiles, so that the next tile's first
 * stages land while this one's results are stored.
 *
 * cp.async counts as ordinary writes. They arrive at the `full` barrier as they land, and a fence
 * by the warps that waited for it lets the tensor cores see them.
 */
#include <cuda.h>

#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/product.cuh"
#include "kernels/cuda/shared.cuh"

namespace
{

constexpr uint32_t GROUP = 128, THREADS = 3 * GROUP;
constexpr uint32_t STAGES = 4;
constexpr uint32_t TILE_SLABS = 2;
constexpr uint32_t STAGE_BYTES = (1 + TILE_SLABS) * STRATA__BLOCK_BYTES;
constexpr uint32_t SHARED_BYTES = STAGES * STAGE_BYTES;
constexpr uint32_t COPIES = STRATA__BLOCK_BYTES / 16 / GROUP; /* of rows, a loading thread */
constexpr uint32_t HALF_TILE = STRATA__TILE_ROWS / 2;

struct shared_state {
    uint64_t full[STAGES];
    uint64_t empty[STAGES];
    tile_table<STRATA__TILE_ROWS> table;
};

struct product_launch {
    strata__product_args args;
    CUtensorMap rows; /* as describe_rows() says, for rows in order */
};

/* What every role of a block needs. */
struct block_view {
    const strata__product_args &args;
    const tile_table<STRATA__TILE_ROWS> &table;
    uint32_t barriers, stages; /* addresses in shared memory */
    uint32_t columns, k_blocks;

    __device__ __forceinline__ bool next(uint32_t *index, product_tile *tile) const
    {
        return next_tile(table, args, columns, gridDim.x, index, tile);
    }
};

__device__ __forceinline__ void copy_16(uint32_t to, const void *from, bool valid)
{
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;\n" ::"r"(to), "l"(from),
                 "r"(valid ? 16 : 0)
                 : "memory");
}

/* The thread arrives at the barrier when its copies so far have landed. */
__device__ __forceinline__ void arrive_with_copies(uint32_t barrier)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];\n" ::"r"(barrier)
                 : "memory");
}

/* A place in the ring of stages. */
struct ring_place {
    uint32_t stage, parity;

    __device__ __forceinline__ void advance()
    {
        stage = stage + 1 == STAGES ? 0 : stage + 1;
        parity ^= stage == 0;
    }
};

__device__ __forceinline__ uint32_t full_of(uint32_t barriers, uint32_t stage)
{
    return barriers + stage * 8;
}

__device__ __forceinline__ uint32_t empty_of(uint32_t barriers, uint32_t stage)
{
    return barriers + (STAGES + stage) * 8;
}

/* By one thread: block `block` of values of the tile's slabs, and `more` bytes that it expects. */
__device__ __forceinline__ void load_image(const block_view &view, const product_tile &tile,
                                           uint32_t block, uint32_t stage, uint32_t full,
                                           uint32_t more)
{
    uint32_t first = tile.column * TILE_SLABS, slabs = min(TILE_SLABS, view.args.slabs - first);
    uint64_t slab_bytes = (uint64_t)view.k_blocks * STRATA__BLOCK_BYTES;
    const uint8_t *from = view.args.image +
                          ((uint64_t)tile.expert * view.args.slabs + first) * slab_bytes +
                          (uint64_t)block * STRATA__BLOCK_BYTES;
    barrier_arrive_expect(full, slabs * STRATA__BLOCK_BYTES + more);
    for (uint32_t s = 0; s < slabs; s++)
        copy_bulk(stage + (1 + s) * STRATA__BLOCK_BYTES, from + s * slab_bytes, STRATA__BLOCK_BYTES,
                  full);
}

/* A box of 64 values of 64 rows, swizzled like the image; zeros beyond the tensor. */
__device__ __forceinline__ void copy_box(uint32_t to, const CUtensorMap *map, uint32_t value,
                                         uint32_t row, uint32_t barrier)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3}], [%4];\n" ::"r"(to),
                 "l"(map), "r"(value), "r"(row), "r"(barrier)
                 : "memory");
}

/*
 * By the first warp, of rows in order, 64 at a time. Rows behind the tile's among them are of the
 * next tile or zeros, and their sums are not stored.
 */
__device__ __forceinline__ void load_tiles_in_order(const block_view &view, const CUtensorMap *rows)
{
    uint32_t index = blockIdx.x;
    ring_place place = {0, 0};
    product_tile tile;
    while (view.next(&index, &tile)) {
        uint32_t first = tile.first_row - view.args.range.first_row;
        for (uint32_t block = 0; block < view.k_blocks; block++) {
            uint32_t stage = view.stages + place.stage * STAGE_BYTES;
            uint32_t full = full_of(view.barriers, place.stage);
            barrier_wait(empty_of(view.barriers, place.stage), place.parity ^ 1);
            if (threadIdx.x == 0) {
                bool both = tile.rows > HALF_TILE;
                load_image(view, tile, block, stage, full,
                           both ? STRATA__BLOCK_BYTES : STRATA__BLOCK_BYTES / 2);
                copy_box(stage, rows, block * STRATA__BLOCK_VALUES, first, full);
                if (both)
                    copy_box(stage + STRATA__BLOCK_BYTES / 2, rows, block * STRATA__BLOCK_VALUES,
                             first + HALF_TILE, full);
            }
            place.advance();
        }
    }
}

__device__ __forceinline__ void load_tiles(const block_view &view)
{
    uint32_t r = threadIdx.x / 8, c = threadIdx.x % 8, index = blockIdx.x;
    uint32_t target = r * 128 + ((c ^ (r & 7)) << 4);
    ring_place place = {0, 0};
    product_tile tile;
    while (view.next(&index, &tile)) {
        const uint16_t *row[COPIES];
#pragma unroll
        for (uint32_t i = 0; i < COPIES; i++) {
            uint32_t in_tile = r + i * (GROUP / 8);
            uint32_t sorted = tile.first_row + (in_tile < tile.rows ? in_tile : 0);
            row[i] =
                view.args.in + (uint64_t)input_row(view.args, sorted) * view.args.inputs + c * 8;
        }
        for (uint32_t block = 0; block < view.k_blocks; block++) {
            uint32_t stage = view.stages + place.stage * STAGE_BYTES;
            uint32_t full = full_of(view.barriers, place.stage);
            bool inside = block * STRATA__BLOCK_VALUES + c * 8 < view.args.inputs;
            barrier_wait(empty_of(view.barriers, place.stage), place.parity ^ 1);
            if (threadIdx.x == 0)
                load_image(view, tile, block, stage, full, 0);
#pragma unroll
            for (uint32_t i = 0; i < COPIES; i++) {
                bool valid = inside && r + i * (GROUP / 8) < tile.rows;
                copy_16(stage + target + i * (GROUP / 8) * 128,
                        row[i] + (valid ? block * STRATA__BLOCK_VALUES : 0), valid);
            }
            arrive_with_copies(full);
            place.advance();
        }
    }
}

/* A multiplying warp is done with a stage. */
__device__ __forceinline__ void leave_stage(uint32_t empty)
{
    if (threadIdx.x % 32 == 0)
        barrier_arrive(empty);
}

/* 64 values of the group's 64 x 256 sums. */
__device__ __forceinline__ void multiply_stage(float (&sums)[32][4], uint32_t rows,
                                               uint32_t weights, bool first)
{
    uint64_t a = operand_at(rows), b = operand_at(weights);
    products_fence();
#pragma unroll
    for (int k = 0; k < 4; k++)
        multiply_64x256x16(sums, a + 2 * k, b + 2 * k, !(first && k == 0));
    products_commit();
}

template <bool PAIRED> __device__ __forceinline__ void multiply_tiles(const block_view &view)
{
    uint32_t group_row = (threadIdx.x / GROUP - 1) * HALF_TILE, index = blockIdx.x;
    uint32_t row = group_row + threadIdx.x % GROUP / 32 * 16 + threadIdx.x % 32 / 4;
    ring_place place = {0, 0};
    product_tile tile, next;
    bool found = view.next(&index, &next);
    while (found) {
        tile = next;
        if (group_row >= tile.rows) {
            for (uint32_t block = 0; block < view.k_blocks; block++) {
                barrier_wait(full_of(view.barriers, place.stage), place.parity);
                leave_stage(empty_of(view.barriers, place.stage));
                place.advance();
            }
            found = view.next(&index, &next);
            continue;
        }
        strip_rows rows = find_strip_rows(view.args, tile, row);
        float sums[32][4];
        uint32_t previous = 0;
        for (uint32_t block = 0; block < view.k_blocks; block++) {
            uint32_t stage = view.stages + place.stage * STAGE_BYTES;
            barrier_wait(full_of(view.barriers, place.stage), place.parity);
            fence_async_proxy();
            multiply_stage(sums, stage + group_row * 128, stage + STRATA__BLOCK_BYTES, block == 0);
            products_wait<1>();
            if (block > 0)
                leave_stage(empty_of(view.barriers, previous));
            previous = place.stage;
            place.advance();
        }
        /* The next tile is looked for while the last products run. */
        found = view.next(&index, &next);
        products_wait<0>();
        leave_stage(empty_of(view.barriers, previous));
        uint32_t column = (view.args.first_slab + tile.column * TILE_SLABS) * STRATA__SLAB_ROWS;
        if (PAIRED)
            store_paired_strip(view.args, tile, rows, column, sums);
        else
            store_strip(view.args, tile, rows, column, sums);
    }
}

template <bool PAIRED, bool IN_ORDER>
__global__ void __launch_bounds__(THREADS, 1) product(const __grid_constant__ product_launch launch)
{
    const strata__product_args &args = launch.args;
    extern __shared__ __align__(1024) uint8_t stage_memory[];
    __shared__ shared_state state;
    uint32_t columns = (args.slabs + TILE_SLABS - 1) / TILE_SLABS;
    uint32_t k_blocks = (args.inputs + STRATA__BLOCK_VALUES - 1) / STRATA__BLOCK_VALUES;
    block_view view = {
        args,    state.table, shared_address(state.full), shared_address(stage_memory),
        columns, k_blocks};
    if (threadIdx.x == 0) {
        for (uint32_t s = 0; s < STAGES; s++) {
            barrier_init(full_of(view.barriers, s), IN_ORDER ? 1 : GROUP + 1);
            barrier_init(empty_of(view.barriers, s), 2 * GROUP / 32);
        }
        asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
    }
    wait_for_earlier();
    let_next_start();
    build_tile_table(state.table, args.range);
    if (args.fix && !any_scaled(state.table, args, columns))
        return;
    if (threadIdx.x < GROUP) {
        registers_lower<56>();
        if (!IN_ORDER)
            load_tiles(view);
        else if (threadIdx.x < 32)
            load_tiles_in_order(view, &launch.rows);
    } else {
        registers_raise<224>();
        multiply_tiles<PAIRED>(view);
    }
}

typedef CUresult (*encode_function)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                                    const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                                    const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                                    CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

/* The launch's rows of halves; false when they do not lie as tensor copies want them. */
bool describe_rows(const strata__cuda_state *state, const strata__product_args *args,
                   CUtensorMap *map)
{
    const cuuint64_t sizes[2] = {args->inputs, args->range.rows};
    const cuuint64_t strides[1] = {(cuuint64_t)args->inputs * 2};
    const cuuint32_t box[2] = {STRATA__BLOCK_VALUES, HALF_TILE};
    const cuuint32_t steps[2] = {1, 1};
    if (args->in_row || !state->encode_tensor_map || reinterpret_cast<uintptr_t>(args->in) % 16)
        return false;
    return reinterpret_cast<encode_function>(state->encode_tensor_map)(
               map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, const_cast<uint16_t *>(args->in), sizes,
               strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
               CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
               CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

} /* namespace */

strata_status strata__cuda_product_sm90_load(void)
{
    const void *kernels[] = {reinterpret_cast<const void *>(product<false, false>),
                             reinterpret_cast<const void *>(product<false, true>),
                             reinterpret_cast<const void *>(product<true, false>)};
    return strata__cuda_load_kernels(kernels, 3, SHARED_BYTES);
}

strata_status strata__cuda_product_sm90(const strata__cuda_state *state, cudaStream_t stream,
                                        bool paired, const strata__product_args *args)
{
    uint64_t tiles =
        most_tiles(args, STRATA__TILE_ROWS, (args->slabs + TILE_SLABS - 1) / TILE_SLABS);
    uint32_t blocks = tiles < state->multiprocessors ? (uint32_t)tiles : state->multiprocessors;
    product_launch launch = {*args, {}};
    void (*kernel)(product_launch) = product<true, false>;
    if (!paired)
        kernel =
            describe_rows(state, args, &launch.rows) ? product<false, true> : product<false, false>;
    return launch_overlapped(state, stream, kernel, dim3(blocks), THREADS, SHARED_BYTES, launch,
                             "multiplying");
}
