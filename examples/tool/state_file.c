/* SPDX-License-Identifier: MIT */
#include "state_file.h"

#include "tool.h"

enum { KEY_STATE = 0x500, KEY_SAVE_STATE };

static const struct argp_option option_table[] = {
    {"state", KEY_STATE, "FILE", 0, "Go on from a sequence of --save-state; the prompt follows it",
     2},
    {"save-state", KEY_SAVE_STATE, "FILE", 0,
     "Save the sequence: all tokens that were read, for --state", 2},
    {0},
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    state_options *options = state->input;
    switch (key) {
    case KEY_STATE:
        options->path = arg;
        return 0;
    case KEY_SAVE_STATE:
        options->save_path = arg;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

const struct argp state_argp = {option_table, parse_option, 0, 0, 0, 0, 0};

bool state_options_apply(state_options *options, bool is_context_given, uint64_t new_tokens,
                         bool json, strata_plan_options *plan)
{
    strata_state_info info = {.struct_size = sizeof info};
    strata_status status;
    if (!options->path)
        return true;
    status = strata_state_info_path(options->path, &info);
    if (status != STRATA_OK) {
        tool_fail("cannot read the saved sequence", status, json);
        return false;
    }
    options->tokens = info.tokens;
    if (!is_context_given)
        plan->context_tokens = info.tokens + new_tokens;
    if (plan->kv_format == STRATA_KV_F16)
        plan->kv_format = info.kv_format;
    return true;
}

strata_status state_options_restore(const state_options *options, strata_session *session)
{
    return options->path ? strata_session_restore_path(session, 0, options->path) : STRATA_OK;
}

strata_status state_options_save(const state_options *options, strata_session *session)
{
    return options->save_path ? strata_session_save_path(session, 0, options->save_path)
                              : STRATA_OK;
}
