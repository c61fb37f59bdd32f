/* SPDX-License-Identifier: MIT */
/* The thread's detail text. Set once, where an error arises; callers only propagate the status. */
#ifndef STRATA_BASE_ERROR_H
#define STRATA_BASE_ERROR_H

#include <strata/base.h>

#if defined(__GNUC__)
#define STRATA__PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define STRATA__PRINTF(fmt, args)
#endif

/* Records the text for this thread and returns `status`. Never allocates; a long text is cut. */
STRATA__PRINTF(2, 3) strata_status strata__fail(strata_status status, const char *format, ...);

/* STRATA_ERR_NO_MEMORY with a text that names what the memory was for. */
strata_status strata__fail_memory(uint64_t bytes, const char *what);

/* This thread's text, never NULL; valid until the thread's next failure. */
const char *strata__error_text(void);

#endif
