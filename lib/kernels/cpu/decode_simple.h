/* SPDX-License-Identifier: MIT */
/* Plain types and formats with blocks of 32 or 64 values. */
#ifndef STRATA_KERNELS_CPU_DECODE_SIMPLE_H
#define STRATA_KERNELS_CPU_DECODE_SIMPLE_H

#include "kernels/cpu/codes.h"
#include "kernels/cpu/decode_common.h"
#include "kernels/tables/grids.h"

static void decode_f32(const uint8_t *restrict block, uint64_t blocks, float *restrict out)
{
    memcpy(out, block, blocks * sizeof(float));
}

static void decode_f16(const uint8_t *restrict block, uint64_t blocks, float *restrict out)
{
    uint64_t i = 0;
#if defined(__F16C__)
    for (; i + 8 <= blocks; i += 8)
        _mm256_storeu_ps(out + i,
                         _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(block + 2 * i))));
#endif
    for (; i < blocks; i++) {
        uint16_t half;
        memcpy(&half, block + 2 * i, sizeof half);
        out[i] = float_of_half(half);
    }
}

static void decode_bf16(const uint8_t *restrict block, uint64_t blocks, float *restrict out)
{
    for (uint64_t i = 0; i < blocks; i++) {
        uint16_t half;
        memcpy(&half, block + 2 * i, sizeof half);
        out[i] = float_of_bits((uint32_t)half << 16);
    }
}

/* Low nibbles of sixteen bytes are values 0 to 15, high ones 16 to 31. */
static void decode_q4_0(const uint8_t *restrict block, uint64_t blocks, float *restrict out)
{
    for (uint64_t b = 0; b < blocks; b++, block += 18, out += 32) {
        codes_16 packed = codes_load(block + 2);
        float d = load_half(block);
        put_scaled(codes_less(codes_field(packed, 0, 15), 8), d, out);
        put_scaled(codes_less(codes_field(packed, 4, 15), 8), d, out + 16);
    }
}

static void decode_q4_1(const uint8_t *restrict block, uint64_t blocks, float *restrict out)
{
    for (uint64_t b = 0; b < blocks; b++, block += 20, out += 32) {
        codes_16 packed = codes_load(block + 4);
        float d = load_half(block), minimum = load_half(block + 2);
        put_scaled_offset(codes_field(packed, 0, 15), d, minimum, out);
        put_scaled_offset(codes_field(packed, 4, 15), d, minimum, out + 16);
    }
}

/* A nibble of each byte with a fifth bit from a word. */
static inline codes_16 five_bits(const uint8_t *packed, int shift, uint32_t word)
{
    return codes_or(codes_field(codes_load(packed), shift, 15), codes_of_bits(word, 16));
}

static void decode_q5_0(const uint8_t *restrict block, uint64_t blocks, float *restrict out)
{
    for (uint64_t b = 0; b < blocks; b++, block += 22, out += 32) {
        float d = load_half(block);
        put_scaled(codes_less(five_bits(block + 6, 0, load_u16(block + 2)), 16), d, out);
        put_scaled(codes_less(five_bits(block + 6, 4, load_u16(block + 4)), 16), d, out + 16);
    }
}

static void decode_q5_1(const uint8_t *restrict block, uint64_t blocks, float *restrict out)
{
    for (uint64_t b = 0; b < blocks; b++, block += 24, out += 32) {
        float d = load_half(block), minimum = load_half(block + 2);
        put_scaled_offset(five_bits(block + 8, 0, load_u16(block + 4)), d, minimum, out);
        put_scaled_offset(five_bits(block + 8, 4, load_u16(block + 6)), d, minimum, out + 16);
    }
}

static void decode_q8_0(const uint8_t *restrict block, uint64_t blocks, float *restrict out)
{
    for (uint64_t b = 0; b < blocks; b++, block += 34, out += 32) {
        float d = load_half(block);
        put_scaled(codes_load(block + 2), d, out);
        put_scaled(codes_load(block + 18), d, out + 16);
    }
}

/* Sixteen bytes of 4-bit codes of a table. */
static inline void put_table_codes(const uint8_t *packed, const uint8_t *table, float scale,
                                   float *out)
{
    codes_16 bytes = codes_load(packed);
    put_scaled(codes_look_up(codes_field(bytes, 0, 15), table), scale, out);
    put_scaled(codes_look_up(codes_field(bytes, 4, 15), table), scale, out + 16);
}

static void decode_iq4_nl(const uint8_t *restrict block, uint64_t blocks, float *restrict out)
{
    for (uint64_t b = 0; b < blocks; b++, block += 18, out += 32)
        put_table_codes(block + 2, strata__codes_iq4_nl, load_half(block), out);
}

static void decode_mxfp4(const uint8_t *restrict block, uint64_t blocks, float *restrict out)
{
    for (uint64_t b = 0; b < blocks; b++, block += 17, out += 32) {
        /* Half of 2^(e - 127), since the table holds doubled values; subnormal for e < 2. */
        uint32_t e = block[0];
        float scale = float_of_bits(e < 2 ? 0x00200000u << e : (e - 1) << 23);
        put_table_codes(block + 1, strata__codes_mxfp4, scale, out);
    }
}

static void decode_q2_0(const uint8_t *restrict block, uint64_t blocks, float *restrict out)
{
    for (uint64_t b = 0; b < blocks; b++, block += 18, out += 64) {
        float d = load_half(block);
        for (int i = 0; i < 4; i++)
            put_scaled(codes_less(codes_of_pairs(load_u32(block + 2 + 4 * i)), 1), d, out + 16 * i);
    }
}

#endif
