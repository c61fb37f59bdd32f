/* SPDX-License-Identifier: MIT */
/*
 * Products of few rows: a block has 16 rows of weights in shared memory as they are; a warp
 * multiplies slices of 256 values by up to eight activation rows with tensor cores (mma m16n8k16:
 * weights are the 16 rows, activation rows the 8 columns, which need not all be there).
 *
 * The order of values within a slice is free as long as both sides have the same: lane (r, c),
 * r = lane / 4 and c = lane % 4, holds eight values side by side of weight rows r and r + 8 and of
 * activation row r in each of eight steps. unit_place() says which: where values share a sub-scale,
 * a lane has all of them in steps that follow each other.
 */
#ifndef STRATA_KERNELS_CUDA_FEW_CUH
#define STRATA_KERNELS_CUDA_FEW_CUH

#include "kernels/cuda/common.cuh"
#include "kernels/cuda/few_tiles.cuh"
#include "kernels/cuda/few_units.cuh"
#include "kernels/cuda/launch.cuh"

namespace
{

constexpr uint32_t STEPS = SLICE / 32, COLUMNS = 8, HALVES = STRATA__DIRECT_ROWS / COLUMNS;
static_assert(HALVES * COLUMNS == STRATA__DIRECT_ROWS, "every row has a column");

/* So that three blocks of 256 threads share a multiprocessor, or one of 768 fits. */
#define FEW_REGISTERS 80

/* Most activation rows that a warp of the experts' kernels stages and multiplies at a time. */
constexpr uint32_t PASS_ROWS = 4, SIGNED_PASS_ROWS = 2;

/* What a warp leaves for the end of its block for eight activation rows: sums and squares. */
constexpr uint32_t SUMS = COLUMNS * TILE + COLUMNS;

/* d = a (16 x 16) * b (16 x 8), or added to d */
template <bool FIRST>
__device__ __forceinline__ void multiply_units(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                               uint32_t a3, uint32_t b0, uint32_t b1)
{
    if (FIRST)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};\n"
                     : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
                     : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "f"(0.0f));
    else
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

template <bool FIRST>
__device__ __forceinline__ void multiply_step(float (&d)[4], const uint32_t (&low)[4],
                                              const uint32_t (&high)[4], const uint4 &b)
{
    multiply_units<FIRST>(d, low[0], high[0], low[1], high[1], b.x, b.y);
    multiply_units<false>(d, low[2], high[2], low[3], high[3], b.z, b.w);
}

/* sum += d * scale, with the scales of weight rows r and r + 8 */
__device__ __forceinline__ void add_scaled(float (&sum)[4], const float (&d)[4], float low,
                                           float high)
{
    sum[0] = fmaf(d[0], low, sum[0]);
    sum[1] = fmaf(d[1], low, sum[1]);
    sum[2] = fmaf(d[2], high, sum[2]);
    sum[3] = fmaf(d[3], high, sum[3]);
}

/* The products of a step of 32 values, after others of the same scale or as the first of them. */
template <int FORMAT, bool FIRST>
__device__ __forceinline__ void
multiply_values(float (&d)[4], float (&minimum)[4], const uint8_t *low, const uint8_t *high,
                const unit_books<FORMAT> &books, const uint4 &b, uint32_t step)
{
    uint32_t c = threadIdx.x % 4;
    unit8 u, v;
    unit_values<FORMAT>(low, step, c, books, u);
    unit_values<FORMAT>(high, step, c, books, v);
    multiply_step<FIRST>(d, u.value, v.value, b);
    if constexpr (unit_form<FORMAT>::HAS_LOW)
        multiply_step<false>(d, u.low, v.low, b);
    if constexpr (unit_form<FORMAT>::HAS_MINIMUM) {
        multiply_units<FIRST>(minimum, u.minimum, v.minimum, u.minimum, v.minimum, b.x, b.y);
        multiply_units<false>(minimum, u.minimum, v.minimum, u.minimum, v.minimum, b.z, b.w);
    }
}

/* A lane's values of an activation row: in registers, or loaded from a staged row when used. */
template <int FORMAT> struct kept_values {
    const uint4 (&b)[STEPS];

    __device__ __forceinline__ uint4 of_step(uint32_t step) const
    {
        return b[step];
    }
};

template <int FORMAT> struct row_values {
    const uint8_t *row;

    __device__ __forceinline__ uint4 of_step(uint32_t step) const
    {
        uint32_t place = unit_place<FORMAT>(step, threadIdx.x % 4);
        return *reinterpret_cast<const uint4 *>(row + 16 * place);
    }
};

