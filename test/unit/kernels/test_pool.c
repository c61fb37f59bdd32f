/* SPDX-License-Identifier: MIT */
/* The thread pool: every item once, workers apart, callers queued. */
#include "support.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "kernels/cpu/pool.h"

enum { ITEMS = 1000, THREADS = 4 };

typedef struct loop {
    atomic_uint runs[ITEMS];
    atomic_uint inside[THREADS]; /* items a worker is in: never two */
    atomic_uint overlaps;
    uint32_t threads;
    uint32_t plain[ITEMS]; /* written without atomics: the caller must see it */
} loop;

static void count_item(void *user_data, uint32_t item, uint32_t worker)
{
    loop *l = user_data;
    if (worker >= l->threads || atomic_fetch_add(&l->inside[worker], 1) != 0)
        atomic_fetch_add(&l->overlaps, 1);
    atomic_fetch_add(&l->runs[item], 1);
    l->plain[item] = item + 1;
    if (worker < l->threads)
        atomic_fetch_sub(&l->inside[worker], 1);
}

/* Longer than a thread looks for the next loop, so that this one has to wake it. */
static void let_workers_sleep(void)
{
    struct timespec pause = {0, 200000};
    nanosleep(&pause, NULL);
}

static void every_item_runs_once(void **state)
{
    (void)state;
    for (uint32_t threads = 1; threads <= THREADS; threads++) {
        strata__pool *pool;
        loop *l = calloc(1, sizeof *l);
        assert_int_equal(strata__pool_create(strata__allocator_default(), threads, &pool),
                         STRATA_OK);
        assert_int_equal(strata__pool_threads(pool), threads);
        l->threads = threads;
        for (uint32_t round = 0; round < 300; round++) {
            uint32_t items = round % 7 * 17 % ITEMS + round % 3;
            memset(l->plain, 0, sizeof l->plain);
            for (uint32_t i = 0; i < ITEMS; i++)
                atomic_store(&l->runs[i], 0);
            if (round % 4 == 0)
                let_workers_sleep();
            strata__pool_run(pool, items, count_item, l);
            for (uint32_t i = 0; i < ITEMS; i++) {
                assert_int_equal(atomic_load(&l->runs[i]), i < items);
                assert_int_equal(l->plain[i], i < items ? i + 1 : 0);
            }
        }
        assert_int_equal(atomic_load(&l->overlaps), 0);
        strata__pool_destroy(pool);
        free(l);
    }
}

typedef struct caller {
    strata__pool *pool;
    loop l;
} caller;

static void *call_often(void *argument)
{
    caller *c = argument;
    for (int i = 0; i < 200; i++)
        strata__pool_run(c->pool, 50, count_item, &c->l);
    return NULL;
}

static void callers_queue(void **state)
{
    enum { CALLERS = 3 };
    pthread_t ids[CALLERS];
    caller *callers = calloc(CALLERS, sizeof *callers);
    strata__pool *pool;
    (void)state;
    assert_int_equal(strata__pool_create(strata__allocator_default(), THREADS, &pool), STRATA_OK);
    for (int i = 0; i < CALLERS; i++) {
        callers[i].pool = pool;
        callers[i].l.threads = THREADS;
        assert_int_equal(pthread_create(&ids[i], NULL, call_often, &callers[i]), 0);
    }
    for (int i = 0; i < CALLERS; i++) {
        pthread_join(ids[i], NULL);
        assert_int_equal(atomic_load(&callers[i].l.overlaps), 0);
        for (uint32_t item = 0; item < 50; item++)
            assert_int_equal(atomic_load(&callers[i].l.runs[item]), 200);
    }
    strata__pool_destroy(pool);
    free(callers);
}

static void *no_memory(void *user_data, uint64_t bytes, uint64_t alignment)
{
    int *left = user_data;
    (void)alignment;
    return (*left)-- > 0 ? malloc(bytes) : NULL;
}

static void give_back(void *user_data, void *pointer, uint64_t bytes)
{
    (void)user_data;
    (void)bytes;
    free(pointer);
}

static void a_failed_allocation_is_reported(void **state)
{
    (void)state;
    for (int n = 0;; n++) {
        int left = n;
        strata__allocator allocator = {no_memory, give_back, &left};
        strata__cpu_kernels_options options = {&allocator, 2, 0};
        strata__kernels *kernels;
        strata_status status = strata__cpu_kernels_create(&options, &kernels);
        if (status == STRATA_OK) {
            kernels->ops->destroy(kernels);
            assert_true(n >= 3);
            return;
        }
        assert_int_equal(status, STRATA_ERR_NO_MEMORY);
        assert_null(kernels);
    }
}

static void pools_need_no_work_to_end(void **state)
{
    strata__pool *pool;
    (void)state;
    assert_true(strata__pool_cores() >= 1);
    for (int i = 0; i < 50; i++) {
        assert_int_equal(strata__pool_create(strata__allocator_default(), 3, &pool), STRATA_OK);
        strata__pool_destroy(pool);
    }
    strata__pool_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_item_runs_once),
        cmocka_unit_test(callers_queue),
        cmocka_unit_test(a_failed_allocation_is_reported),
        cmocka_unit_test(pools_need_no_work_to_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
