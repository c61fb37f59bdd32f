/* SPDX-License-Identifier: MIT */
/*
 * The planner against a search of everything, against itself with more memory, and when nothing
 * fits.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "layout/arena.h"
#include "layout/build.h"
#include "layout/cost.h"
#include "layout/path.h"
#include "layout/region.h"
#include "layout_fixture.h"

static uint32_t problems; /* to be searched */

/* A model of real proportions; its sizes cost the planner nothing. */
static void random_problem(layout_fixture *f, uint64_t *seed)
{
    strata__layout_geometry *g = &f->input.geometry;
    uint32_t layers = (uint32_t)fixture_next(seed, 1, 5);
    fixture_small(f, layers);
    g->width = (uint32_t)fixture_next(seed, 1, 16) * 256;
    g->vocabulary = (uint32_t)fixture_next(seed, 1000, 150000);
    g->experts = (uint32_t)fixture_next(seed, 1, 32) * 8;
    g->top_k = (uint32_t)fixture_next(seed, 1, 8);
    g->tensor_count = 0;
    for (uint32_t i = 0; i < layers; ++i) {
        strata__layout_layer *l = &f->layers[i];
        l->expert_width = (uint32_t)fixture_next(seed, 1, 8) * 256;
        l->head_size = 128;
        l->heads = (uint32_t)fixture_next(seed, 1, 4) * 8;
        l->gate_bytes = l->up_bytes = l->down_bytes =
            (uint64_t)l->expert_width * g->width * fixture_next(seed, 2, 6) / 8;
        l->dense_bytes = (uint64_t)g->width * l->heads * 256;
        if (fixture_next(seed, 0, 7) == 0) {
            l->expert_width = 0;
            l->ffn_width = 4096;
        }
    }
    f->input.facts.link_bytes_per_second = 1e9 * (double)fixture_next(seed, 4, 60);
    f->input.facts.dense_flops = 1e12 * (double)fixture_next(seed, 10, 800);
    f->input.facts.attention_flops = 1e12 * (double)fixture_next(seed, 10, 400);
    for (uint32_t i = 1; i < STRATA__LAYOUT_PATH_COUNT; ++i)
        f->input.facts.path_flops[i] = 1e12 * (double)fixture_next(seed, 10, 600);
    f->input.facts.memory_bytes_per_second = 1e11 * (double)fixture_next(seed, 5, 40);
    f->input.facts.round_outputs = 1e5 * (double)fixture_next(seed, 0, 50);
    f->input.request.context_tokens = fixture_next(seed, 1, 6000);
    f->input.request.borrow = fixture_next(seed, 0, 3) == 0;
    if (fixture_next(seed, 0, 3) == 0)
        f->input.request.host_budget_bytes = fixture_next(seed, 200, 4000) << 20;
}

/* The least bytes of a problem, from its refusal. */
static uint64_t needed_bytes(layout_fixture *f)
{
    strata__layout_shortfall shortfall;
    strata__layout *layout = NULL;
    strata_status status;
    f->input.request.device_budget_bytes = 1;
    status = strata__layout_plan(strata__allocator_default(), &f->input, &layout, &shortfall);
    assert_null(layout);
    if (status == STRATA_ERR_PLAN_INFEASIBLE && shortfall.needed_bytes == 0)
        return 0; /* host memory */
    assert_int_equal(status, STRATA_ERR_PLAN_INFEASIBLE);
    assert_int_equal(shortfall.needed_bytes - 1, shortfall.missing_bytes);
    return shortfall.needed_bytes;
}

/*
 * A search of everything: chunks, tiles, scratch, rings, groups and three ways to choose residents.
 */
typedef struct search {
    strata__layout_problem problem;
    strata__layout_times times;
    strata__layout_host host;
    strata__layout_spec spec;
    uint8_t paths[FIXTURE_MAX_LAYERS * STRATA__LAYOUT_MAX_BANDS];
    uint32_t resident[FIXTURE_MAX_LAYERS];
    uint64_t best_ns;
} search;

