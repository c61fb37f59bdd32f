/* SPDX-License-Identifier: MIT */
/* The choice of experts and the grouping of rows. */
#include "support.h"

#include <math.h>

enum { MAX_EXPERTS = 1024, MAX_TOP_K = 16 };

/* The definition, one expert at a time. */
static void expect_row(const strata__select_args *a, const float *logits, int32_t *ids, double *out)
{
    static double p[MAX_EXPERTS], choice[MAX_EXPERTS];
    double sum = 0, top = -INFINITY;
    int taken[MAX_EXPERTS] = {0}, count = 0;
    for (uint32_t e = 0; e < a->experts; e++)
        top = fmax(top, (double)logits[e]);
    for (uint32_t e = 0; e < a->experts; e++)
        sum += exp((double)logits[e] - top);
    for (uint32_t e = 0; e < a->experts; e++) {
        p[e] = (double)logits[e];
        if (a->gating == STRATA__GATING_SOFTMAX)
            p[e] = exp(p[e] - top) / sum;
        if (a->gating == STRATA__GATING_SIGMOID)
            p[e] = 1 / (1 + exp(-p[e]));
        choice[e] = p[e] + (a->selection_bias ? (double)a->selection_bias[e] : 0);
    }
    if (a->groups > 1) {
        uint32_t size = a->experts / a->groups;
        for (uint32_t g = 0; g < a->groups; g++) {
            uint32_t better = 0;
            double score[64];
            for (uint32_t q = 0; q < a->groups; q++) {
                double first = -INFINITY, second = -INFINITY;
                for (uint32_t e = q * size; e < (q + 1) * size; e++) {
                    if (choice[e] > first) {
                        second = first;
                        first = choice[e];
                    } else if (choice[e] > second) {
                        second = choice[e];
                    }
                }
                score[q] = first + second;
            }
            for (uint32_t q = 0; q < a->groups; q++)
                better += score[q] > score[g] || (score[q] == score[g] && q < g);
            for (uint32_t e = g * size; better >= a->groups_used && e < (g + 1) * size; e++)
                taken[e] = -1;
        }
    }
    for (uint32_t k = 0; k < a->top_k; k++) {
        int best = -1;
        for (uint32_t e = 0; e < a->experts; e++)
            if (!taken[e] && (best < 0 || choice[e] > choice[best]))
                best = (int)e;
        taken[best] = 1;
    }
    for (uint32_t e = 0; e < a->experts; e++)
        if (taken[e] == 1) {
            ids[count] = (int32_t)e;
            out[count++] = p[e];
        }
    if (a->gating == STRATA__GATING_SOFTMAX_SELECTED) {
        top = -INFINITY;
        sum = 0;
        for (int k = 0; k < count; k++)
            top = fmax(top, out[k]);
        for (int k = 0; k < count; k++)
            sum += exp(out[k] - top);
        for (int k = 0; k < count; k++)
            out[k] = exp(out[k] - top) / sum;
    }
    sum = 0;
    for (int k = 0; k < count; k++)
        sum += out[k];
    for (int k = 0; k < count; k++)
        out[k] = (a->normalise ? out[k] / fmax(sum, 0x1p-14) : out[k]) * (double)a->weight_scale;
}

static void check_select(strata__select_args a, uint64_t seed, float spread, int coarse)
{
    test_random random = {seed};
    float *logits = malloc((uint64_t)a.rows * a.experts * 4), *bias = malloc(a.experts * 4);
    a.ids = test_buffer((uint64_t)a.rows * a.top_k * 4);
    a.weights = test_buffer((uint64_t)a.rows * a.top_k * 4);
    test_fill(&random, logits, (uint64_t)a.rows * a.experts, spread);
    test_fill(&random, bias, a.experts, 0.25f);
    for (uint64_t i = 0; coarse && i < (uint64_t)a.rows * a.experts; i++)
        logits[i] = rintf(logits[i]); /* ties everywhere */
    for (uint32_t e = 0; coarse && e < a.experts; e++)
        bias[e] = rintf(bias[e] * 4) / 4;
    a.logits = logits;
    if (a.selection_bias)
        a.selection_bias = bias;
    strata__kernels *kernels = test_kernels(0, 2, 0);
    assert_int_equal(kernels->ops->select(kernels, test_stream(), &a), STRATA_OK);
    kernels->ops->destroy(kernels);
    for (uint32_t r = 0; r < a.rows; r++) {
        int32_t ids[MAX_TOP_K];
        double weights[MAX_TOP_K];
        expect_row(&a, logits + (size_t)r * a.experts, ids, weights);
        for (uint32_t k = 0; k < a.top_k; k++)
            assert_int_equal(a.ids[r * a.top_k + k], ids[k]);
        test_close("weights", a.weights + r * a.top_k, weights, a.top_k, 1e-6);
    }
    test_release(a.ids);
    test_release(a.weights);
    free(logits);
    free(bias);
}

