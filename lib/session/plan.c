/* SPDX-License-Identifier: MIT */
#include "session/plan.h"

#include <stddef.h>

strata_status strata__plan_create(const strata__pack *pack, const strata__layout_input *input,
                                  strata_plan **out)
{
    strata_context *context = strata__pack_context(pack);
    const strata__allocator *allocator = &context->allocator;
    strata_plan *plan = strata__calloc(allocator, 1, sizeof *plan);
    strata_status status;
    if (!plan)
        return strata__fail_memory(sizeof *plan, "a plan");
    atomic_init(&plan->references, 1);
    plan->context = strata__context_retain(context);
    plan->pack_fingerprint = strata__pack_fingerprint(pack);
    plan->facts = input->facts;
    status = strata__layout_plan(allocator, input, &plan->layout, NULL);
    if (status != STRATA_OK) {
        strata__plan_release(plan);
        return status;
    }
    *out = plan;
    return STRATA_OK;
}

strata_status strata__plan_check(const strata_plan *plan, const strata__pack *pack,
                                 const strata__layout_facts *facts)
{
    const strata__layout_facts *made = &plan->facts;
    const struct {
        const char *what;
        uint64_t plan;
        uint64_t device;
    } same[] = {
        {"host_addressable", made->host_addressable, facts->host_addressable},
        {"activation_bytes", made->activation_bytes, facts->activation_bytes},
        {"row_scale_bytes", made->row_scale_bytes, facts->row_scale_bytes},
        {"decode_bytes_per_value", made->decode_bytes_per_value, facts->decode_bytes_per_value},
        {"gate_up_paths", made->gate_up_paths, facts->gate_up_paths},
        {"attention_scratch_bytes_per_row", made->attention_scratch_bytes_per_row,
         facts->attention_scratch_bytes_per_row},
        {"group_scratch_bytes_per_expert", made->group_scratch_bytes_per_expert,
         facts->group_scratch_bytes_per_expert},
        {"group_scratch_bytes_fixed", made->group_scratch_bytes_fixed,
         facts->group_scratch_bytes_fixed},
    };
    if (plan->pack_fingerprint != strata__pack_fingerprint(pack))
        return strata__fail(STRATA_ERR_INVALID_ARGUMENT, "the plan was made for another pack");
    for (size_t i = 0; i < sizeof same / sizeof same[0]; ++i)
        if (same[i].plan != same[i].device)
            return strata__fail(STRATA_ERR_INVALID_ARGUMENT,
                                "the plan was made for a device of %s %llu; this one's is %llu",
                                same[i].what, (unsigned long long)same[i].plan,
                                (unsigned long long)same[i].device);
    if (made->alignment_bytes % facts->alignment_bytes)
        return strata__fail(STRATA_ERR_INVALID_ARGUMENT,
                            "the plan aligns buffers to %llu bytes; the device needs %llu",
                            (unsigned long long)made->alignment_bytes,
                            (unsigned long long)facts->alignment_bytes);
    return STRATA_OK;
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
