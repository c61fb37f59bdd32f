/* SPDX-License-Identifier: MIT */
/* Q2_K to Q6_K: blocks of 256 values with two levels of scales. */
#ifndef STRATA_KERNELS_CPU_DECODE_K_H
#define STRATA_KERNELS_CPU_DECODE_K_H

#include "kernels/cpu/decode_common.h"

static void decode_q2_k(const uint8_t *restrict block, uint64_t blocks, float *restrict out)
{
    for (uint64_t b = 0; b < blocks; b++, block += 84, out += 256) {
        const uint8_t *scales = block, *packed = block + 16;
        float d = load_half(block + 80), d_min = load_half(block + 82);
        int8_t codes[256];
        for (int half = 0; half < 2; half++)
            for (int j = 0; j < 4; j++)
                for (int i = 0; i < 32; i++)
                    codes[128 * half + 32 * j + i] = (int8_t)(packed[32 * half + i] >> 2 * j & 3);
        for (int g = 0; g < 16; g++)
            scale_codes_offset(codes + 16 * g, 16, d * (float)(scales[g] & 15),
                               -(d_min * (float)(scales[g] >> 4)), out + 16 * g);
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
        const uint8_t *high = block, *packed = block + 32;
        float d = load_half(block + 108);
        int8_t scales[16], codes[256];
        unpack_q3_k_scales(block + 96, scales);
        for (int j = 0; j < 8; j++)
            for (int i = 0; i < 32; i++) {
                int low = packed[32 * (j / 4) + i] >> 2 * (j % 4) & 3;
                codes[32 * j + i] = (int8_t)(low - (high[i] >> j & 1 ? 0 : 4));
            }
        for (int g = 0; g < 16; g++)
            scale_codes(codes + 16 * g, 16, d * (float)scales[g], out + 16 * g);
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

/* Eight groups of 32 codes: scale * code - minimum. */
static inline void scale_groups_minimum(const uint8_t *block, const int8_t *restrict codes,
                                        float *restrict out)
{
    float d = load_half(block), d_min = load_half(block + 2);
    uint8_t scales[8], minimums[8];
    unpack_scales_minimums(block + 4, scales, minimums);
    for (int g = 0; g < 8; g++)
        scale_codes_offset(codes + 32 * g, 32, d * (float)scales[g], -(d_min * (float)minimums[g]),
                           out + 32 * g);
}

static void decode_q4_k(const uint8_t *restrict block, uint64_t blocks, float *restrict out)
{
    for (uint64_t b = 0; b < blocks; b++, block += 144, out += 256) {
        int8_t codes[256];
        for (int g = 0; g < 4; g++)
            unpack_nibbles(block + 16 + 32 * g, 32, codes + 64 * g);
        scale_groups_minimum(block, codes, out);
    }
}

static void decode_q5_k(const uint8_t *restrict block, uint64_t blocks, float *restrict out)
{
    for (uint64_t b = 0; b < blocks; b++, block += 176, out += 256) {
        const uint8_t *high = block + 16;
        int8_t codes[256];
        for (int g = 0; g < 4; g++)
            unpack_nibbles(block + 48 + 32 * g, 32, codes + 64 * g);
        for (int j = 0; j < 8; j++)
            for (int i = 0; i < 32; i++)
                codes[32 * j + i] = (int8_t)(codes[32 * j + i] | (high[i] >> j & 1) << 4);
        scale_groups_minimum(block, codes, out);
    }
}

static void decode_q6_k(const uint8_t *restrict block, uint64_t blocks, float *restrict out)
{
    for (uint64_t b = 0; b < blocks; b++, block += 210, out += 256) {
        const uint8_t *low = block, *high = block + 128;
        const int8_t *scales = (const int8_t *)(block + 192);
        float d = load_half(block + 208);
        int8_t codes[256];
        for (int half = 0; half < 2; half++)
            for (int j = 0; j < 4; j++)
                for (int i = 0; i < 32; i++) {
                    int nibble = low[64 * half + 32 * (j % 2) + i] >> 4 * (j / 2) & 15;
                    int pair = high[32 * half + i] >> 2 * j & 3;
                    codes[128 * half + 32 * j + i] = (int8_t)((nibble | pair << 4) - 32);
                }
        for (int g = 0; g < 16; g++)
            scale_codes(codes + 16 * g, 16, d * (float)scales[g], out + 16 * g);
    }
}

#endif
