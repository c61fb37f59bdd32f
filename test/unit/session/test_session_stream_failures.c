/* SPDX-License-Identifier: MIT */
/*
 * Everything in the life of a session that streams fails once, at every point: allocations,
 * threads, page-locking, copies, the caller's answers, events, streams, graphs and the device,
 * while a session is made, a prompt is read, a loan refilled, tokens decoded, a profile saved, and
 * all experts of a device leave it and come back.
 * What cannot be done is an error with a text; what costs speed alone is none. Afterwards the
 * session gives the same bits or says that its device is lost, and nothing is left of it.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/error.h"
#include "support/stream_case.h"

/* Polling asks as often as time allows: of the later questions some fail. */
enum { FEW = 50 };

enum { PROMPT = 16, CHUNK = 8, STEPS = 2, STEP_ROWS = 2, PROFILE_BYTES = 4096 };

/* An allocator whose n-th allocation fails, and that knows what is still allocated. */
typedef struct book {
    pthread_mutex_t lock;
    uint64_t countdown; /* 0: none fails */
    uint64_t live_bytes;
    uint64_t failed;
} book;

static void *book_alloc(void *user_data, uint64_t bytes, uint64_t alignment)
{
    book *b = user_data;
    void *pointer = NULL;
    bool fails;
    pthread_mutex_lock(&b->lock);
    fails = b->countdown && --b->countdown == 0;
    b->failed += fails;
    if (!fails)
        pointer = strata__alloc_aligned(strata__allocator_default(), bytes, alignment);
    if (pointer)
        b->live_bytes += bytes;
    pthread_mutex_unlock(&b->lock);
    return pointer;
}

static void book_free(void *user_data, void *pointer, uint64_t bytes)
{
    book *b = user_data;
    if (!pointer)
        return;
    pthread_mutex_lock(&b->lock);
    b->live_bytes -= bytes;
    pthread_mutex_unlock(&b->lock);
    strata__free(strata__allocator_default(), pointer, bytes);
}

/* The linker puts this before the C library's: the n-th thread cannot be had. */
static uint64_t thread_countdown, threads_failed; /* threads are made by this thread alone */
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *user_data);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *user_data);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *user_data)
{
    if (thread_countdown && --thread_countdown == 0) {
        threads_failed++;
        return 11; /* EAGAIN */
    }
    return __real_pthread_create(thread, attributes, run, user_data);
}

/* A pack, how its sessions stream, and what fails. */
typedef struct scene {
    stream_pack pack;
    book book;
    stream_options options;
    strata_plan *plan;
    char path[64]; /* of the pack's file; "": it is in memory */
    uint8_t profile[PROFILE_BYTES];
    uint64_t profile_bytes;
    uint64_t live_bytes; /* without sessions */
    bool shrinks;
} scene;

/* The pack's experts as a caller's, whose n-th answer is an error. */
typedef struct source {
    const stream_pack *pack;
    uint64_t countdown; /* 0: none fails */
    uint64_t failed;
} source;

static strata_status give(void *user_data, uint32_t layer, uint32_t expert, strata_expert_blob *out)
{
    source *s = user_data;
    const strata__layer *l = &s->pack->layers[layer];
    const strata__projection *from[3] = {&l->expert_gate, &l->expert_up, &l->expert_down};
    const void **to[3] = {&out->gate, &out->up, &out->down};
    if (s->countdown && --s->countdown == 0) {
        s->failed++;
        return STRATA_ERR_IO;
    }
    for (int i = 0; i < 3; ++i)
        *to[i] = (const uint8_t *)from[i]->data + expert * from[i]->stride_bytes;
    return STRATA_OK;
}

typedef struct life {
    const scene *scene;
    source *source;         /* NULL: the pack's memory */
    strata__device *device; /* held */
    strata_session *session;
    strata_prefill *prefill;
    float logits[STREAM_LOGITS];
} life;

