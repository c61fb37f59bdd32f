/* SPDX-License-Identifier: MIT */
/*
 * The ring: bytes of the device that streamed blobs land in, piece after piece in a fixed order.
 * Copies run on one stream, the kernels that read them on another; events order the two.
 *
 *   free       nothing, or what its last reader's `used` event was recorded for
 *   copying    the copies are enqueued and `ready` is recorded behind them
 *   ready      the host has seen `ready` come true
 *   in use     kernels that read it are enqueued behind a wait for `ready`
 *
 *   free -> copying -> [ready ->] in use -> free
 *
 * A piece is claimed only when every piece that has bytes in common with it is free, so that a copy
 * is never enqueued before its last tenant's `used` has been recorded: a wait on an event that was
 * never recorded would be no wait. A piece of 0 bytes, whose copies go elsewhere, has the same
 * life.
 */
#ifndef STRATA_SESSION_RING_H
#define STRATA_SESSION_RING_H

#include <stdbool.h>
#include <stdint.h>

#include "device/device.h"

typedef enum strata__ring_state {
    STRATA__RING_FREE,
    STRATA__RING_COPYING,
    STRATA__RING_READY,
    STRATA__RING_IN_USE
} strata__ring_state;

typedef struct strata__ring_slot {
    uint64_t tenant; /* number of the piece that has it */
    uint32_t state;  /* strata__ring_state */
    bool kept;       /* free, and its bytes have not been claimed since */
    bool read;       /* `used` was recorded for this tenant */
    bool counted;    /* its copies are known to be done */
    uint64_t offset;
    uint64_t bytes;
    uint64_t copy_bytes;  /* that its copies send */
    strata__event *begun; /* timing: the copies start */
    strata__event *ready; /* timing: the copies are done */
    strata__event *used;  /* the last reader is done */
} strata__ring_slot;

/*
 * A piece in the ring. Its slot may have another tenant once its copies are done and it has no
 * bytes.
 */
typedef struct strata__ring_piece {
    uint64_t tenant; /* 0: none */
    uint32_t slot;
    uint32_t reserved;
} strata__ring_piece;

typedef struct strata__ring {
    strata__device *device;
    strata__stream *copies;
    strata__stream *kernels;
    strata__ring_slot *slots;
    uint32_t slot_count;
    uint32_t reserved;
    uint64_t tenants; /* claimed so far */
    uint64_t bytes;
    uint64_t outstanding_bytes; /* of copies that are not known to be done */
    uint64_t measured_bytes;    /* of copies whose time is known, and that time */
    uint64_t measured_ns;
} strata__ring;

/*
 * Where the next piece goes, from the end of the one before: no piece straddles the end. The caller
 * starts with *cursor = 0.
 */
uint64_t strata__ring_place(uint64_t ring_bytes, uint64_t bytes, uint64_t *cursor);

/* `slot_count` pieces can be remembered at a time. */
strata_status strata__ring_init(strata__ring *ring, strata__device *device, strata__stream *copies,
                                strata__stream *kernels, uint64_t bytes, uint32_t slot_count);
void strata__ring_finish(strata__ring *ring); /* also half built */

/*
 * Makes [offset, offset + bytes) a new tenant's: the copy stream waits for the last readers of what
 * was there. out->tenant is 0 when that is still to be read, or when too many pieces are alive.
 */
strata_status strata__ring_claim(strata__ring *ring, uint64_t offset, uint64_t bytes,
                                 strata__ring_piece *out);

/* The tenant's copies, of copy_bytes together, are all enqueued. */
strata_status strata__ring_copied(strata__ring *ring, const strata__ring_piece *piece,
                                  uint64_t copy_bytes);

/* Kernels enqueued from here on may read the tenant's bytes. */
strata_status strata__ring_use(strata__ring *ring, const strata__ring_piece *piece);

/* All kernels that read the tenant's bytes are enqueued. */
strata_status strata__ring_release(strata__ring *ring, const strata__ring_piece *piece);

/* Looks, never waits, at which copies are done. */
strata_status strata__ring_poll(strata__ring *ring);

/* Whether the host knows that the tenant's copies are done. */
bool strata__ring_is_ready(const strata__ring *ring, const strata__ring_piece *piece);

/* Waits for the copies of some piece of 0 bytes, if there is one, so that its slot is free. */
strata_status strata__ring_make_room(strata__ring *ring);

/* Forgets all tenants. Both streams must be idle. */
void strata__ring_reset(strata__ring *ring);

#endif
