/* SPDX-License-Identifier: MIT */
/* Numbers out of range are refused by name; paths are chosen, forced and refused by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "layout_fixture.h"

static void refused(const layout_fixture *f, strata_status expected, const char *text)
{
    const strata__layout_choice choice = {.chunk_tokens = 64};
    strata__layout *layout = NULL;
    strata_status status =
        strata__layout_build(strata__allocator_default(), &f->input, &choice, &layout);
    assert_null(layout);
    assert_int_equal(status, expected);
    fixture_text_has(text);
    status = strata__layout_plan(strata__allocator_default(), &f->input, &layout, NULL);
    assert_null(layout);
    assert_int_equal(status, expected);
    fixture_text_has(text);
}

#define BAD(change, text)                                                                          \
    do {                                                                                           \
        layout_fixture f;                                                                          \
        strata__layout_geometry *g = &f.input.geometry;                                            \
        strata__layout_facts *facts = &f.input.facts;                                              \
        strata__layout_request *r = &f.input.request;                                              \
        fixture_small(&f, 3);                                                                      \
        (void)g, (void)facts, (void)r;                                                             \
        change;                                                                                    \
        refused(&f, STRATA_ERR_INVALID_ARGUMENT, text);                                            \
    } while (0)

static void numbers_out_of_range(void **state)
{
    static const uint8_t odd_paths[] = {255, 9, 255};
    (void)state;
    BAD(g->layer_count = 0, "layers is 0");
    BAD(g->layer_count = 513, "layers is 513");
    BAD(g->width = 0, "width is 0");
    BAD(g->vocabulary = 0, "vocabulary");
    BAD(g->experts = 1025, "experts is 1025");
    BAD(g->experts = 3, "experts per token is 4, not 0 to 3");
    BAD(g->top_k = 17, "experts per token");
    BAD(g->top_k = 0, "experts per token of the model is 0");
    BAD((g->experts = 0, g->top_k = 0), "experts of the model is 0");
    BAD(g->residual_streams = 0, "residual streams");
    BAD(f.layers[1].heads = 0, "layer 1: heads is 0");
    BAD(f.layers[2].kv_heads = 5, "layer 2: kv heads is 5, not 1 to 4");
    BAD(f.layers[0].head_size = 0, "head size");
    BAD(f.layers[0].expert_width = 0, "feed-forward width is 0");
    BAD(f.layers[0].ffn_width = 7, "feed-forward width is 7, not 0 to 0");
    BAD(f.layers[0].gate_bytes = 0, "gate bytes");
    BAD(f.layers[0].down_bytes = 1ull << 50, "down bytes");
    BAD(f.layers[0].state_bytes = 1ull << 40, "state bytes");
    BAD(f.layers[1].path_flops[2] = 0.5, "layer 1: path mmq at 0.5 per second");
    BAD(f.layers[1].path_half_rows[3] = -1, "layer 1: path fp16");
    BAD(facts->alignment_bytes = 0, "alignment");
    BAD(facts->alignment_bytes = 24, "no power of two");
    BAD(facts->activation_bytes = 0, "activation bytes");
    BAD(facts->decode_bytes_per_value = 9, "decode bytes");
    BAD(facts->link_bytes_per_second = 0, "rate 0 of the device");
    BAD(facts->path_flops[3] = -1, "rate 8 of the device");
    BAD(facts->launch_seconds = -1, "time 1 of the device");
    BAD(facts->path_half_rows[0] = 1e9, "time 2 of the device");
    BAD(facts->round_outputs = -1, "outputs of a round of the device are -1");
    BAD(facts->round_outputs = 1e13, "outputs of a round of the device are 1e+13");
    BAD(r->context_tokens = 0, "context tokens is 0");
    BAD(r->prompt_tokens = 513, "prompt tokens within the context is 513, not 1 to 512");
    BAD(r->page_tokens = 65, "page tokens by 64");
    BAD(r->kv_format = 3, "kv format");
    BAD(r->experts = 3, "experts is 3");
    BAD((r->context_tokens = 1u << 31, r->sequences = 65536), "pages, more than can be numbered");
    BAD(r->kv_tokens = 511, "kv tokens is 511, not 512 to");
    BAD(r->decode_rows = 17, "decode rows is 17, not 0 to 16");
    BAD(r->path = 4, "4 is no path");
    BAD(r->layer_paths = odd_paths, "9 is no path");
    BAD((g->tensor_count = 2, f.tensors[0] = UINT64_MAX - 5), "exceed 64 bits");
    BAD((r->context_tokens = 1u << 31, f.layers[0].heads = f.layers[0].kv_heads = 4096,
         f.layers[0].head_size = 4096, r->sequences = 65535, r->page_tokens = 65536),
        "exceed 64 bits");
}

static void choices_out_of_range(void **state)
{
    static const strata__layout_choice choices[] = {
        {.chunk_tokens = 0},
        {.chunk_tokens = (1u << 24) + 1},
        {.chunk_tokens = 1, .scratch_bytes = 1ull << 45},
        {.chunk_tokens = 1, .ring_bytes = 1ull << 45},
        {.chunk_tokens = 1, .group_bytes = 1ull << 45},
    };
    (void)state;
    for (uint32_t i = 0; i < sizeof choices / sizeof choices[0]; ++i) {
        layout_fixture f;
        strata__layout *layout = NULL;
        fixture_small(&f, 1);
        assert_int_equal(
            strata__layout_build(strata__allocator_default(), &f.input, &choices[i], &layout),
            STRATA_ERR_INVALID_ARGUMENT);
        assert_null(layout);
    }
}

static void paths_without_kernels_are_refused_by_name(void **state)
{
    layout_fixture f;
    uint8_t paths[3];
    (void)state;
    memset(paths, STRATA__LAYOUT_PATH_AUTO, sizeof paths);
    fixture_small(&f, 3);
    f.input.request.path = STRATA__LAYOUT_FUSED;
    f.input.facts.compute_capability = 75;
    refused(&f, STRATA_ERR_UNSUPPORTED,
            "path fused needs compute capability 80, the device has 75");
    f.input.facts.compute_capability = 86;
    f.input.facts.shared_memory_bytes = 65536;
    refused(&f, STRATA_ERR_UNSUPPORTED, "path fused needs 101376 bytes of shared memory");
    f.input.facts.shared_memory_bytes = 0;
    f.input.facts.coverage[STRATA__LAYOUT_FUSED] = 0;
    refused(&f, STRATA_ERR_UNSUPPORTED, "path fused has no kernels");
    f.input.request.path = STRATA__LAYOUT_PATH_AUTO;
    f.input.request.layer_paths = paths;
    paths[1] = STRATA__LAYOUT_FUSED;
    refused(&f, STRATA_ERR_UNSUPPORTED, "path fused has no kernels");
    f.input.facts.coverage[STRATA__LAYOUT_FUSED] = formats(STRATA__Q4_K, UINT32_MAX);
    refused(&f, STRATA_ERR_UNSUPPORTED,
            "layer 1: path fused does not take experts of IQ2_XS (gate), IQ2_XS (up) and IQ2_XS");
    f.layers[1].expert_width = 0;
    f.layers[1].ffn_width = 64;
    refused(&f, STRATA_ERR_UNSUPPORTED, "layer 1 has no experts to run on path fused");
    paths[1] = STRATA__LAYOUT_PATH_AUTO;
    f.layers[2].up_format = 63;
    f.input.facts.coverage[STRATA__LAYOUT_FP16] = formats(STRATA__IQ2_XS, UINT32_MAX);
    f.input.facts.coverage[STRATA__LAYOUT_DIRECT] = formats(STRATA__IQ2_XS, UINT32_MAX);
    f.input.facts.coverage[STRATA__LAYOUT_MMQ] = 0;
    refused(&f, STRATA_ERR_UNSUPPORTED,
            "layer 2: no path of this device takes experts of IQ2_XS "
            "(gate), an unknown format (up) and IQ2_XS (down)");
    f.layers[2].up_format = 99;
    refused(&f, STRATA_ERR_UNSUPPORTED, "layer 2: no path");
}

static void paths_by_policy(void **state)
{
    layout_fixture f;
    uint8_t paths[3] = {STRATA__LAYOUT_DIRECT, STRATA__LAYOUT_PATH_AUTO, STRATA__LAYOUT_MMQ};
    const strata__layout_choice choice = {.chunk_tokens = 64};
    strata__layout *l;
    (void)state;
    fixture_small(&f, 3);
    f.input.request.path = STRATA__LAYOUT_FP16;
    f.input.request.layer_paths = paths;
    l = fixture_build(&f, &choice);
    assert_int_equal(l->prompt.paths[0], STRATA__LAYOUT_DIRECT);
    assert_int_equal(l->prompt.reasons[0], STRATA__LAYOUT_REASON_EXCEPTION);
    assert_int_equal(l->prompt.paths[1], STRATA__LAYOUT_FUSED); /* more than 16 rows */
    assert_int_equal(l->prompt.reasons[1], STRATA__LAYOUT_REASON_ROWS);
    assert_int_equal(l->prompt.paths[2], STRATA__LAYOUT_FP16);
    assert_int_equal(l->prompt.paths[3], STRATA__LAYOUT_FP16);
    assert_int_equal(l->prompt.reasons[3], STRATA__LAYOUT_REASON_POLICY);
    assert_int_equal(l->prompt.paths[4], STRATA__LAYOUT_MMQ);
    strata__layout_destroy(l);
    /* Where all take the same time the exact path is taken. */
    f.input.request.path = STRATA__LAYOUT_PATH_AUTO;
    f.input.request.layer_paths = NULL;
    f.input.facts.coverage[STRATA__LAYOUT_DIRECT] = 0;
    for (uint32_t i = 0; i < STRATA__LAYOUT_PATH_COUNT; ++i) {
        f.input.facts.path_flops[i] = 1e12;
        f.input.facts.path_half_rows[i] = 10;
    }
    l = fixture_build(&f, &choice);
    assert_int_equal(l->prompt.paths[1], STRATA__LAYOUT_FP16);
    assert_int_equal(l->prompt.reasons[1], STRATA__LAYOUT_REASON_COST);
    strata__layout_destroy(l);
}

