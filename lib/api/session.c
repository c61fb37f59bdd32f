/* SPDX-License-Identifier: MIT */
#include <strata/session.h>

#include <stddef.h>

#include "api/plan_options.h"
#include "base/error.h"
#include "base/struct_size.h"
#include "session/session.h"

/* Sizes of the structures in the release that brought them. */
enum { FIRST_OPTIONS_BYTES = 104, FIRST_STATS_BYTES = 248 };

enum { MOST_THREADS = 1024 };

static const strata_session_options defaults = {0};

void strata_session_options_init(strata_session_options *options, uint64_t caller_bytes)
{
    strata__struct_init(options, caller_bytes, &defaults, sizeof defaults);
}

static strata_status check_options(const strata_session_options *options)
{
    if (options->thread_count > MOST_THREADS)
        return strata__fail(STRATA_ERR_INVALID_ARGUMENT,
                            "strata_session_options: thread_count is %u; it must be at most %d",
                            options->thread_count, MOST_THREADS);
    if (options->blas > 1)
        return strata__fail(STRATA_ERR_INVALID_ARGUMENT,
                            "strata_session_options: blas is %u; it must be 0 or 1", options->blas);
    if (options->kernel_level != 0 && options->kernel_level != 80)
        return strata__fail(STRATA_ERR_INVALID_ARGUMENT,
                            "strata_session_options: kernel_level is %u; it must be 0 or 80",
                            options->kernel_level);
    if (options->plain_launches > 1)
        return strata__fail(STRATA_ERR_INVALID_ARGUMENT,
                            "strata_session_options: plain_launches is %u; it must be 0 or 1",
                            options->plain_launches);
    if (options->expert_memory > STRATA_EXPERT_MEMORY_LOCKED)
        return strata__fail(STRATA_ERR_INVALID_ARGUMENT,
                            "strata_session_options: expert_memory is %u; it must be 0 or 1",
                            options->expert_memory);
    if (!options->profile && options->profile_bytes)
        return strata__fail(STRATA_ERR_INVALID_ARGUMENT,
                            "strata_session_options: profile is NULL, yet profile_bytes is %llu",
                            (unsigned long long)options->profile_bytes);
    if (!options->device_memory && options->device_memory_bytes)
        return strata__fail(STRATA_ERR_INVALID_ARGUMENT,
                            "strata_session_options: device_memory is NULL, yet "
                            "device_memory_bytes is %llu",
                            (unsigned long long)options->device_memory_bytes);
    if (options->plan && options->plan_options)
        return strata__fail(STRATA_ERR_INVALID_ARGUMENT,
                            "strata_session_options: plan and plan_options exclude each other");
    return STRATA_OK;
}

/* Nested structures become the library's own, like the outer one. */
static strata_status copy_plan_options(strata_session_options *options, strata_plan_options *plan,
                                       strata_device_facts *facts)
{
    strata_status status;
    if (!options->plan_options)
        return STRATA_OK;
    status = strata__plan_options_in(options->plan_options, plan, facts);
    options->plan_options = plan;
    return status;
}

strata_status strata_session_create(strata_pack *pack, const strata_session_options *options,
                                    strata_session **out)
{
    strata_session_options local = defaults;
    strata_plan_options plan;
    strata_device_facts facts;
    strata_status status;
    if (!out)
        return strata__fail(STRATA_ERR_INVALID_ARGUMENT, "strata_session_create: out is NULL");
    *out = NULL;
    if (!pack)
        return strata__fail(STRATA_ERR_INVALID_ARGUMENT, "strata_session_create: pack is NULL");
    if (options) {
        status = strata__struct_in(&local, sizeof local, options, FIRST_OPTIONS_BYTES,
                                   "strata_session_options");
        if (status != STRATA_OK)
            return status;
    }
    status = check_options(&local);
    if (status == STRATA_OK)
        status = copy_plan_options(&local, &plan, &facts);
    if (status != STRATA_OK)
        return status;
    return strata__session_create(pack, &local, out);
}

void strata_session_destroy(strata_session *session)
{
    strata__session_release(session);
}

void strata_session_cancel(strata_session *session)
{
    if (session)
        strata__session_cancel(session);
}

const strata_plan *strata_session_plan(const strata_session *session)
{
    return session ? strata__session_plan(session) : NULL;
}

strata_status strata_session_length(const strata_session *session, int32_t sequence_id,
                                    uint64_t *out_tokens)
{
    if (!session || !out_tokens)
        return strata__fail(STRATA_ERR_INVALID_ARGUMENT, "strata_session_length: %s is NULL",
                            session ? "out_tokens" : "session");
    return strata__session_length(session, sequence_id, out_tokens);
}

strata_status strata_session_truncate(strata_session *session, int32_t sequence_id,
                                      uint64_t length_tokens, uint64_t *out_length_tokens)
{
    if (!session || !out_length_tokens)
        return strata__fail(STRATA_ERR_INVALID_ARGUMENT, "strata_session_truncate: %s is NULL",
                            session ? "out_length_tokens" : "session");
    return strata__session_truncate(session, sequence_id, length_tokens, out_length_tokens);
}

uint64_t strata_session_logits_count(const strata_session *session)
{
    return session ? strata__session_logits_count(session) : 0;
}

strata_status strata_session_stats_get(const strata_session *session, strata_session_stats *inout)
{
    strata_session_stats stats = {0};
    if (!session || !inout)
        return strata__fail(STRATA_ERR_INVALID_ARGUMENT, "strata_session_stats_get: %s is NULL",
                            session ? "inout" : "session");
    strata__session_stats(session, &stats);
    return strata__struct_out(inout, &stats, sizeof stats, FIRST_STATS_BYTES,
                              "strata_session_stats");
}
