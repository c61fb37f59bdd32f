/* SPDX-License-Identifier: MIT */
/*
 * The grouped int8 product: tiles of 64 or 32 rows by 128 image columns, eight warps, stages of 128
 * values filled by cp.async. Tensor cores form the exact dots of D values, the rest is float32 in
 * the order of kernels/int8.h. How a matrix is summed is a switch inside the loop over blocks, so
 * gate and up may differ and one kernel serves every mix of formats.
 */
#include "kernels/cuda/int8_work.cuh"

namespace
{

constexpr uint32_t H_COLUMNS = STRATA__SLAB_ROWS / 2, SUM_STRIDE = STRATA__SLAB_ROWS + 8;

/*
 * Warps are MTILES * 16 rows by NTILES * 8 columns. STAGES are there on every device, MOST_STAGES
 * where a block may have that much shared memory.
 */
template <int ROWS_> struct shape;
template <> struct shape<64> {
    static constexpr uint32_t ROWS = 64, MTILES = 2, NTILES = 4, THREADS = 256, BLOCKS = 2;
    static constexpr uint32_t STAGES = 2, MOST_STAGES = 3;
};
template <> struct shape<32> {
    static constexpr uint32_t ROWS = 32, MTILES = 2, NTILES = 2, THREADS = 256, BLOCKS = 2;
    static constexpr uint32_t STAGES = 2, MOST_STAGES = 3;
};

/* A warp's place in the tile and its lane's in the fragments. */
struct warp_place {
    uint32_t row, column; /* the warp's first */
    uint32_t lane;
};

template <class S> __device__ __forceinline__ warp_place place_of_warp()
{
    constexpr uint32_t COLUMN_WARPS = STRATA__SLAB_ROWS / (S::NTILES * 8);
    uint32_t thread = threadIdx.x, warp = thread / 32;
    return {warp / COLUMN_WARPS * (S::MTILES * 16), warp % COLUMN_WARPS * (S::NTILES * 8),
            thread % 32};
}

/* Places in a stage. */
template <class S> struct stage_layout {
    static constexpr uint32_t CODES = 0;
    static constexpr uint32_t WEIGHTS = S::ROWS * STRATA__INT8_K;
    static constexpr uint32_t SCALES = WEIGHTS + STRATA__INT8_CODE_BYTES;
    static constexpr uint32_t OFFSETS = SCALES + STRATA__INT8_SCALE_BYTES;
    static constexpr uint32_t ROW_SCALES = OFFSETS + STRATA__INT8_SCALE_BYTES;
    static constexpr uint32_t ROW_SUMS = ROW_SCALES + S::ROWS * 16;
    static constexpr uint32_t BYTES = ROW_SUMS + S::ROWS * 16;
    static constexpr uint32_t ALL_BYTES = S::STAGES * BYTES;
    static constexpr uint32_t MOST_BYTES = S::MOST_STAGES * BYTES;
    static_assert(ALL_BYTES + sizeof(work_list) <= STRATA__SHARED_LIMIT,
                  "the product must fit every supported device");
    static_assert(S::ROWS * SUM_STRIDE * 4 <= ALL_BYTES, "sums take the stages' place");
};

/* Dynamic shared memory where a block may have `limit`: most, unless that keeps blocks away. */
template <class S> uint32_t stage_bytes(uint64_t limit)
{
    using place = stage_layout<S>;
    const uint64_t other = 8192; /* what a block has beside it */
    bool all_with_most = limit >= S::BLOCKS * (place::MOST_BYTES + other);
    bool all_with_least = limit >= S::BLOCKS * (place::ALL_BYTES + other);
    bool one_with_most = limit >= place::MOST_BYTES + other;
    return all_with_most || (!all_with_least && one_with_most) ? place::MOST_BYTES
                                                               : place::ALL_BYTES;
}

/* Bytes of the scales or offsets of a block, one of every `values`; 0: there are none. */
__device__ __forceinline__ uint32_t plane_bytes(uint32_t values)
{
    return values ? STRATA__INT8_K / values * STRATA__SLAB_ROWS * 4 : 0;
}

/* What a thread copies of each block of a tile: from where, and whether at all. */
struct thread_copies {
    const uint8_t *codes, *terms;
    uint32_t code_step;   /* bytes between the rows of two copies of codes */
    uint32_t place;       /* of codes in the stage */
    uint32_t terms_place; /* of scales or sums of a row */
    uint32_t rows;        /* bit i: row i of the thread's exists */
    bool terms_wanted, scales_wanted, offsets_wanted;
};

template <class S, bool PAIRED>
__device__ __forceinline__ thread_copies plan_copies(const strata__int8_product_args &args,
                                                     const work_tile &tile)
{
    using place = stage_layout<S>;
    constexpr uint32_t STEP = S::THREADS / 8;
    const strata__int8_form &gate = args.form[0], &up = args.form[PAIRED ? 1 : 0];
    uint32_t scales = codes_bytes(args.inputs), sums = scales + scales_bytes(args.inputs);
    uint32_t row_bytes = sums + scales_bytes(args.inputs);
    uint32_t r = threadIdx.x / 8, c = threadIdx.x % 8, at = threadIdx.x * 16;
    const uint8_t *rows = args.rows + (uint64_t)tile.first_row * row_bytes;
    thread_copies copies = {};
    copies.codes = rows + (uint64_t)r * row_bytes + c * 16;
    copies.code_step = STEP * row_bytes;
    copies.place = r * STRATA__INT8_K + ((c ^ (r & 7)) << 4);
#pragma unroll
    for (uint32_t i = 0; i < S::ROWS / STEP; i++)
        copies.rows |= (r + i * STEP < tile.rows ? 1u : 0) << i;
    r = threadIdx.x % S::ROWS;
    bool second = threadIdx.x >= S::ROWS;
    copies.terms = rows + (uint64_t)r * row_bytes + (second ? sums : scales);
    copies.terms_place = (second ? place::ROW_SUMS : place::ROW_SCALES) + r * 16;
    copies.terms_wanted =
        threadIdx.x < 2 * S::ROWS && r < tile.rows && (!second || gate.offsets || up.offsets);
    copies.scales_wanted = at < max(plane_bytes(gate.values), plane_bytes(up.values));
    copies.offsets_wanted = at < max(plane_bytes(gate.offsets), plane_bytes(up.offsets));
    return copies;
}

/* The next block; `left`: values of the rows from it on. Rows that do not exist are zeros. */
template <class S>
__device__ __forceinline__ void load_stage(const strata__int8_product_args &args,
                                           const work_tile &tile, thread_copies &copies,
                                           uint32_t left, uint8_t *stage)
{
    using place = stage_layout<S>;
    uint32_t k_blocks = (args.inputs + STRATA__INT8_K - 1) / STRATA__INT8_K;
    uint64_t block = ((uint64_t)tile.expert * args.slabs + tile.column) * k_blocks +
                     (args.inputs - left) / STRATA__INT8_K;
    const uint8_t *image = args.image + block * STRATA__INT8_IMAGE_BYTES + threadIdx.x * 16;
    const uint8_t *from = copies.codes;
    bool inside = threadIdx.x % 8 * 16 < left;
#pragma unroll
    for (uint32_t i = 0; i < S::ROWS * 8 / S::THREADS; i++, from += copies.code_step)
        copy_async_16(shared_address(stage + place::CODES + copies.place + i * S::THREADS * 16),
                      from, inside && copies.rows >> i & 1);
    if (copies.terms_wanted)
        copy_async_16(shared_address(stage + copies.terms_place), copies.terms, true);
    stage += threadIdx.x * 16;
#pragma unroll
    for (uint32_t i = 0; i < STRATA__INT8_CODE_BYTES / 16 / S::THREADS; i++)
        copy_async_16(shared_address(stage + place::WEIGHTS + i * S::THREADS * 16),
                      image + i * S::THREADS * 16, true);
    if (copies.scales_wanted)
        copy_async_16(shared_address(stage + place::SCALES), image + STRATA__INT8_CODE_BYTES, true);
    if (copies.offsets_wanted)
        copy_async_16(shared_address(stage + place::OFFSETS),
                      image + STRATA__INT8_CODE_BYTES + STRATA__INT8_SCALE_BYTES, true);
    copies.codes += STRATA__INT8_K;
    copies.terms += 16;
}

__device__ __forceinline__ void load_four(uint32_t (&r)[4], uint32_t from)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(from)
                 : "memory");
}

