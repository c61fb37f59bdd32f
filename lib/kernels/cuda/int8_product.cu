/* SPDX-License-Identifier: MIT */
/*
 * The grouped int8 product: tiles of 64 or 32 rows by 128 image columns, eight warps, stages of 128
 * values filled by cp.async. Tensor cores form the exact dots of D values, the rest is float32 in
 * the order of kernels/int8.h. How a matrix is summed is a switch inside the loop over blocks, so
 * gate and up may differ and one kernel serves every mix of formats.
 */
#include "kernels/cuda/int8.cuh"

namespace
{

constexpr uint32_t THREADS = 256, H_COLUMNS = STRATA__SLAB_ROWS / 2, H_STRIDE = H_COLUMNS + 1;

/* Warps are MTILES * 16 rows by NTILES * 8 columns. */
template <int ROWS_> struct shape;
template <> struct shape<64> {
    static constexpr uint32_t ROWS = 64, MTILES = 2, NTILES = 4, STAGES = 2;
};
template <> struct shape<32> {
    static constexpr uint32_t ROWS = 32, MTILES = 2, NTILES = 2, STAGES = 3;
};

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
    static_assert(ALL_BYTES + (STRATA__PASS_EXPERTS + 1) * 4 <= STRATA__SHARED_LIMIT,
                  "the product must fit every supported device");
    static_assert(S::ROWS * H_STRIDE * 4 <= ALL_BYTES, "hidden values take the stages' place");
};

struct work_tile {
    uint32_t expert;    /* of the launch */
    uint32_t first_row; /* of the range */
    uint32_t rows;
    uint32_t column; /* slab */
};

/* Row tiles before each expert of the launch. */
struct work_list {
    uint32_t before[STRATA__PASS_EXPERTS + 1];
};

__device__ __forceinline__ uint32_t rows_of(const strata__cuda_range &range, uint32_t e,
                                            uint32_t *first)
{
    uint32_t begin = max(range.offsets[e], range.first_row);
    uint32_t end = min(range.offsets[e + 1], range.first_row + range.rows);
    *first = begin - range.first_row;
    return end > begin ? end - begin : 0;
}

/* All threads of the block; ends with a barrier. */
template <class S>
__device__ __forceinline__ void build_list(work_list &list, const strata__cuda_range &range)
{
    for (uint32_t e = threadIdx.x; e < range.experts; e += blockDim.x) {
        uint32_t first;
        list.before[e] = (rows_of(range, e, &first) + S::ROWS - 1) / S::ROWS;
    }
    __syncthreads();
    if (threadIdx.x < 32) {
        uint32_t carried = 0;
        for (uint32_t base = 0; base < range.experts; base += 32) {
            uint32_t e = base + threadIdx.x;
            uint32_t own = e < range.experts ? list.before[e] : 0, sum = own;
#pragma unroll
            for (uint32_t step = 1; step < 32; step *= 2) {
                uint32_t other = __shfl_up_sync(0xffffffffu, sum, step);
                sum += threadIdx.x >= step ? other : 0;
            }
            if (e < range.experts)
                list.before[e] = carried + sum - own;
            carried += __shfl_sync(0xffffffffu, sum, 31);
        }
        if (threadIdx.x == 0)
            list.before[range.experts] = carried;
    }
    __syncthreads();
}

/* Expert after expert, within one the columns of a row tile side by side; false past the end. */
template <class S>
__device__ __forceinline__ bool find_work(const work_list &list,
                                          const strata__int8_product_args &args, uint32_t index,
                                          work_tile *tile)
{
    uint32_t row_tile = index / args.slabs, low = 0, high = args.range.experts, first;
    if (row_tile >= list.before[args.range.experts])
        return false;
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if (list.before[middle] <= row_tile)
            low = middle;
        else
            high = middle;
    }
    uint32_t rows = rows_of(args.range, low, &first),
             skip = (row_tile - list.before[low]) * S::ROWS;
    tile->expert = low;
    tile->first_row = first + skip;
    tile->rows = min(rows - skip, S::ROWS);
    tile->column = index % args.slabs;
    return true;
}

