/* SPDX-License-Identifier: MIT */
#include "text/sample.h"

#include <math.h>
#include <string.h>

#include "base/error.h"

/* The logits' order as that of unsigned integers: higher logits, higher keys; NaN below all. */
static uint32_t key_of(float logit)
{
    uint32_t bits;
    if (isnan(logit))
        return 0;
    logit += 0.0f; /* one zero */
    memcpy(&bits, &logit, sizeof bits);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

static float largest(const float *logits, uint64_t count)
{
    float most = -INFINITY;
    for (uint64_t i = 0; i < count; i++)
        if (logits[i] > most)
            most = logits[i];
    return most;
}

/* Probability relative to the likeliest token's. */
static double weight_of(float logit, float most)
{
    if (isnan(logit) || logit == -INFINITY)
        return 0;
    return logit == most ? 1 : exp((double)logit - (double)most);
}

static strata_status none_left(void)
{
    return strata__fail(STRATA_ERR_INVALID_ARGUMENT, "every logit is ruled out");
}

strata_status strata__logits_greedy(const float *logits, uint64_t count, int32_t *out_token)
{
    float most = largest(logits, count);
    if (most == -INFINITY)
        return none_left();
    for (uint64_t i = 0;; i++)
        if (logits[i] == most) {
            *out_token = (int32_t)i;
            return STRATA_OK;
        }
}

/* SplitMix64 (Steele, Lea and Flood, Fast Splittable Pseudorandom Number Generators, 2014). */
static uint64_t random_next(uint64_t *state)
{
    uint64_t value = *state += 0x9e3779b97f4a7c15u;
    value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9u;
    value = (value ^ value >> 27) * 0x94d049bb133111ebu;
    return value ^ value >> 31;
}

strata_status strata__logits_draw(const float *logits, uint64_t count, uint64_t *random_state,
                                  int32_t *out_token)
{
    const float most = largest(logits, count);
    double sum = 0, left;
    if (most == -INFINITY)
        return none_left();
    for (uint64_t i = 0; i < count; i++)
        sum += weight_of(logits[i], most);
    left = (double)(random_next(random_state) >> 11) * 0x1p-53 * sum;
    for (uint64_t i = 0; i < count; i++) {
        double weight = weight_of(logits[i], most);
        if (weight == 0)
            continue;
        *out_token = (int32_t)i;
        left -= weight;
        if (left < 0)
            break;
    }
    return STRATA_OK;
}

void strata__logits_temperature(float *logits, uint64_t count, float temperature)
{
    /* Next to no temperature: what no number holds is counted from the likeliest down. */
    const float most = largest(logits, count);
    const float shift = isinf(most / temperature) && isfinite(most) ? most : 0;
    for (uint64_t i = 0; i < count; i++)
        logits[i] = (logits[i] - shift) / temperature;
}

enum { WINDOW_TOKENS = 1 << 16 };

void strata__logits_repetition_penalty(float *logits, uint64_t count, const int32_t *recent,
                                       uint64_t recent_count, float penalty)
{
    /* Window after window of ids, so that a mark for each of them fits the stack. */
    for (uint64_t from = 0; from < count; from += WINDOW_TOKENS) {
        uint64_t marks[WINDOW_TOKENS / 64] = {0};
        for (uint64_t i = 0; i < recent_count; i++) {
            uint64_t at = (uint64_t)recent[i] - from;
            float *logit;
            if (recent[i] < 0 || (uint64_t)recent[i] >= count || at >= WINDOW_TOKENS ||
                (marks[at / 64] >> at % 64 & 1))
                continue;
            marks[at / 64] |= (uint64_t)1 << at % 64;
            logit = &logits[recent[i]];
            *logit = *logit > 0 ? *logit / penalty : *logit * penalty;
        }
    }
}

/* Rules out what lies below `threshold`, and of what equals it all but the first `equals`. */
static void keep(float *logits, uint64_t count, uint32_t threshold, uint64_t equals)
{
    for (uint64_t i = 0; i < count; i++) {
        uint32_t key = key_of(logits[i]);
        if (key > threshold)
            continue;
        if (key == threshold && equals) {
            equals--;
            continue;
        }
        logits[i] = -INFINITY;
    }
}

enum { DIGIT_BITS = 8, DIGITS = 1 << DIGIT_BITS };

/*
 * The key at which the sum of measures, from the highest key down, reaches `wanted`: digit by digit
 * from the top, so that nothing is sorted or allocated. *inout_wanted becomes what the keys above
 * leave over. `most` NULL: every logit measures 1, else its probability relative to that one's.
 */
static uint32_t key_reaching(const float *logits, uint64_t count, const float *most,
                             double *inout_wanted)
{
    uint32_t key = 0, known = 0;
    for (int shift = 32 - DIGIT_BITS; shift >= 0; shift -= DIGIT_BITS) {
        double sums[DIGITS] = {0};
        uint32_t digit = DIGITS - 1, lowest = DIGITS;
        for (uint64_t i = 0; i < count; i++) {
            uint32_t own = key_of(logits[i]);
            if ((own & known) == key)
                sums[own >> shift & (DIGITS - 1)] += most ? weight_of(logits[i], *most) : 1;
        }
        for (uint32_t d = 0; d < DIGITS && lowest == DIGITS; d++)
            if (sums[d] > 0)
                lowest = d;
        /* Rounding may leave a little over below the lowest: it stays the last. */
        while (digit > lowest && (sums[digit] == 0 || sums[digit] < *inout_wanted))
            *inout_wanted -= sums[digit--];
        key |= digit << shift;
        known |= (uint32_t)(DIGITS - 1) << shift;
    }
    return key;
}

void strata__logits_top_k(float *logits, uint64_t count, uint32_t top_k)
{
    double wanted = top_k;
    uint32_t threshold;
    if (top_k == 0 || top_k >= count)
        return;
    threshold = key_reaching(logits, count, NULL, &wanted);
    keep(logits, count, threshold, (uint64_t)wanted);
}

void strata__logits_top_p(float *logits, uint64_t count, float top_p)
{
    const float most = largest(logits, count);
    double wanted = 0, one;
    uint64_t equals = 0;
    uint32_t threshold;
    if (top_p >= 1 || most == -INFINITY)
        return;
    for (uint64_t i = 0; i < count; i++)
        wanted += weight_of(logits[i], most);
    wanted *= top_p;
    threshold = key_reaching(logits, count, &most, &wanted);
    for (uint64_t i = 0; i < count && equals == 0; i++)
        if (key_of(logits[i]) == threshold) {
            one = weight_of(logits[i], most);
            equals =
                one > 0 && wanted > one ? (uint64_t)fmin(ceil(wanted / one), (double)count) : 1;
        }
    keep(logits, count, threshold, equals);
}

void strata__logits_min_p(float *logits, uint64_t count, float min_p)
{
    const float most = largest(logits, count);
    if (min_p <= 0 || most == -INFINITY)
        return;
    for (uint64_t i = 0; i < count; i++)
        if (weight_of(logits[i], most) < (double)min_p)
            logits[i] = -INFINITY;
}

strata_status strata__sample(const strata_sample_options *options, float *logits, uint64_t count,
                             uint64_t *random_state, int32_t *out_token)
{
    if (options->recent_count && options->repetition_penalty != 1)
        strata__logits_repetition_penalty(logits, count, options->recent_tokens,
                                          options->recent_count, options->repetition_penalty);
    if (options->temperature == 0)
        return strata__logits_greedy(logits, count, out_token);
    if (options->temperature != 1)
        strata__logits_temperature(logits, count, options->temperature);
    strata__logits_top_k(logits, count, options->top_k);
    strata__logits_top_p(logits, count, options->top_p);
    strata__logits_min_p(logits, count, options->min_p);
    return strata__logits_draw(logits, count, random_state, out_token);
}
