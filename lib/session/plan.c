/* SPDX-License-Identifier: MIT */
#include "session/plan.h"

enum { CHUNK_TOKENS = 512, TILE_ROWS = 256 };

strata_status strata__plan_create(strata_context *context, const strata__layout_input *input,
                                  strata_plan **out)
{
    const strata__allocator *allocator = &context->allocator;
    strata__layout_choice choice = {0};
    uint64_t longest =
        input->request.prompt_tokens ? input->request.prompt_tokens : input->request.context_tokens;
    strata_plan *plan = strata__calloc(allocator, 1, sizeof *plan);
    strata_status status;
    if (!plan)
        return strata__fail_memory(sizeof *plan, "a plan");
    atomic_init(&plan->references, 1);
    plan->context = strata__context_retain(context);
    choice.chunk_tokens = (uint32_t)input->request.chunk_tokens;
    if (!choice.chunk_tokens)
        choice.chunk_tokens = longest < CHUNK_TOKENS ? (uint32_t)longest : CHUNK_TOKENS;
    choice.dense_tile = TILE_ROWS;
    choice.scratch_bytes = 1u << 20;
    status = strata__layout_build(allocator, input, &choice, &plan->layout);
    if (status != STRATA_OK) {
        strata__plan_release(plan);
        return status;
    }
    *out = plan;
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
