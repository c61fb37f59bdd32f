/* SPDX-License-Identifier: MIT */
/* The int8 paths: decoders, and products bit for bit against plain loops of kernels/int8.h. */
#include "support.h"

#include <math.h>

#include "kernels/int8.h"

enum { EXPERTS = 5, TOKENS = 60, MOST_ROWS = 240 };

/*
 * Blocks of Q2_K and Q3_K whose codes times scales are the most and the least that there are, among
 * others; with scales of the block that are negative, zero and subnormal.
 */
static void set_extremes(uint32_t id, uint8_t *block, uint64_t blocks)
{
    static const uint16_t scales[6] = {0x2400, 0xa400, 0, 0x8000, 1, 0x83ff};
    const strata__format_info *info = strata__format_find(id);
    uint32_t scale_at = id == STRATA__Q2_K ? 80 : 108;
    for (uint64_t b = 0; b < blocks; b++, block += info->block_bytes) {
        if (b / 6 % 3)
            memset(block, b / 6 % 3 == 1 ? 0 : 255, scale_at);
        memcpy(block + scale_at, &scales[b % 6], 2);
        if (id == STRATA__Q2_K)
            memcpy(block + scale_at + 2, &scales[b / 2 % 6], 2);
    }
}

enum { DECODED_VALUES = 8192 };

static void check_decoded(uint32_t id, const void *blocks, const float *decoded)
{
    static int8_t codes[DECODED_VALUES];
    static float scales[DECODED_VALUES / 16], offsets[DECODED_VALUES / 16];
    const strata__format_info *info = strata__format_find(id);
    for (int level = 0; level <= (int)strata__cpu_best_level(); level++) {
        memset(codes, 99, sizeof codes);
        memset(offsets, 0, sizeof offsets);
        strata__decode_int8_level((strata__cpu_level)level, id, blocks, DECODED_VALUES, codes,
                                  scales, offsets);
        for (uint32_t i = 0; i < DECODED_VALUES; i++) {
            float value = scales[i / info->int8_group] * (float)codes[i];
            if (info->int8_minimum_group)
                value += offsets[i / info->int8_minimum_group];
            if (value != decoded[i])
                fail_msg("%s level %d value %u: %a, expected %a", info->name, level, i,
                         (double)value, (double)decoded[i]);
        }
    }
}

static void codes_and_scales_give_the_floats(void **state)
{
    int formats = 0;
    (void)state;
    for (uint32_t id = 0; id < STRATA__FORMAT_LIMIT; id++) {
        test_random random = {id};
        float *decoded;
        if (!strata__format_find(id) || !strata__format_find(id)->int8_group)
            continue;
        formats++;
        void *blocks = test_weight(&random, id, DECODED_VALUES, &decoded);
        check_decoded(id, blocks, decoded);
        if (id == STRATA__Q2_K || id == STRATA__Q3_K) {
            set_extremes(id, blocks, DECODED_VALUES / 256);
            strata__decode_row_level(STRATA__CPU_BASE, id, blocks, DECODED_VALUES, decoded);
            check_decoded(id, blocks, decoded);
        }
        free(blocks);
        free(decoded);
    }
    assert_int_equal(formats, 21);
}

/* A quantised row by its definition. */
typedef struct plain_row {
    int codes[1024];
    float scales[1024 / 32];
} plain_row;

static void plain_quantise(const float *x, uint32_t n, uint32_t group, plain_row *row)
{
    for (uint32_t at = 0; at < n; at += group) {
        float most = 0;
        for (uint32_t i = at; i < at + group; i++)
            most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
        bool is_zero = most < 0x1p-96f;
        float scale = is_zero ? 0 : most / 127.0f, inverse = is_zero ? 0 : 127.0f / most;
        for (uint32_t i = at; i < at + group; i++) {
            float scaled = x[i] * inverse;
            row->codes[i] = (int)nearbyintf(scaled);
            row->scales[i / 32] = scale;
        }
    }
}

/* A row of weights in the int8 form. */
typedef struct plain_weight {
    int8_t codes[1024];
    float scales[1024 / 16], offsets[1024 / 16];
} plain_weight;

