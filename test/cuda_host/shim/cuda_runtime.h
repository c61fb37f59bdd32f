/* SPDX-License-Identifier: MIT */
/* What device code finds declared: its place, barriers, instructions of a warp, intrinsics. */
#ifndef STRATA_CUDA_HOST_RUNTIME_H
#define STRATA_CUDA_HOST_RUNTIME_H

#include <math.h>
#include <string.h>

#include "cuda_runtime_api.h"
#include "machine.h"
#include "ptx.h"

inline void __syncthreads()
{
    cuda_host::barrier(0, 0, false);
}

inline int __syncthreads_or(int value)
{
    return cuda_host::barrier(0, 0, value != 0);
}

inline void __syncwarp(uint32_t mask = 0xffffffffu)
{
    cuda_host::meet(mask, nullptr, [](void *const *, uint32_t) {});
}

inline void __threadfence()
{
}
inline void __threadfence_block()
{
}
inline void __threadfence_system()
{
}

namespace cuda_host
{

template <typename T> struct exchange {
    T value, result;
    uint32_t from; /* the lane whose value this lane gets */
};

template <typename T> T exchanged(uint32_t mask, T value, uint32_t from)
{
    exchange<T> own = {value, value, from};
    meet(mask, &own, [](void *const *operands, uint32_t lanes) {
        for (uint32_t lane = 0; lane < 32; lane++) {
            if (!(lanes >> lane & 1))
                continue;
            exchange<T> &to = *static_cast<exchange<T> *>(operands[lane]);
            if (!(lanes >> to.from & 1))
                fault("a shuffle reads lane %u, which takes no part", to.from);
            to.result = static_cast<exchange<T> *>(operands[to.from])->value;
        }
    });
    return own.result;
}

template <typename F> uint32_t reduced(uint32_t mask, uint32_t value, F)
{
    meet(mask, &value, [](void *const *operands, uint32_t lanes) {
        bool first = true;
        uint32_t all = 0;
        for (uint32_t lane = 0; lane < 32; lane++) {
            if (!(lanes >> lane & 1))
                continue;
            uint32_t one = *static_cast<uint32_t *>(operands[lane]);
            all = first ? F::start(one, lane) : F::join(all, one, lane);
            first = false;
        }
        for (uint32_t lane = 0; lane < 32; lane++)
            if (lanes >> lane & 1)
                *static_cast<uint32_t *>(operands[lane]) = all;
    });
    return value;
}

struct largest {
    static uint32_t start(uint32_t one, uint32_t)
    {
        return one;
    }
    static uint32_t join(uint32_t all, uint32_t one, uint32_t)
    {
        return all < one ? one : all;
    }
};

struct smallest : largest {
    static uint32_t join(uint32_t all, uint32_t one, uint32_t)
    {
        return all < one ? all : one;
    }
};

struct total : largest {
    static uint32_t join(uint32_t all, uint32_t one, uint32_t)
    {
        return all + one;
    }
};

struct votes {
    static uint32_t start(uint32_t one, uint32_t lane)
    {
        return one << lane;
    }
    static uint32_t join(uint32_t all, uint32_t one, uint32_t lane)
    {
        return all | one << lane;
    }
};

template <typename To, typename From> To same_bits(From from)
{
    static_assert(sizeof(To) == sizeof(From), "of one size");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}

} /* namespace cuda_host */

/* `width`: lanes of a segment, a power of two. */
template <typename T> T __shfl_sync(uint32_t mask, T value, uint32_t lane, uint32_t width = 32)
{
    uint32_t first = cuda_host::self->lane / width * width;
    return cuda_host::exchanged(mask, value, first + lane % width);
}

template <typename T> T __shfl_xor_sync(uint32_t mask, T value, uint32_t lanes)
{
    return cuda_host::exchanged(mask, value, cuda_host::self->lane ^ lanes);
}

template <typename T> T __shfl_up_sync(uint32_t mask, T value, uint32_t count)
{
    uint32_t lane = cuda_host::self->lane;
    return cuda_host::exchanged(mask, value, lane < count ? lane : lane - count);
}

template <typename T> T __shfl_down_sync(uint32_t mask, T value, uint32_t count)
{
    uint32_t lane = cuda_host::self->lane;
    return cuda_host::exchanged(mask, value, lane + count > 31 ? lane : lane + count);
}

inline uint32_t __ballot_sync(uint32_t mask, int value)
{
    return cuda_host::reduced(mask, value != 0, cuda_host::votes());
}

inline int __any_sync(uint32_t mask, int value)
{
    return __ballot_sync(mask, value) != 0;
}

inline int __all_sync(uint32_t mask, int value)
{
    return __ballot_sync(mask, !value) == 0;
}

inline uint32_t __umulhi(uint32_t a, uint32_t b)
{
    return (uint32_t)((uint64_t)a * b >> 32);
}

