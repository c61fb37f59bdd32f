/* SPDX-License-Identifier: MIT */
/* A plan: a layout that is shared by whoever holds a reference. */
#ifndef STRATA_SESSION_PLAN_H
#define STRATA_SESSION_PLAN_H

#include <stdatomic.h>

#include <strata/plan.h>

#include "base/context.h"
#include "layout/layout.h"

struct strata_plan {
    atomic_uint references;
    strata_context *context; /* retained */
    strata__layout *layout;
};

strata_status strata__plan_create(strata_context *context, const strata__layout_input *input,
                                  strata_plan **out);
strata_plan *strata__plan_retain(strata_plan *plan);
void strata__plan_release(strata_plan *plan); /* NULL is legal */

#endif