__device__ __forceinline__ uint32_t shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

__device__ __forceinline__ void copy_16(uint8_t *to, const void *from, bool valid)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(shared_address(to)),
                 "l"(from), "r"(valid ? 16 : 0)
                 : "memory");
}

__device__ __forceinline__ void commit()
{
    asm volatile("cp.async.commit_group;\n" ::: "memory");
}

template <int PENDING> __device__ __forceinline__ void wait_copies()
{
    asm volatile("cp.async.wait_group %0;\n" ::"n"(PENDING) : "memory");
}

/* Bytes of the scales or offsets that a block of this form has. */
__device__ __forceinline__ uint32_t plane_bytes(const strata__int8_form &form)
{
    return STRATA__INT8_K / form.values * STRATA__SLAB_ROWS * 4;
}

/* Codes, scales and sums of the rows: 128, 16 and 16 bytes of each. */
template <class S>
__device__ __forceinline__ void load_row_stage(const strata__int8_product_args &args,
                                               const work_tile &tile, uint32_t block,
                                               uint8_t *stage)
{
    using place = stage_layout<S>;
    uint32_t scales = codes_bytes(args.inputs), sums = scales + scales_bytes(args.inputs);
    uint32_t row_bytes = sums + scales_bytes(args.inputs), first = block * STRATA__INT8_K;
    const uint8_t *rows = args.rows + (uint64_t)tile.first_row * row_bytes;
    uint32_t r = threadIdx.x / 8, c = threadIdx.x % 8;
    bool inside = first + c * 16 < args.inputs;
#pragma unroll
    for (uint32_t i = 0; i < S::ROWS * 8 / THREADS; i++, r += THREADS / 8) {
        bool valid = inside && r < tile.rows;
        copy_16(stage + place::CODES + r * STRATA__INT8_K + ((c ^ (r & 7)) << 4),
                rows + (valid ? (uint64_t)r * row_bytes + first + c * 16 : 0), valid);
    }
    r = threadIdx.x % S::ROWS;
    if (threadIdx.x < 2 * S::ROWS) {
        bool second = threadIdx.x >= S::ROWS, valid = r < tile.rows;
        copy_16(stage + (second ? place::ROW_SUMS : place::ROW_SCALES) + r * 16,
                rows + (second ? sums : scales) + block * 16 +
                    (valid ? (uint64_t)r * row_bytes : 0),
                valid);
    }
}

template <class S, bool PAIRED>
__device__ __forceinline__ void load_stage(const strata__int8_product_args &args,
                                           const work_tile &tile, uint32_t block, uint8_t *stage)
{
    using place = stage_layout<S>;
    const strata__int8_form &gate = args.form[0], &up = args.form[PAIRED ? 1 : 0];
    uint32_t at = threadIdx.x * 16, k_blocks = (args.inputs + STRATA__INT8_K - 1) / STRATA__INT8_K;
    uint64_t slab = (uint64_t)tile.expert * args.slabs + tile.column;
    const uint8_t *image = args.image + (slab * k_blocks + block) * STRATA__INT8_IMAGE_BYTES + at;
    load_row_stage<S>(args, tile, block, stage);
#pragma unroll
    for (uint32_t i = 0; i < STRATA__INT8_CODE_BYTES / 16 / THREADS; i++)
        copy_16(stage + place::WEIGHTS + at + i * THREADS * 16, image + i * THREADS * 16, true);
    if (at < max(plane_bytes(gate), plane_bytes(up)))
        copy_16(stage + place::SCALES + at, image + STRATA__INT8_CODE_BYTES, true);
    if (at < max(gate.offsets ? plane_bytes(gate) : 0, up.offsets ? plane_bytes(up) : 0))
        copy_16(stage + place::OFFSETS + at,
                image + STRATA__INT8_CODE_BYTES + STRATA__INT8_SCALE_BYTES, true);
}

__device__ __forceinline__ void load_rows(uint32_t (&r)[4], const uint8_t *from)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(from))
                 : "memory");
}

