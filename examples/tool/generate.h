/* SPDX-License-Identifier: MIT */
/* What strata generate does: reads a prompt, then chooses token after token and decodes it. */
#ifndef STRATA_TOOL_GENERATE_H
#define STRATA_TOOL_GENERATE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <strata/strata.h>

#include "parse.h"
#include "text_stream.h"
#include "tool.h"

enum { GENERATION_STOPS = 16 };

typedef enum stop_reason {
    STOPPED_BY_COUNT,    /* as many tokens as were asked for */
    STOPPED_BY_END,      /* the model ended the text */
    STOPPED_BY_TEXT,     /* a text to stop at */
    STOPPED_BY_CONTEXT,  /* the context is full */
    STOPPED_BY_INTERRUPT /* Ctrl-C */
} stop_reason;

typedef struct generation {
    /* how */
    const strata_pack *pack;
    const strata_tokenizer *tokenizer; /* NULL: none can be made of the pack */
    strata_pack_info info;
    token_list prompt;
    uint64_t start_tokens;         /* that the sequence holds before it */
    strata_prefill_options memory; /* of the prompt */
    uint64_t count;
    strata_sample_options sampling;
    uint64_t recent_count; /* tokens that the repetition penalty looks back at */
    uint64_t random_state;
    const char *stops[GENERATION_STOPS];
    uint64_t stop_count;
    bool past_end; /* goes on after the model has ended the text */

    /* where the text goes */
    text_stream stream;
    text_stream_fn write;
    void *user_data;
    uint64_t start_ns;

    /* what came of it */
    int32_t *tokens; /* prompt and answer, heap */
    uint64_t answer_count;
    stop_reason reason;
    uint64_t prompt_ns;
    uint64_t decode_ns;
    uint64_t decode_steps;
    uint64_t first_ns; /* from generation_start() to the first piece of text; 0: none came */
    strata_session_stats stats;
} generation;

/* Starts the clock, and sends the text to `write`. The rest is the caller's to fill in. */
void generation_start(generation *g, text_stream_fn write, void *user_data);

/* The tokens that end a text; at most `capacity` of them. */
uint64_t end_tokens(const strata_pack *pack, int32_t *out, uint64_t capacity);

/*
 * Reads the prompt and generates. Ctrl-C is no failure: it is the reason to stop. `what`: what was
 * tried when it fails.
 */
strata_status generation_run(generation *g, strata_session *session, const char **what);

/* The prompt's or the answer's speed, 0 when there is none. */
double prompt_speed(const generation *g);
double decode_speed(const generation *g);

/* With what could not be saved of it. */
void generation_json(const generation *g, const char *pack_path, const char *device,
                     const char *text, uint64_t text_bytes, const failure *unsaved, FILE *out);

/* One line about speeds and the reason to stop. */
void generation_summary(const generation *g);

void generation_free(generation *g);

#endif
