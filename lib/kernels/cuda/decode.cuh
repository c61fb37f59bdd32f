/* SPDX-License-Identifier: MIT */
/*
 * Eight consecutive values of a block, for every format. All decoders share this shape: a thread
 * finds the codes of its eight values as unsigned bytes in two words, turns them into floats and
 * scales them. Code and scale are exact in float32 and so is their product; a format with a minimum
 * rounds once, in the subtraction. So the values have the bits of the reference.
 *
 * Blocks are only 2-byte aligned (MXFP4: not at all), so wider loads are put together from halves.
 */
#ifndef STRATA_KERNELS_CUDA_DECODE_CUH
#define STRATA_KERNELS_CUDA_DECODE_CUH

#include <stdint.h>

#include <cuda_fp16.h>

#include "kernels/cuda/cuda_kernels.h"

template <int FORMAT> struct block_shape;

#define STRATA__BLOCK_SHAPE(format, values, bytes)                                                 \
    template <> struct block_shape<format> {                                                       \
        static constexpr uint32_t VALUES = values, BYTES = bytes;                                  \
    }

/* Plain types are taken as blocks of eight. */
STRATA__BLOCK_SHAPE(STRATA__F32, 8, 32);
STRATA__BLOCK_SHAPE(STRATA__F16, 8, 16);
STRATA__BLOCK_SHAPE(STRATA__BF16, 8, 16);
STRATA__BLOCK_SHAPE(STRATA__Q4_0, 32, 18);
STRATA__BLOCK_SHAPE(STRATA__Q4_1, 32, 20);
STRATA__BLOCK_SHAPE(STRATA__Q5_0, 32, 22);
STRATA__BLOCK_SHAPE(STRATA__Q5_1, 32, 24);
STRATA__BLOCK_SHAPE(STRATA__Q8_0, 32, 34);
STRATA__BLOCK_SHAPE(STRATA__Q2_K, 256, 84);
STRATA__BLOCK_SHAPE(STRATA__Q3_K, 256, 110);
STRATA__BLOCK_SHAPE(STRATA__Q4_K, 256, 144);
STRATA__BLOCK_SHAPE(STRATA__Q5_K, 256, 176);
STRATA__BLOCK_SHAPE(STRATA__Q6_K, 256, 210);
STRATA__BLOCK_SHAPE(STRATA__IQ2_XXS, 256, 66);
STRATA__BLOCK_SHAPE(STRATA__IQ2_XS, 256, 74);
STRATA__BLOCK_SHAPE(STRATA__IQ3_XXS, 256, 98);
STRATA__BLOCK_SHAPE(STRATA__IQ1_S, 256, 50);
STRATA__BLOCK_SHAPE(STRATA__IQ4_NL, 32, 18);
STRATA__BLOCK_SHAPE(STRATA__IQ3_S, 256, 110);
STRATA__BLOCK_SHAPE(STRATA__IQ2_S, 256, 82);
STRATA__BLOCK_SHAPE(STRATA__IQ4_XS, 256, 136);
STRATA__BLOCK_SHAPE(STRATA__IQ1_M, 256, 56);
STRATA__BLOCK_SHAPE(STRATA__MXFP4, 32, 17);
STRATA__BLOCK_SHAPE(STRATA__Q2_0, 64, 18);

/* How a format is summed in int8 (kernels/int8.h): values of a dot, offsets, scales to 2^126. */
template <int FORMAT> struct int8_sum_of {
    static constexpr uint32_t D = FORMAT == STRATA__Q6_K || FORMAT == STRATA__IQ1_M ||
                                          FORMAT == STRATA__IQ2_XS || FORMAT == STRATA__IQ2_S
                                      ? 16
                                  : FORMAT == STRATA__Q2_0 ? 64
                                                           : 32;
    /* Of 32 values: dots, offsets, and the sums of activations that these multiply. */
    static constexpr int PARTS = D == 16 ? 2 : 1;
    static constexpr int OFFSETS = FORMAT == STRATA__Q2_K ? 2
                                   : FORMAT == STRATA__Q4_1 || FORMAT == STRATA__Q5_1 ||
                                           FORMAT == STRATA__Q4_K || FORMAT == STRATA__Q5_K
                                       ? 1
                                       : 0;
    static constexpr int SUMS = OFFSETS == 2 ? 2 : 1;
    static constexpr bool WIDE = FORMAT == STRATA__MXFP4;
};

