/* SPDX-License-Identifier: MIT */
/*
 * Prompts in the application's own memory: it asks for the exact size, lends a region of it, and
 * gets it back when the prefill is destroyed. Nothing is written outside: the guard behind it stays
 * whole.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <strata/strata.h>

enum { ALIGNMENT = 4096, GUARD_BYTES = 4096, GUARD = 0xa5 };

static int failed(const char *what)
{
    char detail[512];
    strata_last_error(detail, sizeof detail);
    fprintf(stderr, "%s: %s\n", what, detail);
    return 1;
}

static int guard_is_whole(const unsigned char *guard)
{
    for (int i = 0; i < GUARD_BYTES; i++)
        if (guard[i] != GUARD)
            return 0;
    return 1;
}

static int read_prompt(strata_session *session, void *region, uint64_t region_bytes)
{
    const int32_t prompt[] = {1108, 330, 565, 281, 693, 610};
    strata_prefill_options options;
    strata_prefill_request request;
    strata_prefill_result result = {.struct_size = sizeof result};
    strata_prefill *prefill = NULL;
    strata_status status;
    strata_prefill_options_init(&options, sizeof options);
    options.memory_kind = STRATA_MEMORY_CALLER;
    options.memory = region;
    options.memory_bytes = region_bytes;
    if (strata_prefill_create(session, &options, &prefill))
        return failed("cannot borrow the region");
    strata_prefill_request_init(&request, sizeof request);
    request.tokens = prompt;
    request.token_count = sizeof prompt / sizeof prompt[0];
    request.logits_mode = STRATA_LOGITS_NONE;
    status = strata_prefill_run(prefill, &request, &result);
    strata_prefill_destroy(prefill);
    if (status != STRATA_OK)
        return failed("cannot read the prompt");
    printf("read %llu tokens in %llu borrowed bytes\n", (unsigned long long)result.read_tokens,
           (unsigned long long)region_bytes);
    return 0;
}

static int run(strata_session *session)
{
    uint64_t bytes = strata_prefill_bytes(session);
    uint64_t rounded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    unsigned char *region = aligned_alloc(ALIGNMENT, rounded + GUARD_BYTES);
    int code;
    if (!region)
        return 1;
    memset(region + bytes, GUARD, rounded - bytes + GUARD_BYTES);
    code = read_prompt(session, region, bytes);
    if (code == 0 && !guard_is_whole(region + bytes)) {
        fputs("written outside the region\n", stderr);
        code = 1;
    }
    free(region);
    return code;
}

int main(int argc, char **argv)
{
    strata_context *context = NULL;
    strata_pack *pack = NULL;
    strata_session *session = NULL;
    int code;
    if (argc != 2) {
        fputs("usage: borrowed_memory PACK\n", stderr);
        return 2;
    }
    if (strata_context_create(NULL, &context) || strata_pack_open_path(context, argv[1], &pack) ||
        strata_session_create(pack, NULL, &session))
        code = failed("cannot start");
    else
        code = run(session);
    strata_session_destroy(session);
    strata_pack_close(pack);
    strata_context_destroy(context);
    return code;
}
