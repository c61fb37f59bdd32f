/* SPDX-License-Identifier: MIT */
/* strata plan: every byte and the predicted time, without a device. */
#include <argp.h>
#include <stdlib.h>
#include <string.h>

#include "device_facts.h"
#include "json.h"
#include "parse.h"
#include "plan_view.h"
#include "tool.h"

enum {
    KEY_JSON = 0x200,
    KEY_BUDGET,
    KEY_HOST_BUDGET,
    KEY_CAPABILITY,
    KEY_LINK_RATE,
    KEY_FACTS,
    KEY_CONTEXT,
    KEY_PROMPT,
    KEY_CHUNK,
    KEY_SEQUENCES,
    KEY_KV,
    KEY_PATH,
    KEY_EXPERTS,
    KEY_SAVE
};

static const struct argp_option option_table[] = {
    {0, 0, 0, 0, "What to plan for:", 1},
    {"budget", KEY_BUDGET, "BYTES", 0, "Device memory: 12GiB, 8G, plain bytes", 1},
    {"host-budget", KEY_HOST_BUDGET, "BYTES", 0, "Page-locked host memory", 1},
    {"context", KEY_CONTEXT, "N", 0, "Longest sequence in tokens", 1},
    {"prompt", KEY_PROMPT, "N", 0, "Prompt in tokens, the context by default", 1},
    {"chunk", KEY_CHUNK, "N", 0, "Tokens that pass all layers together", 1},
    {"sequences", KEY_SEQUENCES, "N", 0, "Sequences that the KV cache holds", 1},
    {"kv", KEY_KV, "TYPE", 0, "KV cache in f16 (default), q8_0 or f32", 1},
    {"path", KEY_PATH, "PATH", 0,
     "How experts are multiplied: auto (default), direct, fused, mmq or fp16; single layers after "
     "commas: fused,8:fp16",
     1},
    {"experts", KEY_EXPERTS, "WHERE", 0, "auto (default), stream or resident", 1},
    {0, 0, 0, 0, "On which device:", 2},
    {"compute-capability", KEY_CAPABILITY, "CC", 0, "90 for 9.0; 0 (default): the CPU", 2},
    {"link-rate", KEY_LINK_RATE, "RATE", 0, "Bytes a second from host to device: 25e9", 2},
    {"device-facts", KEY_FACTS, "FILE", 0, "Lines \"name = number\", see strata_device_facts", 2},
    {0, 0, 0, 0, "Answer:", 3},
    {"json", KEY_JSON, 0, 0, "One JSON object on standard output", 3},
    {"save", KEY_SAVE, "FILE", 0, "Write the plan for a later run", 3},
    {0},
};

typedef struct arguments {
    const char *pack;
    const char *save_path;
    const char *facts_path;
    uint32_t compute_capability; /* goes before the file's */
    double link_rate;
    bool json;
    strata_plan_options options;
    strata_device_facts facts;
} arguments;

static uint64_t number(const char *text, uint64_t least, uint64_t most,
                       const struct argp_state *state, const char *option)
{
    uint64_t value = 0;
    if (!parse_u64(text, &value) || value < least || value > most)
        argp_error(state, "--%s: \"%s\" is not a number from %llu to %llu", option, text,
                   (unsigned long long)least, (unsigned long long)most);
    return value;
}

static uint64_t size(const char *text, const struct argp_state *state, const char *option)
{
    uint64_t value = 0;
    if (!parse_bytes(text, &value) || value == 0)
        argp_error(state, "--%s: \"%s\" is not a size such as 12GiB, 8G or 1048576", option, text);
    return value;
}

static uint32_t choice(const char *text, const char *const *names, const struct argp_state *state,
                       const char *option)
{
    for (uint32_t i = 0; names[i]; i++)
        if (strcmp(text, names[i]) == 0)
            return i;
    argp_error(state, "--%s: \"%s\" is not one of its values", option, text);
    return 0;
}

