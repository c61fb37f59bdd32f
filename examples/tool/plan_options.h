/* SPDX-License-Identifier: MIT */
/* Options that a plan is made from, for every command that makes one. */
#ifndef STRATA_TOOL_PLAN_OPTIONS_H
#define STRATA_TOOL_PLAN_OPTIONS_H

#include <argp.h>
#include <stdbool.h>

#include <strata/plan.h>

/* Child for a command's argp, whose input is a strata_plan_options; it fills the defaults. */
extern const struct argp plan_argp;

/* "f16", "q8_0", "f32", NULL, in the order of STRATA_KV_*. */
extern const char *const plan_kv_names[];

/* One of plan_argp's options was given. */
bool plan_options_given(const strata_plan_options *options);

#endif
