/* SPDX-License-Identifier: MIT */
/* strata generate: reads a prompt and writes on, token by token. */
#include <argp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "generate.h"
#include "option_values.h"
#include "run_options.h"
#include "state_file.h"
#include "stats.h"
#include "text.h"
#include "tool.h"

enum {
    KEY_TEMPERATURE = 0x200,
    KEY_TOP_K,
    KEY_TOP_P,
    KEY_MIN_P,
    KEY_REPEAT_PENALTY,
    KEY_REPEAT_LAST,
    KEY_SEED,
    KEY_STOP,
    KEY_IGNORE_END,
    KEY_ECHO
};

enum { DEFAULT_COUNT = 128, DEFAULT_RECENT = 64, DEFAULT_SEED = 1, MOST_TOKENS = 1 << 24 };

static const float default_temperature = 0.8f, default_top_p = 0.95f;

static const struct argp_option option_table[] = {
    {0, 0, 0, 0, "Answer:", 4},
    {"count", 'n', "N", 0, "Tokens to generate at most, 128 by default", 4},
    {"stop", KEY_STOP, "TEXT", 0, "Stop before this text; may be given several times", 4},
    {"ignore-end", KEY_IGNORE_END, 0, 0, "Go on after the model has ended the text", 4},
    {"echo", KEY_ECHO, 0, 0, "Write the text of the prompt first", 4},
    {0, 0, 0, 0, "Choosing tokens:", 5},
    {"temperature", KEY_TEMPERATURE, "T", 0,
     "0: always the likeliest token; 1: the model's own chances; 0.8 by default", 5},
    {"top-k", KEY_TOP_K, "N", 0, "Only the N likeliest; 0, the default: all", 5},
    {"top-p", KEY_TOP_P, "P", 0,
     "Only the likeliest that have this probability together, 0.95 by default; 1: all", 5},
    {"min-p", KEY_MIN_P, "P", 0,
     "Only what has this part of the likeliest's probability; 0, the default: all", 5},
    {"repeat-penalty", KEY_REPEAT_PENALTY, "X", 0,
     "Above 1: tokens that came before are less likely; 1, the default: they are not", 5},
    {"repeat-last", KEY_REPEAT_LAST, "N", 0,
     "Tokens that --repeat-penalty looks back at, 64 by "
     "default",
     5},
    {"seed", KEY_SEED, "N", 0, "The same seed gives the same choices; 1 by default", 5},
    {0},
};

typedef struct arguments {
    run_options run;
    pack_arguments in;
    state_options state;
    generation *g;
    bool echo;
} arguments;

static error_t parse_sampling(int key, const char *arg, const struct argp_state *state,
                              generation *g)
{
    strata_sample_options *s = &g->sampling;
    switch (key) {
    case KEY_TEMPERATURE:
        s->temperature = (float)option_real(arg, 0, 100, state, "temperature");
        return 0;
    case KEY_TOP_K:
        s->top_k = (uint32_t)option_number(arg, 0, UINT32_MAX, state, "top-k");
        return 0;
    case KEY_TOP_P:
        s->top_p = (float)option_real(arg, 0, 1, state, "top-p");
        return 0;
    case KEY_MIN_P:
        s->min_p = (float)option_real(arg, 0, 1, state, "min-p");
        return 0;
    case KEY_REPEAT_PENALTY:
        s->repetition_penalty = (float)option_real(arg, 0.01, 100, state, "repeat-penalty");
        return 0;
    case KEY_REPEAT_LAST:
        g->recent_count = option_number(arg, 0, MOST_TOKENS, state, "repeat-last");
        return 0;
    case KEY_SEED:
        g->random_state = option_number(arg, 0, UINT64_MAX, state, "seed");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
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
    case 'n':
        a->g->count = option_number(arg, 0, MOST_TOKENS, state, "count");
        return 0;
    case KEY_STOP:
        if (!arg[0])
            argp_error(state, "--stop: the text is empty");
        if (a->g->stop_count == GENERATION_STOPS)
            argp_error(state, "--stop: at most %d texts", GENERATION_STOPS);
        a->g->stops[a->g->stop_count++] = arg;
        return 0;
    case KEY_IGNORE_END:
        a->g->past_end = true;
        return 0;
    case KEY_ECHO:
        a->echo = true;
        return 0;
    case ARGP_KEY_END:
        run_options_check(&a->run, state);
        if (a->echo && a->in.json)
            argp_error(state, "--echo goes with text, not with --json");
        return 0;
    default:
        return parse_sampling(key, arg, state, a->g);
    }
}

/* The answer's text with --json. */
typedef struct collected {
    char *text; /* heap */
    uint64_t bytes;
    bool failed;
} collected;

static void collect(void *user_data, const char *bytes, uint64_t count)
{
    collected *c = user_data;
    char *larger = c->failed ? NULL : realloc(c->text, c->bytes + count);
    if (!larger) {
        c->failed = true;
        return;
    }
    memcpy(larger + c->bytes, bytes, count);
    c->text = larger;
    c->bytes += count;
}

/* A terminal is not steered by what a model says; anything else gets its bytes. */
static void show(void *user_data, const char *bytes, uint64_t count)
{
    const bool *is_terminal = user_data;
    if (*is_terminal)
        text_show_lines(stdout, bytes, count);
    else
        fwrite(bytes, 1, count, stdout);
    fflush(stdout);
}

