/* SPDX-License-Identifier: MIT */
/*
 * From codes and scales to the values that decoders put into a sink, which a source has chosen
 * before it includes decoders: sink_write.h or sink_dot.h.
 */
#ifndef STRATA_KERNELS_CPU_DECODE_PUT_H
#define STRATA_KERNELS_CPU_DECODE_PUT_H

#include "kernels/cpu/codes.h"
#include "kernels/cpu/decode_common.h"
#include "kernels/cpu/floats.h"

/* The sink's parts must become registers. */
#define DECODER inline __attribute__((always_inline, unused))

/* Before a loop whose turns take less than all places of a sink. */
#define DECODE_PAIRS _Pragma("GCC unroll 4")

/*
 * Scales that are loaded one by one, each into all places of a register. Compilers would rather
 * shuffle the register they come from, but shuffles have one port, while such loads are free. In
 * halves, since of 64 bytes just stored only the first half is at hand at once.
 */
static inline void store_scales(floats_16 x, float *scales)
{
#if defined(__AVX512F__)
    _mm256_storeu_ps(scales, _mm512_castps512_ps256(x.at[0]));
    _mm256_storeu_ps(scales + 8, _mm512_extractf32x8_ps(x.at[0], 1));
#else
    floats_store(x, scales);
#endif
#if defined(__AVX2__)
    __asm__("" : "+m"(*(float(*)[16])scales));
#endif
}

static inline void put_scaled(sink *out, int place, codes_16 codes, floats_16 scale)
{
    put(out, place, floats_multiply(scale, floats_of_codes(codes)));
}

static inline void put_scaled_offset(sink *out, int place, codes_16 codes, floats_16 scale,
                                     floats_16 offset)
{
    put(out, place, floats_add(floats_multiply(scale, floats_of_codes(codes)), offset));
}

/*
 * What each 4-bit code stands for. With AVX-512 that is a table in a register; else codes are
 * looked up where there is a table of them, made less, and scaled.
 */
#if defined(__AVX512F__)

typedef struct nibble_values {
    __m512 table;
} nibble_values;

static inline nibble_values nibbles_coded(const uint8_t *codes, floats_16 scale)
{
    return (nibble_values){floats_multiply(scale, floats_of_codes(codes_load(codes))).at[0]};
}

static inline __m512 nibbles_from(int first)
{
    const __m512i ascending =
        _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    return _mm512_cvtepi32_ps(_mm512_add_epi32(ascending, _mm512_set1_epi32(first)));
}

static inline nibble_values nibbles_scaled(int less, floats_16 scale)
{
    return (nibble_values){scale.at[0] * nibbles_from(-less)};
}

static inline nibble_values nibbles_scaled_offset(floats_16 scale, floats_16 offset)
{
    return (nibble_values){scale.at[0] * nibbles_from(0) + offset.at[0]};
}

/* Of sixteen bytes the low nibbles to one place, the high ones to another. */
static inline void put_nibbles(sink *out, int low_place, int high_place, const uint8_t *packed,
                               nibble_values low, nibble_values high)
{
    __m512i bytes = _mm512_cvtepu8_epi32(codes_load(packed)); /* the table is blind to high bits */
    put(out, low_place, (floats_16){{_mm512_permutexvar_ps(bytes, low.table)}});
    bytes = _mm512_srli_epi32(bytes, 4);
    put(out, high_place, (floats_16){{_mm512_permutexvar_ps(bytes, high.table)}});
}

#else

typedef struct nibble_values {
    const uint8_t *codes;
    int less;
    int has_offset;
    floats_16 scale, offset;
} nibble_values;

static inline nibble_values nibbles_coded(const uint8_t *codes, floats_16 scale)
{
    return (nibble_values){codes, 0, 0, scale, scale};
}

static inline nibble_values nibbles_scaled(int less, floats_16 scale)
{
    return (nibble_values){NULL, less, 0, scale, scale};
}

static inline nibble_values nibbles_scaled_offset(floats_16 scale, floats_16 offset)
{
    return (nibble_values){NULL, 0, 1, scale, offset};
}

static inline void put_nibble(sink *out, int place, codes_16 codes, nibble_values values)
{
    if (values.codes)
        codes = codes_look_up(codes, values.codes);
    if (values.less)
        codes = codes_less(codes, values.less);
    if (values.has_offset)
        put_scaled_offset(out, place, codes, values.scale, values.offset);
    else
        put_scaled(out, place, codes, values.scale);
}

static inline void put_nibbles(sink *out, int low_place, int high_place, const uint8_t *packed,
                               nibble_values low, nibble_values high)
{
    codes_16 bytes = codes_load(packed);
    put_nibble(out, low_place, codes_field(bytes, 0, 15), low);
    put_nibble(out, high_place, codes_field(bytes, 4, 15), high);
}

#endif

#endif
