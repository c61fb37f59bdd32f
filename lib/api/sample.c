/* SPDX-License-Identifier: MIT */
#include <strata/sample.h>

#include <math.h>
#include <stddef.h>

#include "base/error.h"
#include "base/struct_size.h"
#include "text/sample.h"

/* Size of the structure in the release that brought it. */
enum { FIRST_SAMPLE_BYTES = 40 };

static const strata_sample_options defaults = {
    .temperature = 1, .top_p = 1, .repetition_penalty = 1};

void strata_sample_options_init(strata_sample_options *options, uint64_t caller_bytes)
{
    strata__struct_init(options, caller_bytes, &defaults, sizeof defaults);
}

static strata_status fail_null(const char *function, const char *argument)
{
    return strata__fail(STRATA_ERR_INVALID_ARGUMENT, "%s: %s is NULL", function, argument);
}

static strata_status check_logits(const char *function, const float *logits, uint64_t count)
{
    if (!logits)
        return fail_null(function, "logits");
    if (count < 1 || count > INT32_MAX)
        return strata__fail(STRATA_ERR_INVALID_ARGUMENT, "%s: count is %llu; 1 to 2^31 - 1",
                            function, (unsigned long long)count);
    return STRATA_OK;
}

/* Neither NaN nor infinite, and from `least` to `most`. */
static strata_status check_number(const char *function, const char *name, float value, float least,
                                  float most)
{
    if (isfinite(value) && value >= least && value <= most)
        return STRATA_OK;
    return strata__fail(STRATA_ERR_INVALID_ARGUMENT, "%s: %s is %g", function, name, (double)value);
}

/* The least positive numbers, of all and of the normal ones; and the largest. */
static const float above_zero = 0x1p-149f, positive = 0x1p-126f, unbounded = 0x1.fffffep127f;

static strata_status check_options(const strata_sample_options *options)
{
    const char *name = "strata_sample_options";
    strata_status status = STRATA_OK;
    if (options->temperature != 0)
        status = check_number(name, "temperature", options->temperature, above_zero, unbounded);
    if (status == STRATA_OK)
        status = check_number(name, "top_p", options->top_p, 0, 1);
    if (status == STRATA_OK)
        status = check_number(name, "min_p", options->min_p, 0, 1);
    if (status == STRATA_OK)
        status = check_number(name, "repetition_penalty", options->repetition_penalty, positive,
                              unbounded);
    if (status == STRATA_OK && options->recent_count && !options->recent_tokens)
        status = fail_null(name, "recent_tokens");
    return status;
}

strata_status strata_sample(const strata_sample_options *options, float *logits, uint64_t count,
                            uint64_t *random_state, int32_t *out_token)
{
    const char *function = "strata_sample";
    strata_sample_options local = defaults;
    strata_status status = check_logits(function, logits, count);
    if (status == STRATA_OK && options)
        status = strata__struct_in(&local, sizeof local, options, FIRST_SAMPLE_BYTES,
                                   "strata_sample_options");
    if (status == STRATA_OK)
        status = check_options(&local);
    if (status != STRATA_OK)
        return status;
    if (!random_state && local.temperature != 0)
        return fail_null(function, "random_state");
    if (!out_token)
        return fail_null(function, "out_token");
    return strata__sample(&local, logits, count, random_state, out_token);
}

strata_status strata_logits_greedy(const float *logits, uint64_t count, int32_t *out_token)
{
    const char *function = "strata_logits_greedy";
    strata_status status = check_logits(function, logits, count);
    if (status != STRATA_OK)
        return status;
    return out_token ? strata__logits_greedy(logits, count, out_token)
                     : fail_null(function, "out_token");
}

strata_status strata_logits_draw(const float *logits, uint64_t count, uint64_t *random_state,
                                 int32_t *out_token)
{
    const char *function = "strata_logits_draw";
    strata_status status = check_logits(function, logits, count);
    if (status != STRATA_OK)
        return status;
    if (!random_state)
        return fail_null(function, "random_state");
    return out_token ? strata__logits_draw(logits, count, random_state, out_token)
                     : fail_null(function, "out_token");
}

strata_status strata_logits_temperature(float *logits, uint64_t count, float temperature)
{
    const char *function = "strata_logits_temperature";
    strata_status status = check_logits(function, logits, count);
    if (status == STRATA_OK)
        status = check_number(function, "temperature", temperature, above_zero, unbounded);
    if (status == STRATA_OK)
        strata__logits_temperature(logits, count, temperature);
    return status;
}

strata_status strata_logits_top_k(float *logits, uint64_t count, uint32_t top_k)
{
    strata_status status = check_logits("strata_logits_top_k", logits, count);
    if (status == STRATA_OK)
        strata__logits_top_k(logits, count, top_k);
    return status;
}

strata_status strata_logits_top_p(float *logits, uint64_t count, float top_p)
{
    const char *function = "strata_logits_top_p";
    strata_status status = check_logits(function, logits, count);
    if (status == STRATA_OK)
        status = check_number(function, "top_p", top_p, 0, 1);
    if (status == STRATA_OK)
        strata__logits_top_p(logits, count, top_p);
    return status;
}

strata_status strata_logits_min_p(float *logits, uint64_t count, float min_p)
{
    const char *function = "strata_logits_min_p";
    strata_status status = check_logits(function, logits, count);
    if (status == STRATA_OK)
        status = check_number(function, "min_p", min_p, 0, 1);
    if (status == STRATA_OK)
        strata__logits_min_p(logits, count, min_p);
    return status;
}

strata_status strata_logits_repetition_penalty(float *logits, uint64_t count,
                                               const int32_t *recent_tokens, uint64_t recent_count,
                                               float penalty)
{
    const char *function = "strata_logits_repetition_penalty";
    strata_status status = check_logits(function, logits, count);
    if (status == STRATA_OK)
        status = check_number(function, "penalty", penalty, positive, unbounded);
    if (status != STRATA_OK)
        return status;
    if (!recent_tokens && recent_count)
        return fail_null(function, "recent_tokens");
    strata__logits_repetition_penalty(logits, count, recent_tokens, recent_count, penalty);
    return STRATA_OK;
}
