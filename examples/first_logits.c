/* SPDX-License-Identifier: MIT */
/* The shortest use: a pack, a prompt, the likeliest next token. */
#include <stdio.h>
#include <stdlib.h>

#include <strata/strata.h>

static int failed(void)
{
    char detail[512];
    strata_last_error(detail, sizeof detail);
    fprintf(stderr, "%s\n", detail);
    return 1;
}

int main(int argc, char **argv)
{
    const int32_t prompt[] = {1108, 330, 565, 281, 693, 610};
    strata_context *context = NULL;
    strata_pack *pack = NULL;
    strata_session *session = NULL;
    strata_prefill *prefill = NULL;
    strata_prefill_request request;
    uint64_t best = 0;

    if (argc != 2) {
        fputs("usage: first_logits PACK\n", stderr);
        return 2;
    }
    if (strata_context_create(NULL, &context) || strata_pack_open_path(context, argv[1], &pack) ||
        strata_session_create(pack, NULL, &session) ||
        strata_prefill_create(session, NULL, &prefill))
        return failed();

    strata_prefill_request_init(&request, sizeof request);
    request.tokens = prompt;
    request.token_count = sizeof prompt / sizeof prompt[0];
    request.logits_capacity = strata_session_logits_count(session);
    request.logits = malloc(request.logits_capacity * sizeof *request.logits);
    if (!request.logits || strata_prefill_run(prefill, &request, NULL))
        return failed();

    for (uint64_t i = 1; i < request.logits_capacity; i++)
        if (request.logits[i] > request.logits[best])
            best = i;
    printf("%llu\n", (unsigned long long)best);

    free(request.logits);
    strata_prefill_destroy(prefill);
    strata_session_destroy(session);
    strata_pack_close(pack);
    strata_context_destroy(context);
    return 0;
}
