/* SPDX-License-Identifier: MIT */
/* IQ1 to IQ4_XS: blocks of 256 values from codebooks. */
#ifndef STRATA_KERNELS_CPU_DECODE_IQ_H
#define STRATA_KERNELS_CPU_DECODE_IQ_H

#include "kernels/cpu/decode_put.h"
#include "kernels/tables/grids.h"

/* Signs of sixteen values from two 7-bit indices, which lie side by side. */
static inline uint32_t signs_of_14(uint32_t word)
{
    return strata__sign_bytes[word & 127] | (uint32_t)strata__sign_bytes[word >> 7 & 127] << 8;
}

static inline float iq2_xxs_scale(const uint8_t *block, int g, float d)
{
    return d * (0.5f + (float)(load_u32(block + 6 + 8 * g) >> 28)) * 0.25f;
}

/* Half h of group g. */
static inline codes_16 iq2_xxs_codes(const uint8_t *block, int g, int h)
{
    const uint64_t *grid = strata__grid_iq2_xxs;
    const uint8_t *i = block + 2 + 8 * g + 2 * h;
    uint32_t signs = signs_of_14(load_u32(block + 6 + 8 * g) >> 14 * h);
    return codes_negate_bits(codes_of_u64(grid[i[0]], grid[i[1]]), signs);
}

static DECODER void decode_iq2_xxs(const uint8_t *block, uint64_t blocks, sink *out)
{
    for (uint64_t b = 0; b < blocks; b++, block += 66) {
        float d = load_half(block);
        for (int g = 0; g < 8; g += 2) {
            for (int i = 0; i < 4; i++)
                put_scaled(out, 16 * i, iq2_xxs_codes(block, g + i / 2, i % 2),
                           floats_all(iq2_xxs_scale(block, g + i / 2, d)));
            advance(out, 64);
        }
    }
}

/* d * (0.5 + scale) / 4 of sixteen nibbles */
static inline void half_step_scales(const uint8_t *packed, float d, float *scales)
{
    floats_16 steps = floats_add(floats_all(0.5f), floats_of_codes(codes_of_nibbles(packed)));
    store_scales(floats_multiply(floats_multiply(floats_all(d), steps), floats_all(0.25f)), scales);
}

/* Sign bytes of 7-bit indices in the high bits of 32 words: bit 7 makes the set ones even. */
static inline void unpack_signs(const uint8_t *packed, uint8_t *signs)
{
    uint16_t words[32];
    memcpy(words, packed, sizeof words);
    for (int i = 0; i < 32; i++) {
        unsigned bits = words[i] >> 9, parity = bits ^ bits >> 4;
        parity ^= parity >> 2;
        parity ^= parity >> 1;
        signs[i] = (uint8_t)(bits | parity << 7);
    }
}

static inline codes_16 iq2_xs_codes(const uint8_t *block, const uint8_t *signs, int g)
{
    const uint64_t *grid = strata__grid_iq2_xs;
    uint32_t word = load_u32(block + 2 + 4 * g);
    return codes_negate_bits(codes_of_u64(grid[word & 511], grid[word >> 16 & 511]),
                             load_u16(signs + 2 * g));
}

static DECODER void decode_iq2_xs(const uint8_t *block, uint64_t blocks, sink *out)
{
    for (uint64_t b = 0; b < blocks; b++, block += 74) {
        float scales[16];
        uint8_t signs[32];
        half_step_scales(block + 66, load_half(block), scales);
        unpack_signs(block + 2, signs);
        for (int g = 0; g < 16; g += 4) {
            for (int i = 0; i < 4; i++)
                put_scaled(out, 16 * i, iq2_xs_codes(block, signs, g + i),
                           floats_all(scales[g + i]));
            advance(out, 64);
        }
    }
}

static inline codes_16 iq2_s_codes(const uint8_t *block, int g)
{
    const uint64_t *grid = strata__grid_iq2_s;
    const uint8_t *low = block + 2 + 2 * g;
    int high = block[66 + g / 2] >> 4 * (g % 2);
    codes_16 points =
        codes_of_u64(grid[low[0] | (high & 3) << 8], grid[low[1] | (high >> 2 & 3) << 8]);
    return codes_negate_bits(points, load_u16(block + 34 + 2 * g));
}

static DECODER void decode_iq2_s(const uint8_t *block, uint64_t blocks, sink *out)
{
    for (uint64_t b = 0; b < blocks; b++, block += 82) {
        float scales[16];
        half_step_scales(block + 74, load_half(block), scales);
        for (int g = 0; g < 16; g += 4) {
            for (int i = 0; i < 4; i++)
                put_scaled(out, 16 * i, iq2_s_codes(block, g + i), floats_all(scales[g + i]));
            advance(out, 64);
        }
    }
}

static inline float iq3_xxs_scale(const uint8_t *block, int group, float d)
{
    return d * (0.5f + (float)(load_u32(block + 66 + 4 * group) >> 28)) * 0.5f;
}

static inline codes_16 iq3_xxs_codes(const uint8_t *block, int g)
{
    const uint32_t *grid = strata__grid_iq3_xxs;
    const uint8_t *i = block + 2 + 4 * g;
    codes_16 points = codes_of_u32(grid[i[0]], grid[i[1]], grid[i[2]], grid[i[3]]);
    return codes_negate_bits(points,
                             signs_of_14(load_u32(block + 66 + 4 * (g / 2)) >> 14 * (g % 2)));
}

