/* SPDX-License-Identifier: MIT */
/* Halves: values are float32 that is rounded to half after each operation. */
#ifndef STRATA_CUDA_HOST_FP16_H
#define STRATA_CUDA_HOST_FP16_H

#include "cuda_runtime.h"
#include "half.h"

struct __half_raw {
    uint16_t x;
};

struct __half {
    uint16_t bits;

    __half() = default;
    __half(__half_raw raw) : bits(raw.x)
    {
    }
    operator __half_raw() const
    {
        return {bits};
    }
};

typedef __half half;

struct alignas(4) __half2 {
    __half x, y;
};

inline __half __ushort_as_half(unsigned short bits)
{
    return __half_raw{bits};
}

inline unsigned short __half_as_ushort(__half h)
{
    return h.bits;
}

inline float __half2float(__half h)
{
    return cuda_host::float_of(h.bits);
}

inline __half __float2half_rn(float x)
{
    return __half_raw{cuda_host::half_of(x)};
}

inline __half __float2half(float x)
{
    return __float2half_rn(x);
}

inline __half2 __halves2half2(__half x, __half y)
{
    return {x, y};
}

inline __half2 __half2half2(__half x)
{
    return {x, x};
}

inline __half2 __floats2half2_rn(float x, float y)
{
    return {__float2half_rn(x), __float2half_rn(y)};
}

inline __half2 __float2half2_rn(float x)
{
    return __floats2half2_rn(x, x);
}

inline float2 __half22float2(__half2 h)
{
    return {__half2float(h.x), __half2float(h.y)};
}

/* Sums and products of halves are exact in float64, so that they are rounded once. */
inline __half __hadd(__half a, __half b)
{
    return __float2half_rn(__half2float(a) + __half2float(b));
}

inline __half2 __hadd2(__half2 a, __half2 b)
{
    return {__hadd(a.x, b.x), __hadd(a.y, b.y)};
}

inline __half __hsub(__half a, __half b)
{
    return __float2half_rn(__half2float(a) - __half2float(b));
}

inline __half2 __hsub2(__half2 a, __half2 b)
{
    return {__hsub(a.x, b.x), __hsub(a.y, b.y)};
}

inline __half __hmul(__half a, __half b)
{
    return __float2half_rn(__half2float(a) * __half2float(b));
}

inline __half2 __hmul2(__half2 a, __half2 b)
{
    return {__hmul(a.x, b.x), __hmul(a.y, b.y)};
}

inline __half __hfma(__half a, __half b, __half c)
{
    double sum = (double)__half2float(a) * __half2float(b) + __half2float(c);
    return __half_raw{cuda_host::half_of_double(sum)};
}

inline __half2 __hfma2(__half2 a, __half2 b, __half2 c)
{
    return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
}

inline __half __hmin(__half a, __half b)
{
    return __float2half_rn(fminf(__half2float(a), __half2float(b)));
}

inline __half __hmax(__half a, __half b)
{
    return __float2half_rn(fmaxf(__half2float(a), __half2float(b)));
}

inline __half2 __hmin2(__half2 a, __half2 b)
{
    return {__hmin(a.x, b.x), __hmin(a.y, b.y)};
}

inline __half2 __hmax2(__half2 a, __half2 b)
{
    return {__hmax(a.x, b.x), __hmax(a.y, b.y)};
}

#endif