__device__ __forceinline__ void load_two(uint32_t (&r)[2], uint32_t from)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];\n"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(from)
                 : "memory");
}

/* Scales or offsets of two neighbouring columns. */
__device__ __forceinline__ float2 column_pair(const uint8_t *plane, uint32_t group, uint32_t column)
{
    return *reinterpret_cast<const float2 *>(plane + (group * STRATA__SLAB_ROWS + column) * 4);
}

/*
 * How a matrix is summed: dots of D values, how many offsets 32 values have, scales beyond what
 * with_dots() can shift.
 */
template <int D_, int OFFSETS_, bool WIDE_> struct sum_form {
    static constexpr int D = D_, OFFSETS = OFFSETS_;
    static constexpr int PARTS = D == 16 ? 2 : 1, SUMS = OFFSETS == 2 ? 2 : 1;
    static constexpr bool WIDE = WIDE_;
    static_assert(PARTS == 1 || OFFSETS == 0, "offsets follow the one dot of their values");
};

/* What the columns of a lane's fragment bring to a sum: scales, -BIAS times the first, offsets. */
template <class F> struct column_terms {
    float2 w[F::PARTS], shift, o[F::SUMS];
};

/* What the dots of two rows by two columns add to the sums. */
template <class F>
__device__ __forceinline__ void
add_dots(float (&sums)[4], const int (&dots)[F::PARTS][4], const column_terms<F> &c,
         const float (&row_sum)[F::SUMS][2], const float (&scale)[2])
{
#pragma unroll
    for (int v = 0; v < 4; v++) {
        int own[F::PARTS];
        float w[F::PARTS], o[F::SUMS] = {}, row_sums[F::SUMS] = {};
#pragma unroll
        for (int p = 0; p < F::PARTS; p++) {
            own[p] = dots[p][v];
            w[p] = v % 2 ? c.w[p].y : c.w[p].x;
        }
#pragma unroll
        for (int p = 0; p < F::OFFSETS; p++) {
            o[p] = v % 2 ? c.o[p].y : c.o[p].x;
            row_sums[p] = row_sum[p][v / 2];
        }
        sums[v] =
            with_dots<F>(sums[v], own, w, v % 2 ? c.shift.y : c.shift.x, o, row_sums, scale[v / 2]);
    }
}

