/* SPDX-License-Identifier: MIT */
/* How often each expert was used, as bytes that outlive a session. */
#ifndef STRATA_SESSION_PROFILE_H
#define STRATA_SESSION_PROFILE_H

#include <stdint.h>

#include <strata/session.h>

/* Bytes of the session's profile; they are written when they fit. */
uint64_t strata__profile_save(const strata_session *session, void *out, uint64_t capacity);

/*
 * Uses [layers][experts] of saved bytes, which may be anything; the caller frees them.
 * STRATA_ERR_FORMAT: no profile; STRATA_ERR_INVALID_ARGUMENT: another pack's.
 */
strata_status strata__profile_load(const strata_session *session, const void *data, uint64_t bytes,
                                   uint64_t **out);

#endif
