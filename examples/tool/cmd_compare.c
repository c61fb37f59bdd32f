/* SPDX-License-Identifier: MIT */
/* strata compare: how far the logits of two ways to run a model are apart. */
#include <argp.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "compare.h"
#include "json.h"
#include "option_values.h"
#include "plan_options.h"
#include "progress.h"
#include "run_options.h"
#include "text.h"
#include "tool.h"

enum { KEY_A = 0x200, KEY_B, KEY_LENGTHS, KEY_POSITIONS };
enum { MAX_SETTINGS = 8, MAX_LENGTHS = 16, SETTING_BYTES = 256 };

/* Logits of all positions of a prompt are asked for at once up to this size. */
static const uint64_t whole_bytes = 2ull << 30;

static const struct argp_option option_table[] = {
    {"a", KEY_A, "SETTING", 0,
     "What is compared: path=fused,8:fp16 or kv=q8_0, several joined by \";\". Given more than "
     "once: one after the other; path=fused and path=mmq by default",
     0},
    {"b", KEY_B, "SETTING", 0, "What it is compared with, path=fp16 by default", 0},
    {"lengths", KEY_LENGTHS, "LENGTHS", 0, "Prompt lengths: the prompt's first tokens", 0},
    {"positions", KEY_POSITIONS, "N", 0,
     "Last positions of a prompt that are compared, 256 by default. Where the logits of the whole "
     "prompt take more than 2 GiB, these positions are read in a call of their own",
     0},
    {0},
};

/* One way to run the model. */
typedef struct setting {
    const char *text;
    char words[SETTING_BYTES]; /* the text, cut */
    run_options run;
} setting;

typedef struct arguments {
    run_options run;
    pack_arguments in;
    const char *lengths;
    const char *a_text[MAX_SETTINGS];
    const char *b_text;
    uint64_t a_count;
    uint64_t positions;
} arguments;

typedef struct comparison {
    const arguments *arguments;
    token_list tokens;
    uint64_t lengths[MAX_LENGTHS];
    uint64_t length_count;
    setting reference;
    setting others[MAX_SETTINGS];
    uint64_t logits_count;
    float *reference_logits[MAX_LENGTHS]; /* of the last positions */
    difference results[MAX_SETTINGS][MAX_LENGTHS];
} comparison;

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    arguments *a = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &a->in;
        state->child_inputs[1] = &a->run;
        state->child_inputs[2] = &a->run;
        return 0;
    case KEY_A:
        if (a->a_count == MAX_SETTINGS)
            argp_error(state, "--a: at most %d times", MAX_SETTINGS);
        a->a_text[a->a_count++] = arg;
        return 0;
    case KEY_B:
        a->b_text = arg;
        return 0;
    case KEY_LENGTHS:
        a->lengths = arg;
        return 0;
    case KEY_POSITIONS:
        if (!parse_u64(arg, &a->positions) || a->positions == 0 || a->positions > INT32_MAX)
            argp_error(state, "--positions: \"%s\" is not a number of positions", arg);
        return 0;
    case ARGP_KEY_END:
        run_options_check(&a->run, state);
        if (a->run.profile_path)
            argp_error(state, "--profile: a comparison reads and writes none");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static bool set_kv(strata_plan_options *plan, const char *value)
{
    for (uint32_t i = 0; plan_kv_names[i]; i++)
        if (strcmp(value, plan_kv_names[i]) == 0) {
            plan->kv_format = i;
            return true;
        }
    return false;
}

static bool set_word(run_options *run, const char *key, const char *value)
{
    strata_plan_options *plan = &run->plan.options;
    if (strcmp(key, "path") == 0)
        plan->path = value;
    else if (strcmp(key, "device") == 0)
        run->device = value;
    else if (strcmp(key, "kv") == 0)
        return set_kv(plan, value);
    else if (strcmp(key, "chunk") == 0)
        return parse_u64(value, &plan->chunk_tokens) && plan->chunk_tokens;
    else if (strcmp(key, "kernels") == 0 && strcmp(value, "sm80") == 0)
        run->kernel_level = 80;
    else if (strcmp(key, "kernels") == 0 && strcmp(value, "plain") == 0)
        run->plain_launches = true;
    else
        return false;
    return true;
}

/* Options of a setting: the command's, changed by the setting's words. */
static bool read_setting(const arguments *a, const char *text, setting *out)
{
    char *rest = out->words;
    out->text = text;
    out->run = a->run;
    if (strlen(text) >= sizeof out->words) {
        tool_refuse(STRATA_ERR_INVALID_ARGUMENT, a->in.json, "a setting of more than %d bytes",
                    SETTING_BYTES - 1);
        return false;
    }
    strcpy(out->words, text);
    for (char *word; (word = strsep(&rest, ";")) != NULL;) {
        char *value = strchr(word, '=');
        if (value)
            *value++ = '\0';
        if (!value || !set_word(&out->run, word, value)) {
            tool_refuse(
                STRATA_ERR_INVALID_ARGUMENT, a->in.json,
                "\"%s\" is no setting: path=PATH, kv=f16, q8_0 or f32, chunk=N, device=NAME or "
                "kernels=sm80 or plain",
                text);
            return false;
        }
    }
    return true;
}

