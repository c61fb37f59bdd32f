/* SPDX-License-Identifier: MIT */
/* Of the feed: which experts a launch takes (strata__feed_limit). */
#ifndef STRATA_SESSION_FEED_LAUNCH_H
#define STRATA_SESSION_FEED_LAUNCH_H

#include "session/feed.h"

/* The piece of the present layer that has an expert. */
uint32_t strata__feed_index(const strata__feed *feed, uint32_t expert);

/* Kernels need not wait for the piece, nor the host. */
bool strata__feed_has_arrived(const strata__feed *feed, const strata__feed_piece *piece);

#endif