static strata_status check_rows(const life *l, strata_status status, uint64_t first, uint64_t rows)
{
    const uint64_t at = first * STREAM_VOCABULARY;
    if (status == STRATA_OK)
        assert_memory_equal(l->logits + at, l->scene->pack.expected + at,
                            rows * STREAM_VOCABULARY * sizeof *l->logits);
    return status;
}

static strata_status read_prompt(life *l)
{
    strata_prefill_request request = {.struct_size = sizeof request};
    strata_prefill_result result = {0};
    uint64_t length;
    strata_status status = strata__session_truncate(l->session, 0, 0, &length);
    request.tokens = l->scene->pack.tokens;
    request.token_count = PROMPT;
    request.logits = l->logits;
    request.logits_capacity = STREAM_LOGITS;
    request.logits_mode = STRATA_LOGITS_ALL;
    memset(l->logits, 0, sizeof l->logits);
    if (status == STRATA_OK)
        status = strata__prefill_run(l->prefill, &request, &result);
    return check_rows(l, status, 0, PROMPT);
}

static strata_status decode(life *l)
{
    strata_status status = STRATA_OK;
    for (uint32_t i = 0; i < STEPS && status == STRATA_OK; ++i) {
        uint64_t at = PROMPT + i * STEP_ROWS;
        strata_decode_part part = {0, STEP_ROWS, l->scene->pack.tokens + at};
        strata_decode_request request = {.struct_size = sizeof request,
                                         .part_count = 1,
                                         .parts = &part,
                                         .logits_mode = STRATA_LOGITS_ALL};
        strata_decode_result result = {0};
        request.logits = l->logits + at * STREAM_VOCABULARY;
        request.logits_capacity = STEP_ROWS * STREAM_VOCABULARY;
        status =
            check_rows(l, strata__session_decode(l->session, &request, &result), at, STEP_ROWS);
    }
    return status;
}

/* All that a refill copies, so that it has the same points to fail at each time. */
static void finish_refill(strata_session *session)
{
    strata__loan *loan = &session->loan;
    if (!loan->is_running)
        return;
    assert_int_equal(pthread_join(loan->thread, NULL), 0);
    loan->is_running = false;
}

static void finish_locking(const strata_session *session)
{
    const strata__host_tier *tier = session->tier;
    while (tier && atomic_load(&tier->pinned_bytes) + atomic_load(&tier->refused_bytes) <
                       atomic_load(&tier->wanted_bytes))
        usleep(20);
}

/* A prefill, if there is none, a prompt, and tokens. */
static strata_status use(life *l)
{
    strata_prefill_options options = {.struct_size = sizeof options};
    strata_status status = STRATA_OK;
    options.memory_kind = l->scene->options.borrow ? STRATA_MEMORY_LOAN : STRATA_MEMORY_OWN;
    if (!l->prefill)
        status = strata__prefill_create(l->session, &options, &l->prefill);
    if (status == STRATA_OK)
        status = read_prompt(l);
    finish_refill(l->session);
    return status == STRATA_OK ? decode(l) : status;
}

/* Everything that can leaves the device, and comes back. */
static strata_status shrink(life *l)
{
    strata_session *s = l->session;
    uint64_t least = s->memory.bytes + s->loan_memory.bytes + atomic_load(&s->prefill_bytes);
    strata_status status = strata__session_set_budget(s, least);
    finish_locking(s);
    if (status == STRATA_OK)
        status = use(l);
    if (status == STRATA_OK)
        status = strata__session_set_budget(s, 0);
    return status == STRATA_OK ? use(l) : status;
}

