/* SPDX-License-Identifier: MIT */
/*
 * check_session PACK: sessions on CUDA through the public API, on a small pack.
 *
 * Memory: what is allocated is what is planned, to the byte, and nothing more is taken from the
 * moment a session is ready to the end of a prompt. Budgets that change. The caller's stream,
 * memory and current device. A device that is lost, on purpose, at the end. Exit code 0: all
 * right, 1: something is wrong, 77: no device.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <strata/strata.h>

#include "device_kernels.h"

enum { TOKENS = 700, CONTEXT = 1024, CHUNK = 256, GUARD = 1 << 16 };

static int checks, failures;
static int32_t tokens[TOKENS];

static const char *last_error(void)
{
    static char text[512];
    strata_last_error(text, sizeof text);
    return text;
}

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        checks++;                                                                                  \
        if (!(condition)) {                                                                        \
            failures++;                                                                            \
            printf("  FAIL line %d: %s (last error: %s)\n", __LINE__, #condition, last_error());   \
        }                                                                                          \
    } while (0)

#define OK(status) CHECK((status) == STRATA_OK)

typedef struct opened {
    strata_session *session;
    strata_prefill *prefill;
    strata_plan_info plan;
} opened;

static uint64_t free_bytes(void)
{
    size_t now = 0, total;
    CHECK(cudaMemGetInfo(&now, &total) == cudaSuccess);
    return now;
}

static strata_session_stats stats_of(const opened *o)
{
    strata_session_stats stats = {.struct_size = sizeof stats};
    OK(strata_session_stats_get(o->session, &stats));
    return stats;
}

static strata_plan_options plan_options(void)
{
    strata_plan_options options = {.struct_size = sizeof options};
    options.context_tokens = CONTEXT;
    options.chunk_tokens = CHUNK;
    options.experts = STRATA_EXPERTS_RESIDENT;
    return options;
}

static bool open_with(strata_pack *pack, uint32_t level, uint32_t experts, opened *o)
{
    strata_plan_options plan = plan_options();
    strata_session_options options = {.struct_size = sizeof options};
    memset(o, 0, sizeof *o);
    plan.experts = experts;
    options.device = "cuda:0";
    options.plan_options = &plan;
    options.kernel_level = level;
    o->plan.struct_size = sizeof o->plan;
    OK(strata_session_create(pack, &options, &o->session));
    if (!o->session)
        return false;
    OK(strata_plan_info_get(strata_session_plan(o->session), &o->plan));
    OK(strata_prefill_create(o->session, NULL, &o->prefill));
    return o->prefill != NULL;
}

static bool open_own(strata_pack *pack, uint32_t level, opened *o)
{
    return open_with(pack, level, STRATA_EXPERTS_RESIDENT, o);
}

static void close_all(opened *o)
{
    strata_prefill_destroy(o->prefill);
    strata_session_destroy(o->session);
}

typedef struct watch {
    uint64_t ready; /* free when the session was ready */
    uint32_t layers;
    bool moved;
} watch;

static int32_t watch_memory(void *user_data, const strata_progress *progress)
{
    watch *w = user_data;
    (void)progress;
    w->layers++;
    w->moved |= free_bytes() != w->ready;
    return 0;
}

static strata_status read_prompt(const opened *o, float *logits, strata_progress_fn fn, void *data)
{
    strata_prefill_request request;
    strata_prefill_result result = {.struct_size = sizeof result};
    uint64_t count = strata_session_logits_count(o->session), length;
    strata_status status;
    strata_prefill_request_init(&request, sizeof request);
    request.tokens = tokens;
    request.token_count = TOKENS;
    request.logits = logits;
    request.logits_capacity = count * TOKENS;
    request.logits_mode = STRATA_LOGITS_ALL;
    request.progress_fn = fn;
    request.progress_user_data = data;
    status = strata_prefill_run(o->prefill, &request, &result);
    if (status == STRATA_OK)
        OK(strata_session_truncate(o->session, 0, 0, &length));
    return status;
}

static float *room_for_logits(const opened *o)
{
    uint64_t bytes = strata_session_logits_count(o->session) * TOKENS * sizeof(float);
    float *logits = malloc(bytes);
    if (logits)
        memset(logits, 0xff, bytes);
    return logits;
}

static uint64_t logits_bytes(const opened *o)
{
    return strata_session_logits_count(o->session) * TOKENS * sizeof(float);
}