/*
 * Adds a slice of some matrices to the sums of weight rows r and r + 8 by activation rows 2 c and
 * 2 c + 1. `low` and `high` are this lane's two staged rows of each, `in` its activation row.
 */
template <int FORMAT, int MATRICES, typename IN>
__device__ __forceinline__ void
multiply_slice(float (&sum)[MATRICES][4], const uint8_t *const (&low)[MATRICES],
               const uint8_t *const (&high)[MATRICES], const unit_books<FORMAT> &books,
               const IN &in, uint32_t steps)
{
    using form = unit_form<FORMAT>;
    float d[MATRICES][4], minimum[MATRICES][4];
#pragma unroll
    for (uint32_t step = 0; step < STEPS; step++) {
        if (step >= steps)
            break;
        /* What steps of these have in common is loaded anew: it would not fit the registers. */
        if (step % 2 == 0 && block_shape<FORMAT>::VALUES == SLICE)
            __syncwarp();
        uint4 b = in.of_step(step);
#pragma unroll
        for (int m = 0; m < MATRICES; m++) {
            if (step % form::SCALE_STEPS == 0)
                multiply_values<FORMAT, true>(d[m], minimum[m], low[m], high[m], books, b, step);
            else
                multiply_values<FORMAT, false>(d[m], minimum[m], low[m], high[m], books, b, step);
            if ((step + 1) % form::SCALE_STEPS == 0 || step + 1 == steps) {
                add_scaled(sum[m], d[m], unit_scale<FORMAT>(low[m], step),
                           unit_scale<FORMAT>(high[m], step));
                if constexpr (form::HAS_MINIMUM)
                    add_scaled(sum[m], minimum[m], unit_minimum<FORMAT>(low[m], step),
                               unit_minimum<FORMAT>(high[m], step));
            }
        }
    }
}

/* This lane's values of an activation row of halves; zeros where the row is not there. */
template <int FORMAT>
__device__ __forceinline__ void load_halves(uint4 (&b)[STEPS], const uint16_t *row, uint32_t slice,
                                            uint32_t steps, bool valid)
{
    const uint4 *from = reinterpret_cast<const uint4 *>(row + slice * SLICE);
#pragma unroll
    for (uint32_t step = 0; step < STEPS; step++)
        b[step] = valid && step < steps ? from[unit_place<FORMAT>(step, threadIdx.x % 4)]
                                        : make_uint4(0, 0, 0, 0);
}

/* Activation rows that a warp stages at a time, with room that spreads the banks. */
constexpr uint32_t STAGED_ROWS = 2, ROW_BYTES = SLICE * 2 + 16;

/* What the lanes know of the rows of a slice: lane n of row n. */
struct row_facts {
    float scale;   /* of the slice's halves */
    float squares; /* of the slice */
};

/*
 * The power of two that brings a magnitude to [2^8, 2^9), so that a slice's halves are as exact as
 * they can be, whatever the row's range; 1 for zeros, infinities and NaNs.
 */
__device__ __forceinline__ float slice_scale_of(uint32_t magnitude)
{
    uint32_t exponent = magnitude >> 23;
    if (exponent < 16 || exponent == 255)
        return 1.0f;
    return __uint_as_float((exponent - 8) << 23);
}

/* Eight values of a lane. */
struct own_values {
    float4 low, high;

    __device__ __forceinline__ void load(const float *from)
    {
        low = *reinterpret_cast<const float4 *>(from);
        high = *reinterpret_cast<const float4 *>(from + 4);
    }
};

/*
 * A slice of row n, times the gains where there are any, to shared memory as halves over a scale of
 * the slice. All lanes.
 */
__device__ __forceinline__ void stage_values(uint8_t *to, uint32_t n, own_values v, bool scaled,
                                             const own_values &gains, row_facts &facts)
{
    uint32_t lane = threadIdx.x % 32;
    if (scaled) {
        float squares = warp_sum(squares_of(v.high, squares_of(v.low, 0.0f)));
        if (lane == n)
            facts.squares = squares;
        v = {products_of(v.low, gains.low), products_of(v.high, gains.high)};
    }
    uint32_t most = __float_as_uint(fmaxf(largest_of(v.low), largest_of(v.high)));
    float scale = slice_scale_of(__reduce_max_sync(0xffffffffu, most)), inverse = 1.0f / scale;
    if (lane == n)
        facts.scale = scale;
    *reinterpret_cast<uint4 *>(to +
                               lane * 16) = {pack_halves(v.low.x * inverse, v.low.y * inverse),
                                             pack_halves(v.low.z * inverse, v.low.w * inverse),
                                             pack_halves(v.high.x * inverse, v.high.y * inverse),
                                             pack_halves(v.high.z * inverse, v.high.w * inverse)};
}

