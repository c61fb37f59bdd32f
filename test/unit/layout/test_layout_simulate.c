/* SPDX-License-Identifier: MIT */
/* Launches of random and of all small plans stay where the tables say, and reach all of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "simulate.h"

static uint32_t random_runs;

/* Steps of every band, full and partial, and all bytes reached. */
static void run_work(const layout_fixture *f, const strata__layout *layout,
                     const strata__layout_work *work, uint64_t region_bytes)
{
    simulation *s = simulation_make(f, layout, work, region_bytes);
    for (uint32_t band = 0; band < work->band_count; ++band) {
        simulation_step(s, work->bands[band].rows);
        simulation_step(s, band ? work->bands[band - 1].rows + 1 : 1);
        simulation_step(s, (work->bands[band].rows + 1) / 2);
    }
    simulation_reached(s);
    simulation_free(s);
}

static void run(const layout_fixture *f, const strata__layout *layout)
{
    run_work(f, layout, &layout->prompt, layout->prompt_bytes);
    if (layout->decode.chunk_tokens)
        run_work(f, layout, &layout->decode, layout->session_bytes);
}

static void random_choice(const layout_fixture *f, uint64_t *seed, strata__layout_choice *choice,
                          uint32_t *resident)
{
    const strata__layout_geometry *g = &f->input.geometry;
    bool in_place = f->input.facts.host_addressable;
    *choice = (strata__layout_choice){.resident = resident};
    choice->chunk_tokens = (uint32_t)fixture_next(seed, 1, fixture_next(seed, 0, 3) ? 80 : 600);
    choice->dense_tile = (uint32_t)fixture_next(seed, 0, 3) * 17;
    choice->attention_tile = (uint32_t)fixture_next(seed, 0, 3) * 5;
    choice->expert_tile = (uint32_t)fixture_next(seed, 0, 3) * 23;
    choice->logit_tile = (uint32_t)fixture_next(seed, 0, 9);
    choice->scratch_bytes = fixture_next(seed, 0, 3) * 60000;
    choice->group_bytes = fixture_next(seed, 0, 2) * 4096;
    for (uint32_t i = 0; i < g->layer_count; ++i)
        resident[i] = in_place || f->layers[i].expert_width == 0
                          ? 0
                          : (uint32_t)fixture_next(seed, 0, g->experts);
}

static void random_plans_stay_in_their_buffers(void **state)
{
    uint64_t seed = 1;
    (void)state;
    for (uint32_t i = 0; i < random_runs; ++i) {
        layout_fixture f;
        uint32_t resident[FIXTURE_MAX_LAYERS];
        strata__layout_choice choice;
        strata__layout *layout;
        fixture_random(&f, &seed);
        random_choice(&f, &seed, &choice, resident);
        layout = fixture_build(&f, &choice);
        run(&f, layout);
        strata__layout_destroy(layout);
    }
}

static void planned_ones_too(void **state)
{
    uint64_t seed = 2;
    (void)state;
    for (uint32_t i = 0; i < random_runs / 4; ++i) {
        layout_fixture f;
        strata__layout *layout;
        fixture_random(&f, &seed);
        layout = fixture_plan(&f);
        run(&f, layout);
        strata__layout_destroy(layout);
    }
}

/* One layer of a small model whose paths in the bands of 16 and 20 rows are given. */
enum { VECTORS = 12, CHUNK = 20 };

static void vector_of(uint32_t index, uint8_t *paths)
{
    paths[0] = (uint8_t)(index % 4);
    paths[1] = (uint8_t)(1 + index / 4); /* direct takes no 20 rows */
}

static void tiny(layout_fixture *f, uint32_t layers)
{
    fixture_small(f, layers);
    f->input.geometry.width = 32;
    f->input.geometry.vocabulary = 16;
    f->input.geometry.experts = 4;
    f->input.geometry.top_k = 2;
    f->input.facts.group_scratch_bytes_fixed = 64;
    f->input.facts.alignment_bytes = 32;
    for (uint32_t i = 0; i < layers; ++i)
        f->layers[i].expert_width = 64;
}

static strata__layout *build_vector(layout_fixture *f, const uint32_t *vector, uint32_t layers)
{
    uint8_t paths[FIXTURE_MAX_LAYERS * 2];
    strata__layout_choice choice = {
        .chunk_tokens = CHUNK, .dense_tile = 8, .expert_tile = 24, .paths = paths};
    tiny(f, layers);
    for (uint32_t i = 0; i < layers; ++i)
        vector_of(vector[i], &paths[2 * i]);
    return fixture_build(f, &choice);
}

static void every_vector_of_up_to_three_layers(void **state)
{
    uint64_t alone[VECTORS];
    (void)state;
    for (uint32_t layers = 1, count = VECTORS; layers <= 3; ++layers, count *= VECTORS)
        for (uint32_t i = 0; i < count; ++i) {
            uint32_t vector[3] = {i % VECTORS, i / VECTORS % VECTORS, i / VECTORS / VECTORS};
            layout_fixture f;
            strata__layout *layout = build_vector(&f, vector, layers);
            uint64_t largest = 0;
            if (layers == 1)
                alone[i] = layout->prompt.arena_bytes;
            for (uint32_t l = 0; l < layers; ++l)
                if (alone[vector[l]] > largest)
                    largest = alone[vector[l]];
            assert_int_equal(layout->prompt.arena_bytes, largest);
            run(&f, layout);
            strata__layout_destroy(layout);
        }
}

/* The arena is that of the most demanding layer, whatever else is in the pack. */
static void every_multiset_of_six_layers(void **state)
{
    uint64_t alone[VECTORS];
    uint32_t v[6] = {0};
    uint32_t count = 0;
    (void)state;
    for (uint32_t i = 0; i < VECTORS; ++i) {
        layout_fixture f;
        strata__layout *layout = build_vector(&f, &i, 1);
        alone[i] = layout->prompt.arena_bytes;
        strata__layout_destroy(layout);
    }
    for (;;) {
        layout_fixture f;
        strata__layout *layout = build_vector(&f, v, 6);
        uint64_t largest = 0;
        uint32_t at = 6;
        for (uint32_t l = 0; l < 6; ++l)
            largest = alone[v[l]] > largest ? alone[v[l]] : largest;
        assert_int_equal(layout->prompt.arena_bytes, largest);
        strata__layout_destroy(layout);
        count++;
        while (at > 0 && v[at - 1] == VECTORS - 1)
            at--;
        if (at == 0)
            break;
        v[at - 1]++;
        for (uint32_t l = at; l < 6; ++l)
            v[l] = v[at - 1];
    }
    assert_int_equal(count, 12376);
}

/* With an argument: only random ones, and fewer. */
int main(int argc, char **argv)
{
    const struct CMUnitTest random[] = {
        cmocka_unit_test(random_plans_stay_in_their_buffers),
        cmocka_unit_test(planned_ones_too),
    };
    const struct CMUnitTest exhaustive[] = {
        cmocka_unit_test(every_vector_of_up_to_three_layers),
        cmocka_unit_test(every_multiset_of_six_layers),
    };
    int failed;
    (void)argv;
    random_runs = argc > 1 ? 80 : 300;
    failed = cmocka_run_group_tests(random, NULL, NULL);
    return argc > 1 ? failed : failed | cmocka_run_group_tests(exhaustive, NULL, NULL);
}
