/* SPDX-License-Identifier: MIT */
/*
 * Weights as the int8 product without an image takes them from raw blocks in shared memory: eight
 * values of a row as signed bytes, and the scales and offsets of the 32 values around them. Codes
 * may be those of kernels/int8.h times a power of two that the scales are divided by: products keep
 * their bits, and a bias of the codes becomes an exclusive or.
 */
#ifndef STRATA_KERNELS_CUDA_INT8_UNITS_CUH
#define STRATA_KERNELS_CUDA_INT8_UNITS_CUH

#include "kernels/cuda/few_units.cuh"

constexpr uint32_t IQ2_NEGATIVES = 0x00d5e7f8; /* of IQ2_VALUES */

/* Bytes of two words; of a selector whose top bit is set, eight times the byte's top bit. */
static __device__ __forceinline__ uint32_t select_from(uint32_t a, uint32_t b, uint32_t selector)
{
    uint32_t bytes;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(a), "r"(b), "r"(selector));
    return bytes;
}

/*
 * Formats that keep values i and i + 16 of 32 in one byte: a lane has values 4 c ... 4 c + 3 and
 * the four that are sixteen on, not eight in a row.
 */
template <int FORMAT> struct int8_split {
    static constexpr bool VALUE = FORMAT == STRATA__Q4_0 || FORMAT == STRATA__Q4_1 ||
                                  FORMAT == STRATA__Q5_0 || FORMAT == STRATA__Q5_1 ||
                                  FORMAT == STRATA__MXFP4 || FORMAT == STRATA__IQ4_NL ||
                                  FORMAT == STRATA__IQ4_XS;
};

/*
 * What codes are looked up in: values of IQ2, or the sixteen codes of IQ4 and MXFP4 (doubled). They
 * come from shared memory to registers, once a panel, for constants would be moved to registers at
 * each use.
 */
template <int FORMAT> struct code_tables {
    uint32_t words[4];

    __device__ __forceinline__ void fill()
    {
        const uint32_t iq2[4] = {IQ2_VALUES};
        const uint32_t mxfp4[4] = {0x03020100, 0x0c080604, 0xfdfeff00, 0xf4f8fafc};
        const uint32_t iq4[4] = {0xbfad9881, 0xf6eaddcf, 0x26190d01, 0x71594535};
#pragma unroll
        for (int i = 0; i < 4; i++)
            words[i] = FORMAT == STRATA__MXFP4     ? mxfp4[i]
                       : int8_split<FORMAT>::VALUE ? iq4[i]
                                                   : iq2[i];
    }

    /* Nibbles of four bytes: the low ones, then the high ones. */
    __device__ __forceinline__ code8 look_up(uint32_t word) const
    {
        uint32_t place = word & 0x77777777u, half = (word >> 1 & 0x44444444u) | 0x32103210u;
        uint32_t pairs[2];
#pragma unroll
        for (int i = 0; i < 2; i++, place >>= 16, half >>= 16)
            pairs[i] = select_from(select_from(words[0], words[1], place),
                                   select_from(words[2], words[3], place), half);
        return {__byte_perm(pairs[0], pairs[1], 0x6420), __byte_perm(pairs[0], pairs[1], 0x7531)};
    }
};

