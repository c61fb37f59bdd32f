/* SPDX-License-Identifier: MIT */
/* Q2_K to Q6_K: blocks of 256 values with two levels of scales. */
#ifndef STRATA_KERNELS_CPU_DECODE_K_H
#define STRATA_KERNELS_CPU_DECODE_K_H

#include "kernels/cpu/codes.h"
#include "kernels/cpu/decode_common.h"

/* Group g of sixteen values: bits 2 (g / 2 mod 4) of sixteen bytes of the block's half. */
static inline codes_16 two_bits(const uint8_t *packed, int g)
{
    return codes_field(codes_load(packed + 32 * (g / 8) + 16 * (g % 2)), 2 * (g / 2 % 4), 3);
}

static void decode_q2_k(const uint8_t *restrict block, uint64_t blocks, float *restrict out)
{
    for (uint64_t b = 0; b < blocks; b++, block += 84, out += 256) {
        float d = load_half(block + 80), d_min = load_half(block + 82);
        for (int g = 0; g < 16; g++)
            put_scaled_offset(two_bits(block + 16, g), d * (float)(block[g] & 15),
                              -(d_min * (float)(block[g] >> 4)), out + 16 * g);
    }
}

/* The sixteen 6-bit scales, less 32: eight bytes of low nibbles, four of high bit pairs. */
static inline void unpack_q3_k_scales(const uint8_t *packed, int8_t *scales)
{
    for (int i = 0; i < 16; i++) {
        int low = packed[i % 8] >> 4 * (i / 8) & 15;
        int high = packed[8 + i % 4] >> 2 * (i / 4) & 3;
        scales[i] = (int8_t)((low | high << 4) - 32);
    }
}

static void decode_q3_k(const uint8_t *restrict block, uint64_t blocks, float *restrict out)
{
    for (uint64_t b = 0; b < blocks; b++, block += 110, out += 256) {
        float d = load_half(block + 108);
        int8_t scales[16];
        unpack_q3_k_scales(block + 96, scales);
        for (int g = 0; g < 16; g++) {
            codes_16 high = codes_if_bit(codes_load(block + 16 * (g % 2)), 1 << g / 2, 4);
            codes_16 codes = codes_or(two_bits(block + 32, g), high);
            put_scaled(codes_less(codes, 4), d * (float)scales[g], out + 16 * g);
        }
    }
}

/* The eight 6-bit scales and minimums of Q4_K and Q5_K. */
static inline void unpack_scales_minimums(const uint8_t *packed, uint8_t *scales, uint8_t *minimums)
{
    for (int i = 0; i < 4; i++) {
        uint8_t s = packed[i], m = packed[4 + i], both = packed[8 + i];
        scales[i] = s & 63;
        minimums[i] = m & 63;
        scales[4 + i] = (uint8_t)((both & 15) | (s >> 2 & 0x30));
        minimums[4 + i] = (uint8_t)(both >> 4 | (m >> 2 & 0x30));
    }
}

/* Scales and negative minimums of the eight groups of 32. */
static inline void scale_groups(const uint8_t *block, float *scales, float *offsets)
{
    float d = load_half(block), d_min = load_half(block + 2);
    uint8_t codes[8], minimums[8];
    unpack_scales_minimums(block + 4, codes, minimums);
    for (int g = 0; g < 8; g++) {
        scales[g] = d * (float)codes[g];
        offsets[g] = -(d_min * (float)minimums[g]);
    }
}

/* Half h of group g: one nibble of sixteen bytes. */
static inline codes_16 group_nibbles(const uint8_t *packed, int g, int h)
{
    return codes_field(codes_load(packed + 32 * (g / 2) + 16 * h), 4 * (g % 2), 15);
}

static void decode_q4_k(const uint8_t *restrict block, uint64_t blocks, float *restrict out)
{
    for (uint64_t b = 0; b < blocks; b++, block += 144) {
        float scales[8], offsets[8];
        scale_groups(block, scales, offsets);
        for (int g = 0; g < 8; g++)
            for (int h = 0; h < 2; h++, out += 16)
                put_scaled_offset(group_nibbles(block + 16, g, h), scales[g], offsets[g], out);
    }
}

static void decode_q5_k(const uint8_t *restrict block, uint64_t blocks, float *restrict out)
{
    for (uint64_t b = 0; b < blocks; b++, block += 176) {
        float scales[8], offsets[8];
        scale_groups(block, scales, offsets);
        for (int g = 0; g < 8; g++)
            for (int h = 0; h < 2; h++, out += 16) {
                codes_16 high = codes_if_bit(codes_load(block + 16 + 16 * h), 1 << g, 16);
                codes_16 codes = codes_or(group_nibbles(block + 48, g, h), high);
                put_scaled_offset(codes, scales[g], offsets[g], out);
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
    return codes_or(codes_field(low, 4 * (j / 2), 15), top);
}

static void decode_q6_k(const uint8_t *restrict block, uint64_t blocks, float *restrict out)
{
    for (uint64_t b = 0; b < blocks; b++, block += 210, out += 256) {
        const int8_t *scales = (const int8_t *)(block + 192);
        float d = load_half(block + 208);
        for (int g = 0; g < 16; g++)
            put_scaled(codes_less(six_bits(block, g), 32), d * (float)scales[g], out + 16 * g);
    }
}

#endif
