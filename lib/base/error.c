/* SPDX-License-Identifier: MIT */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { TEXT_BYTES = 512 };

static _Thread_local char thread_text[TEXT_BYTES];

strata_status strata__fail(strata_status status, const char *format, ...)
{
    /* Through a copy: an argument may be the present text itself. */
    char text[TEXT_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    memcpy(thread_text, text, sizeof thread_text);
    return status;
}

strata_status strata__fail_memory(uint64_t bytes, const char *what)
{
    return strata__fail(STRATA_ERR_NO_MEMORY, "cannot allocate %llu bytes for %s",
                        (unsigned long long)bytes, what);
}

const char *strata__error_text(void)
{
    return thread_text;
}
