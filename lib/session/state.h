/* SPDX-License-Identifier: MIT */
/* What a session and a prefill consist of. Seen by lib/session alone. */
#ifndef STRATA_SESSION_STATE_H
#define STRATA_SESSION_STATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/context.h"
#include "device/device.h"
#include "kernels/kernels.h"
#include "layout/layout.h"
#include "pack/pack.h"
#include "session/cache.h"
#include "session/decode.h"
#include "session/experts.h"
#include "session/feed.h"
#include "session/host_tier.h"
#include "session/kv.h"
#include "session/loan.h"
#include "session/profile.h"
#include "session/region.h"
#include "session/session.h"
#include "session/step_host.h"
#include "session/timeline.h"
#include "session/weights.h"

/* Written by the session's thread, read by any. */
typedef struct strata__counters {
    _Atomic uint64_t prompt_tokens;
    _Atomic uint64_t prompt_chunks;
    _Atomic uint64_t prompt_ns;
    _Atomic uint64_t expert_rows;
    _Atomic uint64_t expert_launches;
    _Atomic uint64_t device_bytes;
    _Atomic uint64_t host_bytes;
    _Atomic uint64_t device_runtime_bytes;
    _Atomic uint64_t kernel_ns; /* prompt_ns in three parts */
    _Atomic uint64_t blob_wait_ns;
    _Atomic uint64_t host_gap_ns;
    _Atomic uint64_t blob_sent_bytes;    /* of experts: enqueued on the link */
    _Atomic uint64_t blob_slow_bytes;    /* of those: from memory that is not page-locked */
    _Atomic uint64_t blob_hit_bytes;     /* routed, and on the device already */
    _Atomic uint64_t blob_dropped_bytes; /* absent, not routed, and not sent */
    _Atomic uint64_t blob_vain_bytes;    /* sent through the ring and not routed */
    _Atomic uint64_t blob_filled_bytes;  /* sent to the cache and not routed */
    _Atomic uint64_t refill_bytes;       /* copied into a range that was lent, and published */
    _Atomic uint64_t link_bytes;         /* whose time on the link is known, and that time */
    _Atomic uint64_t link_ns;
    _Atomic uint64_t decode_tokens; /* of steps that were done */
    _Atomic uint64_t decode_steps;
    _Atomic uint64_t decode_ns;
    _Atomic uint64_t decode_hit_bytes;
    _Atomic uint64_t decode_place_bytes;
    _Atomic uint64_t decode_fetch_bytes;
    _Atomic uint64_t decode_admit_bytes;
} strata__counters;

struct strata_session {
    atomic_uint references; /* the caller's, and its prefill's */
    atomic_bool busy;       /* a call is using the session */
    atomic_bool cancel;     /* the running call is to stop */
    bool lost;              /* the device can no longer be used */
    bool is_unsettled;      /* a stream could not be waited for: what it was given may still run */
    bool has_prefill;
    bool is_released;               /* by its owner: a prefill alone keeps it */
    _Atomic uint64_t budget_bytes;  /* asked for; 0: the plan's */
    uint64_t met_budget_bytes;      /* that the cache was last resized for */
    _Atomic uint64_t prefill_bytes; /* of device memory that a prefill has allocated */
    strata_context *context;
    strata__pack *pack;
    const strata__geometry *geometry;
    const strata__layer *layers;
    strata_plan *plan;            /* retained */
    const strata__layout *layout; /* the plan's */
    strata__device *device;
    strata__kernels *kernels;
    strata__stream *stream;
    strata__stream *copies;     /* of blobs; NULL: the session has no cache */
    strata__event *routed;      /* the grouping of a layer's rows has run */
    strata__region memory;      /* the session region, without a cache that is apart */
    strata__region loan_memory; /* what prompts may borrow; zeros: the plan lends nothing */
    strata__weights weights;
    strata__experts experts;
    strata__cache cache; /* zeros unless experts are copied to the device */
    strata__loan loan;   /* zeros as above */
    /* NULL: none is streamed, or the caller gives the experts. Read by any thread for statistics */
    strata__host_tier *_Atomic tier;
    strata__kv kv;
    strata__decode decode;
    strata__counters counters;
};

struct strata_prefill {
    strata_session *session; /* retained */
    strata__region memory;   /* the prompt region */
    strata__step_host host;
    strata__timeline timeline;
    strata__feed feed; /* zeros unless experts are copied to the device */
    bool is_lent;      /* the prompt region is the loan */
    bool keeps_loan;   /* between prompts */
};

/* The device that was current for a thread. */
typedef struct strata__saved_device {
    _Alignas(16) uint8_t bytes[STRATA__DEVICE_SAVED_BYTES];
} strata__saved_device;

/*
 * STRATA_ERR_BUSY, or the session is the caller's and its device current until
 * strata__session_leave(). STRATA_ERR_DEVICE_LOST for good once that was answered.
 */
strata_status strata__session_enter(strata_session *session, strata__saved_device *saved);
void strata__session_leave(strata_session *session, const strata__saved_device *saved);

/* Where a call may stop: STRATA_ERR_CANCELLED with `what` it was, or STRATA_OK. */
strata_status strata__session_check_cancel(const strata_session *session, const char *what);

/* Sets device_runtime_bytes from what is free on the device, which must be current. */
void strata__session_measure(strata_session *session);
/* Free on the device, which must be current; 0: unknown. */
uint64_t strata__session_free_bytes(const strata_session *session);
/*
 * Counts what became less since `free_bytes` were free as taken by the driver too, or more as given
 * back.
 */
void strata__session_measure_since(strata_session *session, uint64_t free_bytes);

/*
 * After a failure: waits for what is enqueued for kernels, and remembers a device that is lost. The
 * text of the failure that led here stays.
 */
void strata__session_drain(strata_session *session, strata_status status);

/*
 * Waits for the copies of blobs. When that fails, the session is entered again only after streams
 * have been waited for.
 */
strata_status strata__session_wait_copies(strata_session *session);

/* Whether experts are copied to the device, all or some of them. */
static inline bool strata__has_cache(const strata_session *session)
{
    return session->cache.places != NULL;
}

strata_session *strata__session_retain(strata_session *session);

static inline void strata__counter_add(_Atomic uint64_t *counter, uint64_t amount)
{
    atomic_fetch_add_explicit(counter, amount, memory_order_relaxed);
}

#endif
