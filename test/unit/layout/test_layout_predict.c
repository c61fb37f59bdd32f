/* SPDX-License-Identifier: MIT */
/*
 * Predicted times and residents, from numbers small enough to be followed by hand. Times are in
 * ticks of 2^-10 s and a tick of copying takes 256 bytes, so that every sum is exact in binary and
 * its order makes no difference.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "layout/cost.h"
#include "layout/planner.h"
#include "layout_fixture.h"

enum { LAYERS = 4, EXPERTS = 8, TICK_BYTES = 256 };

static const double tick = 1.0 / 1024;

/* A prompt to be predicted. Times are ticks. */
typedef struct prompt {
    uint32_t layers;
    uint32_t slot[LAYERS]; /* ticks of copying an expert, a multiple of 3; 0: a dense layer */
    uint32_t resident[LAYERS];
    uint32_t top_k;
    uint32_t ring;  /* ticks of copying it full */
    uint32_t group; /* likewise */
    uint32_t refill;
    uint32_t latency;
    uint32_t edge;
    uint32_t steps;
    struct {
        uint32_t rows, count, band, cold;
        uint32_t before[LAYERS];
        uint32_t experts[LAYERS]; /* multiples of EXPERTS */
        uint32_t launch[LAYERS];
    } step[3];
} prompt;

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static uint32_t within(uint32_t value, uint32_t least, uint32_t most)
{
    return value < least ? least : value > most ? most : value;
}

/* What the predictor is asked, in its own numbers. */
typedef struct question {
    layout_fixture fixture;
    strata__layout_problem problem;
    strata__layout_times times;
    strata__layout_copies copies;
} question;

static void set_times(const prompt *p, strata__layout_times *times)
{
    times->step_count = p->steps;
    times->edge_seconds = p->edge * tick;
    for (uint32_t i = 0; i < p->steps; ++i) {
        times->steps[i] = (strata__layout_step){.rows = p->step[i].rows,
                                                .count = p->step[i].count,
                                                .band = p->step[i].band,
                                                .cold = p->step[i].cold};
        for (uint32_t l = 0; l < p->layers; ++l) {
            times->before[i][l] = p->step[i].before[l] * tick;
            times->experts[i][l] = p->step[i].experts[l] * tick;
            times->launch[i][l] = p->step[i].launch[l] * tick;
            times->before_seconds += times->before[i][l] * p->step[i].count;
            times->expert_seconds += times->experts[i][l] * p->step[i].count;
        }
    }
}

static strata__layout_prediction predict(const prompt *p, uint32_t *fetch)
{
    question *q = calloc(1, sizeof *q);
    strata__layout_prediction prediction;
    assert_non_null(q);
    fixture_small(&q->fixture, p->layers);
    q->fixture.input.geometry.experts = EXPERTS;
    q->fixture.input.geometry.top_k = p->top_k;
    q->fixture.input.facts.link_latency_seconds = p->latency * tick;
    for (uint32_t l = 0; l < p->layers; ++l) {
        strata__layout_layer *layer = &q->fixture.layers[l];
        layer->gate_bytes = layer->up_bytes = layer->down_bytes = p->slot[l] / 3 * TICK_BYTES;
        if (p->slot[l] == 0) {
            layer->expert_width = 0;
            layer->ffn_width = 256;
        }
    }
    fixture_ok(
        strata__layout_problem_init(&q->problem, strata__allocator_default(), &q->fixture.input));
    set_times(p, &q->times);
    q->copies = (strata__layout_copies){.resident = p->resident,
                                        .ring_bytes = p->ring * TICK_BYTES,
                                        .group_bytes = p->group * TICK_BYTES,
                                        .tail_bytes = p->ring / 2 * TICK_BYTES,
                                        .refill_bytes = p->refill * TICK_BYTES,
                                        .seconds_per_byte = tick / TICK_BYTES};
    prediction = strata__layout_predict(&q->problem, &q->times, &q->copies, fetch);
    free(q);
    return prediction;
}

/* ---------------------------------------------------------------------- written-out recurrence */