/* Signs of eight values, by the byte or the index that a format has for them. */
template <int FORMAT> struct int8_books {
    static constexpr bool BYTES = FORMAT == STRATA__IQ2_S || FORMAT == STRATA__IQ3_S;
    static constexpr bool SIGNED = unit_form<FORMAT>::SIGNED;
    static constexpr bool SELECTED = unit_books<FORMAT>::POINTS; /* codes by a selector */
    static constexpr uint32_t COUNT = SIGNED ? (BYTES ? 256 : 128) : 1;
    static constexpr uint32_t WORDS = SIGNED && !SELECTED ? 2 : 1;
    code_tables<FORMAT> tables;
    unit_books<FORMAT> books;
    uint32_t signs[COUNT * WORDS];

    /* All threads of the block; the caller puts a barrier behind. */
    __device__ __forceinline__ void load()
    {
        books.load();
        if (threadIdx.x == 0)
            tables.fill();
        for (uint32_t i = threadIdx.x; SIGNED && i < COUNT; i += blockDim.x) {
            uint32_t byte = BYTES ? i : sign_byte(i);
            uint32_t low = (byte & 15) * 0x00204081u & 0x01010101u;
            uint32_t high = (byte >> 4) * 0x00204081u & 0x01010101u;
            if (SELECTED) {
                signs[i] = __byte_perm(low | low >> 4, high | high >> 4, 0x6420) << 2;
            } else {
                signs[WORDS * i] = low * 255;
                signs[WORDS * i + WORDS - 1] = high * 255;
            }
        }
    }

    /* A point of IQ2 formats, of IQ2_VALUES: the negatives stand behind the values. */
    __device__ __forceinline__ code8 point(uint32_t index, uint32_t sign, uint32_t values) const
    {
        uint32_t selector = books.points[unit_books<FORMAT>::POINTS ? index : 0] | signs[sign];
        return {select_from(values, IQ2_NEGATIVES, selector),
                select_from(values, IQ2_NEGATIVES, selector >> 16)};
    }

    /* Two points of IQ3 formats, of codes that are not 0. */
    __device__ __forceinline__ code8 points(uint32_t first, uint32_t second, uint32_t sign) const
    {
        code8 v = grid4(books.grid, first, second);
        uint2 mask = reinterpret_cast<const uint2 *>(signs)[sign];
        return {(v.low ^ mask.x) + (mask.x & 0x01010101u),
                (v.high ^ mask.y) + (mask.y & 0x01010101u)};
    }
};

/*
 * Eight bytes at anchor + far. Blocks begin at multiples of what divides their length, up to 8, and
 * so do codes in them but for the formats whose blocks are not of whole words.
 */
template <int FORMAT>
static __device__ __forceinline__ code8 codes_at(const uint8_t *anchor, uint32_t far)
{
    constexpr uint32_t BYTES = block_shape<FORMAT>::BYTES;
    if constexpr (BYTES % 8 == 0) {
        uint2 words = *reinterpret_cast<const uint2 *>(anchor + far);
        return {words.x, words.y};
    } else if constexpr (BYTES % 4 == 0) {
        const uint32_t *words = reinterpret_cast<const uint32_t *>(anchor + far);
        return {words[0], words[1]};
    } else {
        return staged_code8(anchor, far);
    }
}

/* Four bytes, likewise. */
template <int FORMAT>
static __device__ __forceinline__ uint32_t word_at(const uint8_t *anchor, uint32_t far)
{
    constexpr uint32_t BYTES = block_shape<FORMAT>::BYTES;
    if constexpr (BYTES % 4 == 0) {
        return *reinterpret_cast<const uint32_t *>(anchor + far);
    } else if constexpr (BYTES % 2 == 0) {
        return staged_u32(anchor + far);
    } else {
        uint32_t words[1];
        staged_words<1>(anchor, far, words);
        return words[0];
    }
}

/* The top bit of each byte flipped. */
static __device__ __forceinline__ code8 flipped(code8 v)
{
    return {v.low ^ 0x80808080u, v.high ^ 0x80808080u};
}

/* Four bits to the top bits of four bytes. */
static __device__ __forceinline__ uint32_t spread_top_bits(uint32_t bits)
{
    return (bits & 15) * 0x10204080u & 0x80808080u;
}

/* Sixteen bits in pairs to bytes less one. */
static __device__ __forceinline__ code8 pairs_less_one(uint32_t word)
{
    uint32_t t = (word | word << 8) & 0x00ff00ffu;
    t = (t | t << 4) & 0x0f0f0f0fu;
    t = (t | t << 2) & 0x33333333u;
    return {__byte_perm(0x020100ffu, 0, t & 0xffff), __byte_perm(0x020100ffu, 0, t >> 16)};
}

