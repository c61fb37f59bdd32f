/* SPDX-License-Identifier: MIT */
/* Of the feed: how layers are cut into pieces, and where in the ring each piece goes. */
#ifndef STRATA_SESSION_FEED_TABLE_H
#define STRATA_SESSION_FEED_TABLE_H

#include "session/feed_list.h"

/* Experts of a piece; 0: the layer has none. */
uint32_t strata__feed_group(const strata_session *session, uint32_t layer);

/* Pieces of a chunk, whatever has a place in the cache. */
uint32_t strata__feed_table_capacity(const strata_session *session);

/*
 * Cuts the layers by the plan's groups and the cache's places; a chunk starts at the ring's start.
 */
void strata__feed_table_build(strata__feed *feed);

/* The addresses that follow: [layers with experts][gate, up, down][experts]. */
void strata__feed_table_write(const strata__feed *feed, const void **tables);

#endif
