/* SPDX-License-Identifier: MIT */
#include "run_options.h"

#include <stdlib.h>
#include <string.h>

#include "encode.h"
#include "file.h"
#include "option_values.h"
#include "stats.h"
#include "tool.h"

enum {
    KEY_DEVICE = 0x100,
    KEY_PROFILE,
    KEY_LEND,
    KEY_THREADS,
    KEY_NO_BLAS,
    KEY_KERNEL_LEVEL,
    KEY_TOKENS,
    KEY_TOKENS_FILE,
    KEY_TEXT,
    KEY_TEXT_FILE,
    KEY_SPECIAL,
    KEY_RANDOM,
    KEY_SEED
};

static const struct argp_option given_prompt_table[] = {
    {0, 0, 0, 0, "Prompt (one of these):", 1},
    {"text", KEY_TEXT, "TEXT", 0, "Text, tokenized with the pack's vocabulary", 1},
    {"text-file", KEY_TEXT_FILE, "FILE", 0, "Text from a file, - for standard input", 1},
    {"tokens", KEY_TOKENS, "IDS", 0, "Token ids, separated by commas", 1},
    {"tokens-file", KEY_TOKENS_FILE, "FILE", 0, "Token ids from a file, - for standard input", 1},
    {"special", KEY_SPECIAL, 0, 0, "In a text: texts of control tokens are these tokens", 1},
    {0},
};

static const struct argp_option random_table[] = {
    {"random", KEY_RANDOM, "N", 0, "N random token ids", 1},
    {"seed", KEY_SEED, "N", 0, "Seed of --random, 1 by default", 1},
    {0},
};

static const struct argp_option run_table[] = {
    {0, 0, 0, 0, "Where and how to run:", 3},
    {"device", KEY_DEVICE, "NAME", 0, "cpu (default), cuda:0, ...", 3},
    {"profile", KEY_PROFILE, "FILE", 0,
     "Uses of the experts: read if it is there, and written afterwards", 3},
    {"lend", KEY_LEND, "HOW", OPTION_ARG_OPTIONAL,
     "Prompts borrow their memory from the expert cache. prompt (default): for one prompt; keep: "
     "until tokens are decoded",
     3},
    {"threads", KEY_THREADS, "N", 0, "Threads of the CPU device, by default one per core", 3},
    {"no-blas", KEY_NO_BLAS, 0, 0, "Plain loops: bits do not depend on chunks or steps", 3},
    {"kernel-level", KEY_KERNEL_LEVEL, "LEVEL", 0,
     "best (default), sm80: portable kernels on any card, or plain: the best, each started when "
     "the one before has ended; for tests",
     3},
    {0},
};

