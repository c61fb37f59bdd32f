/* SPDX-License-Identifier: MIT */
/* A device budget that changes while the session lives: the expert cache shrinks and grows. */
#ifndef STRATA_SESSION_BUDGET_H
#define STRATA_SESSION_BUDGET_H

#include "session/session.h"

/*
 * Between prompts, with the session entered and its streams idle: the budget asked for is met. An
 * error comes from filling places that came back; the session can be used without.
 */
strata_status strata__budget_apply(strata_session *session);

/* Whether no other budget was asked for since. */
bool strata__budget_is_met(const strata_session *session);

#endif