/* Every format of blocks once, and with the plain types. */
#define STRATA__FOR_EACH_BLOCK_FORMAT(X)                                                           \
    X(STRATA__Q4_0)                                                                                \
    X(STRATA__Q4_1)                                                                                \
    X(STRATA__Q5_0)                                                                                \
    X(STRATA__Q5_1)                                                                                \
    X(STRATA__Q8_0)                                                                                \
    X(STRATA__Q2_K)                                                                                \
    X(STRATA__Q3_K)                                                                                \
    X(STRATA__Q4_K)                                                                                \
    X(STRATA__Q5_K)                                                                                \
    X(STRATA__Q6_K)                                                                                \
    X(STRATA__IQ2_XXS)                                                                             \
    X(STRATA__IQ2_XS)                                                                              \
    X(STRATA__IQ3_XXS)                                                                             \
    X(STRATA__IQ1_S)                                                                               \
    X(STRATA__IQ4_NL)                                                                              \
    X(STRATA__IQ3_S)                                                                               \
    X(STRATA__IQ2_S)                                                                               \
    X(STRATA__IQ4_XS)                                                                              \
    X(STRATA__IQ1_M)                                                                               \
    X(STRATA__MXFP4)                                                                               \
    X(STRATA__Q2_0)

#define STRATA__FOR_EACH_FORMAT(X)                                                                 \
    X(STRATA__F32)                                                                                 \
    X(STRATA__F16)                                                                                 \
    X(STRATA__BF16)                                                                                \
    STRATA__FOR_EACH_BLOCK_FORMAT(X)

static __device__ __forceinline__ uint32_t load_u8(const uint8_t *p)
{
    return __ldg(p);
}

static __device__ __forceinline__ uint32_t load_u16(const uint8_t *p)
{
    return __ldg(reinterpret_cast<const unsigned short *>(p));
}

static __device__ __forceinline__ uint32_t load_u32(const uint8_t *p)
{
    return load_u16(p) | load_u16(p + 2) << 16;
}

static __device__ __forceinline__ float float_of_half(uint32_t bits)
{
    return __half2float(__ushort_as_half((unsigned short)bits));
}

/* Of MXFP4, half of 2^(e - 127), since the table holds doubled values; subnormal for e < 2. */
static __device__ __forceinline__ float mxfp4_scale(uint32_t e)
{
    return __uint_as_float(e < 2 ? 0x00200000u << e : (e - 1) << 23);
}

/* Of IQ1_M, a half that is spread over the top nibbles of the block's last words. */
static __device__ __forceinline__ float iq1_m_scale(uint32_t w0, uint32_t w1, uint32_t w2,
                                                    uint32_t w3)
{
    return float_of_half(w0 >> 12 | (w1 >> 8 & 0x00f0) | (w2 >> 4 & 0x0f00) | (w3 & 0xf000));
}

static __device__ __forceinline__ float load_half(const uint8_t *p)
{
    return float_of_half(load_u16(p));
}

/* Eight codes: byte i of low, then of high. */
struct code8 {
    uint32_t low, high;
};

static __device__ __forceinline__ code8 load_code8(const uint8_t *p)
{
    return {load_u32(p), load_u32(p + 4)};
}

/* Byte i of a word plus 2^23, exact. */
template <int I> static __device__ __forceinline__ float shifted_float(uint32_t word)
{
    return __uint_as_float(__byte_perm(word, 0x4b000000, 0x7440 | I));
}

/* v = scale * (code - bias) */
static __device__ __forceinline__ void scale_codes(code8 codes, float bias, float scale,
                                                   float (&v)[8])
{
    float shift = 8388608.0f + bias;
    v[0] = scale * (shifted_float<0>(codes.low) - shift);
    v[1] = scale * (shifted_float<1>(codes.low) - shift);
    v[2] = scale * (shifted_float<2>(codes.low) - shift);
    v[3] = scale * (shifted_float<3>(codes.low) - shift);
    v[4] = scale * (shifted_float<0>(codes.high) - shift);
    v[5] = scale * (shifted_float<1>(codes.high) - shift);
    v[6] = scale * (shifted_float<2>(codes.high) - shift);
    v[7] = scale * (shifted_float<3>(codes.high) - shift);
}

