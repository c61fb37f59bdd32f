/* SPDX-License-Identifier: MIT */
/* QK norm, rotary embedding, the KV cache in its three formats, and attention, against double. */
#include "support.h"

#include <math.h>

enum { PAGE = 64, PAGES = 12, TABLE = 4 };

typedef struct setup {
    uint32_t heads, kv_heads, size, format, rope_style, rope_width, norm, window, sinks;
    float clamp;
    int level;
} setup;

/* A cache and the rows of a step: everything but the outputs comes from the seed. */
typedef struct world {
    setup s;
    strata__kernels *kernels;
    strata__kv_view kv;
    int32_t page_table[2 * TABLE];
    float *q, *k, *v; /* projections by sequence and position */
    float q_norm[2048], k_norm[2048], frequencies[256], sinks[64];
    uint32_t stride;
    uint64_t cache_bytes;
    double *exact[3]; /* q, k, v after clamp, norm and rotation */
} world;

enum { TOKENS = 200, SEQUENCES = 2 };

static uint64_t page_bytes(const setup *s)
{
    uint64_t row = s->format == STRATA__KV_F32   ? s->size * 4u
                   : s->format == STRATA__KV_F16 ? s->size * 2u
                                                 : s->size + s->size / 32 * 2;
    return s->kv_heads * PAGE * row;
}

static void exact_norm(double *v, uint32_t n, const float *weight)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += v[i] * v[i];
    for (uint32_t i = 0; i < n; i++)
        v[i] *= (double)weight[i] / sqrt(sum / n + (double)1e-5f);
}

static void exact_rotate(const world *w, double *v, uint32_t position)
{
    uint32_t pairs = w->s.rope_width / 2;
    for (uint32_t i = 0; i < pairs; i++) {
        uint32_t a = w->s.rope_style == STRATA__ROPE_NEOX ? i : 2 * i;
        uint32_t b = w->s.rope_style == STRATA__ROPE_NEOX ? i + pairs : 2 * i + 1;
        double angle = position * (double)w->frequencies[i], m = (double)1.25f;
        double x = v[a], y = v[b];
        v[a] = (x * cos(angle) - y * sin(angle)) * m;
        v[b] = (x * sin(angle) + y * cos(angle)) * m;
    }
}

/* Clamp, norm and rotation of one row in double; norm NULL for values. */
static void exact_row(const world *w, const float *from, uint32_t heads, const float *norm,
                      uint32_t position, double *to)
{
    uint32_t width = heads * w->s.size;
    double limit = (double)w->s.clamp;
    for (uint32_t i = 0; i < width; i++) {
        to[i] = (double)from[i];
        if (limit > 0)
            to[i] = to[i] > limit ? limit : to[i] < -limit ? -limit : to[i];
    }
    if (norm && w->s.norm == STRATA__QK_NORM_ROW_BEFORE_ROPE)
        exact_norm(to, width, norm);
    for (uint32_t h = 0; norm && h < heads; h++) {
        double *head = to + (size_t)h * w->s.size;
        if (w->s.norm == STRATA__QK_NORM_HEAD_BEFORE_ROPE)
            exact_norm(head, w->s.size, norm);
        if (w->s.rope_style != STRATA__ROPE_NONE)
            exact_rotate(w, head, position);
        if (w->s.norm == STRATA__QK_NORM_HEAD_AFTER_ROPE)
            exact_norm(head, w->s.size, norm);
    }
}

static void make_exact(world *w)
{
    uint32_t q_width = w->s.heads * w->s.size, kv_width = w->s.kv_heads * w->s.size;
    for (int i = 0; i < 3; i++)
        w->exact[i] = malloc(sizeof(double) * SEQUENCES * TOKENS * (i ? kv_width : q_width));
    for (uint32_t s = 0; s < SEQUENCES; s++)
        for (uint32_t p = 0; p < TOKENS; p++) {
            size_t row = s * TOKENS + p;
            exact_row(w, w->q + row * w->stride, w->s.heads, w->q_norm, p,
                      w->exact[0] + row * q_width);
            exact_row(w, w->k + row * w->stride, w->s.kv_heads, w->k_norm, p,
                      w->exact[1] + row * kv_width);
            exact_row(w, w->v + row * w->stride, w->s.kv_heads, NULL, p,
                      w->exact[2] + row * kv_width);
        }
}

