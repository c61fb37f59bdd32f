/* SPDX-License-Identifier: MIT */
/* Decoders to the exact int8 form: codes, scales and offsets of groups. */
#ifndef STRATA_KERNELS_CPU_DECODE_INT8_H
#define STRATA_KERNELS_CPU_DECODE_INT8_H

#include "kernels/cpu/codes.h"
#include "kernels/cpu/decode_iq.h"
#include "kernels/cpu/decode_k.h"
#include "kernels/cpu/decode_simple.h"

#define STRATA__INT8_DECODER(name, bytes, values, groups)                                          \
    static inline void name##_block(const uint8_t *restrict block, int8_t *restrict codes,         \
                                    float *restrict scales, float *restrict offsets);              \
    static void name(const uint8_t *restrict block, uint64_t blocks, int8_t *restrict codes,       \
                     float *restrict scales, float *restrict offsets)                              \
    {                                                                                              \
        for (uint64_t b = 0; b < blocks; b++, block += (bytes), codes += (values))                 \
            name##_block(block, codes, scales + b * (groups), offsets + b * (groups));             \
    }                                                                                              \
    static inline void name##_block(const uint8_t *restrict block, int8_t *restrict codes,         \
                                    float *restrict scales, float *restrict offsets)

static inline void store_nibbles(const uint8_t *packed, int less, int8_t *codes)
{
    codes_16 bytes = codes_load(packed);
    codes_store(codes_less(codes_field(bytes, 0, 15), less), codes);
    codes_store(codes_less(codes_field(bytes, 4, 15), less), codes + 16);
}

static inline void store_table_codes(const uint8_t *packed, const uint8_t *table, int8_t *codes)
{
    codes_16 bytes = codes_load(packed);
    codes_store(codes_look_up(codes_field(bytes, 0, 15), table), codes);
    codes_store(codes_look_up(codes_field(bytes, 4, 15), table), codes + 16);
}

STRATA__INT8_DECODER(int8_q4_0, 18, 32, 1)
{
    (void)offsets;
    store_nibbles(block + 2, 8, codes);
    scales[0] = load_half(block);
}

STRATA__INT8_DECODER(int8_q4_1, 20, 32, 1)
{
    store_nibbles(block + 4, 0, codes);
    scales[0] = load_half(block);
    offsets[0] = load_half(block + 2);
}

STRATA__INT8_DECODER(int8_q5_0, 22, 32, 1)
{
    (void)offsets;
    codes_store(codes_less(five_bits(block + 6, 0, load_u16(block + 2)), 16), codes);
    codes_store(codes_less(five_bits(block + 6, 4, load_u16(block + 4)), 16), codes + 16);
    scales[0] = load_half(block);
}

STRATA__INT8_DECODER(int8_q5_1, 24, 32, 1)
{
    codes_store(five_bits(block + 8, 0, load_u16(block + 4)), codes);
    codes_store(five_bits(block + 8, 4, load_u16(block + 6)), codes + 16);
    scales[0] = load_half(block);
    offsets[0] = load_half(block + 2);
}

STRATA__INT8_DECODER(int8_q8_0, 34, 32, 1)
{
    (void)offsets;
    memcpy(codes, block + 2, 32);
    scales[0] = load_half(block);
}

STRATA__INT8_DECODER(int8_iq4_nl, 18, 32, 1)
{
    (void)offsets;
    store_table_codes(block + 2, strata__codes_iq4_nl, codes);
    scales[0] = load_half(block);
}

STRATA__INT8_DECODER(int8_mxfp4, 17, 32, 1)
{
    uint32_t e = block[0];
    (void)offsets;
    store_table_codes(block + 1, strata__codes_mxfp4, codes);
    scales[0] = float_of_bits(e < 2 ? 0x00200000u << e : (e - 1) << 23);
}

STRATA__INT8_DECODER(int8_q2_0, 18, 64, 1)
{
    (void)offsets;
    for (int i = 0; i < 4; i++)
        codes_store(codes_less(codes_of_pairs(load_u32(block + 2 + 4 * i)), 1), codes + 16 * i);
    scales[0] = load_half(block);
}

STRATA__INT8_DECODER(int8_q2_k, 84, 256, 16)
{
    float d = load_half(block + 80), d_min = load_half(block + 82);
    for (int g = 0; g < 16; g++) {
        codes_store(two_bits(block + 16, g), codes + 16 * g);
        scales[g] = d * (float)(block[g] & 15);
        offsets[g] = -(d_min * (float)(block[g] >> 4));
    }
}

