/* SPDX-License-Identifier: MIT */
/*
 * How the CPU kernels reach a stream of a host device: a launch is a function and a copy of its
 * argument structure. The CPU device runs it at once; the delaying test device runs it as late as
 * the recorded waits allow. The first member of such a device's stream is a strata__task_queue.
 */
#ifndef STRATA_BASE_TASK_H
#define STRATA_BASE_TASK_H

#include <stdint.h>

#include <strata/base.h>

typedef void (*strata__task_fn)(const void *arguments);

typedef struct strata__task_queue {
    /*
     * Copies `bytes` of arguments (at most STRATA__TASK_BYTES) and runs `fn` on them in stream
     * order.
     */
    strata_status (*enqueue)(struct strata__task_queue *queue, strata__task_fn fn,
                             const void *arguments, uint64_t bytes);
} strata__task_queue;

enum { STRATA__TASK_BYTES = 512 };

#endif
