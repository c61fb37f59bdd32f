/* SPDX-License-Identifier: MIT */
/*
 * The per-layer recurrence. A launch takes the blobs of half the ring, so that the other half is
 * filled meanwhile; L is the time of one. For layer l, with A the start and U the end of its
 * experts' kernels, C the end of its copies, P the bytes of the copies up to it:
 *
 *   A[l] = U[l-1] + before[l]
 *   C[l] = max(the link's time for all pieces so far,
 *              for every m <= l with P[l] - P[m-1] > ring:
 *                  A[m] + L[m] + (P[l] - ring - P[m-1]) * seconds_per_byte)
 *   U[l] = max(A[l] + experts[l] + what its launches lose, C[l] + L[l])
 *
 * The second term of C is the ring: when layer m's first launch ends, at most the ring's bytes
 * beyond what was used before m can have been copied. A chunk that is not the first finds the ring
 * full, and takes as long as the link does for all its pieces at least.
 *
 * Layers are not as regular as that, and copies and kernels slow each other: a part of the shorter
 * of the two comes on top.
 */
#include "base/checked.h"
#include "layout/cost.h"

uint32_t strata__layout_group_experts(const strata__layout_problem *problem, uint32_t layer,
                                      uint64_t group_bytes)
{
    uint64_t slot = problem->classes[problem->class_of[layer]].slot_bytes;
    uint64_t experts = group_bytes / slot;
    if (experts > problem->geometry.experts)
        experts = problem->geometry.experts;
    return experts ? (uint32_t)experts : 1;
}

static const double not_hidden = 1.0 / 16;

typedef struct layer_copies {
    double bytes;
    double link;     /* seconds of its pieces */
    double tail;     /* part of the experts' time that a launch takes */
    double launches; /* that the ring cuts the layer into */
} layer_copies;

typedef struct simulation {
    const strata__layout_problem *problem;
    const strata__layout_copies *copies;
    layer_copies layers[STRATA__MAX_LAYERS];
    double link_seconds; /* all layers, everything that is not resident */
    double bytes;
} simulation;

/* Launches of at most `bytes` of the layer's missing blobs. */
static double launches_of(const strata__layout_problem *p, uint32_t layer, uint32_t missing,
                          uint64_t bytes)
{
    uint32_t experts = strata__layout_group_experts(p, layer, bytes);
    return (double)strata__divide_up_u64(missing, experts);
}

/* Part of a layer's experts that a launch of the missing ones has: a quarter at most. */
static double launch_part(const strata__layout_problem *p, uint32_t layer, uint32_t missing,
                          uint64_t bytes)
{
    uint32_t experts = strata__layout_group_experts(p, layer, bytes);
    uint32_t most = (p->geometry.experts + 3) / 4;
    if (experts > most)
        experts = most;
    return (double)(missing < experts ? missing : experts) / p->geometry.experts;
}

static void fill_layers(simulation *s)
{
    const strata__layout_problem *p = s->problem;
    const strata__layout_copies *c = s->copies;
    const strata__layout_facts *f = &p->facts;
    s->link_seconds = s->bytes = 0;
    for (uint32_t i = 0; i < p->geometry.layer_count; ++i) {
        uint32_t experts =
            p->copies && p->geometry.layers[i].expert_width ? p->geometry.experts : 0;
        uint32_t missing = experts - (experts ? c->resident[i] : 0);
        uint32_t group = 1;
        double slot = 0;
        if (missing) {
            group = strata__layout_group_experts(p, i, c->group_bytes);
            slot = (double)p->classes[p->class_of[i]].slot_bytes;
        }
        s->layers[i].bytes = missing * slot;
        s->layers[i].link =
            missing * slot * c->seconds_per_byte +
            3 * f->link_latency_seconds * (double)strata__divide_up_u64(missing, group);
        s->layers[i].launches = missing ? launches_of(p, i, missing, c->ring_bytes / 2) : 0;
        s->layers[i].tail = missing ? launch_part(p, i, missing, c->tail_bytes) : 0;
        s->link_seconds += s->layers[i].link;
        s->bytes += s->layers[i].bytes;
    }
}

static uint64_t sum_ns(uint64_t a, uint64_t b)
{
    return a < UINT64_MAX - b ? a + b : UINT64_MAX - 1;
}

