/* SPDX-License-Identifier: MIT */
/*
 * The test device: host memory that poses as device memory, and streams whose work happens at the
 * worst moment that the recorded waits allow, so that a missing wait is a wrong result every time.
 *
 *   copies late    nothing runs before something waits for it, and then only what that needs
 *   kernels late   copies, fills and waits run as soon as they may; kernels as copies late
 *   random         any legal order, by seed
 *
 * Memory of the device is filled with NaNs when it is given and when it is taken back. A copy from
 * host memory that is not page-locked reads it at once, one from page-locked memory reads it when
 * it runs. A wait on an event that was never recorded is no wait. Graphs run what was recorded. Not
 * part of the library: tests link it.
 */
#ifndef STRATA_DEVICE_DELAYING_H
#define STRATA_DEVICE_DELAYING_H

#include <stdint.h>

#include "device/device.h"

typedef enum strata__delaying_policy {
    STRATA__DELAYING_COPIES_LATE,
    STRATA__DELAYING_KERNELS_LATE,
    STRATA__DELAYING_RANDOM
} strata__delaying_policy;
enum { STRATA__DELAYING_POLICY_COUNT = 3 };

/* What may be made to fail. */
typedef enum strata__delaying_fault {
    STRATA__FAULT_ALLOC = 1,
    STRATA__FAULT_HOST_ALLOC = 2,
    STRATA__FAULT_REGISTER = 4,
    STRATA__FAULT_COPY = 8,
    STRATA__FAULT_EVENT = 16,  /* creating, recording, waiting for */
    STRATA__FAULT_STREAM = 32, /* creating, synchronising */
    STRATA__FAULT_GRAPH = 128, /* recording, launching */
    STRATA__FAULT_QUERY = 256, /* asking whether an event has come true */
    STRATA__FAULT_LOST = 64    /* the device is lost at a piece of work; no call is made to fail */
} strata__delaying_fault;

typedef struct strata__delaying_options {
    uint32_t policy;   /* strata__delaying_policy */
    uint32_t no_reads; /* 1: kernels cannot read page-locked host memory */
    uint64_t seed;
    uint64_t memory_bytes;    /* 0: 1 GiB */
    uint64_t alignment_bytes; /* 0: 256 */
    uint32_t graphs;          /* 1: the device has graphs */
    uint32_t reserved;
} strata__delaying_options;

strata_status strata__delaying_device_open(strata_context *context,
                                           const strata__delaying_options *options,
                                           strata__device **out);

/*
 * Of the calls of the kinds in `faults` (bits), the `countdown`th from now fails, once, or with
 * `for_good` all from then on. 0 faults: none. STRATA__FAULT_LOST counts work that is run.
 */
void strata__delaying_fail(strata__device *device, uint32_t faults, uint64_t countdown,
                           uint32_t for_good);

typedef struct strata__delaying_usage {
    uint64_t device_bytes; /* allocated now */
    uint64_t device_peak_bytes;
    uint64_t host_bytes;       /* page-locked by allocation, now */
    uint64_t registered_bytes; /* page-locked by registration, now */
    uint64_t events;           /* that exist */
    uint64_t streams;
    uint64_t calls;    /* that a fault could have hit */
    uint64_t faults;   /* that were hit */
    uint64_t executed; /* pieces of work */
    uint64_t pending;
} strata__delaying_usage;

void strata__delaying_usage_get(strata__device *device, strata__delaying_usage *out);

#endif
