/* SPDX-License-Identifier: MIT */
/**
 * @file
 * Choosing the next token from logits: plain functions on a float array, without any object.
 *
 * The functions change the logits in place; a token that is ruled out gets minus infinity. NaN
 * counts as minus infinity. Nothing is allocated. Equal values are ranked by id, lower ids first,
 * so that results do not depend on the machine's sort.
 *
 * Thread-safety: any thread; the arrays and the random state are the caller's.
 */
#ifndef STRATA_SAMPLE_H
#define STRATA_SAMPLE_H

#include <strata/base.h>

STRATA_BEGIN_DECLS

/**
 * How to choose. The defaults of strata_sample_options_init() draw from the model's own
 * distribution.
 */
typedef struct strata_sample_options {
    uint32_t struct_size;     /**< sizeof this structure */
    uint32_t top_k;           /**< only the k likeliest; 0: all */
    float temperature;        /**< logits are divided by it; 0: the likeliest token, always */
    float top_p;              /**< the fewest likeliest that reach this probability; 1: all */
    float min_p;              /**< at least this part of the likeliest's probability; 0: all */
    float repetition_penalty; /**< of recent tokens' logits; 1: none */
    /** what repetition_penalty applies to; ids beyond the logits are ignored */
    const int32_t *recent_tokens;
    uint64_t recent_count; /**< number of them */
} strata_sample_options;

/**
 * Fills the defaults (temperature 1, top_p 1, penalty 1, all else 0), never writing beyond
 * caller_bytes, and sets struct_size to it.
 */
STRATA_API void strata_sample_options_init(strata_sample_options *options, uint64_t caller_bytes);

/**
 * Chooses a token: repetition penalty, temperature, top-k, top-p, min-p, one draw; in this order.
 *
 * @param options      copied; NULL for the defaults
 * @param logits       changed
 * @param count        of the logits, 1 to 2^31 - 1
 * @param random_state seed at first, any value; advanced by a draw. The same state and logits give
 *                     the same token. NULL is legal with temperature 0.
 * @param out_token    the choice
 * @return STRATA_OK, STRATA_ERR_INVALID_ARGUMENT (also when every logit is ruled out)
 */
STRATA_API STRATA_NODISCARD strata_status strata_sample(const strata_sample_options *options,
                                                        float *logits, uint64_t count,
                                                        uint64_t *random_state, int32_t *out_token);

/** The likeliest token; STRATA_ERR_INVALID_ARGUMENT when every logit is ruled out. */
STRATA_API STRATA_NODISCARD strata_status strata_logits_greedy(const float *logits, uint64_t count,
                                                               int32_t *out_token);

/**
 * Draws a token with the softmax's probabilities, by one step of SplitMix64 (Steele, Lea and Flood,
 * 2014) on `random_state`.
 */
STRATA_API STRATA_NODISCARD strata_status strata_logits_draw(const float *logits, uint64_t count,
                                                             uint64_t *random_state,
                                                             int32_t *out_token);

/** Divides by a temperature above 0. */
STRATA_API STRATA_NODISCARD strata_status strata_logits_temperature(float *logits, uint64_t count,
                                                                    float temperature);

/** Keeps the `top_k` likeliest; 0 keeps all. */
STRATA_API STRATA_NODISCARD strata_status strata_logits_top_k(float *logits, uint64_t count,
                                                              uint32_t top_k);

/**
 * Keeps the fewest likeliest whose probabilities sum to `top_p` or more, at least one; 1 keeps all.
 */
STRATA_API STRATA_NODISCARD strata_status strata_logits_top_p(float *logits, uint64_t count,
                                                              float top_p);

/** Keeps what has at least `min_p` times the likeliest's probability; 0 keeps all. */
STRATA_API STRATA_NODISCARD strata_status strata_logits_min_p(float *logits, uint64_t count,
                                                              float min_p);

/**
 * Makes tokens that came before less likely (Keskar et al., 2019): positive logits are divided by
 * the penalty, others multiplied, once for each token however often it is listed.
 */
STRATA_API STRATA_NODISCARD strata_status
strata_logits_repetition_penalty(float *logits, uint64_t count, const int32_t *recent_tokens,
                                 uint64_t recent_count, float penalty);

STRATA_END_DECLS

#endif
