/* SPDX-License-Identifier: MIT */
/* Dense products, the router and the experts' products against sums in double. */
#include "support.h"

#include <math.h>

/* Sum of products in double. */
static double dot(const float *a, const float *b, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

/* How sums are ordered: plain loops, whatever is fastest, and that for few rows. */
enum { PLAIN, FASTEST, FEW, ORDERS };

typedef struct dense_case {
    uint32_t format, rows, inputs, outputs, mode, order, threads;
    uint64_t scratch_rows;
    int level, bias, factor;
} dense_case;

/* Runs a case; `in`, `factors` and `bias` come from the seed alone. Frees all but the result. */
static float *run_dense_case(const dense_case *c, double **expected)
{
    test_random random = {c->inputs * 31 + c->outputs};
    float *decoded, *bias = malloc(c->outputs * sizeof *bias);
    void *weight = test_weight(&random, c->format, (uint64_t)c->inputs * c->outputs, &decoded);
    uint32_t stride = c->mode == STRATA__DENSE_STORE_ROWS ? c->outputs : c->outputs + 3;
    float *in = test_buffer((uint64_t)c->rows * c->inputs * 4);
    float *out = test_buffer((uint64_t)c->rows * stride * 4);
    float *factor = malloc(c->rows * sizeof *factor);
    uint64_t scratch_bytes = c->scratch_rows * c->inputs * 4;
    void *scratch = test_buffer(scratch_bytes);
    strata__kernels *kernels = test_kernels(c->level, c->threads, c->order != PLAIN);
    test_fill(&random, bias, c->outputs, 2);
    test_fill(&random, in, (uint64_t)c->rows * c->inputs, 1);
    test_fill(&random, factor, c->rows, 3);
    if (c->mode == STRATA__DENSE_ADD_F32)
        for (uint64_t i = 0; i < (uint64_t)c->rows * stride; i++)
            out[i] = 0.5f;
    strata__dense_args args = {
        .weight = {weight, c->bias ? bias : NULL, c->format, c->inputs, c->outputs},
        .in = {in, NULL},
        .row_factor = c->factor ? factor : NULL,
        .scratch = {scratch, scratch_bytes},
        .rows = c->rows,
        .out_stride = stride,
        .mode = c->mode,
        .alpha = 0.75f,
        .few = c->order == FEW,
    };
    if (c->mode == STRATA__DENSE_STORE_ROWS)
        args.out_rows.data = out;
    else
        args.out_f32 = out;
    assert_int_equal(kernels->ops->dense(kernels, test_stream(), &args), STRATA_OK);
    kernels->ops->destroy(kernels);
    float *result = malloc((uint64_t)c->rows * c->outputs * sizeof *result);
    *expected = malloc((uint64_t)c->rows * c->outputs * sizeof **expected);
    for (uint32_t r = 0; r < c->rows; r++)
        for (uint32_t n = 0; n < c->outputs; n++) {
            double y = dot(in + (size_t)r * c->inputs, decoded + (size_t)n * c->inputs, c->inputs);
            y = (y + (c->bias ? (double)bias[n] : 0)) * 0.75 * (c->factor ? (double)factor[r] : 1);
            (*expected)[(size_t)r * c->outputs + n] =
                y + (c->mode == STRATA__DENSE_ADD_F32 ? 0.5 : 0);
            result[(size_t)r * c->outputs + n] = out[(size_t)r * stride + n];
        }
    test_release(scratch);
    test_release(out);
    test_release(in);
    free(factor);
    free(bias);
    free(weight);
    free(decoded);
    return result;
}

static void check_dense(const dense_case *c)
{
    double *expected;
    float *got = run_dense_case(c, &expected);
    test_close("dense", got, expected, (uint64_t)c->rows * c->outputs, 1e-4);
    free(got);
    free(expected);
}

static void dense_agrees_with_double(void **state)
{
    static const uint32_t rows[] = {1, 7, 8, 9, 17, 25, 31, 32, 65, 130};
    (void)state;
    for (int level = 0; level <= (int)strata__cpu_best_level(); level++)
        for (uint32_t order = 0; order < ORDERS; order++)
            for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
                for (uint32_t mode = 0; mode < 3; mode++)
                    check_dense(&(dense_case){
                        .format = i % 2 ? STRATA__F32 : STRATA__Q8_0,
                        .rows = rows[i],
                        .inputs = i % 3 ? 288 : 2304,
                        .outputs = i % 2 ? 13 : 40,
                        .mode = mode,
                        .order = order,
                        .threads = 1 + (uint32_t)i % 3,
                        .scratch_rows = i % 4 ? 128 : 8,
                        .level = level,
                        .bias = i % 2 == 0,
                        .factor = i % 3 == 0,
                    });
}

static void dense_takes_every_format(void **state)
{
    (void)state;
    for (uint32_t id = 0; id < STRATA__FORMAT_LIMIT; id++)
        for (uint32_t order = 0; strata__format_find(id) && order < ORDERS; order++)
            check_dense(&(dense_case){.format = id,
                                      .rows = 5,
                                      .inputs = 512,
                                      .outputs = 9,
                                      .order = order,
                                      .threads = 2,
                                      .scratch_rows = 128,
                                      .level = (int)strata__cpu_best_level()});
}

/* Bits of every row are the same in any number of rows, threads, tiles and scratch sizes. */
static void check_bits(uint32_t order)
{
    static const uint32_t rows[] = {1, 7, 16, 24, 64, 200};
    for (int level = 0; level <= (int)strata__cpu_best_level(); level++) {
        dense_case c = {.format = STRATA__Q4_K,
                        .rows = 201,
                        .inputs = 2304,
                        .outputs = 21,
                        .order = order,
                        .threads = 1,
                        .scratch_rows = 256,
                        .level = level};
        double *expected;
        float *whole = run_dense_case(&c, &expected);
        free(expected);
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
            /* The first rows of the input are the same, because they are drawn in order. */
            c.rows = rows[i];
            c.threads = 1 + (uint32_t)i % 3;
            c.scratch_rows = i % 2 ? 8 : 40;
            float *part = run_dense_case(&c, &expected);
            test_same("dense", part, whole, (uint64_t)rows[i] * c.outputs);
            free(expected);
            free(part);
        }
        free(whole);
    }
}

