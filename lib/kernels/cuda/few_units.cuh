/* SPDX-License-Identifier: MIT */
/*
 * Weights as tensor cores take them without rounding: eight consecutive values of a block in shared
 * memory become halves that stand for code * sub-scale, both small integers, so that the product is
 * exact; the block's own scale is applied to the sums. value = scale * (unit [+ low]) + minimum *
 * minimum unit. Every format has such a form but F32 and BF16.
 */
#ifndef STRATA_KERNELS_CUDA_FEW_UNITS_CUH
#define STRATA_KERNELS_CUDA_FEW_UNITS_CUH

#include "kernels/cuda/codebooks.cuh"
#include "kernels/cuda/decode.cuh"
#include "kernels/cuda/shared.cuh"

/* Formats of this kind, once each. */
#define STRATA__FOR_EACH_UNIT_FORMAT(X)                                                            \
    X(STRATA__F16)                                                                                 \
    STRATA__FOR_EACH_BLOCK_FORMAT(X)

/* Halves in pairs: value 2 i of eight is the low half of word i. */
struct unit8 {
    uint32_t value[4];
    uint32_t low[4];  /* formats with HAS_LOW: added to value */
    uint32_t minimum; /* formats with HAS_MINIMUM: the same half twice */
};

template <int FORMAT> struct unit_form {
    static constexpr uint32_t VALUES = FORMAT == STRATA__F16 ? 256 : block_shape<FORMAT>::VALUES;
    /* Steps of 32 values that one scale serves. */
    static constexpr uint32_t SCALE_STEPS = FORMAT == STRATA__IQ4_XS ? 1 : VALUES / 32;
    /* Units that are a code of the codebook and a sign: see signed_units(). */
    static constexpr bool SIGNED = FORMAT == STRATA__IQ2_XXS || FORMAT == STRATA__IQ2_XS ||
                                   FORMAT == STRATA__IQ2_S || FORMAT == STRATA__IQ3_XXS ||
                                   FORMAT == STRATA__IQ3_S;
    /* Steps that give a lane values which lie side by side, with one sub-scale. */
    static constexpr uint32_t RUN =
        VALUES < 256 || SCALE_STEPS < 8 || FORMAT == STRATA__F16                            ? 1
        : FORMAT == STRATA__IQ2_XXS || FORMAT == STRATA__IQ3_XXS || FORMAT == STRATA__IQ3_S ? 4
                                                                                            : 2;
    static constexpr bool HAS_LOW = FORMAT == STRATA__Q6_K;
    static constexpr bool HAS_MINIMUM = int8_sum_of<FORMAT>::OFFSETS;
};

/* Loads from shared memory; words at any address. */
static __device__ __forceinline__ uint32_t staged_u8(const uint8_t *p)
{
    return *p;
}

static __device__ __forceinline__ uint32_t staged_u16(const uint8_t *p)
{
    return *reinterpret_cast<const uint16_t *>(p);
}

static __device__ __forceinline__ uint32_t staged_u32(const uint8_t *p)
{
    return staged_u16(p) | staged_u16(p + 2) << 16;
}

static __device__ __forceinline__ float staged_half(const uint8_t *p)
{
    return float_of_half(staged_u16(p));
}

/* Words at anchor + offset, a multiple of four, so that steps share what depends on the anchor. */
template <int COUNT>
static __device__ __forceinline__ void staged_words(const uint8_t *anchor, uint32_t offset,
                                                    uint32_t (&words)[COUNT])
{
    uint32_t misplaced = (uint32_t) reinterpret_cast<uintptr_t>(anchor) & 3, shift = misplaced * 8;
    const uint32_t *from = reinterpret_cast<const uint32_t *>(anchor - misplaced + offset);
    uint32_t last = from[0];
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        uint32_t next = from[i + 1];
        words[i] = __funnelshift_r(last, next, shift);
        last = next;
    }
}

static __device__ __forceinline__ code8 staged_code8(const uint8_t *anchor, uint32_t offset)
{
    uint32_t words[2];
    staged_words<2>(anchor, offset, words);
    return {words[0], words[1]};
}

