/* SPDX-License-Identifier: MIT */
/* Costs of paths and formats: the text, what is built in, and what they choose. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"
#include "session/plan.h"
#include "session/plan_costs.h"
#include "session/plan_input.h"
#include "session/tune.h"
#include "support/ok.h"
#include "support/tiny_pack.h"

static const strata_context_options context_options = {.struct_size = sizeof context_options};

static strata__plan_costs defaults(uint32_t compute_capability)
{
    strata_device_facts given = {.compute_capability = compute_capability};
    strata__layout_facts facts;
    strata__plan_costs costs;
    strata__plan_facts_given(&given, &facts);
    strata__plan_costs_default(&facts, &costs);
    return costs;
}

static void the_text_is_read(void **state)
{
    strata__plan_costs costs = defaults(90), before = costs;
    (void)state;
    ok(strata__plan_costs_parse(
        "strata costs 1\r\n\n# a remark\ncompute_capability 90 # and another\n"
        "fused IQ2_XS 140000\n"
        "  fused\t*  160000 96\nfp16 Q4_K 500000",
        90, &costs));
    assert_true(costs.flops[STRATA__LAYOUT_FUSED][STRATA__IQ2_XS] == 1.4e14);
    assert_true(costs.flops[STRATA__LAYOUT_FUSED][STRATA__Q4_K] == 1.6e14);
    assert_true(costs.half_rows[STRATA__LAYOUT_FUSED] == 96);
    assert_true(costs.flops[STRATA__LAYOUT_FP16][STRATA__Q4_K] == 5e14);
    assert_memory_equal(costs.flops[STRATA__LAYOUT_MMQ], before.flops[STRATA__LAYOUT_MMQ],
                        sizeof costs.flops[0]);
    assert_true(costs.half_rows[STRATA__LAYOUT_FP16] == before.half_rows[STRATA__LAYOUT_FP16]);
    ok(strata__plan_costs_parse("strata costs 1\ncompute_capability 90", 90, &costs));
}

static void what_is_no_text_of_costs_is_refused(void **state)
{
    static const struct {
        const char *text, *named;
    } bad[] = {
        {"", "first line"},
        {"strata costs 2\ncompute_capability 90\n", "first line"},
        {"strata costs 10\ncompute_capability 90\n", "first line"},
        {"strata costs 1", "compute_capability"},
        {"strata costs 1\nfused * 1 1\n", "line 2"},
        {"strata costs 1\ncompute_capability 86\n", "86"},
        {"strata costs 1\ncompute_capability x\n", "line 2"},
        {"strata costs 1\ncompute_capability 90\nfused * 1\n", "line 3"},
        {"strata costs 1\ncompute_capability 90\n\nfused * 1 1 1\n", "line 4"},
        {"strata costs 1\ncompute_capability 90\nfused * 0 1\n", "line 3"},
        {"strata costs 1\ncompute_capability 90\nfused * -1 1\n", "line 3"},
        {"strata costs 1\ncompute_capability 90\nfused * 1e9 1\n", "line 3"},
        {"strata costs 1\ncompute_capability 90\nfused * 1000000001 1\n", "line 3"},
        {"strata costs 1\ncompute_capability 90\nfused * 99999999999999999999 1\n", "line 3"},
        {"strata costs 1\ncompute_capability 90\nfused * 1 1000001\n", "line 3"},
        {"strata costs 1\ncompute_capability 90\nfused Q9_Z 1\n", "line 3"},
        {"strata costs 1\ncompute_capability 90\nfused Q4_K 1 1\n", "line 3"},
        {"strata costs 1\ncompute_capability 90\nfast Q4_K 1\n", "line 3"},
    };
    (void)state;
    for (uint64_t i = 0; i < sizeof bad / sizeof bad[0]; ++i) {
        strata__plan_costs costs = defaults(90);
        if (strata__plan_costs_parse(bad[i].text, 90, &costs) != STRATA_ERR_INVALID_ARGUMENT)
            fail_msg("text %d was taken", (int)i);
        if (!strstr(strata__error_text(), bad[i].named))
            fail_msg("text %d: %s", (int)i, strata__error_text());
    }
}

/* The path of layer 0 of a model of these formats for prompts of `rows`. */
static uint32_t chosen(const char *text, uint32_t compute_capability, uint32_t format,
                       uint32_t rows)
{
    tiny_spec spec = tiny_spec_default();
    strata_device_facts device = {.struct_size = sizeof device,
                                  .compute_capability = compute_capability,
                                  .memory_bytes = 8ull << 30};
    strata_plan_options options = {.struct_size = sizeof options, .chunk_tokens = rows};
    strata__layout_facts facts;
    strata__plan_input input;
    strata_context *context = NULL;
    strata__pack *pack = NULL;
    strata_plan *plan = NULL;
    uint64_t bytes;
    uint8_t *image;
    uint32_t path;
    spec.width = spec.expert_width = 256;
    spec.gate_format = spec.up_format = spec.down_format = format;
    spec.context_tokens = 4096;
    image = tiny_pack_make(&spec, &bytes);
    options.context_tokens = 4096;
    options.costs = text;
    ok(strata__context_create(&context_options, &context));
    ok(strata__pack_open_memory(context, image, bytes, &pack));
    strata__plan_facts_given(&device, &facts);
    ok(strata__plan_input_init(&input, &context->allocator, pack, &facts, &options));
    ok(strata__plan_create(pack, &input.input, &plan));
    path = plan->layout->prompt.paths[plan->layout->prompt.band_count - 1];
    strata__plan_input_finish(&input);
    strata__plan_release(plan);
    strata__pack_release(pack);
    strata__context_release(context);
    free(image);
    return path;
}

