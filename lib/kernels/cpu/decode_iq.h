/* SPDX-License-Identifier: MIT */
/* IQ1 to IQ4_XS: blocks of 256 values from codebooks. */
#ifndef STRATA_KERNELS_CPU_DECODE_IQ_H
#define STRATA_KERNELS_CPU_DECODE_IQ_H

#include "kernels/cpu/codes.h"
#include "kernels/cpu/decode_common.h"
#include "kernels/cpu/decode_simple.h"
#include "kernels/tables/grids.h"

/* Sign mask of eight values from a 7-bit index in the low bits of a word. */
static inline uint64_t sign_mask_7(uint32_t word)
{
    return strata__sign_masks[strata__sign_bytes[word & 127]];
}

/* Sixteen values: two grid points of eight and their sign masks. */
static inline void put_two_points(uint64_t first, uint64_t second, uint64_t first_mask,
                                  uint64_t second_mask, float scale, float *out)
{
    put_scaled(codes_negate(codes_of_u64(first, second), codes_of_u64(first_mask, second_mask)),
               scale, out);
}

static void decode_iq2_xxs(const uint8_t *restrict block, uint64_t blocks, float *restrict out)
{
    const uint64_t *grid = strata__grid_iq2_xxs;
    for (uint64_t b = 0; b < blocks; b++, block += 66) {
        float d = load_half(block);
        for (int g = 0; g < 8; g++, out += 32) {
            const uint8_t *i = block + 2 + 8 * g;
            uint32_t signs = load_u32(i + 4);
            float scale = d * (0.5f + (float)(signs >> 28)) * 0.25f;
            put_two_points(grid[i[0]], grid[i[1]], sign_mask_7(signs), sign_mask_7(signs >> 7),
                           scale, out);
            put_two_points(grid[i[2]], grid[i[3]], sign_mask_7(signs >> 14),
                           sign_mask_7(signs >> 21), scale, out + 16);
        }
    }
}

static void decode_iq2_xs(const uint8_t *restrict block, uint64_t blocks, float *restrict out)
{
    const uint64_t *grid = strata__grid_iq2_xs;
    for (uint64_t b = 0; b < blocks; b++, block += 74) {
        float d = load_half(block);
        for (int g = 0; g < 16; g++, out += 16) {
            uint32_t word = load_u32(block + 2 + 4 * g);
            int scale = block[66 + g / 2] >> 4 * (g % 2) & 15;
            put_two_points(grid[word & 511], grid[word >> 16 & 511], sign_mask_7(word >> 9),
                           sign_mask_7(word >> 25), d * (0.5f + (float)scale) * 0.25f, out);
        }
    }
}

static void decode_iq2_s(const uint8_t *restrict block, uint64_t blocks, float *restrict out)
{
    const uint64_t *grid = strata__grid_iq2_s;
    for (uint64_t b = 0; b < blocks; b++, block += 82) {
        float d = load_half(block);
        for (int g = 0; g < 16; g++, out += 16) {
            const uint8_t *low = block + 2 + 2 * g, *signs = block + 34 + 2 * g;
            int high = block[66 + g / 2] >> 4 * (g % 2);
            int scale = block[74 + g / 2] >> 4 * (g % 2) & 15;
            put_two_points(grid[low[0] | (high & 3) << 8], grid[low[1] | (high >> 2 & 3) << 8],
                           strata__sign_masks[signs[0]], strata__sign_masks[signs[1]],
                           d * (0.5f + (float)scale) * 0.25f, out);
        }
    }
}