static void dense_bits_depend_on_the_row_alone(void **state)
{
    (void)state;
    check_bits(PLAIN);
    check_bits(FEW);
}

/* One row has code of its own, and the bits that it has among 2 to 16, for every format. */
static void few_rows_have_the_bits_of_one(void **state)
{
    enum { MOST = 16 };
    const int levels = (int)strata__cpu_best_level() + 1;
    (void)state;
    for (uint32_t i = 0; i < STRATA__FORMAT_LIMIT * (uint32_t)levels; i++) {
        dense_case c = {.format = i / (uint32_t)levels,
                        .rows = MOST,
                        .inputs = 768,
                        .outputs = 9,
                        .order = FEW,
                        .threads = 1,
                        .scratch_rows = 16,
                        .level = (int)(i % (uint32_t)levels)};
        double *expected;
        if (!strata__format_find(c.format))
            continue;
        float *all = run_dense_case(&c, &expected);
        test_close("dense", all, expected, MOST * c.outputs, 1e-4);
        free(expected);
        for (c.rows = 1; c.rows < MOST; c.rows++) {
            float *part = run_dense_case(&c, &expected);
            test_same("dense", part, all, (uint64_t)c.rows * c.outputs);
            free(expected);
            free(part);
        }
        free(all);
    }
}

/* Levels with fused multiply-add give the same bits, so that a session moves between machines. */
static void check_levels(uint32_t order)
{
    dense_case c = {.format = STRATA__IQ3_S,
                    .rows = 43,
                    .inputs = 512,
                    .outputs = 24,
                    .order = order,
                    .threads = 2,
                    .scratch_rows = 128,
                    .level = STRATA__CPU_AVX2};
    double *expected;
    float *avx2 = run_dense_case(&c, &expected);
    free(expected);
    c.level = STRATA__CPU_AVX512;
    float *avx512 = run_dense_case(&c, &expected);
    test_same("dense", avx512, avx2, (uint64_t)c.rows * c.outputs);
    free(expected);
    free(avx2);
    free(avx512);
}

static void levels_with_fma_agree(void **state)
{
    (void)state;
    if (strata__cpu_best_level() < STRATA__CPU_AVX512)
        skip();
    check_levels(PLAIN);
    check_levels(FEW);
}

