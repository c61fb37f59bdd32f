/* SPDX-License-Identifier: MIT */
/* strata prefill: reads a prompt and shows the likeliest next tokens. */
#include <argp.h>
#include <stdlib.h>
#include <string.h>

#include "file.h"
#include "option_values.h"
#include "prefill.h"
#include "progress.h"
#include "run_options.h"
#include "state_file.h"
#include "stats.h"
#include "text.h"
#include "tool.h"

enum { KEY_LOGITS = 0x200, KEY_ALL_LOGITS, KEY_TOP, KEY_PLAN };

static const struct argp_option option_table[] = {
    {0, 0, 0, 0, "Answer:", 4},
    {"top", KEY_TOP, "N", 0, "Likeliest next tokens to show, 5 by default", 4},
    {"logits", KEY_LOGITS, "FILE", 0, "Write the last position's logits as little-endian float32",
     4},
    {"plan", KEY_PLAN, "FILE", 0, "Run on a plan of \"strata plan --save\", with its options", 2},
    {"all-logits", KEY_ALL_LOGITS, 0, 0, "With --logits: those of all positions, in order", 4},
    {0},
};

typedef struct arguments {
    run_options run;
    pack_arguments in;
    state_options state;
    const char *logits_path;
    const char *plan_path;
    bool all_logits;
    uint64_t top;
} arguments;

static void check(const arguments *a, const struct argp_state *state)
{
    run_options_check(&a->run, state);
    if (a->plan_path && (a->run.plan.is_given || a->run.lend))
        argp_error(state, "--plan has budgets, context, chunk, path, kv, experts and costs of its "
                          "own, and lends nothing");
    if (a->all_logits && !a->logits_path)
        argp_error(state, "--all-logits goes with --logits FILE");
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    arguments *a = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &a->in;
        state->child_inputs[1] = &a->run;
        state->child_inputs[2] = &a->run;
        state->child_inputs[3] = &a->state;
        return 0;
    case KEY_TOP:
        if (!parse_u64(arg, &a->top) || a->top > 1000)
            argp_error(state, "--top: \"%s\" is not a number from 0 to 1000", arg);
        return 0;
    case KEY_LOGITS:
        a->logits_path = arg;
        return 0;
    case KEY_PLAN:
        a->plan_path = arg;
        return 0;
    case KEY_ALL_LOGITS:
        a->all_logits = true;
        return 0;
    case ARGP_KEY_END:
        check(a, state);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static void save(const arguments *a, strata_session *session, const prefill_answer *answer,
                 failure *unsaved)
{
    state_options_save(&a->state, session, unsaved);
    if (a->run.profile_path)
        profile_write(a->run.profile_path, session, unsaved);
    if (a->logits_path)
        prefill_answer_save(answer, a->logits_path, unsaved);
}

/* What was read and what could not be saved of it, in text before that is told. */
static int finish(const arguments *a, strata_session *session, const prefill_answer *answer)
{
    failure unsaved = {0};
    if (!a->in.json) {
        prefill_answer_text(answer, a->top, stdout);
        fflush(stdout);
    }
    save(a, session, answer, &unsaved);
    if (a->in.json)
        prefill_answer_json(answer, a->top, &unsaved, stdout);
    return unsaved.status == STRATA_OK ? TOOL_OK : TOOL_FAILED;
}

static int read_prompt(const arguments *a, strata_session *session, prefill_answer *answer)
{
    strata_prefill_options prefill_options;
    strata_prefill *prefill = NULL;
    strata_status status;
    run_options_prefill(&a->run, &prefill_options);
    status = state_options_restore(&a->state, session);
    if (status != STRATA_OK)
        return tool_fail("cannot restore the sequence", status, a->in.json);
    status = strata_prefill_create(session, &prefill_options, &prefill);
    if (status == STRATA_OK)
        status = prefill_answer_read(answer, session, prefill, a->all_logits);
    if (status == STRATA_ERR_CANCELLED)
        tool_message("stopped after %s",
                     text_of_count(answer->result.sequence_tokens, "token").text);
    strata_prefill_destroy(prefill);
    if (status != STRATA_OK)
        return tool_fail("cannot read the prompt", status, a->in.json);
    return finish(a, session, answer);
}

/* Makes a session, of a plan or by options, and reads the prompt. */
static int run_session(arguments *a, strata_pack *pack, prefill_answer *answer)
{
    strata_session_options session_options;
    strata_plan_options plan_options;
    strata_session *session = NULL;
    strata_plan *plan = NULL;
    void *profile;
    int code;
    strata_status status = STRATA_OK;
    run_options_apply(&a->run, answer->tokens.count, &session_options, &plan_options);
    if (!state_options_apply(&a->state, &a->run.plan, answer->tokens.count, a->in.json,
                             &plan_options) ||
        !run_options_profile(&a->run, a->in.json, &session_options, &profile))
        return TOOL_FAILED;
    if (a->plan_path) {
        status = strata_plan_load_path(pack, a->plan_path, &plan);
        session_options.plan = plan;
        session_options.plan_options = NULL;
    }
    if (status == STRATA_OK)
        status = strata_session_create(pack, &session_options, &session);
    strata_plan_destroy(plan);
    free(profile);
    if (status != STRATA_OK)
        return tool_fail("cannot make a session", status, a->in.json);
    code = read_prompt(a, session, answer);
    strata_session_destroy(session);
    return code;
}

static int answer_prompt(arguments *a, strata_pack *pack, prefill_answer *answer)
{
    strata_status status = prefill_answer_start(answer, pack, a->in.pack, a->run.device);
    if (status != STRATA_OK)
        return tool_fail("cannot inspect the pack", status, a->in.json);
    if (!answer->info.runnable)
        return tool_refuse(STRATA_ERR_UNSUPPORTED, a->in.json, "%s: cannot be run: %s", a->in.pack,
                           answer->info.runnable_reason);
    a->run.bare = a->state.path != NULL;
    if (!run_options_prompt(&a->run, pack, NULL, a->in.json, &answer->tokens))
        return TOOL_FAILED;
    return run_session(a, pack, answer);
}

static bool read_files(arguments *a)
{
    file_fault fault;
    if (!run_options_read(&a->run, a->in.json) || !state_options_check(&a->state, a->in.json))
        return false;
    if (!a->logits_path || file_can_create(a->logits_path, &fault))
        return true;
    tool_refuse(fault.status, a->in.json, "%s: %s", a->logits_path, fault.text);
    return false;
}

int cmd_prefill(int argc, char **argv)
{
    static const struct argp_child children[] = {{&pack_argp, 0, 0, 0},
                                                 {&prompt_argp, 0, 0, 0},
                                                 {&run_argp, 0, 0, 0},
                                                 {&state_argp, 0, 0, 0},
                                                 {0}};
    static const struct argp parser = {option_table,
                                       parse_option,
                                       "PACK",
                                       "Reads a prompt and shows the likeliest next tokens.",
                                       children,
                                       0,
                                       0};
    arguments a = {.run.seed = 1, .top = 5};
    prefill_answer answer = {0};
    strata_context *context;
    strata_pack *pack;
    int code;
    argp_parse(&parser, argc, argv, 0, NULL, &a);
    if (!read_files(&a) || !tool_open_pack(a.in.pack, a.in.json, &context, &pack))
        return TOOL_FAILED;
    code = answer_prompt(&a, pack, &answer);
    prefill_answer_free(&answer);
    strata_pack_close(pack);
    strata_context_destroy(context);
    return code;
}
