/* SPDX-License-Identifier: MIT */
/*
 * What must hold for every input: where it does not, the program ends, with the text of the last
 * error. A target that is linked with modules, not with the library, defines FUZZ_MODULES before.
 */
#ifndef TEST_FUZZ_MUST_H
#define TEST_FUZZ_MUST_H

#include <stdio.h>
#include <stdlib.h>

#include <strata/base.h>

#ifdef FUZZ_MODULES
#include "base/error.h"
#endif

/* The beginning of the text, in `out`. */
static inline const char *fuzz_error_text(char *out, size_t bytes)
{
#ifdef FUZZ_MODULES
    snprintf(out, bytes, "%s", strata__error_text());
#else
    strata_last_error(out, bytes);
#endif
    return out;
}

static inline void must(int holds, const char *what)
{
    char text[512] = "";
    if (holds)
        return;
    fprintf(stderr, "does not hold: %s (\"%s\")\n", what, fuzz_error_text(text, sizeof text));
    abort();
}

static inline void must_have_text(strata_status status)
{
    char text[2] = "";
    if (status != STRATA_OK)
        must(fuzz_error_text(text, sizeof text)[0] != '\0', "a text of why it failed");
}

#endif
