/* SPDX-License-Identifier: MIT */
#define STRATA__DECODERS strata__decode_avx512

#include "kernels/cpu/decode_body.h"