static __device__ __forceinline__ uint32_t subtract_halves(uint32_t a, uint32_t b)
{
    __half2 c = __hsub2(*reinterpret_cast<__half2 *>(&a), *reinterpret_cast<__half2 *>(&b));
    return *reinterpret_cast<uint32_t *>(&c);
}

static __device__ __forceinline__ uint32_t multiply_halves(uint32_t a, uint32_t b)
{
    __half2 c = __hmul2(*reinterpret_cast<__half2 *>(&a), *reinterpret_cast<__half2 *>(&b));
    return *reinterpret_cast<uint32_t *>(&c);
}

static __device__ __forceinline__ uint32_t multiply_add_halves(uint32_t a, uint32_t b, uint32_t c)
{
    __half2 d = __hfma2(*reinterpret_cast<__half2 *>(&a), *reinterpret_cast<__half2 *>(&b),
                        *reinterpret_cast<__half2 *>(&c));
    return *reinterpret_cast<uint32_t *>(&d);
}

/* The half of an integer below 1024, twice. */
static __device__ __forceinline__ uint32_t twice(uint32_t integer)
{
    return subtract_halves(integer * 0x10001u + 0x64006400u, 0x64006400u);
}

/* Bytes less `bias`: 0x6400 | byte is the half 1024 + byte. */
static __device__ __forceinline__ void code_units(code8 codes, uint32_t bias, uint32_t (&v)[4])
{
    uint32_t shift = (0x6400u + bias) * 0x10001u;
    v[0] = subtract_halves(__byte_perm(codes.low, 0x64646464u, 0x4140), shift);
    v[1] = subtract_halves(__byte_perm(codes.low, 0x64646464u, 0x4342), shift);
    v[2] = subtract_halves(__byte_perm(codes.high, 0x64646464u, 0x4140), shift);
    v[3] = subtract_halves(__byte_perm(codes.high, 0x64646464u, 0x4342), shift);
}

/* 2 n + 1, twice: 2 (1024 + n) - 2047, of which only the result is rounded. */
static __device__ __forceinline__ uint32_t twice_odd(uint32_t n)
{
    return multiply_add_halves(n * 0x10001u + 0x64006400u, 0x40004000u, 0xe7ffe7ffu);
}

/* Bytes times a factor of at most 63: factor (1024 + byte) - 1024 factor, exact alike. */
static __device__ __forceinline__ void scaled_units(code8 codes, uint32_t factor, uint32_t (&v)[4])
{
    uint32_t less = multiply_halves(factor, 0xe400e400u);
    v[0] = multiply_add_halves(__byte_perm(codes.low, 0x64646464u, 0x4140), factor, less);
    v[1] = multiply_add_halves(__byte_perm(codes.low, 0x64646464u, 0x4342), factor, less);
    v[2] = multiply_add_halves(__byte_perm(codes.high, 0x64646464u, 0x4140), factor, less);
    v[3] = multiply_add_halves(__byte_perm(codes.high, 0x64646464u, 0x4342), factor, less);
}

/* Signs of eight values as top bits of bytes: those of a 7-bit index, whose parity is the last. */
static __device__ __forceinline__ code8 signs_of_index(uint32_t index)
{
    return {index * 0x10204080u & 0x80808080u,
            (index * 0x00020408u & 0x00808080u) | (uint32_t)__popc(index) << 31};
}

static __device__ __forceinline__ code8 signs_of_byte(uint32_t signs)
{
    return {(signs & 15) * 0x10204080u & 0x80808080u, (signs >> 4) * 0x10204080u & 0x80808080u};
}

/*
 * Codes below 128 with their signs. A code alone is the bits of the half code * 2^-24, which is
 * below half's normal range and exact.
 */
constexpr float SIGNED_UNIT = 16777216.0f;