static void make_world(world *w, setup s)
{
    test_random random = {s.heads * 7 + s.size};
    uint64_t projected;
    *w = (world){.s = s, .stride = s.heads * s.size + 5};
    projected = (uint64_t)SEQUENCES * TOKENS * w->stride;
    w->kernels = test_kernels(s.level, 2, 0);
    w->q = malloc(projected * 4);
    w->k = malloc(projected * 4);
    w->v = malloc(projected * 4);
    test_fill(&random, w->q, projected, 2);
    test_fill(&random, w->k, projected, 2);
    test_fill(&random, w->v, projected, 2);
    test_fill(&random, w->q_norm, s.heads * s.size, 2);
    test_fill(&random, w->k_norm, s.heads * s.size, 2);
    test_fill(&random, w->sinks, s.heads, 3);
    for (uint32_t i = 0; i < s.rope_width / 2; i++)
        w->frequencies[i] = powf(10000, -2.0f * (float)i / (float)s.rope_width);
    /* pages of the two sequences are mixed and out of order */
    for (int i = 0; i < 2 * TABLE; i++)
        w->page_table[i] = (5 * i + 3) % PAGES;
    w->cache_bytes = PAGES * page_bytes(&s);
    w->kv = (strata__kv_view){test_buffer(w->cache_bytes),
                              test_buffer(w->cache_bytes),
                              w->page_table,
                              page_bytes(&s),
                              TABLE,
                              PAGE,
                              s.kv_heads,
                              s.size,
                              s.format,
                              0};
    make_exact(w);
}

static void free_world(world *w)
{
    w->kernels->ops->destroy(w->kernels);
    test_release(w->kv.k);
    test_release(w->kv.v);
    for (int i = 0; i < 3; i++)
        free(w->exact[i]);
    free(w->q);
    free(w->k);
    free(w->v);
}

/* One step: rows of both sequences, from their positions on. Gives q and the attention's output. */
static void run_step(world *w, const uint32_t *positions, const uint32_t *counts, float *q,
                     float *out)
{
    uint32_t rows = counts[0] + counts[1], largest = 0, longest = 0;
    uint64_t bytes = (uint64_t)rows * w->stride * 4;
    float *projected[3];
    const float *sources[3] = {w->q, w->k, w->v};
    strata__segment segments[SEQUENCES];
    for (int i = 0; i < 3; i++) {
        projected[i] = test_buffer(bytes);
        for (uint32_t s = 0, r = 0; s < SEQUENCES; r += counts[s++])
            memcpy(projected[i] + (size_t)r * w->stride,
                   sources[i] + (size_t)(s * TOKENS + positions[s]) * w->stride,
                   (uint64_t)counts[s] * w->stride * 4);
    }
    for (uint32_t s = 0, r = 0; s < SEQUENCES; r += counts[s++]) {
        segments[s] = (strata__segment){r, counts[s], positions[s], s};
        largest = counts[s] > largest ? counts[s] : largest;
        longest = positions[s] + counts[s] > longest ? positions[s] + counts[s] : longest;
    }
    strata__qkv_args qkv = {.q = projected[0],
                            .k = projected[1],
                            .v = projected[2],
                            .q_norm = w->q_norm,
                            .k_norm = w->k_norm,
                            .rope_frequencies = w->frequencies,
                            .q_out = {q, NULL},
                            .kv = w->kv,
                            .segments = segments,
                            .segment_count = SEQUENCES,
                            .rows = rows,
                            .qkv_stride = w->stride,
                            .heads = w->s.heads,
                            .rope_width = w->s.rope_width,
                            .rope_style = w->s.rope_style,
                            .qk_norm = w->s.norm,
                            .rope_magnitude = 1.25f,
                            .clamp = w->s.clamp,
                            .eps = 1e-5f};
    strata__attention_args attention = {.q = {q, NULL},
                                        .out = {out, NULL},
                                        .kv = w->kv,
                                        .sinks = w->s.sinks ? w->sinks : NULL,
                                        .segments = segments,
                                        .segment_count = SEQUENCES,
                                        .rows = rows,
                                        .max_segment_rows = largest,
                                        .max_kv_tokens = longest,
                                        .heads = w->s.heads,
                                        .window = w->s.window,
                                        .scale = 0.17f};
    assert_int_equal(w->kernels->ops->qkv(w->kernels, test_stream(), &qkv), STRATA_OK);
    assert_int_equal(w->kernels->ops->attention(w->kernels, test_stream(), &attention), STRATA_OK);
    for (int i = 0; i < 3; i++)
        test_release(projected[i]);
}

