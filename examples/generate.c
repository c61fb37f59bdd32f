/* SPDX-License-Identifier: MIT */
/*
 * From a text to its continuation: tokenize, read the prompt, then choose a token and decode it,
 * again and again.
 *
 *   generate PACK [TEXT]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <strata/strata.h>

enum { MOST_TOKENS = 4096, ANSWER_TOKENS = 64 };

static void check(strata_status status)
{
    char detail[512];
    if (status == STRATA_OK)
        return;
    strata_last_error(detail, sizeof detail);
    fprintf(stderr, "%s: %s\n", strata_status_name(status), detail);
    exit(1);
}

/* A token may be a part of a character: its bytes go out as they are. */
static void print_token(const strata_tokenizer *tokenizer, int32_t token)
{
    const strata_decode_options options = {.struct_size = sizeof options, .continued = 1};
    char piece[256];
    uint64_t bytes;
    check(strata_tokenizer_decode(tokenizer, &token, 1, &options, piece, sizeof piece, &bytes));
    fwrite(piece, 1, bytes, stdout);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    const char *text = argc > 2 ? argv[2] : "And it came to pass after";
    strata_context *context;
    strata_pack *pack;
    strata_session *session;
    strata_prefill *prefill;
    strata_tokenizer *tokenizer;
    int32_t tokens[MOST_TOKENS], token;
    uint64_t seed = 1, count;
    float *logits;
    if (argc < 2) {
        fputs("usage: generate PACK [TEXT]\n", stderr);
        return 2;
    }

    check(strata_context_create(NULL, &context));
    check(strata_pack_open_path(context, argv[1], &pack));
    check(strata_session_create(pack, NULL, &session));
    check(strata_prefill_create(session, NULL, &prefill));
    check(strata_tokenizer_create(pack, &tokenizer));
    check(
        strata_tokenizer_encode(tokenizer, text, strlen(text), NULL, tokens, MOST_TOKENS, &count));

    uint64_t vocabulary = strata_session_logits_count(session);
    if (!(logits = malloc(vocabulary * sizeof *logits)))
        return 1;
    strata_prefill_request prompt = {.struct_size = sizeof prompt,
                                     .tokens = tokens,
                                     .token_count = count,
                                     .logits = logits,
                                     .logits_capacity = vocabulary};
    strata_decode_part part = {.sequence_id = 0, .token_count = 1, .tokens = &token};
    strata_decode_request next = {.struct_size = sizeof next,
                                  .part_count = 1,
                                  .parts = &part,
                                  .logits = logits,
                                  .logits_capacity = vocabulary};

    check(strata_prefill_run(prefill, &prompt, NULL)); /* logits: what may follow the prompt */
    for (int i = 0; i < ANSWER_TOKENS; i++) {
        check(strata_sample(NULL, logits, vocabulary, &seed, &token));
        print_token(tokenizer, token);
        check(strata_session_decode(session, &next, NULL)); /* logits: what may follow it */
    }
    putchar('\n');

    free(logits);
    strata_tokenizer_destroy(tokenizer);
    strata_prefill_destroy(prefill);
    strata_session_destroy(session);
    strata_pack_close(pack);
    strata_context_destroy(context);
    return 0;
}