static __device__ __forceinline__ void signed_units(code8 codes, code8 signs, uint32_t (&v)[4])
{
    v[0] = __byte_perm(codes.low, signs.low, 0x5140);
    v[1] = __byte_perm(codes.low, signs.low, 0x7362);
    v[2] = __byte_perm(codes.high, signs.high, 0x5140);
    v[3] = __byte_perm(codes.high, signs.high, 0x7362);
}

/* Times a factor; exact below 2048. */
static __device__ __forceinline__ void multiply_all(uint32_t (&v)[4], uint32_t factor)
{
#pragma unroll
    for (int i = 0; i < 4; i++)
        v[i] = multiply_halves(v[i], factor);
}

/* __byte_perm of the bytes of `values`, without masking nibbles that are below 8 anyway. */
static __device__ __forceinline__ uint32_t select_bytes(uint32_t values, uint32_t selector)
{
    uint32_t bytes;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(values), "r"(0), "r"(selector));
    return bytes;
}

/* A word of a table in shared memory; one instruction each for address and load. */
static __device__ __forceinline__ uint32_t staged_point(uint32_t table, uint32_t index)
{
    uint32_t address, point;
    asm("mad.lo.u32 %0, %1, %2, %3;" : "=r"(address) : "r"(index), "r"(4), "r"(table));
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(point) : "r"(address));
    return point;
}

/*
 * What a block of threads keeps near for a format: its codebook, as it is or with a point of eight
 * values in a word, where these are one of three: such words are read from fewer banks.
 */
template <int FORMAT> struct unit_books {
    static constexpr bool TERNARY = FORMAT == STRATA__IQ1_S || FORMAT == STRATA__IQ1_M;
    static constexpr bool POINTS =
        TERNARY || FORMAT == STRATA__IQ2_XXS || FORMAT == STRATA__IQ2_XS || FORMAT == STRATA__IQ2_S;
    static constexpr uint32_t COUNT = POINTS ? codebook<FORMAT>::BYTES / 8 : 1;
    uint4 grid[POINTS ? 1 : codebook<FORMAT>::WORDS];
    uint32_t points[COUNT];

    /* All threads of the block; the next barrier ends it. */
    __device__ __forceinline__ void load()
    {
        if constexpr (POINTS) {
            const uint2 *from = static_cast<const uint2 *>(codebook<FORMAT>::source());
            for (uint32_t i = threadIdx.x; i < COUNT; i += blockDim.x)
                points[i] = point_of(__ldg(from + i));
        } else if constexpr (codebook<FORMAT>::BYTES != 0) {
            const uint4 *from = static_cast<const uint4 *>(codebook<FORMAT>::source());
            for (uint32_t i = threadIdx.x; i < codebook<FORMAT>::WORDS; i += blockDim.x)
                grid[i] = __ldg(from + i);
        }
    }

    /* Places in `values`, a nibble each: of 8, 25 and 43, or of 0, 1 and (at 3) -1. */
    static __device__ __forceinline__ uint32_t point_of(uint2 bytes)
    {
        uint32_t low = bytes.x >> (TERNARY ? 0 : 4) & 0x03030303u;
        uint32_t high = bytes.y >> (TERNARY ? 0 : 4) & 0x03030303u;
        return __byte_perm(low | low >> 4, high | high >> 4, 0x6420);
    }

    __device__ __forceinline__ code8 look_up(uint32_t index, uint32_t values) const
    {
        uint32_t point = staged_point(shared_address(points), index);
        return {select_bytes(values, point), select_bytes(values, point >> 16)};
    }
};

constexpr uint32_t IQ2_VALUES = 0x002b1908;

