/* SPDX-License-Identifier: MIT */
/*
 * Of decoding, where experts are copied to the device: the table that kernels find them by.
 *
 *   on the device   its place in the expert cache
 *   in place        page-locked host memory that kernels read where it is, over the link
 *   neither         no address: a step that may need such an expert waits for each layer's routing
 *                   and fetches what was routed, through a small ring
 *
 * The table changes between steps only, so that what was enqueued once can be run again. The ring's
 * copies are enqueued on the kernels' stream, between launches: its order keeps them apart.
 */
#ifndef STRATA_SESSION_DECODE_EXPERTS_H
#define STRATA_SESSION_DECODE_EXPERTS_H

#include <stdbool.h>
#include <stdint.h>

#include <strata/base.h>
#include <strata/session.h>

struct strata__step;

typedef struct strata__decode_experts {
    const void **table; /* host, page-locked: [expert layers][3][experts]; NULL: they are not */
    uint32_t *row;      /* [layers] expert layers before each */
    uint8_t *ring;      /* device; NULL: all experts stay there */
    uint64_t ring_bytes;
    strata_expert_blob *host; /* [layers][experts] where kernels can read it; NULLs: nowhere */
    uint8_t *alone;           /* [layers][experts] 1: nowhere, and that will stay so */
    uint64_t generation;      /* of the cache that the table shows */
    uint64_t locked_bytes;    /* of host memory, when `host` was made; UINT64_MAX: never */
    uint64_t absent;          /* experts without an address */
    uint32_t first_dirty;     /* rows of the table that the device has not: [first, end) */
    uint32_t end_dirty;
    bool is_stale; /* the table shows nothing */
} strata__decode_experts;

strata_status strata__decode_experts_init(strata_session *session);
void strata__decode_experts_finish(strata_session *session); /* also half built, or zeros */

/* The table shows what the cache holds and what is page-locked by now. Between steps. */
void strata__decode_experts_refresh(strata_session *session);

/* The same for one expert, whose place has changed. */
void strata__decode_experts_set(strata_session *session, uint32_t layer, uint32_t expert);

/* Whether an expert's address is in the ring, or the caller's for this step. */
bool strata__decode_experts_is_fetched(const strata_session *session, uint32_t layer,
                                       uint32_t expert);

/* After a step: the address that an expert was fetched to is no longer its own. */
void strata__decode_experts_forget(strata_session *session, uint32_t layer, uint32_t expert);

/* Enqueues what of the table the device has not. */
strata_status strata__decode_experts_upload(strata_session *session);

/* One behind the last expert that a launch beginning with `first` may take. */
uint32_t strata__decode_experts_limit(const struct strata__step *step, uint32_t first);

/* Kernels enqueued from here on find the routed experts [first, last] of the step's layer. */
strata_status strata__decode_experts_fetch(struct strata__step *step, uint32_t first,
                                           uint32_t last);

#endif
