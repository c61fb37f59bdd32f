/* SPDX-License-Identifier: MIT */
/* IQ1 to IQ4_XS: blocks of 256 values from codebooks. */
#ifndef STRATA_KERNELS_CPU_DECODE_IQ_H
#define STRATA_KERNELS_CPU_DECODE_IQ_H

#include "kernels/cpu/decode_common.h"
#include "kernels/cpu/decode_simple.h"
#include "kernels/tables/grids.h"

/* out = scale * (mask ? -code : code) for masks of 0 or 255; no code is zero. */
static inline void scale_signed(const int8_t *restrict codes, const int8_t *restrict masks, int n,
                                float scale, float *restrict out)
{
    for (int i = 0; i < n; i++)
        out[i] = scale * (float)(int8_t)((codes[i] ^ masks[i]) - masks[i]);
}

static inline void put_u64(int8_t *out, uint64_t word)
{
    memcpy(out, &word, sizeof word);
}

static inline void put_u32(int8_t *out, uint32_t word)
{
    memcpy(out, &word, sizeof word);
}

/* Masks of 32 values from four 7-bit sign indices in the low bits of a word. */
static inline void put_signs_7(int8_t *masks, uint32_t word)
{
    for (int i = 0; i < 4; i++)
        put_u64(masks + 8 * i, strata__sign_masks[strata__sign_bytes[word >> 7 * i & 127]]);
}

static void decode_iq2_xxs(const uint8_t *restrict block, uint64_t blocks, float *restrict out)
{
    for (uint64_t b = 0; b < blocks; b++, block += 66) {
        float d = load_half(block);
        for (int g = 0; g < 8; g++, out += 32) {
            const uint8_t *indices = block + 2 + 8 * g;
            uint32_t signs = load_u32(indices + 4);
            int8_t codes[32], masks[32];
            for (int i = 0; i < 4; i++)
                put_u64(codes + 8 * i, strata__grid_iq2_xxs[indices[i]]);
            put_signs_7(masks, signs);
            scale_signed(codes, masks, 32, d * (0.5f + (float)(signs >> 28)) * 0.25f, out);
        }
    }
}

static void decode_iq2_xs(const uint8_t *restrict block, uint64_t blocks, float *restrict out)
{
    for (uint64_t b = 0; b < blocks; b++, block += 74) {
        float d = load_half(block);
        for (int g = 0; g < 16; g++, out += 16) {
            int8_t codes[16], masks[16];
            for (int i = 0; i < 2; i++) {
                uint16_t word = load_u16(block + 2 + 4 * g + 2 * i);
                put_u64(codes + 8 * i, strata__grid_iq2_xs[word & 511]);
                put_u64(masks + 8 * i, strata__sign_masks[strata__sign_bytes[word >> 9]]);
            }
            int scale = block[66 + g / 2] >> 4 * (g % 2) & 15;
            scale_signed(codes, masks, 16, d * (0.5f + (float)scale) * 0.25f, out);
        }
    }
}

static void decode_iq2_s(const uint8_t *restrict block, uint64_t blocks, float *restrict out)
{
    for (uint64_t b = 0; b < blocks; b++, block += 82) {
        float d = load_half(block);
        for (int g = 0; g < 16; g++, out += 16) {
            int8_t codes[16], masks[16];
            for (int i = 0; i < 2; i++) {
                int point = 2 * g + i;
                int high = block[66 + point / 4] >> 2 * (point % 4) & 3;
                put_u64(codes + 8 * i, strata__grid_iq2_s[block[2 + point] | high << 8]);
                put_u64(masks + 8 * i, strata__sign_masks[block[34 + point]]);
            }
            int scale = block[74 + g / 2] >> 4 * (g % 2) & 15;
            scale_signed(codes, masks, 16, d * (0.5f + (float)scale) * 0.25f, out);
        }
    }
}

static void decode_iq3_xxs(const uint8_t *restrict block, uint64_t blocks, float *restrict out)
{
    for (uint64_t b = 0; b < blocks; b++, block += 98) {
        float d = load_half(block);
        for (int g = 0; g < 8; g++, out += 32) {
            uint32_t signs = load_u32(block + 66 + 4 * g);
            int8_t codes[32], masks[32];
            for (int i = 0; i < 8; i++)
                put_u32(codes + 4 * i, strata__grid_iq3_xxs[block[2 + 8 * g + i]]);
            put_signs_7(masks, signs);
            scale_signed(codes, masks, 32, d * (0.5f + (float)(signs >> 28)) * 0.5f, out);
        }
    }
}

static void decode_iq3_s(const uint8_t *restrict block, uint64_t blocks, float *restrict out)
{
    for (uint64_t b = 0; b < blocks; b++, block += 110) {
        float d = load_half(block);
        for (int g = 0; g < 8; g++, out += 32) {
            int8_t codes[32], masks[32];
            for (int i = 0; i < 8; i++) {
                int high = block[66 + g] >> i & 1;
                put_u32(codes + 4 * i, strata__grid_iq3_s[block[2 + 8 * g + i] | high << 8]);
            }
            for (int i = 0; i < 4; i++)
                put_u64(masks + 8 * i, strata__sign_masks[block[74 + 4 * g + i]]);
            int scale = block[106 + g / 2] >> 4 * (g % 2) & 15;
            scale_signed(codes, masks, 32, d * (float)(1 + 2 * scale), out);
        }
    }
}

/* out = scale * (code + delta) */
static inline void scale_shifted(uint64_t point, float scale, float delta, float *restrict out)
{
    int8_t codes[8];
    put_u64(codes, point);
    for (int i = 0; i < 8; i++)
        out[i] = scale * ((float)codes[i] + delta);
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
                scale_shifted(strata__grid_iq1[index], scale, delta, out);
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
                scale_shifted(strata__grid_iq1[index], scale, nibble & 8 ? -0.125f : 0.125f, out);
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
            int8_t codes[32];
            unpack_nibbles(block + 8 + 16 * g, 16, codes);
            look_up_codes(strata__codes_iq4_nl, 32, codes);
            scale_codes(codes, 32, d * (float)(scale - 32), out);
        }
    }
}

#endif
