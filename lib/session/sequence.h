/* SPDX-License-Identifier: MIT */
/* The sequences of a session: how long they are, and which pages they share. */
#ifndef STRATA_SESSION_SEQUENCE_H
#define STRATA_SESSION_SEQUENCE_H

#include "session/state.h"

/* STRATA_ERR_INVALID_ARGUMENT unless the plan has such a sequence. */
strata_status strata__sequence_check(const strata_session *session, int32_t sequence_id);

/* strata__session_enter() for a call on such a sequence. */
strata_status strata__sequence_enter(strata_session *session, int32_t sequence_id,
                                     strata__saved_device *saved);

/* strata__sequence_check(); STRATA_ERR_STATE when it holds tokens. */
strata_status strata__sequence_check_empty(const strata_session *session, int32_t sequence_id);

/* For strata__kv.copy_page, with the session as user data: copies on the kernels' stream. */
strata_status strata__sequence_copy_page(void *session, uint32_t from, uint32_t to);

#endif