/* Attention of one row in double over the exact keys and values. */
static void exact_attention(const world *w, uint32_t sequence, uint32_t position, double *out)
{
    uint32_t size = w->s.size, shared = w->s.heads / w->s.kv_heads;
    uint32_t q_width = w->s.heads * size, kv_width = w->s.kv_heads * size;
    uint32_t from = w->s.window && position >= w->s.window ? position - w->s.window + 1 : 0;
    for (uint32_t h = 0; h < w->s.heads; h++) {
        const double *q = w->exact[0] + (size_t)(sequence * TOKENS + position) * q_width + h * size;
        double top = w->s.sinks ? (double)w->sinks[h] : -INFINITY, sum, p[TOKENS];
        for (uint32_t t = from; t <= position; t++) {
            const double *k =
                w->exact[1] + (size_t)(sequence * TOKENS + t) * kv_width + h / shared * size;
            p[t] = 0;
            for (uint32_t i = 0; i < size; i++)
                p[t] += q[i] * k[i];
            p[t] *= (double)0.17f;
            top = fmax(top, p[t]);
        }
        sum = w->s.sinks ? exp((double)w->sinks[h] - top) : 0;
        for (uint32_t i = 0; i < size; i++)
            out[h * size + i] = 0;
        for (uint32_t t = from; t <= position; t++) {
            const double *v =
                w->exact[2] + (size_t)(sequence * TOKENS + t) * kv_width + h / shared * size;
            double weight = exp(p[t] - top);
            sum += weight;
            for (uint32_t i = 0; i < size; i++)
                out[h * size + i] += weight * v[i];
        }
        for (uint32_t i = 0; i < size; i++)
            out[h * size + i] /= sum;
    }
}

static void check_step(world *w, const uint32_t *positions, const uint32_t *counts,
                       double tolerance)
{
    uint32_t width = w->s.heads * w->s.size;
    uint64_t values = (uint64_t)(counts[0] + counts[1]) * width;
    float *q = test_buffer(values * 4), *out = test_buffer(values * 4);
    double *expected = malloc(width * sizeof *expected);
    run_step(w, positions, counts, q, out);
    for (uint32_t s = 0, r = 0; s < SEQUENCES; s++)
        for (uint32_t i = 0; i < counts[s]; i++, r++) {
            uint32_t position = positions[s] + i;
            test_close("q", q + (size_t)r * width,
                       w->exact[0] + (size_t)(s * TOKENS + position) * width, width, 2e-6);
            exact_attention(w, s, position, expected);
            test_close("attention", out + (size_t)r * width, expected, width, tolerance);
        }
    free(expected);
    test_release(q);
    test_release(out);
}

static void check_setup(setup s, double tolerance)
{
    static const uint32_t starts[4][2] = {{0, 0}, {65, 1}, {66, 8}, {139, 9}};
    static const uint32_t counts[4][2] = {{65, 1}, {1, 7}, {73, 1}, {61, 120}};
    for (s.level = 0; s.level <= (int)strata__cpu_best_level(); s.level++) {
        world w;
        make_world(&w, s);
        for (int i = 0; i < 4; i++)
            check_step(&w, starts[i], counts[i], tolerance);
        free_world(&w);
    }
}