STRATA__INT8_DECODER(int8_q3_k, 110, 256, 16)
{
    float d = load_half(block + 108);
    int8_t small[16];
    (void)offsets;
    unpack_q3_k_scales(block + 96, small);
    for (int g = 0; g < 16; g++) {
        codes_16 high = codes_if_bit(codes_load(block + 16 * (g % 2)), 1 << g / 2, 4);
        codes_store(codes_less(codes_or(two_bits(block + 32, g), high), 4), codes + 16 * g);
        scales[g] = d * (float)small[g];
    }
}

STRATA__INT8_DECODER(int8_q4_k, 144, 256, 8)
{
    scale_groups(block, scales, offsets);
    for (int g = 0; g < 8; g++)
        for (int h = 0; h < 2; h++)
            codes_store(group_nibbles(block + 16, g, h), codes + 32 * g + 16 * h);
}

STRATA__INT8_DECODER(int8_q5_k, 176, 256, 8)
{
    scale_groups(block, scales, offsets);
    for (int g = 0; g < 8; g++)
        for (int h = 0; h < 2; h++) {
            codes_16 high = codes_if_bit(codes_load(block + 16 + 16 * h), 1 << g, 16);
            codes_store(codes_or(group_nibbles(block + 48, g, h), high), codes + 32 * g + 16 * h);
        }
}

STRATA__INT8_DECODER(int8_q6_k, 210, 256, 16)
{
    const int8_t *small = (const int8_t *)(block + 192);
    float d = load_half(block + 208);
    (void)offsets;
    for (int g = 0; g < 16; g++) {
        codes_store(codes_less(six_bits(block, g), 32), codes + 16 * g);
        scales[g] = d * (float)small[g];
    }
}

static inline void store_two_points(uint64_t first, uint64_t second, uint64_t first_mask,
                                    uint64_t second_mask, int8_t *codes)
{
    codes_store(codes_negate(codes_of_u64(first, second), codes_of_u64(first_mask, second_mask)),
                codes);
}

STRATA__INT8_DECODER(int8_iq2_xxs, 66, 256, 8)
{
    const uint64_t *grid = strata__grid_iq2_xxs;
    float d = load_half(block);
    (void)offsets;
    for (int g = 0; g < 8; g++) {
        const uint8_t *i = block + 2 + 8 * g;
        uint32_t signs = load_u32(i + 4);
        scales[g] = d * (0.5f + (float)(signs >> 28)) * 0.25f;
        store_two_points(grid[i[0]], grid[i[1]], sign_mask_7(signs), sign_mask_7(signs >> 7),
                         codes + 32 * g);
        store_two_points(grid[i[2]], grid[i[3]], sign_mask_7(signs >> 14), sign_mask_7(signs >> 21),
                         codes + 32 * g + 16);
    }
}

STRATA__INT8_DECODER(int8_iq2_xs, 74, 256, 16)
{
    const uint64_t *grid = strata__grid_iq2_xs;
    float d = load_half(block);
    (void)offsets;
    for (int g = 0; g < 16; g++) {
        uint32_t word = load_u32(block + 2 + 4 * g);
        int scale = block[66 + g / 2] >> 4 * (g % 2) & 15;
        scales[g] = d * (0.5f + (float)scale) * 0.25f;
        store_two_points(grid[word & 511], grid[word >> 16 & 511], sign_mask_7(word >> 9),
                         sign_mask_7(word >> 25), codes + 16 * g);
    }
}

STRATA__INT8_DECODER(int8_iq2_s, 82, 256, 16)
{
    const uint64_t *grid = strata__grid_iq2_s;
    float d = load_half(block);
    (void)offsets;
    for (int g = 0; g < 16; g++) {
        const uint8_t *low = block + 2 + 2 * g, *signs = block + 34 + 2 * g;
        int high = block[66 + g / 2] >> 4 * (g % 2);
        int scale = block[74 + g / 2] >> 4 * (g % 2) & 15;
        scales[g] = d * (0.5f + (float)scale) * 0.25f;
        store_two_points(grid[low[0] | (high & 3) << 8], grid[low[1] | (high >> 2 & 3) << 8],
                         strata__sign_masks[signs[0]], strata__sign_masks[signs[1]],
                         codes + 16 * g);
    }
}

