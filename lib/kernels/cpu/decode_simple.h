/* SPDX-License-Identifier: MIT */
/* Plain types and formats with blocks of 32 or 64 values. */
#ifndef STRATA_KERNELS_CPU_DECODE_SIMPLE_H
#define STRATA_KERNELS_CPU_DECODE_SIMPLE_H

#include "kernels/cpu/decode_put.h"
#include "kernels/tables/grids.h"

static DECODER void decode_f32(const uint8_t *block, uint64_t blocks, sink *out)
{
    DECODE_PAIRS
    for (; blocks >= 16; blocks -= 16, block += 64) {
        put(out, 0, floats_load(block));
        advance(out, 16);
    }
    if (!blocks)
        return;
    float rest[16] = {0};
    memcpy(rest, block, blocks * sizeof *rest);
    put_rest(out, rest, blocks);
}

static DECODER void decode_f16(const uint8_t *block, uint64_t blocks, sink *out)
{
    DECODE_PAIRS
    for (; blocks >= 16; blocks -= 16, block += 32) {
        put(out, 0, floats_of_halves(block));
        advance(out, 16);
    }
    if (!blocks)
        return;
    float rest[16] = {0};
    for (uint64_t i = 0; i < blocks; i++)
        rest[i] = load_half(block + 2 * i);
    put_rest(out, rest, blocks);
}

static DECODER void decode_bf16(const uint8_t *block, uint64_t blocks, sink *out)
{
    DECODE_PAIRS
    for (; blocks >= 16; blocks -= 16, block += 32) {
        put(out, 0, floats_of_bf16(block));
        advance(out, 16);
    }
    if (!blocks)
        return;
    float rest[16] = {0};
    for (uint64_t i = 0; i < blocks; i++)
        rest[i] = float_of_bits((uint32_t)load_u16(block + 2 * i) << 16);
    put_rest(out, rest, blocks);
}

/* Low nibbles of sixteen bytes are values 0 to 15, high ones 16 to 31. */
static DECODER void decode_q4_0(const uint8_t *block, uint64_t blocks, sink *out)
{
    DECODE_PAIRS
    for (uint64_t b = 0; b < blocks; b++, block += 18) {
        nibble_values values = nibbles_scaled(8, floats_all_half(block));
        put_nibbles(out, 0, 16, block + 2, values, values);
        advance(out, 32);
    }
}

static DECODER void decode_q4_1(const uint8_t *block, uint64_t blocks, sink *out)
{
    DECODE_PAIRS
    for (uint64_t b = 0; b < blocks; b++, block += 20) {
        nibble_values values =
            nibbles_scaled_offset(floats_all_half(block), floats_all_half(block + 2));
        put_nibbles(out, 0, 16, block + 4, values, values);
        advance(out, 32);
    }
}

/* A nibble of each byte with a fifth bit from a word. */
static inline codes_16 five_bits(const uint8_t *packed, int shift, uint32_t word)
{
    return codes_or(codes_field(codes_load(packed), shift, 15), codes_of_bits(word, 16));
}

static DECODER void decode_q5_0(const uint8_t *block, uint64_t blocks, sink *out)
{
    DECODE_PAIRS
    for (uint64_t b = 0; b < blocks; b++, block += 22) {
        floats_16 d = floats_all_half(block);
        put_scaled(out, 0, codes_less(five_bits(block + 6, 0, load_u16(block + 2)), 16), d);
        put_scaled(out, 16, codes_less(five_bits(block + 6, 4, load_u16(block + 4)), 16), d);
        advance(out, 32);
    }
}

static DECODER void decode_q5_1(const uint8_t *block, uint64_t blocks, sink *out)
{
    DECODE_PAIRS
    for (uint64_t b = 0; b < blocks; b++, block += 24) {
        floats_16 d = floats_all_half(block), minimum = floats_all_half(block + 2);
        put_scaled_offset(out, 0, five_bits(block + 8, 0, load_u16(block + 4)), d, minimum);
        put_scaled_offset(out, 16, five_bits(block + 8, 4, load_u16(block + 6)), d, minimum);
        advance(out, 32);
    }
}

static DECODER void decode_q8_0(const uint8_t *block, uint64_t blocks, sink *out)
{
    DECODE_PAIRS
    for (uint64_t b = 0; b < blocks; b++, block += 34) {
        floats_16 d = floats_all_half(block);
        put_scaled(out, 0, codes_load(block + 2), d);
        put_scaled(out, 16, codes_load(block + 18), d);
        advance(out, 32);
    }
}

static DECODER void decode_iq4_nl(const uint8_t *block, uint64_t blocks, sink *out)
{
    DECODE_PAIRS
    for (uint64_t b = 0; b < blocks; b++, block += 18) {
        nibble_values values = nibbles_coded(strata__codes_iq4_nl, floats_all_half(block));
        put_nibbles(out, 0, 16, block + 2, values, values);
        advance(out, 32);
    }
}

static DECODER void decode_mxfp4(const uint8_t *block, uint64_t blocks, sink *out)
{
    DECODE_PAIRS
    for (uint64_t b = 0; b < blocks; b++, block += 17) {
        /* Half of 2^(e - 127), since the table holds doubled values; subnormal for e < 2. */
        uint32_t e = block[0];
        float scale = float_of_bits(e < 2 ? 0x00200000u << e : (e - 1) << 23);
        nibble_values values = nibbles_coded(strata__codes_mxfp4, floats_all(scale));
        put_nibbles(out, 0, 16, block + 1, values, values);
        advance(out, 32);
    }
}

static DECODER void decode_q2_0(const uint8_t *block, uint64_t blocks, sink *out)
{
    for (uint64_t b = 0; b < blocks; b++, block += 18) {
        floats_16 d = floats_all_half(block);
        for (int i = 0; i < 4; i++)
            put_scaled(out, 16 * i, codes_less(codes_of_pairs(load_u32(block + 2 + 4 * i)), 1), d);
        advance(out, 64);
    }
}

#endif
