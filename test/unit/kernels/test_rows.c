/* SPDX-License-Identifier: MIT */
/* Embedding, norm, activation and combination against double. */
#include "support.h"

#include <math.h>

static const uint32_t row_counts[] = {1, 7, 8, 65};

static void embed_looks_up_and_scales(void **state)
{
    enum { WIDTH = 256, VOCABULARY = 50 };
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        test_random random = {5};
        float *decoded, *x = test_buffer(65 * WIDTH * 4);
        int32_t tokens[65];
        uint32_t rows = row_counts[i];
        uint32_t format = i % 2 ? STRATA__Q6_K : STRATA__BF16;
        void *table = test_weight(&random, format, (uint64_t)VOCABULARY * WIDTH, &decoded);
        strata__kernels *kernels = test_kernels((int)strata__cpu_best_level(), 2, 0);
        for (uint32_t r = 0; r < rows; r++)
            tokens[r] = r ? (int32_t)test_below(&random, VOCABULARY) : VOCABULARY - 1;
        strata__embed_args args = {.table = {table, NULL, format, WIDTH, VOCABULARY},
                                   .tokens = tokens,
                                   .x = x,
                                   .rows = rows,
                                   .scale = 1.5f};
        assert_int_equal(kernels->ops->embed(kernels, test_stream(), &args), STRATA_OK);
        for (uint32_t r = 0; r < rows; r++)
            for (uint32_t k = 0; k < WIDTH; k++)
                assert_true(x[r * WIDTH + k] == decoded[(uint32_t)tokens[r] * WIDTH + k] * 1.5f);
        kernels->ops->destroy(kernels);
        test_release(x);
        free(table);
        free(decoded);
    }
}

static void norm_is_that_of_double(void **state)
{
    (void)state;
    for (int level = 0; level <= (int)strata__cpu_best_level(); level++)
        for (size_t i = 0; i < 4; i++) {
            uint32_t rows = row_counts[i], width = i % 2 ? 2048 : 100;
            test_random random = {9};
            float *x = test_buffer((uint64_t)rows * width * 4), *weight = malloc(width * 4);
            float *out = test_buffer((uint64_t)rows * width * 4), *inverse = test_buffer(rows * 4);
            double *expected = malloc((uint64_t)rows * width * sizeof *expected);
            test_fill(&random, x, (uint64_t)rows * width, i == 3 ? 1e-3f : 100);
            test_fill(&random, weight, width, 2);
            strata__kernels *kernels = test_kernels(level, 2, 0);
            strata__norm_args args = {x, weight, {out, NULL}, inverse, rows, width, 1e-6f};
            assert_int_equal(kernels->ops->norm(kernels, test_stream(), &args), STRATA_OK);
            for (uint32_t r = 0; r < rows; r++) {
                double sum = 0;
                for (uint32_t k = 0; k < width; k++)
                    sum += (double)x[r * width + k] * (double)x[r * width + k];
                double inv = 1 / sqrt(sum / width + (double)1e-6f);
                test_close("inv_rms", inverse + r, &inv, 1, 1e-6 * inv);
                for (uint32_t k = 0; k < width; k++)
                    expected[r * width + k] = (double)x[r * width + k] * inv * (double)weight[k];
            }
            test_close("norm", out, expected, (uint64_t)rows * width, 4e-7);
            /* inv_rms alone */
            memset(inverse, 0, rows * 4);
            args.out.data = NULL;
            args.weight = NULL;
            assert_int_equal(kernels->ops->norm(kernels, test_stream(), &args), STRATA_OK);
            assert_true(inverse[rows - 1] > 0);
            kernels->ops->destroy(kernels);
            test_release(inverse);
            test_release(out);
            test_release(x);
            free(weight);
            free(expected);
        }
}

/* *argument: that of the exponential, whose size is the factor of the rounding error. */
static double exact_activation(uint32_t kind, double g, double u, double *argument)
{
    *argument = g;
    if (kind == STRATA__ACT_SWIGLU)
        return g / (1 + exp(-g)) * u;
    if (kind == STRATA__ACT_GEGLU_TANH) {
        /* g/2 (1 + tanh a) without the cancellation */
        *argument = 2 * sqrt(2 / 3.14159265358979323846) * (g + 0.044715 * g * g * g);
        return g / (1 + exp(-*argument)) * u;
    }
    g = g > 7 ? 7 : g;
    u = u > 7 ? 7 : u < -7 ? -7 : u;
    *argument = 1.702 * g;
    return g / (1 + exp(-*argument)) * (u + 1);
}

