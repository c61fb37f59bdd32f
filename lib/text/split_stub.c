/* SPDX-License-Identifier: MIT */
/* The splitter of a library that was built without PCRE2. */
#include "text/split.h"

#include <stddef.h>

#include "base/error.h"

static strata_status refuse(void)
{
    return strata__fail(STRATA_ERR_UNSUPPORTED,
                        "byte-pair vocabularies need PCRE2, and this library was built without it");
}

strata_status strata__splitter_create(const strata__allocator *allocator,
                                      const strata__pattern *pattern, strata__splitter **out)
{
    (void)allocator;
    (void)pattern;
    *out = NULL;
    return refuse();
}

void strata__splitter_destroy(strata__splitter *splitter)
{
    (void)splitter;
}

strata_status strata__splitter_run(const strata__splitter *splitter, const uint8_t *text,
                                   uint64_t begin, uint64_t end, strata__word_fn word_fn,
                                   void *user_data)
{
    (void)splitter;
    (void)text;
    (void)begin;
    (void)end;
    (void)word_fn;
    (void)user_data;
    return refuse();
}