static void router_normalises_and_multiplies(void **state)
{
    enum { ROWS = 37, INPUTS = 320, EXPERTS = 19 };
    (void)state;
    for (int level = 0; level <= (int)strata__cpu_best_level(); level++)
        for (uint32_t sigmoid = 0; sigmoid < 2; sigmoid++) {
            test_random random = {77};
            uint32_t formats[] = {STRATA__F32, STRATA__BF16};
            float *decoded, bias[EXPERTS], norm[INPUTS], inverse[ROWS];
            float *x = test_buffer(ROWS * INPUTS * 4), *got = test_buffer(ROWS * EXPERTS * 4);
            void *weight =
                test_weight(&random, formats[sigmoid], (uint64_t)EXPERTS * INPUTS, &decoded);
            void *scratch = test_buffer(128 * INPUTS * 4);
            double expected[ROWS * EXPERTS];
            test_fill(&random, x, ROWS * INPUTS, 1);
            test_fill(&random, bias, EXPERTS, 1);
            test_fill(&random, norm, INPUTS, 2);
            for (int r = 0; r < ROWS; r++)
                inverse[r] = test_uniform(&random, 0.1f, 1);
            strata__kernels *kernels = test_kernels(level, 2, 0);
            strata__router_args args = {.x = x,
                                        .inv_rms = inverse,
                                        .norm = norm,
                                        .weight = {weight, bias, formats[sigmoid], INPUTS, EXPERTS},
                                        .scratch = {scratch, 128 * INPUTS * 4},
                                        .logits = got,
                                        .rows = ROWS,
                                        .sigmoid = sigmoid};
            assert_int_equal(kernels->ops->router(kernels, test_stream(), &args), STRATA_OK);
            kernels->ops->destroy(kernels);
            for (int r = 0; r < ROWS; r++)
                for (int e = 0; e < EXPERTS; e++) {
                    double y = (double)bias[e];
                    for (int i = 0; i < INPUTS; i++)
                        y += (double)x[r * INPUTS + i] * (double)inverse[r] * (double)norm[i] *
                             (double)decoded[e * INPUTS + i];
                    expected[r * EXPERTS + e] = sigmoid ? 1 / (1 + exp(-y)) : y;
                }
            test_close("router", got, expected, ROWS * EXPERTS, 1e-5);
            test_release(scratch);
            test_release(got);
            test_release(x);
            free(weight);
            free(decoded);
        }
}

enum { EXPERTS = 6, D = 256, FF = 40, TOKENS = 90 };

/* One layer of experts with rows sorted by expert: expert 0 and 4 empty, 2 hot. */
typedef struct layer {
    void *blobs[3][EXPERTS];
    float *decoded[3][EXPERTS];
    float *bias[3];
    float scale[EXPERTS];
    uint32_t offsets[EXPERTS + 1];
    uint32_t sorted_row[4 * TOKENS];
    float *x;
    uint32_t formats[3];
} layer;

static void make_layer(layer *l, uint32_t gate, uint32_t up, uint32_t down)
{
    static const uint32_t rows[EXPERTS] = {0, 7, 200, 1, 0, 65};
    test_random random = {gate * 100 + down};
    const uint32_t formats[3] = {gate, up, down};
    for (int m = 0; m < 3; m++) {
        uint32_t outputs = m == 2 ? D : FF;
        l->formats[m] = formats[m];
        l->bias[m] = malloc(EXPERTS * outputs * sizeof(float));
        test_fill(&random, l->bias[m], EXPERTS * outputs, 1);
        for (int e = 0; e < EXPERTS; e++)
            l->blobs[m][e] = test_weight(&random, formats[m], (uint64_t)D * FF, &l->decoded[m][e]);
    }
    test_fill(&random, l->scale, EXPERTS, 2);
    l->offsets[0] = 0;
    for (int e = 0; e < EXPERTS; e++)
        l->offsets[e + 1] = l->offsets[e] + rows[e];
    for (uint32_t i = 0; i < l->offsets[EXPERTS]; i++)
        l->sorted_row[i] = test_below(&random, TOKENS);
    l->x = test_buffer((uint64_t)TOKENS * D * 4);
    test_fill(&random, l->x, (uint64_t)TOKENS * D, 1);
}

static void free_layer(layer *l)
{
    for (int m = 0; m < 3; m++) {
        free(l->bias[m]);
        for (int e = 0; e < EXPERTS; e++) {
            free(l->blobs[m][e]);
            free(l->decoded[m][e]);
        }
    }
    test_release(l->x);
}

