/* SPDX-License-Identifier: MIT */
/*
 * Which experts have a place on the device, where it is, and whether the expert is there. Every
 * layer has as many places as the plan says; a profile says whose they are, else the first
 * experts'. Places are filled by the first prompt that needs the expert, on its way past, or before
 * the first prompt where all experts have one. Beside them there is the range that prompts may
 * borrow (loan.h).
 *
 * The library's own memory for places is in segments of whole layers, so that a smaller budget can
 * be met while the session lives.
 *
 * Also how often each expert was used, which is what a profile is.
 */
#ifndef STRATA_SESSION_CACHE_H
#define STRATA_SESSION_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include <strata/session.h>

#include "base/alloc.h"
#include "session/region.h"

typedef enum strata__blob_state {
    STRATA__BLOB_ABSENT,
    STRATA__BLOB_COPYING, /* enqueued on the copy stream; kernels have to wait */
    STRATA__BLOB_PRESENT  /* whatever is enqueued for kernels from here on finds it */
} strata__blob_state;

/* Places of the layers [first_layer, end_layer); base NULL: given back. */
typedef struct strata__cache_segment {
    strata__region memory;
    uint64_t offset; /* of the plan's session region */
    uint64_t bytes;
    uint32_t first_layer;
    uint32_t end_layer;
} strata__cache_segment;

enum { STRATA__CACHE_SEGMENTS = 8 };

typedef struct strata__cache {
    const strata__allocator *allocator;
    uint8_t **places; /* [layers][experts] NULL: none */
    uint8_t *states;  /* [layers][experts] strata__blob_state */
    uint64_t *uses;   /* [layers][experts] rows that it multiplied */
    uint64_t count;   /* layers times experts */
    uint32_t experts;
    uint32_t layers;
    uint64_t generation; /* changes with any place */
    uint64_t bytes;      /* of segments that are there */
    uint32_t segment_count;
    bool has_profile;
    strata__cache_segment segments[STRATA__CACHE_SEGMENTS];
} strata__cache;

/* Whether the cache has memory of its own, which is not part of the session's region. */
bool strata__cache_is_apart(const strata_session *session, const strata_session_options *options);

/* `uses` (or NULL) is a profile of the pack, whose hottest experts get the places. */
strata_status strata__cache_init(strata__cache *cache, strata_session *session,
                                 const uint64_t *uses);
void strata__cache_finish(strata__cache *cache, strata_session *session); /* also half built */

static inline uint64_t strata__cache_index(const strata__cache *cache, uint32_t layer,
                                           uint32_t expert)
{
    return (uint64_t)layer * cache->experts + expert;
}

/* Forgets what is on the device. Nothing may be in flight. */
void strata__cache_empty(strata__cache *cache);

/* Whether all memory that the plan has for places is there. */
bool strata__cache_is_complete(const strata__cache *cache);

/*
 * Gives segments back, or allocates given ones again, so that the cache has as much as fits `bytes`
 * bytes. Nothing may be in flight.
 */
void strata__cache_resize(strata__cache *cache, strata_session *session, uint64_t bytes);

#endif