static void a_vector_made_elsewhere_is_checked(void **state)
{
    layout_fixture f;
    uint8_t paths[2] = {STRATA__LAYOUT_MMQ, STRATA__LAYOUT_PATH_NONE};
    strata__layout_choice choice = {.chunk_tokens = 10, .paths = paths};
    strata__layout *l;
    (void)state;
    fixture_small(&f, 2);
    f.layers[1].expert_width = 0;
    f.layers[1].ffn_width = 64;
    l = fixture_build(&f, &choice);
    assert_int_equal(l->prompt.paths[0], STRATA__LAYOUT_MMQ);
    assert_int_equal(l->prompt.reasons[1], STRATA__LAYOUT_REASON_NONE);
    strata__layout_destroy(l);
    for (uint32_t i = 0; i < 3; ++i) {
        static const uint8_t bad[][2] = {{STRATA__LAYOUT_PATH_NONE, STRATA__LAYOUT_PATH_NONE},
                                         {STRATA__LAYOUT_MMQ, STRATA__LAYOUT_MMQ},
                                         {200, STRATA__LAYOUT_PATH_NONE}};
        choice.paths = bad[i];
        assert_int_equal(strata__layout_build(strata__allocator_default(), &f.input, &choice, &l),
                         STRATA_ERR_UNSUPPORTED);
        fixture_text_has("cannot be taken for 10 rows");
    }
    choice.paths = paths;
    choice.chunk_tokens = 17;
    paths[0] = STRATA__LAYOUT_DIRECT;
    uint8_t wide[4] = {STRATA__LAYOUT_DIRECT, STRATA__LAYOUT_DIRECT, STRATA__LAYOUT_PATH_NONE,
                       STRATA__LAYOUT_PATH_NONE};
    choice.paths = wide;
    assert_int_equal(strata__layout_build(strata__allocator_default(), &f.input, &choice, &l),
                     STRATA_ERR_UNSUPPORTED);
    fixture_text_has("path direct cannot be taken for 17 rows");
}

