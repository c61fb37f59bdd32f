/* SPDX-License-Identifier: MIT */
/*
 * Decoding: steps of a few rows in memory of the session's own. A step's rows pass all layers
 * without the host looking at what they are routed to, where every expert has an address that the
 * device can read; the host learns the routing when the step is over.
 */
#ifndef STRATA_SESSION_DECODE_H
#define STRATA_SESSION_DECODE_H

#include <stdbool.h>
#include <stdint.h>

#include <strata/decode.h>

#include "base/alloc.h"
#include "session/decode_cache.h"
#include "session/decode_experts.h"
#include "session/decode_graph.h"
#include "session/step_host.h"

typedef struct strata__decode {
    strata__step_host host; /* zeros: the plan has no decoding */
    strata__decode_experts experts;
    strata__decode_cache cache;
    strata__decode_graphs graphs;
} strata__decode;

/* After experts and KV pages. */
strata_status strata__decode_init(strata_session *session);
void strata__decode_finish(strata_session *session); /* stream idle; also half built, or zeros */

/* Before a prompt, or whatever else changes the cache: nothing of it is under way. */
strata_status strata__decode_settle(strata_session *session);

/* Behind it: the next step looks at the cache anew. */
void strata__decode_forget(strata_session *session);

strata_status strata__session_decode(strata_session *session, const strata_decode_request *request,
                                     strata_decode_result *out);

#endif