static uint32_t missing(const prompt *p, uint32_t layer)
{
    return p->slot[layer] ? EXPERTS - p->resident[layer] : 0;
}

static double copy_ticks(const prompt *p, uint32_t layer)
{
    return (double)missing(p, layer) * p->slot[layer];
}

/* Three copies a group: gate, up and down. */
static double link_ticks(const prompt *p, uint32_t layer)
{
    uint32_t group;
    if (!missing(p, layer))
        return 0;
    group = within(p->group / p->slot[layer], 1, EXPERTS);
    return copy_ticks(p, layer) + 3.0 * p->latency * ((missing(p, layer) + group - 1) / group);
}

/* All experts of a layer; a launch takes the missing ones of half a ring. */
static double kernel_ticks(const prompt *p, uint32_t step, uint32_t layer)
{
    uint32_t taken;
    if (!missing(p, layer))
        return p->step[step].experts[layer];
    taken = within(p->ring / 2 / p->slot[layer], 1, EXPERTS);
    return p->step[step].experts[layer] +
           (double)((missing(p, layer) + taken - 1) / taken) * p->step[step].launch[layer];
}

/* The last launch of a layer, a quarter of its experts at most; what it waits for is missing. */
static double last_ticks(const prompt *p, uint32_t step, uint32_t layer)
{
    uint32_t taken;
    if (!missing(p, layer))
        return 0;
    taken = within(p->ring / 2 / p->slot[layer], 1, EXPERTS / 4);
    taken = within(taken, 1, missing(p, layer));
    return (double)taken * p->step[step].experts[layer] / EXPERTS + p->step[step].launch[layer];
}

static double sum_to(const prompt *p, uint32_t end, double (*of)(const prompt *, uint32_t))
{
    double sum = 0;
    for (uint32_t l = 0; l < end; ++l)
        sum += of(p, l);
    return sum;
}

/*
 * Copies run ahead. All of layer l is there when the link has sent everything up to it, and, for
 * every layer m up to l from which on there is more than a ring, when what lies behind the ring has
 * been sent after m's first launch. A step that is not the first finds a full ring, and lasts as
 * long as the link has to send.
 */
static double streamed(const prompt *p, uint32_t step)
{
    double start[LAYERS], end = 0, whole = sum_to(p, p->layers, link_ticks);
    for (uint32_t l = 0; l < p->layers; ++l) {
        double sent = sum_to(p, l + 1, copy_ticks), there = sum_to(p, l + 1, link_ticks);
        start[l] = end + p->step[step].before[l];
        there -= p->step[step].cold ? 0 : p->ring;
        for (uint32_t m = 0; m <= l; ++m) {
            double from_m = sent - sum_to(p, m, copy_ticks);
            if (from_m > p->ring)
                there = larger(there, start[m] + last_ticks(p, step, m) + from_m - p->ring);
        }
        end = start[l] + kernel_ticks(p, step, l);
        if (missing(p, l))
            end = larger(end, there + last_ticks(p, step, l));
    }
    return p->step[step].cold ? end : larger(end, whole);
}

static double touched(const prompt *p, uint32_t rows)
{
    double untouched = 1;
    for (; rows; --rows)
        untouched *= 1 - (double)p->top_k / EXPERTS;
    return 1 - untouched;
}

/* Each layer routes, tells the host and the copies of what is routed, and computes behind them. */
static double fetched(const prompt *p, uint32_t step)
{
    double part = touched(p, p->step[step].rows), sum = 0;
    for (uint32_t l = 0; l < p->layers; ++l) {
        double wanted = copy_ticks(p, l) * part, last = last_ticks(p, step, l), copies = 0;
        if (wanted > 0)
            copies = wanted + last + p->latency * (2 + 3 * missing(p, l) * part);
        if (wanted > p->ring)
            copies += larger(0, last - p->ring / 2.0);
        sum += p->step[step].before[l] + larger(copies, kernel_ticks(p, step, l));
    }
    return sum;
}

/* Rounded up to whole nanoseconds. */
static uint64_t ns_of(double ticks)
{
    double ns = ticks * 1e9 / 1024;
    uint64_t whole = (uint64_t)ns;
    return whole + (ns > (double)whole);
}

