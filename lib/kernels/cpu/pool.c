/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE 1

#include "kernels/cpu/pool.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"

/*
 * A thread that has a core looks at the state for so long before it sleeps: a step of decoding has
 * loops of a few microseconds each with as much between them, and to wake a thread takes longer.
 */
enum { SPIN_NS = 20000, LOOKS_PER_CLOCK = 16 };

struct strata__pool {
    const strata__allocator *allocator;
    pthread_mutex_t run_lock; /* one loop at a time */
    pthread_mutex_t lock;     /* guards sleeping: `loop` and `busy` change under it */
    pthread_cond_t wake;
    pthread_cond_t done;
    atomic_uint loop; /* number of the current loop; a change starts the workers */
    atomic_uint busy; /* workers that have not left the current loop */
    atomic_uint next; /* next item */
    uint32_t items;
    strata__pool_fn fn;
    void *user_data;
    bool stop;
    uint32_t threads; /* with the caller's */
    uint32_t cores;
    uint32_t started;
    pthread_t ids[];
};

typedef struct worker_start {
    strata__pool *pool;
    uint32_t worker;
    atomic_bool taken;
} worker_start;

uint32_t strata__pool_cores(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
        return (uint32_t)CPU_COUNT(&set);
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (uint32_t)online : 1;
}

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    atomic_signal_fence(memory_order_seq_cst);
#endif
}

typedef struct spin {
    uint64_t end_ns;
    uint32_t looks;
} spin;

/* Whether to look once more. Where threads share cores, who waits would keep others from work. */
static bool spin_on(const strata__pool *pool, spin *s)
{
    if (pool->threads > pool->cores)
        return false;
    relax();
    if (s->looks++ % LOOKS_PER_CLOCK)
        return true;
    uint64_t now = strata__clock_ns();
    if (s->looks == 1)
        s->end_ns = now + SPIN_NS;
    return now < s->end_ns;
}

static void run_items(strata__pool *pool, uint32_t worker)
{
    for (;;) {
        uint32_t item = atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed);
        if (item >= pool->items)
            return;
        pool->fn(pool->user_data, item, worker);
    }
}

/* Waits for a loop other than `seen`. */
static uint32_t wait_for_loop(strata__pool *pool, uint32_t seen)
{
    uint32_t loop = seen;
    spin s = {0};
    do {
        loop = atomic_load_explicit(&pool->loop, memory_order_acquire);
        if (loop != seen)
            return loop;
    } while (spin_on(pool, &s));
    pthread_mutex_lock(&pool->lock);
    while ((loop = atomic_load_explicit(&pool->loop, memory_order_acquire)) == seen)
        pthread_cond_wait(&pool->wake, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
    return loop;
}

static void *worker_main(void *argument)
{
    worker_start *start = argument;
    strata__pool *pool = start->pool;
    uint32_t worker = start->worker, seen = 0;
    atomic_store_explicit(&start->taken, true, memory_order_release);
    for (;;) {
        seen = wait_for_loop(pool, seen);
        if (pool->stop)
            return NULL;
        run_items(pool, worker);
        if (atomic_fetch_sub_explicit(&pool->busy, 1, memory_order_acq_rel) == 1) {
            pthread_mutex_lock(&pool->lock);
            pthread_cond_signal(&pool->done);
            pthread_mutex_unlock(&pool->lock);
        }
    }
}

static void start_loop(strata__pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    atomic_fetch_add_explicit(&pool->loop, 1, memory_order_release);
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
}

static void wait_for_workers(strata__pool *pool)
{
    spin s = {0};
    do {
        if (atomic_load_explicit(&pool->busy, memory_order_acquire) == 0)
            return;
    } while (spin_on(pool, &s));
    pthread_mutex_lock(&pool->lock);
    while (atomic_load_explicit(&pool->busy, memory_order_acquire) != 0)
        pthread_cond_wait(&pool->done, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
}

void strata__pool_run(strata__pool *pool, uint32_t items, strata__pool_fn fn, void *user_data)
{
    if (items == 0)
        return;
    pthread_mutex_lock(&pool->run_lock);
    if (pool->threads == 1 || items == 1) {
        for (uint32_t i = 0; i < items; i++)
            fn(user_data, i, 0);
    } else {
        pool->items = items;
        pool->fn = fn;
        pool->user_data = user_data;
        atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
        atomic_store_explicit(&pool->busy, pool->threads - 1, memory_order_relaxed);
        start_loop(pool);
        run_items(pool, 0);
        wait_for_workers(pool);
    }
    pthread_mutex_unlock(&pool->run_lock);
}

uint32_t strata__pool_threads(const strata__pool *pool)
{
    return pool->threads;
}

/* Starts worker number started + 1 with every signal blocked; signals are the application's. */
static bool start_worker(strata__pool *pool)
{
    worker_start start = {.pool = pool, .worker = pool->started + 1};
    sigset_t all, before;
    sigfillset(&all);
    atomic_init(&start.taken, false);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&pool->ids[pool->started], NULL, worker_main, &start);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error)
        return false;
    pool->started++;
    while (!atomic_load_explicit(&start.taken, memory_order_acquire))
        sched_yield();
    return true;
}

static uint64_t pool_bytes(uint32_t threads)
{
    return sizeof(strata__pool) + (uint64_t)threads * sizeof(pthread_t);
}

strata_status strata__pool_create(const strata__allocator *allocator, uint32_t threads,
                                  strata__pool **out)
{
    *out = NULL;
    strata__pool *pool = strata__calloc(allocator, 1, pool_bytes(threads));
    if (!pool)
        return strata__fail_memory(pool_bytes(threads), "the thread pool");
    pool->allocator = allocator;
    pool->threads = threads;
    pool->cores = strata__pool_cores();
    pthread_mutex_init(&pool->run_lock, NULL);
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->wake, NULL);
    pthread_cond_init(&pool->done, NULL);
    for (uint32_t i = 1; i < threads; i++)
        if (!start_worker(pool)) {
            strata__pool_destroy(pool);
            return strata__fail(STRATA_ERR_NO_MEMORY, "thread %u of %u could not be started", i,
                                threads);
        }
    *out = pool;
    return STRATA_OK;
}

void strata__pool_destroy(strata__pool *pool)
{
    if (!pool)
        return;
    pool->stop = true;
    start_loop(pool);
    for (uint32_t i = 0; i < pool->started; i++)
        pthread_join(pool->ids[i], NULL);
    pthread_cond_destroy(&pool->done);
    pthread_cond_destroy(&pool->wake);
    pthread_mutex_destroy(&pool->lock);
    pthread_mutex_destroy(&pool->run_lock);
    strata__free(pool->allocator, pool, pool_bytes(pool->threads));
}