/* Scales, and sums of 32 values or of their halves, of a lane's two rows from place `from` on. */
template <class S, class F>
__device__ __forceinline__ void load_row_terms(const uint8_t *stage, uint32_t from,
                                               float (&row_sum)[F::SUMS][2], float (&scale)[2])
{
    using place = stage_layout<S>;
#pragma unroll
    for (int h = 0; h < 2; h++, from += 8 * 16) {
        scale[h] = *reinterpret_cast<const float *>(stage + place::ROW_SCALES + from);
        if (!F::OFFSETS)
            continue;
        int halves = *reinterpret_cast<const int *>(stage + place::ROW_SUMS + from);
        row_sum[0][h] = (float)(F::SUMS == 2 ? (short)halves : __dp2a_lo(halves, 0x0101, 0));
        if (F::SUMS == 2)
            row_sum[F::SUMS - 1][h] = (float)(halves >> 16);
    }
}

/* Which of the warp's columns, in eights: FIRST, FIRST + STEP, ... */
template <int FIRST_, int STEP_, int COUNT_> struct columns {
    static constexpr int FIRST = FIRST_, STEP = STEP_, COUNT = COUNT_;
};

/* Where a lane's part of the weights of k = 0 lies; for other k, xor k * 32. */
template <class C>
__device__ __forceinline__ uint32_t weights_address(const uint8_t *weights, const warp_place &at)
{
    uint32_t column = at.column + 8 * (C::FIRST + (C::COUNT > 1 ? C::STEP * (at.lane / 16) : 0));
    return shared_address(weights) + (column + at.lane % 8) * 128 +
           (((at.lane / 8 % 2) ^ (at.lane & 7)) << 4);
}