static uint64_t slot_of(const search *s, uint32_t layer)
{
    const strata__layout_problem *p = &s->problem;
    return p->geometry.layers[layer].expert_width ? p->classes[p->class_of[layer]].slot_bytes : 0;
}

/* Evenly, the first layers first, the last layers first. */
static void fill(search *s, uint64_t bytes, uint32_t way)
{
    uint32_t layers = s->problem.geometry.layer_count, experts = s->problem.geometry.experts;
    memset(s->resident, 0, sizeof s->resident);
    for (uint32_t turn = 0; turn < (way ? layers : experts * layers); ++turn) {
        uint32_t layer = way == 2 ? layers - 1 - turn : turn % layers;
        uint64_t slot = slot_of(s, layer), fit;
        if (slot == 0)
            continue;
        fit = bytes / slot;
        if (fit > (way ? experts : 1))
            fit = way ? experts : 1;
        s->resident[layer] += (uint32_t)fit;
        bytes -= fit * slot;
        if (fit == 0 && !way)
            return;
    }
}

static void try_ring(search *s, uint64_t session_bytes, uint64_t arena, uint64_t ring,
                     uint64_t group, uint32_t way)
{
    const strata__layout_problem *p = &s->problem;
    strata__carver carver = {.end = session_bytes, .alignment = p->facts.alignment_bytes};
    strata__layout_buffer buffers[STRATA__DEMANDS_MAX];
    strata__layout_copies copies = {
        .resident = s->resident, .ring_bytes = ring, .group_bytes = group, .tail_bytes = ring / 2};
    uint64_t offset, missing, ns;
    s->spec.ring_bytes = ring;
    strata__layout_place_work(p, &s->spec, arena, &carver, buffers, &offset);
    if (carver.end > p->budget_bytes)
        return;
    fill(s, p->budget_bytes - carver.end, way);
    missing = strata__layout_missing_bytes(p, s->resident);
    if ((missing == 0) != (ring == 0))
        return;
    strata__layout_place_host(p, &s->spec, missing, group, &s->host);
    if (!s->host.fits)
        return;
    copies.seconds_per_byte = s->host.seconds_per_byte;
    if (p->request.borrow)
        copies.refill_bytes =
            carver.end - session_bytes < missing ? carver.end - session_bytes : missing;
    ns = strata__layout_predict(p, &s->times, &copies, NULL).prompt_ns;
    s->best_ns = ns < s->best_ns ? ns : s->best_ns;
}

static void try_tiles(search *s, uint64_t session_bytes)
{
    const strata__layout_problem *p = &s->problem;
    uint64_t arena = strata__layout_arena_bytes(&s->problem, &s->spec, s->paths, false);
    uint64_t layer = p->largest_slot_bytes * p->geometry.experts;
    strata__layout_times_init(&s->times, p, &s->spec, s->paths);
    for (uint32_t way = 0; way < 3; ++way) {
        try_ring(s, session_bytes, arena, 0, 1, way);
        for (uint64_t group = 2u << 20; group <= 16u << 20; group *= 2) {
            uint64_t least = strata__layout_least_ring_bytes(p, group);
            if (least == 0)
                continue;
            for (uint64_t more = 0; more < 3 * layer; more += layer / 2 + 1)
                try_ring(s, session_bytes, arena, strata__layout_align(p, least + more), group,
                         way);
        }
    }
}

static void try_chunk(search *s, uint32_t chunk, uint64_t session_bytes, uint64_t *seed)
{
    static const uint32_t dense[] = {16384, 4096, 1024, 256, 64};
    static const uint32_t expert[] = {100000, 30000, 8192, 2048, 512, 128};
    static const uint64_t scratch[] = {128u << 20, 32u << 20, 8u << 20, 1u << 20, 0};
    const strata__layout_problem *p = &s->problem;
    /* All tiles of all chunks are too many for a thousand problems: one in twenty, at random. */
    for (uint32_t i = 0; i < 5 * 6 * 5; ++i) {
        strata__layout_choice choice = {.chunk_tokens = chunk,
                                        .dense_tile = dense[i % 5],
                                        .expert_tile = expert[i / 5 % 6],
                                        .scratch_bytes = scratch[i / 30]};
        if (fixture_next(seed, 0, 19))
            continue;
        choice.attention_tile = choice.dense_tile >> fixture_next(seed, 0, 4);
        if (strata__layout_spec_init(p, &choice, &s->spec, s->resident) != STRATA_OK)
            fail_msg("spec");
        fixture_ok(strata__layout_paths_choose(p, &s->spec, s->paths, NULL));
        try_tiles(s, session_bytes);
    }
}

