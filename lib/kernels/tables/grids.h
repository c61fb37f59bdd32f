/* SPDX-License-Identifier: MIT */
/*
 * Codebooks and sign tables of the IQ formats and of IQ4_NL and MXFP4.
 *
 * The numbers are in grids.inc, which is generated. It holds definitions of the form
 * STRATA__TABLE(type, name, count) = {...}; so that a CUDA source can define STRATA__TABLE as it
 * likes (`static __device__ const type name[count]`) and include it; C sources use this header.
 *
 * A grid point is a little-endian word whose byte i is value i as int8: magnitudes for IQ2 and IQ3
 * (signs come from the block), -1, 0 and 1 for IQ1.
 */
#ifndef STRATA_KERNELS_TABLES_GRIDS_H
#define STRATA_KERNELS_TABLES_GRIDS_H

#include <stdint.h>

extern const uint64_t strata__grid_iq2_xxs[256];
extern const uint64_t strata__grid_iq2_xs[512];
extern const uint64_t strata__grid_iq2_s[1024];
extern const uint64_t strata__grid_iq1[2048]; /* IQ1_S and IQ1_M */
extern const uint32_t strata__grid_iq3_xxs[256];
extern const uint32_t strata__grid_iq3_s[512];

/* Mask of a sign byte: byte i is 0xff when bit i is set. */
extern const uint64_t strata__sign_masks[256];
/* Sign byte of a 7-bit sign index: bit 7 makes the number of set bits even. */
extern const uint8_t strata__sign_bytes[128];

/* Values of 4-bit codes, as int8; those of MXFP4 are doubled. */
extern const uint8_t strata__codes_iq4_nl[16];
extern const uint8_t strata__codes_mxfp4[16];

#endif