static double activation(uint32_t kind, double g, double u)
{
    if (kind == STRATA__ACT_SWIGLU)
        return g / (1 + exp(-g)) * u;
    if (kind == STRATA__ACT_GEGLU_TANH)
        return 0.5 * g * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (g + 0.044715 * g * g * g))) *
               u;
    g = g > 7 ? 7 : g;
    u = u > 7 ? 7 : u < -7 ? -7 : u;
    return g / (1 + exp(-1.702 * g)) * (u + 1);
}

typedef struct range_case {
    uint32_t first_row, rows, first_expert, last_expert, activation, bias, order;
    uint64_t scratch_rows;
    int level;
} range_case;

/* gate_up and down of a range; h and y are dense over the range's rows. */
static void run_range(const layer *l, const range_case *c, float *h, float *y)
{
    strata__kernels *kernels = test_kernels(c->level, 3, c->order != PLAIN);
    void *scratch = test_buffer(c->scratch_rows * D * 4);
    strata__expert_range range = {l->offsets,      NULL,          c->first_row, c->rows,
                                  c->first_expert, c->last_expert};
    strata__expert_weight weights[3];
    for (int m = 0; m < 3; m++)
        weights[m] = (strata__expert_weight){(const void *const *)l->blobs[m],
                                             c->bias ? l->bias[m] : NULL,
                                             l->formats[m],
                                             m == 2 ? FF : D,
                                             m == 2 ? D : FF,
                                             0};
    strata__gate_up_args up = {.gate = weights[0],
                               .up = weights[1],
                               .range = range,
                               .sorted_row = l->sorted_row,
                               .in = {l->x, NULL},
                               .h = {h, NULL},
                               .scratch = {scratch, c->scratch_rows * D * 4},
                               .activation = c->activation,
                               .path = STRATA__PATH_FP16,
                               .few = c->order == FEW};
    strata__down_args down = {.down = weights[2],
                              .range = range,
                              .expert_scale = c->bias ? l->scale : NULL,
                              .h = {h, NULL},
                              .y = y,
                              .scratch = {scratch, c->scratch_rows * D * 4},
                              .path = STRATA__PATH_DIRECT,
                              .few = c->order == FEW};
    assert_int_equal(kernels->ops->gate_up(kernels, test_stream(), &up), STRATA_OK);
    assert_int_equal(kernels->ops->down(kernels, test_stream(), &down), STRATA_OK);
    kernels->ops->destroy(kernels);
    test_release(scratch);
}

static void expect_range(const layer *l, const range_case *c, double *h, double *y,
                         const float *got_h)
{
    for (uint32_t i = 0; i < c->rows; i++) {
        uint32_t sorted = c->first_row + i, e = 0;
        const float *x = l->x + (size_t)l->sorted_row[sorted] * D;
        while (l->offsets[e + 1] <= sorted)
            e++;
        for (uint32_t n = 0; n < FF; n++) {
            double g = dot(x, l->decoded[0][e] + n * D, D), u = dot(x, l->decoded[1][e] + n * D, D);
            if (c->bias) {
                g += (double)l->bias[0][e * FF + n];
                u += (double)l->bias[1][e * FF + n];
            }
            h[(size_t)i * FF + n] = activation(c->activation, g, u);
        }
        /* down is held against the h it was given */
        for (uint32_t n = 0; n < D; n++) {
            double v = dot(got_h + (size_t)i * FF, l->decoded[2][e] + n * FF, FF);
            y[(size_t)i * D + n] =
                c->bias ? (v + (double)l->bias[2][e * D + n]) * (double)l->scale[e] : v;
        }
    }
}

static void check_range(const layer *l, const range_case *c)
{
    float *h = test_buffer((uint64_t)c->rows * FF * 4), *y = test_buffer((uint64_t)c->rows * D * 4);
    double *want_h = malloc(c->rows * FF * sizeof *want_h);
    double *want_y = malloc(c->rows * D * sizeof *want_y);
    run_range(l, c, h, y);
    test_all_written(h, (uint64_t)c->rows * FF);
    expect_range(l, c, want_h, want_y, h);
    test_close("gate_up", h, want_h, (uint64_t)c->rows * FF, 1e-4);
    test_close("down", y, want_y, (uint64_t)c->rows * D, 1e-4);
    free(want_h);
    free(want_y);
    test_release(h);
    test_release(y);
}

