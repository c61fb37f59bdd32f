/* SPDX-License-Identifier: MIT */
/* Router logits, the choice of experts and the grouping of rows. */
#include "check.h"

#include <algorithm>

static void check_router(const suite &s, uint32_t format, uint32_t rows, uint32_t inputs,
                         uint32_t experts, bool sigmoid, tally &t)
{
    random_source random(s.seed * 41 + format + rows * 3 + experts);
    weight_rows w = make_weights(random, format, inputs, experts, false);
    std::vector<float> x((size_t)rows * inputs), inv_rms(rows), norm(inputs), bias(experts);
    for (float &v : x)
        v = random.normal() * 3;
    for (float &v : inv_rms)
        v = (float)(0.1 + random.uniform());
    for (float &v : norm)
        v = random.normal();
    for (float &v : bias)
        v = random.normal();
    uint64_t scratch_bytes = (uint64_t)inputs * 4 * 37; /* fewer experts than there are */
    device_array<uint8_t> weights(w.blocks), scratch(scratch_bytes);
    device_array<float> x_d(x), inv_d(inv_rms), norm_d(norm), bias_d(bias),
        logits((size_t)rows * experts);
    strata__router_args a = {};
    a.x = x_d.get();
    a.inv_rms = inv_d.get();
    a.norm = norm_d.get();
    a.weight = {weights.get(), bias_d.get(), format, inputs, experts};
    a.scratch = {scratch.get(), scratch_bytes};
    a.logits = logits.get();
    a.rows = rows;
    a.sigmoid = sigmoid;
    require(s.kernels->ops->router(s.kernels, 0, &a), "router");
    require(cudaDeviceSynchronize(), "router");
    std::vector<float> got = logits.take();
    std::vector<double> worst(rows);
    parallel_for(rows, [&](size_t r) {
        for (uint32_t e = 0; e < experts; e++) {
            double sum = bias[e], magnitude = fabs(bias[e]);
            for (uint32_t k = 0; k < inputs; k++) {
                double term = (double)x[r * inputs + k] * inv_rms[r] * norm[k] *
                              w.values[(size_t)e * inputs + k];
                sum += term;
                magnitude += fabs(term);
            }
            double expected = sigmoid ? 1 / (1 + exp(-sum)) : sum;
            double error = fabs(got[r * experts + e] - expected) / (magnitude * 1e-6 + 1e-6);
            if (!(error <= worst[r]))
                worst[r] = error;
        }
    });
    double largest = 0;
    for (double v : worst)
        if (!(v <= largest))
            largest = v;
    report(t, largest <= 1 && logits.guards_intact() && scratch.guards_intact(), largest,
           "router %s rows %u inputs %u experts %u", strata__format_name(format), rows, inputs,
           experts);
}

struct select_case {
    uint32_t experts, top_k, gating, groups, groups_used;
    bool bias, normalise, ties;
};

/* Probabilities and scores in float64. */
static void scores_of(const select_case &c, const float *logits, const std::vector<float> &bias,
                      std::vector<double> &values, std::vector<double> &scores)
{
    double largest = -INFINITY, sum = 0;
    values.assign(logits, logits + c.experts);
    for (double v : values)
        largest = std::max(largest, v);
    for (double &v : values) {
        if (c.gating == STRATA__GATING_SIGMOID)
            v = 1 / (1 + exp(-v));
        if (c.gating == STRATA__GATING_SOFTMAX)
            sum += v = exp(v - largest);
    }
    if (c.gating == STRATA__GATING_SOFTMAX)
        for (double &v : values)
            v /= sum;
    scores = values;
    if (c.bias)
        for (uint32_t e = 0; e < c.experts; e++)
            scores[e] += bias[e];
    if (c.groups <= 1)
        return;
    uint32_t size = c.experts / c.groups;
    std::vector<std::pair<double, int>> order;
    for (uint32_t g = 0; g < c.groups; g++) {
        std::vector<double> own(scores.begin() + g * size, scores.begin() + (g + 1) * size);
        std::sort(own.rbegin(), own.rend());
        order.push_back({-(own[0] + (size > 1 ? own[1] : 0)), (int)g});
    }
    std::sort(order.begin(), order.end());
    for (uint32_t i = c.groups_used; i < c.groups; i++)
        for (uint32_t e = 0; e < size; e++)
            scores[order[i].second * size + e] = -INFINITY;
}