static float plain_product(const plain_row *x, const plain_weight *w, uint32_t format, uint32_t n,
                           uint32_t row_group)
{
    const strata__format_info *info = strata__format_find(format);
    uint32_t group = info->int8_group, part = group < row_group ? group : row_group;
    uint32_t offset_group = info->int8_minimum_group;
    float y = 0;
    for (uint32_t at = 0; at < n; at += row_group) {
        float t = 0;
        for (uint32_t k = at; k < at + row_group; k += part) {
            int dot = 0;
            for (uint32_t i = k; i < k + part; i++)
                dot += x->codes[i] * w->codes[i];
            if (k == at)
                t = w->scales[k / group] * (float)dot;
            else
                t = fmaf(w->scales[k / group], (float)dot, t);
            for (uint32_t o = k; offset_group && o < k + part; o += offset_group) {
                int sum = 0;
                for (uint32_t i = o; i < o + offset_group; i++)
                    sum += x->codes[i];
                t = fmaf(w->offsets[o / offset_group], (float)sum, t);
            }
        }
        y = fmaf(t, x->scales[at / 32], y);
    }
    return y;
}

typedef struct layer {
    void *blobs[3][EXPERTS];
    float *decoded[3][EXPERTS];
    float *bias[3];
    float scale[EXPERTS];
    uint32_t offsets[EXPERTS + 1];
    uint32_t sorted_row[MOST_ROWS];
    float *x;
    uint32_t formats[3];
    uint32_t width, inner, activation;
} layer;

static uint32_t inputs_of(const layer *l, int m)
{
    return m == 2 ? l->inner : l->width;
}

static uint32_t outputs_of(const layer *l, int m)
{
    return m == 2 ? l->width : l->inner;
}

