/* SPDX-License-Identifier: MIT */
/*
 * Attention for sm_90a, after FlashAttention-3 (Shah et al., 2024). A thread block stays on its
 * multiprocessor and works through tiles of 128 packed rows:
 *
 *   copying warps       warp 0 fetches K and V blocks with the tensor copy engine into a ring,
 *                       warps 1 to 3 bring the next tile's queries
 *   two warpgroups      64 rows each: S = Q K of block i runs on the tensor cores together with
 *                       O += P V of block i - 1; while one warpgroup computes its softmax, the
 *                       other's products run (they take turns at issuing)
 *
 * Tiles in shared memory are panels of 64 columns whose rows of 128 bytes are swizzled.
 */
#ifndef STRATA_KERNELS_CUDA_ATTENTION_HOPPER_CUH
#define STRATA_KERNELS_CUDA_ATTENTION_HOPPER_CUH

#include "attention_hopper_ptx.cuh"
#include "attention_rows.cuh"
#include "attention_softmax.cuh"

enum {
    TILE_ROWS = 128,
    GROUP_ROWS = 64,
    GROUP_THREADS = 128,
    CONSUMER_THREADS = 2 * GROUP_THREADS,
    HOPPER_THREADS = GROUP_THREADS + CONSUMER_THREADS,
    QUERY_COPIERS = 96,
    PANEL_COLUMNS = 64,
    ROW_BYTES = 128, /* of a panel */
    BOX_ROWS = 64,
    BOX_BYTES = BOX_ROWS * ROW_BYTES,
    GROUP_BARRIER = 1 /* named barriers 1 and 2 are a warpgroup's own */
};

template <int HD> struct hopper_shape {
    static constexpr int PANELS = HD / PANEL_COLUMNS;
    static constexpr int KEYS = HD == 256 ? 64 : 128; /* of a block */
    static constexpr int STAGES = HD == 64 ? 4 : 2;
    static constexpr int QUERY_STAGES = HD == 256 ? 1 : 2;
    static constexpr int PANEL_BYTES = KEYS * ROW_BYTES;
    static constexpr int QUERY_PANEL_BYTES = TILE_ROWS * ROW_BYTES;
    static constexpr int QUERY_BYTES = PANELS * QUERY_PANEL_BYTES;
    static constexpr int BLOCK_BYTES = PANELS * PANEL_BYTES;
    static constexpr int SHARED_BYTES =
        QUERY_STAGES * QUERY_BYTES + 2 * STAGES * BLOCK_BYTES + 1024;
};

/* Barriers come in pairs: filled by a copier, freed by the consumers. */
template <int STAGES, int QUERY_STAGES> struct hopper_barriers {
    uint64_t k_full[STAGES], k_free[STAGES], v_full[STAGES], v_free[STAGES];
    uint64_t q_full[QUERY_STAGES], q_free[QUERY_STAGES];
};

template <int HD>
using barriers_of = hopper_barriers<hopper_shape<HD>::STAGES, hopper_shape<HD>::QUERY_STAGES>;

/* A place in the ring that wraps, with the phase that its barriers are in. */
template <int STAGES> struct ring_cursor {
    uint32_t stage = 0, phase = 0;

    __device__ __forceinline__ void advance()
    {
        if (STAGES == 1 || ++stage == STAGES) {
            stage = 0;
            phase ^= 1;
        }
    }
};

/*
 * Tiles of all segments and KV heads in order of weight, heaviest first; dealt in alternating
 * order.
 */
struct tile_dealer {
    uint32_t tiles, total, round;

    __device__ __forceinline__ tile_dealer(const strata__attention_args &args)
    {
        uint32_t packed = args.max_segment_rows * (args.heads / args.kv.kv_heads);
        tiles = (packed + TILE_ROWS - 1) / TILE_ROWS;
        total = tiles * args.segment_count * args.kv.kv_heads;
        round = 0;
    }

