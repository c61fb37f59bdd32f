/* SPDX-License-Identifier: MIT */
/* The choice of experts and the sorting of rows by expert. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/error.h"
#include "kernels/cpu/cpu.h"

STRATA__CPU_TASK(select);
STRATA__CPU_TASK(group);

/* What a row's experts are weighed with, and chosen by. */
typedef struct row_scores {
    double weight[STRATA__MAX_EXPERTS];
    double choice[STRATA__MAX_EXPERTS];
} row_scores;

static void softmax_in_place(double *values, uint32_t n)
{
    double top = -INFINITY, sum = 0;
    for (uint32_t i = 0; i < n; i++)
        top = values[i] > top ? values[i] : top;
    for (uint32_t i = 0; i < n; i++) {
        values[i] = exp(values[i] - top);
        sum += values[i];
    }
    for (uint32_t i = 0; i < n; i++)
        values[i] /= sum;
}

static void score_row(const strata__select_args *a, const float *logits, row_scores *scores)
{
    for (uint32_t e = 0; e < a->experts; e++) {
        double logit = logits[e];
        scores->weight[e] = a->gating == STRATA__GATING_SIGMOID ? 1.0 / (1.0 + exp(-logit)) : logit;
    }
    if (a->gating == STRATA__GATING_SOFTMAX)
        softmax_in_place(scores->weight, a->experts);
    for (uint32_t e = 0; e < a->experts; e++)
        scores->choice[e] =
            scores->weight[e] + (a->selection_bias ? (double)a->selection_bias[e] : 0.0);
}

/* Index of the largest value; the lowest one of equals. `n` when all are -inf. */
static uint32_t largest(const double *values, uint32_t n)
{
    uint32_t best = n;
    double top = -INFINITY;
    for (uint32_t i = 0; i < n; i++)
        if (values[i] > top) {
            top = values[i];
            best = i;
        }
    return best;
}

/* Excludes the experts of all but the best groups. */
static void keep_groups(const strata__select_args *a, double *choice)
{
    double score[STRATA__MAX_EXPERTS];
    uint32_t size = a->experts / a->groups;
    for (uint32_t g = 0; g < a->groups; g++) {
        double first = -INFINITY, second = -INFINITY;
        for (uint32_t i = g * size; i < (g + 1) * size; i++) {
            double v = choice[i];
            second = v > first ? first : v > second ? v : second;
            first = v > first ? v : first;
        }
        score[g] = size > 1 ? first + second : first;
    }
    for (uint32_t used = 0; used < a->groups_used; used++) {
        uint32_t best = largest(score, a->groups);
        if (best < a->groups)
            score[best] = NAN; /* kept: no comparison finds it again */
    }
    for (uint32_t e = 0; e < a->groups * size; e++)
        if (!isnan(score[e / size]))
            choice[e] = -INFINITY;
}

/*
 * Marks the chosen experts and writes them in ascending order; fewer than top_k only for NaN rows.
 */
static void choose(const strata__select_args *a, double *choice, int32_t *ids)
{
    uint64_t chosen[STRATA__MAX_EXPERTS / 64] = {0};
    uint32_t count = 0;
    for (uint32_t k = 0; k < a->top_k; k++) {
        uint32_t best = largest(choice, a->experts);
        for (uint32_t e = 0; best == a->experts && e < a->experts; e++)
            if (!(chosen[e / 64] >> e % 64 & 1))
                best = e; /* nothing comparable is left: the lowest ids fill up */
        chosen[best / 64] |= (uint64_t)1 << best % 64;
        choice[best] = -INFINITY;
    }
    for (uint32_t e = 0; e < a->experts; e++)
        if (chosen[e / 64] >> e % 64 & 1)
            ids[count++] = (int32_t)e;
}

