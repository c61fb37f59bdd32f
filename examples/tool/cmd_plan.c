/* SPDX-License-Identifier: MIT */
/* strata plan: every byte and the predicted time, without a device. */
#include <argp.h>
#include <stdlib.h>
#include <string.h>

#include "device_facts.h"
#include "file.h"
#include "json.h"
#include "option_values.h"
#include "parse.h"
#include "plan_options.h"
#include "plan_view.h"
#include "tool.h"

enum { KEY_CAPABILITY = 0x200, KEY_LINK_RATE, KEY_FACTS, KEY_PROMPT, KEY_SEQUENCES, KEY_SAVE };

static const struct argp_option option_table[] = {
    {0, 0, 0, 0, "What to plan for:", 1},
    {"prompt", KEY_PROMPT, "N", 0, "Prompt in tokens, the context by default", 1},
    {"sequences", KEY_SEQUENCES, "N", 0, "Sequences that the KV cache holds", 1},
    {0, 0, 0, 0, "On which device:", 3},
    {"compute-capability", KEY_CAPABILITY, "CC", 0, "90 or 9.0; 0 (default): the CPU", 3},
    {"link-rate", KEY_LINK_RATE, "RATE", 0, "Bytes a second from host to device: 25GB, 25e9", 3},
    {"device-facts", KEY_FACTS, "FILE", 0, "Lines \"name = number\", see strata_device_facts", 3},
    {0, 0, 0, 0, "Answer:", 9},
    {"save", KEY_SAVE, "FILE", 0, "Write the plan for a later run", 9},
    {0},
};

typedef struct arguments {
    pack_arguments in;
    const char *save_path;
    const char *facts_path;
    uint32_t compute_capability; /* goes before the file's */
    bool is_capability_given;
    double link_rate;
    plan_arguments plan;
    strata_device_facts facts;
} arguments;

/* "90" or "9.0" */
static bool parse_capability(const char *text, uint32_t *out)
{
    const char *point = strchr(text, '.');
    uint64_t value = 0, minor = 0;
    char major[4] = "";
    if (!point) {
        if (!parse_u64(text, &value) || value > 999)
            return false;
        *out = (uint32_t)value;
        return true;
    }
    if ((size_t)(point - text) >= sizeof major)
        return false;
    memcpy(major, text, (size_t)(point - text));
    if (!parse_u64(major, &value) || value > 99 || !parse_u64(point + 1, &minor) || minor > 9)
        return false;
    *out = (uint32_t)(10 * value + minor);
    return true;
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    arguments *a = state->input;
    uint64_t bytes;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &a->in;
        state->child_inputs[1] = &a->plan;
        return 0;
    case KEY_PROMPT:
        a->plan.options.prompt_tokens = option_number(arg, 1, INT32_MAX, state, "prompt");
        return 0;
    case KEY_SEQUENCES:
        a->plan.options.sequence_count = (uint32_t)option_number(arg, 1, 65536, state, "sequences");
        return 0;
    case KEY_SAVE:
        a->save_path = arg;
        return 0;
    case KEY_CAPABILITY:
        if (!parse_capability(arg, &a->compute_capability))
            argp_error(state, "--compute-capability: \"%s\" is none: 90 or 9.0, 0 for the CPU",
                       arg);
        a->is_capability_given = true;
        return 0;
    case KEY_LINK_RATE:
        if (parse_bytes(arg, &bytes))
            a->link_rate = (double)bytes;
        else if (!parse_rate(arg, &a->link_rate))
            a->link_rate = 0;
        if (a->link_rate < 1)
            argp_error(state, "--link-rate: \"%s\" is not a number of bytes a second: 25GB, 25e9",
                       arg);
        return 0;
    case KEY_FACTS:
        a->facts_path = arg;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* An infeasible plan is an answer: feasible false, the reason, and what would fit. */
static int answer_infeasible(const arguments *a, strata_pack *pack)
{
    strata_plan_shortfall shortfall = {.struct_size = sizeof shortfall};
    char reason[1024] = "";
    json_writer json;
    strata_last_error(reason, sizeof reason);
    tool_message("%s: no plan fits: %s", a->in.pack, reason);
    if (!a->in.json)
        return TOOL_FAILED;
    if (strata_plan_shortfall_get(pack, &a->plan.options, &shortfall) != STRATA_OK)
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
    failure unsaved = {0};
    strata_status status = plan_view_read(plan, a->in.pack, &view), saved = STRATA_OK;
    if (status != STRATA_OK) {
        plan_view_free(&view);
        return tool_fail("cannot give the plan", status, a->in.json);
    }
    view.is_cpu = a->facts.compute_capability == 0;
    if (!a->in.json)
        plan_view_text(&view, stdout);
    fflush(stdout); /* before what standard error tells */
    if (a->save_path)
        saved = strata_plan_save_path(plan, a->save_path);
    if (saved != STRATA_OK)
        failure_of_call(&unsaved, "cannot save the plan", saved);
    if (a->in.json)
        plan_view_json(&view, &unsaved, stdout);
    plan_view_free(&view);
    return unsaved.status == STRATA_OK ? TOOL_OK : TOOL_FAILED;
}

static bool can_save(const arguments *a)
{
    file_fault fault;
    if (!a->save_path || file_can_create(a->save_path, &fault))
        return true;
    tool_refuse(fault.status, a->in.json, "%s: %s", a->save_path, fault.text);
    return false;
}

static int make_plan(const arguments *a, strata_pack *pack)
{
    strata_plan *plan;
    strata_status status = strata_plan_create(pack, &a->plan.options, &plan);
    int code;
    if (status == STRATA_ERR_PLAN_INFEASIBLE)
        return answer_infeasible(a, pack);
    if (status != STRATA_OK)
        return tool_fail("cannot plan", status, a->in.json);
    code = answer_plan(a, plan);
    strata_plan_destroy(plan);
    return code;
}

int cmd_plan(int argc, char **argv)
{
    static const struct argp_child children[] = {{&pack_argp, 0, 0, 0}, {&plan_argp, 0, 0, 0}, {0}};
    static const struct argp parser = {
        option_table,
        parse_option,
        "PACK",
        "Plans every byte of running a pack, and the time of a prompt. No device is needed.",
        children,
        0,
        0};
    arguments a = {0};
    strata_context *context;
    strata_pack *pack;
    int code;
    strata_device_facts_init(&a.facts, sizeof a.facts);
    argp_parse(&parser, argc, argv, 0, NULL, &a);
    if (a.facts_path && !device_facts_read(a.facts_path, a.in.json, &a.facts))
        return TOOL_FAILED;
    if (a.is_capability_given)
        a.facts.compute_capability = a.compute_capability;
    if (a.link_rate > 0)
        a.facts.link_bytes_per_second = a.link_rate;
    a.plan.options.device = &a.facts;
    if (!plan_options_read(&a.plan, a.in.json) || !can_save(&a) ||
        !tool_open_pack(a.in.pack, a.in.json, &context, &pack))
        return TOOL_FAILED;
    code = make_plan(&a, pack);
    strata_pack_close(pack);
    strata_context_destroy(context);
    return code;
}
