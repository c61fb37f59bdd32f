/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

#include "text/sample.h"

enum { COUNT = 1000 };

static uint64_t seed = 1;

static float random_value(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (float)(int32_t)(seed >> 33) * 0x1p-28f;
}

/* Values with many ties. */
static void fill(float *logits)
{
    for (int i = 0; i < COUNT; i++)
        logits[i] = i % 3 ? random_value() : floorf(random_value());
}

static const float *sorted_logits;

static int by_rank(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;
    if (sorted_logits[x] != sorted_logits[y])
        return sorted_logits[x] > sorted_logits[y] ? -1 : 1;
    return x - y;
}

static void rank(const float *logits, int *order)
{
    for (int i = 0; i < COUNT; i++)
        order[i] = i;
    sorted_logits = logits;
    qsort(order, COUNT, sizeof *order, by_rank);
}

static void assert_kept(const float *before, const float *after, const int *order, int kept)
{
    for (int i = 0; i < COUNT; i++)
        if (i < kept)
            assert_true(after[order[i]] == before[order[i]]);
        else
            assert_true(after[order[i]] == -INFINITY);
}

static void top_k(void **state)
{
    static const uint32_t sizes[] = {1, 2, 3, 7, 40, 500, 999, 1000, 5000, 0};
    float before[COUNT], after[COUNT];
    int order[COUNT];
    (void)state;
    for (uint64_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        fill(before);
        rank(before, order);
        memcpy(after, before, sizeof after);
        strata__logits_top_k(after, COUNT, sizes[i]);
        assert_kept(before, after, order,
                    sizes[i] == 0 || sizes[i] > COUNT ? COUNT : (int)sizes[i]);
    }
}

static void top_p(void **state)
{
    static const float parts[] = {0, 0.1f, 0.5f, 0.9f, 0.99f, 0.99999f, 1};
    float before[COUNT], after[COUNT];
    int order[COUNT];
    (void)state;
    for (uint64_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        double sum = 0, reached = 0;
        int kept = 0;
        fill(before);
        rank(before, order);
        for (int j = 0; j < COUNT; j++)
            sum += exp((double)before[j] - (double)before[order[0]]);
        while (kept < COUNT && (kept == 0 || reached < sum * (double)parts[i]))
            reached += exp((double)before[order[kept++]] - (double)before[order[0]]);
        memcpy(after, before, sizeof after);
        strata__logits_top_p(after, COUNT, parts[i]);
        assert_kept(before, after, order, parts[i] >= 1 ? COUNT : kept);
    }
}

static void min_p(void **state)
{
    float logits[4] = {0, logf(0.5f), logf(0.1f), NAN};
    (void)state;
    strata__logits_min_p(logits, 4, 0.3f);
    assert_true(logits[0] == 0);
    assert_true(logits[1] == logf(0.5f));
    assert_true(logits[2] == -INFINITY);
    assert_true(logits[3] == -INFINITY);
}

static void repetition_penalty(void **state)
{
    float logits[100000] = {0};
    const int32_t recent[] = {0, 70000, 0, -1, 100000, 1, 70000, 99999};
    (void)state;
    logits[0] = 4;
    logits[1] = -3;
    logits[2] = 5;
    logits[70000] = 8;
    logits[99999] = -1;
    strata__logits_repetition_penalty(logits, 100000, recent, 8, 2);
    assert_true(logits[0] == 2);
    assert_true(logits[1] == -6);
    assert_true(logits[2] == 5);
    assert_true(logits[70000] == 4);
    assert_true(logits[99999] == -2);
}

static void greedy(void **state)
{
    const float logits[] = {NAN, 1, 3, -INFINITY, 3, 2};
    const float ruled_out[] = {NAN, -INFINITY};
    int32_t token = -1;
    (void)state;
    assert_int_equal(strata__logits_greedy(logits, 6, &token), STRATA_OK);
    assert_int_equal(token, 2);
    assert_int_equal(strata__logits_greedy(ruled_out, 2, &token), STRATA_ERR_INVALID_ARGUMENT);
    assert_int_equal(strata__logits_draw(ruled_out, 2, &seed, &token), STRATA_ERR_INVALID_ARGUMENT);
}

