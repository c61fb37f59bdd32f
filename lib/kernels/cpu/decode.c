/* SPDX-License-Identifier: MIT */
#include "kernels/cpu/decode.h"

#include "kernels/cpu/decode_level.h"

strata__cpu_level strata__cpu_best_level(void)
{
#if defined(STRATA__HAVE_X86_LEVELS)
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
        return STRATA__CPU_BASE;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return STRATA__CPU_AVX512;
    return STRATA__CPU_AVX2;
#else
    return STRATA__CPU_BASE;
#endif
}

static const strata__decode_fn *decoders(strata__cpu_level level)
{
#if defined(STRATA__HAVE_X86_LEVELS)
    if (level == STRATA__CPU_AVX512)
        return strata__decode_avx512;
    if (level == STRATA__CPU_AVX2)
        return strata__decode_avx2;
#endif
    (void)level;
    return strata__decode_base;
}

void strata__decode_row_level(strata__cpu_level level, uint32_t format, const void *blocks,
                              uint64_t values, float *out)
{
    decoders(level)[format](blocks, values / strata__format_find(format)->block_values, out);
}

void strata__decode_row(uint32_t format, const void *blocks, uint64_t values, float *out)
{
    strata__decode_row_level(strata__cpu_best_level(), format, blocks, values, out);
}

static const strata__dots_fn *dots(strata__cpu_level level)
{
#if defined(STRATA__HAVE_X86_LEVELS)
    if (level == STRATA__CPU_AVX512)
        return strata__dots_avx512;
    if (level == STRATA__CPU_AVX2)
        return strata__dots_avx2;
#endif
    (void)level;
    return strata__dots_base;
}

void strata__dots_level(strata__cpu_level level, uint32_t format, const void *weights,
                        uint64_t row_bytes, uint64_t values, uint32_t outputs, const float *row,
                        float *sums)
{
    dots(level)[format](weights, row_bytes, values / strata__format_find(format)->block_values,
                        outputs, row, sums);
}

static const strata__decode_int8_fn *int8_decoders(strata__cpu_level level)
{
#if defined(STRATA__HAVE_X86_LEVELS)
    if (level == STRATA__CPU_AVX512)
        return strata__decode_int8_avx512;
    if (level == STRATA__CPU_AVX2)
        return strata__decode_int8_avx2;
#endif
    (void)level;
    return strata__decode_int8_base;
}

void strata__decode_int8_level(strata__cpu_level level, uint32_t format, const void *blocks,
                               uint64_t values, int8_t *codes, float *scales, float *offsets)
{
    int8_decoders(level)[format](blocks, values / strata__format_find(format)->block_values, codes,
                                 scales, offsets);
}
