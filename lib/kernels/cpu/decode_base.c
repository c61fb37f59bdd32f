/* SPDX-License-Identifier: MIT */
#define STRATA__DECODERS strata__decode_base

#include "kernels/cpu/decode_body.h"