/* Of the formats that int8_split tells of: codes of a block at block + far, a multiple of four. */
template <int FORMAT>
static __device__ __forceinline__ code8 split_codes(const uint8_t *block, uint32_t far, uint32_t c,
                                                    const code_tables<FORMAT> &tables)
{
    constexpr bool OFFSET = FORMAT == STRATA__Q4_1 || FORMAT == STRATA__Q5_1;
    constexpr bool FIFTH = FORMAT == STRATA__Q5_0 || FORMAT == STRATA__Q5_1;
    /* Behind scale and offset are the fifth bits, where there are any, then the codes. */
    constexpr uint32_t MASK_AT = FORMAT == STRATA__MXFP4 ? 1 : OFFSET ? 4 : 2;
    constexpr uint32_t CODES_AT = MASK_AT + (FIFTH ? 4 : 0);
    uint32_t word = word_at<FORMAT>(block + CODES_AT + 4 * c, far);
    if constexpr (FORMAT == STRATA__MXFP4 || FORMAT == STRATA__IQ4_NL) {
        return tables.look_up(word);
    } else if constexpr (FORMAT == STRATA__Q4_0) { /* 16 (code - 8) */
        return flipped({word << 4 & 0xf0f0f0f0u, word & 0xf0f0f0f0u});
    } else {
        code8 codes = {word & 0x0f0f0f0fu, word >> 4 & 0x0f0f0f0fu};
        if constexpr (FIFTH) {
            const uint8_t *mask = block + far + MASK_AT;
            uint32_t low = spread_top_bits(staged_u16(mask) >> 4 * c);
            uint32_t high = spread_top_bits(staged_u16(mask + 2) >> 4 * c);
            if (FORMAT == STRATA__Q5_0) /* 8 (code - 16) */
                return flipped({codes.low << 3 | low, codes.high << 3 | high});
            return {codes.low | low >> 3, codes.high | high >> 3};
        }
        return codes;
    }
}

/*
 * The K formats: of 256 values, those of step first + k, where first is 0 or 4, so that what steps
 * share is read once. Of Q2_K and Q3_K without their factors.
 */
template <int FORMAT>
static __device__ __forceinline__ code8 k_codes(const uint8_t *block, uint32_t far, uint32_t first,
                                                const uint32_t k, uint32_t c)
{
    const uint8_t *own = block + 8 * c;
    if constexpr (FORMAT == STRATA__Q2_K) {
        return pairs_of(codes_at<FORMAT>(own, far + 16 + 8 * first), 2 * k);
    } else if constexpr (FORMAT == STRATA__Q3_K) { /* plus 4 */
        code8 low = pairs_of(codes_at<FORMAT>(own, far + 32 + 8 * first), 2 * k);
        code8 high = codes_at<FORMAT>(own, far);
        return join(low, bits_of({high.low >> first, high.high >> first}, k, 2));
    } else if constexpr (FORMAT == STRATA__Q6_K) { /* 4 (code - 32) */
        code8 low = nibbles_of(codes_at<FORMAT>(own, far + 16 * first + 32 * (k % 2)), k / 2);
        code8 high = pairs_of(codes_at<FORMAT>(own, far + 128 + 8 * first), 2 * k);
        return flipped({low.low << 2 | high.low << 6, low.high << 2 | high.high << 6});
    } else {
        constexpr uint32_t CODES_AT = FORMAT == STRATA__Q4_K ? 16 : 48;
        code8 codes =
            nibbles_of(codes_at<FORMAT>(own, far + CODES_AT + 16 * first + 32 * (k / 2)), k % 2);
        if (FORMAT == STRATA__Q5_K) {
            code8 high = codes_at<FORMAT>(own, far + 16);
            codes = join(codes, bits_of({high.low >> first, high.high >> first}, k, 4));
        }
        return codes;
    }
}

