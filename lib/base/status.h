/* SPDX-License-Identifier: MIT */
#ifndef STRATA_BASE_STATUS_H
#define STRATA_BASE_STATUS_H

#include <strata/base.h>

/* Static storage, never NULL, also for a value that is no status. */
const char *strata__status_name(strata_status status);
const char *strata__status_string(strata_status status);

#endif
