/* SPDX-License-Identifier: MIT */
#include "kernels/cpu/code.h"

const strata__cpu_code *strata__cpu_code_of(strata__cpu_level level)
{
#if defined(STRATA__HAVE_X86_LEVELS)
    if (level == STRATA__CPU_AVX512)
        return &strata__code_avx512;
    if (level == STRATA__CPU_AVX2)
        return &strata__code_avx2;
#endif
    (void)level;
    return &strata__code_base;
}