/* Cards with fast int8 take it, data-centre cards stay with half, at any number of rows. */
static void cards_choose_what_is_fast_on_them(void **state)
{
    static const uint32_t half[] = {80, 90, 100}, int8[] = {86, 89, 120};
    (void)state;
    for (uint32_t rows = 64; rows <= 4096; rows *= 8)
        for (int i = 0; i < 3; ++i) {
            assert_int_equal(chosen(NULL, half[i], STRATA__Q8_0, rows), STRATA__LAYOUT_FP16);
            assert_int_equal(chosen(NULL, int8[i], STRATA__Q8_0, rows), STRATA__LAYOUT_FUSED);
        }
}

static void costs_choose_by_format(void **state)
{
    static const char text[] = "strata costs 1\ncompute_capability 90\nfused * 1 1\nmmq * 1 1\n"
                               "fp16 * 1000 1\n"
                               "fused Q8_0 900000000\nmmq Q4_0 900000000\n";
    (void)state;
    assert_int_equal(chosen(text, 90, STRATA__Q8_0, 2048), STRATA__LAYOUT_FUSED);
    assert_int_equal(chosen(text, 90, STRATA__Q4_0, 2048), STRATA__LAYOUT_MMQ);
    assert_int_equal(chosen(text, 90, STRATA__Q5_0, 2048), STRATA__LAYOUT_FP16);
}

/* The more float operations on a dot, and the fewer values in it, the slower are int8 products. */
static void built_in_rates_follow_the_int8_form(void **state)
{
    static const uint32_t slower[] = {STRATA__Q2_0, STRATA__Q8_0, STRATA__Q4_K, STRATA__Q2_K};
    strata__plan_costs costs = defaults(90);
    const double *rates = costs.flops[STRATA__LAYOUT_FUSED];
    (void)state;
    for (int i = 0; i < 3; ++i)
        assert_true(rates[slower[i]] > rates[slower[i + 1]]);
    assert_true(rates[STRATA__Q3_K] == rates[STRATA__Q8_0]);
    assert_true(rates[STRATA__Q6_K] < rates[STRATA__Q3_K]);
    assert_true(costs.flops[STRATA__LAYOUT_FP16][STRATA__Q2_K] ==
                costs.flops[STRATA__LAYOUT_FP16][STRATA__Q8_0]);
}

static void what_is_measured_is_read(void **state)
{
    char *text = malloc(STRATA_COSTS_MOST_BYTES);
    strata__plan_costs costs = defaults(0);
    strata_context *context = NULL;
    uint64_t bytes = 0;
    (void)state;
    ok(strata__context_create(&context_options, &context));
    ok(strata__tune(context, "cpu", text, STRATA_COSTS_MOST_BYTES, &bytes));
    assert_int_equal(bytes, strlen(text) + 1);
    memset(&costs, 0, sizeof costs);
    ok(strata__plan_costs_parse(text, 0, &costs));
    for (uint32_t id = 0; id < STRATA__FORMAT_LIMIT; ++id)
        if (strata__format_find(id) && strata__format_find(id)->int8_group)
            assert_true(costs.flops[STRATA__LAYOUT_FUSED][id] > 0 &&
                        costs.flops[STRATA__LAYOUT_MMQ][id] > 0 &&
                        costs.flops[STRATA__LAYOUT_FP16][id] > 0);
    assert_int_equal(strata__tune(context, "cpu", text, 40, &bytes), STRATA_ERR_BUFFER_TOO_SMALL);
    assert_true(bytes > 40);
    assert_int_equal(strata__tune(context, "tpu", text, 40, &bytes), STRATA_ERR_NO_DEVICE);
    strata__context_release(context);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_text_is_read),
        cmocka_unit_test(what_is_no_text_of_costs_is_refused),
        cmocka_unit_test(cards_choose_what_is_fast_on_them),
        cmocka_unit_test(costs_choose_by_format),
        cmocka_unit_test(built_in_rates_follow_the_int8_form),
        cmocka_unit_test(what_is_measured_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