static uint64_t search_all(const layout_fixture *f, uint64_t *seed)
{
    search *s = malloc(sizeof *s);
    strata__carver carver = {.alignment = f->input.facts.alignment_bytes};
    uint64_t tokens = f->input.request.context_tokens, best;
    fixture_ok(strata__layout_problem_init(&s->problem, strata__allocator_default(), &f->input));
    s->best_ns = UINT64_MAX;
    strata__layout_place_session(&s->problem, &carver, NULL);
    for (uint64_t n = 1; n < 14; n += n < 4 ? 1 : 3)
        try_chunk(s, (uint32_t)((tokens + n - 1) / n), carver.end, seed);
    try_chunk(s, (uint32_t)fixture_next(seed, 1, tokens), carver.end, seed);
    best = s->best_ns;
    free(s);
    return best;
}

static void within_two_percent_of_everything(void **state)
{
    uint64_t seed = 11;
    double worst = 0;
    uint32_t searched = 0;
    (void)state;
    while (searched < problems) {
        layout_fixture f;
        strata__layout *layout;
        uint64_t best, needed, ns;
        random_problem(&f, &seed);
        needed = needed_bytes(&f);
        if (needed == 0)
            continue;
        f.input.request.device_budget_bytes =
            needed + fixture_next(&seed, 0, 30) * (needed / 10) + fixture_next(&seed, 0, 64 << 20);
        if (strata__layout_plan(strata__allocator_default(), &f.input, &layout, NULL) != STRATA_OK)
            continue; /* host memory */
        fixture_check(layout);
        assert_true(layout->device_bytes <= f.input.request.device_budget_bytes);
        ns = layout->prediction.prompt_ns;
        strata__layout_destroy(layout);
        best = search_all(&f, &seed);
        if (best != UINT64_MAX && (double)ns / (double)best - 1 > worst)
            worst = (double)ns / (double)best - 1;
        if (best != UINT64_MAX && ns > best + best / 50)
            fail_msg("problem %u: planned %llu ns, %llu found", searched, (unsigned long long)ns,
                     (unsigned long long)best);
        searched++;
    }
    print_message("worst of %u: %.3f %% above the best found\n", problems, 100 * worst);
}

static void more_memory_is_never_slower(void **state)
{
    uint64_t seed = 12;
    (void)state;
    for (uint32_t i = 0; i < 10 + problems / 20; ++i) {
        layout_fixture f;
        uint64_t needed, last = UINT64_MAX, budget;
        random_problem(&f, &seed);
        needed = needed_bytes(&f);
        if (needed == 0)
            continue;
        for (budget = needed; budget < 8 * needed; budget += fixture_next(&seed, 1, needed / 4)) {
            strata__layout *layout = NULL;
            f.input.request.device_budget_bytes = budget;
            if (strata__layout_plan(strata__allocator_default(), &f.input, &layout, NULL) !=
                STRATA_OK)
                break; /* host memory, whatever the budget */
            assert_true(layout->device_bytes <= budget);
            if (layout->prediction.prompt_ns > last)
                fail_msg("problem %u: %llu ns in %llu bytes, %llu ns in fewer", i,
                         (unsigned long long)layout->prediction.prompt_ns,
                         (unsigned long long)budget, (unsigned long long)last);
            last = layout->prediction.prompt_ns;
            strata__layout_destroy(layout);
        }
    }
}

