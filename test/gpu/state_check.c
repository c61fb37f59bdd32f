/* SPDX-License-Identifier: MIT */
/*
 * State of sequences on a device: after a prompt, forks, cuts, a saved copy and a restored one
 * decode on to the same bits as a sequence that was decoded alone; and how fast state is saved and
 * restored.
 *
 *   state_check PACK DEVICE BUDGET_BYTES PROMPT_TOKENS STEPS FILE
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <strata/strata.h>

enum { SEQUENCES = 4 };

typedef struct bench {
    strata_context *context;
    strata_pack *pack;
    strata_session *session;
    uint64_t values; /* of one position's logits */
    uint64_t prompt;
    uint64_t steps;
    int32_t *tokens; /* prompt and steps */
    float *expected; /* [steps][values] */
    float *logits;   /* [SEQUENCES][values] */
    uint64_t wrong;
} bench;

static void check(strata_status status, const char *what)
{
    char text[1024];
    if (status == STRATA_OK)
        return;
    strata_last_error(text, sizeof text);
    fprintf(stderr, "%s: %s\n", what, text);
    exit(1);
}

static void *need(uint64_t count, uint64_t bytes)
{
    void *memory = calloc(count, bytes);
    if (!memory)
        exit(1);
    return memory;
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void open_session(bench *b, char **argv)
{
    strata_plan_options plan;
    strata_session_options options;
    strata_plan_options_init(&plan, sizeof plan);
    strata_session_options_init(&options, sizeof options);
    plan.device_budget_bytes = strtoull(argv[3], NULL, 10);
    plan.context_tokens = b->prompt + b->steps;
    plan.sequence_count = SEQUENCES;
    options.device = argv[2];
    options.plan_options = &plan;
    check(strata_context_create(NULL, &b->context), "context");
    check(strata_pack_open_path(b->context, argv[1], &b->pack), "pack");
    check(strata_session_create(b->pack, &options, &b->session), "session");
    b->values = strata_session_logits_count(b->session);
}

static void make_tokens(bench *b)
{
    uint64_t random = 7;
    b->tokens = need(b->prompt + b->steps, sizeof *b->tokens);
    for (uint64_t i = 0; i < b->prompt + b->steps; i++) {
        random = random * UINT64_C(6364136223846793005) + 1442695040888963407u;
        b->tokens[i] = (int32_t)((random >> 33) % b->values);
    }
    b->expected = need(b->steps, b->values * sizeof *b->expected);
    b->logits = need(SEQUENCES, b->values * sizeof *b->logits);
}

static void read_prompt(const bench *b)
{
    strata_prefill *prefill;
    strata_prefill_request request;
    strata_prefill_request_init(&request, sizeof request);
    request.tokens = b->tokens;
    request.token_count = b->prompt;
    request.logits_mode = STRATA_LOGITS_NONE;
    check(strata_prefill_create(b->session, NULL, &prefill), "prefill");
    check(strata_prefill_run(prefill, &request, NULL), "prompt");
    strata_prefill_destroy(prefill);
}

static void cut(const bench *b, int32_t sequence, uint64_t tokens)
{
    uint64_t reached;
    check(strata_session_truncate(b->session, sequence, tokens, &reached), "truncate");
}

/* Token `at` behind the prompt, of several sequences in one step. */
static void step(const bench *b, int32_t first, uint32_t count, uint64_t at, float *out)
{
    strata_decode_part parts[SEQUENCES];
    strata_decode_request request;
    for (uint32_t i = 0; i < count; i++)
        parts[i] = (strata_decode_part){first + (int32_t)i, 1, b->tokens + b->prompt + at};
    strata_decode_request_init(&request, sizeof request);
    request.parts = parts;
    request.part_count = count;
    request.logits = out;
    request.logits_capacity = count * b->values;
    check(strata_session_decode(b->session, &request, NULL), "decode");
}

static void steps_on(bench *b, const char *what, int32_t first, uint32_t count, uint64_t from,
                     uint64_t to)
{
    uint64_t wrong = 0;
    for (uint64_t at = from; at < to; at++) {
        step(b, first, count, at, b->logits);
        for (uint32_t i = 0; i < count; i++)
            wrong += memcmp(b->logits + i * b->values, b->expected + at * b->values,
                            b->values * sizeof *b->logits) != 0;
    }
    printf("%s: %llu rows of %llu differ\n", what, (unsigned long long)wrong,
           (unsigned long long)((to - from) * count));
    b->wrong += wrong;
}

static void save_and_restore(bench *b, const char *path)
{
    uint64_t bytes;
    double start, saved_s, restored_s;
    void *saved;
    check(strata_session_save_memory(b->session, 1, NULL, 0, &bytes), "size");
    saved = need(bytes, 1);
    start = seconds();
    check(strata_session_save_memory(b->session, 1, saved, bytes, &bytes), "save");
    saved_s = seconds() - start;
    check(strata_session_save_path(b->session, 1, path), "save to a file");
    cut(b, 2, 0);
    start = seconds();
    check(strata_session_restore_memory(b->session, 2, saved, bytes), "restore");
    restored_s = seconds() - start;
    cut(b, 3, 0);
    check(strata_session_restore_path(b->session, 3, path), "restore from a file");
    printf("%.1f MB saved in %.1f ms, restored in %.1f ms\n", 1e-6 * (double)bytes, 1e3 * saved_s,
           1e3 * restored_s);
    free(saved);
    remove(path);
}

int main(int argc, char **argv)
{
    bench b = {0};
    uint64_t half, reached;
    if (argc != 7)
        return 2;
    b.prompt = strtoull(argv[4], NULL, 10);
    b.steps = strtoull(argv[5], NULL, 10);
    half = b.steps / 2;
    open_session(&b, argv);
    make_tokens(&b);
    read_prompt(&b);
    for (uint64_t at = 0; at < b.steps; at++)
        step(&b, 0, 1, at, b.expected + at * b.values);
    cut(&b, 0, b.prompt);
    steps_on(&b, "cut", 0, 1, 0, b.steps);
    for (int32_t to = 1; to < SEQUENCES; to++)
        check(strata_session_share(b.session, 0, to, b.prompt, &reached), "share");
    cut(&b, 0, b.prompt);
    steps_on(&b, "forked", 0, SEQUENCES, 0, half);
    save_and_restore(&b, argv[6]);
    steps_on(&b, "restored", 1, 3, half, b.steps);
    free(b.tokens);
    free(b.expected);
    free(b.logits);
    strata_session_destroy(b.session);
    strata_pack_close(b.pack);
    strata_context_destroy(b.context);
    return b.wrong != 0;
}