/* v = scale * (code - 1 + delta), in two exact steps */
static __device__ __forceinline__ void scale_codes_shifted(code8 codes, float delta, float scale,
                                                           float (&v)[8])
{
    scale_codes(codes, 1.0f, 1.0f, v);
#pragma unroll
    for (int i = 0; i < 8; i++)
        v[i] = scale * (v[i] + delta);
}

/* v = scale * code + offset; the product is exact, so that a fused multiply-add changes nothing */
static __device__ __forceinline__ void scale_codes_offset(code8 codes, float scale, float offset,
                                                          float (&v)[8])
{
    scale_codes(codes, 0.0f, scale, v);
#pragma unroll
    for (int i = 0; i < 8; i++)
        v[i] += offset;
}

/* v = scale * factor * code + offset, and v = scale * factor * (code - 4) */
static __device__ __forceinline__ void
multiply_codes_offset(code8 codes, uint32_t factor, float scale, float offset, float (&v)[8])
{
    scale_codes_offset(codes, scale * (float)factor, offset, v);
}

static __device__ __forceinline__ void multiply_codes_less_4(code8 codes, int factor, float scale,
                                                             float (&v)[8])
{
    scale_codes(codes, 4.0f, scale * (float)factor, v);
}

/* Negates the values whose bit is set. */
static __device__ __forceinline__ void apply_signs(uint32_t signs, float (&v)[8])
{
#pragma unroll
    for (int i = 0; i < 8; i++)
        v[i] = __uint_as_float(__float_as_uint(v[i]) ^ (signs << (31 - i) & 0x80000000u));
}

/*
 * The exact int8 form of eight values, as kernels/int8.h has it: value = scale * code + offset. The
 * functions that follow are those above for it, so that a decoder serves both.
 */
struct int8_codes {
    code8 codes;
    float scale, offset;
};

static __device__ __forceinline__ void scale_codes(code8 codes, float bias, float scale,
                                                   int8_codes &v)
{
    uint32_t less = (uint32_t)bias * 0x01010101u;
    v = {{__vsub4(codes.low, less), __vsub4(codes.high, less)}, scale, 0.0f};
}

static __device__ __forceinline__ void scale_codes_shifted(code8 codes, float delta, float scale,
                                                           int8_codes &v)
{
    uint32_t less = delta < 0.0f ? 0x09090909u : 0x07070707u;
    v = {{__vsub4(codes.low << 3, less), __vsub4(codes.high << 3, less)}, scale * 0.125f, 0.0f};
}

static __device__ __forceinline__ void scale_codes_offset(code8 codes, float scale, float offset,
                                                          int8_codes &v)
{
    v = {codes, scale, offset};
}

/* Bytes times a factor; no product is above 255. */
static __device__ __forceinline__ code8 times_factor(code8 codes, uint32_t factor)
{
    return {codes.low * factor, codes.high * factor};
}

/*
 * Signed bytes (code - 4) * factor of codes below 8, factors of -31 to 32: 128 is added to them, so
 * that none is negative where they are multiplied as one word, and taken off.
 */
static __device__ __forceinline__ code8 less_4_times_factor(code8 codes, int factor)
{
    uint32_t times = (uint32_t)factor, more = 0x80808080u - times * 0x04040404u;
    return {(codes.low * times + more) ^ 0x80808080u, (codes.high * times + more) ^ 0x80808080u};
}

static __device__ __forceinline__ void
multiply_codes_offset(code8 codes, uint32_t factor, float scale, float offset, int8_codes &v)
{
    v = {times_factor(codes, factor), scale, offset};
}

static __device__ __forceinline__ void multiply_codes_less_4(code8 codes, int factor, float scale,
                                                             int8_codes &v)
{
    v = {less_4_times_factor(codes, -factor), -scale, 0.0f};
}

static __device__ __forceinline__ uint32_t negate_bytes(uint32_t codes, uint32_t signs)
{
    uint32_t mask = ((signs & 15) * 0x00204081u & 0x01010101u) * 255;
    return __vsub4(codes ^ mask, mask);
}

