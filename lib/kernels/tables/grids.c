/* SPDX-License-Identifier: MIT */
#include "kernels/tables/grids.h"

#define STRATA__TABLE(type, name, count) const type name[count]

#include "kernels/tables/grids.inc"
