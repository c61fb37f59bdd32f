/* SPDX-License-Identifier: MIT */
/* What strata prefill answers: the prompt read, its logits, the likeliest next tokens. */
#ifndef STRATA_TOOL_PREFILL_H
#define STRATA_TOOL_PREFILL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <strata/strata.h>

#include "parse.h"
#include "tool.h"

/* How a layer was multiplied, and why; static texts. */
typedef struct layer_path {
    const char *path;
    const char *reason;
} layer_path;

typedef struct prefill_answer {
    const strata_pack *pack;
    const char *pack_path;
    const char *device;
    strata_pack_info info;
    token_list tokens;
    float *logits; /* positions * logits_count */
    uint64_t positions;
    uint64_t logits_count;
    strata_prefill_result result;
    strata_session_stats stats;
    layer_path *layers; /* [info.layer_count], of the prompt's first chunk */
} prefill_answer;

/* Remembers pack and device (NULL: the CPU). The tokens are the caller's to fill in afterwards. */
strata_status prefill_answer_start(prefill_answer *answer, const strata_pack *pack,
                                   const char *pack_path, const char *device);

/* Reads the prompt with a progress bar. */
strata_status prefill_answer_read(prefill_answer *answer, strata_session *session,
                                  strata_prefill *prefill, bool all_logits);

/* Writes the logits as little-endian float32. */
void prefill_answer_save(const prefill_answer *answer, const char *path, failure *out);

void prefill_answer_text(const prefill_answer *answer, uint64_t top, FILE *out);

/* With what could not be saved of it. */
void prefill_answer_json(const prefill_answer *answer, uint64_t top, const failure *unsaved,
                         FILE *out);

void prefill_answer_free(prefill_answer *answer);

/* One candidate for the next token. */
typedef struct candidate {
    uint32_t token;
    float logit;
    double probability;
} candidate;

/*
 * The `top` likeliest of one position's logits, likeliest first, ties to the lower id; returns how
 * many.
 */
uint64_t likeliest(const float *logits, uint64_t count, uint64_t top, candidate *out);

#endif
