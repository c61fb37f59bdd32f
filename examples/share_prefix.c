/* SPDX-License-Identifier: MIT */
/*
 * Two answers from one beginning: it is read once, shared, and both sequences are decoded in the
 * same steps. The beginning is also saved: a later run need not read it again.
 *
 *   share_prefix PACK
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <strata/strata.h>

enum { ANSWERS = 2, STEPS = 8, TEXT_BYTES = 512 };

/* "And it came to pass", and two ways to go on, in the bundled model's tokens. */
static const int32_t beginning[] = {1108, 330, 565, 281, 693};
static const int32_t ends[ANSWERS] = {610, 289};

static void check(strata_status status)
{
    char detail[512];
    if (status == STRATA_OK)
        return;
    strata_last_error(detail, sizeof detail);
    fprintf(stderr, "%s: %s\n", strata_status_name(status), detail);
    exit(1);
}

static void read_beginning(strata_session *session)
{
    strata_prefill *prefill;
    strata_prefill_request request;
    strata_prefill_request_init(&request, sizeof request);
    request.tokens = beginning;
    request.token_count = sizeof beginning / sizeof beginning[0];
    request.logits_mode = STRATA_LOGITS_NONE;
    check(strata_prefill_create(session, NULL, &prefill));
    check(strata_prefill_run(prefill, &request, NULL));
    strata_prefill_destroy(prefill);
}

static void append_text(const strata_pack *pack, int32_t token, char *text)
{
    uint64_t used = strlen(text), bytes;
    check(
        strata_pack_token_text(pack, (uint64_t)token, text + used, TEXT_BYTES - used - 1, &bytes));
    text[used + bytes] = '\0';
}

/* Each step appends a token to both sequences and chooses the likeliest next ones. */
static void decode_both(const strata_pack *pack, strata_session *session, float *logits,
                        uint64_t vocabulary)
{
    char texts[ANSWERS][TEXT_BYTES] = {{0}};
    int32_t tokens[ANSWERS];
    strata_decode_part parts[ANSWERS];
    strata_decode_request request;
    for (int i = 0; i < ANSWERS; i++) {
        tokens[i] = ends[i];
        parts[i] = (strata_decode_part){.sequence_id = i, .token_count = 1, .tokens = &tokens[i]};
    }
    strata_decode_request_init(&request, sizeof request);
    request.parts = parts;
    request.part_count = ANSWERS;
    request.logits = logits;
    request.logits_capacity = ANSWERS * vocabulary;
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < ANSWERS; i++)
            append_text(pack, tokens[i], texts[i]);
        check(strata_session_decode(session, &request, NULL));
        for (int i = 0; i < ANSWERS; i++)
            check(strata_logits_greedy(logits + (uint64_t)i * vocabulary, vocabulary, &tokens[i]));
    }
    for (int i = 0; i < ANSWERS; i++)
        printf("And it came to pass%s ...\n", texts[i]);
}

/* What has been saved takes the place of reading: sequence 0 is emptied and has it again. */
static int save_and_restore(strata_session *session)
{
    uint64_t bytes, length, again;
    void *saved;
    check(strata_session_save_memory(session, 0, NULL, 0, &bytes));
    saved = malloc(bytes);
    if (!saved)
        return 1;
    check(strata_session_save_memory(session, 0, saved, bytes, &bytes));
    check(strata_session_length(session, 0, &length));
    check(strata_session_truncate(session, 0, 0, &again));
    check(strata_session_restore_memory(session, 0, saved, bytes));
    check(strata_session_length(session, 0, &again));
    printf("%llu tokens in %llu bytes\n", (unsigned long long)again, (unsigned long long)bytes);
    free(saved);
    return again != length;
}

int main(int argc, char **argv)
{
    strata_context *context;
    strata_pack *pack;
    strata_session *session;
    strata_plan_options plan;
    strata_session_options options;
    uint64_t shared, vocabulary;
    float *logits;
    int code;
    if (argc != 2) {
        fputs("usage: share_prefix PACK\n", stderr);
        return 2;
    }
    strata_plan_options_init(&plan, sizeof plan);
    strata_session_options_init(&options, sizeof options);
    plan.sequence_count = ANSWERS;
    options.plan_options = &plan;
    check(strata_context_create(NULL, &context));
    check(strata_pack_open_path(context, argv[1], &pack));
    check(strata_session_create(pack, &options, &session));
    vocabulary = strata_session_logits_count(session);
    logits = malloc(ANSWERS * vocabulary * sizeof *logits);
    if (!logits)
        return 1;

    read_beginning(session);
    check(strata_session_share(session, 0, 1, UINT64_MAX, &shared));
    decode_both(pack, session, logits, vocabulary);
    code = save_and_restore(session);

    free(logits);
    strata_session_destroy(session);
    strata_pack_close(pack);
    strata_context_destroy(context);
    return code;
}
