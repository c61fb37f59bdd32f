/* SPDX-License-Identifier: MIT */
#define STRATA__DECODERS      strata__decode_avx2
#define STRATA__INT8_DECODERS strata__decode_int8_avx2

#include "kernels/cpu/decode_body.h"
