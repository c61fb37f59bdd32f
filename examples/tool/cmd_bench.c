/* SPDX-License-Identifier: MIT */
/* strata bench: how fast prompts of several lengths are read, and what follows is decoded. */
#include <argp.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench_decode.h"
#include "bench_tune.h"
#include "json.h"
#include "option_values.h"
#include "run_options.h"
#include "stats.h"
#include "text.h"
#include "tool.h"

enum { KEY_PROMPTS = 0x200, KEY_REPEAT, KEY_COLD, KEY_DECODE, KEY_ROWS, KEY_TUNE };
enum { MAX_PROMPTS = 32, MAX_REPEATS = BENCH_MOST_ROUNDS };

static const struct argp_option option_table[] = {
    {0, 0, 0, 0, "Measurement:", 1},
    {"prompts", KEY_PROMPTS, "LENGTHS", 0, "Prompt lengths in tokens, 512,4096 by default", 1},
    {"repeat", KEY_REPEAT, "N", 0, "Timed readings of each length after one untimed, 3 by default",
     1},
    {"cold", KEY_COLD, 0, 0, "The expert cache is emptied before every reading", 1},
    {"decode", KEY_DECODE, "N", 0,
     "N steps of decoding from each prompt's end on, as often as it is read", 1},
    {"rows", KEY_ROWS, "R", 0, "Tokens of a step of --decode, 1 by default", 1},
    {"tune", KEY_TUNE, "FILE", 0,
     "Measure what paths and formats cost on the device instead, and write it to FILE for --costs; "
     "needs no pack",
     1},
    {0},
};

typedef struct measurement {
    uint64_t tokens;
    uint64_t chunks;
    uint64_t median_ns;
    uint64_t least_ns;
    uint64_t most_ns;
    strata_session_stats stats; /* of the timed readings together */
    bench_decode decode;
} measurement;

typedef struct arguments {
    run_options run;
    pack_arguments in;
    const char *prompts;
    const char *tune_path;
    uint64_t repeats;
    uint64_t decode_steps;
    uint64_t decode_rows;
    bool cold;
    uint64_t start_ns; /* before the pack is opened */
} arguments;

typedef struct bench {
    const arguments *arguments;
    strata_session *session;
    strata_prefill *prefill;
    token_list tokens; /* of the longest prompt */
    float *logits;
    uint64_t logits_count;
    uint32_t vocabulary;
    uint64_t lengths[MAX_PROMPTS];
    measurement results[MAX_PROMPTS];
    uint64_t count;
    uint64_t first_logits_ns; /* from opening the pack to the first prompt's logits */
    strata_session_stats stats;
} bench;