/* The n-th allocation fails, for every n: an error, nothing leaked. */
typedef struct counting {
    uint64_t left;
    int64_t live_bytes;
} counting;

static void *count_alloc(void *user_data, uint64_t bytes, uint64_t alignment)
{
    counting *c = user_data;
    const strata__allocator *heap = strata__allocator_default();
    if (c->left == 0)
        return NULL;
    c->left--;
    c->live_bytes += (int64_t)bytes;
    return heap->alloc_fn(heap->user_data, bytes, alignment);
}

static void count_free(void *user_data, void *pointer, uint64_t bytes)
{
    const strata__allocator *heap = strata__allocator_default();
    ((counting *)user_data)->live_bytes -= (int64_t)bytes;
    heap->free_fn(heap->user_data, pointer, bytes);
}

static void every_allocation_may_fail(void **state)
{
    uint8_t paths[2] = {STRATA__LAYOUT_MMQ, STRATA__LAYOUT_PATH_AUTO};
    counting c = {0};
    const strata__allocator allocator = {count_alloc, count_free, &c};
    const strata__layout_choice choice = {.chunk_tokens = 100};
    strata_status status = STRATA_ERR_NO_MEMORY;
    (void)state;
    for (uint32_t planned = 0; planned < 2; ++planned) {
        for (uint32_t n = 0; n < 100; ++n) {
            layout_fixture f;
            strata__layout *layout = NULL;
            fixture_small(&f, 2);
            f.input.request.layer_paths = paths;
            f.input.request.decode_rows = 2;
            c.left = n;
            status = planned ? strata__layout_plan(&allocator, &f.input, &layout, NULL)
                             : strata__layout_build(&allocator, &f.input, &choice, &layout);
            if (status == STRATA_OK)
                strata__layout_destroy(layout);
            else
                assert_int_equal(status, STRATA_ERR_NO_MEMORY);
            assert_int_equal(c.live_bytes, 0);
            if (status == STRATA_OK) {
                assert_true(n > 15);
                break;
            }
        }
        assert_int_equal(status, STRATA_OK);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_out_of_range),
        cmocka_unit_test(choices_out_of_range),
        cmocka_unit_test(paths_without_kernels_are_refused_by_name),
        cmocka_unit_test(paths_by_policy),
        cmocka_unit_test(a_vector_made_elsewhere_is_checked),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
