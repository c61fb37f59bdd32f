/* SPDX-License-Identifier: MIT */
#include <strata/plan.h>

#include <string.h>

#include "api/plan_options.h"
#include "base/error.h"
#include "base/struct_size.h"
#include "kernels/kernels.h"
#include "session/plan.h"
#include "session/plan_file.h"
#include "session/plan_input.h"
#include "session/tune.h"

/* Sizes of the structures in the release that brought them. */
enum { FIRST_OPTIONS_BYTES = 104, FIRST_FACTS_BYTES = 104, FIRST_SHORTFALL_BYTES = 40 };

static const strata_plan_options default_options = {.kv_format = STRATA_KV_F16};
static const strata_device_facts default_facts = {0};

void strata_plan_options_init(strata_plan_options *options, uint64_t caller_bytes)
{
    strata__struct_init(options, caller_bytes, &default_options, sizeof default_options);
}

void strata_device_facts_init(strata_device_facts *facts, uint64_t caller_bytes)
{
    strata__struct_init(facts, caller_bytes, &default_facts, sizeof default_facts);
}

strata_status strata__plan_options_in(const strata_plan_options *caller,
                                      strata_plan_options *options, strata_device_facts *facts)
{
    strata_status status;
    *options = default_options;
    if (!caller)
        return STRATA_OK;
    status = strata__struct_in(options, sizeof *options, caller, FIRST_OPTIONS_BYTES,
                               "strata_plan_options");
    if (status == STRATA_OK && (options->lend_cache > 1 || options->reserved0))
        status = strata__fail(STRATA_ERR_INVALID_ARGUMENT,
                              "strata_plan_options: lend_cache is %u; it must be 0 or 1",
                              options->lend_cache);
    if (status == STRATA_OK && options->decode_rows > STRATA_DECODE_MOST_ROWS &&
        options->decode_rows != STRATA_DECODE_ROWS_NONE)
        status = strata__fail(STRATA_ERR_INVALID_ARGUMENT,
                              "strata_plan_options: decode_rows is %u; it must be at most %d",
                              options->decode_rows, STRATA_DECODE_MOST_ROWS);
    if (status == STRATA_OK && options->reserved1)
        status =
            strata__fail(STRATA_ERR_INVALID_ARGUMENT,
                         "strata_plan_options: reserved1 is %u; it must be 0", options->reserved1);
    if (status == STRATA_OK && options->device) {
        status = strata__struct_in(facts, sizeof *facts, options->device, FIRST_FACTS_BYTES,
                                   "strata_device_facts");
        options->device = facts;
    }
    return status;
}

static strata_status fail_null(const char *function, const char *argument)
{
    return strata__fail(STRATA_ERR_INVALID_ARGUMENT, "%s: %s is NULL", function, argument);
}

/* Of the facts that are given: sessions find a device's own when it is opened. */
static strata_status check_capability(const strata_device_facts *facts)
{
    uint32_t capability = facts ? facts->compute_capability : 0;
    if (capability == 0 || capability >= STRATA__LEAST_CAPABILITY)
        return STRATA_OK;
    return strata__fail(STRATA_ERR_UNSUPPORTED,
                        "compute capability %u.%u (%u): %u.%u (%u) and later are supported; 0 is "
                        "the CPU",
                        capability / 10, capability % 10, capability, STRATA__LEAST_CAPABILITY / 10,
                        STRATA__LEAST_CAPABILITY % 10, STRATA__LEAST_CAPABILITY);
}

/* From the caller's options to the layout's input; `input` is to be finished whatever comes. */
static strata_status make_input(strata_pack *pack, const strata_plan_options *caller,
                                strata__plan_input *input)
{
    strata_plan_options options;
    strata_device_facts given;
    strata__layout_facts facts;
    strata_status status = strata__plan_options_in(caller, &options, &given);
    memset(input, 0, sizeof *input);
    if (status == STRATA_OK)
        status = check_capability(options.device);
    if (status != STRATA_OK)
        return status;
    strata__plan_facts_given(options.device, &facts);
    return strata__plan_input_init(input, &strata__pack_context(pack)->allocator, pack, &facts,
                                   &options);
}

