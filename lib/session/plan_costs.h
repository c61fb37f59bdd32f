/* SPDX-License-Identifier: MIT */
/* What expert products cost, by path and format: built in, and as text. */
#ifndef STRATA_SESSION_PLAN_COSTS_H
#define STRATA_SESSION_PLAN_COSTS_H

#include "base/format.h"
#include "layout/layout.h"

/* Per second at many rows an expert; half_rows: rows an expert at half of that. */
typedef struct strata__plan_costs {
    double flops[STRATA__LAYOUT_PATH_COUNT][STRATA__FORMAT_LIMIT];
    double half_rows[STRATA__LAYOUT_PATH_COUNT];
} strata__plan_costs;

/* Of a device with these facts: their rates, with shares for the int8 forms of formats. */
void strata__plan_costs_default(const strata__layout_facts *facts, strata__plan_costs *out);

/*
 * The text over what is in `inout`. STRATA_ERR_INVALID_ARGUMENT names the line, or the compute
 * capability that the costs are for, if it is not the given one.
 */
strata_status strata__plan_costs_parse(const char *text, uint32_t compute_capability,
                                       strata__plan_costs *inout);

/* Rates of a layer: gate, up and down one after the other. */
void strata__plan_costs_layer(const strata__plan_costs *costs, strata__layout_layer *layer);

#endif