/* What would be passed over is a mistake. */
static void check(const arguments *a, const struct argp_state *state)
{
    const run_options *run = &a->run;
    if (a->decode_rows && !a->decode_steps)
        argp_error(state, "--rows goes with --decode");
    if (a->tune_path && (a->in.pack || a->prompts || a->repeats || a->cold || a->decode_steps ||
                         run->plan.is_given || run->profile_path || run->lend || run->threads ||
                         run->no_blas || run->kernel_level))
        argp_error(state, "--tune goes with --device and --json alone");
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    arguments *a = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &a->in;
        state->child_inputs[1] = &a->run;
        return 0;
    case KEY_COLD:
        a->cold = true;
        return 0;
    case KEY_PROMPTS:
        a->prompts = arg;
        return 0;
    case KEY_DECODE:
        a->decode_steps = option_number(arg, 1, 1000000, state, "decode");
        return 0;
    case KEY_ROWS:
        a->decode_rows = option_number(arg, 1, STRATA_DECODE_MOST_ROWS, state, "rows");
        return 0;
    case KEY_TUNE:
        a->tune_path = arg;
        a->in.optional = true;
        return 0;
    case KEY_REPEAT:
        if (!parse_u64(arg, &a->repeats) || a->repeats < 1 || a->repeats > MAX_REPEATS)
            argp_error(state, "--repeat: \"%s\" is not a number from 1 to %d", arg, MAX_REPEATS);
        return 0;
    case ARGP_KEY_END:
        check(a, state);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* Lengths from "512,4096"; false when the list is malformed, empty or too long. */
static bool parse_lengths(const char *text, bench *b)
{
    token_list list = {0};
    bool good =
        parse_tokens(text, &list, NULL) == TOKENS_OK && list.count && list.count <= MAX_PROMPTS;
    for (uint64_t i = 0; good && i < list.count; i++) {
        good = list.ids[i] > 0;
        b->lengths[i] = (uint64_t)list.ids[i];
    }
    b->count = good ? list.count : 0;
    free(list.ids);
    return good;
}

static uint64_t longest(const bench *b)
{
    uint64_t most = 0;
    for (uint64_t i = 0; i < b->count; i++)
        most = b->lengths[i] > most ? b->lengths[i] : most;
    return most;
}

static strata_status read_once(bench *b, uint64_t tokens, strata_prefill_result *result)
{
    strata_prefill_request request;
    uint64_t length;
    strata_status status = strata_session_truncate(b->session, 0, 0, &length);
    if (status == STRATA_OK && b->arguments->cold)
        status = strata_session_drop_experts(b->session);
    if (status != STRATA_OK)
        return status;
    strata_prefill_request_init(&request, sizeof request);
    request.tokens = b->tokens.ids;
    request.token_count = tokens;
    request.logits = b->logits;
    request.logits_capacity = b->logits_count;
    result->struct_size = sizeof *result;
    return strata_prefill_run(b->prefill, &request, result);
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int ascending(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

static strata_status measure(bench *b, uint64_t tokens, measurement *out)
{
    uint64_t times[MAX_REPEATS], repeats = b->arguments->repeats;
    strata_prefill_result result = {0};
    strata_session_stats before = {.struct_size = sizeof before}, after = before;
    strata_status status = read_once(b, tokens, &result);
    if (!b->first_logits_ns)
        b->first_logits_ns = now_ns() - b->arguments->start_ns;
    if (status == STRATA_OK)
        status = stats_wait_for_locks(b->session);
    if (status == STRATA_OK)
        status = strata_session_stats_get(b->session, &before);
    for (uint64_t i = 0; i < repeats && status == STRATA_OK; i++) {
        status = read_once(b, tokens, &result);
        times[i] = result.wall_ns;
    }
    if (status == STRATA_OK)
        status = strata_session_stats_get(b->session, &after);
    if (status != STRATA_OK)
        return status;
    out->stats = stats_between(&before, &after);
    out->decode.steps = b->arguments->decode_steps;
    out->decode.rows = b->arguments->decode_rows;
    out->decode.rounds = repeats;
    if (out->decode.steps)
        status = bench_decode_run(&out->decode, b->session, tokens, b->vocabulary);
    qsort(times, repeats, sizeof times[0], ascending);
    out->tokens = tokens;
    out->chunks = result.chunk_count;
    out->median_ns = times[repeats / 2];
    out->least_ns = times[0];
    out->most_ns = times[repeats - 1];
    return status;
}

static double rate(const measurement *m)
{
    return m->median_ns ? 1e9 * (double)m->tokens / (double)m->median_ns : 0;
}

static const char *device_of(const arguments *a)
{
    return a->run.device ? a->run.device : "cpu";
}

static void write_text(const bench *b, bool is_whole)
{
    printf("%8s %8s %12s %12s %12s %14s\n", "tokens", "chunks", "median ms", "least ms", "most ms",
           "tokens/s");
    for (uint64_t i = 0; i < b->count; i++) {
        const measurement *m = &b->results[i];
        printf("%8llu %8llu %12.3f %12.3f %12.3f %14.0f\n", (unsigned long long)m->tokens,
               (unsigned long long)m->chunks, 1e-6 * (double)m->median_ns,
               1e-6 * (double)m->least_ns, 1e-6 * (double)m->most_ns, rate(m));
        stats_text(&m->stats, stdout);
        bench_decode_text(&m->decode, stdout);
    }
    if (!is_whole)
        return;
    printf("first logits %.3f s after opening the pack\n", 1e-9 * (double)b->first_logits_ns);
    printf(strcmp(device_of(b->arguments), "cpu") == 0
               ? "memory %s, in and out %s\n"
               : "device memory %s, page-locked host memory %s\n",
           text_of_bytes(b->stats.device_bytes).text, text_of_bytes(b->stats.host_bytes).text);
}

static void write_json(const bench *b, const failure *wrong)
{
    json_writer writer;
    json_start(&writer, stdout);
    json_object(&writer, NULL);
    json_string(&writer, "pack", b->arguments->in.pack);
    json_string(&writer, "device", device_of(b->arguments));
    json_u64(&writer, "device_bytes", b->stats.device_bytes);
    json_u64(&writer, "host_bytes", b->stats.host_bytes);
    json_u64(&writer, "first_logits_ns", b->first_logits_ns);
    json_bool(&writer, "cold", b->arguments->cold);
    json_array(&writer, "prompts");
    for (uint64_t i = 0; i < b->count; i++) {
        const measurement *m = &b->results[i];
        json_object(&writer, NULL);
        json_u64(&writer, "tokens", m->tokens);
        json_u64(&writer, "chunks", m->chunks);
        json_u64(&writer, "median_ns", m->median_ns);
        json_u64(&writer, "least_ns", m->least_ns);
        json_u64(&writer, "most_ns", m->most_ns);
        json_f64(&writer, "tokens_per_second", rate(m));
        stats_json(&writer, &m->stats);
        bench_decode_json(&m->decode, &writer);
        json_end(&writer);
    }
    json_end(&writer);
    failure_json(&writer, wrong);
    json_end(&writer);
}

/* Session and prefill for the longest prompt. */
static strata_status prepare(bench *b, strata_pack *pack, const strata_pack_info *info,
                             const strata_session_options *profile)
{
    const arguments *a = b->arguments;
    strata_session_options session_options;
    strata_plan_options plan_options;
    strata_prefill_options prefill_options;
    strata_status status;
    b->vocabulary = info->vocabulary_count;
    if (random_tokens(longest(b), 1, info->vocabulary_count, &b->tokens) != TOKENS_OK)
        return tool_own(STRATA_ERR_NO_MEMORY);
    run_options_apply(&a->run, longest(b), &session_options, &plan_options);
    if (!a->run.plan.options.context_tokens)
        plan_options.context_tokens += a->decode_steps * a->decode_rows;
    session_options.profile = profile->profile;
    session_options.profile_bytes = profile->profile_bytes;
    status = strata_session_create(pack, &session_options, &b->session);
    if (status != STRATA_OK)
        return status;
    b->logits_count = strata_session_logits_count(b->session);
    b->logits = malloc(b->logits_count * sizeof *b->logits);
    run_options_prefill(&a->run, &prefill_options);
    return b->logits ? strata_prefill_create(b->session, &prefill_options, &b->prefill)
                     : tool_own(STRATA_ERR_NO_MEMORY);
}

/* What was measured, also when it ended with a failure. */
static int answer(bench *b, strata_status status)
{
    const arguments *a = b->arguments;
    failure wrong = {0};
    if (!a->in.json && b->count)
        write_text(b, status == STRATA_OK);
    fflush(stdout); /* before what standard error tells */
    if (status != STRATA_OK)
        failure_of_call(&wrong, "cannot read a prompt, or decode", status);
    else if (a->run.profile_path)
        profile_write(a->run.profile_path, b->session, &wrong);
    if (a->in.json)
        write_json(b, &wrong);
    return wrong.status == STRATA_OK ? TOOL_OK : TOOL_FAILED;
}

static int run(bench *b, strata_pack *pack)
{
    const arguments *a = b->arguments;
    strata_session_options with_profile = {0};
    uint64_t done = 0;
    strata_pack_info info = {.struct_size = sizeof info};
    strata_status status;
    void *profile;
    if (!run_options_profile(&a->run, a->in.json, &with_profile, &profile))
        return TOOL_FAILED;
    status = strata_pack_info_get(pack, &info);
    if (status == STRATA_OK)
        status = prepare(b, pack, &info, &with_profile);
    free(profile);
    if (status != STRATA_OK)
        return tool_fail("cannot make a session", status, a->in.json);
    while (done < b->count && status == STRATA_OK) {
        status = measure(b, b->lengths[done], &b->results[done]);
        done += status == STRATA_OK;
    }
    b->count = done;
    b->stats.struct_size = sizeof b->stats;
    if (status == STRATA_OK)
        status = strata_session_stats_get(b->session, &b->stats);
    return answer(b, status);
}

int cmd_bench(int argc, char **argv)
{
    static const struct argp_child children[] = {{&pack_argp, 0, 0, 0}, {&run_argp, 0, 0, 0}, {0}};
    static const struct argp parser = {
        option_table,
        parse_option,
        "[PACK]",
        "Measures how fast prompts are read, and what follows is decoded.",
        children,
        0,
        0};
    arguments a = {.start_ns = now_ns()};
    bench b = {.arguments = &a};
    strata_context *context;
    strata_pack *pack;
    int code;
    argp_parse(&parser, argc, argv, 0, NULL, &a);
    if (a.tune_path)
        return bench_tune(a.run.device, a.tune_path, a.in.json);
    a.prompts = a.prompts ? a.prompts : "512,4096";
    a.repeats = a.repeats ? a.repeats : 3;
    a.decode_rows = a.decode_rows ? a.decode_rows : 1;
    if (!parse_lengths(a.prompts, &b)) {
        tool_message("--prompts: \"%s\" is not a list of at most %d lengths in tokens: 512,4096",
                     a.prompts, MAX_PROMPTS);
        return TOOL_USAGE;
    }
    if (!run_options_read(&a.run, a.in.json) ||
        !tool_open_pack(a.in.pack, a.in.json, &context, &pack))
        return TOOL_FAILED;
    code = run(&b, pack);
    strata_prefill_destroy(b.prefill);
    strata_session_destroy(b.session);
    free(b.logits);
    free(b.tokens.ids);
    strata_pack_close(pack);
    strata_context_destroy(context);
    return code;
}
