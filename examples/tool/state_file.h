/* SPDX-License-Identifier: MIT */
/* A saved sequence to go on from, and one to be left for later: --state and --save-state. */
#ifndef STRATA_TOOL_STATE_FILE_H
#define STRATA_TOOL_STATE_FILE_H

#include <argp.h>
#include <stdbool.h>
#include <stdint.h>

#include <strata/strata.h>

#include "plan_options.h"
#include "tool.h"

typedef struct state_options {
    const char *path;      /* NULL: none */
    const char *save_path; /* NULL: none */
    uint64_t tokens;       /* of the saved sequence, once state_options_apply() has looked */
} state_options;

/* Child for a command's argp, whose input is a state_options. */
extern const struct argp state_argp;

/* Whether the sequence can be saved, as far as can be seen before; false, and told, when not. */
bool state_options_check(const state_options *options, bool json);

/*
 * Makes room for the saved sequence in a plan's context, which was made for `new_tokens` more, and
 * takes its KV format where none was asked for. False, and told, when it cannot be read, or has
 * another KV format than the one that was asked for.
 */
bool state_options_apply(state_options *options, const plan_arguments *given, uint64_t new_tokens,
                         bool json, strata_plan_options *plan);

/* Fills sequence 0. */
strata_status state_options_restore(const state_options *options, strata_session *session);

/* Saves sequence 0. */
void state_options_save(const state_options *options, strata_session *session, failure *out);

#endif
