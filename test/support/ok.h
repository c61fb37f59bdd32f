/* SPDX-License-Identifier: MIT */
/* For tests of what lies below the public API; after cmocka.h. */
#ifndef TEST_SUPPORT_OK_H
#define TEST_SUPPORT_OK_H

#include "base/error.h"

/* Fails the running test, with the detail text, unless the status is STRATA_OK. */
static inline void ok(strata_status status)
{
    if (status != STRATA_OK)
        fail_msg("%d: %s", (int)status, strata__error_text());
}

#endif
