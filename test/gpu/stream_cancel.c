/* SPDX-License-Identifier: MIT */
/*
 * Prompts on an accelerator stopped at random moments: the next one gives the same bits, and
 * nothing is left allocated.
 *
 *   stream_cancel PACK DEVICE BUDGET_BYTES PROMPT_TOKENS TIMES SEED
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <strata/strata.h>

typedef struct bench {
    strata_session *session;
    strata_prefill *prefill;
    int32_t *tokens;
    uint64_t count;
    float *logits;
    uint64_t values;
    uint64_t delay_ns;
} bench;

static void *cancel_later(void *user_data)
{
    const bench *b = user_data;
    const struct timespec delay = {.tv_sec = (time_t)(b->delay_ns / 1000000000u),
                                   .tv_nsec = (long)(b->delay_ns % 1000000000u)};
    nanosleep(&delay, NULL);
    strata_session_cancel(b->session);
    return NULL;
}

static strata_status read_prompt(bench *b, uint64_t *out_ns)
{
    strata_prefill_request request;
    strata_prefill_result result = {.struct_size = sizeof result};
    uint64_t length;
    strata_status status = strata_session_truncate(b->session, 0, 0, &length);
    if (status != STRATA_OK)
        return status;
    strata_prefill_request_init(&request, sizeof request);
    request.tokens = b->tokens;
    request.token_count = b->count;
    request.logits = b->logits;
    request.logits_capacity = b->values;
    status = strata_prefill_run(b->prefill, &request, &result);
    *out_ns = result.wall_ns;
    return status;
}

static int fail(const char *what)
{
    char text[1024];
    strata_last_error(text, sizeof text);
    fprintf(stderr, "%s: %s\n", what, text);
    return 1;
}

static uint64_t device_bytes(const bench *b)
{
    strata_session_stats stats = {.struct_size = sizeof stats};
    return strata_session_stats_get(b->session, &stats) == STRATA_OK ? stats.device_bytes : 0;
}

static int run(bench *b, uint32_t times, unsigned seed)
{
    float *expected = malloc(b->values * sizeof *expected);
    uint64_t whole_ns = 0, ns, bytes;
    uint32_t stopped = 0;
    if (!expected || read_prompt(b, &ns) != STRATA_OK || read_prompt(b, &whole_ns) != STRATA_OK)
        return fail("reading");
    memcpy(expected, b->logits, b->values * sizeof *expected);
    bytes = device_bytes(b);
    for (uint32_t i = 0; i < times; i++) {
        pthread_t thread;
        strata_status status;
        b->delay_ns = (uint64_t)((double)rand_r(&seed) / RAND_MAX * (double)whole_ns);
        if (pthread_create(&thread, NULL, cancel_later, b))
            return 1;
        status = read_prompt(b, &ns);
        pthread_join(thread, NULL);
        if (status != STRATA_OK && status != STRATA_ERR_CANCELLED)
            return fail("cancelled");
        stopped += status == STRATA_ERR_CANCELLED;
        if (read_prompt(b, &ns) != STRATA_OK)
            return fail("the next prompt");
        if (memcmp(expected, b->logits, b->values * sizeof *expected) != 0) {
            fprintf(stderr, "other bits after cancel %u at %llu ns\n", i,
                    (unsigned long long)b->delay_ns);
            return 1;
        }
    }
    free(expected);
    printf("%u prompts cancelled in %u attempts; the next ones gave the same bits\n", stopped,
           times);
    return device_bytes(b) == bytes ? 0 : 1;
}

int main(int argc, char **argv)
{
    strata_context *context = NULL;
    strata_pack *pack = NULL;
    strata_pack_info info = {.struct_size = sizeof info};
    strata_plan_options plan;
    strata_session_options options;
    unsigned seed;
    bench b = {0};
    int code;
    if (argc != 7)
        return 2;
    b.count = strtoull(argv[4], NULL, 10);
    seed = (unsigned)strtoul(argv[6], NULL, 10);
    if (strata_context_create(NULL, &context) != STRATA_OK ||
        strata_pack_open_path(context, argv[1], &pack) != STRATA_OK ||
        strata_pack_info_get(pack, &info) != STRATA_OK)
        return fail("opening");
    b.tokens = malloc(b.count * sizeof *b.tokens);
    for (uint64_t i = 0; i < b.count; i++)
        b.tokens[i] = (int32_t)((unsigned)rand_r(&seed) % info.vocabulary_count);
    strata_plan_options_init(&plan, sizeof plan);
    plan.device_budget_bytes = strtoull(argv[3], NULL, 10);
    plan.context_tokens = plan.prompt_tokens = b.count;
    plan.chunk_tokens = b.count / 3 + 1;
    strata_session_options_init(&options, sizeof options);
    options.device = argv[2];
    options.plan_options = &plan;
    if (strata_session_create(pack, &options, &b.session) != STRATA_OK ||
        strata_prefill_create(b.session, NULL, &b.prefill) != STRATA_OK)
        return fail("a session");
    b.values = strata_session_logits_count(b.session);
    b.logits = malloc(b.values * sizeof *b.logits);
    code = run(&b, (uint32_t)strtoul(argv[5], NULL, 10), seed);
    strata_prefill_destroy(b.prefill);
    strata_session_destroy(b.session);
    strata_pack_close(pack);
    strata_context_destroy(context);
    return code;
}
