/* SPDX-License-Identifier: MIT */
/*
 * The cases that the layout exists to get right, each a fault that an engine of this kind has had.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"
#include "layout_fixture.h"

/* Coverage of the cases: fused and MMQ lack IQ1_M. */
static uint64_t without_iq1_m(void)
{
    return formats(STRATA__IQ2_S, STRATA__IQ2_XXS, STRATA__Q2_0, UINT32_MAX);
}

static uint64_t with_iq1_m(void)
{
    return without_iq1_m() | formats(STRATA__IQ1_M, UINT32_MAX);
}

static void mixed_fused(layout_fixture *f)
{
    fixture_mixed(f);
    f->input.facts.coverage[STRATA__LAYOUT_FUSED] = without_iq1_m();
    f->input.facts.coverage[STRATA__LAYOUT_MMQ] = without_iq1_m();
    f->input.request.path = STRATA__LAYOUT_FUSED;
}

static const strata__layout_choice whole_chunk = {
    .chunk_tokens = 8192, .dense_tile = 2048, .attention_tile = 512, .scratch_bytes = 16u << 20};

static uint32_t path_of(const strata__layout *layout, uint32_t layer, uint64_t rows)
{
    return layout->prompt.configs[strata__layout_config_of(&layout->prompt, layer, rows)].path;
}

static uint64_t bytes_of(const strata__layout *layout, uint32_t layer, uint64_t rows)
{
    return layout->prompt.configs[strata__layout_config_of(&layout->prompt, layer, rows)].bytes;
}

/* 1: some layers fused, three not: buffers are what the layers that run in them need. */
static void case_1_mixed_pack(void **state)
{
    layout_fixture f;
    strata__layout *mixed, *covered;
    uint32_t fused = 0, fp16 = 0;
    (void)state;
    mixed_fused(&f);
    mixed = fixture_build(&f, &whole_chunk);
    for (uint32_t i = 0; i < 48; ++i) {
        uint32_t path = path_of(mixed, i, 8192);
        bool odd = i == 8 || i == 13 || i == 37;
        assert_int_equal(path, odd ? STRATA__LAYOUT_FP16 : STRATA__LAYOUT_FUSED);
        assert_int_equal(mixed->prompt.reasons[i * mixed->prompt.band_count],
                         odd ? STRATA__LAYOUT_REASON_NOT_COVERED : STRATA__LAYOUT_REASON_POLICY);
        fused += path == STRATA__LAYOUT_FUSED;
        fp16 += path == STRATA__LAYOUT_FP16;
    }
    assert_int_equal(fused, 45);
    assert_int_equal(fp16, 3);
    /* Each configuration is as large as the most that lives in one of its stages. */
    for (uint32_t i = 0; i < mixed->prompt.config_count; ++i)
        assert_int_equal(mixed->prompt.configs[i].bytes,
                         fixture_live_bytes(&mixed->prompt.configs[i], mixed->alignment_bytes));
    /* FP16 launches write all T x K rows. */
    const strata__layout_buffer *h = strata__layout_find(
        &mixed->prompt, strata__layout_config_of(&mixed->prompt, 8, 8192), STRATA__BUFFER_EXPERT_H);
    assert_int_equal(h->row_capacity, 8192 * 10);
    assert_int_equal(mixed->prompt.arena_bytes, bytes_of(mixed, 8, 8192));
    assert_true(bytes_of(mixed, 0, 8192) < bytes_of(mixed, 8, 8192));

    f.input.facts.coverage[STRATA__LAYOUT_FUSED] = with_iq1_m();
    covered = fixture_build(&f, &whole_chunk);
    for (uint32_t i = 0; i < 48; ++i)
        assert_int_equal(path_of(covered, i, 8192), STRATA__LAYOUT_FUSED);
    assert_true(covered->prompt.arena_bytes < mixed->prompt.arena_bytes);
    assert_int_equal(covered->prompt.arena_bytes, bytes_of(mixed, 0, 8192));
    strata__layout_destroy(mixed);
    strata__layout_destroy(covered);
}

/* 2: a layer that MMQ cannot take but the fused kernels can makes nothing larger. */
static void case_2_not_all_mmq(void **state)
{
    layout_fixture f;
    strata__layout *with, *without;
    (void)state;
    mixed_fused(&f);
    f.input.facts.coverage[STRATA__LAYOUT_FUSED] = with_iq1_m();
    f.input.facts.coverage[STRATA__LAYOUT_MMQ] = with_iq1_m();
    with = fixture_build(&f, &whole_chunk);
    f.input.facts.coverage[STRATA__LAYOUT_MMQ] = formats(STRATA__IQ2_S, STRATA__Q2_0, UINT32_MAX);
    without = fixture_build(&f, &whole_chunk);
    assert_true(fixture_equal(with, without));
    strata__layout_destroy(with);
    strata__layout_destroy(without);
}