__device__ __forceinline__ void load_weights(uint32_t (&r)[2], const uint8_t *from)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];\n"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(shared_address(from))
                 : "memory");
}

/* 32 values added to the dots. */
__device__ __forceinline__ void multiply_32(int (&d)[4], const uint32_t (&a)[4],
                                            const uint32_t (&b)[2])
{
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Sixteen of them: half a fragment of 32. */
__device__ __forceinline__ void multiply_16(int (&d)[4], uint32_t a0, uint32_t a1, uint32_t b)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 "
                 "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};\n"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a0), "r"(a1), "r"(b));
}

/* A warp's place in the stage and its lane's in the fragments. */
struct warp_place {
    uint32_t row, column; /* the warp's first */
    uint32_t lane;
};

/* Scales or offsets of two neighbouring columns. */
__device__ __forceinline__ float2 column_pair(const uint8_t *plane, uint32_t group, uint32_t column)
{
    return *reinterpret_cast<const float2 *>(plane + (group * STRATA__SLAB_ROWS + column) * 4);
}

/* What the dots of two rows by two columns add to the sums; `o` and `row_sum` only with OFFSETS. */
template <int PARTS, bool OFFSETS>
__device__ __forceinline__ void add_dots(float (&sums)[4], const int (&dots)[PARTS][4],
                                         const float2 (&w)[PARTS], const float2 (&o)[PARTS],
                                         const float (&row_sum)[PARTS][2], const float (&scale)[2])
{
#pragma unroll
    for (int v = 0; v < 4; v++) {
        float t = 0.0f;
#pragma unroll
        for (int p = 0; p < PARTS; p++) {
            float dot = __int2float_rn(dots[p][v]), weight = v % 2 ? w[p].y : w[p].x;
            t = p ? __fmaf_rn(weight, dot, t) : __fmul_rn(weight, dot);
            if (OFFSETS)
                t = __fmaf_rn(v % 2 ? o[p].y : o[p].x, row_sum[p][v / 2], t);
        }
        sums[v] = __fmaf_rn(t, scale[v / 2], sums[v]);
    }
}

/* Scales, and sums of PARTS parts of 32 values, of the two rows of a lane from place `from` on. */
template <class S, int PARTS, bool OFFSETS>
__device__ __forceinline__ void load_row_terms(const uint8_t *stage, uint32_t from,
                                               float (&row_sum)[PARTS][2], float (&scale)[2])
{
    using place = stage_layout<S>;
#pragma unroll
    for (int h = 0; h < 2; h++, from += 8 * 16) {
        scale[h] = *reinterpret_cast<const float *>(stage + place::ROW_SCALES + from);
        if (!OFFSETS)
            continue;
        short2 halves = *reinterpret_cast<const short2 *>(stage + place::ROW_SUMS + from);
        row_sum[0][h] = (float)(PARTS == 2 ? halves.x : halves.x + halves.y);
        if (PARTS == 2)
            row_sum[PARTS - 1][h] = (float)halves.y;
    }
}

/*
 * A block of every other eight of the warp's columns: dots of D values, offsets where OFFSETS. Rows
 * have a scale per 32 values, or per 64 where D is 64.
 */
