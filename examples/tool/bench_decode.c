/* SPDX-License-Identifier: MIT */
#include "bench_decode.h"

#include <stdlib.h>

#include "parse.h"
#include "stats.h"
#include "text.h"
#include "tool.h"

static strata_status run_round(const bench_decode *d, strata_session *session,
                               const int32_t *tokens, float *logits, uint64_t capacity,
                               uint64_t *out_ns)
{
    strata_decode_part part = {.token_count = (uint32_t)d->rows};
    strata_status status = STRATA_OK;
    *out_ns = 0;
    for (uint64_t i = 0; i < d->steps && status == STRATA_OK; i++) {
        strata_decode_request request;
        strata_decode_result result = {.struct_size = sizeof result};
        part.tokens = tokens + i * d->rows;
        strata_decode_request_init(&request, sizeof request);
        request.parts = &part;
        request.part_count = 1;
        request.logits = logits;
        request.logits_capacity = capacity;
        request.logits_mode = STRATA_LOGITS_ALL;
        status = strata_session_decode(session, &request, &result);
        *out_ns += result.wall_ns;
    }
    return status;
}

static int ascending(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

static strata_status run_rounds(bench_decode *d, strata_session *session, uint64_t prompt,
                                uint32_t vocabulary, float *logits, uint64_t capacity)
{
    uint64_t times[BENCH_MOST_ROUNDS];
    strata_status status = STRATA_OK;
    for (uint64_t i = 0; i < d->rounds && status == STRATA_OK; i++) {
        token_list tokens;
        uint64_t length;
        if (random_tokens(d->steps * d->rows, 100 + i, vocabulary, &tokens) != TOKENS_OK)
            return tool_own(STRATA_ERR_NO_MEMORY);
        status = strata_session_truncate(session, 0, prompt, &length);
        if (status == STRATA_OK)
            status = run_round(d, session, tokens.ids, logits, capacity, &times[i]);
        free(tokens.ids);
    }
    if (status != STRATA_OK)
        return status;
    d->first_ns = times[0];
    qsort(times, d->rounds, sizeof times[0], ascending);
    d->median_ns = times[d->rounds / 2];
    return STRATA_OK;
}

strata_status bench_decode_run(bench_decode *d, strata_session *session, uint64_t prompt,
                               uint32_t vocabulary)
{
    strata_session_stats before = {.struct_size = sizeof before}, after = before;
    uint64_t capacity = d->rows * strata_session_logits_count(session);
    float *logits = malloc(capacity * sizeof *logits);
    strata_status status =
        logits ? strata_session_stats_get(session, &before) : tool_own(STRATA_ERR_NO_MEMORY);
    if (status == STRATA_OK)
        status = run_rounds(d, session, prompt, vocabulary, logits, capacity);
    if (status == STRATA_OK)
        status = strata_session_stats_get(session, &after);
    if (status == STRATA_OK)
        d->stats = stats_between(&before, &after);
    free(logits);
    return status;
}

static double rate(const bench_decode *d, uint64_t ns)
{
    return ns ? 1e9 * (double)(d->steps * d->rows) / (double)ns : 0;
}

/* Of the bytes of experts that steps needed, those that the device had. */
static double hit_rate(const strata_session_stats *s)
{
    uint64_t all = s->decode_hit_bytes + s->decode_place_bytes + s->decode_fetch_bytes;
    return all ? (double)s->decode_hit_bytes / (double)all : 1;
}

void bench_decode_text(const bench_decode *d, FILE *out)
{
    const strata_session_stats *s = &d->stats;
    if (!d->steps)
        return;
    fprintf(out, "decode: %s of ", text_of_count(d->steps, "step").text);
    fprintf(out, "%s, %.1f tokens/s; the first time after the prompt %.1f\n",
            text_of_count(d->rows, "token").text, rate(d, d->median_ns), rate(d, d->first_ns));
    if (s->decode_hit_bytes + s->decode_place_bytes + s->decode_fetch_bytes == 0)
        return;
    fprintf(out, "decode: %.1f %% of experts on the device", 100 * hit_rate(s));
    fprintf(out, ", read in place %s", text_of_bytes(s->decode_place_bytes).text);
    fprintf(out, ", fetched %s", text_of_bytes(s->decode_fetch_bytes).text);
    fprintf(out, ", put into the cache %s\n", text_of_bytes(s->decode_admit_bytes).text);
}

void bench_decode_json(const bench_decode *d, json_writer *json)
{
    if (!d->steps)
        return;
    json_object(json, "decode");
    json_u64(json, "steps", d->steps);
    json_u64(json, "rows", d->rows);
    json_u64(json, "rounds", d->rounds);
    json_u64(json, "median_ns", d->median_ns);
    json_u64(json, "first_ns", d->first_ns);
    json_f64(json, "tokens_per_second", rate(d, d->median_ns));
    json_f64(json, "first_tokens_per_second", rate(d, d->first_ns));
    json_f64(json, "hit_rate", hit_rate(&d->stats));
    stats_json(json, &d->stats);
    json_end(json);
}