/* Compares all figures of a prompt; `hand`: its ticks as found by hand, or 0. */
static void check(const prompt *p, double hand)
{
    double stream[STRATA__LAYOUT_MAX_BANDS] = {0}, fetch[STRATA__LAYOUT_MAX_BANDS] = {0};
    double part[STRATA__LAYOUT_MAX_BANDS] = {0}, passes[STRATA__LAYOUT_MAX_BANDS] = {0};
    double whole = sum_to(p, p->layers, link_ticks), bytes = sum_to(p, p->layers, copy_ticks);
    double total = p->edge, compute = p->edge, used = 0, sent = 0;
    uint32_t found[STRATA__LAYOUT_MAX_BANDS];
    strata__layout_prediction prediction = predict(p, found);
    for (uint32_t i = 0; i < p->steps; ++i) {
        uint32_t band = p->step[i].band, count = p->step[i].count;
        stream[band] += streamed(p, i) * count;
        fetch[band] += fetched(p, i) * count;
        part[band] += touched(p, p->step[i].rows) * count;
        passes[band] += count;
        used += touched(p, p->step[i].rows) * count;
        for (uint32_t l = 0; l < p->layers; ++l)
            compute += (double)(p->step[i].before[l] + p->step[i].experts[l]) * count;
    }
    for (uint32_t band = 0; band < STRATA__LAYOUT_MAX_BANDS; ++band) {
        bool fetches = bytes > 0 && fetch[band] < stream[band];
        total += fetches ? fetch[band] : stream[band];
        sent += fetches ? part[band] : passes[band];
        assert_int_equal(found[band], fetches);
    }
    /* A sixteenth of what copies and kernels do at once. */
    used *= whole;
    total += (used < compute - p->edge ? used : compute - p->edge) / 16;
    if (hand > 0)
        assert_true(total == hand);
    assert_int_equal(prediction.prompt_ns, ns_of(total) + ns_of(p->refill));
    assert_int_equal(prediction.refill_ns, ns_of(p->refill));
    assert_int_equal(prediction.link_ns, ns_of(sent * whole + p->refill));
    assert_int_equal(prediction.compute_ns, ns_of(compute));
    assert_int_equal(prediction.copied_bytes, (uint64_t)((sent * bytes + p->refill) * TICK_BYTES));
}

/* --------------------------------------------------------------------------------------- cases */

/* Two layers of 8 experts of 3 ticks; every token uses all of them. */
static prompt two_layers(void)
{
    return (prompt){.layers = 2,
                    .slot = {3, 3},
                    .top_k = EXPERTS,
                    .ring = 96,
                    .group = 24,
                    .steps = 1,
                    .step = {{.rows = 4,
                              .count = 1,
                              .cold = 1,
                              .before = {10, 10},
                              .experts = {16, 16},
                              .launch = {1, 1}}}};
}

/*
 * A ring for everything: one launch a layer, the last 2 of 8 experts take 16 / 4 + 1 = 5.
 *   layer 0: starts at 10, copied at 24, ends at max(10 + 17, 24 + 5) = 29
 *   layer 1: starts at 39, copied at 48, ends at max(39 + 17, 48 + 5) = 56
 * Copies take 48, kernels 52: 48 / 16 = 3 on top.
 */
static void the_link_holds_kernels_back(void **state)
{
    prompt p = two_layers();
    (void)state;
    check(&p, 56 + 3);
    p.edge = 7;
    check(&p, 56 + 3 + 7);
    p.refill = 11;
    check(&p, 56 + 3 + 7);
}

/*
 * A ring of 4 experts, 12 ticks: 4 launches of 2 experts, the last one takes 5. What lies behind
 * the ring is copied when the first launch has ended.
 *   layer 0: starts at 10; 12 of 24 wait for 15 and are there at 27; ends at max(10 + 20, 27 + 5)
 *   layer 1: starts at 42; 12 of 24 wait for 47 and are there at 59; ends at max(42 + 20, 59 + 5)
 * Without the wait: 24 + 5 < 30, and 48 + 5 < 60.
 */