template <class S, int D, bool OFFSETS, int FIRST>
__device__ __forceinline__ void multiply_block(float (&sums)[S::MTILES][S::NTILES][4],
                                               const uint8_t *stage, const warp_place &at,
                                               uint32_t values)
{
    using place = stage_layout<S>;
    constexpr int STEPS = D == 64 ? 2 : 1, PARTS = D == 16 ? 2 : 1, COUNT = S::NTILES / 2;
    const uint32_t r = at.lane / 4, q = at.lane % 4, swizzle = at.lane & 7;
#pragma unroll 1 /* unrolled it takes twice the registers */
    for (int k = 0; k < 4 && k * 32 < (int)values; k += STEPS) {
        uint32_t b[COUNT][STEPS][2];
        float2 w[COUNT];
#pragma unroll
        for (int j = 0; j < COUNT; j++) {
            uint32_t column = at.column + 8 * (FIRST + 2 * j);
#pragma unroll
            for (int s = 0; s < STEPS; s++)
                load_weights(b[j][s], stage + place::WEIGHTS + (column + at.lane % 8) * 128 +
                                          (((2 * (k + s) + at.lane / 8 % 2) ^ swizzle) << 4));
            w[j] = column_pair(stage + place::SCALES, k * 32 / D, column + 2 * q);
        }
#pragma unroll
        for (int i = 0; i < (int)S::MTILES; i++) {
            uint32_t a[STEPS][4], row = at.row + 16 * i;
            float scale[2], row_sum[PARTS][2];
#pragma unroll
            for (int s = 0; s < STEPS; s++)
                load_rows(a[s], stage + place::CODES + (row + at.lane % 16) * 128 +
                                    (((2 * (k + s) + at.lane / 16) ^ swizzle) << 4));
            load_row_terms<S, PARTS, OFFSETS>(stage, (row + r) * 16 + k * 4, row_sum, scale);
#pragma unroll
            for (int j = 0; j < COUNT; j++) {
                int dots[PARTS][4] = {};
                uint32_t column = at.column + 8 * (FIRST + 2 * j) + 2 * q;
                float2 both[PARTS] = {w[j]}, o[PARTS];
                if (PARTS == 2)
                    both[PARTS - 1] = column_pair(stage + place::SCALES, 2 * k + 1, column);
#pragma unroll
                for (int p = 0; OFFSETS && p < PARTS; p++)
                    o[p] = column_pair(stage + place::OFFSETS, k * 32 / D + p, column);
                if (D == 16) {
                    multiply_16(dots[0], a[0][0], a[0][1], b[j][0][0]);
                    multiply_16(dots[PARTS - 1], a[0][2], a[0][3], b[j][0][1]);
                } else {
#pragma unroll
                    for (int s = 0; s < STEPS; s++)
                        multiply_32(dots[0], a[s], b[j][s]);
                }
                add_dots<PARTS, OFFSETS>(sums[i][FIRST + 2 * j], dots, both, o, row_sum, scale);
            }
        }
    }
}

template <class S, int FIRST>
__device__ __forceinline__ void multiply_form(float (&sums)[S::MTILES][S::NTILES][4],
                                              const uint8_t *stage, const warp_place &at,
                                              uint32_t values, const strata__int8_form &form)
{
    if (form.values == 16 && form.offsets)
        multiply_block<S, 16, true, FIRST>(sums, stage, at, values);
    else if (form.values == 16)
        multiply_block<S, 16, false, FIRST>(sums, stage, at, values);
    else if (form.values == 64)
        multiply_block<S, 64, false, FIRST>(sums, stage, at, values);
    else if (form.offsets)
        multiply_block<S, 32, true, FIRST>(sums, stage, at, values);
    else
        multiply_block<S, 32, false, FIRST>(sums, stage, at, values);
}

__device__ __forceinline__ float with_bias(float sum, const float *bias, uint64_t at)
{
    return bias ? __fadd_rn(sum, __ldg(bias + at)) : sum;
}

template <class S>
__device__ __forceinline__ void store_sums(const strata__int8_product_args &args,
                                           const work_tile &tile, const warp_place &at,
                                           const float (&sums)[S::MTILES][S::NTILES][4])
{
    uint32_t expert = args.range.first_expert + tile.expert;
    uint32_t first =
        (args.first_slab + tile.column) * STRATA__SLAB_ROWS + at.column + 2 * (at.lane % 4);
    float factor = args.expert_scale ? args.expert_scale[expert] : 1.0f;
    const float *bias = args.bias ? args.bias + (uint64_t)expert * args.outputs : nullptr;
#pragma unroll
    for (int i = 0; i < (int)S::MTILES; i++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            uint32_t row = at.row + 16 * i + 8 * h + at.lane / 4;
            float *out = args.out + (uint64_t)(tile.first_row + row) * args.out_stride;
            if (row >= tile.rows)
                continue;
#pragma unroll
            for (int j = 0; j < (int)S::NTILES; j++)
#pragma unroll
                for (int v = 0; v < 2; v++) {
                    uint32_t column = first + 8 * j + v;
                    if (column < args.end)
                        out[column] =
                            __fmul_rn(with_bias(sums[i][j][2 * h + v], bias, column), factor);
                }
        }
}

