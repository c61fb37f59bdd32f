/* SPDX-License-Identifier: MIT */
#include "generate.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "interrupt.h"
#include "progress.h"
#include "tool.h"

enum { MOST_END_TOKENS = 4 };

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void write_text(void *user_data, const char *bytes, uint64_t count)
{
    generation *g = user_data;
    g->write(g->user_data, bytes, count);
    if (!g->first_ns)
        g->first_ns = now_ns() - g->start_ns;
}

void generation_start(generation *g, text_stream_fn write, void *user_data)
{
    g->start_ns = now_ns();
    g->write = write;
    g->user_data = user_data;
}

uint64_t end_tokens(const strata_pack *pack, int32_t *out, uint64_t capacity)
{
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    uint64_t found = 0;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0] && found < capacity; i++) {
        int64_t token;
        if (strata_pack_metadata_int64(pack, keys[i], 0, &token) == STRATA_OK && token >= 0 &&
            token <= INT32_MAX)
            out[found++] = (int32_t)token;
    }
    return found;
}

static bool ends_text(const generation *g, int32_t token)
{
    int32_t ends[MOST_END_TOKENS];
    uint64_t count = end_tokens(g->pack, ends, MOST_END_TOKENS);
    for (uint64_t i = 0; i < count; i++)
        if (ends[i] == token)
            return !g->past_end;
    return false;
}

/* The bytes of a token; as a number where the pack has no vocabulary. */
static strata_status piece_of(const generation *g, int32_t token, char *buffer, uint64_t capacity,
                              uint64_t *out_bytes)
{
    strata_decode_options options;
    if (!g->info.token_count) {
        *out_bytes = (uint64_t)snprintf(buffer, capacity, "%s%d", g->answer_count > 1 ? " " : "",
                                        (int)token);
        return STRATA_OK;
    }
    if (!g->tokenizer)
        return strata_pack_token_text(g->pack, (uint64_t)token, buffer, capacity, out_bytes);
    strata_decode_options_init(&options, sizeof options);
    options.continued = 1;
    return strata_tokenizer_decode(g->tokenizer, &token, 1, &options, buffer, capacity, out_bytes);
}

static strata_status write_piece(generation *g, int32_t token)
{
    char few[256], *buffer = few;
    uint64_t bytes = 0;
    strata_status status = piece_of(g, token, few, sizeof few, &bytes);
    if (status == STRATA_ERR_BUFFER_TOO_SMALL) {
        buffer = malloc(bytes);
        status =
            buffer ? piece_of(g, token, buffer, bytes, &bytes) : tool_own(STRATA_ERR_NO_MEMORY);
    }
    if (status == STRATA_OK && !text_stream_add(&g->stream, buffer, bytes))
        status = tool_own(STRATA_ERR_NO_MEMORY);
    if (buffer != few)
        free(buffer);
    return status;
}

/* The prompt's working memory goes back when it has been read. */
static strata_status read_prompt(generation *g, strata_session *session, float *logits)
{
    progress_bar bar;
    strata_prefill *prefill;
    strata_prefill_request request;
    strata_prefill_result result = {.struct_size = sizeof result};
    strata_status status = strata_prefill_create(session, &g->memory, &prefill);
    if (status != STRATA_OK)
        return status;
    strata_prefill_request_init(&request, sizeof request);
    request.tokens = g->prompt.ids;
    request.token_count = g->prompt.count;
    request.logits = logits;
    request.logits_capacity = strata_session_logits_count(session);
    request.logits_mode = STRATA_LOGITS_LAST;
    request.progress_fn = progress_update;
    request.progress_user_data = &bar;
    progress_start(&bar);
    status = strata_prefill_run(prefill, &request, &result);
    progress_finish(&bar);
    g->prompt_ns = result.wall_ns;
    strata_prefill_destroy(prefill);
    return status;
}

