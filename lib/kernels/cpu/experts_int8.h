/* SPDX-License-Identifier: MIT */
/* The experts' products on paths fused and mmq. */
#ifndef STRATA_KERNELS_CPU_EXPERTS_INT8_H
#define STRATA_KERNELS_CPU_EXPERTS_INT8_H

#include "kernels/cpu/cpu.h"

static inline bool strata__int8_path(uint32_t path)
{
    return path == STRATA__PATH_FUSED || path == STRATA__PATH_MMQ;
}

strata_status strata__int8_check_gate_up(const strata__gate_up_args *args);
strata_status strata__int8_check_down(const strata__down_args *args);

void strata__int8_gate_up(strata__cpu_kernels *cpu, const strata__gate_up_args *args);
void strata__int8_down(strata__cpu_kernels *cpu, const strata__down_args *args);

#endif
