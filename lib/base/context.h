/* SPDX-License-Identifier: MIT */
/* What every module needs of the caller: allocator and log. Counted references, any thread. */
#ifndef STRATA_BASE_CONTEXT_H
#define STRATA_BASE_CONTEXT_H

#include <stdatomic.h>

#include <strata/context.h>

#include "base/alloc.h"
#include "base/error.h"

struct strata_context {
    strata__allocator allocator;
    strata_log_fn log_fn; /* may be NULL */
    void *log_user_data;
    int32_t log_level;
    atomic_uint references;
};

strata_status strata__context_create(const strata_context_options *options, strata_context **out);
strata_context *strata__context_retain(strata_context *context);
void strata__context_release(strata_context *context); /* NULL is legal */

/* Hands one finished line to the caller's log function when `level` is wanted. */
STRATA__PRINTF(3, 4)
void strata__log(const strata_context *context, int32_t level, const char *format, ...);

#endif