strata_status strata_plan_create(strata_pack *pack, const strata_plan_options *options,
                                 strata_plan **out)
{
    strata__plan_input input;
    strata_status status;
    if (!out)
        return fail_null("strata_plan_create", "out");
    *out = NULL;
    if (!pack)
        return fail_null("strata_plan_create", "pack");
    status = make_input(pack, options, &input);
    if (status == STRATA_OK)
        status = strata__plan_create(pack, &input.input, out);
    strata__plan_input_finish(&input);
    return status;
}

strata_status strata_costs_measure(strata_context *context, const char *device, char *text,
                                   uint64_t capacity, uint64_t *out_bytes)
{
    if (!context || !text || !out_bytes)
        return fail_null("strata_costs_measure", !context ? "context"
                                                 : !text  ? "text"
                                                          : "out_bytes");
    return strata__tune(context, device ? device : "cpu", text, capacity, out_bytes);
}

void strata_plan_destroy(strata_plan *plan)
{
    strata__plan_release(plan);
}

strata_status strata_plan_shortfall_get(strata_pack *pack, const strata_plan_options *options,
                                        strata_plan_shortfall *inout)
{
    strata_plan_shortfall answer = {.feasible = 1};
    strata__layout_shortfall shortfall = {0};
    strata__layout *layout = NULL;
    strata__plan_input input;
    strata_status status;
    if (!pack || !inout)
        return fail_null("strata_plan_shortfall_get", pack ? "inout" : "pack");
    status = make_input(pack, options, &input);
    if (status == STRATA_OK)
        status = strata__layout_plan(input.allocator, &input.input, &layout, &shortfall);
    strata__layout_destroy(layout);
    strata__plan_input_finish(&input);
    if (status == STRATA_ERR_PLAN_INFEASIBLE) {
        answer.feasible = 0;
        answer.needed_bytes = shortfall.needed_bytes;
        answer.missing_bytes = shortfall.missing_bytes;
        answer.context_tokens = shortfall.context_tokens;
        answer.chunk_tokens = shortfall.chunk_tokens;
        status = STRATA_OK;
    }
    if (status != STRATA_OK)
        return status;
    return strata__struct_out(inout, &answer, sizeof answer, FIRST_SHORTFALL_BYTES,
                              "strata_plan_shortfall");
}

strata_status strata_plan_save_memory(const strata_plan *plan, void *buffer, uint64_t buffer_bytes,
                                      uint64_t *out_bytes)
{
    if (!plan || !out_bytes || (!buffer && buffer_bytes))
        return fail_null("strata_plan_save_memory",
                         !plan ? "plan" : (out_bytes ? "buffer" : "out_bytes"));
    *out_bytes = strata__plan_save(plan, buffer, buffer_bytes);
    if (*out_bytes <= buffer_bytes)
        return STRATA_OK;
    return strata__fail(STRATA_ERR_BUFFER_TOO_SMALL, "a saved plan takes %llu bytes, not %llu",
                        (unsigned long long)*out_bytes, (unsigned long long)buffer_bytes);
}

strata_status strata_plan_save_path(const strata_plan *plan, const char *path)
{
    if (!plan || !path)
        return fail_null("strata_plan_save_path", plan ? "path" : "plan");
    return strata__plan_save_path(plan, path);
}

strata_status strata_plan_load_memory(strata_pack *pack, const void *data, uint64_t bytes,
                                      strata_plan **out)
{
    if (!out)
        return fail_null("strata_plan_load_memory", "out");
    *out = NULL;
    if (!pack || !data)
        return fail_null("strata_plan_load_memory", pack ? "data" : "pack");
    return strata__plan_load(pack, data, bytes, out);
}

strata_status strata_plan_load_path(strata_pack *pack, const char *path, strata_plan **out)
{
    if (!out)
        return fail_null("strata_plan_load_path", "out");
    *out = NULL;
    if (!pack || !path)
        return fail_null("strata_plan_load_path", pack ? "path" : "pack");
    return strata__plan_load_path(pack, path, out);
}