static bool read_settings(comparison *c)
{
    const arguments *a = c->arguments;
    bool good = read_setting(a, a->b_text, &c->reference);
    for (uint64_t i = 0; good && i < a->a_count; i++)
        good = read_setting(a, a->a_text[i], &c->others[i]);
    return good;
}

/* The lengths, ascending as given; the whole prompt when none were. */
static bool read_lengths(comparison *c)
{
    token_list lengths = {0};
    bool good = true;
    if (!c->arguments->lengths) {
        c->lengths[c->length_count++] = c->tokens.count;
        return true;
    }
    if (parse_tokens(c->arguments->lengths, &lengths, NULL) != TOKENS_OK ||
        lengths.count > MAX_LENGTHS)
        good = false;
    for (uint64_t i = 0; good && i < lengths.count; i++) {
        good = lengths.ids[i] > 0 && (uint64_t)lengths.ids[i] <= c->tokens.count;
        c->lengths[c->length_count++] = good ? (uint64_t)lengths.ids[i] : 0;
    }
    free(lengths.ids);
    if (!good)
        tool_refuse(STRATA_ERR_INVALID_ARGUMENT, c->arguments->in.json,
                    "--lengths: not 1 to %d lengths within the prompt, which has %s", MAX_LENGTHS,
                    text_of_count(c->tokens.count, "token").text);
    return good;
}

static uint64_t positions_of(const comparison *c, uint64_t length)
{
    return c->arguments->positions < length ? c->arguments->positions : length;
}

static strata_status run_tokens(strata_prefill *prefill, const int32_t *tokens, uint64_t count,
                                float *logits, uint64_t logits_count)
{
    progress_bar bar;
    strata_prefill_request request;
    strata_status status;
    strata_prefill_request_init(&request, sizeof request);
    request.tokens = tokens;
    request.token_count = count;
    request.logits = logits;
    request.logits_capacity = logits ? count * logits_count : 0;
    request.logits_mode = logits ? STRATA_LOGITS_ALL : STRATA_LOGITS_NONE;
    request.progress_fn = progress_update;
    request.progress_user_data = &bar;
    progress_start(&bar);
    status = strata_prefill_run(prefill, &request, NULL);
    progress_finish(&bar);
    return status;
}

/* Reads a prompt and keeps the logits of its last positions in new memory. */
static strata_status read_prompt(const comparison *c, strata_session *session,
                                 strata_prefill *prefill, uint64_t length, float **out)
{
    uint64_t count = c->logits_count, positions = positions_of(c, length), reached;
    uint64_t whole = length * count * sizeof(float) <= whole_bytes ? length : positions;
    float *logits = malloc(whole * count * sizeof *logits);
    strata_status status = strata_session_truncate(session, 0, 0, &reached);
    if (!logits)
        return tool_own(STRATA_ERR_NO_MEMORY);
    if (status == STRATA_OK && whole < length)
        status = run_tokens(prefill, c->tokens.ids, length - whole, NULL, 0);
    if (status == STRATA_OK)
        status = run_tokens(prefill, c->tokens.ids + (length - whole), whole, logits, count);
    memmove(logits, logits + (whole - positions) * count, positions * count * sizeof *logits);
    *out = logits;
    return status;
}

/* All lengths with one setting; `which` is the setting's place among the others. */
static strata_status read_lengths_with(comparison *c, strata_session *session,
                                       strata_prefill *prefill, const uint64_t *which)
{
    strata_status status = STRATA_OK;
    c->logits_count = strata_session_logits_count(session);
    for (uint64_t i = 0; i < c->length_count && status == STRATA_OK; i++) {
        float *logits = NULL;
        status = read_prompt(c, session, prefill, c->lengths[i], &logits);
        if (!which) {
            c->reference_logits[i] = logits;
            continue;
        }
        if (status == STRATA_OK)
            c->results[*which][i] = compare_logits(c->reference_logits[i], logits,
                                                   positions_of(c, c->lengths[i]), c->logits_count);
        free(logits);
    }
    return status;
}

static bool run_setting(comparison *c, strata_pack *pack, const setting *s, const uint64_t *which,
                        failure *out)
{
    strata_session_options session_options;
    strata_plan_options plan_options;
    strata_prefill_options prefill_options;
    strata_session *session = NULL;
    strata_prefill *prefill = NULL;
    strata_status status;
    const char *what = "cannot make a session";
    char with[SETTING_BYTES + 64];
    run_options_apply(&s->run, c->tokens.count, &session_options, &plan_options);
    run_options_prefill(&s->run, &prefill_options);
    status = strata_session_create(pack, &session_options, &session);
    if (status == STRATA_OK)
        status = strata_prefill_create(session, &prefill_options, &prefill);
    if (status == STRATA_OK) {
        what = "cannot read the prompt";
        status = read_lengths_with(c, session, prefill, which);
    }
    if (status != STRATA_OK) {
        snprintf(with, sizeof with, "with %s: %s", s->text, what);
        failure_of_call(out, with, status);
    }
    strata_prefill_destroy(prefill);
    strata_session_destroy(session);
    return status == STRATA_OK;
}

