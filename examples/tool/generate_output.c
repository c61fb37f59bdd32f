/* SPDX-License-Identifier: MIT */
#include "generate.h"
#include "json.h"
#include "stats.h"
#include "text.h"

/* By stop_reason: as JSON has them, and as they are told. */
static const char *const reason_names[] = {"count", "end", "text", "context", "interrupt"};
static const char *const reasons[] = {"", ", ended by the model", ", ended by a text to stop at",
                                      ", the context is full", ", interrupted"};

static double speed(uint64_t tokens, uint64_t ns)
{
    return ns ? (double)tokens / ((double)ns * 1e-9) : 0;
}

double prompt_speed(const generation *g)
{
    return speed(g->stats.prompt_tokens, g->prompt_ns);
}

double decode_speed(const generation *g)
{
    return speed(g->decode_steps, g->decode_ns);
}

void generation_summary(const generation *g)
{
    char first[64] = "";
    if (g->first_ns)
        snprintf(first, sizeof first, ", the first after %.2f s", (double)g->first_ns * 1e-9);
    tool_message("prompt %s, %.1f tokens/s; generated %s, %.1f tokens/s%s%s",
                 text_of_count(g->stats.prompt_tokens, "token").text, prompt_speed(g),
                 text_of_count(g->answer_count, "token").text, decode_speed(g), first,
                 reasons[g->reason]);
}

void generation_json(const generation *g, const char *pack_path, const char *device,
                     const char *text, uint64_t text_bytes, const failure *unsaved, FILE *out)
{
    json_writer json;
    json_start(&json, out);
    json_object(&json, NULL);
    json_string(&json, "device", device ? device : "cpu");
    json_object(&json, "pack");
    json_string(&json, "path", pack_path);
    json_string(&json, "architecture", g->info.architecture);
    json_string(&json, "name", g->info.name);
    json_end(&json);
    json_object(&json, "prompt");
    json_u64(&json, "token_count", g->prompt.count);
    json_u64(&json, "wall_ns", g->prompt_ns);
    json_f64(&json, "tokens_per_second", prompt_speed(g));
    json_end(&json);
    json_object(&json, "answer");
    json_bytes(&json, "text", text, text_bytes);
    json_u64(&json, "token_count", g->answer_count);
    json_array(&json, "tokens");
    for (uint64_t i = 0; i < g->answer_count; i++)
        json_i64(&json, NULL, g->tokens[g->prompt.count + i]);
    json_end(&json);
    json_string(&json, "stopped_by", reason_names[g->reason]);
    json_u64(&json, "decode_steps", g->decode_steps);
    json_u64(&json, "first_text_ns", g->first_ns);
    json_u64(&json, "wall_ns", g->decode_ns);
    json_f64(&json, "tokens_per_second", decode_speed(g));
    json_end(&json);
    stats_json(&json, &g->stats);
    failure_json(&json, unsaved);
    json_end(&json);
}
