/* SPDX-License-Identifier: MIT */
#include "compare.h"

#include <math.h>

static uint64_t place_of_largest(const float *logits, uint64_t count)
{
    uint64_t place = 0;
    for (uint64_t i = 1; i < count; i++)
        if (logits[i] > logits[place])
            place = i;
    return place;
}

/* Logarithm of the sum of exponentials. */
static double log_sum(const float *logits, uint64_t count)
{
    double largest = (double)logits[place_of_largest(logits, count)], sum = 0;
    for (uint64_t i = 0; i < count; i++)
        sum += exp((double)logits[i] - largest);
    return largest + log(sum);
}

static double divergence(const float *p, const float *q, uint64_t count)
{
    double p_sum = log_sum(p, count), q_sum = log_sum(q, count), kl = 0;
    for (uint64_t i = 0; i < count; i++) {
        double log_p = (double)p[i] - p_sum;
        kl += exp(log_p) * (log_p - ((double)q[i] - q_sum));
    }
    /* Rounding leaves a tiny negative number where the two are equal. */
    return kl < 0 ? 0 : kl;
}

/* Keeps a NaN, which no comparison is true for. */
static double larger(double a, double b)
{
    return b <= a ? a : b;
}

difference compare_logits(const float *reference, const float *other, uint64_t positions,
                          uint64_t count)
{
    difference d = {0};
    for (uint64_t p = 0; p < positions; p++, reference += count, other += count) {
        double kl = divergence(reference, other, count);
        d.same_last_top = place_of_largest(reference, count) == place_of_largest(other, count);
        d.top_share += d.same_last_top;
        d.kl_mean += kl;
        d.kl_most = isnan(d.kl_most) ? d.kl_most : larger(d.kl_most, kl);
        for (uint64_t i = 0; i < count && !isnan(d.logit_most); i++)
            d.logit_most = larger(d.logit_most, fabs((double)reference[i] - (double)other[i]));
    }
    d.kl_mean /= (double)positions;
    d.top_share /= (double)positions;
    return d;
}