    /* False behind the last tile; tiles without rows are passed over. */
    __device__ __forceinline__ bool next(const strata__attention_args &args, int keys,
                                         row_tile &tile)
    {
        for (;;) {
            uint32_t place = (round & 1) ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
            uint32_t rank = round++ * gridDim.x + place;
            if (rank >= total) {
                if (round * gridDim.x >= total)
                    return false;
                continue;
            }
            uint32_t head = rank % args.kv.kv_heads;
            rank /= args.kv.kv_heads;
            uint32_t segment = rank % args.segment_count;
            if (tile.place(args, tiles - 1 - rank / args.segment_count, head,
                           args.segments[segment], TILE_ROWS, keys))
                return true;
        }
    }
};

/* Warp 0 of the copying group, one thread. */
template <int HD>
static __device__ __forceinline__ void
copy_keys_values(const strata__attention_args &args, const CUtensorMap *k_map,
                 const CUtensorMap *v_map, barriers_of<HD> &barriers, uint32_t ring)
{
    using shape = hopper_shape<HD>;
    constexpr int CHUNKS = shape::KEYS / BOX_ROWS;
    ring_cursor<shape::STAGES> at;
    at.phase = 1; /* every place is free at first */
    tile_dealer dealer(args);
    row_tile tile;
    while (dealer.next(args, shape::KEYS, tile)) {
        const int32_t *pages =
            args.kv.page_table + (uint64_t)tile.segment.sequence * args.kv.table_stride;
        uint32_t last_chunk = (tile.segment.position + tile.segment.rows - 1) / BOX_ROWS;
        for (int block = tile.first_key_block; block < tile.end_key_block; block++) {
            int32_t rows[CHUNKS];
#pragma unroll
            for (int c = 0; c < CHUNKS; c++) {
                uint32_t key = min((uint32_t)(block * CHUNKS + c), last_chunk) * BOX_ROWS;
                rows[c] = (int32_t)(((uint32_t)pages[key / args.kv.page_tokens] * args.kv.kv_heads +
                                     tile.kv_head) *
                                        args.kv.page_tokens +
                                    key % args.kv.page_tokens);
            }
            uint32_t target = ring + at.stage * 2 * shape::BLOCK_BYTES;
            barrier_wait(shared_address(&barriers.k_free[at.stage]), at.phase);
            barrier_arrive_expect(shared_address(&barriers.k_full[at.stage]), shape::BLOCK_BYTES);
#pragma unroll
            for (int i = 0; i < shape::PANELS * CHUNKS; i++)
                copy_box(target + i * BOX_BYTES, k_map, i / CHUNKS * PANEL_COLUMNS,
                         rows[i % CHUNKS], shared_address(&barriers.k_full[at.stage]));
            barrier_wait(shared_address(&barriers.v_free[at.stage]), at.phase);
            barrier_arrive_expect(shared_address(&barriers.v_full[at.stage]), shape::BLOCK_BYTES);
#pragma unroll
            for (int i = 0; i < shape::PANELS * CHUNKS; i++)
                copy_box(target + shape::BLOCK_BYTES + i * BOX_BYTES, v_map,
                         i / CHUNKS * PANEL_COLUMNS, rows[i % CHUNKS],
                         shared_address(&barriers.v_full[at.stage]));
            at.advance();
        }
    }
}

/* Warps 1 to 3 of the copying group: rows that the segment lacks become zeros. */
template <int HD>
static __device__ __forceinline__ void copy_tile_queries(const strata__attention_args &args,
                                                         barriers_of<HD> &barriers, uint32_t target)
{
    using shape = hopper_shape<HD>;
    const __half *q = (const __half *)args.q.data;
    ring_cursor<shape::QUERY_STAGES> q_at;
    q_at.phase = 1;
    tile_dealer dealer(args);
    row_tile tile;
    while (dealer.next(args, shape::KEYS, tile)) {
        barrier_wait(shared_address(&barriers.q_free[q_at.stage]), q_at.phase);
        uint32_t stage = target + q_at.stage * shape::QUERY_BYTES;
#pragma unroll 2
        for (int at = (int)threadIdx.x - 32; at < TILE_ROWS * HD / 8; at += QUERY_COPIERS) {
            int row = at / (HD / 8), chunk = at % (HD / 8);
            bool valid = tile.has(row);
            const __half *source = valid ? q + tile.value_index(args, row) + chunk * 8 : q;
            copy_async_16(stage + chunk / 8 * shape::QUERY_PANEL_BYTES + row * ROW_BYTES +
                              (((chunk & 7) ^ (row & 7)) << 4),
                          source, valid);
        }
        copy_async_commit();
        copy_async_wait<0>();
        fence_async_proxy();
        barrier_arrive(shared_address(&barriers.q_full[q_at.stage]));
        q_at.advance();
    }
}

