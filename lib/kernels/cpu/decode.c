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

/* What is compiled once for each instruction set, by formats. */
typedef struct level_tables {
    const strata__decode_fn *decode;
    const strata__decode_int8_fn *decode_int8;
    const strata__dots_fn *dots;
} level_tables;

static const level_tables levels[] = {
    [STRATA__CPU_BASE] = {strata__decode_base, strata__decode_int8_base, strata__dots_base},
#if defined(STRATA__HAVE_X86_LEVELS)
    [STRATA__CPU_AVX2] = {strata__decode_avx2, strata__decode_int8_avx2, strata__dots_avx2},
    [STRATA__CPU_AVX512] = {strata__decode_avx512, strata__decode_int8_avx512, strata__dots_avx512},
#endif
};

void strata__decode_row_level(strata__cpu_level level, uint32_t format, const void *blocks,
                              uint64_t values, float *out)
{
    levels[level].decode[format](blocks, values / strata__format_find(format)->block_values, out);
}

void strata__decode_row(uint32_t format, const void *blocks, uint64_t values, float *out)
{
    strata__decode_row_level(strata__cpu_best_level(), format, blocks, values, out);
}

void strata__dots_level(strata__cpu_level level, uint32_t format, const void *weights,
                        uint64_t row_bytes, uint64_t values, uint32_t outputs, const float *row,
                        float *sums)
{
    levels[level].dots[format](
        weights, row_bytes, values / strata__format_find(format)->block_values, outputs, row, sums);
}

void strata__decode_int8_level(strata__cpu_level level, uint32_t format, const void *blocks,
                               uint64_t values, int8_t *codes, float *scales, float *offsets)
{
    levels[level].decode_int8[format](blocks, values / strata__format_find(format)->block_values,
                                      codes, scales, offsets);
}
