/* SPDX-License-Identifier: MIT */
/* Rotary frequencies against the definition, computed here in another way. */
#include <math.h>

#include "pack_test.h"

enum { WIDTH = 32 };

static void check(gguf_builder *builder, const double wanted[WIDTH / 2], double magnitude)
{
    const strata__geometry *geometry;
    const strata__layer *layers;
    uint8_t *image;
    strata__pack *pack = open_file(builder, &image);
    if (strata__pack_model(pack, &geometry, &layers) != STRATA_OK)
        fail_msg("not runnable: %s", strata__error_text());
    assert_int_equal(geometry->rope_table_count, 1);
    assert_int_equal(layers[0].rope_table, 0);
    for (int i = 0; i < WIDTH / 2; i++)
        if (fabs(geometry->rope_frequencies[0][i] - wanted[i]) > 1e-7 * wanted[i])
            fail_msg("frequency %d: expected %.9g, found %.9g", i, wanted[i],
                     (double)geometry->rope_frequencies[0][i]);
    assert_true(fabs(layers[1].rope_magnitude - magnitude) < 1e-6);
    strata__pack_release(pack);
    free(image);
}

static void plain(double base, double wanted[WIDTH / 2])
{
    for (int i = 0; i < WIDTH / 2; i++)
        wanted[i] = exp(-log(base) * 2 * i / WIDTH);
}

static void default_base(void **state)
{
    double wanted[WIDTH / 2];
    (void)state;
    plain(10000, wanted);
    check(gguf_model("qwen3moe"), wanted, 1);
}

static void linear_and_none(void **state)
{
    static const char *const types[] = {"linear", NULL, "none"};
    (void)state;
    for (int t = 0; t < 3; t++) {
        gguf_builder *builder = gguf_model("qwen3moe");
        double wanted[WIDTH / 2];
        gguf_f32(builder, "qwen3moe.rope.freq_base", 1e6f);
        if (types[t])
            gguf_string(builder, "qwen3moe.rope.scaling.type", types[t]);
        gguf_f32(builder, "qwen3moe.rope.scaling.factor", 8);
        gguf_f32(builder, "qwen3moe.rope.scaling.attn_factor", 1.25f);
        plain(1e6, wanted);
        for (int i = 0; i < WIDTH / 2; i++)
            wanted[i] /= t == 2 ? 1 : 8;
        check(builder, wanted, 1.25);
    }
}

/* Pairs that turn often keep their frequency, pairs that turn less than once are stretched. */
static void yarn(void **state)
{
    gguf_builder *builder = gguf_model("qwen3moe");
    double wanted[WIDTH / 2];
    const double pi = 3.14159265358979323846;
    /* Of base 10000 and 4096 tokens: 32 turns at pair 5.236, one at 11.256. */
    const double low = floor(16 * log(4096 / (32 * 2 * pi)) / log(10000));
    const double high = ceil(16 * log(4096 / (2 * pi)) / log(10000));
    (void)state;
    assert_true(low == 5 && high == 12);
    gguf_string(builder, "qwen3moe.rope.scaling.type", "yarn");
    gguf_f32(builder, "qwen3moe.rope.scaling.factor", 32);
    gguf_u32(builder, "qwen3moe.rope.scaling.original_context_length", 4096);
    plain(10000, wanted);
    for (int i = 0; i < WIDTH / 2; i++) {
        double stretched = fmin(1, fmax(0, (i - low) / (high - low)));
        wanted[i] *= 1 - stretched + stretched / 32;
    }
    check(builder, wanted, 1 + 0.1 * log(32));
}

/* Each value is one that may be, and what they make together is not. */
static void out_of_range(void **state)
{
    gguf_builder *builder = gguf_model("qwen3moe");
    (void)state;
    gguf_string(builder, "qwen3moe.rope.scaling.type", "linear");
    gguf_f32(builder, "qwen3moe.rope.scaling.factor", 1e-40f);
    expect_model_refused(builder, STRATA_ERR_FORMAT, "the frequency of pair 0 is no finite number");
    builder = gguf_model("qwen3moe");
    gguf_string(builder, "qwen3moe.rope.scaling.type", "yarn");
    gguf_f32(builder, "qwen3moe.rope.scaling.factor", 4);
    gguf_f32(builder, "qwen3moe.rope.scaling.attn_factor", 3.2e38f);
    expect_model_refused(builder, STRATA_ERR_FORMAT, "cosine and sine is no finite number");
}

static void factors(void **state)
{
    gguf_builder *builder = gguf_model("llama");
    double wanted[WIDTH / 2];
    (void)state;
    gguf_add(builder, "rope_freqs.weight", 0, WIDTH / 2, 0, 0)->fill = 4;
    plain(10000, wanted);
    for (int i = 0; i < WIDTH / 2; i++)
        wanted[i] /= 4;
    check(builder, wanted, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(default_base), cmocka_unit_test(linear_and_none), cmocka_unit_test(yarn),
        cmocka_unit_test(factors),      cmocka_unit_test(out_of_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