/* Both numbers of the statistics against the plan and against what the device has left. */
static void check_memory(strata_pack *pack, uint32_t level)
{
    uint64_t before = free_bytes(), after;
    strata_session_stats ready, read;
    watch w = {0};
    opened o;
    float *logits;
    if (!open_own(pack, level, &o))
        return;
    w.ready = free_bytes();
    ready = stats_of(&o);
    CHECK(ready.device_bytes == o.plan.session_bytes + o.plan.prefill_bytes);
    CHECK(ready.device_bytes == o.plan.device_bytes);
    CHECK(ready.host_bytes == o.plan.host_bytes + o.plan.decode_host_bytes);
    CHECK(o.plan.prefill_bytes == strata_prefill_bytes(o.session));
    CHECK(before - w.ready == ready.device_bytes + ready.device_runtime_bytes);
    logits = room_for_logits(&o);
    OK(read_prompt(&o, logits, watch_memory, &w));
    OK(read_prompt(&o, logits, watch_memory, &w));
    CHECK(w.layers > 0 && !w.moved && free_bytes() == w.ready);
    read = stats_of(&o);
    CHECK(read.device_bytes == ready.device_bytes && read.host_bytes == ready.host_bytes);
    CHECK(read.device_runtime_bytes == ready.device_runtime_bytes);
    printf("level %u: planned and allocated %llu bytes, beside them %llu (modules, streams, whole "
           "pages)\n",
           level, (unsigned long long)ready.device_bytes,
           (unsigned long long)ready.device_runtime_bytes);
    free(logits);
    close_all(&o);
    after = free_bytes();
    CHECK(after >= w.ready + ready.device_bytes);
}

/* All experts leave the device and come back; memory follows to the byte, logits stay. */
static void check_budget(strata_pack *pack)
{
    uint64_t whole, least;
    float *expected, *logits;
    opened o;
    if (!open_with(pack, 0, STRATA_EXPERTS_AUTO, &o))
        return;
    CHECK(o.plan.ring_bytes == 0);
    whole = stats_of(&o).device_bytes;
    least = whole - o.plan.expert_cache_bytes;
    expected = room_for_logits(&o);
    logits = room_for_logits(&o);
    OK(read_prompt(&o, expected, NULL, NULL));
    CHECK(strata_session_set_budget(o.session, least - 1) == STRATA_ERR_PLAN_INFEASIBLE);
    for (int i = 0; i < 4; i++) {
        uint64_t budget = i % 2 ? whole : least;
        OK(strata_session_set_budget(o.session, budget));
        CHECK(stats_of(&o).device_bytes == budget);
        OK(read_prompt(&o, logits, NULL, NULL));
        CHECK(memcmp(expected, logits, logits_bytes(&o)) == 0);
    }
    CHECK(stats_of(&o).blob_sent_bytes > 0);
    printf("budgets: from %llu bytes to %llu and back\n", (unsigned long long)whole,
           (unsigned long long)least);
    free(expected);
    free(logits);
    close_all(&o);
}

typedef struct release {
    volatile uint32_t *gate;
    atomic_bool done;
} release;

static void *release_later(void *user_data)
{
    release *r = user_data;
    usleep(300000);
    atomic_store(&r->done, true);
    *r->gate = 1;
    return NULL;
}

static bool guards_whole(uint8_t *region, uint64_t bytes)
{
    uint8_t *zone = malloc(GUARD);
    bool whole = true;
    CHECK(cudaMemcpy(zone, region + bytes, GUARD, cudaMemcpyDefault) == cudaSuccess);
    for (int i = 0; i < GUARD; i++)
        whole &= zone[i] == 0xa5;
    free(zone);
    return whole;
}

static uint8_t *guarded_region(uint64_t bytes)
{
    uint8_t *region = NULL;
    CHECK(cudaMalloc((void **)&region, bytes + GUARD) == cudaSuccess);
    CHECK(cudaMemset(region, 0xa5, bytes + GUARD) == cudaSuccess);
    return region;
}

/* A session that lives in the caller's memory and works on the caller's stream alone. */
static void open_borrowed(strata_pack *pack, cudaStream_t stream, opened *o, uint8_t *memory[2])
{
    strata_plan_options plan = plan_options();
    strata_session_options options = {.struct_size = sizeof options};
    strata_prefill_options prefill = {.struct_size = sizeof prefill};
    strata_device_facts facts = {.struct_size = sizeof facts};
    strata_plan *made = NULL;
    memset(o, 0, sizeof *o);
    struct cudaDeviceProp properties;
    CHECK(cudaGetDeviceProperties(&properties, 0) == cudaSuccess);
    facts.compute_capability = (uint32_t)(properties.major * 10 + properties.minor);
    plan.device = &facts;
    OK(strata_plan_create(pack, &plan, &made));
    o->plan.struct_size = sizeof o->plan;
    OK(strata_plan_info_get(made, &o->plan));
    memory[0] = guarded_region(o->plan.session_bytes);
    memory[1] = guarded_region(o->plan.prefill_bytes);
    options.device = "cuda:0";
    options.plan = made;
    options.stream = stream;
    options.device_memory = memory[0];
    options.device_memory_bytes = o->plan.session_bytes;
    OK(strata_session_create(pack, &options, &o->session));
    prefill.memory_kind = STRATA_MEMORY_CALLER;
    prefill.memory = memory[1];
    prefill.memory_bytes = o->plan.prefill_bytes;
    if (o->session)
        OK(strata_prefill_create(o->session, &prefill, &o->prefill));
    strata_plan_destroy(made);
}

