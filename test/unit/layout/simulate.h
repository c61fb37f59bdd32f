/* SPDX-License-Identifier: MIT */
/*
 * A model of every launch of a step. Each writes its rows, of a size computed here and not taken
 * from the tables, at the planned offsets in real memory between guard zones; each reader checks
 * that what it needs still has what its writer left.
 */
#ifndef TEST_LAYOUT_SIMULATE_H
#define TEST_LAYOUT_SIMULATE_H

#include "layout_fixture.h"

typedef struct simulation simulation;

simulation *simulation_make(const layout_fixture *f, const strata__layout *layout,
                            const strata__layout_work *work, uint64_t region_bytes);

/*
 * One step of `rows` tokens through all layers and the logits; fails the test at the first fault.
 */
void simulation_step(simulation *s, uint32_t rows);

/* Fails the test where a byte of capacity was reached by no launch of all steps so far. */
void simulation_reached(const simulation *s);

void simulation_free(simulation *s);

#endif
