/* SPDX-License-Identifier: MIT */
#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "prefill.h"
#include "stats.h"
#include "text.h"

enum { SHOWN_TOKENS = 400 };

static double tokens_per_second(const prefill_answer *answer)
{
    double seconds = (double)answer->result.wall_ns * 1e-9;
    return seconds > 0 ? (double)answer->result.read_tokens / seconds : 0;
}

static const float *last_logits(const prefill_answer *answer)
{
    return answer->logits + (answer->positions - 1) * answer->logits_count;
}

static void write_prompt(const prefill_answer *answer, FILE *out)
{
    uint64_t bytes = 0;
    uint64_t shown = answer->tokens.count < SHOWN_TOKENS ? answer->tokens.count : SHOWN_TOKENS;
    char *text = NULL;
    if (answer->info.token_count)
        text = text_of_tokens(answer->pack, answer->tokens.ids, shown, &bytes);
    fprintf(out, "prompt  %s", text_of_count(answer->tokens.count, "token").text);
    if (text) {
        fputs(": ", out);
        text_quote(out, text, bytes);
        fputs(shown < answer->tokens.count ? " ..." : "", out);
    }
    fputc('\n', out);
    free(text);
}

static void write_candidate(const prefill_answer *answer, const candidate *next, bool first,
                            FILE *out)
{
    int32_t token = (int32_t)next->token;
    uint64_t bytes = 0;
    char *text = NULL;
    fprintf(out, "%s  %6.2f %%  %6u", first ? "next  " : "      ", 100 * next->probability,
            next->token);
    if (answer->info.token_count)
        text = text_of_tokens(answer->pack, &token, 1, &bytes);
    if (text) {
        fputs("  ", out);
        text_quote(out, text, bytes);
    }
    fputc('\n', out);
    free(text);
}

void prefill_answer_text(const prefill_answer *answer, uint64_t top, FILE *out)
{
    const strata_pack_info *info = &answer->info;
    candidate *next = calloc(top + 1, sizeof *next);
    uint64_t count = next ? likeliest(last_logits(answer), answer->logits_count, top, next) : 0;
    fprintf(out, "pack    %s: ", answer->pack_path);
    text_model(out, info);
    fprintf(out, ", %s, %s a layer, %u for a token, %s\n",
            text_of_count(info->layer_count, "layer").text,
            text_of_count(info->expert_count, "expert").text, info->experts_per_token,
            text_of_bytes(info->file_bytes).text);
    write_prompt(answer, out);
    fprintf(out, "read    %.3f s on %s, %.0f tokens/s, %s, %s of %smemory\n",
            (double)answer->result.wall_ns * 1e-9, answer->device, tokens_per_second(answer),
            text_of_count(answer->result.chunk_count, "chunk").text,
            text_of_bytes(answer->stats.device_bytes).text,
            strcmp(answer->device, "cpu") == 0 ? "" : "device ");
    for (uint64_t i = 0; i < count; i++)
        write_candidate(answer, &next[i], i == 0, out);
    free(next);
}

static void json_token_text(json_writer *json, const prefill_answer *answer, const int32_t *tokens,
                            uint64_t count)
{
    uint64_t bytes = 0;
    char *text = NULL;
    if (answer->info.token_count)
        text = text_of_tokens(answer->pack, tokens, count, &bytes);
    if (text)
        json_bytes(json, "text", text, bytes);
    else
        json_null(json, "text");
    free(text);
}

static void json_pack(json_writer *json, const prefill_answer *answer)
{
    json_object(json, "pack");
    json_string(json, "path", answer->pack_path);
    json_string(json, "architecture", answer->info.architecture);
    json_string(json, "name", answer->info.name);
    json_u64(json, "file_bytes", answer->info.file_bytes);
    json_u64(json, "layer_count", answer->info.layer_count);
    json_u64(json, "expert_count", answer->info.expert_count);
    json_u64(json, "experts_per_token", answer->info.experts_per_token);
    json_end(json);
}

static void json_result(json_writer *json, const prefill_answer *answer)
{
    json_object(json, "result");
    json_u64(json, "read_tokens", answer->result.read_tokens);
    json_u64(json, "sequence_tokens", answer->result.sequence_tokens);
    json_u64(json, "chunk_count", answer->result.chunk_count);
    json_u64(json, "wall_ns", answer->result.wall_ns);
    json_f64(json, "tokens_per_second", tokens_per_second(answer));
    json_end(json);
}

static void json_next(json_writer *json, const prefill_answer *answer, uint64_t top)
{
    candidate *next = calloc(top + 1, sizeof *next);
    uint64_t count = next ? likeliest(last_logits(answer), answer->logits_count, top, next) : 0;
    json_array(json, "next");
    for (uint64_t i = 0; i < count; i++) {
        int32_t token = (int32_t)next[i].token;
        json_object(json, NULL);
        json_u64(json, "token", next[i].token);
        json_token_text(json, answer, &token, 1);
        json_f64(json, "probability", next[i].probability);
        json_f64(json, "logit", next[i].logit);
        json_end(json);
    }
    json_end(json);
    free(next);
}

static void json_layers(json_writer *json, const prefill_answer *answer)
{
    json_array(json, "layers");
    for (uint32_t i = 0; i < answer->info.layer_count; i++) {
        json_object(json, NULL);
        json_string(json, "path", answer->layers[i].path);
        json_string(json, "reason", answer->layers[i].reason);
        json_end(json);
    }
    json_end(json);
}

void prefill_answer_json(const prefill_answer *answer, uint64_t top, const failure *unsaved,
                         FILE *out)
{
    json_writer json;
    json_start(&json, out);
    json_object(&json, NULL);
    json_string(&json, "device", answer->device);
    json_pack(&json, answer);
    json_object(&json, "prompt");
    json_u64(&json, "token_count", answer->tokens.count);
    json_token_text(&json, answer, answer->tokens.ids, answer->tokens.count);
    json_end(&json);
    json_result(&json, answer);
    json_next(&json, answer, top);
    json_layers(&json, answer);
    stats_json(&json, &answer->stats);
    failure_json(&json, unsaved);
    json_end(&json);
}
