/* SPDX-License-Identifier: MIT */
/* Inside lib/layout: gives the buffers of a configuration their places. */
#ifndef STRATA_LAYOUT_OVERLAY_H
#define STRATA_LAYOUT_OVERLAY_H

#include "layout/layout.h"

/*
 * Sets the offsets of up to STRATA__BUFFER_COUNT buffers, multiples of `alignment` from 0 on, such
 * that buffers that live in a common stage share no byte, and returns the bytes from 0 to the end
 * of the last, rounded up. The same input gives the same places.
 */
uint64_t strata__layout_overlay(strata__layout_buffer *buffers, uint32_t count, uint64_t alignment);

/* No placement takes less: the largest sum of rounded bytes that live in one stage. */
uint64_t strata__layout_overlay_bound(const strata__layout_buffer *buffers, uint32_t count,
                                      uint64_t alignment);

#endif
