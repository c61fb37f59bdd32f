/* SPDX-License-Identifier: MIT */
#include <strata/decode.h>

#include <stddef.h>

#include "base/error.h"
#include "base/struct_size.h"
#include "session/decode.h"

/* Sizes of the structures in the release that brought them. */
enum { FIRST_REQUEST_BYTES = 40, FIRST_RESULT_BYTES = 152, FIRST_POLICY_BYTES = 56 };

static const strata_cache_policy default_policy = {0};
static const strata_decode_request defaults = {.logits_mode = STRATA_LOGITS_LAST};

void strata_decode_request_init(strata_decode_request *request, uint64_t caller_bytes)
{
    strata__struct_init(request, caller_bytes, &defaults, sizeof defaults);
}

static strata_status result_out(strata_decode_result *result, const strata_decode_result *outcome)
{
    return strata__struct_out_optional(result, outcome, sizeof *outcome, FIRST_RESULT_BYTES,
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

void strata_cache_policy_init(strata_cache_policy *policy, uint64_t caller_bytes)
{
    strata__struct_init(policy, caller_bytes, &default_policy, sizeof default_policy);
}

static strata_status check_policy(const strata_cache_policy *policy)
{
    const struct {
        const char *name;
        double value;
    } numbers[] = {{"half_life_tokens", policy->half_life_tokens},
                   {"margin", policy->margin},
                   {"margin_uses", policy->margin_uses}};
    if (policy->frozen > 1)
        return strata__fail(STRATA_ERR_INVALID_ARGUMENT,
                            "strata_cache_policy: frozen is %u; it must be 0 or 1", policy->frozen);
    for (int i = 0; i < 3; i++)
        if (!(numbers[i].value >= 0 && numbers[i].value <= 1e12))
            return strata__fail(STRATA_ERR_INVALID_ARGUMENT,
                                "strata_cache_policy: %s is %g; it must be 0 to 1e12",
                                numbers[i].name, numbers[i].value);
    return STRATA_OK;
}

strata_status strata_session_set_cache_policy(strata_session *session,
                                              const strata_cache_policy *policy)
{
    strata_cache_policy local = default_policy;
    strata_status status = STRATA_OK;
    if (!session)
        return strata__fail(STRATA_ERR_INVALID_ARGUMENT,
                            "strata_session_set_cache_policy: session is NULL");
    if (policy)
        status = strata__struct_in(&local, sizeof local, policy, FIRST_POLICY_BYTES,
                                   "strata_cache_policy");
    if (status == STRATA_OK)
        status = check_policy(&local);
    return status == STRATA_OK ? strata__session_set_cache_policy(session, &local) : status;
}