/* Experts 0 and 3 are empty, 2 is hot; tokens 0 to 4 are rows of extremes. */
static void make_layer(layer *l, uint32_t gate, uint32_t up, uint32_t down, uint32_t width,
                       uint32_t inner)
{
    static const uint32_t rows[EXPERTS] = {0, 9, 150, 0, 41};
    test_random random = {gate * 100 + down};
    *l = (layer){.formats = {gate, up, down}, .width = width, .inner = inner};
    for (int m = 0; m < 3; m++) {
        l->bias[m] = malloc(EXPERTS * outputs_of(l, m) * sizeof(float));
        test_fill(&random, l->bias[m], EXPERTS * outputs_of(l, m), 1);
        for (int e = 0; e < EXPERTS; e++)
            l->blobs[m][e] =
                test_weight(&random, l->formats[m], (uint64_t)width * inner, &l->decoded[m][e]);
    }
    test_fill(&random, l->scale, EXPERTS, 2);
    for (int e = 0; e < EXPERTS; e++)
        l->offsets[e + 1] = l->offsets[e] + rows[e];
    for (uint32_t i = 0; i < l->offsets[EXPERTS]; i++)
        l->sorted_row[i] = test_below(&random, TOKENS);
    l->x = test_buffer((uint64_t)TOKENS * width * 4);
    test_fill(&random, l->x, (uint64_t)TOKENS * width, 1);
    for (uint32_t i = 0; i < width; i++) {
        l->x[i] = 0;
        l->x[width + i] *= 1e6f;
        l->x[2 * width + i] *= 1e-6f;
        l->x[3 * width + i] *= 1e-38f;
        l->x[4 * width + i] *= i % 64 ? 1 : 1e4f;
    }
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

typedef struct range_case {
    uint32_t first_row, rows, path, bias, threads;
    int level;
} range_case;

static strata__expert_weight weight_of(const layer *l, int m, uint32_t bias)
{
    return (strata__expert_weight){(const void *const *)l->blobs[m],
                                   bias ? l->bias[m] : NULL,
                                   l->formats[m],
                                   inputs_of(l, m),
                                   outputs_of(l, m),
                                   0};
}

/* h: quantised rows; y: floats; both dense over the range's rows. */
static void run_range(const layer *l, const range_case *c, uint8_t *h, float *y)
{
    strata__kernels *kernels = test_kernels(c->level, c->threads, 0);
    uint8_t *quantised = test_buffer(c->rows * strata__quantised_row_bytes(l->width));
    float *gate_up = test_buffer((uint64_t)c->rows * 2 * l->inner * 4);
    strata__expert_range range = {l->offsets, NULL, c->first_row, c->rows, 0, EXPERTS - 1};
    strata__gate_up_args up = {.gate = weight_of(l, 0, c->bias),
                               .up = weight_of(l, 1, c->bias),
                               .range = range,
                               .sorted_row = l->sorted_row,
                               .in = {l->x, NULL},
                               .h = {h, NULL},
                               .gate_up = c->path == STRATA__PATH_MMQ ? gate_up : NULL,
                               .quantised = quantised,
                               .activation = l->activation,
                               .path = c->path,
                               .down_format = l->formats[2]};
    strata__down_args down = {.down = weight_of(l, 2, c->bias),
                              .range = range,
                              .expert_scale = c->bias ? l->scale : NULL,
                              .h = {h, NULL},
                              .y = y,
                              .path = c->path};
    assert_int_equal(kernels->ops->gate_up(kernels, test_stream(), &up), STRATA_OK);
    assert_int_equal(kernels->ops->down(kernels, test_stream(), &down), STRATA_OK);
    kernels->ops->destroy(kernels);
    test_release(gate_up);
    test_release(quantised);
}

static void load_weight(const layer *l, int m, uint32_t e, uint32_t n, plain_weight *w)
{
    uint64_t bytes;
    assert_true(strata__format_row_bytes(l->formats[m], inputs_of(l, m), &bytes));
    strata__decode_int8_level(STRATA__CPU_BASE, l->formats[m],
                              (const uint8_t *)l->blobs[m][e] + n * bytes, inputs_of(l, m),
                              w->codes, w->scales, w->offsets);
}

/* out[r][n] of one matrix for the rows of the range, and of the experts' row r. */
static void plain_matrix(const layer *l, const range_case *c, int m, const plain_row *rows,
                         uint32_t row_group, float *out)
{
    static plain_weight w;
    uint32_t outputs = outputs_of(l, m), end = c->first_row + c->rows;
    for (uint32_t e = 0; e < EXPERTS; e++)
        for (uint32_t n = 0; n < outputs && l->offsets[e] < l->offsets[e + 1]; n++) {
            load_weight(l, m, e, n, &w);
            for (uint32_t r = l->offsets[e]; r < l->offsets[e + 1]; r++) {
                if (r < c->first_row || r >= end)
                    continue;
                float y = plain_product(&rows[r - c->first_row], &w, l->formats[m], inputs_of(l, m),
                                        row_group);
                if (c->bias)
                    y += l->bias[m][e * outputs + n];
                if (m == 2 && c->bias)
                    y *= l->scale[e];
                out[(size_t)(r - c->first_row) * outputs + n] = y;
            }
        }
}

static void same_row(const plain_row *want, const uint8_t *got, uint32_t n, const char *name)
{
    const uint8_t *scales = got + strata__quantised_codes_bytes(n);
    const uint8_t *sums = scales + strata__quantised_scales_bytes(n);
    for (uint32_t i = 0; i < n; i += 16) {
        int sum = 0;
        int16_t half;
        for (uint32_t j = i; j < i + 16; j++) {
            if ((int8_t)got[j] != want->codes[j])
                fail_msg("%s code %u: %d, expected %d", name, j, (int8_t)got[j], want->codes[j]);
            sum += want->codes[j];
        }
        memcpy(&half, sums + i / 16 * 2, 2);
        assert_int_equal(half, sum);
        assert_memory_equal(scales + i / 32 * 4, &want->scales[i / 32], 4);
    }
}

/* Reference h rows and y of a range. */
static void plain_range(const layer *l, const range_case *c, plain_row *h, float *y)
{
    uint32_t in_group = strata__int8_row_group(l->formats[0], l->formats[1]);
    uint32_t h_group = strata__int8_row_group(l->formats[2], l->formats[2]);
    plain_row *in = calloc(c->rows, sizeof *in);
    float *gate = malloc((size_t)c->rows * l->inner * 4),
          *up = malloc((size_t)c->rows * l->inner * 4);
    for (uint32_t r = 0; r < c->rows; r++)
        plain_quantise(l->x + (size_t)l->sorted_row[c->first_row + r] * l->width, l->width,
                       in_group, &in[r]);
    plain_matrix(l, c, 0, in, in_group, gate);
    plain_matrix(l, c, 1, in, in_group, up);
    strata__cpu_code_of(STRATA__CPU_BASE)
        ->activate(l->activation, gate, up, c->rows * l->inner, gate);
    for (uint32_t r = 0; r < c->rows; r++)
        plain_quantise(gate + (size_t)r * l->inner, l->inner, h_group, &h[r]);
    plain_matrix(l, c, 2, h, h_group, y);
    free(gate);
    free(up);
    free(in);
}

static void check_range(const layer *l, const range_case *c, const plain_row *want_h,
                        const float *want_y)
{
    uint64_t row_bytes = strata__quantised_row_bytes(l->inner);
    uint8_t *h = test_buffer(c->rows * row_bytes);
    float *y = test_buffer((uint64_t)c->rows * l->width * 4);
    run_range(l, c, h, y);
    for (uint32_t r = 0; r < c->rows; r++)
        same_row(&want_h[r], h + r * row_bytes, l->inner, strata__format_name(l->formats[0]));
    test_same(strata__format_name(l->formats[2]), y, want_y, (uint64_t)c->rows * l->width);
    test_release(h);
    test_release(y);
}

static void check_layer(const layer *l)
{
    range_case c = {.rows = 200};
    plain_row *h = calloc(c.rows, sizeof *h);
    float *y = malloc((size_t)c.rows * l->width * 4);
    for (c.bias = 0; c.bias < 2; c.bias++) {
        c.first_row = 0;
        c.rows = 200;
        plain_range(l, &c, h, y);
        for (c.level = 0; c.level <= (int)strata__cpu_best_level(); c.level++)
            for (c.path = STRATA__PATH_FUSED; c.path <= STRATA__PATH_MMQ; c.path++) {
                range_case part = c;
                part.threads = 1 + (uint32_t)c.level;
                check_range(l, &part, h, y);
                part.first_row = 5; /* cuts an expert at both ends */
                part.rows = 71;
                check_range(l, &part, h + 5, y + (size_t)5 * l->width);
            }
    }
    free(h);
    free(y);
}

static void every_format_has_the_bits_of_plain_loops(void **state)
{
    (void)state;
    for (uint32_t id = 0; id < STRATA__FORMAT_LIMIT; id++) {
        layer l;
        if (!strata__format_find(id) || !strata__format_find(id)->int8_group)
            continue;
        make_layer(&l, id, id, id, 256, 256);
        check_layer(&l);
        free_layer(&l);
    }
}

/* With activations whose codes are all 127, and 127 and -127 in turn. */
static void extreme_codes_and_scales_have_the_bits_of_plain_loops(void **state)
{
    static const uint32_t ids[] = {STRATA__Q2_K, STRATA__Q3_K};
    (void)state;
    for (int i = 0; i < 2; i++) {
        layer l;
        make_layer(&l, ids[i], ids[i], ids[i], 256, 256);
        for (int m = 0; m < 3; m++)
            for (int e = 0; e < EXPERTS; e++)
                set_extremes(ids[i], l.blobs[m][e], 256);
        for (uint32_t k = 0; k < l.width; k++) {
            l.x[5 * l.width + k] = 1;
            l.x[6 * l.width + k] = k % 2 ? -1 : 1;
        }
        check_layer(&l);
        free_layer(&l);
    }
}

static void formats_mix(void **state)
{
    /* Rows of no whole steps; Q2_0 shares its rows with a format of 32, and does not. */
    static const uint32_t cases[][5] = {{STRATA__Q2_0, STRATA__Q4_1, STRATA__Q2_0, 320, 192},
                                        {STRATA__Q2_0, STRATA__Q2_0, STRATA__Q8_0, 320, 96},
                                        {STRATA__IQ2_XS, STRATA__Q2_K, STRATA__MXFP4, 512, 160},
                                        {STRATA__Q5_1, STRATA__IQ4_NL, STRATA__Q5_0, 288, 32}};
    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        layer l;
        make_layer(&l, cases[i][0], cases[i][1], cases[i][2], cases[i][3], cases[i][4]);
        l.activation = i % 3;
        check_layer(&l);
        free_layer(&l);
    }
}