static __device__ __forceinline__ void apply_signs(uint32_t signs, int8_codes &v)
{
    v.codes = {negate_bytes(v.codes.low, signs), negate_bytes(v.codes.high, signs >> 4)};
}

/* Four two-bit fields of a byte. */
static __device__ __forceinline__ uint32_t spread_pairs(uint32_t bits)
{
    return (bits & 3) | (bits & 12) << 6 | (bits & 48) << 12 | (bits & 192) << 18;
}

/* Bit 7 makes the number of set bits even. */
static __device__ __forceinline__ uint32_t sign_byte(uint32_t index)
{
    index &= 127;
    return index | (__popc(index) & 1) << 7;
}

/* The low or the high nibbles of eight bytes. */
static __device__ __forceinline__ code8 nibbles_of(code8 packed, uint32_t high)
{
    uint32_t shift = high ? 4 : 0;
    return {packed.low >> shift & 0x0f0f0f0fu, packed.high >> shift & 0x0f0f0f0fu};
}

static __device__ __forceinline__ code8 pairs_of(code8 packed, uint32_t shift)
{
    return {packed.low >> shift & 0x03030303u, packed.high >> shift & 0x03030303u};
}

/* Bit `bit` of every byte, moved to place `to`. */
static __device__ __forceinline__ code8 bits_of(code8 packed, uint32_t bit, uint32_t to)
{
    return {(packed.low >> bit & 0x01010101u) << to, (packed.high >> bit & 0x01010101u) << to};
}

/* The low four bits of `bits` to bit 4 of four bytes. */
static __device__ __forceinline__ uint32_t spread_fifth_bits(uint32_t bits)
{
    return ((bits & 1) | (bits & 2) << 7 | (bits & 4) << 14 | (bits & 8) << 21) << 4;
}

static __device__ __forceinline__ code8 join(code8 a, code8 b)
{
    return {a.low | b.low, a.high | b.high};
}

/* Looks four nibbles (one a byte) up in a table of sixteen bytes, t[0] lowest. */
static __device__ __forceinline__ uint32_t look_up4(uint32_t nibbles, uint32_t t0, uint32_t t1,
                                                    uint32_t t2, uint32_t t3)
{
    uint32_t pairs = nibbles | nibbles >> 4;
    uint32_t selector = __byte_perm(pairs, 0, 0x4420);
    uint32_t low = __byte_perm(t0, t1, selector & 0x7777);
    uint32_t high = __byte_perm(t2, t3, selector & 0x7777);
    return __byte_perm(low, high, (selector >> 1 & 0x4444) | 0x3210);
}

/* IQ4: -127 -104 -83 -65 -49 -35 -22 -10 1 13 25 38 53 69 89 113, each plus 128 */
static __device__ __forceinline__ code8 look_up_iq4(code8 n)
{
    return {look_up4(n.low, 0x3f2d1801, 0x766a5d4f, 0xa6998d81, 0xf1d9c5b5),
            look_up4(n.high, 0x3f2d1801, 0x766a5d4f, 0xa6998d81, 0xf1d9c5b5)};
}

/* MXFP4, doubled: 0 1 2 3 4 6 8 12 and their negatives, each plus 128 */
static __device__ __forceinline__ code8 look_up_mxfp4(code8 n)
{
    return {look_up4(n.low, 0x83828180, 0x8c888684, 0x7d7e7f80, 0x74787a7c),
            look_up4(n.high, 0x83828180, 0x8c888684, 0x7d7e7f80, 0x74787a7c)};
}

static __device__ __forceinline__ code8 grid8(const void *grid, uint32_t index)
{
    uint2 point = static_cast<const uint2 *>(grid)[index];
    return {point.x, point.y};
}

static __device__ __forceinline__ code8 grid4(const void *grid, uint32_t first, uint32_t second)
{
    const uint32_t *points = static_cast<const uint32_t *>(grid);
    return {points[first], points[second]};
}