/* 3: a last, short chunk takes its own band; there is no number of rows that is not planned. */
static void case_3_short_last_chunk(void **state)
{
    layout_fixture f;
    strata__layout_choice choice = {.chunk_tokens = 700};
    strata__layout *layout;
    (void)state;
    mixed_fused(&f);
    f.input.request.path = STRATA__LAYOUT_PATH_AUTO;
    layout = fixture_build(&f, &choice);
    assert_int_equal(layout->prompt.band_count, 4);
    assert_int_equal(layout->prompt.bands[0].rows, 16);
    assert_int_equal(layout->prompt.bands[3].rows, 700);
    assert_int_equal(path_of(layout, 0, 16), STRATA__LAYOUT_DIRECT);
    assert_int_not_equal(path_of(layout, 0, 17), STRATA__LAYOUT_DIRECT);
    assert_int_equal(path_of(layout, 0, 700), STRATA__LAYOUT_FUSED);
    for (uint64_t rows = 1; rows <= 700; ++rows)
        for (uint32_t layer = 0; layer < 48; ++layer) {
            strata__layout_launch launch = {.layer = layer};
            launch.config = strata__layout_config_of(&layout->prompt, layer, rows);
            fixture_ok(
                strata__layout_check(&layout->prompt, &launch, STRATA__BUFFER_EXPERT_Y, rows * 10));
            fixture_ok(
                strata__layout_check(&layout->prompt, &launch, STRATA__BUFFER_EXPERT_IDS, rows));
            fixture_ok(strata__layout_check(&layout->prompt, &launch, STRATA__BUFFER_QKV, rows));
        }
    assert_int_equal(strata__layout_config_of(&layout->prompt, 0, 0), layout->prompt.config_count);
    assert_int_equal(strata__layout_config_of(&layout->prompt, 0, 701),
                     layout->prompt.config_count);
    assert_int_equal(strata__layout_config_of(&layout->prompt, 48, 1), layout->prompt.config_count);
    strata__layout_destroy(layout);
}

/* Sum of a configuration's buffers before any share bytes. */
static uint64_t sum_of(const strata__layout *layout, uint32_t layer, uint64_t rows)
{
    const strata__layout_config *c =
        &layout->prompt.configs[strata__layout_config_of(&layout->prompt, layer, rows)];
    uint64_t sum = 0;
    for (uint32_t i = 0; i < c->buffer_count; ++i)
        sum += c->buffers[i].bytes;
    return sum;
}

/*
 * 4: what is needed is what is carved. The normalised copy of four residual streams exists only in
 * the unfused read, their scales always; a second formula that had the one always and the other
 * never was off by 40,944 bytes a token.
 */
static void case_4_bytes_needed_is_what_carve_takes(void **state)
{
    static const uint32_t chunks[] = {64, 8192, 32768};
    (void)state;
    for (uint32_t i = 0; i < 3; ++i) {
        strata__layout_choice choice = {.chunk_tokens = chunks[i]};
        const uint64_t tokens = chunks[i], norm = 4 * 2560 * sizeof(float),
                       scales = 4 * sizeof(float);
        layout_fixture f;
        strata__layout *fused, *unfused, *one;
        const strata__layout_buffer *last;
        mixed_fused(&f);
        one = fixture_build(&f, &choice);
        f.input.geometry.residual_streams = 4;
        f.input.geometry.fused_residual_read = 1;
        fused = fixture_build(&f, &choice);
        f.input.geometry.fused_residual_read = 0;
        unfused = fixture_build(&f, &choice);
        assert_int_equal(norm, 40960);
        assert_int_equal(sum_of(unfused, 0, tokens) - sum_of(fused, 0, tokens), 40960 * tokens);
        assert_int_equal(sum_of(fused, 0, tokens) - sum_of(one, 0, tokens), scales * tokens);
        /* The drifted formula: the copy always, the scales never. */
        assert_int_equal(sum_of(one, 0, tokens) + norm * tokens - sum_of(fused, 0, tokens),
                         40944 * tokens);
        /* Carving ends where the bytes needed do. */
        assert_int_equal(fused->prompt.arena_offset + fused->prompt.arena_bytes,
                         fused->prompt_bytes);
        last = &unfused->prompt.persistent[unfused->prompt.persistent_count - 1];
        assert_true(last->offset + last->bytes <= unfused->prompt.arena_offset);
        assert_true(unfused->prompt.arena_offset - (last->offset + last->bytes) <
                    unfused->alignment_bytes);
        strata__layout_destroy(one);
        strata__layout_destroy(fused);
        strata__layout_destroy(unfused);
    }
}

