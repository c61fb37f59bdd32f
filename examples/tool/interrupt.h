/* SPDX-License-Identifier: MIT */
/* Ctrl-C stops what the library does instead of the process; a second one ends the process. */
#ifndef STRATA_TOOL_INTERRUPT_H
#define STRATA_TOOL_INTERRUPT_H

#include <stdbool.h>

#include <strata/strata.h>

/* Until interrupt_release() as often as this was called. The first call forgets what was seen. */
void interrupt_catch(void);
void interrupt_release(void);

/* An interrupt cancels this session's call; NULL: none. */
void interrupt_cancels(strata_session *session);

bool interrupt_seen(void);

#endif
