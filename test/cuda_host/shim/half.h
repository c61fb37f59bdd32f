/* SPDX-License-Identifier: MIT */
/* Bits of a half from and to float32 and float64. */
#ifndef STRATA_CUDA_HOST_HALF_H
#define STRATA_CUDA_HOST_HALF_H

#include <math.h>
#include <stdint.h>
#include <string.h>

namespace cuda_host
{

inline float float_of(uint16_t half)
{
    uint32_t bits = (uint32_t)(half & 0x7fff) << 13;
    float value;
    if ((half & 0x7c00) == 0x7c00)
        bits |= 0x7f800000u;
    memcpy(&value, &bits, 4);
    if ((half & 0x7c00) != 0x7c00)
        value *= 0x1p112f;
    return half & 0x8000 ? -value : value;
}

/* Rounded to nearest, ties to even. */
inline uint16_t half_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, 4);
    uint32_t sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffffu;
    if (rest > 0x7f800000u)
        return 0x7fff;
    if (rest >= 0x47800000u)
        return (uint16_t)(sign | 0x7c00);
    if (rest < 0x38800000u) {
        /* A subnormal half is a multiple of 2^-24: adding 2^-1 leaves those of float32. */
        float magnitude;
        memcpy(&magnitude, &rest, 4);
        magnitude += 0.5f;
        memcpy(&rest, &magnitude, 4);
        return (uint16_t)(sign | (rest - 0x3f000000u));
    }
    rest += 0xfff + (rest >> 13 & 1);
    return (uint16_t)(sign | (rest - 0x38000000u) >> 13);
}

/* Through float32 rounded to odd, so that the second rounding is the only one. */
inline uint16_t half_of_double(double value)
{
    float low = (float)value;
    if (isfinite(low) && (double)low != value) {
        uint32_t bits;
        if (fabs((double)low) > fabs(value))
            low = nextafterf(low, 0.0f);
        memcpy(&bits, &low, 4);
        bits |= 1;
        memcpy(&low, &bits, 4);
    }
    return half_of(low);
}

} /* namespace cuda_host */

#endif