/* Weights of 32 values of all columns. */
template <class C>
__device__ __forceinline__ void load_weights(uint32_t (&b)[C::COUNT][2], uint32_t from)
{
    if constexpr (C::COUNT == 1) {
        load_two(b[0], from);
    } else {
#pragma unroll
        for (int j = 0; j < C::COUNT; j += 2) {
            uint32_t r[4];
            load_four(r, from + 8 * C::STEP * j * 128);
            b[j][0] = r[0], b[j][1] = r[1];
            b[j + 1][0] = r[2], b[j + 1][1] = r[3];
        }
    }
}

/* The same, read again where it is used, for registers are scarce. */
__device__ __forceinline__ float2 column_pair_again(const uint8_t *plane, uint32_t group,
                                                    uint32_t column)
{
    float2 pair;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];\n"
                 : "=f"(pair.x), "=f"(pair.y)
                 : "r"(shared_address(plane) + (group * STRATA__SLAB_ROWS + column) * 4)
                 : "memory");
    return pair;
}

template <class F>
__device__ __forceinline__ void load_column_terms(column_terms<F> &c, const uint8_t *scales,
                                                  uint32_t column, int k)
{
    c.w[0] = column_pair(scales, k * 32 / F::D, column);
    if (!F::WIDE)
        c.shift = {__fmul_rn(c.w[0].x, -BIAS), __fmul_rn(c.w[0].y, -BIAS)};
}

/* The rest of them. */
template <class F>
__device__ __forceinline__ void load_more_terms(column_terms<F> &c, const uint8_t *scales,
                                                uint32_t column, int k)
{
    if (F::PARTS == 2)
        c.w[F::PARTS - 1] = column_pair_again(scales, k * 32 / F::D + 1, column);
#pragma unroll
    for (int p = 0; p < F::OFFSETS; p++)
        c.o[p] = column_pair_again(scales + STRATA__INT8_SCALE_BYTES, k * F::SUMS + p, column);
}

/* A block of some of the warp's columns. Rows have a scale per 32 values, or per 64 where D is. */
template <class S, class F, class C>
__device__ __forceinline__ void multiply_block(float (&sums)[S::MTILES][S::NTILES][4],
                                               const uint8_t *stage, const warp_place &at,
                                               uint32_t values)
{
    using place = stage_layout<S>;
    constexpr int STEPS = F::D == 64 ? 2 : 1, PARTS = F::PARTS;
    const uint32_t r = at.lane / 4, q = at.lane % 4;
    const uint32_t weights = weights_address<C>(stage + place::WEIGHTS, at);
    const uint32_t codes = shared_address(stage + place::CODES) + (at.row + at.lane % 16) * 128 +
                           (((at.lane / 16) ^ (at.lane & 7)) << 4);
#pragma unroll 1 /* unrolled it takes twice the registers */
    for (int k = 0; k < 4 && k * 32 < (int)values; k += STEPS) {
        uint32_t b[STEPS][C::COUNT][2];
        column_terms<F> terms[C::COUNT];
#pragma unroll
        for (int s = 0; s < STEPS; s++)
            load_weights<C>(b[s], weights ^ (uint32_t)(k + s) * 32);
#pragma unroll
        for (int j = 0; j < C::COUNT; j++)
            load_column_terms<F>(terms[j], stage + place::SCALES,
                                 at.column + 8 * (C::FIRST + C::STEP * j) + 2 * q, k);
#pragma unroll
        for (int i = 0; i < (int)S::MTILES; i++) {
            uint32_t a[STEPS][4], row = at.row + 16 * i;
            float scale[2], row_sum[F::SUMS][2];
#pragma unroll
            for (int s = 0; s < STEPS; s++)
                load_four(a[s], (codes ^ (uint32_t)(k + s) * 32) + 16 * i * 128);
            load_row_terms<S, F>(stage, (row + r) * 16 + k * 4, row_sum, scale);
#pragma unroll
            for (int j = 0; j < C::COUNT; j++) {
                int dots[PARTS][4];
                load_more_terms<F>(terms[j], stage + place::SCALES,
                                   at.column + 8 * (C::FIRST + C::STEP * j) + 2 * q, k);
                if (F::D == 16) {
                    multiply_16(dots[0], a[0][0], a[0][1], b[0][j][0]);
                    multiply_16(dots[PARTS - 1], a[0][2], a[0][3], b[0][j][1]);
                } else {
                    multiply_32(dots[0], a[0], b[0][j][0], b[0][j][1]);
                    if (STEPS == 2)
                        multiply_32_more(dots[0], a[STEPS - 1], b[STEPS - 1][j][0],
                                         b[STEPS - 1][j][1]);
                }
                add_dots<F>(sums[i][C::FIRST + C::STEP * j], dots, terms[j], row_sum, scale);
            }
        }
    }
}