/* The IQ formats of 256 values, step s. */
template <int FORMAT>
static __device__ __forceinline__ code8 iq_codes(const uint8_t *at, uint32_t s, uint32_t c,
                                                 const int8_books<FORMAT> &books,
                                                 const code_tables<FORMAT> &tables)
{
    uint32_t part = 4 * s + c;
    if constexpr (FORMAT == STRATA__IQ2_XXS) {
        return books.point(staged_u8(at + 2 + 8 * s + c),
                           staged_u32(at + 2 + 8 * s + 4) >> 7 * c & 127, tables.words[0]);
    } else if constexpr (FORMAT == STRATA__IQ2_XS) {
        uint32_t word = staged_u16(at + 2 + 2 * part);
        return books.point(word & 511, word >> 9, tables.words[0]);
    } else if constexpr (FORMAT == STRATA__IQ2_S) {
        uint32_t high = staged_u8(at + 66 + s) >> 2 * c & 3;
        return books.point(staged_u8(at + 2 + part) | high << 8, staged_u8(at + 34 + part),
                           tables.words[0]);
    } else if constexpr (FORMAT == STRATA__IQ3_XXS) {
        uint32_t indices = staged_u16(at + 2 + 2 * part);
        return books.points(indices & 255, indices >> 8,
                            staged_u32(at + 66 + 4 * s) >> 7 * c & 127);
    } else if constexpr (FORMAT == STRATA__IQ3_S) {
        uint32_t indices = staged_u16(at + 2 + 2 * part);
        uint32_t high = staged_u8(at + 66 + s) >> 2 * c;
        return books.points((indices & 255) | (high & 1) << 8, indices >> 8 | (high & 2) << 7,
                            staged_u8(at + 74 + part));
    } else {
        /* In eighths points and shift are 8 g + 1 or 8 g - 1. */
        uint32_t index, negative;
        if constexpr (FORMAT == STRATA__IQ1_S) {
            uint32_t word = staged_u16(at + 34 + 2 * s);
            index = staged_u8(at + 2 + part) | (word >> 3 * c & 7) << 8;
            negative = word >> 15;
        } else {
            uint32_t nibble = staged_u8(at + 32 + 2 * s + c / 2) >> 4 * (c % 2) & 15;
            index = staged_u8(at + part) | (nibble & 7) << 8;
            negative = nibble >> 3;
        }
        return books.books.look_up(index, negative ? 0xf70007ffu : 0xf9000901u);
    }
}

/*
 * A lane's codes of step first + k (32 values each) of what lies at row + far: values 8 c ...
 * 8 c + 7, or those that int8_split tells of. `first` is 0 or 4, `k` 0 to 3.
 */
template <int FORMAT>
static __device__ __forceinline__ code8 int8_codes_of(const uint8_t *row, uint32_t far,
                                                      uint32_t first, const uint32_t k, uint32_t c,
                                                      const int8_books<FORMAT> &books,
                                                      const code_tables<FORMAT> &tables)
{
    constexpr uint32_t BYTES = block_shape<FORMAT>::BYTES;
    (void)books;
    (void)tables;
    if constexpr (FORMAT == STRATA__Q8_0)
        return codes_at<FORMAT>(row + k * BYTES + 2 + 8 * c, far);
    else if constexpr (FORMAT == STRATA__Q2_0)
        return pairs_less_one(staged_u16(row + far + k / 2 * BYTES + 2 + 8 * (k % 2) + 2 * c));
    else if constexpr (FORMAT == STRATA__IQ4_XS)
        return tables.look_up(word_at<FORMAT>(row + 4 * c, far + 8 + 16 * (first + k)));
    else if constexpr (int8_split<FORMAT>::VALUE)
        return split_codes<FORMAT>(row + k * BYTES, far, c, tables);
    else if constexpr (FORMAT == STRATA__Q2_K || FORMAT == STRATA__Q3_K || FORMAT == STRATA__Q4_K ||
                       FORMAT == STRATA__Q5_K || FORMAT == STRATA__Q6_K)
        return k_codes<FORMAT>(row, far, first, k, c);
    else
        return iq_codes<FORMAT>(row + far, first + k, c, books, tables);
}

/*
 * Of formats whose codes here are products with a factor of 16 values: the factors of one half of
 * the 32 values of each step of a panel, a byte a step. `first`: 0 or 4, the panel's first step.
 */