/* Faults of one row's choice; near ties may go either way, exact ties to the lower id. */
static const char *fault_of(const select_case &c, const std::vector<double> &values,
                            const std::vector<double> &scores, const int32_t *ids,
                            const float *weights, float scale)
{
    double least = INFINITY, sum = 0, largest = -INFINITY;
    std::vector<bool> chosen(c.experts);
    for (uint32_t j = 0; j < c.top_k; j++) {
        if (ids[j] < 0 || (uint32_t)ids[j] >= c.experts || (j && ids[j] <= ids[j - 1]))
            return "ids out of order";
        chosen[ids[j]] = true;
        least = std::min(least, scores[ids[j]]);
        largest = std::max(largest, values[ids[j]]);
    }
    for (uint32_t e = 0; e < c.experts; e++) {
        if (!chosen[e] && scores[e] > least + 2e-6 * (1 + fabs(least)))
            return "a better expert was left out";
        if (c.ties && !chosen[e])
            for (uint32_t j = 0; j < c.top_k; j++)
                if (scores[ids[j]] == scores[e] && (uint32_t)ids[j] > e)
                    return "a tie went to the higher id";
    }
    std::vector<double> expected;
    for (uint32_t j = 0; j < c.top_k; j++) {
        double v = values[ids[j]];
        expected.push_back(c.gating == STRATA__GATING_SOFTMAX_SELECTED ? exp(v - largest) : v);
        sum += expected.back();
    }
    if (c.gating == STRATA__GATING_SOFTMAX_SELECTED)
        for (double &v : expected)
            v /= sum;
    if (c.gating == STRATA__GATING_SOFTMAX_SELECTED)
        sum = 1;
    for (uint32_t j = 0; j < c.top_k; j++) {
        double v = expected[j] / (c.normalise ? std::max(sum, 6.103515625e-5) : 1) * scale;
        if (!(fabs(weights[j] - v) <= 1e-5 * fabs(v) + 1e-9))
            return "a weight is wrong";
    }
    return nullptr;
}

static void check_select(const suite &s, const select_case &c, uint32_t rows, tally &t)
{
    random_source random(s.seed * 43 + c.experts + c.top_k * 5 + c.gating + c.groups);
    std::vector<float> logits((size_t)rows * c.experts), bias(c.experts);
    for (float &v : logits)
        v = c.ties ? (float)random.below(6) * 0.5f : random.normal() * 2;
    for (float &v : bias)
        v = c.ties ? (float)random.below(2) * 0.25f : random.normal() * 0.3f;
    device_array<float> logits_d(logits), bias_d(bias), weights((size_t)rows * c.top_k);
    device_array<int32_t> ids((size_t)rows * c.top_k);
    strata__select_args a = {};
    a.logits = logits_d.get();
    a.selection_bias = c.bias ? bias_d.get() : nullptr;
    a.ids = ids.get();
    a.weights = weights.get();
    a.rows = rows;
    a.experts = c.experts;
    a.top_k = c.top_k;
    a.gating = c.gating;
    a.normalise = c.normalise;
    a.groups = c.groups;
    a.groups_used = c.groups_used;
    a.weight_scale = 2.5f;
    require(s.kernels->ops->select(s.kernels, 0, &a), "select");
    require(cudaDeviceSynchronize(), "select");
    std::vector<int32_t> got = ids.take();
    std::vector<float> got_weights = weights.take();
    const char *fault =
        ids.guards_intact() && weights.guards_intact() ? nullptr : "written outside";
    for (uint32_t r = 0; r < rows && !fault; r++) {
        std::vector<double> values, scores;
        scores_of(c, &logits[(size_t)r * c.experts], bias, values, scores);
        fault = fault_of(c, values, scores, &got[(size_t)r * c.top_k],
                         &got_weights[(size_t)r * c.top_k], 2.5f);
    }
    report(t, !fault, fault ? 1e9 : 0, "select %u of %u gating %u groups %u/%u bias %d ties %d: %s",
           c.top_k, c.experts, c.gating, c.groups_used, c.groups, (int)c.bias, (int)c.ties,
           fault ? fault : "");
}