static DECODER void decode_iq3_xxs(const uint8_t *block, uint64_t blocks, sink *out)
{
    for (uint64_t b = 0; b < blocks; b++, block += 98) {
        float d = load_half(block);
        for (int g = 0; g < 16; g += 4) {
            for (int i = 0; i < 4; i++)
                put_scaled(out, 16 * i, iq3_xxs_codes(block, g + i),
                           floats_all(iq3_xxs_scale(block, (g + i) / 2, d)));
            advance(out, 64);
        }
    }
}

static inline float iq3_s_scale(const uint8_t *block, int group, float d)
{
    int scale = block[106 + group / 2] >> 4 * (group % 2) & 15;
    return d * (float)(1 + 2 * scale);
}

static inline codes_16 iq3_s_codes(const uint8_t *block, int g)
{
    const uint32_t *grid = strata__grid_iq3_s;
    const uint8_t *i = block + 2 + 4 * g;
    int high = block[66 + g / 2] >> 4 * (g % 2);
    codes_16 points = codes_of_u32(grid[i[0] | (high & 1) << 8], grid[i[1] | (high & 2) << 7],
                                   grid[i[2] | (high & 4) << 6], grid[i[3] | (high & 8) << 5]);
    return codes_negate_bits(points, load_u16(block + 74 + 2 * g));
}

static DECODER void decode_iq3_s(const uint8_t *block, uint64_t blocks, sink *out)
{
    for (uint64_t b = 0; b < blocks; b++, block += 110) {
        float d = load_half(block);
        for (int g = 0; g < 16; g += 4) {
            for (int i = 0; i < 4; i++)
                put_scaled(out, 16 * i, iq3_s_codes(block, g + i),
                           floats_all(iq3_s_scale(block, (g + i) / 2, d)));
            advance(out, 64);
        }
    }
}

/* An eighth with the sign that is the word's top bit: random signs are no branches. */
static inline float eighth(uint32_t word)
{
    return float_of_bits((word & 0x80000000) | 0x3e000000);
}

/* scale * (point + delta) of two points of eight values with a delta each */
static inline void put_shifted(sink *out, int place, codes_16 points, float scale, float low,
                               float high)
{
    floats_16 shifted = floats_add(floats_of_codes(points), floats_halves(low, high));
    put(out, place, floats_multiply(floats_all(scale), shifted));
}

static DECODER void decode_iq1_s(const uint8_t *block, uint64_t blocks, sink *out)
{
    for (uint64_t b = 0; b < blocks; b++, block += 50) {
        float d = load_half(block);
        for (int g = 0; g < 8; g++) {
            int word = load_u16(block + 34 + 2 * g);
            float scale = d * (float)(2 * (word >> 12 & 7) + 1);
            float delta = eighth((uint32_t)word << 16);
            uint64_t points[4];
            for (int i = 0; i < 4; i++)
                points[i] = strata__grid_iq1[block[2 + 4 * g + i] | (word >> 3 * i & 7) << 8];
            put_shifted(out, 0, codes_of_u64(points[0], points[1]), scale, delta, delta);
            put_shifted(out, 16, codes_of_u64(points[2], points[3]), scale, delta, delta);
            advance(out, 32);
        }
    }
}

/* The words of 3-bit scales, whose top nibbles are the half scale. */
static inline float iq1_m_scales(const uint8_t *block, uint16_t *words)
{
    for (int i = 0; i < 4; i++)
        words[i] = load_u16(block + 48 + 2 * i);
    return float_of_half((uint16_t)(words[0] >> 12 | (words[1] >> 8 & 0x00f0) |
                                    (words[2] >> 4 & 0x0f00) | (words[3] & 0xf000)));
}

static inline void put_iq1_m(sink *out, int place, const uint8_t *block, int g, float scale)
{
    uint32_t low = block[32 + g] & 15, high = block[32 + g] >> 4;
    uint64_t first = strata__grid_iq1[block[2 * g] | (low & 7) << 8];
    uint64_t second = strata__grid_iq1[block[2 * g + 1] | (high & 7) << 8];
    put_shifted(out, place, codes_of_u64(first, second), scale, eighth(low << 28),
                eighth(high << 28));
}

static DECODER void decode_iq1_m(const uint8_t *block, uint64_t blocks, sink *out)
{
    for (uint64_t b = 0; b < blocks; b++, block += 56) {
        uint16_t words[4];
        float d = iq1_m_scales(block, words);
        for (int g = 0; g < 16; g += 4) {
            for (int i = 0; i < 4; i++)
                put_iq1_m(out, 16 * i, block, g + i,
                          d * (float)(2 * (words[g / 4] >> 3 * i & 7) + 1));
            advance(out, 64);
        }
    }
}

static inline float iq4_xs_scale(const uint8_t *block, int g, float d)
{
    int scale = (block[4 + g / 2] >> 4 * (g % 2) & 15) | (load_u16(block + 2) >> 2 * g & 3) << 4;
    return d * (float)(scale - 32);
}

static DECODER void decode_iq4_xs(const uint8_t *block, uint64_t blocks, sink *out)
{
    for (uint64_t b = 0; b < blocks; b++, block += 136) {
        float d = load_half(block);
        for (int g = 0; g < 8; g++) {
            nibble_values values =
                nibbles_coded(strata__codes_iq4_nl, floats_all(iq4_xs_scale(block, g, d)));
            put_nibbles(out, 0, 16, block + 8 + 16 * g, values, values);
            advance(out, 32);
        }
    }
}

#endif