STRATA__INT8_DECODER(int8_iq3_xxs, 98, 256, 8)
{
    const uint32_t *grid = strata__grid_iq3_xxs;
    float d = load_half(block);
    (void)offsets;
    for (int g = 0; g < 16; g++) {
        const uint8_t *i = block + 2 + 4 * g;
        uint32_t word = load_u32(block + 66 + 4 * (g / 2)), signs = word >> 14 * (g % 2);
        codes_16 points = codes_of_u32(grid[i[0]], grid[i[1]], grid[i[2]], grid[i[3]]);
        codes_16 masks = codes_of_u64(sign_mask_7(signs), sign_mask_7(signs >> 7));
        codes_store(codes_negate(points, masks), codes + 16 * g);
        scales[g / 2] = d * (0.5f + (float)(word >> 28)) * 0.5f;
    }
}

STRATA__INT8_DECODER(int8_iq3_s, 110, 256, 8)
{
    const uint32_t *grid = strata__grid_iq3_s;
    float d = load_half(block);
    (void)offsets;
    for (int g = 0; g < 16; g++) {
        const uint8_t *i = block + 2 + 4 * g, *signs = block + 74 + 2 * g;
        int high = block[66 + g / 2] >> 4 * (g % 2);
        int scale = block[106 + g / 4] >> 4 * (g / 2 % 2) & 15;
        codes_16 points = codes_of_u32(grid[i[0] | (high & 1) << 8], grid[i[1] | (high & 2) << 7],
                                       grid[i[2] | (high & 4) << 6], grid[i[3] | (high & 8) << 5]);
        codes_16 masks = codes_of_u64(strata__sign_masks[signs[0]], strata__sign_masks[signs[1]]);
        codes_store(codes_negate(points, masks), codes + 16 * g);
        scales[g / 2] = d * (float)(1 + 2 * scale);
    }
}

/* Eight codes 8 point + shift, for points of -1, 0 and 1 shifted by an eighth. */
static inline void store_shifted(uint64_t point, int shift, int8_t *codes)
{
    for (int i = 0; i < 8; i++)
        codes[i] = (int8_t)(8 * (int8_t)(point >> 8 * i & 255) + shift);
}

STRATA__INT8_DECODER(int8_iq1_s, 50, 256, 8)
{
    float d = load_half(block);
    (void)offsets;
    for (int g = 0; g < 8; g++) {
        int word = load_u16(block + 34 + 2 * g);
        scales[g] = d * (float)(2 * (word >> 12 & 7) + 1) * 0.125f;
        for (int i = 0; i < 4; i++) {
            int index = block[2 + 4 * g + i] | (word >> 3 * i & 7) << 8;
            store_shifted(strata__grid_iq1[index], word & 0x8000 ? -1 : 1, codes + 32 * g + 8 * i);
        }
    }
}

STRATA__INT8_DECODER(int8_iq1_m, 56, 256, 16)
{
    uint16_t words[4];
    (void)offsets;
    for (int i = 0; i < 4; i++)
        words[i] = load_u16(block + 48 + 2 * i);
    float d = float_of_half((uint16_t)(words[0] >> 12 | (words[1] >> 8 & 0x00f0) |
                                       (words[2] >> 4 & 0x0f00) | (words[3] & 0xf000)));
    for (int g = 0; g < 16; g++) {
        scales[g] = d * (float)(2 * (words[g / 4] >> 3 * (g % 4) & 7) + 1) * 0.125f;
        for (int i = 0; i < 2; i++) {
            int nibble = block[32 + g] >> 4 * i & 15;
            int index = block[2 * g + i] | (nibble & 7) << 8;
            store_shifted(strata__grid_iq1[index], nibble & 8 ? -1 : 1, codes + 16 * g + 8 * i);
        }
    }
}

STRATA__INT8_DECODER(int8_iq4_xs, 136, 256, 8)
{
    float d = load_half(block);
    int high = load_u16(block + 2);
    (void)offsets;
    for (int g = 0; g < 8; g++) {
        int scale = (block[4 + g / 2] >> 4 * (g % 2) & 15) | (high >> 2 * g & 3) << 4;
        store_table_codes(block + 8 + 16 * g, strata__codes_iq4_nl, codes + 32 * g);
        scales[g] = d * (float)(scale - 32);
    }
}

#endif
