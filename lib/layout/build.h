/* SPDX-License-Identifier: MIT */
/* Inside lib/layout: from a problem and a choice to the tables. */
#ifndef STRATA_LAYOUT_BUILD_H
#define STRATA_LAYOUT_BUILD_H

#include "layout/problem.h"

/*
 * Resolves a choice: tiles that are 0 or too large are set and cut. STRATA_ERR_INVALID_ARGUMENT
 * names a number that cannot be. `resident` [layers] gets the residents.
 */
strata_status strata__layout_spec_init(const strata__layout_problem *problem,
                                       const strata__layout_choice *choice,
                                       strata__layout_spec *spec, uint32_t *resident);

/* 8 MiB, the size that a link moves at full rate. */
uint64_t strata__layout_default_group_bytes(void);

/* Bytes of two of the largest copy groups: the least a ring may have. */
uint64_t strata__layout_least_ring_bytes(const strata__layout_problem *problem,
                                         uint64_t group_bytes);

/* The tables of a choice. `problem` is used as room and stays valid. */
strata_status strata__layout_build_problem(strata__layout_problem *problem,
                                           const strata__layout_choice *choice,
                                           strata__layout **out);

#endif