/* The tile's hidden values to shared memory, [row][H_STRIDE]. */
template <class S>
__device__ __forceinline__ void
gather_hidden(const strata__int8_product_args &args, const work_tile &tile, const warp_place &at,
              const float (&sums)[S::MTILES][S::NTILES][4], float *hidden)
{
    uint32_t first = (args.first_slab + tile.column) * H_COLUMNS;
    uint64_t bias = (uint64_t)(args.range.first_expert + tile.expert) * args.outputs + first;
#pragma unroll
    for (int i = 0; i < (int)S::MTILES; i++)
#pragma unroll
        for (int j = 0; j < (int)S::NTILES; j += 2)
#pragma unroll
            for (int v = 0; v < 4; v++) {
                uint32_t row = at.row + 16 * i + 8 * (v / 2) + at.lane / 4;
                uint32_t column = at.column / 2 + 4 * j + 2 * (at.lane % 4) + v % 2;
                if (row >= tile.rows || first + column >= args.end)
                    continue;
                float gate = with_bias(sums[i][j][v], args.bias, bias + column);
                float up = with_bias(sums[i][j + 1][v], args.up_bias, bias + column);
                hidden[row * H_STRIDE + column] = activate_exact(args.activation, gate, up);
            }
}

/* 32 values of a quantised row, and their scale and sums. */
__device__ __forceinline__ void store_block(const float *values, float scale, float inverse,
                                            uint8_t *row, uint32_t column, uint32_t width)
{
    uint32_t words[8], codes = codes_bytes(width), scales = scales_bytes(width);
    int sums[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < 8; i++) {
        int c[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            c[j] = quantised(values[4 * i + j], inverse);
            sums[i / 4] += c[j];
        }
        words[i] = pack_codes(c[0], c[1], c[2], c[3]);
    }
    uint4 *to = reinterpret_cast<uint4 *>(row + column);
    to[0] = {words[0], words[1], words[2], words[3]};
    to[1] = {words[4], words[5], words[6], words[7]};
    uint8_t *plane = row + codes + column / STRATA__INT8_BLOCK * 4;
    *reinterpret_cast<float *>(plane) = scale;
    *reinterpret_cast<short2 *>(plane + scales) = {(short)sums[0], (short)sums[1]};
}

template <class S>
__device__ __forceinline__ void quantise_hidden(const strata__int8_product_args &args,
                                                const work_tile &tile, const float *hidden)
{
    uint32_t first = (args.first_slab + tile.column) * H_COLUMNS, group = args.h_group;
    uint32_t row_bytes = codes_bytes(args.outputs) + 2 * scales_bytes(args.outputs);
    for (uint32_t i = threadIdx.x; i < S::ROWS * (H_COLUMNS / group); i += THREADS) {
        uint32_t row = i % S::ROWS, column = i / S::ROWS * group, most = 0;
        const float *values = hidden + row * H_STRIDE + column;
        if (row >= tile.rows || first + column >= args.end)
            continue;
        for (uint32_t k = 0; k < group; k++)
            most = max(most, magnitude_bits(values[k]));
        float inverse, scale = group_scale(most, &inverse);
        uint8_t *to = args.h + (uint64_t)(tile.first_row + row) * row_bytes;
        for (uint32_t k = 0; k < group; k += STRATA__INT8_BLOCK)
            store_block(values + k, scale, inverse, to, first + column + k, args.outputs);
    }
}