static void the_ring_holds_copies_back(void **state)
{
    prompt p = two_layers();
    (void)state;
    p.ring = 12;
    check(&p, 64 + 3);
}

/*
 * A ring of 10 experts, 30 ticks: two launches, the last one of 2 experts. Layer 0 fits; of layer 1
 * the last 18 ticks lie behind the ring and wait for layer 0's first launch.
 *   layer 0: starts at 40, copied at 24, ends at 40 + 18 = 58
 *   layer 1: starts at 58; 18 wait for 45 and are there at 63; ends at max(58 + 18, 63 + 5)
 * With experts of 8 and launches of 2:
 *   layer 0: ends at 40 + 12 = 52
 *   layer 1: starts at 52; 18 wait for 44 and are there at 62; ends at max(52 + 12, 62 + 4)
 */
static void a_layer_waits_for_the_one_before(void **state)
{
    prompt p = two_layers();
    (void)state;
    p.ring = 30;
    p.step[0].before[0] = 40;
    p.step[0].before[1] = 0;
    check(&p, 76 + 3);
    for (uint32_t l = 0; l < 2; ++l) {
        p.step[0].experts[l] = 8;
        p.step[0].launch[l] = 2;
    }
    check(&p, 62 + 4 + 3);
}

/*
 * Groups of 2 experts: 4 of them a layer, 3 copies each with a latency of 2: 24 more a layer.
 *   layer 0: copied at 48, ends at 53; layer 1: copied at 96, ends at 101
 * Copies take 96, kernels 52: 52 / 16 on top.
 */
static void every_piece_has_a_latency(void **state)
{
    prompt p = two_layers();
    (void)state;
    p.group = 6;
    p.latency = 2;
    check(&p, 101 + 3.25);
}

/* Residents are not copied: 6 of 8 in layer 0, all in layer 1, and kernels are what is left. */
static void residents_are_not_copied(void **state)
{
    prompt p = two_layers();
    (void)state;
    p.resident[0] = 6;
    p.resident[1] = EXPERTS;
    /* 10 + 17 > 6 + 5; layer 1 loses no launch: 37 + 16. Copies take 6. */
    check(&p, 53 + 6 / 16.0);
    p.resident[0] = EXPERTS;
    check(&p, 52);
    p.layers = 3;
    p.step[0].before[2] = 5; /* a dense layer */
    check(&p, 57);
}

/*
 * A later chunk finds the ring full, so that its copies are as much ahead; the ring still holds
 * them back. It never takes less than all its copies do.
 */
static void later_chunks_find_a_full_ring(void **state)
{
    prompt p = two_layers();
    (void)state;
    p.steps = 2;
    p.step[1] = p.step[0];
    p.step[1].cold = 0;
    p.step[1].count = 3;
    /* Kernels end at 10 + 17 and 37 + 17, copies before. Copies take 4 * 48, kernels 4 * 52. */
    check(&p, 56 + 3 * 54 + 4 * 3);
    for (uint32_t l = 0; l < 2; ++l)
        p.step[1].before[l] = 0;
    /* Kernels end at 34, copies take 48; all kernels take 52 + 3 * 32. */
    check(&p, 56 + 3 * 48 + (52 + 96) / 16.0);
    /*
     * Layer 0: 12 of 24 wait for 5, there at 17, ends at max(20, 17 + 5). Layer 1 starts at 22: 36
     * of 48 wait for 5, there at 41; kernels of 24 and 4 launches end at 50, after 41 + 7.
     */
    p.ring = 12;
    p.step[1].experts[1] = 24;
    check(&p, 64 + 3 * 50 + (52 + 120) / 16.0);
}

/*
 * A token uses 4 of 8 experts: half of the bytes, 12 ticks a layer, when they are fetched.
 *   each layer: 10 + 12 + 5 = 27; streamed it would be 56 as above
 * The link is used for 24.
 */
static void few_rows_are_fetched(void **state)
{
    prompt p = two_layers();
    (void)state;
    p.top_k = 4;
    p.step[0].rows = 1;
    check(&p, 54 + 24 / 16.0);
    /*
     * With a latency of 1, fetched: two questions and 3 copies of each of 4 experts, 14 more, 41 a
     * layer. Streamed in one group a layer: copied at 27 and 54, ends at 54 + 5.
     */
    p.latency = 1;
    p.group = 24;
    check(&p, 59 + 27 / 16.0);
}

