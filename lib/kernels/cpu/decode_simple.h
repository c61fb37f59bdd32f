/* SPDX-License-Identifier: MIT */
/* Plain types and formats with blocks of 32 or 64 values. */
#ifndef STRATA_KERNELS_CPU_DECODE_SIMPLE_H
#define STRATA_KERNELS_CPU_DECODE_SIMPLE_H

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
    for (; i < blocks; i++)
        out[i] = load_half(block + 2 * i);
}

static void decode_bf16(const uint8_t *restrict block, uint64_t blocks, float *restrict out)
{
    for (uint64_t i = 0; i < blocks; i++) {
        uint16_t half;
        memcpy(&half, block + 2 * i, sizeof half);
        out[i] = float_of_bits((uint32_t)half << 16);
    }
}

static void decode_q4_0(const uint8_t *restrict block, uint64_t blocks, float *restrict out)
{
    for (uint64_t b = 0; b < blocks; b++, block += 18, out += 32) {
        int8_t codes[32];
        unpack_nibbles(block + 2, 16, codes);
        for (int i = 0; i < 32; i++)
            codes[i] = (int8_t)(codes[i] - 8);
        scale_codes(codes, 32, load_half(block), out);
    }
}

static void decode_q4_1(const uint8_t *restrict block, uint64_t blocks, float *restrict out)
{
    for (uint64_t b = 0; b < blocks; b++, block += 20, out += 32) {
        int8_t codes[32];
        unpack_nibbles(block + 4, 16, codes);
        scale_codes_offset(codes, 32, load_half(block), load_half(block + 2), out);
    }
}

/* Adds 16 where the bit of a 32-bit mask is set. */
static inline void add_fifth_bits(const uint8_t *restrict mask, int8_t *restrict codes)
{
    for (int byte = 0; byte < 4; byte++)
        for (int bit = 0; bit < 8; bit++)
            codes[8 * byte + bit] =
                (int8_t)(codes[8 * byte + bit] | (mask[byte] & 1 << bit ? 16 : 0));
}

static void decode_q5_0(const uint8_t *restrict block, uint64_t blocks, float *restrict out)
{
    for (uint64_t b = 0; b < blocks; b++, block += 22, out += 32) {
        int8_t codes[32];
        unpack_nibbles(block + 6, 16, codes);
        add_fifth_bits(block + 2, codes);
        for (int i = 0; i < 32; i++)
            codes[i] = (int8_t)(codes[i] - 16);
        scale_codes(codes, 32, load_half(block), out);
    }
}

static void decode_q5_1(const uint8_t *restrict block, uint64_t blocks, float *restrict out)
{
    for (uint64_t b = 0; b < blocks; b++, block += 24, out += 32) {
        int8_t codes[32];
        unpack_nibbles(block + 8, 16, codes);
        add_fifth_bits(block + 4, codes);
        scale_codes_offset(codes, 32, load_half(block), load_half(block + 2), out);
    }
}

static void decode_q8_0(const uint8_t *restrict block, uint64_t blocks, float *restrict out)
{
    for (uint64_t b = 0; b < blocks; b++, block += 34, out += 32)
        scale_codes((const int8_t *)(block + 2), 32, load_half(block), out);
}

/* Replaces 4-bit codes by their values in a table of 16. */
static inline void look_up_codes(const uint8_t *table, int n, int8_t *codes)
{
    for (int i = 0; i < n; i++)
        codes[i] = (int8_t)table[codes[i]];
}

static void decode_iq4_nl(const uint8_t *restrict block, uint64_t blocks, float *restrict out)
{
    for (uint64_t b = 0; b < blocks; b++, block += 18, out += 32) {
        int8_t codes[32];
        unpack_nibbles(block + 2, 16, codes);
        look_up_codes(strata__codes_iq4_nl, 32, codes);
        scale_codes(codes, 32, load_half(block), out);
    }
}

static void decode_mxfp4(const uint8_t *restrict block, uint64_t blocks, float *restrict out)
{
    for (uint64_t b = 0; b < blocks; b++, block += 17, out += 32) {
        int8_t codes[32];
        unpack_nibbles(block + 1, 16, codes);
        look_up_codes(strata__codes_mxfp4, 32, codes);
        /* Half of 2^(e - 127), since the table holds doubled values; subnormal for e < 2. */
        uint32_t e = block[0];
        float scale = float_of_bits(e < 2 ? 0x00200000u << e : (e - 1) << 23);
        scale_codes(codes, 32, scale, out);
    }
}

static void decode_q2_0(const uint8_t *restrict block, uint64_t blocks, float *restrict out)
{
    for (uint64_t b = 0; b < blocks; b++, block += 18, out += 64) {
        int8_t codes[64];
        for (int i = 0; i < 16; i++)
            for (int j = 0; j < 4; j++)
                codes[4 * i + j] = (int8_t)((block[2 + i] >> 2 * j & 3) - 1);
        scale_codes(codes, 64, load_half(block), out);
    }
}

#endif