static error_t parse_prompt_option(int key, char *arg, struct argp_state *state)
{
    run_options *options = state->input;
    switch (key) {
    case KEY_TOKENS:
        options->tokens_text = arg;
        return 0;
    case KEY_TOKENS_FILE:
        options->tokens_path = arg;
        return 0;
    case KEY_TEXT:
        options->text = arg;
        return 0;
    case KEY_TEXT_FILE:
        options->text_path = arg;
        return 0;
    case KEY_SPECIAL:
        options->special = true;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static error_t parse_random_option(int key, char *arg, struct argp_state *state)
{
    run_options *options = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = options;
        return 0;
    case KEY_RANDOM:
        options->random_count = option_number(arg, 1, INT32_MAX, state, "random");
        return 0;
    case KEY_SEED:
        options->seed = option_number(arg, 0, UINT64_MAX, state, "seed");
        options->is_seed_given = true;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static error_t parse_run_option(int key, char *arg, struct argp_state *state)
{
    static const char *const level_names[] = {"best", "sm80", "plain", NULL};
    static const char *const lend_names[] = {"prompt", "keep", NULL};
    uint32_t choice;
    run_options *options = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &options->plan;
        return 0;
    case KEY_DEVICE:
        options->device = arg;
        return 0;
    case KEY_PROFILE:
        options->profile_path = arg;
        return 0;
    case KEY_LEND:
        options->lend = LEND_PROMPT;
        if (arg && option_choice(arg, lend_names, state, "lend"))
            options->lend = LEND_KEPT;
        return 0;
    case KEY_THREADS:
        options->threads = (uint32_t)option_number(arg, 1, 1024, state, "threads");
        return 0;
    case KEY_NO_BLAS:
        options->no_blas = true;
        return 0;
    case KEY_KERNEL_LEVEL:
        choice = option_choice(arg, level_names, state, "kernel-level");
        options->kernel_level = choice == 1 ? 80 : 0;
        options->plain_launches = choice == 2;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

const struct argp given_prompt_argp = {given_prompt_table, parse_prompt_option, 0, 0, 0, 0, 0};
static const struct argp_child random_children[] = {{&given_prompt_argp, 0, 0, 0}, {0}};
const struct argp prompt_argp = {random_table, parse_random_option, 0, 0, random_children, 0, 0};
static const struct argp_child run_children[] = {{&plan_argp, 0, 0, 0}, {0}};

const struct argp run_argp = {run_table, parse_run_option, 0, 0, run_children, 0, 0};

void run_options_check(const run_options *options, const struct argp_state *state)
{
    int texts = !!options->text + !!options->text_path;
    int given = !!options->tokens_text + !!options->tokens_path + !!options->random_count + texts;
    if (given != 1)
        argp_error(state, "give one prompt: --text, --tokens or another option of that group");
    if (options->special && !texts)
        argp_error(state, "--special goes with --text and --text-file");
    if (options->is_seed_given && !options->random_count)
        argp_error(state, "--seed goes with --random");
}

bool run_options_read(run_options *options, bool json)
{
    file_fault fault;
    if (!plan_options_read(&options->plan, json))
        return false;
    if (!options->profile_path || file_can_create(options->profile_path, &fault))
        return true;
    tool_refuse(fault.status, json, "%s: %s", options->profile_path, fault.text);
    return false;
}

static bool encode_prompt(const run_options *options, const strata_pack *pack,
                          const strata_tokenizer *tokenizer, const char *text, uint64_t bytes,
                          bool json, token_list *out)
{
    strata_encode_options how;
    bool good;
    strata_encode_options_init(&how, sizeof how);
    how.special = options->special;
    how.bare = options->bare;
    good = tokenizer ? encode_with(tokenizer, text, bytes, &how, json, out)
                     : encode_text(pack, text, bytes, &how, json, out);
    if (good && !out->count) {
        tool_refuse(STRATA_ERR_INVALID_ARGUMENT, json, "%s: the text has no tokens",
                    options->text_path ? file_name(options->text_path) : "--text");
        free(out->ids);
        out->ids = NULL;
    }
    return good && out->count;
}

static bool prompt_of_text(const run_options *options, const strata_pack *pack,
                           const strata_tokenizer *tokenizer, bool json, token_list *out)
{
    uint64_t bytes;
    file_fault fault;
    char *content;
    bool good;
    if (options->text)
        return encode_prompt(options, pack, tokenizer, options->text, strlen(options->text), json,
                             out);
    content = file_read(options->text_path, FILE_MOST_TEXT_BYTES, &bytes, &fault);
    if (!content) {
        tool_refuse(fault.status, json, "%s: %s", file_name(options->text_path), fault.text);
        return false;
    }
    good = encode_prompt(options, pack, tokenizer, content, bytes, json, out);
    free(content);
    return good;
}

static uint32_t vocabulary_of(const strata_pack *pack)
{
    strata_pack_info info = {.struct_size = sizeof info};
    return strata_pack_info_get(pack, &info) == STRATA_OK ? info.vocabulary_count : 0;
}

/* Where a list of ids is at fault, as a text. */
static void refuse_list(const char *where, const char *list, const char *at, bool json)
{
    if (*at)
        tool_refuse(STRATA_ERR_INVALID_ARGUMENT, json,
                    "%s: not a list of token ids: no id at byte %llu, where it has \"%.16s\"",
                    where, (unsigned long long)(at - list), at);
    else
        tool_refuse(STRATA_ERR_INVALID_ARGUMENT, json,
                    "%s: not a list of token ids: an id is missing at the end", where);
}

static bool prompt_of_list(const char *where, const char *list, bool json, token_list *out)
{
    const char *at;
    switch (parse_tokens(list, out, &at)) {
    case TOKENS_OK:
        return true;
    case TOKENS_MALFORMED:
        refuse_list(where, list, at, json);
        return false;
    default:
        tool_refuse(STRATA_ERR_NO_MEMORY, json, "no memory for the prompt's tokens");
        return false;
    }
}

static bool prompt_of_file(const char *path, bool json, token_list *out)
{
    uint64_t bytes;
    file_fault fault;
    char *list = file_read_text(path, FILE_MOST_TEXT_BYTES, &bytes, &fault);
    bool good = list && prompt_of_list(file_name(path), list, json, out);
    if (!list)
        tool_refuse(fault.status, json, "%s: %s", file_name(path), fault.text);
    free(list);
    return good;
}

bool run_options_prompt(const run_options *options, const strata_pack *pack,
                        const strata_tokenizer *tokenizer, bool json, token_list *out)
{
    if (options->text || options->text_path)
        return prompt_of_text(options, pack, tokenizer, json, out);
    if (options->tokens_text)
        return prompt_of_list("--tokens", options->tokens_text, json, out);
    if (options->tokens_path)
        return prompt_of_file(options->tokens_path, json, out);
    if (random_tokens(options->random_count, options->seed, vocabulary_of(pack), out) == TOKENS_OK)
        return true;
    tool_refuse(STRATA_ERR_NO_MEMORY, json, "no memory for the prompt's tokens");
    return false;
}

bool run_options_profile(const run_options *options, bool json, strata_session_options *session,
                         void **out)
{
    *out = NULL;
    if (!options->profile_path)
        return true;
    if (!profile_read(options->profile_path, json, out, &session->profile_bytes))
        return false;
    session->profile = *out;
    return true;
}

void run_options_apply(const run_options *options, uint64_t prompt_tokens,
                       strata_session_options *session, strata_plan_options *plan)
{
    *plan = options->plan.options;
    plan->prompt_tokens = prompt_tokens;
    plan->lend_cache = options->lend != LEND_NOTHING;
    if (!plan->context_tokens)
        plan->context_tokens = prompt_tokens;
    strata_session_options_init(session, sizeof *session);
    session->device = options->device;
    session->thread_count = options->threads;
    session->blas = options->no_blas;
    session->kernel_level = options->kernel_level;
    session->plain_launches = options->plain_launches;
    session->plan_options = plan;
}

void run_options_prefill(const run_options *options, strata_prefill_options *prefill)
{
    strata_prefill_options_init(prefill, sizeof *prefill);
    prefill->memory_kind = options->lend == LEND_NOTHING ? STRATA_MEMORY_OWN : STRATA_MEMORY_LOAN;
    prefill->keep_loan = options->lend == LEND_KEPT;
}