static void random_prompt(prompt *p, uint64_t *seed)
{
    memset(p, 0, sizeof *p);
    p->layers = (uint32_t)fixture_next(seed, 1, LAYERS);
    p->top_k = fixture_next(seed, 0, 1) ? EXPERTS : EXPERTS / 2;
    p->latency = fixture_next(seed, 0, 2) ? 0 : (uint32_t)fixture_next(seed, 1, 3);
    p->edge = (uint32_t)fixture_next(seed, 0, 9);
    p->refill = (uint32_t)fixture_next(seed, 0, 20);
    p->ring = (uint32_t)fixture_next(seed, 3, 60) * 4;
    p->group = (uint32_t)fixture_next(seed, 1, 60);
    for (uint32_t l = 0; l < p->layers; ++l) {
        p->slot[l] = (uint32_t)fixture_next(seed, 0, 3) * 3;
        p->resident[l] = p->slot[l] ? (uint32_t)fixture_next(seed, 0, EXPERTS) : 0;
    }
    p->steps = (uint32_t)fixture_next(seed, 1, 3);
    for (uint32_t i = 0; i < p->steps; ++i) {
        p->step[i].rows = (uint32_t)fixture_next(seed, 1, 3);
        p->step[i].count = (uint32_t)fixture_next(seed, 1, 4);
        p->step[i].band = (uint32_t)fixture_next(seed, 0, STRATA__LAYOUT_MAX_BANDS - 1);
        p->step[i].cold = i == 0;
        for (uint32_t l = 0; l < p->layers; ++l) {
            p->step[i].before[l] = (uint32_t)fixture_next(seed, 0, 40);
            p->step[i].experts[l] = p->slot[l] ? (uint32_t)fixture_next(seed, 0, 8) * EXPERTS : 0;
            p->step[i].launch[l] = p->slot[l] ? (uint32_t)fixture_next(seed, 0, 3) : 0;
        }
    }
}

static void predictions_follow_the_recurrence(void **state)
{
    uint64_t seed = 1;
    (void)state;
    for (uint32_t turn = 0; turn < 3000; ++turn) {
        prompt p;
        random_prompt(&p, &seed);
        check(&p, 0);
    }
}

/* ----------------------------------------------------------------------------------- residents */

/*
 * What is resident when there is room for `slots` experts of 768 bytes. An expert of layer l takes
 * units[l] such places; 0: a dense layer.
 */
static bool fill(const uint32_t *units, uint64_t slots, bool streams, bool first_whole,
                 uint32_t *resident)
{
    layout_fixture f;
    strata__layout_problem *problem = calloc(1, sizeof *problem);
    strata__planner *planner = calloc(1, sizeof *planner);
    bool filled;
    assert_true(problem && planner);
    fixture_small(&f, LAYERS);
    f.input.geometry.experts = EXPERTS;
    for (uint32_t l = 0; l < LAYERS; ++l) {
        strata__layout_layer *layer = &f.layers[l];
        layer->gate_bytes = layer->up_bytes = layer->down_bytes = 256 * units[l];
        if (units[l] == 0) {
            layer->expert_width = 0;
            layer->ffn_width = 256;
        }
    }
    fixture_ok(strata__layout_problem_init(problem, strata__allocator_default(), &f.input));
    strata__planner_init(planner, problem);
    filled = strata__planner_fill(planner, slots * 768, streams, first_whole);
    memcpy(resident, planner->resident, LAYERS * sizeof *resident);
    free(planner);
    free(problem);
    return filled;
}

static void residents_are(const uint32_t *units, uint64_t slots, bool first_whole, uint32_t a,
                          uint32_t b, uint32_t c, uint32_t d)
{
    const uint32_t expected[LAYERS] = {a, b, c, d};
    uint32_t resident[LAYERS];
    assert_true(fill(units, slots, true, first_whole, resident));
    for (uint32_t l = 0; l < LAYERS; ++l)
        if (resident[l] != expected[l])
            fail_msg("%d experts of %d in layer %d, not %d", (int)resident[l], (int)slots, (int)l,
                     (int)expected[l]);
}