/* A setting's rows as soon as they are there, under the head of the first one. */
static void write_rows(const comparison *c, uint64_t s)
{
    if (s == 0)
        printf("%-24s %8s %9s %11s %11s %9s %9s %11s\n", "setting", "tokens", "positions",
               "mean KL", "largest KL", "same top", "last top", "logits");
    for (uint64_t i = 0; i < c->length_count; i++) {
        const difference *d = &c->results[s][i];
        printf("%-24s %8" PRIu64 " %9" PRIu64 " %11.3g %11.3g %7.2f %% %9s %11.3g\n",
               c->others[s].text, c->lengths[i], positions_of(c, c->lengths[i]), d->kl_mean,
               d->kl_most, 100 * d->top_share, d->same_last_top ? "same" : "differs",
               d->logit_most);
    }
    fflush(stdout);
}

static void write_result(json_writer *json, const comparison *c, uint64_t s, uint64_t i)
{
    const difference *d = &c->results[s][i];
    json_object(json, NULL);
    json_string(json, "setting", c->others[s].text);
    json_u64(json, "prompt_tokens", c->lengths[i]);
    json_u64(json, "positions", positions_of(c, c->lengths[i]));
    json_f64(json, "kl_mean", d->kl_mean);
    json_f64(json, "kl_most", d->kl_most);
    json_f64(json, "same_top_share", d->top_share);
    json_bool(json, "same_last_top", d->same_last_top);
    json_f64(json, "max_abs_difference", d->logit_most);
    json_end(json);
}

/* The settings that were run, and why there are no more. */
static void write_json(const comparison *c, uint64_t done, const failure *wrong)
{
    json_writer json;
    json_start(&json, stdout);
    json_object(&json, NULL);
    json_string(&json, "pack", c->arguments->in.pack);
    json_string(&json, "reference", c->reference.text);
    json_array(&json, "comparisons");
    for (uint64_t s = 0; s < done; s++)
        for (uint64_t i = 0; i < c->length_count; i++)
            write_result(&json, c, s, i);
    json_end(&json);
    failure_json(&json, wrong);
    json_end(&json);
}

static int compare(comparison *c, strata_pack *pack)
{
    const arguments *a = c->arguments;
    strata_pack_info info = {.struct_size = sizeof info};
    strata_status status = strata_pack_info_get(pack, &info);
    failure wrong = {0};
    uint64_t done = 0;
    bool good;
    if (status != STRATA_OK)
        return tool_fail("cannot inspect the pack", status, a->in.json);
    if (!run_options_prompt(&a->run, pack, NULL, a->in.json, &c->tokens) || !read_lengths(c) ||
        !read_settings(c))
        return TOOL_FAILED;
    good = run_setting(c, pack, &c->reference, NULL, &wrong);
    while (good && done < a->a_count) {
        good = run_setting(c, pack, &c->others[done], &done, &wrong);
        if (good && !a->in.json)
            write_rows(c, done);
        done += good;
    }
    if (a->in.json)
        write_json(c, done, &wrong);
    else if (done)
        printf("against %s; KL in nats, logits: largest absolute difference\n", c->reference.text);
    return good ? TOOL_OK : TOOL_FAILED;
}

int cmd_compare(int argc, char **argv)
{
    static const struct argp_child children[] = {
        {&pack_argp, 0, 0, 0}, {&prompt_argp, 0, 0, 0}, {&run_argp, 0, 0, 0}, {0}};
    static const struct argp parser = {option_table,
                                       parse_option,
                                       "PACK",
                                       "Compares the logits of ways to run a model.",
                                       children,
                                       0,
                                       0};
    arguments a = {.run.seed = 1, .b_text = "path=fp16", .positions = 256};
    comparison *c = calloc(1, sizeof *c);
    strata_context *context;
    strata_pack *pack;
    int code = TOOL_FAILED;
    argp_parse(&parser, argc, argv, 0, NULL, &a);
    if (!a.a_count) {
        a.a_text[a.a_count++] = "path=fused";
        a.a_text[a.a_count++] = "path=mmq";
    }
    if (!c)
        return tool_refuse(STRATA_ERR_NO_MEMORY, a.in.json, "no memory for the comparison");
    c->arguments = &a;
    if (run_options_read(&a.run, a.in.json) &&
        tool_open_pack(a.in.pack, a.in.json, &context, &pack)) {
        code = compare(c, pack);
        strata_pack_close(pack);
        strata_context_destroy(context);
    }
    for (uint64_t i = 0; i < MAX_LENGTHS; i++)
        free(c->reference_logits[i]);
    free(c->tokens.ids);
    free(c);
    return code;
}
