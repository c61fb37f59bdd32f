/* SPDX-License-Identifier: MIT */
/* One step of decoding, from the look at the cache to the logits. Seen by lib/session alone. */
#ifndef STRATA_SESSION_DECODE_STEP_H
#define STRATA_SESSION_DECODE_STEP_H

#include "session/state.h"
#include "session/step.h"

typedef struct strata__round {
    strata_session *session;
    const strata_decode_request *request; /* checked */
    strata_decode_result *result;
    strata__step_part parts[STRATA_DECODE_MOST_ROWS];
    uint32_t rows;
    bool is_blind; /* the host did not see what was routed where */
} strata__round;

/* The request's logits are there when it succeeds; lengths are as before. */
strata_status strata__round_run(strata__round *round);

#endif
