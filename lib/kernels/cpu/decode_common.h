/* SPDX-License-Identifier: MIT */
/* Loads, and conversions between bits and floats. */
#ifndef STRATA_KERNELS_CPU_DECODE_COMMON_H
#define STRATA_KERNELS_CPU_DECODE_COMMON_H

#include <stdint.h>
#include <string.h>

#if defined(__F16C__)
#include <immintrin.h>
#endif

static inline uint16_t load_u16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static inline uint32_t load_u32(const uint8_t *p)
{
    return (uint32_t)load_u16(p) | (uint32_t)load_u16(p + 2) << 16;
}

static inline float float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t bits_of_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float float_of_half(uint16_t half)
{
#if defined(__F16C__)
    return _cvtsh_ss(half);
#else
    /* Exponent and fraction move to their places; the product rebiases, also subnormals. */
    uint32_t magnitude = (uint32_t)(half & 0x7fff) << 13;
    uint32_t bits = bits_of_float(float_of_bits(magnitude) * 0x1p112f);
    if (magnitude >= 0x7c00u << 13)
        bits = 0x7f800000 | magnitude | (magnitude > 0x7c00u << 13 ? 0x400000u : 0);
    return float_of_bits(bits | (uint32_t)(half & 0x8000) << 16);
#endif
}

static inline float load_half(const uint8_t *p)
{
    return float_of_half(load_u16(p));
}

#endif