/* A slice of rows n and (`both`) n + 1 of float32, which are on their way together. */
__device__ __forceinline__ void stage_rows(uint8_t *to, uint32_t n, bool both, const float *x,
                                           uint32_t inputs, const float *gain, uint32_t slice,
                                           uint32_t steps, row_facts &facts)
{
    static_assert(STAGED_ROWS == 2, "rows staged at a time");
    uint32_t at = slice * SLICE + threadIdx.x % 32 * 8;
    const float *row = x + (uint64_t)n * inputs + at;
    own_values first = {}, second = {}, gains = {};
    if (threadIdx.x % 32 / 4 < steps) {
        first.load(row);
        if (both)
            second.load(row + inputs);
        if (gain)
            gains = {__ldg(reinterpret_cast<const float4 *>(gain + at)),
                     __ldg(reinterpret_cast<const float4 *>(gain + at + 4))};
    }
    stage_values(to, n, first, gain, gains, facts);
    if (both)
        stage_values(to + ROW_BYTES, n + 1, second, gain, gains, facts);
}

__device__ __forceinline__ void clear(uint4 (&b)[STEPS])
{
#pragma unroll
    for (uint32_t step = 0; step < STEPS; step++)
        b[step] = make_uint4(0, 0, 0, 0);
}

/* This lane's values, if its row is among those staged, up to row `last`. */
template <int FORMAT>
__device__ __forceinline__ void load_staged(uint4 (&b)[STEPS], const uint8_t *rows, uint32_t last)
{
    uint32_t r = threadIdx.x % 32 / 4;
    __syncwarp();
    if (r / STAGED_ROWS == last / STAGED_ROWS && r <= last) {
#pragma unroll
        for (uint32_t step = 0; step < STEPS; step++)
            b[step] = row_values<FORMAT>{rows + r % STAGED_ROWS * ROW_BYTES}.of_step(step);
    }
    __syncwarp();
}

/* Halves of the activation rows' columns that are used. */
__host__ __device__ __forceinline__ constexpr uint32_t halves_of(uint32_t rows)
{
    return (rows + COLUMNS - 1) / COLUMNS;
}

/* A warp's shared memory: the rows of a pass, and sums of all rows, [matrix][row][TILE]. */
__host__ __device__ __forceinline__ uint32_t warp_bytes(uint32_t pass_rows, uint32_t rows,
                                                        uint32_t matrices)
{
    return pass_rows * ROW_BYTES + matrices * rows * TILE * 4;
}

/*
 * Multiplies a slice of some matrices by the staged rows [first, first + count) of a pass, each in
 * its column of eight; what other columns get means nothing.
 */
template <int FORMAT, int MATRICES>
__device__ __forceinline__ void
multiply_columns(float (&part)[MATRICES][4], const uint8_t *const (&low)[MATRICES],
                 const uint8_t *const (&high)[MATRICES], const unit_books<FORMAT> &books,
                 const uint8_t *rows, uint32_t first, uint32_t count, uint32_t steps)
{
    uint32_t n = threadIdx.x % 32 / 4 - first % COLUMNS;
    multiply_slice<FORMAT, MATRICES>(
        part, low, high, books, row_values<FORMAT>{rows + min(n, count - 1) * ROW_BYTES}, steps);
}

/*
 * The same of formats with signs, by at most two rows, whose units are multiplied without their
 * sub-scales: column 4 n + g has the values of row n that lanes c = g have, and zeros for others.
 * So the columns' sums are those of the sub-scales, and these meet them in float32. part[m][0] and
 * part[m][2] are what row n has in lanes c = 2 n and 2 n + 1.
 */
