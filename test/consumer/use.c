/* SPDX-License-Identifier: MIT */
/* An application that was built against the installed library: C and C++ alike. */
#include <stdio.h>
#include <stdlib.h>
#include <strata/strata.h>

/* Reads three tokens, and decodes the likeliest ones after them. */
static int go_on(strata_session *session, strata_prefill *prefill, float *logits, uint64_t count)
{
    const int32_t tokens[3] = {3, 4, 5};
    int32_t token = 0;
    strata_prefill_request prompt;
    strata_decode_request next;
    strata_decode_part part;
    strata_prefill_request_init(&prompt, sizeof prompt);
    prompt.tokens = tokens;
    prompt.token_count = 3;
    prompt.logits = logits;
    prompt.logits_capacity = count;
    strata_decode_request_init(&next, sizeof next);
    part.sequence_id = 0;
    part.token_count = 1;
    part.tokens = &token;
    next.parts = &part;
    next.part_count = 1;
    next.logits = logits;
    next.logits_capacity = count;
    if (strata_prefill_run(prefill, &prompt, NULL))
        return 1;
    for (int i = 0; i < 4; i++) {
        if (strata_logits_greedy(logits, count, &token) ||
            strata_session_decode(session, &next, NULL))
            return 1;
        printf(" %d", (int)token);
    }
    return 0;
}

int main(int argc, char **argv)
{
    strata_context *context = NULL;
    strata_pack *pack = NULL;
    strata_session *session = NULL;
    strata_prefill *prefill = NULL;
    float *logits;
    uint64_t count, length = 0;
    if (strata_version_number() != STRATA_VERSION_NUMBER || argc != 2)
        return 2;
    if (strata_context_create(NULL, &context) || strata_pack_open_path(context, argv[1], &pack) ||
        strata_session_create(pack, NULL, &session) ||
        strata_prefill_create(session, NULL, &prefill))
        return 1;
    count = strata_session_logits_count(session);
    logits = (float *)malloc(count * sizeof *logits);
    printf("%s: %llu logits;", strata_version_string(), (unsigned long long)count);
    if (!logits || go_on(session, prefill, logits, count) ||
        strata_session_length(session, 0, &length) || length != 7)
        return 1;
    puts("");
    free(logits);
    strata_prefill_destroy(prefill);
    strata_session_destroy(session);
    strata_pack_close(pack);
    strata_context_destroy(context);
    return 0;
}