/* Issues S = Q K of the warpgroup's rows. */
template <int HD>
static __device__ __forceinline__ void issue_scores(float (&s)[hopper_shape<HD>::KEYS / 8][4],
                                                    uint32_t q, uint32_t k)
{
    using shape = hopper_shape<HD>;
    uint32_t q_place = operand_place(q), k_place = operand_place(k);
    /* Or the compiler keeps the descriptors of all steps in registers between blocks. */
    asm volatile("" : "+r"(q_place));
#pragma unroll
    for (int step = 0; step < HD / 16; step++) {
        int panel = step / 4, column = step % 4 * 32;
        multiply_shared(s, operand<16>(q_place, panel * shape::QUERY_PANEL_BYTES + column),
                        operand<16>(k_place, panel * shape::PANEL_BYTES + column), step > 0);
    }
    products_commit();
}

/* Issues O += P V; the sums of 256 columns are two operands of 128. */
template <int HD>
static __device__ __forceinline__ void
issue_values(float (&o)[HD <= 128 ? 1 : 2][HD <= 128 ? HD / 8 : 16][4],
             const uint32_t (&p)[hopper_shape<HD>::KEYS / 16][4], uint32_t v)
{
    using shape = hopper_shape<HD>;
    constexpr int PARTS = HD <= 128 ? 1 : 2;
    uint32_t place = operand_place(v);
#pragma unroll
    for (int step = 0; step < shape::KEYS / 16; step++)
#pragma unroll
        for (int part = 0; part < PARTS; part++)
            multiply_registers(o[part], p[step],
                               operand<shape::PANEL_BYTES>(place, part * 2 * shape::PANEL_BYTES +
                                                                      step * 16 * ROW_BYTES));
    products_commit();
}

template <int NT>
static __device__ __forceinline__ void pack_probabilities(uint32_t (&p)[NT / 2][4],
                                                          const float (&s)[NT][4])
{
#pragma unroll
    for (int i = 0; i < NT / 2; i++) {
        p[i][0] = pack_half2(s[2 * i][0], s[2 * i][1]);
        p[i][1] = pack_half2(s[2 * i][2], s[2 * i][3]);
        p[i][2] = pack_half2(s[2 * i + 1][0], s[2 * i + 1][1]);
        p[i][3] = pack_half2(s[2 * i + 1][2], s[2 * i + 1][3]);
    }
}

/* The lane's first row of a tile; the other one is eight behind it. */
static __device__ __forceinline__ uint32_t consumer_row()
{
    return (threadIdx.x - GROUP_THREADS) / 32 * 16 + (threadIdx.x & 31) / 4;
}

/* A warpgroup's rows of a tile: two rows a lane. */
struct consumer_rows {
    row_state state[2];
    float scale[2];

    __device__ __forceinline__ void begin(const strata__attention_args &args, const row_tile &tile)
    {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            state[half] = {ATTENTION_NEGATIVE_INFINITY, 0.0f};
            scale[half] = tile.scale_log2(args, consumer_row() + half * 8);
        }
    }

    template <int NT>
    __device__ __forceinline__ void softmax(float (&s)[NT][4], float (&factor)[2],
                                            const row_tile &tile, int block, uint32_t window)
    {
        if (!tile.sees_all(block, NT * 8, window)) {
            int key = block * NT * 8 + (int)((threadIdx.x & 3) << 1);
            uint32_t row = consumer_row();
            mask_scores<NT, 0>(s, key, tile.position(row), (int)window);
            mask_scores<NT, 2>(s, key, tile.position(row + 8), (int)window);
        }
        factor[0] = softmax_step<NT, 0>(s, state[0], scale[0]);
        factor[1] = softmax_step<NT, 2>(s, state[1], scale[1]);
    }
};

template <int PARTS, int NT>
static __device__ __forceinline__ void rescale(float (&o)[PARTS][NT][4], const float (&factor)[2])
{
#pragma unroll
    for (int part = 0; part < PARTS; part++)
#pragma unroll
        for (int n = 0; n < NT; n++) {
            o[part][n][0] *= factor[0];
            o[part][n][1] *= factor[0];
            o[part][n][2] *= factor[1];
            o[part][n][3] *= factor[1];
        }
}

