/* SPDX-License-Identifier: MIT */
/* A plan: a layout, what it was made for, and references by whoever holds it. */
#ifndef STRATA_SESSION_PLAN_H
#define STRATA_SESSION_PLAN_H

#include <stdatomic.h>

#include <strata/plan.h>

#include "base/context.h"
#include "layout/layout.h"
#include "pack/pack.h"

struct strata_plan {
    atomic_uint references;
    strata_context *context; /* retained */
    uint64_t pack_fingerprint;
    strata__layout *layout;
};

/* A plan for a pack that `input` was made from. */
strata_status strata__plan_create(const strata__pack *pack, const strata__layout_input *input,
                                  strata_plan **out);

/* A plan of strata__plan_save()'s bytes, which may be anything. */
strata_status strata__plan_load(strata__pack *pack, const void *data, uint64_t bytes,
                                strata_plan **out);

/* Bytes of a saved plan; they are written when they fit. */
uint64_t strata__plan_save(const strata_plan *plan, void *out, uint64_t capacity);

/*
 * Whether the layout's sizes hold for a pack on a device: STRATA_ERR_INVALID_ARGUMENT for another
 * pack, or a device whose buffers have other sizes, by name.
 */
strata_status strata__plan_check(const strata_plan *plan, const strata__pack *pack,
                                 const strata__layout_facts *facts);

strata_plan *strata__plan_retain(strata_plan *plan);
void strata__plan_release(strata_plan *plan); /* NULL is legal */

#endif