static void selection_follows_the_definition(void **state)
{
    static const float any = 0;
    (void)state;
    for (uint32_t gating = 1; gating <= 3; gating++)
        for (uint32_t variant = 0; variant < 16; variant++) {
            strata__select_args a = {
                .rows = variant % 4 == 0 ? 1 : 65,
                .experts = variant & 1 ? 128 : 32,
                .top_k = variant & 2 ? 8 : 3,
                .gating = gating,
                .normalise = variant >> 2 & 1,
                .groups = variant & 8 ? 8 : 0,
                .groups_used = 4,
                .selection_bias = variant & 4 ? &any : NULL,
                .weight_scale = variant & 1 ? 2.5f : 1,
            };
            check_select(a, variant, 3, 0);
            check_select(a, variant, 2, 1);
        }
    strata__select_args most = {
        .rows = 3, .experts = 1024, .top_k = 16, .gating = 1, .normalise = 1, .weight_scale = 1};
    check_select(most, 8, 2, 0);
    strata__select_args all = {.rows = 2, .experts = 4, .top_k = 4, .gating = 2, .weight_scale = 1};
    check_select(all, 8, 2, 1);
}

static void ties_go_to_the_lower_id(void **state)
{
    const float logits[8] = {1, 2, 2, 1, 2, 2, 0, 0};
    int32_t ids[3];
    float weights[3];
    strata__select_args a = {.logits = logits,
                             .ids = ids,
                             .weights = weights,
                             .rows = 1,
                             .experts = 8,
                             .top_k = 3,
                             .gating = 1,
                             .weight_scale = 1};
    strata__kernels *kernels = test_kernels(0, 1, 0);
    (void)state;
    assert_int_equal(kernels->ops->select(kernels, test_stream(), &a), STRATA_OK);
    assert_int_equal(ids[0], 1);
    assert_int_equal(ids[1], 2);
    assert_int_equal(ids[2], 4);
    kernels->ops->destroy(kernels);
}

/*
 * Whatever the logits are, ids are distinct, ascending and in range: later kernels index with them.
 */
static void ids_are_valid_for_any_logits(void **state)
{
    const float logits[6] = {NAN, NAN, -INFINITY, INFINITY, NAN, -INFINITY};
    strata__kernels *kernels = test_kernels(0, 1, 0);
    (void)state;
    for (uint32_t gating = 1; gating <= 3; gating++) {
        int32_t ids[4];
        float weights[4];
        strata__select_args a = {.logits = logits,
                                 .ids = ids,
                                 .weights = weights,
                                 .rows = 1,
                                 .experts = 6,
                                 .top_k = 4,
                                 .gating = gating,
                                 .weight_scale = 1};
        assert_int_equal(kernels->ops->select(kernels, test_stream(), &a), STRATA_OK);
        for (int k = 0; k < 4; k++)
            assert_true(ids[k] >= 0 && ids[k] < 6 && (k == 0 || ids[k] > ids[k - 1]));
    }
    kernels->ops->destroy(kernels);
}

static void a_normalised_sum_has_a_floor(void **state)
{
    const float logits[2] = {-30, -31};
    int32_t ids[1];
    float weights[1];
    double expected = 1 / (1 + exp(30)) / 0x1p-14;
    strata__select_args a = {.logits = logits,
                             .ids = ids,
                             .weights = weights,
                             .rows = 1,
                             .experts = 2,
                             .top_k = 1,
                             .gating = 2,
                             .normalise = 1,
                             .weight_scale = 1};
    strata__kernels *kernels = test_kernels(0, 1, 0);
    (void)state;
    assert_int_equal(kernels->ops->select(kernels, test_stream(), &a), STRATA_OK);
    assert_true(fabs((double)weights[0] / expected - 1) < 1e-6);
    a.top_k = 3;
    assert_int_equal(kernels->ops->select(kernels, test_stream(), &a), STRATA_ERR_UNSUPPORTED);
    kernels->ops->destroy(kernels);
}

static void grouping_sorts_rows_by_expert(void **state)
{
    enum { ROWS = 65, TOP_K = 4, EXPERTS = 20 };
    test_random random = {12};
    int32_t ids[ROWS * TOP_K];
    uint32_t *offsets = test_buffer((EXPERTS + 1) * 4), *row = test_buffer(ROWS * TOP_K * 4);
    uint32_t *index = test_buffer(ROWS * TOP_K * 4), host[EXPERTS + 1], flag = 0, place = 0;
    (void)state;
    for (uint32_t r = 0; r < ROWS; r++) {
        uint32_t id = 2; /* experts 0 and 1 stay empty */
        for (uint32_t k = 0; k < TOP_K; k++) {
            ids[r * TOP_K + k] = (int32_t)id;
            id += 1 + test_below(&random, 4);
        }
    }
    strata__kernels *kernels = test_kernels(0, 2, 0);
    strata__group_args args = {ids,  offsets, row,   index,   host, &flag,
                               NULL, ROWS,    TOP_K, EXPERTS, 7};
    assert_int_equal(kernels->ops->group(kernels, test_stream(), &args), STRATA_OK);
    kernels->ops->destroy(kernels);
    assert_int_equal(flag, 7);
    assert_memory_equal(host, offsets, sizeof host);
    for (uint32_t e = 0; e < EXPERTS; e++) {
        assert_int_equal(offsets[e], place);
        for (uint32_t p = 0; p < ROWS * TOP_K; p++)
            if (ids[p] == (int32_t)e) {
                assert_int_equal(index[p], place);
                assert_int_equal(row[place], p / TOP_K);
                place++;
            }
    }
    assert_int_equal(offsets[EXPERTS], ROWS * TOP_K);
    test_release(offsets);
    test_release(row);
    test_release(index);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(selection_follows_the_definition),
        cmocka_unit_test(ties_go_to_the_lower_id),
        cmocka_unit_test(ids_are_valid_for_any_logits),
        cmocka_unit_test(a_normalised_sum_has_a_floor),
        cmocka_unit_test(grouping_sorts_rows_by_expert),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
