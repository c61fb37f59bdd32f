/* SPDX-License-Identifier: MIT */
/*
 * Prompts whose experts are streamed, on the delaying device in all its schedules: the same bits as
 * on the CPU device with the experts in place, whatever ring, groups, places, tiles, budgets and
 * sources.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"
#include "support/stream_case.h"

static tiny_spec small_spec(void)
{
    tiny_spec spec = tiny_spec_default();
    spec.layers = 3;
    spec.experts = 8;
    spec.top_k = 2;
    spec.gate_format = 8;
    return spec;
}

static void for_schedules(const stream_pack *p, const stream_options *options, uint64_t seeds)
{
    stream_options o = *options;
    for (uint32_t policy = 0; policy < STRATA__DELAYING_POLICY_COUNT; ++policy) {
        for (uint64_t seed = 0; seed < (policy == STRATA__DELAYING_RANDOM ? seeds : 1); ++seed) {
            o.device.policy = policy;
            o.device.seed = seed;
            stream_check(p, &o, 2);
        }
    }
}

static void every_ring_and_place(void **state)
{
    const stream_options cases[] = {
        {.fetch = 2},
        {.fetch = 1},
        {.fetch = 2, .group_experts = 3},
        {.fetch = 2, .group_experts = 3, .ring_pieces = 7, .resident = 2},
        {.fetch = 1, .group_experts = 2, .ring_pieces = 5, .resident = 3, .resident_step = 1},
        {.fetch = 2, .group_experts = 8, .ring_pieces = 40, .resident = 1},
        {.fetch = 2, .group_experts = 2, .resident = 8, .resident_step = 3, .expert_tile = 5},
        {.fetch = 2, .group_experts = 3, .ring_pieces = 11, .dense_tile = 7, .expert_tile = 9},
    };
    tiny_spec spec = small_spec();
    stream_pack p;
    (void)state;
    stream_pack_open(&p, &spec, 32, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i)
        for_schedules(&p, &cases[i], 6);
    stream_pack_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_ring_and_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