static void echo_prompt(const generation *g, bool is_terminal)
{
    uint64_t bytes = 0;
    char *text = NULL;
    if (g->info.token_count)
        text = text_of_tokens(g->pack, g->prompt.ids, g->prompt.count, &bytes);
    if (text)
        show(&is_terminal, text, bytes);
    free(text);
}

static int generate(const arguments *a, generation *g, strata_session *session, collected *text)
{
    failure unsaved = {0};
    const char *what;
    strata_status status;
    bool is_terminal = !a->in.json && isatty(STDOUT_FILENO);
    if (!a->in.json) {
        g->user_data = &is_terminal;
        if (a->echo)
            echo_prompt(g, is_terminal);
    }
    status = generation_run(g, session, &what);
    if (!a->in.json && g->answer_count) {
        putchar('\n');
        fflush(stdout); /* before what standard error tells */
    }
    if (status != STRATA_OK)
        return tool_fail(what, status, a->in.json);
    if (text->failed)
        return tool_refuse(STRATA_ERR_NO_MEMORY, a->in.json, "no memory for the answer");
    if (!a->in.json)
        generation_summary(g);
    state_options_save(&a->state, session, &unsaved);
    if (a->run.profile_path)
        profile_write(a->run.profile_path, session, &unsaved);
    if (a->in.json)
        generation_json(g, a->in.pack, a->run.device, text->text ? text->text : "", text->bytes,
                        &unsaved, stdout);
    if (unsaved.status != STRATA_OK)
        return TOOL_FAILED;
    return g->reason == STOPPED_BY_INTERRUPT ? TOOL_INTERRUPTED : TOOL_OK;
}

/* A session whose context holds prompt and answer, and which decodes one row a step. */
static int run_session(arguments *a, generation *g, strata_pack *pack, collected *text)
{
    strata_session_options options;
    strata_plan_options plan;
    strata_session *session;
    strata_status status;
    void *profile;
    int code;
    run_options_apply(&a->run, g->prompt.count, &options, &plan);
    run_options_prefill(&a->run, &g->memory);
    if (!a->run.plan.options.context_tokens)
        plan.context_tokens = g->prompt.count + g->count;
    plan.decode_rows = 1;
    if (!state_options_apply(&a->state, &a->run.plan, g->prompt.count + g->count, a->in.json,
                             &plan))
        return TOOL_FAILED;
    if (!run_options_profile(&a->run, a->in.json, &options, &profile))
        return TOOL_FAILED;
    status = strata_session_create(pack, &options, &session);
    free(profile);
    if (status != STRATA_OK)
        return tool_fail("cannot make a session", status, a->in.json);
    g->start_tokens = a->state.tokens;
    status = state_options_restore(&a->state, session);
    code = status == STRATA_OK ? generate(a, g, session, text)
                               : tool_fail("cannot restore the sequence", status, a->in.json);
    strata_session_destroy(session);
    return code;
}

static int answer(arguments *a, generation *g, strata_pack *pack)
{
    strata_tokenizer *tokenizer = NULL;
    collected text = {0};
    strata_status status;
    int code = TOOL_FAILED;
    g->pack = pack;
    g->info.struct_size = sizeof g->info;
    status = strata_pack_info_get(pack, &g->info);
    if (status != STRATA_OK)
        return tool_fail("cannot inspect the pack", status, a->in.json);
    if (!g->info.runnable)
        return tool_refuse(STRATA_ERR_UNSUPPORTED, a->in.json, "%s: cannot be run: %s", a->in.pack,
                           g->info.runnable_reason);
    /* Token ids can be gone on from without one. */
    if (strata_tokenizer_create(pack, &tokenizer) == STRATA_OK)
        g->tokenizer = tokenizer;
    g->user_data = &text;
    a->run.bare = a->state.path != NULL;
    if (run_options_prompt(&a->run, pack, tokenizer, a->in.json, &g->prompt))
        code = run_session(a, g, pack, &text);
    strata_tokenizer_destroy(tokenizer);
    free(text.text);
    return code;
}

int cmd_generate(int argc, char **argv)
{
    static const struct argp_child children[] = {{&pack_argp, 0, 0, 0},
                                                 {&given_prompt_argp, 0, 0, 0},
                                                 {&run_argp, 0, 0, 0},
                                                 {&state_argp, 0, 0, 0},
                                                 {0}};
    static const struct argp parser = {
        option_table,
        parse_option,
        "PACK",
        "Reads a prompt and writes on, token by token. The text goes to standard output, speeds go "
        "to standard error.\vCtrl-C stops it: what was written stays, and the exit code is 130. A "
        "second Ctrl-C ends the program at once.",
        children,
        0,
        0};
    generation g = {
        .count = DEFAULT_COUNT, .recent_count = DEFAULT_RECENT, .random_state = DEFAULT_SEED};
    arguments a = {.run.seed = 1, .g = &g};
    strata_context *context;
    strata_pack *pack;
    int code;
    strata_sample_options_init(&g.sampling, sizeof g.sampling);
    g.sampling.temperature = default_temperature;
    g.sampling.top_p = default_top_p;
    argp_parse(&parser, argc, argv, 0, NULL, &a);
    generation_start(&g, a.in.json ? collect : show, NULL);
    if (!run_options_read(&a.run, a.in.json) || !state_options_check(&a.state, a.in.json) ||
        !tool_open_pack(a.in.pack, a.in.json, &context, &pack))
        return TOOL_FAILED;
    code = answer(&a, &g, pack);
    generation_free(&g);
    strata_pack_close(pack);
    strata_context_destroy(context);
    return code;
}
