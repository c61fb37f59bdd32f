/* SPDX-License-Identifier: MIT */
/*
 * The experts in host memory. A thread of its own page-locks the pack's mapped file piece by piece,
 * up to a budget, while prompts are read already. Where the driver does not lock mapped files, a
 * piece is copied once to page-locked memory and its pages of the file are let go. What is not
 * locked costs speed, never an error. One tier serves all sessions of a pack.
 */
#ifndef STRATA_SESSION_HOST_TIER_H
#define STRATA_SESSION_HOST_TIER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "device/device.h"
#include "pack/pack.h"

typedef enum strata__tier_state {
    STRATA__TIER_PENDING,  /* the thread has still to come to it */
    STRATA__TIER_PINNED,   /* page-locked */
    STRATA__TIER_UNPINNED, /* beyond the budget, or refused */
} strata__tier_state;

typedef struct strata__tier_piece {
    const uint8_t *base; /* whole pages of the pack's memory */
    uint64_t bytes;
    uint8_t *copy; /* page-locked copy of it, or NULL: the memory itself is page-locked */
    uint64_t heat; /* uses of the experts in it */
    uint32_t layer;
    uint32_t resident; /* 1: all experts in it have a place on the device */
    atomic_uint state; /* strata__tier_state; the rest is fixed once it is not pending */
} strata__tier_piece;

typedef struct strata__host_tier {
    const strata__allocator *allocator;
    strata__device *device; /* held */
    uint32_t users;         /* under the pack's lock */
    uint32_t piece_count;
    uint32_t piece_capacity;
    uint64_t piece_bytes;
    bool may_copy; /* the pack is a file, whose pages can be let go */
    bool started;
    bool stop;                  /* under the lock */
    strata__tier_piece *pieces; /* by address */
    uint32_t *order;            /* of locking */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a piece is no longer pending */
    _Atomic uint64_t wanted_bytes;
    _Atomic uint64_t pinned_bytes;
    _Atomic uint64_t refused_bytes;
} strata__host_tier;

typedef struct strata__tier_options {
    const strata__geometry *geometry;
    const strata__layer *layers;
    const uint64_t *uses;   /* [layers][experts] a profile, or NULL: in the order of the layers */
    uint8_t *const *places; /* [layers][experts] on the device; NULL: none */
    uint64_t limit_bytes;   /* of page-locked memory */
    uint64_t piece_bytes;   /* 0: 64 MiB */
} strata__tier_options;

/* The pack's tier, made with the first session's options. */
strata_status strata__tier_acquire(strata__pack *pack, strata__device *device,
                                   const strata__tier_options *options, strata__host_tier **out);
void strata__tier_release(strata__pack *pack, strata__host_tier *tier); /* NULL is legal */

/* What is known of the memory at an address. */
typedef struct strata__tier_span {
    uint32_t state;
    const uint8_t *at; /* where to read it: its address, or in a copy */
    uint64_t bytes;    /* from there on that are alike */
} strata__tier_span;

/* Of the pieces, but for the last of a tensor; NULL is legal. */
uint64_t strata__tier_piece_bytes(const strata__host_tier *tier);

/* NULL is legal: nothing is page-locked. */
strata__tier_span strata__tier_find(const strata__host_tier *tier, const void *at);

/* Waits until the memory at an address is not pending, or `cancel` is set. */
void strata__tier_wait(strata__host_tier *tier, const void *at, const atomic_bool *cancel);

#endif