static strata_status live(life *l)
{
    strata_session_options options = {.struct_size = sizeof options, .thread_count = 1, .blas = 1};
    uint8_t profile[PROFILE_BYTES];
    uint64_t bytes;
    strata_status status;
    options.plan = l->scene->plan;
    options.expert_fn = l->source ? give : NULL;
    options.expert_user_data = l->source;
    options.profile = l->scene->profile_bytes ? l->scene->profile : NULL;
    options.profile_bytes = l->scene->profile_bytes;
    strata__device_hold(l->device);
    status = strata__session_create_on(l->device, l->scene->pack.pack, &options, &l->session);
    if (status != STRATA_OK)
        return status;
    finish_locking(l->session);
    status = use(l);
    /* The next one finds a filled cache, which it borrows from. */
    if (status == STRATA_OK)
        status = read_prompt(l);
    finish_refill(l->session);
    if (status == STRATA_OK)
        status = strata__session_profile(l->session, profile, sizeof profile, &bytes);
    return status == STRATA_OK && l->scene->shrinks ? shrink(l) : status;
}

/* Nothing is left on the device, nor of it. */
static void end(life *l)
{
    strata__delaying_usage usage;
    strata__prefill_destroy(l->prefill);
    strata__session_release(l->session);
    if (l->device) {
        strata__delaying_usage_get(l->device, &usage);
        assert_int_equal(usage.device_bytes, 0);
        assert_int_equal(usage.host_bytes, 0);
        assert_int_equal(usage.registered_bytes, 0);
        assert_int_equal(usage.events, 0);
        assert_int_equal(usage.streams, 0);
        assert_int_equal(usage.pending, 0);
    }
    strata__device_release(l->device);
    assert_int_equal(l->scene->book.live_bytes, l->scene->live_bytes);
    free(l);
}

static life *begin(const scene *s)
{
    life *l = calloc(1, sizeof *l);
    assert_non_null(l);
    l->scene = s;
    (void)strata__fail(STRATA_ERR_INTERNAL, "%s", "");
    return l;
}

/* After whatever failed, with nothing failing any more. */
static void check_after(life *l, strata_status status, bool is_lost)
{
    if (status != STRATA_OK)
        assert_true(strlen(strata__error_text()) > 0);
    if (!l->session) {
        assert_true(status != STRATA_OK);
        assert_null(l->prefill);
        return;
    }
    if (status != STRATA_ERR_DEVICE_LOST && !is_lost) {
        stream_ok(use(l));
        return;
    }
    assert_int_equal(use(l), STRATA_ERR_DEVICE_LOST);
    assert_non_null(strstr(strata__error_text(), "lost"));
}

static void open_scene(scene *s, bool in_file)
{
    strata_context_options context = {.struct_size = sizeof context};
    tiny_spec spec = tiny_spec_default();
    life *first;
    spec.experts = 6;
    spec.width = 32;
    spec.heads = 2;
    spec.kv_heads = 1;
    spec.head_size = 16;
    spec.gate_format = 8;
    pthread_mutex_init(&s->book.lock, NULL);
    context.alloc_fn = book_alloc;
    context.free_fn = book_free;
    context.alloc_user_data = &s->book;
    if (in_file)
        snprintf(s->path, sizeof s->path, "/tmp/strata-failures-%ld.gguf", (long)getpid());
    stream_pack_open_in(&s->pack, &spec, CHUNK, in_file ? s->path : NULL, &context);
    s->plan = stream_plan(&s->pack, &s->options);
    s->live_bytes = s->book.live_bytes;
    first = begin(s);
    stream_ok(strata__delaying_device_open(s->pack.context, &s->options.device, &first->device));
    stream_ok(live(first));
    if (s->options.resident)
        stream_ok(
            strata__session_profile(first->session, s->profile, PROFILE_BYTES, &s->profile_bytes));
    end(first);
}

static void close_scene(scene *s)
{
    strata__plan_release(s->plan);
    stream_pack_close(&s->pack);
    assert_int_equal(s->book.live_bytes, 0);
    pthread_mutex_destroy(&s->book.lock);
    if (s->path[0])
        (void)remove(s->path);
}

