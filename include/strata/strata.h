/* SPDX-License-Identifier: MIT */
/**
 * @file
 * Everything.
 */
#ifndef STRATA_STRATA_H
#define STRATA_STRATA_H

#include <strata/base.h>
#include <strata/context.h>
#include <strata/decode.h>
#include <strata/device.h>
#include <strata/pack.h>
#include <strata/plan.h>
#include <strata/prefill.h>
#include <strata/sample.h>
#include <strata/session.h>
#include <strata/state.h>
#include <strata/text.h>

#endif
