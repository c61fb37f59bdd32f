/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "base/error.h"
#include "layout/build.h"
#include "layout/path.h"
#include "layout/planner.h"

static strata_status plan(strata__planner *planner, strata__layout_problem *problem,
                          strata__layout **out, strata__layout_shortfall *shortfall)
{
    strata_status status = strata__layout_policy_check(problem);
    if (status != STRATA_OK)
        return status;
    strata__planner_init(planner, problem);
    if (planner->ring_count == 0)
        return strata__fail(STRATA_ERR_INVALID_ARGUMENT,
                            "experts are to be streamed, but there is no source of them");
    status = strata__planner_search(planner);
    if (status != STRATA_OK)
        return status;
    if (planner->best_ns == UINT64_MAX)
        return strata__planner_refuse(planner, shortfall);
    return strata__layout_build_problem(problem, &planner->best, out);
}

strata_status strata__layout_plan(const strata__allocator *allocator,
                                  const strata__layout_input *input, strata__layout **out,
                                  strata__layout_shortfall *shortfall)
{
    strata__layout_problem *problem = strata__alloc(allocator, sizeof *problem);
    strata__planner *planner = strata__alloc(allocator, sizeof *planner);
    strata__layout_shortfall unused;
    strata_status status;
    *out = NULL;
    if (!shortfall)
        shortfall = &unused;
    memset(shortfall, 0, sizeof *shortfall);
    if (!problem || !planner)
        status = strata__fail_memory(sizeof *problem + sizeof *planner, "the planner");
    else
        status = strata__layout_problem_init(problem, allocator, input);
    if (status == STRATA_OK)
        status = plan(planner, problem, out, shortfall);
    strata__free(allocator, planner, sizeof *planner);
    strata__free(allocator, problem, sizeof *problem);
    return status;
}