template <class S, class C>
__device__ __forceinline__ void multiply_form(float (&sums)[S::MTILES][S::NTILES][4],
                                              const uint8_t *stage, const warp_place &at,
                                              uint32_t values, const strata__int8_form &form)
{
    switch (form.kind) {
    case STRATA__INT8_SUM_16:
        multiply_block<S, sum_form<16, 0, false>, C>(sums, stage, at, values);
        break;
    case STRATA__INT8_SUM_32_OFFSETS:
        multiply_block<S, sum_form<32, 1, false>, C>(sums, stage, at, values);
        break;
    case STRATA__INT8_SUM_32_TWO_OFFSETS:
        multiply_block<S, sum_form<32, 2, false>, C>(sums, stage, at, values);
        break;
    case STRATA__INT8_SUM_64:
        multiply_block<S, sum_form<64, 0, false>, C>(sums, stage, at, values);
        break;
    case STRATA__INT8_SUM_32_WIDE:
        multiply_block<S, sum_form<32, 0, true>, C>(sums, stage, at, values);
        break;
    default:
        multiply_block<S, sum_form<32, 0, false>, C>(sums, stage, at, values);
        break;
    }
}

/* All columns at once where one form serves them. */
template <class S, bool PAIRED>
__device__ __forceinline__ void multiply_all(float (&sums)[S::MTILES][S::NTILES][4],
                                             const uint8_t *stage, const warp_place &at,
                                             uint32_t values, const strata__int8_form (&form)[2])
{
    const strata__int8_form &second = form[PAIRED ? 1 : 0];
    if (form[0].kind == second.kind) {
        multiply_form<S, columns<0, 1, S::NTILES>>(sums, stage, at, values, second);
        return;
    }
    multiply_form<S, columns<0, 2, S::NTILES / 2>>(sums, stage, at, values, form[0]);
    multiply_form<S, columns<1, 2, S::NTILES / 2>>(sums, stage, at, values, second);
}