static void attention_agrees_with_double(void **state)
{
    (void)state;
    const setup setups[] = {
        {4, 2, 64, STRATA__KV_F32, STRATA__ROPE_NEOX, 64, STRATA__QK_NORM_NONE, 0, 0, 0, 0},
        {4, 4, 32, STRATA__KV_F32, STRATA__ROPE_PAIRS, 32, STRATA__QK_NORM_HEAD_BEFORE_ROPE, 0, 0,
         0, 0},
        {6, 2, 64, STRATA__KV_F32, STRATA__ROPE_NEOX, 16, STRATA__QK_NORM_HEAD_AFTER_ROPE, 50, 1, 0,
         0},
        {2, 1, 128, STRATA__KV_F32, STRATA__ROPE_PAIRS, 48, STRATA__QK_NORM_ROW_BEFORE_ROPE, 128, 0,
         1.5f, 0},
        {8, 1, 80, STRATA__KV_F32, STRATA__ROPE_NONE, 0, STRATA__QK_NORM_NONE, 1, 1, 0, 0},
        {2, 2, 256, STRATA__KV_F32, STRATA__ROPE_NEOX, 256, STRATA__QK_NORM_HEAD_BEFORE_ROPE, 64, 0,
         0, 0},
    };
    for (size_t i = 0; i < sizeof setups / sizeof setups[0]; i++)
        check_setup(setups[i], 2e-5);
}

static void half_and_q8_0_caches_lose_what_they_must(void **state)
{
    setup s = {4, 2, 64, STRATA__KV_F16, STRATA__ROPE_NEOX, 64, STRATA__QK_NORM_HEAD_BEFORE_ROPE, 0,
               0, 0, 0};
    (void)state;
    check_setup(s, 5e-3);
    s.format = STRATA__KV_Q8_0;
    check_setup(s, 1e-1);
}

/* The cache holds what the page layout says: read it back by hand. */
static void cache_pages_have_the_documented_layout(void **state)
{
    static const uint32_t start[2] = {0, 0}, count[2] = {70, 3};
    (void)state;
    for (uint32_t format = 0; format < 3; format++) {
        world w;
        setup s = {4, 2, 64, format, STRATA__ROPE_NEOX, 64, STRATA__QK_NORM_NONE, 0, 0, 0, 0};
        float q[73 * 4 * 64], out[73 * 4 * 64];
        make_world(&w, s);
        run_step(&w, start, count, q, out);
        for (uint32_t p = 0; p < 70; p++)
            for (uint32_t h = 0; h < 2; h++)
                for (uint32_t i = 0; i < 64; i++) {
                    const uint8_t *page = (const uint8_t *)w.kv.k +
                                          (uint64_t)w.page_table[p / PAGE] * w.kv.page_bytes +
                                          h * (w.kv.page_bytes / 2);
                    uint32_t at = p % PAGE * 64 + i;
                    double want = w.exact[1][(size_t)p * 128 + h * 64 + i];
                    float got;
                    uint16_t half;
                    if (format == STRATA__KV_F32) {
                        memcpy(&got, page + 4 * at, 4);
                        assert_true(fabs((double)got - want) < 1e-5);
                    } else if (format == STRATA__KV_F16) {
                        memcpy(&half, page + 2 * at, 2);
                        assert_true(fabs((double)test_half_value(half) - want) <
                                    1e-5 + fabs(want) * 0x1p-11);
                    } else {
                        memcpy(&half, page + PAGE * 64 + at / 32 * 2, 2);
                        double scale = (double)test_half_value(half);
                        assert_true(fabs((int8_t)page[at] * scale - want) < scale * 0.51 + 1e-5);
                    }
                }
        free_world(&w);
    }
}