/* 6-bit scale and minimum of group `g` of Q4_K and Q5_K. */
static __device__ __forceinline__ void scale_minimum(const uint8_t *packed, uint32_t g,
                                                     uint32_t *scale, uint32_t *minimum)
{
    if (g < 4) {
        *scale = load_u8(packed + g) & 63;
        *minimum = load_u8(packed + 4 + g) & 63;
    } else {
        uint32_t both = load_u8(packed + 4 + g);
        *scale = (both & 15) | (load_u8(packed + g - 4) >> 2 & 0x30);
        *minimum = both >> 4 | (load_u8(packed + g) >> 2 & 0x30);
    }
}

/*
 * Values 8 * part ... 8 * part + 7 of a block, as float[8] or as int8_codes, by families of
 * formats. `grid`: the format's codebook.
 */
template <int FORMAT>
static __device__ __forceinline__ void decode_plain(const uint8_t *block, float (&v)[8])
{
#pragma unroll
    for (int i = 0; i < 8; i++)
        if constexpr (FORMAT == STRATA__F32)
            v[i] = __ldg(reinterpret_cast<const float *>(block) + i);
        else if constexpr (FORMAT == STRATA__F16)
            v[i] = load_half(block + 2 * i);
        else
            v[i] = __uint_as_float(load_u16(block + 2 * i) << 16);
}

/* Blocks of 32 values, and of 64 (Q2_0). */
template <int FORMAT, typename VALUES>
static __device__ __forceinline__ void decode_small(const uint8_t *block, uint32_t part, VALUES &v)
{
    if constexpr (FORMAT == STRATA__Q8_0) {
        code8 codes = load_code8(block + 2 + 8 * part);
        scale_codes({codes.low ^ 0x80808080u, codes.high ^ 0x80808080u}, 128.0f, load_half(block),
                    v);
    } else if constexpr (FORMAT == STRATA__Q2_0) {
        uint32_t word = load_u16(block + 2 + 2 * part);
        scale_codes({spread_pairs(word), spread_pairs(word >> 8)}, 1.0f, load_half(block), v);
    } else if constexpr (FORMAT == STRATA__MXFP4) {
        const uint8_t *p = block + 1 + 8 * (part & 1);
        code8 packed = {
            load_u8(p) | load_u8(p + 1) << 8 | load_u8(p + 2) << 16 | load_u8(p + 3) << 24,
            load_u8(p + 4) | load_u8(p + 5) << 8 | load_u8(p + 6) << 16 | load_u8(p + 7) << 24};
        scale_codes(look_up_mxfp4(nibbles_of(packed, part >> 1)), 128.0f,
                    mxfp4_scale(load_u8(block)), v);
    } else {
        constexpr bool OFFSET = FORMAT == STRATA__Q4_1 || FORMAT == STRATA__Q5_1;
        constexpr bool FIFTH = FORMAT == STRATA__Q5_0 || FORMAT == STRATA__Q5_1;
        constexpr uint32_t MASK_AT = OFFSET ? 4 : 2;
        constexpr uint32_t CODES_AT = MASK_AT + (FIFTH ? 4 : 0);
        code8 codes = nibbles_of(load_code8(block + CODES_AT + 8 * (part & 1)), part >> 1);
        if (FIFTH) {
            uint32_t mask = load_u8(block + MASK_AT + part);
            codes.low |= spread_fifth_bits(mask);
            codes.high |= spread_fifth_bits(mask >> 4);
        }
        float d = load_half(block);
        if (OFFSET)
            scale_codes_offset(codes, d, load_half(block + 2), v);
        else if (FORMAT == STRATA__IQ4_NL)
            scale_codes(look_up_iq4(codes), 128.0f, d, v);
        else
            scale_codes(codes, FIFTH ? 16.0f : 8.0f, d, v);
    }
}

