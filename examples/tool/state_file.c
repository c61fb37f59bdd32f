/* SPDX-License-Identifier: MIT */
#include "state_file.h"

#include "file.h"

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

bool state_options_check(const state_options *options, bool json)
{
    file_fault fault;
    if (!options->save_path || file_can_create(options->save_path, &fault))
        return true;
    tool_refuse(fault.status, json, "%s: %s", options->save_path, fault.text);
    return false;
}

static const char *kv_name(uint32_t format)
{
    return format <= STRATA_KV_F32 ? plan_kv_names[format] : "an unknown format";
}

bool state_options_apply(state_options *options, const plan_arguments *given, uint64_t new_tokens,
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
    if (given->is_kv_given && plan->kv_format != info.kv_format) {
        tool_refuse(STRATA_ERR_INVALID_ARGUMENT, json,
                    "--kv %s: the saved sequence %s has its KV cache in %s",
                    kv_name(plan->kv_format), options->path, kv_name(info.kv_format));
        return false;
    }
    options->tokens = info.tokens;
    if (!given->options.context_tokens)
        plan->context_tokens = info.tokens + new_tokens;
    plan->kv_format = info.kv_format;
    return true;
}

strata_status state_options_restore(const state_options *options, strata_session *session)
{
    return options->path ? strata_session_restore_path(session, 0, options->path) : STRATA_OK;
}

void state_options_save(const state_options *options, strata_session *session, failure *out)
{
    strata_status status = STRATA_OK;
    if (options->save_path)
        status = strata_session_save_path(session, 0, options->save_path);
    if (status != STRATA_OK)
        failure_of_call(out, "cannot save the sequence", status);
}