/* Codes of formats with 32 values a block and those of Q2_0. */
template <int FORMAT>
static __device__ __forceinline__ void small_block_units(const uint8_t *row, uint32_t step,
                                                         uint32_t c, unit8 &u)
{
    constexpr uint32_t BYTES = block_shape<FORMAT>::BYTES;
    /* Blocks of an even step lie a multiple of four bytes apart, and those of an odd one. */
    const uint8_t *anchor = row + step % 2 * BYTES;
    uint32_t offset = (step - step % 2) * BYTES;
    if constexpr (FORMAT == STRATA__Q8_0) {
        code8 codes = staged_code8(anchor + 2 + 8 * c, offset);
        code_units({codes.low ^ 0x80808080u, codes.high ^ 0x80808080u}, 128, u.value);
    } else if constexpr (FORMAT == STRATA__Q2_0) {
        uint32_t word = staged_u16(row + step / 2 * BYTES + 2 + 2 * (step % 2 * 4 + c));
        code_units({spread_pairs(word), spread_pairs(word >> 8)}, 1, u.value);
    } else {
        constexpr bool OFFSET = FORMAT == STRATA__Q4_1 || FORMAT == STRATA__Q5_1;
        constexpr bool FIFTH = FORMAT == STRATA__Q5_0 || FORMAT == STRATA__Q5_1;
        constexpr bool TABLE = FORMAT == STRATA__IQ4_NL || FORMAT == STRATA__MXFP4;
        constexpr uint32_t MASK_AT = FORMAT == STRATA__MXFP4 ? 1 : OFFSET ? 4 : 2;
        constexpr uint32_t CODES_AT = MASK_AT + (FIFTH ? 4 : 0);
        if (FORMAT == STRATA__MXFP4) {
            anchor = row + step * BYTES;
            offset = 0;
        }
        code8 codes = nibbles_of(staged_code8(anchor + CODES_AT + 8 * (c & 1), offset), c >> 1);
        if (FIFTH) {
            uint32_t mask = staged_u8(anchor + offset + MASK_AT + c);
            codes.low |= spread_fifth_bits(mask);
            codes.high |= spread_fifth_bits(mask >> 4);
        }
        if (FORMAT == STRATA__IQ4_NL)
            codes = look_up_iq4(codes);
        if (FORMAT == STRATA__MXFP4)
            codes = look_up_mxfp4(codes);
        code_units(codes, TABLE ? 128 : OFFSET ? 0 : FIFTH ? 16 : 8, u.value);
        if (OFFSET)
            u.minimum = 0x3c003c00u;
    }
}

/* 6-bit scale and minimum of group `g` of Q4_K and Q5_K. */
static __device__ __forceinline__ void staged_scale_minimum(const uint8_t *packed, uint32_t g,
                                                            uint32_t *scale, uint32_t *minimum)
{
    if (g < 4) {
        *scale = staged_u8(packed + g) & 63;
        *minimum = staged_u8(packed + 4 + g) & 63;
    } else {
        uint32_t both = staged_u8(packed + 4 + g);
        *scale = (both & 15) | (staged_u8(packed + g - 4) >> 2 & 0x30);
        *minimum = both >> 4 | (staged_u8(packed + g) >> 2 & 0x30);
    }
}