static void the_same_input_gives_the_same_plan(void **state)
{
    uint64_t seed = 13;
    (void)state;
    for (uint32_t i = 0; i < 20; ++i) {
        layout_fixture f;
        strata__layout *a, *b;
        fixture_random(&f, &seed);
        a = fixture_plan(&f);
        b = fixture_plan(&f);
        assert_true(fixture_equal(a, b));
        strata__layout_destroy(a);
        strata__layout_destroy(b);
    }
}

static strata_status plan_with(const layout_fixture *f, strata__layout_shortfall *shortfall)
{
    strata__layout *layout = NULL;
    strata_status status =
        strata__layout_plan(strata__allocator_default(), &f->input, &layout, shortfall);
    strata__layout_destroy(layout);
    return status;
}

/* Every remedy named works, and the next smaller thing does not. */
static void a_refusal_says_what_would_fit(void **state)
{
    layout_fixture f, g;
    strata__layout_shortfall s, unused;
    (void)state;
    fixture_mixed(&f);
    f.input.request.device_budget_bytes = 600u << 20;
    f.input.request.chunk_tokens = 16384;
    assert_int_equal(plan_with(&f, &s), STRATA_ERR_PLAN_INFEASIBLE);
    fixture_text_has("more than the budget of 600.0 MiB (629145600 bytes)");
    fixture_text_has("or a context of");
    assert_int_equal(s.needed_bytes, s.missing_bytes + (600u << 20));
    g = f;
    g.input.geometry.layers = g.layers;
    g.input.request.device_budget_bytes = s.needed_bytes;
    fixture_ok(plan_with(&g, &unused));
    g.input.request.device_budget_bytes--;
    assert_int_equal(plan_with(&g, &unused), STRATA_ERR_PLAN_INFEASIBLE);
    assert_int_equal(unused.missing_bytes, 1);
    g = f;
    g.input.geometry.layers = g.layers;
    assert_true(s.context_tokens > 0);
    g.input.request.context_tokens = s.context_tokens;
    fixture_ok(plan_with(&g, &unused));
    g.input.request.context_tokens += 64; /* contexts are answered in whole pages */
    assert_int_equal(plan_with(&g, &unused), STRATA_ERR_PLAN_INFEASIBLE);
    /* With pages for 32768 tokens no chunk fits; with fewer one does. */
    assert_int_equal(s.chunk_tokens, 0);
    f.input.request.context_tokens = 4096;
    f.input.request.chunk_tokens = 4096;
    f.input.request.device_budget_bytes = 430u << 20;
    assert_int_equal(plan_with(&f, &s), STRATA_ERR_PLAN_INFEASIBLE);
    assert_true(s.chunk_tokens > 0);
    fixture_text_has("or a chunk of");
    f.input.request.chunk_tokens = s.chunk_tokens;
    fixture_ok(plan_with(&f, &unused));
    f.input.request.chunk_tokens++;
    assert_int_equal(plan_with(&f, &unused), STRATA_ERR_PLAN_INFEASIBLE);
}

static void all_experts_or_nothing(void **state)
{
    layout_fixture f;
    strata__layout_shortfall s;
    strata__layout *layout;
    (void)state;
    fixture_small(&f, 3);
    f.input.request.experts = STRATA__LAYOUT_EXPERTS_RESIDENT;
    layout = fixture_plan(&f);
    assert_int_equal(layout->layers[2].resident_count, 16);
    assert_int_equal(layout->ring_bytes, 0);
    assert_int_equal(layout->budget_bytes, UINT64_MAX);
    f.input.request.device_budget_bytes = layout->cache_bytes;
    assert_int_equal(plan_with(&f, &s), STRATA_ERR_PLAN_INFEASIBLE);
    assert_true(s.needed_bytes > layout->cache_bytes);
    f.input.request.device_budget_bytes = s.needed_bytes;
    fixture_ok(plan_with(&f, &s));
    strata__layout_destroy(layout);
    f.input.request.device_budget_bytes = 0;
    f.input.facts.memory_bytes = 1u << 20;
    assert_int_equal(plan_with(&f, &s), STRATA_ERR_PLAN_INFEASIBLE);
    f.input.facts.memory_bytes = 0;
    f.input.request.experts = STRATA__LAYOUT_EXPERTS_STREAM;
    layout = fixture_plan(&f);
    assert_int_equal(layout->cache_bytes, 0);
    assert_true(layout->ring_bytes > 0);
    strata__layout_destroy(layout);
    f.input.request.expert_source = 0;
    assert_int_equal(plan_with(&f, &s), STRATA_ERR_INVALID_ARGUMENT);
    fixture_text_has("no source");
    f.input.request.experts = STRATA__LAYOUT_EXPERTS_AUTO;
    layout = fixture_plan(&f);
    assert_int_equal(layout->layers[0].resident_count, 16);
    strata__layout_destroy(layout);
    /* Neither all of them nor a ring. */
    f.input.request.device_budget_bytes = 2u << 20;
    assert_int_equal(plan_with(&f, &s), STRATA_ERR_PLAN_INFEASIBLE);
}