/* 5: with a source of experts there is a ring, without there is none; both add up. */
static void case_5_with_and_without_source(void **state)
{
    layout_fixture f;
    uint32_t all[48];
    strata__layout_choice choice = whole_chunk;
    strata__layout *with, *without;
    (void)state;
    mixed_fused(&f);
    with = fixture_build(&f, &choice);
    assert_non_null(strata__layout_find_work(&with->prompt, STRATA__BUFFER_RING));
    assert_true(with->ring_bytes > 0);
    f.input.request.expert_source = 0;
    for (uint32_t i = 0; i < 48; ++i)
        all[i] = 512;
    choice.resident = all;
    without = fixture_build(&f, &choice);
    assert_null(strata__layout_find_work(&without->prompt, STRATA__BUFFER_RING));
    assert_int_equal(without->ring_bytes, 0);
    assert_int_equal(with->prompt_bytes - without->prompt_bytes,
                     (with->ring_bytes + 255) / 256 * 256);
    assert_int_equal(without->session_bytes - with->session_bytes, without->cache_bytes);
    strata__layout_destroy(with);
    strata__layout_destroy(without);
    /* One expert less has to come from somewhere. */
    all[20] = 511;
    assert_int_equal(strata__layout_build(strata__allocator_default(), &f.input, &choice, &without),
                     STRATA_ERR_INVALID_ARGUMENT);
    fixture_text_has("source");
    assert_null(without);
}

/* 6: what was asked for is part of the layout; changing it afterwards changes nothing. */
static void case_6_options_are_frozen(void **state)
{
    layout_fixture f, before;
    uint8_t paths[48];
    strata__layout *layout, *again;
    (void)state;
    mixed_fused(&f);
    memset(paths, STRATA__LAYOUT_PATH_AUTO, sizeof paths);
    paths[3] = STRATA__LAYOUT_FP16;
    f.input.request.layer_paths = paths;
    before = f;
    before.input.geometry.layers = before.layers;
    layout = fixture_build(&f, &whole_chunk);
    memset(&f, 0, sizeof f);
    memset(paths, STRATA__LAYOUT_MMQ, sizeof paths);
    assert_int_equal(layout->request.layer_paths[3], STRATA__LAYOUT_FP16);
    assert_int_equal(layout->request.path, STRATA__LAYOUT_FUSED);
    assert_int_equal(layout->facts.compute_capability, 86);
    before.input.request.layer_paths = layout->request.layer_paths;
    again = fixture_build(&before, &whole_chunk);
    assert_true(fixture_equal(layout, again));
    strata__layout_destroy(layout);
    strata__layout_destroy(again);
}

/* 7: more rows than the buffer holds are refused before anything is written, by name. */
static void case_7_too_many_rows_are_refused(void **state)
{
    layout_fixture f;
    strata__layout_choice choice = whole_chunk;
    strata__layout_launch launch = {.layer = 8, .chunk = 3};
    strata__layout *layout;
    (void)state;
    mixed_fused(&f);
    choice.expert_tile = 1023 * 10;
    layout = fixture_build(&f, &choice);
    launch.config = strata__layout_config_of(&layout->prompt, 8, 8192);
    fixture_ok(strata__layout_check(&layout->prompt, &launch, STRATA__BUFFER_EXPERT_H, 10230));
    assert_int_equal(strata__layout_check(&layout->prompt, &launch, STRATA__BUFFER_EXPERT_H, 81920),
                     STRATA_ERR_CAPACITY);
    assert_string_equal(strata__error_text(), "layer 8, path fp16, chunk 3: 81920 rows for buffer "
                                              "expert_h, planned for 10230");
    assert_int_equal(strata__layout_check(&layout->prompt, &launch, STRATA__BUFFER_EXPERT_H, 10231),
                     STRATA_ERR_CAPACITY);
    /* A buffer that the configuration has not is planned for no rows at all. */
    assert_int_equal(strata__layout_check(&layout->prompt, &launch, STRATA__BUFFER_QUANTISED_H, 1),
                     STRATA_ERR_CAPACITY);
    fixture_text_has("quantised_h, planned for 0");
    fixture_ok(strata__layout_check(&layout->prompt, &launch, STRATA__BUFFER_RESIDUAL, 8192));
    assert_int_equal(strata__layout_check(&layout->prompt, &launch, STRATA__BUFFER_RESIDUAL, 8193),
                     STRATA_ERR_CAPACITY);
    launch.config = layout->prompt.config_count;
    assert_int_equal(strata__layout_check(&layout->prompt, &launch, STRATA__BUFFER_EXPERT_Y, 1),
                     STRATA_ERR_CAPACITY);
    fixture_text_has("path none");
    strata__layout_destroy(layout);
}

