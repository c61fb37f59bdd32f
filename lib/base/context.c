/* SPDX-License-Identifier: MIT */
#include "base/context.h"

#include <stdarg.h>
#include <stdio.h>

strata_status strata__context_create(const strata_context_options *options, strata_context **out)
{
    strata__allocator allocator = *strata__allocator_default();
    strata_context *context;
    if (!options->alloc_fn != !options->free_fn)
        return strata__fail(STRATA_ERR_INVALID_ARGUMENT,
                            "strata_context_options: alloc_fn and free_fn go together");
    if (options->alloc_fn) {
        allocator.alloc_fn = options->alloc_fn;
        allocator.free_fn = options->free_fn;
        allocator.user_data = options->alloc_user_data;
    }
    context = strata__calloc(&allocator, 1, sizeof *context);
    if (!context)
        return strata__fail_memory(sizeof *context, "the context");
    context->allocator = allocator;
    context->log_fn = options->log_fn;
    context->log_user_data = options->log_user_data;
    context->log_level = options->log_level;
    atomic_init(&context->references, 1);
    *out = context;
    return STRATA_OK;
}

strata_context *strata__context_retain(strata_context *context)
{
    atomic_fetch_add_explicit(&context->references, 1, memory_order_relaxed);
    return context;
}

void strata__context_release(strata_context *context)
{
    strata__allocator allocator;
    if (!context || atomic_fetch_sub_explicit(&context->references, 1, memory_order_acq_rel) != 1)
        return;
    allocator = context->allocator;
    strata__free(&allocator, context, sizeof *context);
}

void strata__log(const strata_context *context, int32_t level, const char *format, ...)
{
    char line[512];
    va_list args;
    if (!context->log_fn || level > context->log_level)
        return;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    context->log_fn(context->log_user_data, level, line);
}