template <int FORMAT, int MATRICES>
__device__ __forceinline__ void
multiply_groups(float (&part)[MATRICES][4], const uint8_t *const (&low)[MATRICES],
                const uint8_t *const (&high)[MATRICES], const unit_books<FORMAT> &books,
                const uint8_t *rows, uint32_t count)
{
    constexpr uint32_t RUN = unit_form<FORMAT>::RUN;
    uint32_t column = threadIdx.x % 32 / 4, c = threadIdx.x % 4;
    row_values<FORMAT> in = {rows + column / 4 * ROW_BYTES};
    bool own = column % 4 == c && column / 4 < count;
    uint4 b = {};
#pragma unroll
    for (uint32_t run = 0; run < STEPS / RUN; run++) {
        float d[MATRICES][4];
#pragma unroll
        for (uint32_t step = run * RUN; step < (run + 1) * RUN; step++) {
            uint32_t place = unit_place<FORMAT>(step, c);
            if (own)
                b = in.of_step(step);
#pragma unroll
            for (int m = 0; m < MATRICES; m++) {
                uint32_t u[4], v[4];
                point_units<FORMAT>(low[m], place, books, u);
                point_units<FORMAT>(high[m], place, books, v);
                if (step % RUN == 0)
                    multiply_step<true>(d[m], u, v, b);
                else
                    multiply_step<false>(d[m], u, v, b);
            }
        }
        /* Of the groups of this lane's two columns. */
        uint32_t even = unit_place<FORMAT>(run * RUN, 2 * (c % 2));
#pragma unroll
        for (int m = 0; m < MATRICES; m++) {
            float2 of_low = scales_of_parts<FORMAT>(low[m], even);
            float2 of_high = scales_of_parts<FORMAT>(high[m], even);
            part[m][0] = fmaf(d[m][0], of_low.x, part[m][0]);
            part[m][1] = fmaf(d[m][1], of_low.y, part[m][1]);
            part[m][2] = fmaf(d[m][2], of_high.x, part[m][2]);
            part[m][3] = fmaf(d[m][3], of_high.y, part[m][3]);
        }
    }
#pragma unroll
    for (int m = 0; m < MATRICES; m++) {
        part[m][0] += part[m][1];
        part[m][2] += part[m][3];
        part[m][0] += __shfl_xor_sync(0xffffffffu, part[m][0], 1);
        part[m][2] += __shfl_xor_sync(0xffffffffu, part[m][2], 1);
        part[m][0] *= SIGNED_UNIT * unit_scale<FORMAT>(low[m], 0);
        part[m][2] *= SIGNED_UNIT * unit_scale<FORMAT>(high[m], 0);
    }
}

/* One of the two, into `part`, which is zero. */
template <int FORMAT, int MATRICES>
__device__ __forceinline__ void
multiply_pass(float (&part)[MATRICES][4], const uint8_t *const (&low)[MATRICES],
              const uint8_t *const (&high)[MATRICES], const unit_books<FORMAT> &books,
              const uint8_t *rows, uint32_t first, uint32_t count, uint32_t steps)
{
    if constexpr (unit_form<FORMAT>::SIGNED)
        multiply_groups<FORMAT, MATRICES>(part, low, high, books, rows, count);
    else
        multiply_columns<FORMAT, MATRICES>(part, low, high, books, rows, first, count, steps);
}

/*
 * Leaves what a pass gave for one slice in a warp's sums of a matrix, times a scale of the rows
 * that lane n has for row first + n, or adds it to what `more` says is there.
 */
template <int FORMAT>
__device__ __forceinline__ void leave_pass(float *sums, const float (&part)[4], float scale,
                                           uint32_t first, uint32_t count, bool more)
{
    constexpr bool SIGNED = unit_form<FORMAT>::SIGNED;
    uint32_t r = threadIdx.x % 32 / 4, c = threadIdx.x % 4;
#pragma unroll
    for (uint32_t odd = 0; odd < (SIGNED ? 1 : 2); odd++) {
        uint32_t n = SIGNED ? c / 2 : 2 * c + odd - first % COLUMNS;
        float own = __shfl_sync(0xffffffffu, scale, n % 32);
        float *to = sums + (first + n) * TILE + r;
        if (n < count && !(SIGNED && c % 2)) {
            to[0] = fmaf(part[odd], own, more ? to[0] : 0.0f);
            to[8] = fmaf(part[2 + odd], own, more ? to[8] : 0.0f);
        }
    }
}

/*
 * Leaves the products of a slice and up to eight rows in a warp's sums, [activation row][weight
 * row], times the scales, or adds them to what `more` says is there; the rows' squares behind them.
 * Lane n has what is known of row n.
 */
__device__ __forceinline__ void leave_slice(float *sums, const float (&part)[4], float scale,
                                            float squares, bool more)
{
    uint32_t lane = threadIdx.x % 32, r = lane / 4, c = lane % 4;
    float *of_squares = sums + COLUMNS * TILE + lane;
#pragma unroll
    for (uint32_t odd = 0; odd < 2; odd++) {
        float own = __shfl_sync(0xffffffffu, scale, 2 * c + odd);
        float *to = sums + (2 * c + odd) * TILE + r;
        to[0] = fmaf(part[odd], own, more ? to[0] : 0.0f);
        to[8] = fmaf(part[2 + odd], own, more ? to[8] : 0.0f);
    }
    if (lane < COLUMNS)
        *of_squares = (more ? *of_squares : 0.0f) + squares;
}