/*
 * 8: the ring is bytes; blobs of four times the size get the same memory, not four times as much.
 */
static void case_8_ring_in_bytes(void **state)
{
    layout_fixture f, large;
    strata__layout_choice choice = {
        .chunk_tokens = 64, .ring_bytes = 8u << 20, .group_bytes = 2u << 20};
    strata__layout *a, *b;
    (void)state;
    fixture_small(&f, 4);
    fixture_small(&large, 4);
    for (uint32_t i = 0; i < 4; ++i) {
        large.layers[i].gate_bytes *= 4;
        large.layers[i].up_bytes *= 4;
        large.layers[i].down_bytes *= 4;
    }
    a = fixture_build(&f, &choice);
    b = fixture_build(&large, &choice);
    assert_int_equal(a->ring_bytes, 8u << 20);
    assert_int_equal(a->device_bytes, b->device_bytes);
    assert_int_equal(b->layers[0].slot_bytes, 4 * a->layers[0].slot_bytes);
    strata__layout_destroy(a);
    strata__layout_destroy(b);
    /* A ring of less than two groups is none. */
    choice.group_bytes = 64u << 10;
    choice.ring_bytes = 2 * large.layers[0].gate_bytes;
    assert_int_equal(strata__layout_build(strata__allocator_default(), &large.input, &choice, &a),
                     STRATA_ERR_INVALID_ARGUMENT);
    fixture_text_has("two groups");
    choice.ring_bytes = 0;
    a = fixture_build(&large, &choice);
    assert_true(a->ring_bytes >= 2 * a->layers[0].group_experts * a->layers[0].slot_bytes);
    strata__layout_destroy(a);
}

/* Predicted time of the largest chunk that fits, the smallest tiles and ring with it. */
static uint64_t largest_chunk_ns(const layout_fixture *f)
{
    uint64_t best = UINT64_MAX;
    for (uint32_t chunk = 8192; chunk >= 512 && best == UINT64_MAX; chunk -= 64) {
        strata__layout_choice choice = {.chunk_tokens = chunk,
                                        .dense_tile = 512,
                                        .attention_tile = 128,
                                        .expert_tile = 4096,
                                        .scratch_bytes = 4u << 20};
        strata__layout *layout = fixture_build(f, &choice);
        if (layout->device_bytes <= f->input.request.device_budget_bytes)
            best = layout->prediction.prompt_ns;
        strata__layout_destroy(layout);
    }
    return best;
}

/* 9: the largest chunk that fits is not the fastest plan: its last chunk may be a sliver. */
static void case_9_no_cliffs(void **state)
{
    uint64_t last = UINT64_MAX;
    uint32_t better = 0;
    (void)state;
    for (uint64_t mib = 1000; mib <= 1600; mib += 40) {
        layout_fixture f;
        strata__layout *layout;
        uint64_t greedy, tokens = 8192;
        mixed_fused(&f);
        f.input.request.context_tokens = tokens;
        f.input.request.device_budget_bytes = mib << 20;
        layout = fixture_plan(&f);
        greedy = largest_chunk_ns(&f);
        assert_true(layout->prediction.prompt_ns <= greedy);
        better += layout->prediction.prompt_ns < greedy - greedy / 10;
        /* No budget is slower than a smaller one, and chunks are of one size. */
        assert_true(layout->prediction.prompt_ns <= last);
        last = layout->prediction.prompt_ns;
        assert_true(layout->chunk_count * (uint64_t)layout->prompt.chunk_tokens - tokens <
                    layout->chunk_count);
        strata__layout_destroy(layout);
    }
    assert_true(better > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_1_mixed_pack),
        cmocka_unit_test(case_2_not_all_mmq),
        cmocka_unit_test(case_3_short_last_chunk),
        cmocka_unit_test(case_4_bytes_needed_is_what_carve_takes),
        cmocka_unit_test(case_5_with_and_without_source),
        cmocka_unit_test(case_6_options_are_frozen),
        cmocka_unit_test(case_7_too_many_rows_are_refused),
        cmocka_unit_test(case_8_ring_in_bytes),
        cmocka_unit_test(case_9_no_cliffs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
