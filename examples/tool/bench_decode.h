/* SPDX-License-Identifier: MIT */
/* Of strata bench: how fast a session decodes after a prompt. */
#ifndef STRATA_TOOL_BENCH_DECODE_H
#define STRATA_TOOL_BENCH_DECODE_H

#include <stdint.h>
#include <stdio.h>

#include <strata/strata.h>

#include "json.h"

enum { BENCH_MOST_ROUNDS = 101 };

/* What is measured: `rounds` times the same steps from the prompt's end on, with other tokens. */
typedef struct bench_decode {
    uint64_t steps; /* 0: nothing */
    uint64_t rows;  /* tokens of a step */
    uint64_t rounds;
    uint64_t first_ns;          /* of the round right after the prompt */
    uint64_t median_ns;         /* of a round */
    strata_session_stats stats; /* of all rounds */
} bench_decode;

/* Decodes sequence 0, which holds a prompt of `prompt` tokens, with tokens below `vocabulary`. */
strata_status bench_decode_run(bench_decode *decode, strata_session *session, uint64_t prompt,
                               uint32_t vocabulary);

void bench_decode_text(const bench_decode *decode, FILE *out);
void bench_decode_json(const bench_decode *decode, json_writer *json);

#endif