/*
 * Values behind the segment's last key were never written and may be anything; their probabilities
 * are zero, but zero times infinity is not. Both warpgroups write the same zeros.
 */
template <int HD> static __device__ __forceinline__ void clear_tail(char *v, int valid_rows)
{
    using shape = hopper_shape<HD>;
    if (valid_rows >= shape::KEYS)
        return;
    int per_panel = (shape::KEYS - valid_rows) * 8;
    for (int at = threadIdx.x % GROUP_THREADS; at < per_panel * shape::PANELS; at += GROUP_THREADS)
        *reinterpret_cast<uint4 *>(v + at / per_panel * shape::PANEL_BYTES +
                                   valid_rows * ROW_BYTES + at % per_panel * 16) =
            make_uint4(0, 0, 0, 0);
    fence_async_proxy();
    named_sync(GROUP_BARRIER + (int)threadIdx.x / GROUP_THREADS - 1, GROUP_THREADS);
}

template <int PARTS, int NT>
static __device__ __forceinline__ void write_tile(const strata__attention_args &args,
                                                  const row_tile &tile, const consumer_rows &rows,
                                                  const float (&o)[PARTS][NT][4])
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint32_t r = consumer_row() + half * 8;
        const float *sink = args.sinks && tile.has(r) ? args.sinks + tile.query_head(r) : nullptr;
        float factor = output_factor(rows.state[half], rows.scale[half], sink);
        if (!tile.has(r))
            continue;
        __half *out = (__half *)args.out.data + tile.value_index(args, r) + (threadIdx.x & 3) * 2;
#pragma unroll
        for (int part = 0; part < PARTS; part++)
#pragma unroll
            for (int n = 0; n < NT; n++)
                *reinterpret_cast<uint32_t *>(out + part * NT * 8 + n * 8) =
                    output_pair(o[part][n][half * 2], o[part][n][half * 2 + 1], factor);
        if (args.out.scale && tile.query_head(r) == 0 && (threadIdx.x & 3) == 0)
            args.out.scale[tile.token_row(r)] = 1.0f;
    }
}

static __device__ __forceinline__ void release(uint64_t *barrier)
{
    if ((threadIdx.x & 31) == 0)
        barrier_arrive(shared_address(barrier));
}

/*
 * Ends a basic block that depends on two sums, which are never negative. Without it the assembler
 * hoists the wait for running products above the exponentials that should run beside them.
 */
static __device__ __forceinline__ void settle(float a, float b)
{
    if (__any_sync(0xffffffffu, fminf(a, b) < 0.0f))
        asm volatile("nanosleep.u32 0;\n" ::: "memory");
}