static void check_group(const suite &s, uint32_t rows, uint32_t top_k, uint32_t experts,
                        bool skewed, tally &t)
{
    random_source random(s.seed * 47 + rows + top_k * 3 + experts);
    uint32_t pairs = rows * top_k;
    std::vector<int32_t> ids;
    std::vector<std::vector<uint32_t>> by_expert(experts);
    for (uint32_t r = 0; r < rows; r++) {
        std::vector<int32_t> own;
        while (own.size() < top_k) {
            uint32_t limit = skewed && random.below(4) ? top_k : experts;
            int32_t e = (int32_t)random.below(limit);
            if (std::find(own.begin(), own.end(), e) == own.end())
                own.push_back(e);
        }
        std::sort(own.begin(), own.end());
        for (int32_t e : own) {
            ids.push_back(e);
            by_expert[e].push_back(r);
        }
    }
    uint32_t *host = nullptr;
    require(cudaHostAlloc(&host, (experts + 2) * 4, cudaHostAllocMapped), "mapped memory");
    memset(host, 0xff, (experts + 2) * 4);
    uint64_t scratch_bytes = s.kernels->facts.group_scratch_bytes_per_expert * experts +
                             s.kernels->facts.group_scratch_bytes_fixed;
    device_array<int32_t> ids_d(ids);
    device_array<uint32_t> offsets(experts + 1), sorted_row(pairs), sorted_index(pairs);
    device_array<uint8_t> scratch(scratch_bytes);
    strata__group_args a = {ids_d.get(),
                            offsets.get(),
                            sorted_row.get(),
                            sorted_index.get(),
                            host,
                            host + experts + 1,
                            scratch.get(),
                            rows,
                            top_k,
                            experts,
                            77};
    require(s.kernels->ops->group(s.kernels, 0, &a), "group");
    require(cudaDeviceSynchronize(), "group");
    std::vector<uint32_t> got = offsets.take(), got_rows = sorted_row.take(),
                          got_index = sorted_index.take();
    size_t wrong = host[experts + 1] != 77, at = 0;
    for (uint32_t e = 0; e < experts; e++) {
        wrong += got[e] != at || host[e] != at;
        for (uint32_t r : by_expert[e])
            wrong += got_rows[at++] != r;
    }
    wrong += got[experts] != pairs || host[experts] != pairs;
    std::vector<uint32_t> next(got.begin(), got.end());
    for (uint32_t i = 0; i < pairs; i++)
        wrong += got_index[i] != next[ids[i]]++;
    wrong += !offsets.guards_intact() + !sorted_row.guards_intact() +
             !sorted_index.guards_intact() + !scratch.guards_intact();
    report(t, wrong == 0, wrong ? 1e9 : 0, "group rows %u top %u experts %u: %zu wrong", rows,
           top_k, experts, wrong);
    cudaFreeHost(host);
}

int check_routing(const suite &s)
{
    int failures = 0;
    tally router, select, group;
    for (uint32_t format : {0u, 1u, 30u, 8u, 14u})
        for (uint32_t rows : {1u, 63u, 130u})
            check_router(s, format, rows, format == 14 ? 768 : 96, 130, false, router);
    check_router(s, STRATA__F32, 65, 2048, 128, false, router);
    check_router(s, STRATA__F32, 65, 2880, 32, false, router);
    check_router(s, STRATA__F32, 65, 2560, 1, true, router);
    for (uint32_t gating : {1u, 2u, 3u})
        for (uint32_t experts : {8u, 33u, 60u, 128u, 160u, 256u, 512u, 1000u, 1024u})
            for (uint32_t top_k : {1u, 2u, 8u, 16u})
                for (uint32_t variant = 0; variant < 4; variant++) {
                    if (top_k > experts || (s.small && top_k != 8))
                        continue;
                    bool grouped = variant == 3 && experts % 8 == 0 && experts / 8 * 3 >= top_k;
                    check_select(s,
                                 {experts, top_k, gating, grouped ? 8u : 0u, 3u, variant > 0,
                                  variant != 1, variant == 2},
                                 33, select);
                }
    for (uint32_t rows : {1u, 7u, 63u, 300u, 4096u, 40000u})
        for (uint32_t experts : {16u, 128u, 512u, 1024u})
            for (uint32_t top_k : {1u, 8u, 10u})
                if (!s.small || rows == 300)
                    check_group(s, rows, top_k, experts, rows % 2 == 0, group);
    close_tally(router, "router", &failures);
    close_tally(select, "select", &failures);
    close_tally(group, "group", &failures);
    return failures;
}
