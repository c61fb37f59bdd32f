/* SPDX-License-Identifier: MIT */
/*
 * Of decoding: what the expert cache keeps. Each expert has a score, how often it was used, where
 * uses count half as much every so many rows. Between two steps an expert that is not on the device
 * takes the place of the one of its layer with the least score, where its own is enough higher that
 * an expert used once or twice stays away.
 *
 * A place changes hands in three steps, none of which a running step sees:
 *
 *   between steps   the old tenant is absent for every step from here on; copies of the new one are
 *                   enqueued on the copy stream, and an event behind them is recorded
 *   steps           read both where they are in host memory
 *   between steps   the event has come true: the new tenant is present
 */
#ifndef STRATA_SESSION_DECODE_CACHE_H
#define STRATA_SESSION_DECODE_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include <strata/decode.h>

#include "device/device.h"

enum { STRATA__ADMIT_BATCHES = 4, STRATA__ADMIT_MOST = 64 };

/* Experts whose copies are under way. */
typedef struct strata__admit_batch {
    strata__event *done;
    uint32_t count;
    uint64_t index[STRATA__ADMIT_MOST]; /* in the cache's tables */
} strata__admit_batch;

typedef struct strata__decode_cache {
    strata_cache_policy policy;
    double *score;  /* [layers][experts]; NULL: nothing is ever streamed */
    uint64_t *seen; /* [layers][experts] uses that the score knows */
    double now;     /* what a use counts at present */
    strata__admit_batch batches[STRATA__ADMIT_BATCHES];
    uint32_t first; /* of the batches under way */
    uint32_t count;
    uint32_t turn; /* layer that may choose first */
} strata__decode_cache;

strata_status strata__decode_cache_init(strata_session *session);
/* Also half built, or zeros; both streams idle. */
void strata__decode_cache_finish(strata_session *session);

/* Between steps: experts whose copies are done are on the device from here on. */
strata_status strata__decode_cache_publish(strata_session *session);

/* The same for all, which are waited for: nothing is under way afterwards. */
strata_status strata__decode_cache_settle(strata_session *session);

/* Prompts may have counted uses: the scores know of them from here on. */
void strata__decode_cache_catch_up(strata_session *session);

/*
 * A step of `rows` rows is over: counts what it used, and begins to copy what is worth it. A copy
 * that fails costs a place its content and nothing else.
 */
void strata__decode_cache_learn(strata_session *session, uint32_t rows);

/* With the session entered or before its first call; NULL: the defaults. */
strata_status strata__session_set_cache_policy(strata_session *session,
                                               const strata_cache_policy *policy);

#endif
