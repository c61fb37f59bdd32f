/* SPDX-License-Identifier: MIT */
#include "session/plan.h"

#include <string.h>

#include "session/plan_input.h"

static strata_status allocate(const strata__pack *pack, strata_plan **out)
{
    strata_context *context = strata__pack_context(pack);
    strata_plan *plan = strata__calloc(&context->allocator, 1, sizeof *plan);
    *out = plan;
    if (!plan)
        return strata__fail_memory(sizeof *plan, "a plan");
    atomic_init(&plan->references, 1);
    plan->context = strata__context_retain(context);
    plan->pack_fingerprint = strata__pack_fingerprint(pack);
    return STRATA_OK;
}

strata_status strata__plan_create(const strata__pack *pack, const strata__layout_input *input,
                                  strata_plan **out)
{
    strata_plan *plan;
    strata_status status = allocate(pack, &plan);
    if (status == STRATA_OK)
        status = strata__layout_plan(&plan->context->allocator, input, &plan->layout, NULL);
    if (status != STRATA_OK) {
        strata__plan_release(plan);
        return status;
    }
    *out = plan;
    return STRATA_OK;
}

strata_status strata__plan_load(strata__pack *pack, const void *data, uint64_t bytes,
                                strata_plan **out)
{
    const strata_plan_options options = {0};
    strata__layout_facts facts;
    strata__plan_input input;
    strata_plan *plan;
    strata_status status = allocate(pack, &plan);
    if (status != STRATA_OK)
        return status;
    strata__plan_facts_given(NULL, &facts);
    /*
     * Dense tensors are listed for every device; a layout that uses them in place leaves them out.
     */
    facts.host_addressable = 0;
    status = strata__plan_input_init(&input, &plan->context->allocator, pack, &facts, &options);
    if (status == STRATA_OK)
        status = strata__layout_load(&plan->context->allocator, &input.input.geometry,
                                     plan->pack_fingerprint, data, bytes, &plan->layout);
    strata__plan_input_finish(&input);
    if (status != STRATA_OK) {
        strata__plan_release(plan);
        return status;
    }
    *out = plan;
    return STRATA_OK;
}

uint64_t strata__plan_save(const strata_plan *plan, void *out, uint64_t capacity)
{
    return strata__layout_save(plan->layout, plan->pack_fingerprint, out, capacity);
}

strata_status strata__plan_check(const strata_plan *plan, const strata__pack *pack,
                                 const strata__layout_facts *facts)
{
    if (plan->pack_fingerprint != strata__pack_fingerprint(pack))
        return strata__fail(STRATA_ERR_INVALID_ARGUMENT, "the plan was made for another pack");
    return strata__layout_fits_device(plan->layout, facts);
}

strata_plan *strata__plan_retain(strata_plan *plan)
{
    atomic_fetch_add_explicit(&plan->references, 1, memory_order_relaxed);
    return plan;
}

void strata__plan_release(strata_plan *plan)
{
    strata_context *context;
    if (!plan || atomic_fetch_sub_explicit(&plan->references, 1, memory_order_acq_rel) != 1)
        return;
    context = plan->context;
    strata__layout_destroy(plan->layout);
    strata__free(&context->allocator, plan, sizeof *plan);
    strata__context_release(context);
}