/* The K formats: 256 values, part 0 to 31. */
template <int FORMAT>
static __device__ __forceinline__ void k_units(const uint8_t *block, uint32_t part, unit8 &u)
{
    if constexpr (FORMAT == STRATA__Q2_K) {
        uint32_t packed_at = 16 + 32 * (part / 16) + 8 * (part % 4);
        uint32_t scale = staged_u8(block + part / 2);
        scaled_units(pairs_of(staged_code8(block, packed_at), 2 * (part % 16 / 4)),
                     twice(scale & 15), u.value);
        u.minimum = twice(scale >> 4);
    } else if constexpr (FORMAT == STRATA__Q3_K) {
        uint32_t j = part / 4, i = 8 * (part % 4), g = part / 2;
        code8 codes = pairs_of(staged_code8(block, 32 + 32 * (j / 4) + i), 2 * (j % 4));
        uint32_t low = staged_u8(block + 96 + g % 8) >> 4 * (g / 8) & 15;
        uint32_t high = staged_u8(block + 104 + g % 4) >> 2 * (g / 4) & 3;
        code_units(join(codes, bits_of(staged_code8(block, i), j, 2)), 4, u.value);
        uint32_t both = subtract_halves((low | high << 4) * 0x10001u | 0x64006400u, 0x64206420u);
        multiply_all(u.value, both);
    } else if constexpr (FORMAT == STRATA__Q6_K) {
        /* 8 * (code / 8) and code % 8 apart, so that both products are exact. */
        uint32_t half = part / 16, j = part % 16 / 4, i = 8 * (part % 4);
        code8 low = nibbles_of(staged_code8(block, 64 * half + 32 * (j % 2) + i), j / 2);
        code8 high = pairs_of(staged_code8(block, 128 + 32 * half + i), 2 * j);
        code8 codes = join(low, {high.low << 4, high.high << 4});
        code_units({codes.low & 0x38383838u, codes.high & 0x38383838u}, 32, u.value);
        code_units({codes.low & 0x07070707u, codes.high & 0x07070707u}, 0, u.low);
        uint32_t scale = staged_u8(block + 192 + part / 2) ^ 0x80u;
        uint32_t both = subtract_halves(scale * 0x10001u | 0x64006400u, 0x64806480u);
        multiply_all(u.value, both);
        multiply_all(u.low, both);
    } else {
        constexpr uint32_t CODES_AT = FORMAT == STRATA__Q4_K ? 16 : 48;
        uint32_t at = CODES_AT + 32 * (part / 8) + 8 * (part % 4), scale, minimum;
        code8 codes = nibbles_of(staged_code8(block, at), part / 4 & 1);
        if (FORMAT == STRATA__Q5_K)
            codes = join(codes, bits_of(staged_code8(block, 16 + 8 * (part % 4)), part / 4, 4));
        staged_scale_minimum(block + 4, part / 4, &scale, &minimum);
        scaled_units(codes, twice(scale), u.value);
        u.minimum = twice(minimum);
    }
}

/* The IQ formats with signs, without their sub-scales; part 0 to 31 of 256 values. */
template <int FORMAT>
static __device__ __forceinline__ void
point_units(const uint8_t *block, uint32_t part, const unit_books<FORMAT> &books, uint32_t (&v)[4])
{
    if constexpr (FORMAT == STRATA__IQ2_XXS) {
        uint32_t word = staged_u32(block + 2 + 8 * (part / 4) + 4);
        uint32_t index = staged_u8(block + 2 + 8 * (part / 4) + part % 4);
        signed_units(books.look_up(index, IQ2_VALUES), signs_of_index(word >> 7 * (part % 4) & 127),
                     v);
    } else if constexpr (FORMAT == STRATA__IQ2_XS) {
        uint32_t word = staged_u16(block + 2 + 2 * part);
        signed_units(books.look_up(word & 511, IQ2_VALUES), signs_of_index(word >> 9), v);
    } else if constexpr (FORMAT == STRATA__IQ2_S) {
        uint32_t high = staged_u8(block + 66 + part / 4) >> 2 * (part % 4) & 3;
        signed_units(books.look_up(staged_u8(block + 2 + part) | high << 8, IQ2_VALUES),
                     signs_of_byte(staged_u8(block + 34 + part)), v);
    } else if constexpr (FORMAT == STRATA__IQ3_XXS) {
        uint32_t indices = staged_u16(block + 2 + 2 * part);
        uint32_t word = staged_u32(block + 66 + 4 * (part / 4));
        signed_units(grid4(books.grid, indices & 255, indices >> 8),
                     signs_of_index(word >> 7 * (part % 4) & 127), v);
    } else {
        uint32_t indices = staged_u16(block + 2 + 2 * part);
        uint32_t high = staged_u8(block + 66 + part / 4) >> 2 * (part % 4);
        signed_units(
            grid4(books.grid, (indices & 255) | (high & 1) << 8, indices >> 8 | (high & 2) << 7),
            signs_of_byte(staged_u8(block + 74 + part)), v);
    }
}

