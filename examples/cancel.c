/* SPDX-License-Identifier: MIT */
/*
 * Stopping a prompt and going on with it. The progress function stops the first call half-way; the
 * session then holds the chunks that were completed, and a second call reads the rest.
 */
#include <stdio.h>

#include <strata/strata.h>

enum { PROMPT_TOKENS = 64, CHUNK_TOKENS = 8 };

static int failed(const char *what)
{
    char detail[512];
    strata_last_error(detail, sizeof detail);
    fprintf(stderr, "%s: %s\n", what, detail);
    return 1;
}

/* Any answer but 0 stops the prompt within a layer; elsewhere strata_session_cancel() does. */
static int32_t stop_half_way(void *user_data, const strata_progress *progress)
{
    (void)user_data;
    return progress->done_tokens >= progress->total_tokens / 2;
}

static int run(strata_session *session, strata_prefill *prefill)
{
    int32_t prompt[PROMPT_TOKENS];
    strata_prefill_request request;
    strata_status status;
    uint64_t length = 0;
    for (int i = 0; i < PROMPT_TOKENS; i++)
        prompt[i] = 3 + i;
    strata_prefill_request_init(&request, sizeof request);
    request.tokens = prompt;
    request.token_count = PROMPT_TOKENS;
    request.logits_mode = STRATA_LOGITS_NONE;
    request.progress_fn = stop_half_way;
    status = strata_prefill_run(prefill, &request, NULL);
    if (status != STRATA_ERR_CANCELLED)
        return failed("the prompt was not stopped");
    if (strata_session_length(session, 0, &length))
        return failed("length");
    printf("stopped after %llu of %d tokens\n", (unsigned long long)length, PROMPT_TOKENS);

    request.tokens = prompt + length;
    request.token_count = PROMPT_TOKENS - length;
    request.progress_fn = NULL;
    if (strata_prefill_run(prefill, &request, NULL) || strata_session_length(session, 0, &length))
        return failed("going on");
    printf("went on to %llu tokens\n", (unsigned long long)length);
    return length == PROMPT_TOKENS ? 0 : 1;
}

int main(int argc, char **argv)
{
    strata_context *context = NULL;
    strata_pack *pack = NULL;
    strata_session *session = NULL;
    strata_prefill *prefill = NULL;
    strata_plan_options plan;
    strata_session_options options;
    int code;
    if (argc != 2) {
        fputs("usage: cancel PACK\n", stderr);
        return 2;
    }
    strata_plan_options_init(&plan, sizeof plan);
    plan.chunk_tokens = CHUNK_TOKENS;
    strata_session_options_init(&options, sizeof options);
    options.plan_options = &plan;
    if (strata_context_create(NULL, &context) || strata_pack_open_path(context, argv[1], &pack) ||
        strata_session_create(pack, &options, &session) ||
        strata_prefill_create(session, NULL, &prefill))
        code = failed("cannot start");
    else
        code = run(session, prefill);
    strata_prefill_destroy(prefill);
    strata_session_destroy(session);
    strata_pack_close(pack);
    strata_context_destroy(context);
    return code;
}
