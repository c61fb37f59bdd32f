/* SPDX-License-Identifier: MIT */
/* The table of pre-tokenizer expressions. */
#ifndef STRATA_TEXT_PATTERNS_H
#define STRATA_TEXT_PATTERNS_H

#include <stdbool.h>
#include <stdint.h>

enum { STRATA__PATTERN_STAGES = 6 };

typedef struct strata__pattern {
    const char *name;
    bool whole_words; /* a word that is a token is not merged from its bytes */
    bool add_bos;     /* where the file does not say */
    /* Each expression cuts the pieces of the one before; NULL ends the list. */
    const char *stages[STRATA__PATTERN_STAGES + 1];
} strata__pattern;

/* NULL when the name is unknown. */
const strata__pattern *strata__pattern_find(const char *name, uint64_t count);

#endif