static double dot(const float *a, const float *b, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

/*
 * What rounding the activations alone does to a product, and the error of the product by its
 * definition, which the kernels meet bit for bit: in root mean squares.
 */
static void check_error(uint32_t id)
{
    enum { N = 256, ROWS = 64 };
    static plain_weight w;
    static plain_row codes;
    uint32_t group = strata__int8_row_group(id, id);
    double implied = 0, made = 0;
    layer l;
    make_layer(&l, id, id, id, N, N);
    for (uint32_t r = 5; r < TOKENS; r++) {
        float rounded[N];
        const float *x = l.x + (size_t)r * N;
        plain_quantise(x, N, group, &codes);
        for (uint32_t i = 0; i < N; i++)
            rounded[i] = (float)codes.codes[i] * codes.scales[i / 32];
        for (uint32_t n = 0; n < ROWS; n++) {
            const float *row = l.decoded[2][2] + (size_t)n * N;
            double exact = dot(x, row, N), with_codes = dot(rounded, row, N) - exact;
            load_weight(&l, 2, 2, n, &w);
            double got = (double)plain_product(&codes, &w, id, N, group) - exact;
            implied += with_codes * with_codes;
            made += got * got;
        }
    }
    if (!(sqrt(made) <= 1.2 * sqrt(implied)) || !(implied > 0))
        fail_msg("%s: error %g, %g implied", strata__format_name(id), sqrt(made), sqrt(implied));
    free_layer(&l);
}

static void error_is_that_of_the_activations(void **state)
{
    (void)state;
    for (uint32_t id = 0; id < STRATA__FORMAT_LIMIT; id++)
        if (strata__format_find(id) && strata__format_find(id)->int8_group)
            check_error(id);
}

/* Rows of zeros give zeros; other extremes give what the usual rows give, scaled. */
static void extremes_are_right(void **state)
{
    layer l;
    range_case c = {.rows = 200, .path = STRATA__PATH_MMQ, .threads = 2};
    (void)state;
    make_layer(&l, STRATA__Q4_K, STRATA__IQ2_S, STRATA__Q2_K, 256, 256);
    for (uint32_t i = 0; i < 200; i++)
        l.sorted_row[i] = i % 7;
    for (uint32_t i = 0; i < l.width; i++) {
        l.x[5 * l.width + i] = i == 40 ? INFINITY : 1;
        l.x[6 * l.width + i] = i == 40 ? NAN : 1;
    }
    uint8_t *h = test_buffer(200 * strata__quantised_row_bytes(l.inner));
    float *y = test_buffer((uint64_t)200 * l.width * 4);
    for (c.level = 0; c.level <= (int)strata__cpu_best_level(); c.level++) {
        run_range(&l, &c, h, y);
        for (uint32_t r = 0; r < 200; r++)
            for (uint32_t n = 0; n < l.width; n++) {
                float v = y[(size_t)r * l.width + n];
                if (r % 7 == 0 || r % 7 == 3)
                    assert_true(v == 0);
                else
                    assert_int_equal(isfinite(v), r % 7 < 5);
            }
    }
    test_release(h);
    test_release(y);
    free_layer(&l);
}

static void what_has_no_int8_form_is_refused(void **state)
{
    strata__kernels *kernels = test_kernels(0, 1, 0);
    char memory[64];
    strata__down_args down = {.down = {NULL, NULL, STRATA__F16, 64, 8, 0},
                              .path = STRATA__PATH_FUSED};
    strata__gate_up_args up = {.gate = {NULL, NULL, STRATA__Q8_0, 64, 64, 0},
                               .up = {NULL, NULL, STRATA__Q8_0, 64, 64, 0},
                               .h = {memory, NULL},
                               .quantised = memory,
                               .path = STRATA__PATH_MMQ,
                               .down_format = STRATA__Q8_0};
    (void)state;
    assert_int_equal(kernels->ops->down(kernels, test_stream(), &down), STRATA_ERR_UNSUPPORTED);
    assert_int_equal(kernels->ops->gate_up(kernels, test_stream(), &up),
                     STRATA_ERR_BUFFER_TOO_SMALL);
    up.path = STRATA__PATH_FUSED;
    assert_int_equal(kernels->ops->gate_up(kernels, test_stream(), &up), STRATA_OK);
    up.down_format = STRATA__F32;
    assert_int_equal(kernels->ops->gate_up(kernels, test_stream(), &up), STRATA_ERR_UNSUPPORTED);
    for (uint32_t id = 0; id < STRATA__FORMAT_LIMIT; id++) {
        const strata__format_info *info = strata__format_find(id);
        uint64_t has_form = info && info->int8_group;
        assert_int_equal(kernels->facts.coverage[STRATA__PATH_FUSED] >> id & 1, has_form);
        assert_int_equal(kernels->facts.coverage[STRATA__PATH_MMQ] >> id & 1, has_form);
    }
    kernels->ops->destroy(kernels);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_and_scales_give_the_floats),
        cmocka_unit_test(every_format_has_the_bits_of_plain_loops),
        cmocka_unit_test(extreme_codes_and_scales_have_the_bits_of_plain_loops),
        cmocka_unit_test(formats_mix),
        cmocka_unit_test(error_is_that_of_the_activations),
        cmocka_unit_test(extremes_are_right),
        cmocka_unit_test(what_has_no_int8_form_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
