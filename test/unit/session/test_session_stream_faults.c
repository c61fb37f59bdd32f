/*
 * Streaming under odd conditions: two sessions of one pack in two threads; random rings, pieces,
 * places, tiles and budgets.
 */
/* SPDX-License-Identifier: MIT */
/*
 * Streaming when calls of the device fail: every call of a session's life in turn. What cannot be
 * done is an error, what costs only speed is none, and the next prompt gives the same bits or the
 * session says that its device is lost. Also two sessions of one pack in two threads, and random
 * rings, pieces, places and tiles.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/stream_case.h"

static tiny_spec small_spec(void)
{
    tiny_spec spec = tiny_spec_default();
    spec.layers = 2;
    spec.experts = 6;
    spec.top_k = 2;
    spec.width = 32;
    spec.head_size = 16;
    spec.gate_format = 8;
    return spec;
}

typedef struct worker {
    const stream_pack *pack;
    stream_options options;
    uint32_t rounds;
    bool good;
} worker;

static void *work(void *user_data)
{
    worker *w = user_data;
    float *logits = calloc(STREAM_LOGITS, sizeof *logits);
    w->good = logits != NULL;
    for (uint32_t i = 0; i < w->rounds && w->good; ++i) {
        strata_session *session = NULL;
        w->good = stream_session(w->pack, &w->options, &session) == STRATA_OK &&
                  stream_read(w->pack, session, logits) == STRATA_OK &&
                  memcmp(logits, w->pack->expected, sizeof w->pack->expected) == 0 &&
                  stream_read(w->pack, session, logits) == STRATA_OK &&
                  memcmp(logits, w->pack->expected, sizeof w->pack->expected) == 0;
        strata__session_release(session);
    }
    free(logits);
    return NULL;
}

/* One pack, whose page-locked memory both sessions share. */
static void two_sessions_in_two_threads(void **state)
{
    tiny_spec spec = small_spec();
    stream_pack p;
    pthread_t threads[2];
    worker workers[2];
    (void)state;
    stream_pack_open(&p, &spec, 32, NULL);
    for (uint32_t i = 0; i < 2; ++i) {
        workers[i] = (worker){.pack = &p, .rounds = 8};
        workers[i].options = (stream_options){.group_experts = 1 + i, .resident = i, .fetch = 2};
        workers[i].options.device.policy = STRATA__DELAYING_RANDOM;
        workers[i].options.device.seed = i;
        if (i)
            workers[i].options.host_budget_bytes = 200000;
    }
    for (int i = 0; i < 2; ++i)
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    for (int i = 0; i < 2; ++i) {
        pthread_join(threads[i], NULL);
        assert_true(workers[i].good);
    }
    stream_pack_close(&p);
}

static void random_choices(void **state)
{
    uint64_t random = 5;
    (void)state;
    for (uint32_t pack = 0; pack < 6; ++pack) {
        tiny_spec spec = small_spec();
        stream_pack p;
        spec.experts = 3 + (uint32_t)(tiny_random(&random) % 14);
        spec.layers = 1 + (uint32_t)(tiny_random(&random) % 4);
        spec.seed += pack;
        stream_pack_open(&p, &spec, 1 + (uint32_t)(tiny_random(&random) % STREAM_TOKENS), NULL);
        for (uint32_t i = 0; i < 30; ++i) {
            stream_options o = {0};
            o.device.policy = (uint32_t)(tiny_random(&random) % STRATA__DELAYING_POLICY_COUNT);
            o.device.seed = tiny_random(&random);
            o.group_experts = 1 + (uint32_t)(tiny_random(&random) % spec.experts);
            o.ring_pieces =
                2 * o.group_experts + (uint32_t)(tiny_random(&random) % (2 * spec.experts));
            o.resident = (uint32_t)(tiny_random(&random) % (spec.experts + 1));
            o.resident_step = 1 + (uint32_t)(tiny_random(&random) % 2);
            if (o.resident == spec.experts && spec.layers == 1)
                o.resident--;
            o.expert_tile = (uint32_t)(tiny_random(&random) % 40);
            o.dense_tile = (uint32_t)(tiny_random(&random) % 20);
            o.fetch = (uint32_t)(tiny_random(&random) % 3);
            o.host_budget_bytes = i % 3 ? 0 : 150000 + tiny_random(&random) % 200000;
            stream_check(&p, &o, 2);
        }
        stream_pack_close(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_sessions_in_two_threads),
        cmocka_unit_test(random_choices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