static void residents_are_spread_evenly(void **state)
{
    static const uint32_t alike[] = {1, 1, 1, 1}, with_dense[] = {1, 0, 1, 1};
    (void)state;
    residents_are(alike, 0, false, 0, 0, 0, 0);
    residents_are(alike, 3, false, 1, 1, 1, 0);
    residents_are(alike, 10, false, 3, 3, 2, 2);
    residents_are(alike, 31, false, 8, 8, 8, 7);
    residents_are(alike, 1000, false, 8, 8, 8, 8);
    residents_are(with_dense, 10, false, 4, 0, 3, 3);
}

/*
 * What is left when a layer's next expert does not fit stays unused: were a later layer's smaller
 * expert taken, more memory would take it away again for the larger one, and the plan for more
 * memory could be the slower one.
 */
static void a_smaller_expert_of_a_later_layer_does_not_go_before(void **state)
{
    static const uint32_t smaller_last[] = {3, 2, 1, 1}, smaller_first[] = {1, 2, 3, 3};
    (void)state;
    /* One each takes 7, the next 3 of layer 0. */
    residents_are(smaller_last, 7, false, 1, 1, 1, 1);
    residents_are(smaller_last, 8, false, 1, 1, 1, 1);
    residents_are(smaller_last, 9, false, 1, 1, 1, 1);
    residents_are(smaller_last, 10, false, 2, 1, 1, 1);
    residents_are(smaller_last, 11, false, 2, 1, 1, 1);
    residents_are(smaller_last, 12, false, 2, 2, 1, 1);
    residents_are(smaller_last, 13, false, 2, 2, 2, 1);
    residents_are(smaller_last, 14, false, 2, 2, 2, 2);
    /* One each takes 9. */
    residents_are(smaller_first, 10, false, 2, 1, 1, 1);
    residents_are(smaller_first, 14, false, 2, 2, 1, 1);
}

static void the_first_layer_may_go_before_all(void **state)
{
    static const uint32_t alike[] = {1, 1, 1, 1}, dense_first[] = {0, 2, 1, 1},
                          sizes[] = {2, 2, 1, 1};
    (void)state;
    residents_are(alike, 7, true, 7, 0, 0, 0);
    residents_are(alike, 8, true, 8, 0, 0, 0);
    residents_are(alike, 12, true, 8, 2, 1, 1);
    residents_are(dense_first, 15, true, 0, 7, 0, 0);
    residents_are(dense_first, 19, true, 0, 8, 2, 1);
    /* 16 for the first, one each for 4; then 1 is too little for layer 1. */
    residents_are(sizes, 21, true, 8, 1, 1, 1);
}

static void where_nothing_is_streamed_all_must_be_resident(void **state)
{
    static const uint32_t sizes[] = {2, 0, 1, 1};
    uint32_t resident[LAYERS];
    (void)state;
    assert_false(fill(sizes, 4 * EXPERTS - 1, false, false, resident));
    assert_true(fill(sizes, 4 * EXPERTS, false, false, resident));
    for (uint32_t l = 0; l < LAYERS; ++l)
        assert_int_equal(resident[l], sizes[l] ? EXPERTS : 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_link_holds_kernels_back),
        cmocka_unit_test(the_ring_holds_copies_back),
        cmocka_unit_test(a_layer_waits_for_the_one_before),
        cmocka_unit_test(every_piece_has_a_latency),
        cmocka_unit_test(residents_are_not_copied),
        cmocka_unit_test(later_chunks_find_a_full_ring),
        cmocka_unit_test(few_rows_are_fetched),
        cmocka_unit_test(predictions_follow_the_recurrence),
        cmocka_unit_test(residents_are_spread_evenly),
        cmocka_unit_test(a_smaller_expert_of_a_later_layer_does_not_go_before),
        cmocka_unit_test(the_first_layer_may_go_before_all),
        cmocka_unit_test(where_nothing_is_streamed_all_must_be_resident),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
