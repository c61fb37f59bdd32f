/* SPDX-License-Identifier: MIT */
/* The decoders compiled once per instruction set; see decode_body.h. */
#ifndef STRATA_KERNELS_CPU_DECODE_LEVEL_H
#define STRATA_KERNELS_CPU_DECODE_LEVEL_H

#include <stdint.h>

#include "base/format.h"

typedef void (*strata__decode_fn)(const uint8_t *restrict block, uint64_t blocks,
                                  float *restrict out);

/* Indexed by strata__format; NULL where the format does not exist. */
extern const strata__decode_fn strata__decode_base[STRATA__FORMAT_LIMIT];
#if defined(STRATA__HAVE_X86_LEVELS)
extern const strata__decode_fn strata__decode_avx2[STRATA__FORMAT_LIMIT];
extern const strata__decode_fn strata__decode_avx512[STRATA__FORMAT_LIMIT];
#endif

#endif