static void draws_follow_the_probabilities(void **state)
{
    enum { DRAWS = 100000 };
    const float logits[] = {logf(0.5f), -INFINITY, logf(0.3f), NAN, logf(0.2f)};
    const double expected[] = {0.5, 0, 0.3, 0, 0.2};
    uint64_t random = 42, counts[5] = {0};
    (void)state;
    for (int i = 0; i < DRAWS; i++) {
        int32_t token = -1;
        assert_int_equal(strata__logits_draw(logits, 5, &random, &token), STRATA_OK);
        assert_in_range(token, 0, 4);
        counts[token]++;
    }
    for (int i = 0; i < 5; i++)
        assert_true(fabs((double)counts[i] / DRAWS - expected[i]) < 0.01);
    assert_int_equal(counts[1] + counts[3], 0);
}

/* The first numbers of the published generator for this seed. */
static void the_generator_is_splitmix64(void **state)
{
    const uint64_t expected[] = {6457827717110365317u, 3203168211198807973u, 9817491932198370423u};
    uint64_t random = 1234567;
    (void)state;
    for (int i = 0; i < 3; i++) {
        /* 4096 equal logits: the token is the number's upper 12 bits. */
        float logits[4096] = {0};
        int32_t token = -1;
        assert_int_equal(strata__logits_draw(logits, 4096, &random, &token), STRATA_OK);
        assert_int_equal(token, expected[i] >> 52);
    }
}

static void the_same_seed_gives_the_same(void **state)
{
    strata_sample_options options = {.struct_size = sizeof options,
                                     .temperature = 0.8f,
                                     .top_k = 40,
                                     .top_p = 0.95f,
                                     .min_p = 0.05f,
                                     .repetition_penalty = 1.1f};
    uint64_t first = 5, second = 5;
    (void)state;
    for (int i = 0; i < 100; i++) {
        float a[COUNT], b[COUNT];
        int32_t token_a = -1, token_b = -2;
        fill(a);
        memcpy(b, a, sizeof b);
        assert_int_equal(strata__sample(&options, a, COUNT, &first, &token_a), STRATA_OK);
        assert_int_equal(strata__sample(&options, b, COUNT, &second, &token_b), STRATA_OK);
        assert_int_equal(token_a, token_b);
    }
    assert_int_equal(first, second);
}

static void temperature_zero_takes_the_likeliest(void **state)
{
    strata_sample_options options = {.struct_size = sizeof options, .repetition_penalty = 1};
    float logits[] = {1, 5, 2};
    int32_t token = -1;
    (void)state;
    assert_int_equal(strata__sample(&options, logits, 3, NULL, &token), STRATA_OK);
    assert_int_equal(token, 1);
}

/* No number holds these quotients; the likeliest is nearly alone, wherever zero is. */
static void next_to_no_temperature(void **state)
{
    static const float temperatures[] = {0x1p-126f, 0x1p-149f, 1e-37f};
    static const float bases[] = {0, 1000, -1000};
    (void)state;
    for (int t = 0; t < 3; t++)
        for (int b = 0; b < 3; b++)
            for (uint64_t i = 0; i < 20; i++) {
                strata_sample_options options = {.struct_size = sizeof options,
                                                 .temperature = temperatures[t],
                                                 .top_p = 1,
                                                 .repetition_penalty = 1};
                float logits[] = {bases[b] + 1, bases[b] + 5, bases[b] + 2, -INFINITY};
                uint64_t random = i;
                int32_t token = -1;
                assert_int_equal(strata__sample(&options, logits, 4, &random, &token), STRATA_OK);
                assert_int_equal(token, 1);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(top_k),
        cmocka_unit_test(top_p),
        cmocka_unit_test(min_p),
        cmocka_unit_test(repetition_penalty),
        cmocka_unit_test(greedy),
        cmocka_unit_test(draws_follow_the_probabilities),
        cmocka_unit_test(the_generator_is_splitmix64),
        cmocka_unit_test(the_same_seed_gives_the_same),
        cmocka_unit_test(temperature_zero_takes_the_likeliest),
        cmocka_unit_test(next_to_no_temperature),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
