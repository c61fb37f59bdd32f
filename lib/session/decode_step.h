/* SPDX-License-Identifier: MIT */
/* One step of decoding, from the look at the cache to the logits. Seen by lib/session alone. */
#ifndef STRATA_SESSION_DECODE_STEP_H
#define STRATA_SESSION_DECODE_STEP_H

#include "base/bounds.h"
#include "session/state.h"
#include "session/step.h"

_Static_assert((int)STRATA_DECODE_MOST_ROWS == (int)STRATA__DIRECT_ROWS,
               "a step may have as many rows");
_Static_assert(sizeof((strata_decode_result *)0)->sequence_tokens / sizeof(uint64_t) ==
                   STRATA__DIRECT_ROWS,
               "every part has its length in the result");

typedef struct strata__round {
    strata_session *session;
    const strata_decode_request *request; /* checked */
    strata_decode_result *result;
    strata__step_part parts[STRATA__DIRECT_ROWS];
    uint32_t rows;
    bool is_blind; /* the host did not see what was routed where */
} strata__round;

/* The request's logits are there when it succeeds; lengths are as before. */
strata_status strata__round_run(strata__round *round);

#endif