static void select_row(const strata__select_args *a, uint32_t row)
{
    row_scores scores;
    double weights[STRATA__MAX_TOP_K], sum = 0;
    int32_t *ids = a->ids + (size_t)row * a->top_k;
    score_row(a, a->logits + (size_t)row * a->experts, &scores);
    if (a->groups > 1)
        keep_groups(a, scores.choice);
    choose(a, scores.choice, ids);
    for (uint32_t k = 0; k < a->top_k; k++)
        weights[k] = scores.weight[ids[k]];
    if (a->gating == STRATA__GATING_SOFTMAX_SELECTED)
        softmax_in_place(weights, a->top_k);
    for (uint32_t k = 0; k < a->top_k; k++)
        sum += weights[k];
    sum = sum > 0x1p-14 ? sum : 0x1p-14;
    for (uint32_t k = 0; k < a->top_k; k++)
        a->weights[(size_t)row * a->top_k + k] =
            (float)((a->normalise ? weights[k] / sum : weights[k]) * (double)a->weight_scale);
}

static void select_item(void *user_data, uint32_t item, uint32_t worker)
{
    const select_task *task = user_data;
    uint32_t first = item * STRATA__ROWS_PER_ITEM, end = first + STRATA__ROWS_PER_ITEM;
    end = end < task->args.rows ? end : task->args.rows;
    (void)worker;
    for (uint32_t row = first; row < end; row++)
        select_row(&task->args, row);
}

static void run_select(const void *arguments)
{
    select_task task = *(const select_task *)arguments;
    strata__pool_run(task.cpu->pool, strata__row_items(task.args.rows), select_item, &task);
}

strata_status strata__cpu_select(strata__kernels *kernels, void *stream,
                                 const strata__select_args *args)
{
    if (args->experts == 0 || args->experts > STRATA__MAX_EXPERTS || args->top_k == 0 ||
        args->top_k > STRATA__MAX_TOP_K || args->top_k > args->experts)
        return strata__fail(STRATA_ERR_UNSUPPORTED, "select: %u of %u experts", args->top_k,
                            args->experts);
    if (args->gating < STRATA__GATING_SOFTMAX || args->gating > STRATA__GATING_SOFTMAX_SELECTED)
        return strata__fail(STRATA_ERR_UNSUPPORTED, "select: gating function %u", args->gating);
    if (args->groups > 1 && (args->experts % args->groups || args->groups_used == 0 ||
                             args->groups_used > args->groups ||
                             args->experts / args->groups * args->groups_used < args->top_k))
        return strata__fail(STRATA_ERR_UNSUPPORTED, "select: %u of %u groups of %u experts",
                            args->groups_used, args->groups, args->experts);
    return args->rows ? select_enqueue(kernels, stream, args, run_select) : STRATA_OK;
}

/* Counting sort. The offsets serve as places while entries are put; then they move back by one. */
static void run_group(const void *arguments)
{
    const strata__group_args *a = &((const group_task *)arguments)->args;
    uint32_t pairs = a->rows * a->top_k, *offsets = a->offsets;
    memset(offsets, 0, ((size_t)a->experts + 1) * sizeof *offsets);
    for (uint32_t p = 0; p < pairs; p++)
        offsets[a->ids[p] + 1]++;
    for (uint32_t e = 0; e < a->experts; e++)
        offsets[e + 1] += offsets[e];
    for (uint32_t p = 0; p < pairs; p++) {
        uint32_t place = offsets[a->ids[p]]++;
        a->sorted_row[place] = p / a->top_k;
        a->sorted_index[p] = place;
    }
    memmove(offsets + 1, offsets, a->experts * sizeof *offsets);
    offsets[0] = 0;
    if (a->host_offsets)
        memcpy(a->host_offsets, offsets, ((size_t)a->experts + 1) * sizeof *offsets);
    if (a->host_flag)
        __atomic_store_n(a->host_flag, a->flag_value, __ATOMIC_RELEASE);
}

strata_status strata__cpu_group(strata__kernels *kernels, void *stream,
                                const strata__group_args *args)
{
    if (args->experts == 0 || (uint64_t)args->rows * args->top_k > UINT32_MAX)
        return strata__fail(STRATA_ERR_UNSUPPORTED, "group: %u rows of %u among %u experts",
                            args->rows, args->top_k, args->experts);
    return group_enqueue(kernels, stream, args, run_group);
}
