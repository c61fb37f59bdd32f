/* SPDX-License-Identifier: MIT */
/* How far the logits of two settings are apart. */
#ifndef STRATA_TOOL_COMPARE_H
#define STRATA_TOOL_COMPARE_H

#include <stdbool.h>
#include <stdint.h>

/* Over the positions compared. */
typedef struct difference {
    double kl_mean; /* Kullback-Leibler divergence from the reference, in nats */
    double kl_most;
    double top_share;   /* of positions with the same likeliest token */
    double logit_most;  /* largest absolute difference of a logit */
    bool same_last_top; /* the last position's likeliest token */
} difference;

difference compare_logits(const float *reference, const float *other, uint64_t positions,
                          uint64_t count);

#endif
