/* SPDX-License-Identifier: MIT */
/* Sampling on one row of logits; see strata/sample.h. Arguments are checked by the caller. */
#ifndef STRATA_TEXT_SAMPLE_H
#define STRATA_TEXT_SAMPLE_H

#include <stdint.h>

#include <strata/sample.h>

strata_status strata__sample(const strata_sample_options *options, float *logits, uint64_t count,
                             uint64_t *random_state, int32_t *out_token);
strata_status strata__logits_greedy(const float *logits, uint64_t count, int32_t *out_token);
strata_status strata__logits_draw(const float *logits, uint64_t count, uint64_t *random_state,
                                  int32_t *out_token);
void strata__logits_temperature(float *logits, uint64_t count, float temperature);
void strata__logits_top_k(float *logits, uint64_t count, uint32_t top_k);
void strata__logits_top_p(float *logits, uint64_t count, float top_p);
void strata__logits_min_p(float *logits, uint64_t count, float min_p);
void strata__logits_repetition_penalty(float *logits, uint64_t count, const int32_t *recent,
                                       uint64_t recent_count, float penalty);

#endif
