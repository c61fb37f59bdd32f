/* SPDX-License-Identifier: MIT */
/* Decoders to the exact int8 form: codes, scales and offsets of groups. */
#ifndef STRATA_KERNELS_CPU_DECODE_INT8_H
#define STRATA_KERNELS_CPU_DECODE_INT8_H

#include "kernels/cpu/codes.h"
#include "kernels/cpu/decode_iq.h"
#include "kernels/cpu/decode_k.h"
#include "kernels/cpu/decode_simple.h"

/* Of blocks with `w_count` scales and `o_count` offsets. */
#define STRATA__INT8_DECODER(name, bytes, values, w_count, o_count)                                \
    static inline void name##_block(const uint8_t *restrict block, int8_t *restrict codes,         \
                                    float *restrict scales, float *restrict offsets);              \
    static void name(const uint8_t *restrict block, uint64_t blocks, int8_t *restrict codes,       \
                     float *restrict scales, float *restrict offsets)                              \
    {                                                                                              \
        for (uint64_t b = 0; b < blocks; b++, block += (bytes), codes += (values))                 \
            name##_block(block, codes, scales + b * (w_count), offsets + b * (o_count));           \
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

STRATA__INT8_DECODER(int8_q4_0, 18, 32, 1, 0)
{
    (void)offsets;
    store_nibbles(block + 2, 8, codes);
    scales[0] = load_half(block);
}

STRATA__INT8_DECODER(int8_q4_1, 20, 32, 1, 1)
{
    store_nibbles(block + 4, 0, codes);
    scales[0] = load_half(block);
    offsets[0] = load_half(block + 2);
}

STRATA__INT8_DECODER(int8_q5_0, 22, 32, 1, 0)
{
    (void)offsets;
    codes_store(codes_less(five_bits(block + 6, 0, load_u16(block + 2)), 16), codes);
    codes_store(codes_less(five_bits(block + 6, 4, load_u16(block + 4)), 16), codes + 16);
    scales[0] = load_half(block);
}

STRATA__INT8_DECODER(int8_q5_1, 24, 32, 1, 1)
{
    codes_store(five_bits(block + 8, 0, load_u16(block + 4)), codes);
    codes_store(five_bits(block + 8, 4, load_u16(block + 6)), codes + 16);
    scales[0] = load_half(block);
    offsets[0] = load_half(block + 2);
}

STRATA__INT8_DECODER(int8_q8_0, 34, 32, 1, 0)
{
    (void)offsets;
    memcpy(codes, block + 2, 32);
    scales[0] = load_half(block);
}

STRATA__INT8_DECODER(int8_iq4_nl, 18, 32, 1, 0)
{
    (void)offsets;
    store_table_codes(block + 2, strata__codes_iq4_nl, codes);
    scales[0] = load_half(block);
}

STRATA__INT8_DECODER(int8_mxfp4, 17, 32, 1, 0)
{
    uint32_t e = block[0];
    (void)offsets;
    store_table_codes(block + 1, strata__codes_mxfp4, codes);
    scales[0] = float_of_bits(e < 2 ? 0x00200000u << e : (e - 1) << 23);
}

STRATA__INT8_DECODER(int8_q2_0, 18, 64, 1, 0)
{
    (void)offsets;
    for (int i = 0; i < 4; i++)
        codes_store(codes_less(codes_of_pairs(load_u32(block + 2 + 4 * i)), 1), codes + 16 * i);
    scales[0] = load_half(block);
}

static inline void repeat_scale(float scale, float *scales)
{
    for (int g = 0; g < 8; g++)
        scales[g] = scale;
}

/* Codes are those of the block times the scales of sixteen values, at most 15 * 3. */
STRATA__INT8_DECODER(int8_q2_k, 84, 256, 8, 16)
{
    repeat_scale(load_half(block + 80), scales);
    scale_codes(codes_field(codes_load(block), 4, 15), -load_half(block + 82), offsets);
    for (int g = 0; g < 16; g++)
        codes_store(codes_times(two_bits(block + 16, g), block[g] & 15), codes + 16 * g);
}

/* The same with the scales' signs turned round: -32 * -4 is 128, its negative an int8. */
STRATA__INT8_DECODER(int8_q3_k, 110, 256, 8, 0)
{
    codes_factors factors = codes_factors_of(codes_negate_bits(q3_k_scales(block + 96), 0xffff));
    (void)offsets;
    repeat_scale(-load_half(block + 108), scales);
#pragma GCC unroll 16
    for (int g = 0; g < 16; g++)
        codes_store(codes_less_4_times(three_bits(block, g), &factors, g), codes + 16 * g);
}

static inline void store_scale_groups(const uint8_t *block, float *scales, float *offsets)
{
    float both[16];
    scale_groups(block, both);
    memcpy(scales, both, 8 * sizeof *both);
    memcpy(offsets, both + 8, 8 * sizeof *both);
}

STRATA__INT8_DECODER(int8_q4_k, 144, 256, 8, 8)
{
    store_scale_groups(block, scales, offsets);
    for (int g = 0; g < 8; g++)
        for (int h = 0; h < 2; h++)
            codes_store(group_nibbles(block + 16, g, h), codes + 32 * g + 16 * h);
}

STRATA__INT8_DECODER(int8_q5_k, 176, 256, 8, 8)
{
    store_scale_groups(block, scales, offsets);
    for (int g = 0; g < 8; g++)
        for (int h = 0; h < 2; h++)
            codes_store(group_five_bits(block, g, h), codes + 32 * g + 16 * h);
}

STRATA__INT8_DECODER(int8_q6_k, 210, 256, 16, 0)
{
    (void)offsets;
    scale_codes(codes_load(block + 192), load_half(block + 208), scales);
    for (int g = 0; g < 16; g++)
        codes_store(six_bits(block, g), codes + 16 * g);
}

STRATA__INT8_DECODER(int8_iq2_xxs, 66, 256, 8, 0)
{
    float d = load_half(block);
    (void)offsets;
    for (int g = 0; g < 8; g++) {
        scales[g] = iq2_xxs_scale(block, g, d);
        for (int h = 0; h < 2; h++)
            codes_store(iq2_xxs_codes(block, g, h), codes + 32 * g + 16 * h);
    }
}

STRATA__INT8_DECODER(int8_iq2_xs, 74, 256, 16, 0)
{
    uint8_t signs[32];
    (void)offsets;
    half_step_scales(block + 66, load_half(block), scales);
    unpack_signs(block + 2, signs);
    for (int g = 0; g < 16; g++)
        codes_store(iq2_xs_codes(block, signs, g), codes + 16 * g);
}

STRATA__INT8_DECODER(int8_iq2_s, 82, 256, 16, 0)
{
    (void)offsets;
    half_step_scales(block + 74, load_half(block), scales);
    for (int g = 0; g < 16; g++)
        codes_store(iq2_s_codes(block, g), codes + 16 * g);
}

STRATA__INT8_DECODER(int8_iq3_xxs, 98, 256, 8, 0)
{
    float d = load_half(block);
    (void)offsets;
    for (int g = 0; g < 16; g++) {
        codes_store(iq3_xxs_codes(block, g), codes + 16 * g);
        scales[g / 2] = iq3_xxs_scale(block, g / 2, d);
    }
}

STRATA__INT8_DECODER(int8_iq3_s, 110, 256, 8, 0)
{
    float d = load_half(block);
    (void)offsets;
    for (int g = 0; g < 16; g++) {
        codes_store(iq3_s_codes(block, g), codes + 16 * g);
        scales[g / 2] = iq3_s_scale(block, g / 2, d);
    }
}

/* Eight codes 8 point + shift, for points of -1, 0 and 1 shifted by an eighth. */
static inline void store_shifted(uint64_t point, int shift, int8_t *codes)
{
    for (int i = 0; i < 8; i++)
        codes[i] = (int8_t)(8 * (int8_t)(point >> 8 * i & 255) + shift);
}

STRATA__INT8_DECODER(int8_iq1_s, 50, 256, 8, 0)
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

STRATA__INT8_DECODER(int8_iq1_m, 56, 256, 16, 0)
{
    uint16_t words[4];
    (void)offsets;
    float d = iq1_m_scales(block, words);
    for (int g = 0; g < 16; g++) {
        scales[g] = d * (float)(2 * (words[g / 4] >> 3 * (g % 4) & 7) + 1) * 0.125f;
        for (int i = 0; i < 2; i++) {
            int nibble = block[32 + g] >> 4 * i & 15;
            int index = block[2 * g + i] | (nibble & 7) << 8;
            store_shifted(strata__grid_iq1[index], nibble & 8 ? -1 : 1, codes + 16 * g + 8 * i);
        }
    }
}

STRATA__INT8_DECODER(int8_iq4_xs, 136, 256, 8, 0)
{
    float d = load_half(block);
    (void)offsets;
    for (int g = 0; g < 8; g++) {
        store_table_codes(block + 8 + 16 * g, strata__codes_iq4_nl, codes + 32 * g);
        scales[g] = iq4_xs_scale(block, g, d);
    }
}

#endif