template <class S>
__device__ __forceinline__ void store_sums(const strata__int8_product_args &args,
                                           const work_tile &tile, const warp_place &at,
                                           const float (&sums)[S::MTILES][S::NTILES][4])
{
    uint32_t expert = args.range.first_expert + tile.expert, row = at.row + at.lane / 4;
    uint32_t first =
        (args.first_slab + tile.column) * STRATA__SLAB_ROWS + at.column + 2 * (at.lane % 4);
    float factor = args.expert_scale ? args.expert_scale[expert] : 1.0f;
    float *out = args.out + (uint64_t)(tile.first_row + row) * args.out_stride + first;
    float2 bias[S::NTILES];
#pragma unroll
    for (int j = 0; j < (int)S::NTILES; j++) {
        bias[j] = {NO_BIAS, NO_BIAS};
        if (args.bias && first + 8 * j < args.end) /* outputs are even */
            bias[j] = *reinterpret_cast<const float2 *>(
                args.bias + (uint64_t)expert * args.outputs + first + 8 * j);
    }
#pragma unroll
    for (int i = 0; i < 2 * (int)S::MTILES; i++, row += 8, out += 8 * (uint64_t)args.out_stride)
#pragma unroll
        for (int j = 0; j < (int)S::NTILES; j++)
            if (row < tile.rows && first + 8 * j < args.end)
                *reinterpret_cast<float2 *>(out + 8 * j) = {
                    __fmul_rn(__fadd_rn(sums[i / 2][j][i % 2 * 2], bias[j].x), factor),
                    __fmul_rn(__fadd_rn(sums[i / 2][j][i % 2 * 2 + 1], bias[j].y), factor)};
}

/* The tile's sums to shared memory, [row][SUM_STRIDE]: the gates, then the ups. */
template <class S>
__device__ __forceinline__ void
gather_sums(const warp_place &at, const float (&sums)[S::MTILES][S::NTILES][4], float *shared)
{
#pragma unroll
    for (int i = 0; i < (int)S::MTILES; i++)
#pragma unroll
        for (int j = 0; j < (int)S::NTILES; j++)
#pragma unroll
            for (int v = 0; v < 4; v += 2) {
                uint32_t row = at.row + 16 * i + 4 * v + at.lane / 4;
                uint32_t column = at.column / 2 + 4 * (j & ~1) + 2 * (at.lane % 4);
                *reinterpret_cast<float2 *>(shared + row * SUM_STRIDE + j % 2 * H_COLUMNS +
                                            column) = {sums[i][j][v], sums[i][j][v + 1]};
            }
}

/* Hidden values of the gathered sums, quantised: four a thread, a row's 64 in half a warp. */
template <class S>
__device__ __forceinline__ void quantise_hidden(const strata__int8_product_args &args,
                                                const work_tile &tile, const float *shared)
{
    constexpr uint32_t QUADS = H_COLUMNS / 4;
    uint32_t column = threadIdx.x % QUADS * 4;
    uint32_t output = (args.first_slab + tile.column) * H_COLUMNS + column;
    uint64_t bias = (uint64_t)(args.range.first_expert + tile.expert) * args.outputs + output;
    bool inside = output < args.end;
    for (uint32_t row = threadIdx.x / QUADS; (row & ~1u) < tile.rows; row += S::THREADS / QUADS) {
        float gate[4], up[4];
        const float *from = shared + row * SUM_STRIDE + column;
        *reinterpret_cast<float4 *>(gate) = *reinterpret_cast<const float4 *>(from);
        *reinterpret_cast<float4 *>(up) = *reinterpret_cast<const float4 *>(from + H_COLUMNS);
#pragma unroll
        for (int v = 0; v < 4; v++) {
            gate[v] = inside ? with_bias(gate[v], args.bias, bias + v) : 0.0f;
            up[v] = inside ? with_bias(up[v], args.up_bias, bias + v) : 0.0f;
        }
        activate_gates(args.activation, gate, up);
        quantise_four(gate, args.h_group, args.h, (uint64_t)tile.first_row + row, output,
                      args.outputs, inside && row < tile.rows);
    }
}

