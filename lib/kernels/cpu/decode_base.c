/* SPDX-License-Identifier: MIT */
#define STRATA__DECODERS      strata__decode_base
#define STRATA__INT8_DECODERS strata__decode_int8_base

#include "kernels/cpu/decode_body.h"
