/* SPDX-License-Identifier: MIT */
/* A caller's plan options, which sessions take too. */
#ifndef STRATA_API_PLAN_OPTIONS_H
#define STRATA_API_PLAN_OPTIONS_H

#include <strata/plan.h>

/* Copies options and the facts they point to; `caller` NULL: the defaults. */
strata_status strata__plan_options_in(const strata_plan_options *caller,
                                      strata_plan_options *options, strata_device_facts *facts);

#endif
