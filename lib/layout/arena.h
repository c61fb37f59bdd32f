/* SPDX-License-Identifier: MIT */
/* Inside lib/layout: the configurations of a path vector, and the arena that holds the largest. */
#ifndef STRATA_LAYOUT_ARENA_H
#define STRATA_LAYOUT_ARENA_H

#include "layout/demand.h"

/*
 * Distinct configurations of a path vector, into problem->keys, in the order of layers and bands.
 * config_of[layers][bands] (or NULL) gets the number of each.
 */
uint32_t strata__layout_keys(strata__layout_problem *problem, const strata__layout_spec *spec,
                             const uint8_t *paths, uint16_t *config_of);

/* Buffers of a configuration, placed from 0 on; `key` NULL: the edge. Returns their number. */
uint32_t strata__layout_config_place(const strata__layout_problem *problem,
                                     const strata__layout_spec *spec, const strata__layout_key *key,
                                     strata__layout_buffer *out, uint64_t *out_bytes);

/* Bytes of the arena; with `bound` set only what no placement can be below, which is quicker. */
uint64_t strata__layout_arena_bytes(strata__layout_problem *problem,
                                    const strata__layout_spec *spec, const uint8_t *paths,
                                    bool bound);

#endif
