/* SPDX-License-Identifier: MIT */
/*
 * What would fit, when nothing does: the smallest budget, the longest context, the largest chunk.
 */
#include <stdio.h>

#include "base/error.h"
#include "layout/arena.h"
#include "layout/path.h"
#include "layout/planner.h"

/* The least device bytes of a chunk: with all experts or with the smallest ring. */
static uint64_t chunk_bytes(strata__planner *planner, uint32_t chunk)
{
    strata__layout_problem *p = planner->problem;
    strata__layout_spec spec;
    uint64_t arena, least = UINT64_MAX;
    strata__planner_spec(planner, chunk, STRATA__PLANNER_DENSE - 1, STRATA__PLANNER_EXPERT - 1,
                         STRATA__PLANNER_SCRATCH - 1, &spec);
    if (strata__layout_paths_choose(p, &spec, planner->paths, NULL) != STRATA_OK)
        return UINT64_MAX;
    arena = strata__layout_arena_bytes(p, &spec, planner->paths, false);
    for (uint32_t i = 0; i < planner->ring_count && i < 2; ++i) {
        uint64_t bytes, experts;
        spec.ring_bytes = planner->rings[i].ring_bytes;
        bytes = strata__planner_bytes(planner, &spec, arena);
        experts = p->copies && spec.ring_bytes == 0 ? p->expert_bytes : 0;
        if (bytes <= UINT64_MAX - experts && bytes + experts < least)
            least = bytes + experts;
    }
    return least;
}

static uint64_t least_bytes(strata__planner *planner)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < planner->chunk_count; ++i) {
        uint64_t bytes = chunk_bytes(planner, planner->chunks[i]);
        if (bytes < least)
            least = bytes;
    }
    return least;
}

/* The largest value up to `most` that fits, by halving; 0: none. */
static uint64_t largest(strata__planner *planner, uint64_t most,
                        bool (*fits)(strata__planner *, uint64_t))
{
    uint64_t good = 0, bad = most + 1;
    while (bad - good > 1) {
        uint64_t middle = good + (bad - good) / 2;
        if (fits(planner, middle))
            good = middle;
        else
            bad = middle;
    }
    return good;
}

static bool chunk_fits(strata__planner *planner, uint64_t chunk)
{
    return chunk_bytes(planner, (uint32_t)chunk) <= planner->problem->budget_bytes;
}

static bool pages_fit(strata__planner *planner, uint64_t pages)
{
    strata__layout_problem *p = planner->problem;
    p->pages_per_sequence = (uint32_t)pages;
    p->pages_total = (uint32_t)pages * p->request.sequences;
    p->request.context_tokens = pages * p->request.page_tokens;
    if (p->request.prompt_tokens > p->request.context_tokens)
        p->request.prompt_tokens = p->request.context_tokens;
    if (p->request.chunk_tokens > p->request.context_tokens)
        p->request.chunk_tokens = p->request.context_tokens;
    strata__planner_init(planner, p);
    return least_bytes(planner) <= p->budget_bytes;
}

strata_status strata__planner_refuse(strata__planner *planner, strata__layout_shortfall *shortfall)
{
    strata__layout_problem *p = planner->problem;
    unsigned long long context = p->request.context_tokens, budget = p->budget_bytes;
    char chunk_text[64] = "", context_text[64] = "";
    uint64_t chunk = p->request.chunk_tokens;
    shortfall->needed_bytes = least_bytes(planner);
    if (shortfall->needed_bytes <= p->budget_bytes)
        return strata__fail(STRATA_ERR_PLAN_INFEASIBLE,
                            "page-locked host memory: the budget of %llu bytes is less than the "
                            "%llu that a prompt needs",
                            (unsigned long long)p->host_budget_bytes,
                            (unsigned long long)planner->host.bytes);
    shortfall->missing_bytes = shortfall->needed_bytes - p->budget_bytes;
    if (chunk)
        shortfall->chunk_tokens = largest(planner, chunk, chunk_fits);
    shortfall->context_tokens =
        largest(planner, p->pages_per_sequence, pages_fit) * p->request.page_tokens;
    if (shortfall->context_tokens > context)
        shortfall->context_tokens = context;
    if (shortfall->chunk_tokens)
        snprintf(chunk_text, sizeof chunk_text, ", or a chunk of %llu tokens",
                 (unsigned long long)shortfall->chunk_tokens);
    if (shortfall->context_tokens)
        snprintf(context_text, sizeof context_text, ", or a context of %llu tokens",
                 (unsigned long long)shortfall->context_tokens);
    return strata__fail(STRATA_ERR_PLAN_INFEASIBLE,
                        "device memory: at least %llu bytes are needed, %llu more than the budget "
                        "of %llu; what would fit: that budget%s%s",
                        (unsigned long long)shortfall->needed_bytes,
                        (unsigned long long)shortfall->missing_bytes, budget, context_text,
                        chunk_text);
}
