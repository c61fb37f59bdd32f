/* SPDX-License-Identifier: MIT */
#include <stddef.h>

#include "base/error.h"
#include "kernels/cpu/cpu.h"

static uint64_t workspace_bytes(uint32_t threads)
{
    return (uint64_t)threads * STRATA__WORKSPACE_FLOATS * sizeof(float);
}

static void destroy(strata__kernels *kernels)
{
    strata__cpu_kernels *cpu = strata__cpu_of(kernels);
    if (!kernels)
        return;
    strata__pool_destroy(cpu->pool);
    strata__free(cpu->allocator, cpu->workspaces, workspace_bytes(cpu->threads));
    strata__free(cpu->allocator, cpu, sizeof *cpu);
}

static const strata__kernels_ops operations = {
    .destroy = destroy,
    .embed = strata__cpu_embed,
    .norm = strata__cpu_norm,
    .dense = strata__cpu_dense,
    .qkv = strata__cpu_qkv,
    .attention = strata__cpu_attention,
    .router = strata__cpu_router,
    .select = strata__cpu_select,
    .group = strata__cpu_group,
    .activate = strata__cpu_activate,
    .gate_up = strata__cpu_gate_up,
    .down = strata__cpu_down,
    .combine = strata__cpu_combine,
    .project = strata__compose_project,
    .route = strata__compose_route,
    .experts = strata__compose_experts,
};

strata_status strata__cpu_kernels_create(const strata__cpu_kernels_options *options,
                                         strata__kernels **out)
{
    const strata__allocator *allocator = options->allocator;
    *out = NULL;
    strata__cpu_kernels *cpu = strata__calloc(allocator, 1, sizeof *cpu);
    if (!cpu)
        return strata__fail_memory(sizeof *cpu, "the CPU kernels");
    cpu->base.ops = &operations;
    strata__kernels_facts_of(0, &cpu->base.facts);
    cpu->allocator = allocator;
    cpu->level = strata__cpu_best_level();
    cpu->code = strata__cpu_code_of(cpu->level);
    cpu->threads = options->threads ? options->threads : strata__pool_cores();
    cpu->any_order = options->any_order != 0;
    uint64_t bytes = workspace_bytes(cpu->threads);
    cpu->workspaces = strata__alloc_aligned(allocator, bytes, 64);
    strata_status status = cpu->workspaces
                               ? strata__pool_create(allocator, cpu->threads, &cpu->pool)
                               : strata__fail_memory(bytes, "working memory of the CPU kernels");
    if (status) {
        destroy(&cpu->base);
        return status;
    }
    *out = &cpu->base;
    return STRATA_OK;
}