template <int FORMAT> struct int8_factors {
    uint32_t bytes;

    __device__ __forceinline__ int8_factors(const uint8_t *row, uint32_t far, uint32_t first,
                                            uint32_t half)
    {
        const uint32_t selector = 0x6420 + half * 0x1111;
        if constexpr (FORMAT == STRATA__Q2_K) {
            code8 both = codes_at<FORMAT>(row, far + 2 * first);
            bytes = __byte_perm(both.low, both.high, selector) & 0x0f0f0f0fu;
        } else if constexpr (FORMAT == STRATA__Q3_K) { /* 32 less the 6-bit scales, signed */
            uint32_t packed[3];
            staged_words<3>(row, far + 96, packed);
            uint32_t pairs = packed[2] >> first;
            uint32_t low = (packed[0] >> first & 0x0f0f0f0fu) | (pairs << 4 & 0x30303030u);
            uint32_t high = (packed[1] >> first & 0x0f0f0f0fu) | (pairs << 2 & 0x30303030u);
            bytes = (0xa0a0a0a0u - __byte_perm(low, high, selector)) ^ 0x80808080u;
        }
    }

    /* What int8_codes_of() finds for step k of the panel, times its factor. */
    __device__ __forceinline__ code8 times(code8 codes, uint32_t k) const
    {
        if constexpr (FORMAT == STRATA__Q2_K)
            return times_factor(codes, select_from(bytes, 0, 0x4440 + k));
        else if constexpr (FORMAT == STRATA__Q3_K)
            return less_4_times_factor(codes, (int)select_from(bytes, 0, 0x8880 + k * 0x1111));
        else
            return codes;
    }
};

/* Of 32 values: scales and offsets, of both halves where a format has them of 16. */
template <int FORMAT> struct int8_terms {
    float w[int8_sum_of<FORMAT>::PARTS], o[int8_sum_of<FORMAT>::SUMS];
};

template <int FORMAT>
static __device__ __forceinline__ void small_terms(const uint8_t *block, int8_terms<FORMAT> &t)
{
    if constexpr (FORMAT == STRATA__MXFP4) {
        t.w[0] = mxfp4_scale(staged_u8(block));
    } else {
        t.w[0] = staged_half(block) * (FORMAT == STRATA__Q4_0   ? 0.0625f
                                       : FORMAT == STRATA__Q5_0 ? 0.125f
                                                                : 1.0f);
        if (int8_sum_of<FORMAT>::OFFSETS)
            t.o[0] = staged_half(block + 2);
    }
}

/* Step 0 to 7 of a block of 256. */
template <int FORMAT>
static __device__ __forceinline__ void k_terms(const uint8_t *block, uint32_t step,
                                               int8_terms<FORMAT> &t)
{
    if constexpr (FORMAT == STRATA__Q2_K) {
        uint32_t scales = staged_u16(block + 2 * step);
        float least = -staged_half(block + 82);
        t.w[0] = staged_half(block + 80);
        t.o[0] = least * (float)(scales >> 4 & 15);
        t.o[1] = least * (float)(scales >> 12);
    } else if constexpr (FORMAT == STRATA__Q3_K) {
        t.w[0] = -staged_half(block + 108);
    } else if constexpr (FORMAT == STRATA__Q6_K) {
        uint32_t scales = staged_u16(block + 192 + 2 * step);
        float d = staged_half(block + 208) * 0.25f;
        t.w[0] = d * (float)(int8_t)scales;
        t.w[1] = d * (float)(int8_t)(scales >> 8);
    }
}

