/* SPDX-License-Identifier: MIT */
/* The architectures there are. */
#include <stddef.h>
#include <string.h>

#include "pack/architecture.h"
#include "pack/architectures/all.h"

static const strata__architecture *const all[] = {
    &strata__architecture_bailingmoe2, &strata__architecture_ernie4_5_moe,
    &strata__architecture_glm4moe,     &strata__architecture_gpt_oss,
    &strata__architecture_granitemoe,  &strata__architecture_hunyuan_moe,
    &strata__architecture_llama,       &strata__architecture_minimax_m2,
    &strata__architecture_olmoe,       &strata__architecture_qwen2moe,
    &strata__architecture_qwen3moe,
};

const strata__architecture *strata__architecture_find(const char *name)
{
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (strcmp(all[i]->name, name) == 0)
            return all[i];
    return NULL;
}

const char *strata__architecture_name(uint32_t index)
{
    return index < sizeof all / sizeof all[0] ? all[index]->name : NULL;
}