static strata_status choose(generation *g, float *logits, uint64_t count, int32_t *out)
{
    uint64_t known = g->prompt.count + g->answer_count;
    uint64_t recent = g->recent_count < known ? g->recent_count : known;
    g->sampling.recent_tokens = g->tokens + known - recent;
    g->sampling.recent_count = recent;
    return strata_sample(&g->sampling, logits, count, &g->random_state, out);
}

static strata_status decode(strata_session *session, int32_t token, float *logits, uint64_t count)
{
    const strata_decode_part part = {.sequence_id = 0, .token_count = 1, .tokens = &token};
    strata_decode_request request;
    strata_decode_request_init(&request, sizeof request);
    request.parts = &part;
    request.part_count = 1;
    request.logits = logits;
    request.logits_capacity = count;
    request.logits_mode = STRATA_LOGITS_LAST;
    return strata_session_decode(session, &request, NULL);
}

/* One token: chosen, written, and decoded unless it is the last. *out_done: there is no next. */
static strata_status step(generation *g, strata_session *session, uint64_t context, float *logits,
                          bool *out_done)
{
    uint64_t vocabulary = strata_session_logits_count(session);
    int32_t token;
    strata_status status = choose(g, logits, vocabulary, &token);
    *out_done = true;
    if (status != STRATA_OK)
        return status;
    g->reason = STOPPED_BY_END;
    if (ends_text(g, token))
        return STRATA_OK;
    g->tokens[g->prompt.count + g->answer_count++] = token;
    status = write_piece(g, token);
    g->reason = STOPPED_BY_TEXT;
    if (status != STRATA_OK || g->stream.stopped)
        return status;
    g->reason = STOPPED_BY_COUNT;
    if (g->answer_count == g->count)
        return STRATA_OK;
    g->reason = STOPPED_BY_CONTEXT;
    if (g->start_tokens + g->prompt.count + g->answer_count > context)
        return STRATA_OK;
    *out_done = false;
    status = decode(session, token, logits, vocabulary);
    g->decode_steps += status == STRATA_OK;
    return status;
}

static strata_status answer(generation *g, strata_session *session, float *logits)
{
    strata_plan_info plan = {.struct_size = sizeof plan};
    uint64_t start = now_ns();
    bool done = g->count == 0;
    strata_status status = strata_plan_info_get(strata_session_plan(session), &plan);
    g->reason = STOPPED_BY_COUNT;
    while (status == STRATA_OK && !done) {
        if (interrupt_seen())
            return STRATA_ERR_CANCELLED;
        status = step(g, session, plan.context_tokens, logits, &done);
        g->decode_ns = now_ns() - start;
        if (ferror(stdout))
            return tool_own(STRATA_ERR_IO);
    }
    return status;
}

strata_status generation_run(generation *g, strata_session *session, const char **what)
{
    uint64_t vocabulary = strata_session_logits_count(session);
    float *logits = calloc(vocabulary, sizeof *logits);
    strata_status status;
    *what = "cannot read the prompt";
    g->tokens = calloc(g->prompt.count + g->count, sizeof *g->tokens);
    if (!logits || !g->tokens) {
        free(logits);
        return tool_own(STRATA_ERR_NO_MEMORY);
    }
    memcpy(g->tokens, g->prompt.ids, g->prompt.count * sizeof *g->tokens);
    text_stream_start(&g->stream, g->stops, g->stop_count, write_text, g);
    interrupt_catch();
    interrupt_cancels(session);
    status = read_prompt(g, session, logits);
    if (status == STRATA_OK) {
        *what = "cannot generate";
        status = answer(g, session, logits);
    }
    interrupt_cancels(NULL);
    interrupt_release();
    text_stream_end(&g->stream);
    if (status == STRATA_ERR_CANCELLED && interrupt_seen()) {
        g->reason = STOPPED_BY_INTERRUPT;
        status = STRATA_OK;
    }
    g->stats.struct_size = sizeof g->stats;
    if (status == STRATA_OK)
        status = strata_session_stats_get(session, &g->stats);
    free(logits);
    return status;
}

void generation_free(generation *g)
{
    free(g->prompt.ids);
    free(g->tokens);
}
