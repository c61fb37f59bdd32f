/* SPDX-License-Identifier: MIT */
#define STRATA__CODE strata__code_base

#include "kernels/cpu/code_body.h"
