/* SPDX-License-Identifier: MIT */
/* Composed operations as what they are composed of, one launch after the other. */
#include "kernels/kernels.h"

strata_status strata__compose_project(strata__kernels *kernels, void *stream,
                                      const strata__project_args *args)
{
    strata_status status = STRATA_OK;
    if (args->norm.x)
        status = kernels->ops->norm(kernels, stream, &args->norm);
    for (uint32_t i = 0; i < args->part_count && status == STRATA_OK; ++i)
        status = kernels->ops->dense(kernels, stream, &args->parts[i]);
    return status;
}

strata_status strata__compose_route(strata__kernels *kernels, void *stream,
                                    const strata__route_args *args)
{
    strata_status status = kernels->ops->norm(kernels, stream, &args->norm);
    if (status == STRATA_OK)
        status = kernels->ops->router(kernels, stream, &args->router);
    if (status == STRATA_OK)
        status = kernels->ops->select(kernels, stream, &args->select);
    if (status == STRATA_OK)
        status = kernels->ops->group(kernels, stream, &args->group);
    return status;
}

strata_status strata__compose_experts(strata__kernels *kernels, void *stream,
                                      const strata__experts_args *args)
{
    strata_status status = kernels->ops->gate_up(kernels, stream, &args->gate_up);
    if (status == STRATA_OK)
        status = kernels->ops->down(kernels, stream, &args->down);
    if (status == STRATA_OK)
        status = kernels->ops->combine(kernels, stream, &args->combine);
    return status;
}
