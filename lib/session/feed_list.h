/* SPDX-License-Identifier: MIT */
/* Of the feed: the copies that a piece takes. */
#ifndef STRATA_SESSION_FEED_LIST_H
#define STRATA_SESSION_FEED_LIST_H

#include "session/feed.h"

/* What feed->sent says of an expert; NEW: in the list that is being made. */
enum { STRATA__SENT_NOT, STRATA__SENT_TO_CACHE, STRATA__SENT_TO_RING, STRATA__SENT_NEW = 0x80 };

/* Where an expert's blob is or will be for kernels. */
uint8_t *strata__feed_address(const strata__feed *feed, const strata__feed_piece *piece,
                              uint32_t expert);

/* The most copies of any piece, for the capacity of lists. */
uint64_t strata__feed_list_capacity(const strata_session *session);

/*
 * Lists the copies of what is absent and was not sent, and notes them in feed->sent: of what is
 * routed where `offsets` is not NULL, else of what a chunk of `rows` rows is likely to use.
 * *out_pending: host memory that is still to be page-locked, and no list; else NULL.
 */
strata_status strata__feed_list(strata__feed *feed, const strata__feed_piece *piece,
                                const uint32_t *offsets, uint32_t rows, strata__copy_list *list,
                                const void **out_pending);

/* Nothing of a piece is noted in feed->sent any more. */
void strata__feed_forget(strata__feed *feed, const strata__feed_piece *piece);

/* The experts of a piece that feed->sent says go to the cache are in a state. */
void strata__feed_mark(strata__feed *feed, const strata__feed_piece *piece, uint8_t state);

#endif
