/* SPDX-License-Identifier: MIT */
/* Q2_K to Q6_K: blocks of 256 values with two levels of scales. */
#ifndef STRATA_KERNELS_CPU_DECODE_K_H
#define STRATA_KERNELS_CPU_DECODE_K_H

#include "kernels/cpu/decode_put.h"

/* scale * code of sixteen int8 codes */
static inline void scale_codes(codes_16 codes, float scale, float *scales)
{
    store_scales(floats_multiply(floats_all(scale), floats_of_codes(codes)), scales);
}

/* Group g of sixteen values: bits 2 (g / 2 mod 4) of sixteen bytes of the block's half. */
static inline codes_16 two_bits(const uint8_t *packed, int g)
{
    return codes_field(codes_load(packed + 32 * (g / 8) + 16 * (g % 2)), 2 * (g / 2 % 4), 3);
}

static inline void scale_q2_k(const uint8_t *block, float *scales, float *offsets)
{
    codes_16 both = codes_load(block);
    scale_codes(codes_field(both, 0, 15), load_half(block + 80), scales);
    scale_codes(codes_field(both, 4, 15), -load_half(block + 82), offsets);
}

static DECODER void decode_q2_k(const uint8_t *block, uint64_t blocks, sink *out)
{
    for (uint64_t b = 0; b < blocks; b++, block += 84) {
        float scales[16], offsets[16];
        scale_q2_k(block, scales, offsets);
        for (int g = 0; g < 16; g += 4) {
            for (int i = 0; i < 4; i++)
                put_scaled_offset(out, 16 * i, two_bits(block + 16, g + i),
                                  floats_all(scales[g + i]), floats_all(offsets[g + i]));
            advance(out, 64);
        }
    }
}

/* The sixteen 6-bit scales, less 32: eight bytes of low nibbles, four of high bit pairs. */
static inline codes_16 q3_k_scales(const uint8_t *packed)
{
    const uint32_t first = load_u32(packed), second = load_u32(packed + 4),
                   pairs = load_u32(packed + 8);
    const uint32_t nibbles = 0x0f0f0f0f, high = 0x30303030;
    return codes_less(codes_of_u32((first & nibbles) | (pairs << 4 & high),
                                   (second & nibbles) | (pairs << 2 & high),
                                   (first >> 4 & nibbles) | (pairs & high),
                                   (second >> 4 & nibbles) | (pairs >> 2 & high)),
                      32);
}

/* Plus 4. */
static inline codes_16 three_bits(const uint8_t *block, int g)
{
    codes_16 high = codes_if_bit(codes_load(block + 16 * (g % 2)), 1 << g / 2, 4);
    return codes_or(two_bits(block + 32, g), high);
}

static DECODER void decode_q3_k(const uint8_t *block, uint64_t blocks, sink *out)
{
    for (uint64_t b = 0; b < blocks; b++, block += 110) {
        float scales[16];
        scale_codes(q3_k_scales(block + 96), load_half(block + 108), scales);
        for (int g = 0; g < 16; g += 4) {
            for (int i = 0; i < 4; i++)
                put_scaled(out, 16 * i, codes_less(three_bits(block, g + i), 4),
                           floats_all(scales[g + i]));
            advance(out, 64);
        }
    }
}

/* Eight scales, then eight negative minimums, of 6-bit codes in twelve bytes. */
static inline void scale_groups(const uint8_t *block, float *scales)
{
    const uint32_t low = load_u32(block + 4), minimums = load_u32(block + 8),
                   both = load_u32(block + 12);
    const uint32_t six = 0x3f3f3f3f, nibbles = 0x0f0f0f0f, high = 0x30303030;
    codes_16 codes = codes_of_u32(low & six, (both & nibbles) | (low >> 2 & high), minimums & six,
                                  (both >> 4 & nibbles) | (minimums >> 2 & high));
    floats_16 factors = floats_halves(load_half(block), -load_half(block + 2));
    store_scales(floats_multiply(factors, floats_of_codes(codes)), scales);
}

static DECODER void decode_q4_k(const uint8_t *block, uint64_t blocks, sink *out)
{
    for (uint64_t b = 0; b < blocks; b++, block += 144) {
        float scales[16];
        scale_groups(block, scales);
        for (int g = 0; g < 8; g += 2) {
            const uint8_t *packed = block + 16 + 16 * g;
            nibble_values low =
                nibbles_scaled_offset(floats_all(scales[g]), floats_all(scales[8 + g]));
            nibble_values high =
                nibbles_scaled_offset(floats_all(scales[g + 1]), floats_all(scales[9 + g]));
            put_nibbles(out, 0, 32, packed, low, high);
            put_nibbles(out, 16, 48, packed + 16, low, high);
            advance(out, 64);
        }
    }
}

/* Half h of group g: one nibble of sixteen bytes. */
static inline codes_16 group_nibbles(const uint8_t *packed, int g, int h)
{
    return codes_field(codes_load(packed + 32 * (g / 2) + 16 * h), 4 * (g % 2), 15);
}

static inline codes_16 group_five_bits(const uint8_t *block, int g, int h)
{
    codes_16 high = codes_if_bit(codes_load(block + 16 + 16 * h), 1 << g, 16);
    return codes_or(group_nibbles(block + 48, g, h), high);
}

static DECODER void decode_q5_k(const uint8_t *block, uint64_t blocks, sink *out)
{
    for (uint64_t b = 0; b < blocks; b++, block += 176) {
        float scales[16];
        scale_groups(block, scales);
        for (int g = 0; g < 8; g += 2) {
            for (int i = 0; i < 4; i++)
                put_scaled_offset(out, 16 * i, group_five_bits(block, g + i / 2, i % 2),
                                  floats_all(scales[g + i / 2]), floats_all(scales[8 + g + i / 2]));
            advance(out, 64);
        }
    }
}

/* Group g of sixteen: j is the group of 32 in a half of the block. */
static inline codes_16 six_bits(const uint8_t *block, int g)
{
    int half = g / 8, j = g / 2 % 4, h = g % 2;
    codes_16 low = codes_load(block + 64 * half + 32 * (j % 2) + 16 * h);
    codes_16 high = codes_load(block + 128 + 32 * half + 16 * h);
    codes_16 pair = codes_field(high, 2 * j, 3);
    codes_16 top = codes_or(codes_if_bit(pair, 1, 16), codes_if_bit(pair, 2, 32));
    return codes_less(codes_or(codes_field(low, 4 * (j / 2), 15), top), 32);
}

static DECODER void decode_q6_k(const uint8_t *block, uint64_t blocks, sink *out)
{
    for (uint64_t b = 0; b < blocks; b++, block += 210) {
        float scales[16];
        scale_codes(codes_load(block + 192), load_half(block + 208), scales);
        for (int g = 0; g < 16; g += 4) {
            for (int i = 0; i < 4; i++)
                put_scaled(out, 16 * i, six_bits(block, g + i), floats_all(scales[g + i]));
            advance(out, 64);
        }
    }
}

#endif