/*
 * Three ways: lent memory and a profile, from a file; fetched, partly staged, and in vain; all on
 * the device at first, and at last.
 */
static scene scene_of(uint32_t index)
{
    scene s = {0};
    s.options.group_experts = 2;
    s.options.ring_pieces = 5;
    s.options.device.graphs = 1;
    if (index == 0) {
        s.options.resident = 2;
        s.options.borrow = 1;
        s.options.fetch = 2;
        s.options.device.policy = STRATA__DELAYING_RANDOM;
        s.options.device.seed = 3;
    } else if (index == 1) {
        s.options.fetch = 1;
        s.options.host_budget_bytes = 120000;
        s.options.device.policy = STRATA__DELAYING_KERNELS_LATE;
    } else {
        s.options.resident = 6;
        s.options.borrow = 1;
        s.options.device.policy = STRATA__DELAYING_COPIES_LATE;
        s.shrinks = true;
    }
    return s;
}

enum { SCENES = 3 };

static uint32_t first_scene, end_scene = SCENES; /* that are tried */

typedef struct fault {
    uint32_t kinds;
    uint32_t for_good;
    strata_status expected;
} fault;

/* The n-th call of a kind fails; false: there is none. */
static bool fail_call(const scene *s, const fault *f, uint64_t n)
{
    strata__delaying_usage usage;
    life *l = begin(s);
    strata_status status;
    stream_ok(strata__delaying_device_open(s->pack.context, &s->options.device, &l->device));
    strata__delaying_fail(l->device, f->kinds, n, f->for_good);
    status = live(l);
    strata__delaying_usage_get(l->device, &usage);
    strata__delaying_fail(l->device, 0, 0, 0);
    if (status != STRATA_OK && status != f->expected)
        fail_msg("%d at call %d of %x: %s", status, (int)n, f->kinds, strata__error_text());
    check_after(l, status, usage.faults && f->kinds == STRATA__FAULT_LOST);
    end(l);
    return usage.faults > 0;
}

static void every_call_fails_once(void **state)
{
    static const fault faults[] = {
        {STRATA__FAULT_ALLOC, 0, STRATA_ERR_DEVICE_MEMORY},
        {STRATA__FAULT_HOST_ALLOC, 0, STRATA_ERR_NO_MEMORY},
        {STRATA__FAULT_COPY, 0, STRATA_ERR_DRIVER},
        {STRATA__FAULT_EVENT, 0, STRATA_ERR_DRIVER},
        {STRATA__FAULT_QUERY, 0, STRATA_ERR_DRIVER},
        {STRATA__FAULT_STREAM, 0, STRATA_ERR_DRIVER},
        {STRATA__FAULT_GRAPH, 0, STRATA_ERR_DRIVER},
        {STRATA__FAULT_LOST, 0, STRATA_ERR_DEVICE_LOST},
        {STRATA__FAULT_COPY, 1, STRATA_ERR_DRIVER},
        {STRATA__FAULT_REGISTER | STRATA__FAULT_HOST_ALLOC, 1, STRATA_ERR_NO_MEMORY}};
    uint64_t hits[sizeof faults / sizeof faults[0]] = {0};
    (void)state;
    for (uint32_t i = first_scene; i < end_scene; ++i) {
        scene s = scene_of(i);
        open_scene(&s, i == 0);
        for (size_t k = 0; k < sizeof faults / sizeof faults[0]; ++k) {
            uint64_t n = 1;
            while (fail_call(&s, &faults[k], n))
                n += faults[k].kinds == STRATA__FAULT_QUERY && n > FEW ? n / FEW : 1;
            hits[k] += n - 1;
        }
        close_scene(&s);
    }
    /* Where every step waits, there are no graphs. */
    for (size_t k = 0; k < sizeof faults / sizeof faults[0]; ++k)
        assert_true(hits[k] > 0 || (faults[k].kinds == STRATA__FAULT_GRAPH && first_scene == 1));
}