static void experts_agree_with_double(void **state)
{
    /* F16 rows have any length; the down matrix has rows of 40 values */
    static const uint32_t gates[] = {STRATA__IQ2_XS, STRATA__Q4_K, STRATA__F32};
    layer l;
    (void)state;
    for (size_t f = 0; f < 3; f++) {
        make_layer(&l, gates[f], f == 1 ? STRATA__IQ1_M : gates[f], STRATA__F16);
        for (int level = 0; level <= (int)strata__cpu_best_level(); level++)
            for (uint32_t bias = 0; bias < 2; bias++)
                for (uint32_t order = 0; order < ORDERS; order++) {
                    range_case all = {0, 273, 0, EXPERTS - 1, (uint32_t)f, bias, order, 128, level};
                    check_range(&l, &all);
                    /* a tile that cuts two experts, in little scratch */
                    range_case part = {3, 100, 1, 2, (uint32_t)f, bias, order, 16, level};
                    check_range(&l, &part);
                }
        free_layer(&l);
    }
}

static void check_range_bits(uint32_t order)
{
    layer l;
    make_layer(&l, STRATA__IQ3_XXS, STRATA__IQ3_XXS, STRATA__F16);
    for (int level = 0; level <= (int)strata__cpu_best_level(); level++) {
        static float h[273 * FF], y[273 * D], h2[273 * FF], y2[273 * D];
        range_case c = {0, 273, 0, EXPERTS - 1, STRATA__ACT_SWIGLU, 1, order, 256, level};
        run_range(&l, &c, h, y);
        for (uint32_t first = 0; first < 273; first += 60) {
            range_case part = c;
            part.first_row = first;
            part.rows = 273 - first < 60 ? 273 - first : 60;
            part.scratch_rows = 24;
            run_range(&l, &part, h2, y2);
            test_same("h", h2, h + (size_t)first * FF, (uint64_t)part.rows * FF);
            test_same("y", y2, y + (size_t)first * D, (uint64_t)part.rows * D);
        }
    }
    free_layer(&l);
}

static void expert_bits_do_not_depend_on_ranges(void **state)
{
    (void)state;
    check_range_bits(PLAIN);
    check_range_bits(FEW);
}

static void what_cannot_run_is_refused(void **state)
{
    strata__kernels *kernels = test_kernels(0, 1, 0);
    char memory[64];
    strata__dense_args dense = {
        .weight = {memory, NULL, 40, 64, 1}, .rows = 1, .scratch = {memory, 1 << 20}};
    (void)state;
    assert_int_equal(kernels->ops->dense(kernels, test_stream(), &dense), STRATA_ERR_UNSUPPORTED);
    assert_non_null(strstr(strata__error_text(), "format 40"));
    dense.weight.format = STRATA__Q4_K;
    assert_int_equal(kernels->ops->dense(kernels, test_stream(), &dense), STRATA_ERR_UNSUPPORTED);
    assert_non_null(strstr(strata__error_text(), "Q4_K"));
    dense.weight.inputs = 256;
    dense.scratch.bytes = 8 * 256 * 4 - 1;
    assert_int_equal(kernels->ops->dense(kernels, test_stream(), &dense),
                     STRATA_ERR_BUFFER_TOO_SMALL);
    assert_non_null(strstr(strata__error_text(), "8192"));
    strata__down_args down = {.down = {NULL, NULL, STRATA__F32, 8, 8, 0}, .path = STRATA__PATH_MMQ};
    assert_int_equal(kernels->ops->down(kernels, test_stream(), &down), STRATA_ERR_UNSUPPORTED);
    for (uint32_t id = 0; id < STRATA__FORMAT_LIMIT; id++)
        assert_int_equal(kernels->facts.coverage[STRATA__PATH_FP16] >> id & 1,
                         strata__format_find(id) != NULL);
    kernels->ops->destroy(kernels);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dense_agrees_with_double),
        cmocka_unit_test(dense_takes_every_format),
        cmocka_unit_test(dense_bits_depend_on_the_row_alone),
        cmocka_unit_test(few_rows_have_the_bits_of_one),
        cmocka_unit_test(levels_with_fma_agree),
        cmocka_unit_test(router_normalises_and_multiplies),
        cmocka_unit_test(experts_agree_with_double),
        cmocka_unit_test(expert_bits_do_not_depend_on_ranges),
        cmocka_unit_test(what_cannot_run_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
