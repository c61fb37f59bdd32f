/* SPDX-License-Identifier: MIT */
#include "session/budget.h"

#include "base/error.h"
#include "session/state.h"

/* Device memory beside the places of the expert cache. */
static uint64_t other_bytes(const strata_session *session)
{
    return session->memory.bytes + session->loan_memory.bytes +
           atomic_load_explicit(&session->prefill_bytes, memory_order_relaxed);
}

/*
 * Why a session's memory stays as it is; NULL: it need not. Any thread: what it looks at is fixed.
 */
static const char *why_fixed(const strata_session *session)
{
    if (session->device->facts.host_addressable)
        return "does not stream experts: it reads them in host memory";
    if (!session->memory.owned)
        return "lives in the caller's memory";
    if (!session->geometry->experts)
        return "has no experts, which alone could leave the device";
    if (!strata__layout_find_ring(session->layout))
        return "keeps all experts on the device, as its plan was asked to, or because the plan has "
               "no decoding, whose ring they could be streamed through";
    return NULL;
}

strata_status strata__budget_apply(strata_session *session)
{
    uint64_t budget = atomic_load_explicit(&session->budget_bytes, memory_order_relaxed);
    uint64_t other = other_bytes(session);
    strata_status status;
    if (why_fixed(session))
        return STRATA_OK;
    status = strata__decode_settle(session);
    if (status != STRATA_OK)
        return status;
    session->met_budget_bytes = budget;
    if (!budget)
        budget = UINT64_MAX;
    strata__cache_resize(&session->cache, session, budget > other ? budget - other : 0);
    return session->layout->ring_bytes ? STRATA_OK : strata__experts_follow_cache(session);
}

bool strata__budget_is_met(const strata_session *session)
{
    return session->met_budget_bytes ==
           atomic_load_explicit(&session->budget_bytes, memory_order_relaxed);
}

/* Unless another call runs, which leaves it to the next one. */
static strata_status apply_now(strata_session *session)
{
    strata__saved_device saved;
    strata_status status = strata__session_enter(session, &saved);
    if (status == STRATA_ERR_BUSY)
        return STRATA_OK;
    if (status != STRATA_OK)
        return status;
    status = strata__budget_apply(session);
    strata__session_leave(session, &saved);
    return status;
}

strata_status strata__session_set_budget(strata_session *session, uint64_t bytes)
{
    uint64_t other = other_bytes(session);
    const char *why = why_fixed(session);
    if (why)
        return strata__fail(STRATA_ERR_UNSUPPORTED,
                            "the session's budget cannot be changed, since it %s", why);
    if (bytes && bytes < other)
        return strata__fail(STRATA_ERR_PLAN_INFEASIBLE,
                            "%llu bytes of device memory are less than the %llu that the session "
                            "takes without experts",
                            (unsigned long long)bytes, (unsigned long long)other);
    atomic_store_explicit(&session->budget_bytes, bytes, memory_order_relaxed);
    return apply_now(session);
}

strata_status strata__session_drop_experts(strata_session *session)
{
    strata__saved_device saved;
    strata_status status = strata__session_enter(session, &saved);
    if (status != STRATA_OK)
        return status;
    if (session->experts.source == STRATA__SOURCE_STREAMED) {
        status = strata__decode_settle(session);
        strata__decode_forget(session);
        strata__loan_settle(&session->loan);
        strata__loan_clear(&session->loan);
        strata__cache_empty(&session->cache);
    }
    strata__session_leave(session, &saved);
    return status;
}

strata_status strata__session_expert_uses(strata_session *session, uint32_t layer,
                                          uint64_t *out_uses, uint64_t capacity)
{
    uint32_t experts = session->geometry->experts;
    const uint64_t *uses;
    strata__saved_device saved;
    strata_status status;
    if (layer >= session->geometry->layers)
        return strata__fail(STRATA_ERR_INVALID_ARGUMENT, "there is no layer %u: the pack has %u",
                            layer, session->geometry->layers);
    if (capacity < experts)
        return strata__fail(STRATA_ERR_BUFFER_TOO_SMALL,
                            "a layer has %u experts; there is room for %llu", experts,
                            (unsigned long long)capacity);
    status = strata__session_enter(session, &saved);
    if (status != STRATA_OK)
        return status;
    uses = strata__experts_uses(session);
    for (uint32_t e = 0; e < experts; ++e)
        out_uses[e] = uses ? uses[(uint64_t)layer * experts + e] : 0;
    strata__session_leave(session, &saved);
    return STRATA_OK;
}

strata_status strata__session_profile(strata_session *session, void *out, uint64_t capacity,
                                      uint64_t *out_bytes)
{
    strata__saved_device saved;
    strata_status status = strata__session_enter(session, &saved);
    if (status != STRATA_OK)
        return status;
    *out_bytes = strata__profile_save(session, out, capacity);
    strata__session_leave(session, &saved);
    return STRATA_OK;
}
