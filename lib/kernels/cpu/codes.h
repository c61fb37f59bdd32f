/* SPDX-License-Identifier: MIT */
/*
 * Sixteen int8 codes at a time: what every decoder unpacks a block into. Written for AVX2 and
 * AVX-512, and in the compiler's own vectors for all else.
 */
#ifndef STRATA_KERNELS_CPU_CODES_H
#define STRATA_KERNELS_CPU_CODES_H

#include <stdint.h>
#include <string.h>

#include "kernels/tables/grids.h"

#if defined(__AVX2__)

#include <immintrin.h>

typedef __m128i codes_16;

static inline codes_16 codes_load(const void *p)
{
    return _mm_loadu_si128((const __m128i *)p);
}

static inline codes_16 codes_of_u64(uint64_t low, uint64_t high)
{
    return _mm_set_epi64x((long long)high, (long long)low);
}

static inline codes_16 codes_of_u32(uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    return _mm_set_epi32((int)d, (int)c, (int)b, (int)a);
}

/* (code >> shift) & mask, for masks of at most 255 >> shift */
static inline codes_16 codes_field(codes_16 x, int shift, int mask)
{
    return _mm_and_si128(_mm_srl_epi16(x, _mm_cvtsi32_si128(shift)), _mm_set1_epi8((char)mask));
}

/* `value` where code & bit, else 0 */
static inline codes_16 codes_if_bit(codes_16 x, int bit, int value)
{
    __m128i bits = _mm_set1_epi8((char)bit);
    return _mm_and_si128(_mm_cmpeq_epi8(_mm_and_si128(x, bits), bits), _mm_set1_epi8((char)value));
}

/* `value` where the bit of a word is set, else 0 */
static inline codes_16 codes_of_bits(uint32_t word, int value)
{
    const __m128i places = _mm_set_epi8(1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0);
    const __m128i bits = _mm_set1_epi64x((long long)0x8040201008040201u);
    __m128i spread = _mm_shuffle_epi8(_mm_cvtsi32_si128((int)word), places);
    return _mm_and_si128(_mm_cmpeq_epi8(_mm_and_si128(spread, bits), bits),
                         _mm_set1_epi8((char)value));
}

static inline codes_16 codes_or(codes_16 x, codes_16 y)
{
    return _mm_or_si128(x, y);
}

static inline codes_16 codes_less(codes_16 x, int value)
{
    return _mm_sub_epi8(x, _mm_set1_epi8((char)value));
}

/* code * factor, for products below 256 */
static inline codes_16 codes_times(codes_16 x, int factor)
{
    return _mm_mullo_epi16(x, _mm_set1_epi16((short)factor));
}

/* Sixteen factors of -31 to 32 as words, and 128 less four times them as two bytes each. */
typedef struct codes_factors {
    __m128i words[2], bytes[2];
} codes_factors;

static inline codes_factors codes_factors_of(codes_16 factors)
{
    const __m128i all = _mm_set1_epi16(128), twice = _mm_set1_epi16(0x101);
    codes_factors f;
    for (int i = 0; i < 2; i++) {
        f.words[i] = _mm_cvtepi8_epi16(i ? _mm_srli_si128(factors, 8) : factors);
        f.bytes[i] = _mm_mullo_epi16(_mm_sub_epi16(all, _mm_slli_epi16(f.words[i], 2)), twice);
    }
    return f;
}

/*
 * (code - 4) * factor g, for codes below 8. With 128 added no byte is negative and two of them are
 * multiplied as one word.
 */
static inline codes_16 codes_less_4_times(codes_16 x, const codes_factors *f, int g)
{
    const __m128i place = _mm_set1_epi16((short)(0x100 + g % 8 * 0x202));
    __m128i products = _mm_mullo_epi16(x, _mm_shuffle_epi8(f->words[g / 8], place));
    products = _mm_add_epi16(products, _mm_shuffle_epi8(f->bytes[g / 8], place));
    return _mm_xor_si128(products, _mm_set1_epi8((char)0x80));
}

/* -code where a bit is set, else code */
static inline codes_16 codes_negate_bits(codes_16 x, uint32_t bits)
{
#if defined(__AVX512F__)
    return _mm_mask_sub_epi8(x, (__mmask16)bits, _mm_setzero_si128(), x);
#else
    __m128i mask = codes_of_bits(bits, 255);
    return _mm_sub_epi8(_mm_xor_si128(x, mask), mask);
#endif
}

/* table[code] for codes below 16 */
static inline codes_16 codes_look_up(codes_16 x, const uint8_t *table)
{
    return _mm_shuffle_epi8(codes_load(table), x);
}