/* The K formats. */
template <int FORMAT, typename VALUES>
static __device__ __forceinline__ void decode_k(const uint8_t *block, uint32_t part, VALUES &v)
{
    if constexpr (FORMAT == STRATA__Q2_K) {
        uint32_t packed_at = 16 + 32 * (part / 16) + 8 * (part % 4);
        code8 codes = pairs_of(load_code8(block + packed_at), 2 * (part % 16 / 4));
        uint32_t scale = load_u8(block + part / 2);
        multiply_codes_offset(codes, scale & 15, load_half(block + 80),
                              -(load_half(block + 82) * (float)(scale >> 4)), v);
    } else if constexpr (FORMAT == STRATA__Q3_K) {
        uint32_t j = part / 4, i = 8 * (part % 4), g = part / 2;
        code8 codes = pairs_of(load_code8(block + 32 + 32 * (j / 4) + i), 2 * (j % 4));
        uint32_t low = load_u8(block + 96 + g % 8) >> 4 * (g / 8) & 15;
        uint32_t high = load_u8(block + 104 + g % 4) >> 2 * (g / 4) & 3;
        codes = join(codes, bits_of(load_code8(block + i), j, 2));
        multiply_codes_less_4(codes, (int)(low | high << 4) - 32, load_half(block + 108), v);
    } else if constexpr (FORMAT == STRATA__Q6_K) {
        uint32_t half = part / 16, j = part % 16 / 4, i = 8 * (part % 4);
        code8 low = nibbles_of(load_code8(block + 64 * half + 32 * (j % 2) + i), j / 2);
        code8 high = pairs_of(load_code8(block + 128 + 32 * half + i), 2 * j);
        code8 codes = join(low, {high.low << 4, high.high << 4});
        float scale = (float)(int8_t)load_u8(block + 192 + part / 2);
        scale_codes(codes, 32.0f, load_half(block + 208) * scale, v);
    } else {
        constexpr uint32_t CODES_AT = FORMAT == STRATA__Q4_K ? 16 : 48;
        uint32_t at = CODES_AT + 32 * (part / 8) + 8 * (part % 4);
        uint32_t scale, minimum;
        code8 codes = nibbles_of(load_code8(block + at), part / 4 & 1);
        if (FORMAT == STRATA__Q5_K)
            codes = join(codes, bits_of(load_code8(block + 16 + 8 * (part % 4)), part / 4, 4));
        scale_minimum(block + 4, part / 4, &scale, &minimum);
        scale_codes_offset(codes, load_half(block) * (float)scale,
                           -(load_half(block + 2) * (float)minimum), v);
    }
}

/* The IQ formats with signs. */
template <int FORMAT, typename VALUES>
static __device__ __forceinline__ void decode_signed(const uint8_t *block, uint32_t part,
                                                     const void *grid, VALUES &v)
{
    if constexpr (FORMAT == STRATA__IQ2_XXS) {
        uint32_t word = load_u32(block + 2 + 8 * (part / 4) + 4);
        float scale = load_half(block) * (0.5f + (float)(word >> 28)) * 0.25f;
        uint32_t index = load_u8(block + 2 + 8 * (part / 4) + part % 4);
        scale_codes(grid8(grid, index), 0.0f, scale, v);
        apply_signs(sign_byte(word >> 7 * (part % 4)), v);
    } else if constexpr (FORMAT == STRATA__IQ2_XS) {
        uint32_t word = load_u16(block + 2 + 2 * part);
        uint32_t nibble = load_u8(block + 66 + part / 4) >> 4 * (part / 2 % 2) & 15;
        float scale = load_half(block) * (0.5f + (float)nibble) * 0.25f;
        scale_codes(grid8(grid, word & 511), 0.0f, scale, v);
        apply_signs(sign_byte(word >> 9), v);
    } else if constexpr (FORMAT == STRATA__IQ2_S) {
        uint32_t high = load_u8(block + 66 + part / 4) >> 2 * (part % 4) & 3;
        uint32_t nibble = load_u8(block + 74 + part / 4) >> 4 * (part / 2 % 2) & 15;
        float scale = load_half(block) * (0.5f + (float)nibble) * 0.25f;
        scale_codes(grid8(grid, load_u8(block + 2 + part) | high << 8), 0.0f, scale, v);
        apply_signs(load_u8(block + 34 + part), v);
    } else if constexpr (FORMAT == STRATA__IQ3_XXS) {
        uint32_t indices = load_u16(block + 2 + 2 * part);
        uint32_t word = load_u32(block + 66 + 4 * (part / 4));
        float scale = load_half(block) * (0.5f + (float)(word >> 28)) * 0.5f;
        scale_codes(grid4(grid, indices & 255, indices >> 8), 0.0f, scale, v);
        apply_signs(sign_byte(word >> 7 * (part % 4)), v);
    } else {
        uint32_t indices = load_u16(block + 2 + 2 * part);
        uint32_t high = load_u8(block + 66 + part / 4) >> 2 * (part % 4);
        uint32_t nibble = load_u8(block + 106 + part / 8) >> 4 * (part / 4 % 2) & 15;
        float scale = load_half(block) * (float)(1 + 2 * nibble);
        scale_codes(grid4(grid, (indices & 255) | (high & 1) << 8, indices >> 8 | (high & 2) << 7),
                    0.0f, scale, v);
        apply_signs(load_u8(block + 74 + part), v);
    }
}