/* Bits of a row are the same in whatever steps the rows before it and beside it came. */
static void bits_do_not_depend_on_chunks(void **state)
{
    enum { HEADS = 6, SIZE = 64, WIDTH = HEADS * SIZE };
    static float q[SEQUENCES][TOKENS * WIDTH], whole[SEQUENCES * TOKENS * WIDTH];
    static float part[SEQUENCES * TOKENS * WIDTH];
    static const uint32_t chunks[] = {1, 7, 64};
    (void)state;
    for (uint32_t format = 0; format < 3; format++)
        for (int level = 0; level <= (int)strata__cpu_best_level(); level++)
            for (uint32_t window = 0; window < 100; window += 50) {
                /* every format at the best level, float32 at all */
                if (format != STRATA__KV_F32 && level != (int)strata__cpu_best_level())
                    continue;
                setup s = {HEADS,
                           2,
                           SIZE,
                           format,
                           STRATA__ROPE_NEOX,
                           SIZE,
                           STRATA__QK_NORM_HEAD_BEFORE_ROPE,
                           window,
                           1,
                           0,
                           level};
                uint32_t zero[2] = {0, 0}, all[2] = {TOKENS, TOKENS};
                world w;
                make_world(&w, s);
                run_step(&w, zero, all, q[0], whole);
                for (size_t c = 0; c < 3; c++)
                    for (uint32_t p = 0; p < TOKENS; p += chunks[c]) {
                        uint32_t rows = TOKENS - p < chunks[c] ? TOKENS - p : chunks[c];
                        uint32_t at[2] = {p, p}, count[2] = {rows, rows};
                        run_step(&w, at, count, q[1], part);
                        test_same("first", part, whole + (size_t)p * WIDTH, rows * WIDTH);
                        test_same("second", part + (size_t)rows * WIDTH,
                                  whole + (size_t)(TOKENS + p) * WIDTH, rows * WIDTH);
                    }
                free_world(&w);
            }
}

static void half_conversion_rounds_to_nearest_even(void **state)
{
    (void)state;
    for (int level = 0; level <= (int)strata__cpu_best_level(); level++) {
        const strata__cpu_code *code = strata__cpu_code_of((strata__cpu_level)level);
        for (uint32_t h = 0; h < 0x7c00; h++) {
            float exact = test_half_value((uint16_t)h), next = test_half_value((uint16_t)(h + 1));
            float middle = h + 1 < 0x7c00 ? (exact + next) / 2 : 65519;
            float in[4] = {exact, -exact, middle, nextafterf(middle, 0)};
            uint16_t out[4];
            code->to_half(in, 4, out);
            assert_int_equal(out[0], h);
            assert_int_equal(out[1], h | 0x8000);
            if (h + 1 < 0x7c00)
                assert_int_equal(out[2], h + (h & 1));
            assert_int_equal(out[3], h);
        }
        const float large[5] = {65520, 1e30f, -INFINITY, INFINITY, NAN};
        uint16_t out[5];
        code->to_half(large, 5, out);
        assert_int_equal(out[0], 0x7bff);
        assert_int_equal(out[1], 0x7bff);
        assert_int_equal(out[2], 0xfbff);
        assert_int_equal(out[3], 0x7bff);
        assert_true(isnan(test_half_value(out[4])));
    }
}

static void what_cannot_run_is_refused(void **state)
{
    strata__kernels *kernels = test_kernels(0, 1, 0);
    strata__attention_args a = {.rows = 1,
                                .segment_count = 1,
                                .heads = 3,
                                .kv = {.page_tokens = 64, .kv_heads = 2, .head_size = 64}};
    (void)state;
    assert_int_equal(kernels->ops->attention(kernels, test_stream(), &a), STRATA_ERR_UNSUPPORTED);
    a.heads = 4;
    a.kv.page_tokens = 96;
    assert_int_equal(kernels->ops->attention(kernels, test_stream(), &a), STRATA_ERR_UNSUPPORTED);
    a.kv.page_tokens = 64;
    a.kv.head_size = 4096;
    assert_int_equal(kernels->ops->attention(kernels, test_stream(), &a), STRATA_ERR_UNSUPPORTED);
    a.kv.head_size = 80;
    a.kv.format = STRATA__KV_Q8_0;
    assert_int_equal(kernels->ops->attention(kernels, test_stream(), &a), STRATA_ERR_UNSUPPORTED);
    assert_non_null(strstr(strata__error_text(), "80"));
    kernels->ops->destroy(kernels);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_agrees_with_double),
        cmocka_unit_test(half_and_q8_0_caches_lose_what_they_must),
        cmocka_unit_test(cache_pages_have_the_documented_layout),
        cmocka_unit_test(bits_do_not_depend_on_chunks),
        cmocka_unit_test(half_conversion_rounds_to_nearest_even),
        cmocka_unit_test(what_cannot_run_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
