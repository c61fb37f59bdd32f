/* SPDX-License-Identifier: MIT */
/* The CPU kernels' object and what its operations share. */
#ifndef STRATA_KERNELS_CPU_CPU_H
#define STRATA_KERNELS_CPU_CPU_H

#include <stdbool.h>
#include <stdint.h>

#include "base/task.h"
#include "kernels/cpu/code.h"
#include "kernels/cpu/pool.h"
#include "kernels/kernels.h"

/* Working memory of a thread: decoded weights, sums and attention's tiles. */
enum { STRATA__WORKSPACE_FLOATS = 128 * 1024 };

typedef struct strata__cpu_kernels {
    strata__kernels base; /* first */
    const strata__allocator *allocator;
    const strata__cpu_code *code;
    strata__pool *pool;
    float *workspaces; /* STRATA__WORKSPACE_FLOATS a thread */
    strata__cpu_level level;
    uint32_t threads;
    bool any_order;
} strata__cpu_kernels;

static inline strata__cpu_kernels *strata__cpu_of(strata__kernels *kernels)
{
    return (strata__cpu_kernels *)(void *)kernels;
}

static inline float *strata__cpu_workspace(const strata__cpu_kernels *cpu, uint32_t worker)
{
    return cpu->workspaces + (uint64_t)worker * STRATA__WORKSPACE_FLOATS;
}

/* Rows an item of an elementwise loop takes, so that loops over few rows still spread. */
enum { STRATA__ROWS_PER_ITEM = 8 };

static inline uint32_t strata__row_items(uint32_t rows)
{
    return (rows + STRATA__ROWS_PER_ITEM - 1) / STRATA__ROWS_PER_ITEM;
}

/* A launch: the object and a copy of the arguments, as a task's argument structure. */
#define STRATA__CPU_TASK(name)                                                                     \
    typedef struct name##_task {                                                                   \
        strata__cpu_kernels *cpu;                                                                  \
        strata__##name##_args args;                                                                \
    } name##_task;                                                                                 \
    _Static_assert(sizeof(name##_task) <= STRATA__TASK_BYTES, "a task must fit the queue");        \
    static strata_status name##_enqueue(strata__kernels *kernels, void *stream,                    \
                                        const strata__##name##_args *args, strata__task_fn fn)     \
    {                                                                                              \
        strata__task_queue *queue = stream;                                                        \
        name##_task task = {strata__cpu_of(kernels), *args};                                       \
        return queue->enqueue(queue, fn, &task, sizeof task);                                      \
    }                                                                                              \
    static strata_status name##_enqueue(strata__kernels *kernels, void *stream,                    \
                                        const strata__##name##_args *args, strata__task_fn fn)

/* Launch functions, one file a family. */
strata_status strata__cpu_embed(strata__kernels *, void *stream, const strata__embed_args *);
strata_status strata__cpu_norm(strata__kernels *, void *stream, const strata__norm_args *);
strata_status strata__cpu_activate(strata__kernels *, void *stream, const strata__activate_args *);
strata_status strata__cpu_combine(strata__kernels *, void *stream, const strata__combine_args *);
strata_status strata__cpu_dense(strata__kernels *, void *stream, const strata__dense_args *);
strata_status strata__cpu_router(strata__kernels *, void *stream, const strata__router_args *);
strata_status strata__cpu_gate_up(strata__kernels *, void *stream, const strata__gate_up_args *);
strata_status strata__cpu_down(strata__kernels *, void *stream, const strata__down_args *);
strata_status strata__cpu_qkv(strata__kernels *, void *stream, const strata__qkv_args *);
strata_status strata__cpu_attention(strata__kernels *, void *stream,
                                    const strata__attention_args *);
strata_status strata__cpu_select(strata__kernels *, void *stream, const strata__select_args *);
strata_status strata__cpu_group(strata__kernels *, void *stream, const strata__group_args *);

/* Status of a weight's format and shape; `what` names the operation in the text. */
strata_status strata__cpu_check_weight(const char *what, uint32_t format, uint32_t inputs);

#endif