/* The IQ formats with shifts. */
template <int FORMAT, typename VALUES>
static __device__ __forceinline__ void decode_shifted(const uint8_t *block, uint32_t part,
                                                      const void *grid, VALUES &v)
{
    if constexpr (FORMAT == STRATA__IQ1_S) {
        /* The codebook's bytes are -1, 0 and 1: one is added, and taken off as floats. */
        uint32_t word = load_u16(block + 34 + 2 * (part / 4));
        uint32_t index = load_u8(block + 2 + part) | (word >> 3 * (part % 4) & 7) << 8;
        float scale = load_half(block) * (float)(2 * (word >> 12 & 7) + 1);
        code8 point = grid8(grid, index);
        scale_codes_shifted({__vadd4(point.low, 0x01010101u), __vadd4(point.high, 0x01010101u)},
                            word & 0x8000 ? -0.125f : 0.125f, scale, v);
    } else {
        uint32_t g = part / 2;
        uint32_t w0 = load_u16(block + 48), w1 = load_u16(block + 50);
        uint32_t w2 = load_u16(block + 52), w3 = load_u16(block + 54);
        float d = iq1_m_scale(w0, w1, w2, w3);
        uint32_t word = g < 8 ? (g < 4 ? w0 : w1) : (g < 12 ? w2 : w3);
        uint32_t nibble = load_u8(block + 32 + g) >> 4 * (part % 2) & 15;
        uint32_t index = load_u8(block + part) | (nibble & 7) << 8;
        code8 point = grid8(grid, index);
        float scale = d * (float)(2 * (word >> 3 * (g % 4) & 7) + 1);
        scale_codes_shifted({__vadd4(point.low, 0x01010101u), __vadd4(point.high, 0x01010101u)},
                            nibble & 8 ? -0.125f : 0.125f, scale, v);
    }
}

template <typename VALUES>
static __device__ __forceinline__ void decode_iq4_xs(const uint8_t *block, uint32_t part, VALUES &v)
{
    uint32_t g = part / 4;
    uint32_t low = load_u8(block + 4 + g / 2) >> 4 * (g % 2) & 15;
    uint32_t high = load_u16(block + 2) >> 2 * g & 3;
    float scale = load_half(block) * (float)((int)(low | high << 4) - 32);
    code8 packed = load_code8(block + 8 + 16 * g + 8 * (part & 1));
    scale_codes(look_up_iq4(nibbles_of(packed, part >> 1 & 1)), 128.0f, scale, v);
}

/* The same of any format. */
template <int FORMAT, typename VALUES>
static __device__ __forceinline__ void decode8(const uint8_t *block, uint32_t part,
                                               const void *grid, VALUES &v)
{
    (void)grid;
    (void)part;
    if constexpr (block_shape<FORMAT>::VALUES == 8)
        decode_plain<FORMAT>(block, v);
    else if constexpr (block_shape<FORMAT>::VALUES < 256)
        decode_small<FORMAT>(block, part, v);
    else if constexpr (FORMAT == STRATA__Q2_K || FORMAT == STRATA__Q3_K || FORMAT == STRATA__Q4_K ||
                       FORMAT == STRATA__Q5_K || FORMAT == STRATA__Q6_K)
        decode_k<FORMAT>(block, part, v);
    else if constexpr (FORMAT == STRATA__IQ4_XS)
        decode_iq4_xs(block, part, v);
    else if constexpr (FORMAT == STRATA__IQ1_S || FORMAT == STRATA__IQ1_M)
        decode_shifted<FORMAT>(block, part, grid, v);
    else
        decode_signed<FORMAT>(block, part, grid, v);
}

#endif
