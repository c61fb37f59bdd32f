/* SPDX-License-Identifier: MIT */
/*
 * The loan: one range of the expert cache, fixed in the plan, that prompts may use as their memory.
 *
 * Before it is lent, blobs in it that are hotter than what the rest of the cache holds of their
 * layer are moved there, device to device. When it comes back, in whatever way the prompt ended, it
 * is filled with the hottest absent blobs, hottest first, by a thread; what that has copied is
 * published between prompts, without making kernels wait. Until then nobody sees it.
 */
#ifndef STRATA_SESSION_LOAN_H
#define STRATA_SESSION_LOAN_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <strata/session.h>

#include "device/device.h"

typedef struct strata__loan_blob {
    uint64_t index; /* in the cache's tables */
    uint64_t uses;
    uint8_t *place;
    strata_expert_blob given; /* by the caller's source */
} strata__loan_blob;

typedef struct strata__loan {
    strata_session *session;
    uint8_t *base; /* NULL: the plan has no loan */
    uint64_t bytes;
    strata__loan_blob *blobs; /* of the refill, hottest first */
    uint64_t capacity;
    uint64_t count;
    uint64_t published;
    _Atomic uint64_t copied; /* blobs that are there */
    strata__stream *stream;
    strata__event *moved;
    pthread_t thread;
    bool is_running;
    bool is_lent;
    bool may_write; /* copies of a refill could not be waited for */
    atomic_bool stop;
} strata__loan;

/* After the cache. */
strata_status strata__loan_init(strata__loan *loan, strata_session *session);
void strata__loan_finish(strata__loan *loan); /* streams idle; also half built, or zeros */

/* Ends a refill, moves what is hot out of the range, and hands the range out. */
strata_status strata__loan_take(strata__loan *loan);

/*
 * Takes the range back and begins to refill it; unless both streams are idle, it stays empty, since
 * work on them may still write there.
 */
void strata__loan_return(strata__loan *loan, bool is_idle);

/* Between prompts: what the refill has copied is in the cache from here on. */
void strata__loan_publish(strata__loan *loan);

/* Ends a refill within a blob; what it has copied is published. */
void strata__loan_settle(strata__loan *loan);

/* The same; when it succeeds, no copy of a refill writes to the range any more. */
strata_status strata__loan_quiet(strata__loan *loan);

/* Blobs in the range have no place there any more. */
void strata__loan_clear(strata__loan *loan);

#endif