/* A byte that has the sub-scale of a part of these formats, in its low or (`high`) high nibble. */
template <int FORMAT>
static __device__ __forceinline__ uint32_t scale_byte(const uint8_t *block, uint32_t part,
                                                      bool &high)
{
    if constexpr (FORMAT == STRATA__IQ2_XS || FORMAT == STRATA__IQ2_S) {
        high = part / 2 % 2;
        return staged_u8(block + (FORMAT == STRATA__IQ2_XS ? 66 : 74) + part / 4);
    } else if constexpr (FORMAT == STRATA__IQ3_S) {
        high = part / 4 % 2;
        return staged_u8(block + 106 + part / 8);
    } else {
        high = true;
        return FORMAT == STRATA__IQ2_XXS ? staged_u8(block + 2 + 8 * (part / 4) + 7)
                                         : staged_u8(block + 66 + 4 * (part / 4) + 3);
    }
}

/*
 * The sub-scale 2 n + 1 over SIGNED_UNIT, of a nibble of a byte: as the bits of a float the byte is
 * n * 2^-149 or 16 n * 2^-149, below float's normal range and exact.
 */
static __device__ __forceinline__ float scale_of_low(uint32_t byte)
{
    return fmaf(__uint_as_float(byte & 15), 0x1p126f, 1.0f / SIGNED_UNIT);
}

static __device__ __forceinline__ float scale_of_high(uint32_t byte)
{
    return fmaf(__uint_as_float(byte & 0xf0), 0x1p122f, 1.0f / SIGNED_UNIT);
}

/* The same of part `even`, a multiple of 2 RUN, and of the part RUN behind it. */
template <int FORMAT>
static __device__ __forceinline__ float2 scales_of_parts(const uint8_t *block, uint32_t even)
{
    constexpr bool NIBBLES =
        FORMAT == STRATA__IQ2_XS || FORMAT == STRATA__IQ2_S || FORMAT == STRATA__IQ3_S;
    bool high;
    uint32_t first = scale_byte<FORMAT>(block, even, high);
    if (NIBBLES)
        return {scale_of_low(first), scale_of_high(first)};
    uint32_t odd = even + unit_form<FORMAT>::RUN;
    uint32_t second = scale_byte<FORMAT>(block, odd, high);
    return {scale_of_high(first), scale_of_high(second)};
}

/* The IQ formats of 256 values, part 0 to 31. */
template <int FORMAT>
static __device__ __forceinline__ void iq_units(const uint8_t *block, uint32_t part,
                                                const unit_books<FORMAT> &books, unit8 &u)
{
    if constexpr (unit_form<FORMAT>::SIGNED) {
        bool high;
        uint32_t byte = scale_byte<FORMAT>(block, part, high);
        point_units<FORMAT>(block, part, books, u.value);
        multiply_all(u.value, twice_odd(byte >> (high ? 4 : 0) & 15));
    } else if constexpr (FORMAT == STRATA__IQ4_XS) {
        code8 packed = staged_code8(block, 8 + 16 * (part / 4) + 8 * (part & 1));
        code_units(look_up_iq4(nibbles_of(packed, part >> 1 & 1)), 128, u.value);
    } else {
        /* In eighths points and shift are 8 g + 1 or 8 g - 1; looked up is that and 9. */
        uint32_t index, scale, negative;
        if constexpr (FORMAT == STRATA__IQ1_S) {
            uint32_t word = staged_u16(block + 34 + 2 * (part / 4));
            index = staged_u8(block + 2 + part) | (word >> 3 * (part % 4) & 7) << 8;
            scale = word >> 12 & 7;
            negative = word >> 15;
        } else {
            uint32_t g = part / 2, word = staged_u16(block + 48 + 2 * (g / 4));
            uint32_t nibble = staged_u8(block + 32 + g) >> 4 * (part % 2) & 15;
            index = staged_u8(block + part) | (nibble & 7) << 8;
            scale = word >> 3 * (g % 4) & 7;
            negative = nibble >> 3;
        }
        code_units(books.look_up(index, negative ? 0x00001008u : 0x0200120au), 9, u.value);
        uint32_t both = twice_odd(scale);
        multiply_all(u.value, both);
    }
}