/*
 * Steps of 32 values that slice `slice` of a row has: all of them, known to the compiler, where a
 * block has as many values as a slice.
 */
template <int FORMAT> __device__ __forceinline__ uint32_t steps_of(uint32_t inputs, uint32_t slice)
{
    if (block_shape<FORMAT>::VALUES == SLICE)
        return STEPS;
    return min(STEPS, (inputs - slice * SLICE) / 32);
}

/* End of the slices of a chunk. */
__device__ __forceinline__ uint32_t chunk_end(const strata__few_cut &cut, uint32_t chunk)
{
    return min((chunk + 1) * cut.chunk, cut.slices);
}

/*
 * Whole tiles where they fit, else chunks as large as they may be. As many warps as a chunk has
 * slices, or such a part of them that all have as many.
 */
template <int FORMAT>
strata__few_cut cut_of(uint32_t inputs, uint32_t row_bytes, const strata__few_limits &limits)
{
    uint32_t slices = (inputs + SLICE - 1) / SLICE, most = limits.warps;
    strata__few_cut cut = {
        slices, 0, slices, 1, TILE * (row_bytes + 16) + 32, 0xffffffffu / row_bytes + 1, 0};
    cut.pass_rows = unit_form<FORMAT>::SIGNED ? SIGNED_PASS_ROWS : PASS_ROWS;
    for (uint32_t chunk = most;
         cut.stage_bytes > (cut.chunks == 1 ? limits.whole_bytes : limits.chunk_bytes) && chunk > 0;
         chunk--) {
        cut.chunk = chunk < slices ? chunk : slices;
        cut.chunks = 2 > (slices + chunk - 1) / chunk ? 2 : (slices + chunk - 1) / chunk;
        cut.stage_bytes = TILE * chunk_pitch(cut.chunk * slice_of<FORMAT>::BYTES) + 32;
    }
    uint32_t turns = (cut.chunk + most - 1) / most;
    cut.warps = (cut.chunk + turns - 1) / turns;
    return cut;
}

inline strata__few_cut cut_for(uint32_t format, uint32_t inputs, uint32_t row_bytes,
                               const strata__few_limits &limits)
{
    switch (format) {
#define STRATA__CASE(f)                                                                            \
    case f:                                                                                        \
        return cut_of<f>(inputs, row_bytes, limits);
        STRATA__FOR_EACH_UNIT_FORMAT(STRATA__CASE)
#undef STRATA__CASE
    default:
        return {};
    }
}

inline uint32_t row_bytes_of(uint32_t format, uint32_t inputs)
{
    const strata__format_info *info = strata__format_find(format);
    return inputs / info->block_values * info->block_bytes;
}

/*
 * The most rows of a pass that fit in `room`, where `fixed` bytes lie beside those of the warps; a
 * divisor of eight.
 */
inline uint32_t pass_rows_for(const strata__few_cut &cut, uint32_t rows, uint32_t matrices,
                              uint32_t fixed, uint32_t room)
{
    uint32_t pass = cut.pass_rows;
    while (pass > 1 && pass / 2 >= rows)
        pass /= 2;
    while (pass > 1 && cut.warps * warp_bytes(pass, rows, matrices) + fixed > room)
        pass /= 2;
    return pass;
}

/* ENTRY<FORMAT>::kernel() of a format. */
template <template <int> class ENTRY>
auto kernel_of(uint32_t format) -> decltype(ENTRY<STRATA__F16>::kernel())
{
    switch (format) {
#define STRATA__CASE(f)                                                                            \
    case f:                                                                                        \
        return ENTRY<f>::kernel();
        STRATA__FOR_EACH_UNIT_FORMAT(STRATA__CASE)
#undef STRATA__CASE
    default:
        return nullptr;
    }
}

template <template <int> class ENTRY> strata_status load_kernels(const strata__cuda_state *state)
{
    const void *kernels[] = {
#define STRATA__KERNEL(f) reinterpret_cast<const void *>(ENTRY<f>::kernel()),
        STRATA__FOR_EACH_UNIT_FORMAT(STRATA__KERNEL)
#undef STRATA__KERNEL
    };
    return strata__few_load_kernels(state, kernels, sizeof kernels / sizeof kernels[0]);
}

} /* namespace */

#endif