static void activations_are_those_of_double(void **state)
{
    enum { WIDTH = 37, STRIDE = 50, ROWS = 65 };
    static const float special[] = {0, -0.0f, 1e-30f, -1e-30f, 30, -30, 200, -200, 1e30f, -1e30f};
    (void)state;
    for (int level = 0; level <= (int)strata__cpu_best_level(); level++)
        for (uint32_t kind = 0; kind < 3; kind++) {
            test_random random = {kind};
            float *gate = test_buffer(ROWS * STRIDE * 4), *up = test_buffer(ROWS * STRIDE * 4);
            float *out = test_buffer(ROWS * WIDTH * 4);
            test_fill(&random, gate, ROWS * STRIDE, 12);
            test_fill(&random, up, ROWS * STRIDE, 9);
            memcpy(gate, special, sizeof special);
            for (size_t i = 0; i < sizeof special / sizeof special[0]; i++)
                up[i] = 1;
            strata__kernels *kernels = test_kernels(level, 2, 0);
            strata__activate_args args = {gate, up, {out, NULL}, ROWS, WIDTH, STRIDE, kind};
            assert_int_equal(kernels->ops->activate(kernels, test_stream(), &args), STRATA_OK);
            kernels->ops->destroy(kernels);
            for (int r = 0; r < ROWS; r++)
                for (int i = 0; i < WIDTH; i++) {
                    double g = (double)gate[r * STRIDE + i], u = (double)up[r * STRIDE + i];
                    double argument, want = exact_activation(kind, g, u, &argument);
                    double error = fabs((double)out[r * WIDTH + i] - want);
                    if (!(error <= 2e-7 * (4 + fabs(argument)) * fabs(want) + 1e-30))
                        fail_msg("activation %u of %g, %g: %g, expected %g", kind, g, u,
                                 (double)out[r * WIDTH + i], want);
                }
            test_release(out);
            test_release(up);
            test_release(gate);
        }
}

static void activations_of_no_number_are_no_number(void **state)
{
    enum { WIDTH = 35 };
    (void)state;
    for (int level = 0; level <= (int)strata__cpu_best_level(); level++)
        for (uint32_t kind = 0; kind < 3; kind++) {
            float gate[WIDTH], up[WIDTH], out[WIDTH];
            strata__activate_args args = {gate, up, {out, NULL}, 1, WIDTH, WIDTH, kind};
            strata__kernels *kernels = test_kernels(level, 1, 0);
            for (int i = 0; i < WIDTH; i++) {
                gate[i] = i % 2 ? (i % 3 ? NAN : -NAN) : 1;
                up[i] = 1;
            }
            assert_int_equal(kernels->ops->activate(kernels, test_stream(), &args), STRATA_OK);
            for (int i = 0; i < WIDTH; i++)
                assert_int_equal(isnan(out[i]) != 0, i % 2);
            kernels->ops->destroy(kernels);
        }
}

static void combine_adds_in_order_whatever_the_ranges(void **state)
{
    enum { TOKENS = 65, TOP_K = 3, WIDTH = 45, ROWS = TOKENS * TOP_K };
    test_random random = {3};
    uint32_t order[ROWS];
    float *y = test_buffer(ROWS * WIDTH * 4), weights[ROWS];
    float *whole = test_buffer(TOKENS * WIDTH * 4), *parts = test_buffer(TOKENS * WIDTH * 4);
    (void)state;
    for (uint32_t i = 0; i < ROWS; i++)
        order[i] = i;
    for (uint32_t i = ROWS - 1; i; i--) {
        uint32_t j = test_below(&random, i + 1), t = order[i];
        order[i] = order[j];
        order[j] = t;
    }
    /* a token's entries ascend in the sorted order, as experts do */
    for (uint32_t t = 0; t < TOKENS; t++)
        for (int pass = 0; pass < 2; pass++)
            for (uint32_t j = 0; j + 1 < TOP_K; j++) {
                uint32_t *o = order + t * TOP_K + j, swap = o[0];
                if (o[0] > o[1]) {
                    o[0] = o[1];
                    o[1] = swap;
                }
            }
    test_fill(&random, y, ROWS * WIDTH, 1);
    test_fill(&random, weights, ROWS, 1);
    test_fill(&random, whole, TOKENS * WIDTH, 1);
    memcpy(parts, whole, TOKENS * WIDTH * 4);
    float *expected = malloc(TOKENS * WIDTH * 4);
    memcpy(expected, whole, TOKENS * WIDTH * 4);
    for (uint32_t t = 0; t < TOKENS; t++)
        for (uint32_t j = 0; j < TOP_K; j++)
            for (uint32_t i = 0; i < WIDTH; i++) {
                float scaled = 0.5f * weights[t * TOP_K + j];
                float product = scaled * y[order[t * TOP_K + j] * WIDTH + i];
                expected[t * WIDTH + i] = expected[t * WIDTH + i] + product;
            }
    strata__kernels *kernels = test_kernels((int)strata__cpu_best_level(), 3, 0);
    strata__combine_args args = {y, weights, order, whole, TOKENS, TOP_K, WIDTH, 0, ROWS, 0.5f};
    assert_int_equal(kernels->ops->combine(kernels, test_stream(), &args), STRATA_OK);
    args.x = parts;
    for (args.first_row = 0; args.first_row < ROWS; args.first_row += args.rows) {
        args.rows = ROWS - args.first_row < 50 ? ROWS - args.first_row : 50;
        args.y = y + args.first_row * WIDTH;
        assert_int_equal(kernels->ops->combine(kernels, test_stream(), &args), STRATA_OK);
    }
    kernels->ops->destroy(kernels);
    test_same("combine", whole, expected, TOKENS * WIDTH);
    test_same("combine in ranges", parts, expected, TOKENS * WIDTH);
    free(expected);
    test_release(parts);
    test_release(whole);
    test_release(y);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(embed_looks_up_and_scales),
        cmocka_unit_test(norm_is_that_of_double),
        cmocka_unit_test(activations_are_those_of_double),
        cmocka_unit_test(activations_of_no_number_are_no_number),
        cmocka_unit_test(combine_adds_in_order_whatever_the_ranges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