static void decode_iq3_xxs(const uint8_t *restrict block, uint64_t blocks, float *restrict out)
{
    const uint32_t *grid = strata__grid_iq3_xxs;
    for (uint64_t b = 0; b < blocks; b++, block += 98) {
        float d = load_half(block);
        for (int g = 0; g < 16; g++, out += 16) {
            const uint8_t *i = block + 2 + 4 * g;
            uint32_t word = load_u32(block + 66 + 4 * (g / 2)), signs = word >> 14 * (g % 2);
            codes_16 codes = codes_of_u32(grid[i[0]], grid[i[1]], grid[i[2]], grid[i[3]]);
            codes_16 masks = codes_of_u64(sign_mask_7(signs), sign_mask_7(signs >> 7));
            put_scaled(codes_negate(codes, masks), d * (0.5f + (float)(word >> 28)) * 0.5f, out);
        }
    }
}

static void decode_iq3_s(const uint8_t *restrict block, uint64_t blocks, float *restrict out)
{
    const uint32_t *grid = strata__grid_iq3_s;
    for (uint64_t b = 0; b < blocks; b++, block += 110) {
        float d = load_half(block);
        for (int g = 0; g < 16; g++, out += 16) {
            const uint8_t *i = block + 2 + 4 * g, *signs = block + 74 + 2 * g;
            int high = block[66 + g / 2] >> 4 * (g % 2);
            int scale = block[106 + g / 4] >> 4 * (g / 2 % 2) & 15;
            codes_16 codes =
                codes_of_u32(grid[i[0] | (high & 1) << 8], grid[i[1] | (high & 2) << 7],
                             grid[i[2] | (high & 4) << 6], grid[i[3] | (high & 8) << 5]);
            codes_16 masks =
                codes_of_u64(strata__sign_masks[signs[0]], strata__sign_masks[signs[1]]);
            put_scaled(codes_negate(codes, masks), d * (float)(1 + 2 * scale), out);
        }
    }
}

static void decode_iq1_s(const uint8_t *restrict block, uint64_t blocks, float *restrict out)
{
    for (uint64_t b = 0; b < blocks; b++, block += 50) {
        float d = load_half(block);
        for (int g = 0; g < 8; g++) {
            int word = load_u16(block + 34 + 2 * g);
            float scale = d * (float)(2 * (word >> 12 & 7) + 1);
            float delta = word & 0x8000 ? -0.125f : 0.125f;
            for (int i = 0; i < 4; i++, out += 8) {
                int index = block[2 + 4 * g + i] | (word >> 3 * i & 7) << 8;
                put_shifted(strata__grid_iq1[index], scale, delta, out);
            }
        }
    }
}

static void decode_iq1_m(const uint8_t *restrict block, uint64_t blocks, float *restrict out)
{
    for (uint64_t b = 0; b < blocks; b++, block += 56) {
        uint16_t words[4];
        for (int i = 0; i < 4; i++)
            words[i] = load_u16(block + 48 + 2 * i);
        /* The half scale is spread over the words' top nibbles. */
        float d = float_of_half((uint16_t)(words[0] >> 12 | (words[1] >> 8 & 0x00f0) |
                                           (words[2] >> 4 & 0x0f00) | (words[3] & 0xf000)));
        for (int g = 0; g < 16; g++) {
            float scale = d * (float)(2 * (words[g / 4] >> 3 * (g % 4) & 7) + 1);
            for (int i = 0; i < 2; i++, out += 8) {
                int nibble = block[32 + g] >> 4 * i & 15;
                int index = block[2 * g + i] | (nibble & 7) << 8;
                put_shifted(strata__grid_iq1[index], scale, nibble & 8 ? -0.125f : 0.125f, out);
            }
        }
    }
}

static void decode_iq4_xs(const uint8_t *restrict block, uint64_t blocks, float *restrict out)
{
    for (uint64_t b = 0; b < blocks; b++, block += 136) {
        float d = load_half(block);
        int high = load_u16(block + 2);
        for (int g = 0; g < 8; g++, out += 32) {
            int scale = (block[4 + g / 2] >> 4 * (g % 2) & 15) | (high >> 2 * g & 3) << 4;
            put_table_codes(block + 8 + 16 * g, strata__codes_iq4_nl, d * (float)(scale - 32), out);
        }
    }
}

#endif