template <int FORMAT>
static __device__ __forceinline__ void iq_terms(const uint8_t *block, uint32_t step,
                                                int8_terms<FORMAT> &t)
{
    constexpr int PARTS = int8_sum_of<FORMAT>::PARTS;
    if constexpr (FORMAT == STRATA__IQ2_XS || FORMAT == STRATA__IQ2_S) {
        uint32_t scales = staged_u8(block + (FORMAT == STRATA__IQ2_XS ? 66 : 74) + step);
        float d = staged_half(block) * 0.25f;
        t.w[0] = d * (0.5f + (float)(scales & 15));
        t.w[PARTS - 1] = d * (0.5f + (float)(scales >> 4));
    } else if constexpr (FORMAT == STRATA__IQ2_XXS || FORMAT == STRATA__IQ3_XXS) {
        constexpr bool TWO = FORMAT == STRATA__IQ2_XXS;
        uint32_t scale = staged_u8(block + (TWO ? 9 + 8 * step : 69 + 4 * step)) >> 4;
        t.w[0] = staged_half(block) * (0.5f + (float)scale) * (TWO ? 0.25f : 0.5f);
    } else if constexpr (FORMAT == STRATA__IQ3_S) {
        uint32_t scale = staged_u8(block + 106 + step / 2) >> 4 * (step % 2) & 15;
        t.w[0] = staged_half(block) * (float)(1 + 2 * scale);
    } else if constexpr (FORMAT == STRATA__IQ1_S) {
        uint32_t word = staged_u16(block + 34 + 2 * step);
        t.w[0] = staged_half(block) * (float)(2 * (word >> 12 & 7) + 1) * 0.125f;
    } else if constexpr (FORMAT == STRATA__IQ1_M) {
        uint32_t w0 = staged_u16(block + 48), w1 = staged_u16(block + 50);
        uint32_t w2 = staged_u16(block + 52), w3 = staged_u16(block + 54);
        float d = iq1_m_scale(w0, w1, w2, w3);
        uint32_t word = staged_u16(block + 48 + 2 * (step / 2)) >> 6 * (step % 2);
        d *= 0.125f;
        t.w[0] = d * (float)(2 * (word & 7) + 1);
        t.w[PARTS - 1] = d * (float)(2 * (word >> 3 & 7) + 1);
    } else {
        uint32_t low = staged_u8(block + 4 + step / 2) >> 4 * (step % 2) & 15;
        uint32_t high = staged_u16(block + 2) >> 2 * step & 3;
        t.w[0] = staged_half(block) * (float)((int)(low | high << 4) - 32);
    }
}

/*
 * Scales and offsets of steps first ... first + 3 of what lies at `row`; `first` is 0 or 4 where
 * blocks are of 256 values.
 */
template <int FORMAT> struct int8_scales {
    const uint8_t *row;
    uint32_t first;

    __device__ __forceinline__ int8_scales(const uint8_t *at, uint32_t step) : row(at), first(step)
    {
    }

    __device__ __forceinline__ int8_terms<FORMAT> of(uint32_t k) const
    {
        constexpr uint32_t VALUES = block_shape<FORMAT>::VALUES;
        uint32_t step = first + k;
        int8_terms<FORMAT> t = {};
        if constexpr (VALUES < 256)
            small_terms<FORMAT>(row + step * 32 / VALUES * block_shape<FORMAT>::BYTES, t);
        else if constexpr (FORMAT == STRATA__Q2_K || FORMAT == STRATA__Q3_K ||
                           FORMAT == STRATA__Q6_K)
            k_terms<FORMAT>(row, step, t);
        else
            iq_terms<FORMAT>(row, step, t);
        return t;
    }
};

/* Those of Q4_K and Q5_K, whose blocks begin at multiples of 16: a byte of a word each. */
template <int FORMAT> struct int8_paired_scales {
    uint32_t both, scales, minima;

    __device__ __forceinline__ int8_paired_scales(const uint8_t *row, uint32_t first)
    {
        uint4 head = *reinterpret_cast<const uint4 *>(row);
        both = head.x;
        scales = head.y & 0x3f3f3f3fu;
        minima = head.z & 0x3f3f3f3fu;
        if (first) { /* in two pieces */
            scales = (head.w & 0x0f0f0f0fu) | (head.y >> 2 & 0x30303030u);
            minima = (head.w >> 4 & 0x0f0f0f0fu) | (head.z >> 2 & 0x30303030u);
        }
    }

    __device__ __forceinline__ int8_terms<FORMAT> of(uint32_t k) const
    {
        float scale = (float)(scales >> 8 * k & 255), minimum = (float)(minima >> 8 * k & 255);
        return {{float_of_half(both & 0xffff) * scale}, {-(float_of_half(both >> 16) * minimum)}};
    }
};

template <> struct int8_scales<STRATA__Q4_K> : int8_paired_scales<STRATA__Q4_K> {
    using int8_paired_scales::int8_paired_scales;
};

template <> struct int8_scales<STRATA__Q5_K> : int8_paired_scales<STRATA__Q5_K> {
    using int8_paired_scales::int8_paired_scales;
};

#endif
