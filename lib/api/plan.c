/* SPDX-License-Identifier: MIT */
#include <strata/plan.h>

#include "base/struct_size.h"

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