static error_t parse_request(int key, char *arg, struct argp_state *state)
{
    static const char *const kv_names[] = {"f16", "q8_0", "f32", NULL};
    static const char *const expert_names[] = {"auto", "stream", "resident", NULL};
    strata_plan_options *o = &((arguments *)state->input)->options;
    switch (key) {
    case KEY_BUDGET:
        o->device_budget_bytes = size(arg, state, "budget");
        return 0;
    case KEY_HOST_BUDGET:
        o->host_budget_bytes = size(arg, state, "host-budget");
        return 0;
    case KEY_CONTEXT:
        o->context_tokens = number(arg, 1, INT32_MAX, state, "context");
        return 0;
    case KEY_PROMPT:
        o->prompt_tokens = number(arg, 1, INT32_MAX, state, "prompt");
        return 0;
    case KEY_CHUNK:
        o->chunk_tokens = number(arg, 1, INT32_MAX, state, "chunk");
        return 0;
    case KEY_SEQUENCES:
        o->sequence_count = (uint32_t)number(arg, 1, 65536, state, "sequences");
        return 0;
    case KEY_KV:
        o->kv_format = choice(arg, kv_names, state, "kv");
        return 0;
    case KEY_PATH:
        o->path = arg;
        return 0;
    case KEY_EXPERTS:
        o->experts = choice(arg, expert_names, state, "experts");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    arguments *a = state->input;
    switch (key) {
    case KEY_JSON:
        a->json = true;
        return 0;
    case KEY_SAVE:
        a->save_path = arg;
        return 0;
    case KEY_CAPABILITY:
        a->compute_capability = (uint32_t)number(arg, 0, 999, state, "compute-capability");
        return 0;
    case KEY_LINK_RATE:
        if (!parse_rate(arg, &a->link_rate) || a->link_rate < 1)
            argp_error(state, "--link-rate: \"%s\" is not a number of bytes a second", arg);
        return 0;
    case KEY_FACTS:
        a->facts_path = arg;
        return 0;
    case ARGP_KEY_ARG:
        if (a->pack)
            argp_error(state, "one pack only");
        a->pack = arg;
        return 0;
    case ARGP_KEY_END:
        if (!a->pack)
            argp_error(state, "name a pack");
        return 0;
    default:
        return parse_request(key, arg, state);
    }
}

/* An infeasible plan is an answer: feasible false, the reason, and what would fit. */
static int answer_infeasible(const arguments *a, strata_pack *pack)
{
    strata_plan_shortfall shortfall = {.struct_size = sizeof shortfall};
    char reason[1024] = "";
    json_writer json;
    strata_last_error(reason, sizeof reason);
    tool_message("%s: no plan fits: %s", a->pack, reason);
    if (!a->json)
        return TOOL_FAILED;
    if (strata_plan_shortfall_get(pack, &a->options, &shortfall) != STRATA_OK)
        memset(&shortfall, 0, sizeof shortfall);
    json_start(&json, stdout);
    json_object(&json, NULL);
    json_bool(&json, "feasible", false);
    json_string(&json, "reason", reason);
    json_u64(&json, "needed_bytes", shortfall.needed_bytes);
    json_u64(&json, "missing_bytes", shortfall.missing_bytes);
    json_u64(&json, "context_tokens", shortfall.context_tokens);
    json_u64(&json, "chunk_tokens", shortfall.chunk_tokens);
    json_end(&json);
    return TOOL_FAILED;
}

static int answer_plan(const arguments *a, const strata_plan *plan)
{
    plan_view view;
    strata_status status = plan_view_read(plan, a->pack, &view);
    if (status == STRATA_OK && a->save_path)
        status = strata_plan_save_path(plan, a->save_path);
    if (status == STRATA_OK && a->json)
        plan_view_json(&view, stdout);
    else if (status == STRATA_OK)
        plan_view_text(&view, stdout);
    plan_view_free(&view);
    return status == STRATA_OK ? TOOL_OK : tool_fail("cannot give the plan", status, a->json);
}

static int make_plan(const arguments *a, strata_pack *pack)
{
    strata_plan *plan;
    strata_status status = strata_plan_create(pack, &a->options, &plan);
    int code;
    if (status == STRATA_ERR_PLAN_INFEASIBLE)
        return answer_infeasible(a, pack);
    if (status != STRATA_OK)
        return tool_fail("cannot plan", status, a->json);
    code = answer_plan(a, plan);
    strata_plan_destroy(plan);
    return code;
}

int cmd_plan(int argc, char **argv)
{
    static const struct argp parser = {
        option_table,
        parse_option,
        "PACK",
        "Plans every byte of running a pack, and the time of a prompt. No device is needed.",
        0,
        0,
        0};
    arguments a = {0};
    strata_context *context;
    strata_pack *pack;
    int code;
    strata_plan_options_init(&a.options, sizeof a.options);
    strata_device_facts_init(&a.facts, sizeof a.facts);
    argp_parse(&parser, argc, argv, 0, NULL, &a);
    if (a.facts_path && !device_facts_read(a.facts_path, &a.facts))
        return TOOL_FAILED;
    if (a.compute_capability)
        a.facts.compute_capability = a.compute_capability;
    if (a.link_rate > 0)
        a.facts.link_bytes_per_second = a.link_rate;
    a.options.device = &a.facts;
    if (!tool_open_pack(a.pack, a.json, &context, &pack))
        return TOOL_FAILED;
    code = make_plan(&a, pack);
    strata_pack_close(pack);
    strata_context_destroy(context);
    return code;
}
