/* SPDX-License-Identifier: MIT */
#include "plan_options.h"

#include <stddef.h>

#include "file.h"
#include "option_values.h"
#include "tool.h"

enum {
    KEY_BUDGET = 0x300,
    KEY_HOST_BUDGET,
    KEY_CONTEXT,
    KEY_CHUNK,
    KEY_KV,
    KEY_PATH,
    KEY_EXPERTS,
    KEY_COSTS
};

const char *const plan_kv_names[] = {"f16", "q8_0", "f32", NULL};

static const char *const expert_names[] = {"auto", "stream", "resident", NULL};

static const struct argp_option option_table[] = {
    {0, 0, 0, 0, "Memory and paths:", 2},
    {"budget", KEY_BUDGET, "BYTES", 0, "Device memory to stay within: 12GiB, 8G, plain bytes", 2},
    {"host-budget", KEY_HOST_BUDGET, "BYTES", 0, "Page-locked host memory to stay within", 2},
    {"context", KEY_CONTEXT, "N", 0, "Longest sequence in tokens", 2},
    {"chunk", KEY_CHUNK, "N", 0, "Tokens that pass all layers together", 2},
    {"path", KEY_PATH, "PATH", 0,
     "How experts are multiplied: auto (default), direct, fused, mmq or fp16; single layers after "
     "commas: fused,8:fp16",
     2},
    {"kv", KEY_KV, "TYPE", 0, "KV cache in f16 (default), q8_0 or f32", 2},
    {"experts", KEY_EXPERTS, "WHERE", 0, "auto (default), stream or resident", 2},
    {"costs", KEY_COSTS, "FILE", 0,
     "What paths cost on the device, as strata bench --tune measures it; what is usual by default",
     2},
    {0},
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    plan_arguments *a = state->input;
    strata_plan_options *o = &a->options;
    if (key >= KEY_BUDGET && key <= KEY_COSTS)
        a->is_given = true;
    switch (key) {
    case ARGP_KEY_INIT:
        strata_plan_options_init(o, sizeof *o);
        return 0;
    case KEY_BUDGET:
        o->device_budget_bytes = option_size(arg, state, "budget");
        return 0;
    case KEY_HOST_BUDGET:
        o->host_budget_bytes = option_size(arg, state, "host-budget");
        return 0;
    case KEY_CONTEXT:
        o->context_tokens = option_number(arg, 1, INT32_MAX, state, "context");
        return 0;
    case KEY_CHUNK:
        o->chunk_tokens = option_number(arg, 1, INT32_MAX, state, "chunk");
        return 0;
    case KEY_PATH:
        o->path = arg;
        return 0;
    case KEY_KV:
        o->kv_format = option_choice(arg, plan_kv_names, state, "kv");
        a->is_kv_given = true;
        return 0;
    case KEY_EXPERTS:
        o->experts = option_choice(arg, expert_names, state, "experts");
        return 0;
    case KEY_COSTS:
        a->costs_path = arg;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

const struct argp plan_argp = {option_table, parse_option, 0, 0, 0, 0, 0};

bool plan_options_read(plan_arguments *a, bool json)
{
    static char *costs; /* which options point to: as long as the program */
    uint64_t bytes;
    file_fault fault;
    if (!a->costs_path)
        return true;
    a->options.costs = costs =
        file_read_text(a->costs_path, FILE_MOST_SETTINGS_BYTES, &bytes, &fault);
    if (!costs)
        tool_refuse(fault.status, json, "--costs: %s: %s", a->costs_path, fault.text);
    tool_names_file("costs", a->costs_path);
    return costs != NULL;
}