template <class S, bool PAIRED>
__global__ void __launch_bounds__(S::THREADS, S::BLOCKS)
    product(const __grid_constant__ strata__int8_product_args args, uint32_t stage_count)
{
    using place = stage_layout<S>;
    extern __shared__ __align__(1024) uint8_t stages[];
    __shared__ work_list list;
    __shared__ work_tile tile, next; /* here, not in registers, which are scarce */
    build_list<S::ROWS>(list, args.range);
    if (threadIdx.x < 32)
        find_work<S::ROWS>(list, args.range.experts, args.slabs, blockIdx.x, &next);
    for (;;) {
        float sums[S::MTILES][S::NTILES][4] = {};
        uint32_t reading = 0;
        __syncthreads();
        if (threadIdx.x == 0)
            tile = next;
        __syncthreads();
        if (tile.rows == 0)
            return;
        thread_copies copies = plan_copies<S, PAIRED>(args, tile);
        for (uint32_t s = 0; s + 1 < stage_count; s++) {
            if (s * STRATA__INT8_K < args.inputs)
                load_stage<S>(args, tile, copies, args.inputs - s * STRATA__INT8_K,
                              stages + s * place::BYTES);
            copy_async_commit();
        }
        if (threadIdx.x < 32)
            find_work<S::ROWS>(list, args.range.experts, args.slabs, tile.index + gridDim.x, &next);
        for (uint32_t left = args.inputs;;) {
            uint32_t ahead = (stage_count - 1) * STRATA__INT8_K;
            if (S::MOST_STAGES > S::STAGES && stage_count == S::MOST_STAGES)
                copy_async_wait<S::MOST_STAGES - 2>();
            else
                copy_async_wait<S::STAGES - 2>();
            __syncthreads();
            if (left > ahead)
                load_stage<S>(args, tile, copies, left - ahead,
                              stages + (reading ? reading - 1 : stage_count - 1) * place::BYTES);
            copy_async_commit();
            warp_place warp = place_of_warp<S>();
            if (warp.row < tile.rows)
                multiply_all<S, PAIRED>(sums, stages + reading * place::BYTES, warp, left,
                                        args.form);
            if (left <= STRATA__INT8_K)
                break;
            left -= STRATA__INT8_K;
            reading = reading + 1 == stage_count ? 0 : reading + 1;
        }
        if (!PAIRED) {
            store_sums<S>(args, tile, place_of_warp<S>(), sums);
            continue;
        }
        float *gathered = reinterpret_cast<float *>(stages);
        __syncthreads();
        gather_sums<S>(place_of_warp<S>(), sums, gathered);
        __syncthreads();
        quantise_hidden<S>(args, tile, gathered);
    }
}

template <class S, bool PAIRED> strata_status load(uint64_t shared_bytes)
{
    const void *kernel = reinterpret_cast<const void *>(product<S, PAIRED>);
    return strata__cuda_load_kernels(&kernel, 1, stage_bytes<S>(shared_bytes));
}

template <class S>
void launch(const strata__cuda_state *state, cudaStream_t stream, bool paired,
            const strata__int8_product_args &args)
{
    uint32_t bytes = stage_bytes<S>(state->shared_memory_bytes);
    uint32_t stages = bytes / stage_layout<S>::BYTES;
    uint64_t most = (uint64_t)(args.range.rows / S::ROWS + args.range.experts) * args.slabs;
    uint32_t blocks = S::BLOCKS * state->multiprocessors;
    blocks = most < blocks ? (uint32_t)most : blocks;
    if (paired)
        product<S, true><<<blocks, S::THREADS, bytes, stream>>>(args, stages);
    else
        product<S, false><<<blocks, S::THREADS, bytes, stream>>>(args, stages);
}

} /* namespace */

strata_status strata__cuda_int8_product_load(const strata__cuda_state *state)
{
    strata_status (*const loads[])(uint64_t) = {load<shape<64>, false>, load<shape<64>, true>,
                                                load<shape<32>, false>, load<shape<32>, true>};
    strata_status status = STRATA_OK;
    for (strata_status (*one)(uint64_t) : loads)
        if (status == STRATA_OK)
            status = one(state->shared_memory_bytes);
    return status;
}

/* Which tile is taken changes no bit: few rows an expert are cut in small ones. */
strata_status strata__cuda_int8_product(const strata__cuda_state *state, cudaStream_t stream,
                                        bool paired, const strata__int8_product_args *args)
{
    if (args->range.rows / args->range.experts <= 32)
        launch<shape<32>>(state, stream, paired, *args);
    else
        launch<shape<64>>(state, stream, paired, *args);
    return strata__cuda_status(cudaGetLastError(), "multiplying int8");
}
