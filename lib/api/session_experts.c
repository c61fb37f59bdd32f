/* SPDX-License-Identifier: MIT */
/* A session's experts on the device: profile, uses, and how much memory they may have. */
#include <strata/session.h>

#include <stddef.h>

#include "base/error.h"
#include "session/session.h"

static strata_status fail_null(const char *function, const char *argument)
{
    return strata__fail(STRATA_ERR_INVALID_ARGUMENT, "%s: %s is NULL", function, argument);
}

strata_status strata_session_profile(strata_session *session, void *out, uint64_t capacity,
                                     uint64_t *out_bytes)
{
    if (!session || !out_bytes)
        return fail_null("strata_session_profile", session ? "out_bytes" : "session");
    return strata__session_profile(session, out, capacity, out_bytes);
}

strata_status strata_session_expert_uses(strata_session *session, uint32_t layer,
                                         uint64_t *out_uses, uint64_t capacity)
{
    if (!session || !out_uses)
        return fail_null("strata_session_expert_uses", session ? "out_uses" : "session");
    return strata__session_expert_uses(session, layer, out_uses, capacity);
}

strata_status strata_session_drop_experts(strata_session *session)
{
    if (!session)
        return fail_null("strata_session_drop_experts", "session");
    return strata__session_drop_experts(session);
}

strata_status strata_session_set_budget(strata_session *session, uint64_t bytes)
{
    if (!session)
        return fail_null("strata_session_set_budget", "session");
    return strata__session_set_budget(session, bytes);
}