/* Which eight values of a slice lane c of four has in a step. */
template <int FORMAT>
static __device__ __forceinline__ uint32_t unit_place(uint32_t step, uint32_t c)
{
    constexpr uint32_t RUN = unit_form<FORMAT>::RUN;
    return 4 * RUN * (step / RUN) + RUN * c + step % RUN;
}

/* Lane c's values of step `step` (32 values) of a row's slice in shared memory. */
template <int FORMAT>
static __device__ __forceinline__ void unit_values(const uint8_t *row, uint32_t step, uint32_t c,
                                                   const unit_books<FORMAT> &books, unit8 &u)
{
    constexpr uint32_t VALUES = block_shape<FORMAT>::VALUES;
    (void)books;
    if constexpr (FORMAT == STRATA__F16)
        staged_words<4>(row + 16 * c, 64 * step, u.value);
    else if constexpr (VALUES < 256)
        small_block_units<FORMAT>(row, step, c, u);
    else if constexpr (FORMAT == STRATA__Q2_K || FORMAT == STRATA__Q3_K || FORMAT == STRATA__Q4_K ||
                       FORMAT == STRATA__Q5_K || FORMAT == STRATA__Q6_K)
        k_units<FORMAT>(row, unit_place<FORMAT>(step, c), u);
    else
        iq_units<FORMAT>(row, unit_place<FORMAT>(step, c), books, u);
}

/* The scale of the values of a step. */
template <int FORMAT>
static __device__ __forceinline__ float unit_scale(const uint8_t *row, uint32_t step)
{
    constexpr uint32_t VALUES = unit_form<FORMAT>::VALUES, BYTES = block_shape<FORMAT>::BYTES;
    const uint8_t *block = VALUES < 256 ? row + step / (VALUES / 32) * BYTES : row;
    if constexpr (FORMAT == STRATA__F16) {
        return 1.0f;
    } else if constexpr (FORMAT == STRATA__MXFP4) {
        return mxfp4_scale(staged_u8(block));
    } else if constexpr (FORMAT == STRATA__IQ4_XS) {
        uint32_t low = staged_u8(block + 4 + step / 2) >> 4 * (step % 2) & 15;
        uint32_t high = staged_u16(block + 2) >> 2 * step & 3;
        return staged_half(block) * (float)((int)(low | high << 4) - 32);
    } else if constexpr (FORMAT == STRATA__IQ1_M) {
        uint32_t w0 = staged_u16(block + 48), w1 = staged_u16(block + 50);
        uint32_t w2 = staged_u16(block + 52), w3 = staged_u16(block + 54);
        return 0.125f * iq1_m_scale(w0, w1, w2, w3);
    } else {
        constexpr uint32_t AT = FORMAT == STRATA__Q2_K   ? 80
                                : FORMAT == STRATA__Q3_K ? 108
                                : FORMAT == STRATA__Q6_K ? 208
                                                         : 0;
        constexpr bool EIGHTH = FORMAT == STRATA__IQ2_XXS || FORMAT == STRATA__IQ2_XS ||
                                FORMAT == STRATA__IQ2_S || FORMAT == STRATA__IQ1_S;
        constexpr bool SIGNED = unit_form<FORMAT>::SIGNED;
        constexpr float PART = EIGHTH ? 0.125f : FORMAT == STRATA__IQ3_XXS ? 0.25f : 1.0f;
        return PART * (SIGNED ? SIGNED_UNIT : 1.0f) * staged_half(block + AT);
    }
}

/* What a step's minimum units are multiplied by. */
template <int FORMAT>
static __device__ __forceinline__ float unit_minimum(const uint8_t *row, uint32_t step)
{
    if constexpr (FORMAT == STRATA__Q4_1 || FORMAT == STRATA__Q5_1)
        return staged_half(row + step * block_shape<FORMAT>::BYTES + 2);
    else
        return -staged_half(row + (FORMAT == STRATA__Q2_K ? 82 : 2));
}

#endif