template <class S, bool PAIRED>
__global__ void __launch_bounds__(THREADS, 2)
    product(const __grid_constant__ strata__int8_product_args args)
{
    using place = stage_layout<S>;
    extern __shared__ __align__(1024) uint8_t stages[];
    __shared__ work_list list;
    __shared__ work_tile tile; /* here, not in registers, which are scarce */
    __shared__ bool more;
    __shared__ uint32_t index;
    if (threadIdx.x == 0)
        index = blockIdx.x;
    constexpr uint32_t COLUMN_WARPS = STRATA__SLAB_ROWS / (S::NTILES * 8);
    uint32_t warp = threadIdx.x / 32;
    warp_place at = {warp / COLUMN_WARPS * (S::MTILES * 16), warp % COLUMN_WARPS * (S::NTILES * 8),
                     threadIdx.x % 32};
    build_list<S>(list, args.range);
    for (;;) {
        float sums[S::MTILES][S::NTILES][4] = {};
        __syncthreads();
        if (threadIdx.x == 0) {
            more = find_work<S>(list, args, index, &tile);
            index += gridDim.x;
        }
        __syncthreads();
        if (!more)
            return;
#pragma unroll
        for (uint32_t s = 0; s < S::STAGES - 1; s++) {
            if (s * STRATA__INT8_K < args.inputs)
                load_stage<S, PAIRED>(args, tile, s, stages + s * place::BYTES);
            commit();
        }
        for (uint32_t b = 0; b * STRATA__INT8_K < args.inputs; b++) {
            wait_copies<S::STAGES - 2>();
            __syncthreads();
            uint32_t ahead = b + S::STAGES - 1;
            if (ahead * STRATA__INT8_K < args.inputs)
                load_stage<S, PAIRED>(args, tile, ahead, stages + ahead % S::STAGES * place::BYTES);
            commit();
            const uint8_t *stage = stages + b % S::STAGES * place::BYTES;
            uint32_t values = args.inputs - b * STRATA__INT8_K;
            if (at.row >= tile.rows)
                continue;
            multiply_form<S, 0>(sums, stage, at, values, args.form[0]);
            multiply_form<S, 1>(sums, stage, at, values, args.form[PAIRED ? 1 : 0]);
        }
        if (!PAIRED) {
            store_sums<S>(args, tile, at, sums);
            continue;
        }
        float *hidden = reinterpret_cast<float *>(stages);
        __syncthreads();
        gather_hidden<S>(args, tile, at, sums, hidden);
        __syncthreads();
        quantise_hidden<S>(args, tile, hidden);
    }
}

template <class S, bool PAIRED> strata_status load()
{
    const void *kernel = reinterpret_cast<const void *>(product<S, PAIRED>);
    return strata__cuda_load_kernels(&kernel, 1, stage_layout<S>::ALL_BYTES);
}

template <class S>
void launch(uint32_t multiprocessors, cudaStream_t stream, bool paired,
            const strata__int8_product_args &args)
{
    uint64_t most = (uint64_t)(args.range.rows / S::ROWS + args.range.experts) * args.slabs;
    uint32_t blocks = most < 2 * multiprocessors ? (uint32_t)most : 2 * multiprocessors;
    if (paired)
        product<S, true><<<blocks, THREADS, stage_layout<S>::ALL_BYTES, stream>>>(args);
    else
        product<S, false><<<blocks, THREADS, stage_layout<S>::ALL_BYTES, stream>>>(args);
}

} /* namespace */

strata_status strata__cuda_int8_product_load(void)
{
    strata_status (*const loads[])() = {load<shape<64>, false>, load<shape<64>, true>,
                                        load<shape<32>, false>, load<shape<32>, true>};
    strata_status status = STRATA_OK;
    for (strata_status (*one)() : loads)
        if (status == STRATA_OK)
            status = one();
    return status;
}

/* Which tile is taken changes no bit: few rows an expert are cut in small ones. */
strata_status strata__cuda_int8_product(uint32_t multiprocessors, cudaStream_t stream, bool paired,
                                        const strata__int8_product_args *args)
{
    if (args->range.rows / args->range.experts <= 32)
        launch<shape<32>>(multiprocessors, stream, paired, *args);
    else
        launch<shape<64>>(multiprocessors, stream, paired, *args);
    return strata__cuda_status(cudaGetLastError(), "multiplying int8");
}
