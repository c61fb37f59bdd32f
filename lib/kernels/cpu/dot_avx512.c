/* SPDX-License-Identifier: MIT */
#define STRATA__DOTS strata__dots_avx512

#include "kernels/cpu/dot_body.h"
