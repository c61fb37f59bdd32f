/* SPDX-License-Identifier: MIT */
#include <strata/prefill.h>

#include <stddef.h>

#include "base/error.h"
#include "base/struct_size.h"
#include "session/session.h"

/* Sizes of the structures in the release that brought them. */
enum { FIRST_OPTIONS_BYTES = 32, FIRST_REQUEST_BYTES = 64, FIRST_RESULT_BYTES = 32 };

static const strata_prefill_options default_options = {.memory_kind = STRATA_MEMORY_OWN};
static const strata_prefill_request default_request = {.logits_mode = STRATA_LOGITS_LAST};

void strata_prefill_options_init(strata_prefill_options *options, uint64_t caller_bytes)
{
    strata__struct_init(options, caller_bytes, &default_options, sizeof default_options);
}

void strata_prefill_request_init(strata_prefill_request *request, uint64_t caller_bytes)
{
    strata__struct_init(request, caller_bytes, &default_request, sizeof default_request);
}

uint64_t strata_prefill_bytes(const strata_session *session)
{
    return session ? strata__prefill_bytes(session) : 0;
}

static strata_status check_options(const strata_prefill_options *options)
{
    if (options->keep_loan > 1 || options->reserved0)
        return strata__fail(STRATA_ERR_INVALID_ARGUMENT,
                            "strata_prefill_options: keep_loan is %u; it must be 0 or 1",
                            options->keep_loan);
    switch (options->memory_kind) {
    case STRATA_MEMORY_OWN:
    case STRATA_MEMORY_LOAN:
        if (options->memory || options->memory_bytes)
            return strata__fail(STRATA_ERR_INVALID_ARGUMENT,
                                "strata_prefill_options: memory is set, yet memory_kind says "
                                "it is not the caller's");
        return STRATA_OK;
    case STRATA_MEMORY_CALLER:
        if (!options->memory)
            return strata__fail(STRATA_ERR_INVALID_ARGUMENT,
                                "strata_prefill_options: memory is NULL");
        return STRATA_OK;
    default:
        return strata__fail(STRATA_ERR_UNSUPPORTED,
                            "strata_prefill_options: memory_kind %u is unknown",
                            options->memory_kind);
    }
}

strata_status strata_prefill_create(strata_session *session, const strata_prefill_options *options,
                                    strata_prefill **out)
{
    strata_prefill_options local = default_options;
    strata_status status;
    if (!out)
        return strata__fail(STRATA_ERR_INVALID_ARGUMENT, "strata_prefill_create: out is NULL");
    *out = NULL;
    if (!session)
        return strata__fail(STRATA_ERR_INVALID_ARGUMENT, "strata_prefill_create: session is NULL");
    if (options) {
        status = strata__struct_in(&local, sizeof local, options, FIRST_OPTIONS_BYTES,
                                   "strata_prefill_options");
        if (status != STRATA_OK)
            return status;
    }
    status = check_options(&local);
    if (status != STRATA_OK)
        return status;
    return strata__prefill_create(session, &local, out);
}

void strata_prefill_destroy(strata_prefill *prefill)
{
    strata__prefill_destroy(prefill);
}

static strata_status result_out(strata_prefill_result *result, const strata_prefill_result *outcome)
{
    return strata__struct_out_optional(result, outcome, sizeof *outcome, FIRST_RESULT_BYTES,
                                       "strata_prefill_result");
}

strata_status strata_prefill_run(strata_prefill *prefill, const strata_prefill_request *request,
                                 strata_prefill_result *result)
{
    strata_prefill_request local;
    strata_prefill_result outcome = {0};
    strata_status status, out_status;
    if (!prefill)
        return strata__fail(STRATA_ERR_INVALID_ARGUMENT, "strata_prefill_run: prefill is NULL");
    status = strata__struct_in(&local, sizeof local, request, FIRST_REQUEST_BYTES,
                               "strata_prefill_request");
    /* Before any work: a result that cannot be handed back is refused. */
    if (status == STRATA_OK)
        status = result_out(result, &outcome);
    if (status != STRATA_OK)
        return status;
    status = strata__prefill_run(prefill, &local, &outcome);
    out_status = result_out(result, &outcome);
    return status == STRATA_OK ? out_status : status;
}
