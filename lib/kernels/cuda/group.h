/* SPDX-License-Identifier: MIT */
/* What the layout must know of the grouping of rows: its scratch is blocks x experts counts. */
#ifndef STRATA_KERNELS_CUDA_GROUP_H
#define STRATA_KERNELS_CUDA_GROUP_H

enum { STRATA__GROUP_BLOCKS = 128, STRATA__GROUP_BYTES_PER_EXPERT = STRATA__GROUP_BLOCKS * 4 };

#endif