static void check_borrowed(strata_pack *pack, const float *right, uint64_t right_bytes)
{
    cudaStream_t stream;
    uint8_t *memory[2];
    release r = {NULL, false};
    pthread_t thread;
    float *logits;
    opened o;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    CHECK(cudaHostAlloc((void **)(uintptr_t)&r.gate, 64, cudaHostAllocMapped) == cudaSuccess);
    open_borrowed(pack, stream, &o, memory);
    if (!o.prefill)
        return;
    CHECK(stats_of(&o).device_bytes == 0);
    logits = room_for_logits(&o);
    /* The stream is held: a prompt that is read before it is let go is on another one. */
    *r.gate = 0;
    CHECK(launch_gate(stream, r.gate) == cudaSuccess);
    CHECK(pthread_create(&thread, NULL, release_later, &r) == 0);
    OK(read_prompt(&o, logits, NULL, NULL));
    CHECK(atomic_load(&r.done));
    pthread_join(thread, NULL);
    CHECK(logits_bytes(&o) == right_bytes && !memcmp(logits, right, right_bytes));
    CHECK(guards_whole(memory[0], o.plan.session_bytes));
    CHECK(guards_whole(memory[1], o.plan.prefill_bytes));
    close_all(&o);
    CHECK(cudaStreamQuery(stream) == cudaSuccess && cudaStreamDestroy(stream) == cudaSuccess);
    CHECK(cudaFree(memory[0]) == cudaSuccess && cudaFree(memory[1]) == cudaSuccess);
    CHECK(cudaFreeHost((void *)(uintptr_t)r.gate) == cudaSuccess);
    free(logits);
}

/* The same bits again, and the caller's device is current after each call. */
static float *check_bits(strata_pack *pack, uint64_t *out_bytes)
{
    int count = 0, now = -1;
    float *first, *second;
    opened o;
    CHECK(cudaGetDeviceCount(&count) == cudaSuccess);
    CHECK(cudaSetDevice(count - 1) == cudaSuccess);
    if (!open_own(pack, 0, &o))
        return NULL;
    CHECK(cudaGetDevice(&now) == cudaSuccess && now == count - 1);
    first = room_for_logits(&o);
    second = room_for_logits(&o);
    OK(read_prompt(&o, first, NULL, NULL));
    OK(read_prompt(&o, second, NULL, NULL));
    CHECK(cudaGetDevice(&now) == cudaSuccess && now == count - 1);
    *out_bytes = logits_bytes(&o);
    CHECK(!memcmp(first, second, *out_bytes));
    close_all(&o);
    CHECK(cudaGetDevice(&now) == cudaSuccess && now == count - 1);
    CHECK(cudaSetDevice(0) == cudaSuccess);
    free(second);
    return first;
}

/* Ends the process's use of the device: the library says so, and gives back what it has. */
static void check_lost(strata_pack *pack)
{
    strata_session_options options = {.struct_size = sizeof options};
    strata_plan_options plan = plan_options();
    cudaStream_t stream;
    uint64_t length = 0;
    opened o = {0};
    float *logits;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    options.device = "cuda:0";
    options.plan_options = &plan;
    options.stream = stream;
    OK(strata_session_create(pack, &options, &o.session));
    if (!o.session)
        return;
    OK(strata_prefill_create(o.session, NULL, &o.prefill));
    logits = room_for_logits(&o);
    CHECK(launch_trap(stream) == cudaSuccess);
    CHECK(read_prompt(&o, logits, NULL, NULL) == STRATA_ERR_DEVICE_LOST);
    CHECK(strstr(last_error(), "cudaError") != NULL);
    CHECK(read_prompt(&o, logits, NULL, NULL) == STRATA_ERR_DEVICE_LOST);
    OK(strata_session_length(o.session, 0, &length));
    CHECK(length == 0 && stats_of(&o).prompt_tokens == 0);
    close_all(&o);
    o.session = NULL;
    CHECK(strata_session_create(pack, &options, &o.session) != STRATA_OK && !o.session);
    free(logits);
}

int main(int argc, char **argv)
{
    strata_context *context = NULL;
    strata_pack *pack = NULL;
    uint64_t bytes = 0;
    float *logits;
    int count = 0;
    if (argc != 2)
        return 2;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
        printf("no CUDA device: skipped\n");
        return 77;
    }
    CHECK(cudaFree(NULL) == cudaSuccess); /* the context is this program's */
    OK(strata_context_create(NULL, &context));
    OK(strata_pack_open_path(context, argv[1], &pack));
    if (!pack)
        return 1;
    for (int i = 0; i < TOKENS; i++)
        tokens[i] = (i * 7919 + 13) % 1000;
    check_memory(pack, 0);
    check_memory(pack, 80);
    check_budget(pack);
    logits = check_bits(pack, &bytes);
    if (logits)
        check_borrowed(pack, logits, bytes);
    check_lost(pack);
    strata_pack_close(pack);
    strata_context_destroy(context);
    free(logits);
    printf("sessions: %d checks, %d failures\n", checks, failures);
    return failures ? 1 : 0;
}
