/* SPDX-License-Identifier: MIT */
#include "base/context.h"

#include <stddef.h>

#include "base/struct_size.h"

/* Size of the structure in the release that brought it. */
enum { FIRST_OPTIONS_BYTES = 48 };

static const strata_context_options defaults = {.log_level = STRATA_LOG_NONE};

void strata_context_options_init(strata_context_options *options, uint64_t caller_bytes)
{
    strata__struct_init(options, caller_bytes, &defaults, sizeof defaults);
}

strata_status strata_context_create(const strata_context_options *options, strata_context **out)
{
    strata_context_options local = defaults;
    strata_status status;
    if (!out)
        return strata__fail(STRATA_ERR_INVALID_ARGUMENT, "strata_context_create: out is NULL");
    *out = NULL;
    if (options) {
        status = strata__struct_in(&local, sizeof local, options, FIRST_OPTIONS_BYTES,
                                   "strata_context_options");
        if (status != STRATA_OK)
            return status;
    }
    if (local.log_level < STRATA_LOG_NONE || local.log_level > STRATA_LOG_DEBUG)
        return strata__fail(STRATA_ERR_INVALID_ARGUMENT,
                            "strata_context_options: log_level is %d; it must be 0 to %d",
                            (int)local.log_level, STRATA_LOG_DEBUG);
    return strata__context_create(&local, out);
}

void strata_context_destroy(strata_context *context)
{
    strata__context_release(context);
}