static void host_memory_may_be_too_little(void **state)
{
    layout_fixture f;
    strata__layout_shortfall s;
    (void)state;
    fixture_small(&f, 3);
    f.input.request.host_budget_bytes = 1000;
    f.input.request.device_budget_bytes = 1u << 30;
    assert_int_equal(plan_with(&f, &s), STRATA_ERR_PLAN_INFEASIBLE);
    fixture_text_has("page-locked host memory: the budget of 1000 bytes");
    assert_int_equal(s.needed_bytes, 0);
}

/* More kinds of layers than the planner tells apart: it is careful, and right. */
static void layers_all_of_different_kinds(void **state)
{
    layout_fixture f;
    strata__layout *layout;
    uint64_t needed, last = UINT64_MAX;
    (void)state;
    fixture_small(&f, 90);
    for (uint32_t i = 0; i < 90; ++i) {
        f.layers[i].heads = 4 + i % 9;
        f.layers[i].head_size = 16 + 16 * (i % 7);
        f.layers[i].expert_width = 512 - 5 * i;
        f.layers[i].shared_width = 10 + i * i % 91;
        f.layers[i].gate_bytes += i;
    }
    needed = needed_bytes(&f);
    for (uint32_t i = 0; i < 8; ++i) {
        f.input.request.device_budget_bytes = needed + i * (needed / 20);
        layout = fixture_plan(&f);
        assert_true(layout->prediction.prompt_ns <= last);
        last = layout->prediction.prompt_ns;
        strata__layout_destroy(layout);
    }
}

/*
 * The plan of a longer prompt has more chunks, all planned chunks are as asked when one is given.
 */
static void chunks_as_asked(void **state)
{
    layout_fixture f;
    strata__layout *layout;
    (void)state;
    fixture_small(&f, 2);
    f.input.request.chunk_tokens = 100;
    layout = fixture_plan(&f);
    assert_int_equal(layout->prompt.chunk_tokens, 100);
    assert_int_equal(layout->chunk_count, 6);
    strata__layout_destroy(layout);
    f.input.request.chunk_tokens = 100000;
    layout = fixture_plan(&f);
    assert_int_equal(layout->prompt.chunk_tokens, 512);
    strata__layout_destroy(layout);
    f.input.request.chunk_tokens = 0;
    f.input.request.prompt_tokens = 3;
    layout = fixture_plan(&f);
    assert_int_equal(layout->prompt.chunk_tokens, 3);
    strata__layout_destroy(layout);
}

/* With an argument: fewer problems. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_input_gives_the_same_plan),
        cmocka_unit_test(a_refusal_says_what_would_fit),
        cmocka_unit_test(all_experts_or_nothing),
        cmocka_unit_test(host_memory_may_be_too_little),
        cmocka_unit_test(chunks_as_asked),
        cmocka_unit_test(layers_all_of_different_kinds),
        cmocka_unit_test(more_memory_is_never_slower),
    };
    const struct CMUnitTest searches[] = {cmocka_unit_test(within_two_percent_of_everything)};
    (void)argv;
    problems = argc > 1 ? 20 : 1000;
    return cmocka_run_group_tests(tests, NULL, NULL) | cmocka_run_group_tests(searches, NULL, NULL);
}