inline uint32_t __reduce_max_sync(uint32_t mask, uint32_t value)
{
    return cuda_host::reduced(mask, value, cuda_host::largest());
}

inline uint32_t __reduce_add_sync(uint32_t mask, uint32_t value)
{
    return cuda_host::reduced(mask, value, cuda_host::total());
}

inline uint32_t __reduce_min_sync(uint32_t mask, uint32_t value)
{
    return cuda_host::reduced(mask, value, cuda_host::smallest());
}

template <typename T> T __ldg(const T *p)
{
    return *p;
}

template <typename T> T __ldcs(const T *p)
{
    return *p;
}

/* Threads change at waits only, so that these are atomic as they are. */
template <typename T> T atomicAdd(T *p, T value)
{
    T before = *p;
    *p = before + value;
    return before;
}

template <typename T> T atomicOr(T *p, T value)
{
    T before = *p;
    *p = before | value;
    return before;
}

template <typename T> T atomicMax(T *p, T value)
{
    T before = *p;
    *p = before < value ? value : before;
    return before;
}

#define CUDA_HOST_MIN_MAX(type)                                                                    \
    inline type min(type a, type b)                                                                \
    {                                                                                              \
        return a < b ? a : b;                                                                      \
    }                                                                                              \
    inline type max(type a, type b)                                                                \
    {                                                                                              \
        return a < b ? b : a;                                                                      \
    }

CUDA_HOST_MIN_MAX(int)
CUDA_HOST_MIN_MAX(unsigned)
CUDA_HOST_MIN_MAX(unsigned long)
CUDA_HOST_MIN_MAX(float)

inline size_t __cvta_generic_to_shared(const void *p)
{
    return cuda_host::shared_offset(p);
}

inline uint32_t __float_as_uint(float x)
{
    return cuda_host::same_bits<uint32_t>(x);
}

inline int __float_as_int(float x)
{
    return cuda_host::same_bits<int>(x);
}

inline float __uint_as_float(uint32_t x)
{
    return cuda_host::same_bits<float>(x);
}

inline float __int_as_float(int x)
{
    return cuda_host::same_bits<float>(x);
}

/* Compiled without contraction: each of these rounds once. */
inline float __fmul_rn(float a, float b)
{
    return a * b;
}

inline float __fadd_rn(float a, float b)
{
    return a + b;
}

inline float __fsub_rn(float a, float b)
{
    return a - b;
}

inline float __fdiv_rn(float a, float b)
{
    return a / b;
}

inline float __frcp_rn(float a)
{
    return 1.0f / a;
}

inline float __fmaf_rn(float a, float b, float c)
{
    return fmaf(a, b, c);
}

inline float __fdividef(float a, float b)
{
    return a / b;
}

inline float __expf(float x)
{
    return expf(x);
}

inline void sincospif(float x, float *sine, float *cosine)
{
    double angle = fmod((double)x, 2.0) * 3.14159265358979323846;
    *sine = (float)sin(angle);
    *cosine = (float)cos(angle);
}

inline int __float2int_rn(float x)
{
    return (int)lrintf(x);
}

inline int __popc(uint32_t x)
{
    return __builtin_popcount(x);
}

inline int __clz(uint32_t x)
{
    return x ? __builtin_clz(x) : 32;
}

inline int __ffs(uint32_t x)
{
    return __builtin_ffs((int)x);
}

inline uint32_t __funnelshift_r(uint32_t low, uint32_t high, uint32_t shift)
{
    return (uint32_t)(((uint64_t)high << 32 | low) >> (shift & 31));
}

inline uint32_t __byte_perm(uint32_t a, uint32_t b, uint32_t selector)
{
    uint64_t both = (uint64_t)b << 32 | a;
    uint32_t result = 0;
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t s = selector >> 4 * i & 15;
        uint32_t byte = (uint32_t)(both >> 8 * (s & 7)) & 255;
        if (s & 8)
            byte = byte & 128 ? 255 : 0;
        result |= byte << 8 * i;
    }
    return result;
}

inline uint32_t __vadd4(uint32_t a, uint32_t b)
{
    return ((a & 0x7f7f7f7fu) + (b & 0x7f7f7f7fu)) ^ ((a ^ b) & 0x80808080u);
}

inline uint32_t __vsub4(uint32_t a, uint32_t b)
{
    return ((a | 0x80808080u) - (b & 0x7f7f7f7fu)) ^ ((a ^ ~b) & 0x80808080u);
}

/* Halves of `a`, signed, by the low two bytes of `b`, signed, and `c`. */
inline int __dp2a_lo(int a, int b, int c)
{
    return c + (int16_t)a * (int8_t)b + (int16_t)(a >> 16) * (int8_t)(b >> 8);
}

inline int __dp4a(int a, int b, int c)
{
    for (int i = 0; i < 32; i += 8)
        c += (int8_t)(a >> i) * (int8_t)(b >> i);
    return c;
}

#endif
