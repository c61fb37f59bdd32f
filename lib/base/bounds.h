/* SPDX-License-Identifier: MIT */
/*
 * Bounds that several modules rely on. What is sized by one of them is refused beyond it, by the
 * pack for models and by the layout for plans.
 */
#ifndef STRATA_BASE_BOUNDS_H
#define STRATA_BASE_BOUNDS_H

enum {
    STRATA__MAX_LAYERS = 512,
    STRATA__MAX_EXPERTS = 1024, /* of a layer */
    STRATA__MAX_TOP_K = 16,     /* experts of a row */
    STRATA__DIRECT_ROWS = 16    /* rows that path direct takes at most, and a step of decoding */
};

#endif
