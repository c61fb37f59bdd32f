/* SPDX-License-Identifier: MIT */
#include <strata/decode.h>

#include <stddef.h>

#include "base/error.h"
#include "base/struct_size.h"
#include "session/decode.h"

/* Sizes of the structures in the release that brought them. */
enum { FIRST_REQUEST_BYTES = 40, FIRST_RESULT_BYTES = 152 };

static const strata_decode_request defaults = {.logits_mode = STRATA_LOGITS_LAST};

void strata_decode_request_init(strata_decode_request *request, uint64_t caller_bytes)
{
    strata__struct_init(request, caller_bytes, &defaults, sizeof defaults);
}

static strata_status result_out(strata_decode_result *result, const strata_decode_result *outcome)
{
    if (!result)
        return STRATA_OK;
    return strata__struct_out(result, outcome, sizeof *outcome, FIRST_RESULT_BYTES,
                              "strata_decode_result");
}

strata_status strata_session_decode(strata_session *session, const strata_decode_request *request,
                                    strata_decode_result *result)
{
    strata_decode_request local;
    strata_decode_result outcome = {0};
    strata_status status, out_status;
    if (!session)
        return strata__fail(STRATA_ERR_INVALID_ARGUMENT, "strata_session_decode: session is NULL");
    status = strata__struct_in(&local, sizeof local, request, FIRST_REQUEST_BYTES,
                               "strata_decode_request");
    if (status == STRATA_OK && local.reserved0)
        status =
            strata__fail(STRATA_ERR_INVALID_ARGUMENT,
                         "strata_decode_request: reserved0 is %u; it must be 0", local.reserved0);
    /* Before any work: a result that cannot be handed back is refused. */
    if (status == STRATA_OK)
        status = result_out(result, &outcome);
    if (status != STRATA_OK)
        return status;
    status = strata__session_decode(session, &local, &outcome);
    out_status = result_out(result, &outcome);
    return status == STRATA_OK ? out_status : status;
}
