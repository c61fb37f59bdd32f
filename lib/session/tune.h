/* SPDX-License-Identifier: MIT */
/* Measures what expert products cost on a device, as text for plan_costs.h. */
#ifndef STRATA_SESSION_TUNE_H
#define STRATA_SESSION_TUNE_H

#include <stdint.h>

#include "base/context.h"

/*
 * `name`: as strata__device_open() takes it. `text` gets the text and its NUL where they fit,
 * *out_bytes their number.
 */
strata_status strata__tune(strata_context *context, const char *name, char *text, uint64_t capacity,
                           uint64_t *out_bytes);

#endif
