/* SPDX-License-Identifier: MIT */
/* Cutting a text into words by the expressions of a pattern. */
#ifndef STRATA_TEXT_SPLIT_H
#define STRATA_TEXT_SPLIT_H

#include <stdint.h>

#include <strata/base.h>

#include "base/alloc.h"
#include "text/patterns.h"

/* Compiled expressions; immutable, any thread. */
typedef struct strata__splitter strata__splitter;

/* STRATA_ERR_UNSUPPORTED in a build without PCRE2. The allocator outlives the splitter. */
strata_status strata__splitter_create(const strata__allocator *allocator,
                                      const strata__pattern *pattern, strata__splitter **out);
void strata__splitter_destroy(strata__splitter *splitter); /* NULL is legal */

/* Takes the word [begin, end); any error ends the cutting and is handed back. */
typedef strata_status (*strata__word_fn)(void *user_data, uint64_t begin, uint64_t end);

/* Cuts [begin, end) of a well-formed text; every byte is in exactly one word, in order. */
strata_status strata__splitter_run(const strata__splitter *splitter, const uint8_t *text,
                                   uint64_t begin, uint64_t end, strata__word_fn word_fn,
                                   void *user_data);

#endif
