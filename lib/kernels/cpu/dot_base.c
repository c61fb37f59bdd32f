/* SPDX-License-Identifier: MIT */
#define STRATA__DOTS strata__dots_base

#include "kernels/cpu/dot_body.h"
