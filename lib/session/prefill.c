/* SPDX-License-Identifier: MIT */
/* The working memory of prompts. */
#include <string.h>

#include "base/error.h"
#include "session/session.h"
#include "session/state.h"
#include "session/step.h"

uint64_t strata__prefill_bytes(const strata_session *session)
{
    return session->layout->prompt_bytes;
}

static strata_status borrow_loan(strata_prefill *prefill, const strata_prefill_options *options)
{
    const strata_session *session = prefill->session;
    const strata__region *loan = &session->loan_memory;
    if (!loan->bytes)
        return strata__fail(STRATA_ERR_STATE, "the session's plan has no loan for prompts");
    prefill->is_lent = true;
    prefill->keeps_loan = options->keep_loan;
    return strata__region_borrow(&prefill->memory, loan->base, loan->bytes,
                                 session->layout->prompt_bytes, session->layout->alignment_bytes,
                                 "the prompt");
}

static strata_status make_memory(strata_prefill *prefill, const strata_prefill_options *options)
{
    const strata_session *session = prefill->session;
    const strata__layout *layout = session->layout;
    strata_status status;
    if (options->memory_kind == STRATA_MEMORY_LOAN)
        status = borrow_loan(prefill, options);
    else if (options->memory_kind == STRATA_MEMORY_CALLER)
        status = strata__region_borrow(&prefill->memory, options->memory, options->memory_bytes,
                                       layout->prompt_bytes, layout->alignment_bytes, "the prompt");
    else
        status = strata__region_alloc(&prefill->memory, session->device, layout->prompt_bytes,
                                      "the prompt");
    if (status == STRATA_OK)
        status =
            strata__step_host_init(&prefill->host, &session->context->allocator, session->device,
                                   &layout->prompt, "what goes in and out of a prompt");
    return status;
}

static void count_memory(const strata_prefill *prefill, int sign)
{
    strata__counters *counters = &prefill->session->counters;
    uint64_t device = prefill->memory.owned ? prefill->memory.bytes : 0;
    uint64_t host = prefill->host.region.bytes;
    strata__counter_add(&counters->device_bytes, sign > 0 ? device : 0 - device);
    strata__counter_add(&prefill->session->prefill_bytes, sign > 0 ? device : 0 - device);
    strata__counter_add(&counters->host_bytes, sign > 0 ? host : 0 - host);
}

static strata_status build(strata_prefill *prefill, const strata_prefill_options *options)
{
    strata_session *session = prefill->session;
    strata_status status = make_memory(prefill, options);
    if (status == STRATA_OK)
        status = strata__timeline_init(&prefill->timeline, session->device, session->stream);
    if (status == STRATA_OK)
        status = strata__experts_prepare(prefill);
    if (status == STRATA_OK)
        status = session->device->ops->stream_synchronize(session->device, session->stream);
    return status;
}

/* With the device current; also half built. */
static void release_memory(strata_prefill *prefill)
{
    strata_session *session = prefill->session;
    strata__feed_finish(&prefill->feed);
    strata__timeline_finish(&prefill->timeline);
    strata__region_free(&prefill->memory, session->device);
    strata__step_host_finish(&prefill->host, &session->context->allocator, session->device);
}

strata_status strata__prefill_create(strata_session *session, const strata_prefill_options *options,
                                     strata_prefill **out)
{
    const strata__allocator *allocator = &session->context->allocator;
    strata__saved_device saved;
    strata_prefill *prefill;
    strata_status status = strata__session_enter(session, &saved);
    if (status != STRATA_OK)
        return status;
    if (session->has_prefill) {
        strata__session_leave(session, &saved);
        return strata__fail(STRATA_ERR_STATE, "the session has a prefill already");
    }
    prefill = strata__calloc(allocator, 1, sizeof *prefill);
    if (!prefill) {
        strata__session_leave(session, &saved);
        return strata__fail_memory(sizeof *prefill, "a prefill");
    }
    prefill->session = session;
    status = build(prefill, options);
    if (status == STRATA_OK) {
        session->has_prefill = true;
        strata__session_retain(session);
        count_memory(prefill, 1);
        strata__session_measure(session);
        *out = prefill;
    } else {
        release_memory(prefill);
        strata__free(allocator, prefill, sizeof *prefill);
    }
    strata__session_leave(session, &saved);
    return status;
}

void strata__prefill_destroy(strata_prefill *prefill)
{
    strata_session *session;
    strata__saved_device saved;
    const strata__device_ops *ops;
    bool entered, is_idle;
    if (!prefill)
        return;
    session = prefill->session;
    entered = session->device->ops->enter(session->device, &saved) == STRATA_OK;
    ops = session->device->ops;
    is_idle = ops->stream_synchronize(session->device, session->stream) == STRATA_OK;
    if (session->copies)
        is_idle &= ops->stream_synchronize(session->device, session->copies) == STRATA_OK;
    if (!session->is_released)
        strata__loan_return(&session->loan, is_idle);
    count_memory(prefill, -1);
    release_memory(prefill);
    session->has_prefill = false;
    if (entered)
        session->device->ops->leave(session->device, &saved);
    strata__free(&session->context->allocator, prefill, sizeof *prefill);
    strata__session_drop(session);
}
