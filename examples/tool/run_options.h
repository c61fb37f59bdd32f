/* SPDX-License-Identifier: MIT */
/* Options of every command that runs a model: device, budget, context, formats, prompt. */
#ifndef STRATA_TOOL_RUN_OPTIONS_H
#define STRATA_TOOL_RUN_OPTIONS_H

#include <argp.h>
#include <stdbool.h>
#include <stdint.h>

#include <strata/strata.h>

#include "parse.h"
#include "plan_options.h"

/* What prompts work in. */
typedef enum lend_mode {
    LEND_NOTHING, /* memory of their own */
    LEND_PROMPT,  /* a part of the expert cache, which experts fill again after each prompt */
    LEND_KEPT     /* the same, and between prompts it stays theirs until the session decodes */
} lend_mode;

typedef struct run_options {
    const char *device;       /* NULL: the CPU */
    const char *profile_path; /* of the experts' uses, read and written; NULL: none */
    lend_mode lend;
    plan_arguments plan; /* prompt_tokens is filled by run_options_apply() */
    uint32_t threads;
    uint32_t kernel_level; /* 0: best, 80: portable */
    bool plain_launches;
    bool no_blas;
    /* the prompt: exactly one of the five */
    const char *text;
    const char *text_path;
    bool special; /* texts of control tokens in it are these tokens */
    bool bare;    /* nothing is put before or after a text, which goes on from another */
    const char *tokens_text;
    const char *tokens_path;
    uint64_t random_count;
    uint64_t seed;
    bool is_seed_given;
} run_options;

/*
 * Children for a command's argp, whose input is a run_options: the prompt, with or without random
 * ones; where and how to run.
 */
extern const struct argp prompt_argp;
extern const struct argp given_prompt_argp;
extern const struct argp run_argp;

/* Fails as a usage error unless exactly one prompt was given. */
void run_options_check(const run_options *options, const struct argp_state *state);

/*
 * Reads files that options name, and looks whether those that will be written can be; false, and
 * told, when not.
 */
bool run_options_read(run_options *options, bool json);

/*
 * Gets the prompt's tokens, reporting a failure on stderr; the caller frees them. `tokenizer` or
 * NULL: one is made when there is a text.
 */
bool run_options_prompt(const run_options *options, const strata_pack *pack,
                        const strata_tokenizer *tokenizer, bool json, token_list *out);

/* The options' profile into `session`, to be freed after the session is made; false, and told. */
bool run_options_profile(const run_options *options, bool json, strata_session_options *session,
                         void **out);

/*
 * Fills session and plan options for a prompt; `session` points to `plan`. The context holds the
 * prompt when none was asked for.
 */
void run_options_apply(const run_options *options, uint64_t prompt_tokens,
                       strata_session_options *session, strata_plan_options *plan);

/* Where prompts have their memory. */
void run_options_prefill(const run_options *options, strata_prefill_options *prefill);

#endif