/* What a warpgroup needs to walk through the ring. */
template <int HD> struct consumer {
    using shape = hopper_shape<HD>;
    static constexpr int NT = shape::KEYS / 8;
    static constexpr int PARTS = HD <= 128 ? 1 : 2;
    static constexpr int ONT = HD / 8 / PARTS;

    const strata__attention_args &args;
    barriers_of<HD> &barriers;
    char *ring;
    uint32_t queries;
    ring_cursor<shape::STAGES> k_at, v_at;
    ring_cursor<shape::QUERY_STAGES> q_at;

    __device__ __forceinline__ uint32_t wait_keys()
    {
        barrier_wait(shared_address(&barriers.k_full[k_at.stage]), k_at.phase);
        return shared_address(ring) + k_at.stage * 2 * shape::BLOCK_BYTES;
    }

    __device__ __forceinline__ uint32_t wait_values(const row_tile &tile, int block)
    {
        barrier_wait(shared_address(&barriers.v_full[v_at.stage]), v_at.phase);
        char *v = ring + v_at.stage * 2 * shape::BLOCK_BYTES + shape::BLOCK_BYTES;
        clear_tail<HD>(v, (int)(tile.segment.position + tile.segment.rows) - block * shape::KEYS);
        return shared_address(v);
    }

    __device__ __forceinline__ void free_keys()
    {
        release(&barriers.k_free[k_at.stage]);
        k_at.advance();
    }

    __device__ __forceinline__ void free_values()
    {
        release(&barriers.v_free[v_at.stage]);
        v_at.advance();
    }

    __device__ __forceinline__ void run_tile(const row_tile &tile)
    {
        float s[NT][4], o[PARTS][ONT][4] = {}, factor[2];
        uint32_t p[NT / 2][4];
        consumer_rows rows;
        rows.begin(args, tile);
        /* The shuffles tell the compiler what is the same in all lanes. */
        int first = __shfl_sync(0xffffffffu, tile.first_key_block, 0);
        int end = __shfl_sync(0xffffffffu, tile.end_key_block, 0);
        barrier_wait(shared_address(&barriers.q_full[q_at.stage]), q_at.phase);
        uint32_t q = queries + q_at.stage * shape::QUERY_BYTES;
        uint32_t k = wait_keys();
        products_fence();
        issue_scores<HD>(s, q, k);
        products_wait<0>();
        hold(s);
        free_keys();
        rows.softmax<NT>(s, factor, tile, first, args.window);
        pack_probabilities<NT>(p, s);
#pragma unroll 1
        for (int block = first + 1; block < end; block++) {
            k = wait_keys();
            uint32_t v = wait_values(tile, block - 1);
            products_fence();
            issue_scores<HD>(s, q, k);
            issue_values<HD>(o, p, v);
            products_wait<1>();
            hold(s);
            free_keys();
            rows.softmax<NT>(s, factor, tile, block, args.window);
            settle(rows.state[0].sum, rows.state[1].sum);
            products_wait<0>();
            hold(o[0]);
            hold(o[PARTS - 1]);
            free_values();
            pack_probabilities<NT>(p, s);
            rescale<PARTS, ONT>(o, factor);
        }
        release(&barriers.q_free[q_at.stage]);
        q_at.advance();
        uint32_t v = wait_values(tile, end - 1);
        products_fence();
        issue_values<HD>(o, p, v);
        products_wait<0>();
        hold(o[0]);
        hold(o[PARTS - 1]);
        free_values();
        write_tile<PARTS, ONT>(args, tile, rows, o);
    }
};

template <int STAGES, int QUERY_STAGES>
static __device__ __forceinline__ void
init_barriers(hopper_barriers<STAGES, QUERY_STAGES> &barriers)
{
    const uint32_t warps = CONSUMER_THREADS / 32;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            barrier_init(shared_address(&barriers.k_full[i]), 1);
            barrier_init(shared_address(&barriers.v_full[i]), 1);
            barrier_init(shared_address(&barriers.k_free[i]), warps);
            barrier_init(shared_address(&barriers.v_free[i]), warps);
        }
        for (int i = 0; i < QUERY_STAGES; i++) {
            barrier_init(shared_address(&barriers.q_full[i]), QUERY_COPIERS);
            barrier_init(shared_address(&barriers.q_free[i]), warps);
        }
        barrier_init_done();
    }
    __syncthreads();
}

template <int HD>
static __device__ __forceinline__ void
attention_hopper_body(const strata__attention_args &args, const CUtensorMap *k_map,
                      const CUtensorMap *v_map, barriers_of<HD> &barriers, char *memory)
{
    using shape = hopper_shape<HD>;
    memory += (1024 - (shared_address(memory) & 1023)) & 1023;
    init_barriers(barriers);
    char *ring = memory + shape::QUERY_STAGES * shape::QUERY_BYTES;
    if (threadIdx.x < GROUP_THREADS) {
        registers_lower<40>();
        if (threadIdx.x == 0)
            copy_keys_values<HD>(args, k_map, v_map, barriers, shared_address(ring));
        else if (threadIdx.x >= 32)
            copy_tile_queries<HD>(args, barriers, shared_address(memory));
    } else {
        registers_raise<232>();
        int group = __shfl_sync(0xffffffffu, (int)threadIdx.x / GROUP_THREADS - 1, 0);
        uint32_t q = shared_address(memory) + group * GROUP_ROWS * ROW_BYTES;
        consumer<HD> me = {args, barriers, ring, q, {}, {}, {}};
        tile_dealer dealer(args);
        row_tile tile;
        while (dealer.next(args, shape::KEYS, tile))
            me.run_tile(tile);
    }
}

#endif
