/* SPDX-License-Identifier: MIT */
/*
 * The feed: brings the blobs of a prompt's experts to the device, ahead of the kernels that read
 * them.
 *
 * A layer's experts are cut into pieces of neighbours. Pieces are sent in a fixed order, layer
 * after layer, chunk after chunk, by copies on a stream of their own. What has a place in the
 * expert cache goes there and stays; the rest goes through the ring, where each expert has one
 * address for the whole prompt, so that the tables of pointers are written once.
 *
 *   streamed   pieces are sent a little ahead of the layer that is being computed, as far as the
 *              ring holds, without blobs that earlier rows hardly used; once a layer's routing is
 *              known, what of these is routed follows, and blobs that are not routed are left out
 *   fetched    nothing is sent before the routing of its layer is known
 *
 * A launch takes experts of several pieces: all that are at hand, and else as many as half of the
 * ring holds, so that the other half is filled meanwhile.
 *
 * Every call here is made by the thread that reads the prompt, between any two launches, and none
 * waits but strata__feed_acquire(), for what the next launch cannot do without.
 */
#ifndef STRATA_SESSION_FEED_H
#define STRATA_SESSION_FEED_H

#include <stdbool.h>
#include <stdint.h>

#include <strata/prefill.h>
#include <strata/session.h>

#include "session/ring.h"
#include "session/staging.h"
#include "session/timeline.h"

typedef enum strata__feed_state {
    STRATA__FEED_WAITING,
    STRATA__FEED_STAGED, /* its buffer is filled or being filled */
    STRATA__FEED_SENT,   /* its copies are enqueued, if there were any */
    STRATA__FEED_IN_USE  /* kernels that read it may be enqueued */
} strata__feed_state;

typedef struct strata__feed_piece {
    uint32_t layer;
    uint32_t first; /* experts [first, end) */
    uint32_t end;
    uint32_t state; /* strata__feed_state */
    uint64_t ring_offset;
    uint64_t ring_bytes; /* of those without a place in the cache */
    strata__ring_piece ring;
    strata__ring_piece more;        /* copies that followed, to the same bytes or the cache */
    bool rest;                      /* sent but for routed blobs, which are to follow */
    strata__staging_buffer *buffer; /* of a staged piece */
} strata__feed_piece;

/* How a chunk's blobs are brought. */
typedef struct strata__feed_way {
    uint32_t rows;
    bool fetch;
} strata__feed_way;

typedef struct strata__feed {
    strata_session *session;
    uint8_t *ring_base;
    strata__timeline *timeline;
    strata__ring ring;
    strata__staging staging;
    strata__feed_piece *pieces; /* of one chunk, in the order they are sent */
    uint32_t *first_piece;      /* [layers + 1] */
    uint8_t *sent;              /* [layers][experts] sent before the layer's routing was known */
    strata__copy_list list;     /* of a piece that is not staged */
    strata__copies many;        /* room for the device's copies of a list */
    uint32_t piece_count;
    uint32_t piece_capacity;
    uint32_t layer; /* the present one */
    uint32_t reserved;
    uint64_t generation;     /* of the cache that the table was made for; 0: none */
    uint64_t window_bytes;   /* that may be outstanding ahead of routing */
    uint64_t launch_bytes;   /* of the ring that one launch may take */
    uint64_t seen_bytes;     /* sent to the ring ahead of routing that has been seen since */
    uint64_t unrouted_bytes; /* part of them that was not routed */
    uint64_t unseen_bytes;   /* sent ahead of routing that is still to be seen */
    uint64_t sent_bytes;     /* for the prompt */
    uint64_t vain_bytes;     /* part of them that was not routed and is not kept */
    uint64_t pass;           /* of the present chunk */
    uint64_t passes;         /* of the prompt */
    uint64_t sent_pieces;    /* of all passes: the next piece to be sent */
    uint64_t staged_pieces;  /* the next piece to be looked at for staging */
    uint64_t done_pieces;    /* whose kernels are all enqueued */
    const uint32_t *offsets; /* of the present layer's rows; NULL: not known */
    strata__feed_way way;    /* of the present chunk */
    strata__feed_way next;   /* of the next */
    uint64_t rests;          /* pieces of the present layer that have a rest */
} strata__feed;

strata_status strata__feed_init(strata__feed *feed, strata_prefill *prefill);
void strata__feed_finish(strata__feed *feed); /* both streams idle; also half built, or zeros */

/*
 * Also where all experts are on the device: the tables are the feed's then, and of the calls below
 * there is the next one alone.
 *
 * A prompt begins. Answers whether the experts' addresses have changed since the last one; then
 * they are in tables[layers with experts][3][experts].
 */
bool strata__feed_begin(strata__feed *feed, uint64_t passes, const void **tables);

/* A chunk begins; without a next one, `next` is zeros. */
void strata__feed_chunk(strata__feed *feed, uint64_t pass, strata__feed_way way,
                        strata__feed_way next);

/* The rows of a layer are grouped: expert e has offsets[e + 1] - offsets[e] of them. */
void strata__feed_routed(strata__feed *feed, uint32_t layer, const uint32_t *offsets);

/* Sends what may be sent now. Looks at events and flags, waits for none. */
strata_status strata__feed_advance(strata__feed *feed);

/* Kernels enqueued from here on find the routed experts [first, last] of the present layer. */
strata_status strata__feed_acquire(strata__feed *feed, uint32_t first, uint32_t last);

/* One behind the last expert that a launch beginning with `first` may take. */
uint32_t strata__feed_limit(const strata__feed *feed, uint32_t first);

/* All kernels that read experts below `end` of the present layer are enqueued. */
strata_status strata__feed_release(strata__feed *feed, uint32_t end);

/*
 * The prompt is over, in whatever way, and both streams are idle. `is_copied`: what was enqueued on
 * the copy stream has come to its end.
 */
void strata__feed_end(strata__feed *feed, bool is_copied);

#endif