/* The low and the high nibbles of eight bytes in turn. */
static inline codes_16 codes_of_nibbles(const uint8_t *packed)
{
    __m128i bytes = _mm_loadl_epi64((const __m128i *)(const void *)packed);
    return codes_field(_mm_unpacklo_epi8(bytes, _mm_srli_epi16(bytes, 4)), 0, 15);
}

/* Two-bit fields in order: value j of the result is bits 2 (j mod 4) of byte j / 4 of a word. */
static inline codes_16 codes_of_pairs(uint32_t word)
{
    const __m128i places = _mm_set_epi8(3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0);
    const __m128i masks = _mm_set1_epi32((int)0xc0300c03);
    /*
     * multiplying by 64, 16, 4 and 1 moves the fields to the top of 8 bits; even and odd bytes
     * apart
     */
    __m128i spread = _mm_and_si128(_mm_shuffle_epi8(_mm_cvtsi32_si128((int)word), places), masks);
    __m128i even =
        _mm_mullo_epi16(_mm_and_si128(spread, _mm_set1_epi16(0x00ff)), _mm_set1_epi32(0x00040040));
    __m128i odd = _mm_mullo_epi16(_mm_srli_epi16(spread, 8), _mm_set1_epi32(0x00010010));
    even = _mm_and_si128(_mm_srli_epi16(even, 6), _mm_set1_epi16(3));
    odd = _mm_and_si128(_mm_srli_epi16(odd, 6), _mm_set1_epi16(3));
    return _mm_or_si128(even, _mm_slli_epi16(odd, 8));
}

#else

/* Vectors of the compiler: one or a few instructions each wherever there are 16-byte registers. */
typedef uint8_t codes_16 __attribute__((vector_size(16)));
typedef int8_t signed_16 __attribute__((vector_size(16)));

static inline codes_16 codes_all(int value)
{
    return (codes_16){0} + (uint8_t)value;
}

static inline codes_16 codes_load(const void *p)
{
    codes_16 y;
    memcpy(&y, p, sizeof y);
    return y;
}

static inline codes_16 codes_of_u64(uint64_t low, uint64_t high)
{
    uint64_t words[2] = {low, high};
    return codes_load(words);
}

static inline codes_16 codes_of_u32(uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    uint32_t words[4] = {a, b, c, d};
    return codes_load(words);
}

static inline codes_16 codes_field(codes_16 x, int shift, int mask)
{
    return (x >> (uint8_t)shift) & codes_all(mask);
}

static inline codes_16 codes_if_bit(codes_16 x, int bit, int value)
{
    return (codes_16)((x & codes_all(bit)) != codes_all(0)) & codes_all(value);
}

static inline codes_16 codes_of_bits(uint32_t word, int value)
{
    const codes_16 bits = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    uint64_t low = (word & 255) * 0x0101010101010101u;
    uint64_t high = (word >> 8 & 255) * 0x0101010101010101u;
    return (codes_16)((codes_of_u64(low, high) & bits) != codes_all(0)) & codes_all(value);
}

static inline codes_16 codes_or(codes_16 x, codes_16 y)
{
    return x | y;
}

static inline codes_16 codes_less(codes_16 x, int value)
{
    return x - codes_all(value);
}

static inline codes_16 codes_times(codes_16 x, int factor)
{
    return x * codes_all(factor);
}

typedef struct codes_factors {
    uint8_t factors[16];
} codes_factors;

static inline codes_factors codes_factors_of(codes_16 factors)
{
    codes_factors f;
    memcpy(f.factors, &factors, sizeof factors);
    return f;
}

static inline codes_16 codes_less_4_times(codes_16 x, const codes_factors *f, int g)
{
    return (x - codes_all(4)) * codes_all(f->factors[g]);
}

static inline codes_16 codes_negate_bits(codes_16 x, uint32_t bits)
{
    codes_16 mask =
        codes_of_u64(strata__sign_masks[bits & 255], strata__sign_masks[bits >> 8 & 255]);
    return (x ^ mask) - mask;
}

static inline codes_16 codes_of_nibbles(const uint8_t *packed)
{
    uint8_t codes[16];
    for (int i = 0; i < 16; i++)
        codes[i] = packed[i / 2] >> 4 * (i % 2) & 15;
    return codes_load(codes);
}

static inline codes_16 codes_look_up(codes_16 x, const uint8_t *table)
{
    uint8_t codes[16];
    memcpy(codes, &x, sizeof codes);
    for (int i = 0; i < 16; i++)
        codes[i] = table[codes[i]];
    return codes_load(codes);
}

static inline codes_16 codes_of_pairs(uint32_t word)
{
    uint8_t codes[16];
    for (int i = 0; i < 16; i++)
        codes[i] = (uint8_t)(word >> 2 * i & 3);
    return codes_load(codes);
}

#endif

static inline void codes_store(codes_16 x, int8_t *out)
{
    memcpy(out, &x, sizeof x);
}

#endif