/* A pin that is refused costs speed alone, at whichever piece. */
static void refused_pins_are_no_errors(void **state)
{
    (void)state;
    for (uint32_t i = first_scene; i < end_scene; ++i) {
        const fault refusals[] = {{STRATA__FAULT_REGISTER, 0, STRATA_OK},
                                  {STRATA__FAULT_REGISTER, 1, STRATA_OK}};
        scene s = scene_of(i);
        open_scene(&s, i == 0);
        for (int k = 0; k < 2; ++k) {
            uint64_t n = 1;
            while (fail_call(&s, &refusals[k], n))
                ++n;
            assert_true(n > 1);
        }
        close_scene(&s);
    }
}

/* A thread that cannot be had costs speed alone: what it would do is done by others, or is not. */
static void every_thread_fails_once(void **state)
{
    (void)state;
    for (uint32_t i = first_scene; i < end_scene; ++i) {
        scene s = scene_of(i);
        uint64_t n = 1;
        open_scene(&s, i == 0);
        for (bool hit = true; hit; ++n) {
            life *l = begin(&s);
            strata_status status;
            stream_ok(strata__delaying_device_open(s.pack.context, &s.options.device, &l->device));
            threads_failed = 0;
            thread_countdown = n;
            status = live(l);
            thread_countdown = 0;
            stream_ok(status);
            check_after(l, status, false);
            end(l);
            hit = threads_failed > 0;
        }
        assert_true(n > 3);
        close_scene(&s);
    }
}

/* An expert that the caller cannot give ends what needs it, and nothing else. */
static void every_question_fails_once(void **state)
{
    (void)state;
    for (uint32_t i = first_scene; i < end_scene; ++i) {
        scene s = scene_of(i);
        source experts = {.pack = &s.pack};
        uint64_t errors = 0;
        open_scene(&s, i == 0);
        for (uint64_t n = 1, hit = 1; hit; ++n) {
            life *l = begin(&s);
            strata_status status;
            stream_ok(strata__delaying_device_open(s.pack.context, &s.options.device, &l->device));
            l->source = &experts;
            experts.countdown = n;
            experts.failed = 0;
            status = live(l);
            experts.countdown = 0;
            hit = experts.failed;
            /* Refills and places that change hands do without. */
            if (status != STRATA_OK)
                assert_int_equal(status, STRATA_ERR_IO);
            errors += status != STRATA_OK;
            check_after(l, status, false);
            end(l);
        }
        assert_true(errors > 10);
        close_scene(&s);
    }
}

static void every_allocation_fails_once(void **state)
{
    (void)state;
    for (uint32_t i = first_scene; i < end_scene; ++i) {
        scene s = scene_of(i);
        uint64_t n = 1;
        open_scene(&s, i == 0);
        for (bool hit = true; hit; ++n) {
            life *l = begin(&s);
            strata_status status;
            s.book.failed = 0;
            s.book.countdown = n;
            status = strata__delaying_device_open(s.pack.context, &s.options.device, &l->device);
            if (status == STRATA_OK)
                status = live(l);
            s.book.countdown = 0;
            if (status != STRATA_OK && status != STRATA_ERR_NO_MEMORY)
                fail_msg("%d at allocation %d: %s", status, (int)n, strata__error_text());
            check_after(l, status, false);
            end(l);
            hit = s.book.failed > 0;
        }
        assert_true(n > 100);
        close_scene(&s);
    }
}

/* An argument is the only scene. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_fails_once),       cmocka_unit_test(refused_pins_are_no_errors),
        cmocka_unit_test(every_thread_fails_once),     cmocka_unit_test(every_question_fails_once),
        cmocka_unit_test(every_allocation_fails_once),
    };
    if (argc > 1) {
        first_scene = (uint32_t)(argv[1][0] - '0');
        end_scene = first_scene + 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