static uint64_t whole(double value)
{
    return value < 1e19 ? (uint64_t)value : UINT64_MAX;
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static double smaller(double a, double b)
{
    return a < b ? a : b;
}

/* A layer's experts, cut into launches, and one such launch. */
static double kernel_seconds(const simulation *s, const strata__layout_times *times, uint32_t step,
                             uint32_t layer)
{
    return times->experts[step][layer] + s->layers[layer].launches * times->launch[step][layer];
}

static double launch_seconds(const simulation *s, const strata__layout_times *times, uint32_t step,
                             uint32_t layer)
{
    const layer_copies *l = &s->layers[layer];
    return l->bytes > 0 ? l->tail * times->experts[step][layer] + times->launch[step][layer] : 0;
}

/* Copies run ahead of routing; returns the time of one chunk. */
static double stream_seconds(const simulation *s, const strata__layout_times *times, uint32_t step)
{
    const strata__layout_copies *c = s->copies;
    uint32_t layers = s->problem->geometry.layer_count;
    double start[STRATA__MAX_LAYERS], used[STRATA__MAX_LAYERS];
    double ring = (double)c->ring_bytes, spb = c->seconds_per_byte;
    double ahead = times->steps[step].cold ? 0 : ring * spb;
    double end = 0, link = 0, copied = 0, latest = 0, last[STRATA__MAX_LAYERS];
    uint32_t m = 0;
    for (uint32_t l = 0; l < layers; ++l) {
        double ready;
        start[l] = end + times->before[step][l];
        used[l] = copied;
        copied += s->layers[l].bytes;
        link += s->layers[l].link;
        ready = link - ahead;
        last[l] = launch_seconds(s, times, step, l);
        for (; m <= l && used[m] + ring < copied; ++m)
            latest = larger(latest, start[m] + last[m] - used[m] * spb);
        if (m > 0)
            ready = larger(ready, latest + (copied - ring) * spb);
        end = start[l] + kernel_seconds(s, times, step, l);
        if (s->layers[l].bytes > 0)
            end = larger(end, ready + last[l]);
    }
    return larger(end, times->steps[step].cold ? end : s->link_seconds);
}

/* Each layer routes, then brings what is routed and missing while it computes. */
static double fetch_seconds(const simulation *s, const strata__layout_times *times, uint32_t step)
{
    const strata__layout_problem *p = s->problem;
    double touched = strata__layout_touched(p, times->steps[step].rows), sum = 0;
    double latency = p->facts.link_latency_seconds, spb = s->copies->seconds_per_byte;
    double ring = (double)s->copies->ring_bytes;
    for (uint32_t l = 0; l < p->geometry.layer_count; ++l) {
        double wanted = s->layers[l].bytes * touched, copies = 0, last;
        if (wanted > 0) {
            last = launch_seconds(s, times, step, l);
            copies = wanted * spb + last +
                     latency * (2 + 3 * wanted / (double)p->classes[p->class_of[l]].slot_bytes);
            /* Half a ring is copied before its launch begins, the rest of the layer after it. */
            if (wanted > ring)
                copies += larger(0, last - ring / 2 * spb);
        }
        sum += times->before[step][l] + larger(copies, kernel_seconds(s, times, step, l));
    }
    return sum;
}

strata__layout_prediction strata__layout_predict(const strata__layout_problem *problem,
                                                 const strata__layout_times *times,
                                                 const strata__layout_copies *copies,
                                                 uint32_t *fetch)
{
    double stream[STRATA__LAYOUT_MAX_BANDS] = {0}, fetched[STRATA__LAYOUT_MAX_BANDS] = {0};
    double rows[STRATA__LAYOUT_MAX_BANDS] = {0}, passes[STRATA__LAYOUT_MAX_BANDS] = {0};
    double total = times->edge_seconds, refill, link = 0, bytes = 0, overlapped = 0;
    simulation s = {.problem = problem, .copies = copies};
    fill_layers(&s);
    for (uint32_t i = 0; i < times->step_count; ++i) {
        const strata__layout_step *step = &times->steps[i];
        stream[step->band] += stream_seconds(&s, times, i) * step->count;
        fetched[step->band] += fetch_seconds(&s, times, i) * step->count;
        rows[step->band] += strata__layout_touched(problem, step->rows) * step->count;
        passes[step->band] += step->count;
    }
    for (uint32_t band = 0; band < STRATA__LAYOUT_MAX_BANDS; ++band) {
        /* Where both come to the same, sums that are added up in another order differ a little. */
        bool fetches = s.bytes > 0 && fetched[band] < stream[band] * (1 - 1e-9);
        double sent = fetches ? rows[band] : passes[band];
        total += s.bytes > 0 ? smaller(fetched[band], stream[band]) : stream[band];
        link += sent * s.link_seconds;
        bytes += sent * s.bytes;
        overlapped += rows[band] * s.link_seconds;
        if (fetch)
            fetch[band] = fetches;
    }
    overlapped = smaller(overlapped, times->before_seconds + times->expert_seconds);
    total += overlapped * not_hidden;
    refill = (double)copies->refill_bytes * copies->seconds_per_byte;
    return (strata__layout_prediction){
        .prompt_ns = sum_ns(strata__layout_ns(total), strata__layout_ns(refill)),
        .link_ns = strata__layout_ns(link + refill),
        .compute_ns =
            strata__layout_ns(times->before_seconds + times->expert_seconds + times->edge_seconds),
        .refill_ns = strata__layout_ns(refill),
        .copied_bytes = whole(bytes + (double)copies->refill_bytes),
    };
}
