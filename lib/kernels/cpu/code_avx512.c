/* SPDX-License-Identifier: MIT */
#define STRATA__CODE strata__code_avx512

#include "kernels/cpu/code_body.h"
