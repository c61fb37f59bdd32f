/* SPDX-License-Identifier: MIT */
/* Inside lib/layout: the path vector, one path per layer and band. */
#ifndef STRATA_LAYOUT_PATH_H
#define STRATA_LAYOUT_PATH_H

#include "layout/problem.h"

/*
 * Whether the device runs a path at all: STRATA_ERR_UNSUPPORTED with the reason when it does not.
 */
strata_status strata__layout_path_on_device(const strata__layout_facts *facts, uint32_t path);

/* Whether a path's kernels take the layer's formats. */
bool strata__layout_path_covers(const strata__layout_facts *facts, uint32_t path,
                                const strata__layout_layer *layer);

/* Refuses a policy by name: a path without kernels, an exception that does not cover its layer. */
strata_status strata__layout_policy_check(const strata__layout_problem *problem);

/* Chooses for every layer and band. `reasons` may be NULL. Both are [layers][bands]. */
strata_status strata__layout_paths_choose(const strata__layout_problem *problem,
                                          const strata__layout_spec *spec, uint8_t *paths,
                                          uint8_t *reasons);

/* Checks a vector made elsewhere: STRATA_ERR_UNSUPPORTED for a path that its layer cannot take. */
strata_status strata__layout_paths_check(const strata__layout_problem *problem,
                                         const strata__layout_spec *spec, const uint8_t *paths);

#endif
