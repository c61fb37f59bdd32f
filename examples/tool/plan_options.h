/* SPDX-License-Identifier: MIT */
/* Options that a plan is made from, for every command that makes one. */
#ifndef STRATA_TOOL_PLAN_OPTIONS_H
#define STRATA_TOOL_PLAN_OPTIONS_H

#include <argp.h>
#include <stdbool.h>

#include <strata/plan.h>

typedef struct plan_arguments {
    strata_plan_options options;
    bool is_given;    /* any of them */
    bool is_kv_given; /* the KV format, whose default may give way */
    const char *costs_path;
} plan_arguments;

/* Child for a command's argp, whose input is a plan_arguments; it fills the defaults. */
extern const struct argp plan_argp;

/* "f16", "q8_0", "f32", NULL, in the order of STRATA_KV_*. */
extern const char *const plan_kv_names[];

/* Reads the costs that were given as a file; false, and told, when that cannot be done. */
bool plan_options_read(plan_arguments *arguments, bool json);

#endif
