/* SPDX-License-Identifier: MIT */
/*
 * Decoding on an accelerator against the prompt's path on the same tokens: 1, 4 and 16 rows a step.
 * All give the same bits; beside the prompt's they have a mean KL of at most KL, and the same top
 * token in TOP of the positions. A last line has a hash of the logits, for other budgets.
 *
 *   decode_check PACK DEVICE BUDGET_BYTES TOKENS_FILE|COUNT PROMPT_TOKENS KL TOP [PATH [KV]]
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <strata/strata.h>

typedef struct bench {
    strata_session *session;
    int32_t *tokens;
    uint64_t count;
    uint64_t prompt;
    uint64_t vocabulary;
    float *expected; /* [count][vocabulary] */
    float *first;    /* of the first way to decode: [count - prompt][vocabulary] */
    float *logits;   /* the same */
    double most_kl;
    double least_top;
} bench;

static int fail(const char *what)
{
    char text[1024];
    strata_last_error(text, sizeof text);
    fprintf(stderr, "%s: %s\n", what, text);
    return 1;
}

static int read_tokens(bench *b, const char *source, uint32_t vocabulary)
{
    FILE *file = fopen(source, "r");
    uint64_t capacity = 1u << 20, random = 88172645463325252ull;
    b->tokens = calloc(capacity, sizeof *b->tokens);
    if (!b->tokens)
        return 0;
    if (file) {
        while (b->count < capacity && fscanf(file, " %d%*[, ]", &b->tokens[b->count]) == 1)
            b->count++;
        fclose(file);
        return b->count > 0;
    }
    b->count = strtoull(source, NULL, 10);
    for (uint64_t i = 0; i < b->count && b->count <= capacity; i++) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        b->tokens[i] = (int32_t)(random % vocabulary);
    }
    return b->count > 0 && b->count <= capacity;
}

static strata_status read_prompt(bench *b, uint64_t count, float *logits)
{
    strata_prefill *prefill = NULL;
    strata_prefill_request request;
    strata_status status = strata_prefill_create(b->session, NULL, &prefill);
    if (status != STRATA_OK)
        return status;
    strata_prefill_request_init(&request, sizeof request);
    request.tokens = b->tokens;
    request.token_count = count;
    request.logits = logits;
    request.logits_capacity = logits ? count * b->vocabulary : 0;
    request.logits_mode = logits ? STRATA_LOGITS_ALL : STRATA_LOGITS_NONE;
    status = strata_prefill_run(prefill, &request, NULL);
    strata_prefill_destroy(prefill);
    return status;
}

static strata_status decode(bench *b, uint32_t rows)
{
    strata_status status = STRATA_OK;
    for (uint64_t at = b->prompt; at < b->count && status == STRATA_OK; at += rows) {
        uint32_t now = b->count - at < rows ? (uint32_t)(b->count - at) : rows;
        strata_decode_part part = {0, now, b->tokens + at};
        strata_decode_request request;
        strata_decode_request_init(&request, sizeof request);
        request.parts = &part;
        request.part_count = 1;
        request.logits = b->logits + (at - b->prompt) * b->vocabulary;
        request.logits_capacity = now * b->vocabulary;
        request.logits_mode = STRATA_LOGITS_ALL;
        status = strata_session_decode(b->session, &request, NULL);
    }
    return status;
}

static uint64_t top_of(const float *logits, uint64_t count)
{
    uint64_t best = 0;
    for (uint64_t i = 1; i < count; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

static double log_sum(const float *logits, uint64_t count, double most)
{
    double sum = 0;
    for (uint64_t i = 0; i < count; i++)
        sum += exp(logits[i] - most);
    return most + log(sum);
}

static double divergence(const float *p, const float *q, uint64_t count)
{
    double zp = log_sum(p, count, p[top_of(p, count)]), zq = log_sum(q, count, q[top_of(q, count)]);
    double sum = 0;
    for (uint64_t i = 0; i < count; i++)
        sum += exp(p[i] - zp) * ((p[i] - zp) - (q[i] - zq));
    return sum;
}

/* Prints and judges one way to decode. */
static int judge(const bench *b, uint32_t rows)
{
    uint64_t positions = b->count - b->prompt, same = 0;
    double kl = 0, error = 0, power = 0;
    for (uint64_t i = 0; i < positions; i++) {
        const float *p = b->expected + (b->prompt + i) * b->vocabulary;
        const float *q = b->logits + i * b->vocabulary;
        kl += divergence(p, q, b->vocabulary) / (double)positions;
        same += top_of(p, b->vocabulary) == top_of(q, b->vocabulary);
        for (uint64_t v = 0; v < b->vocabulary; v++) {
            error += (p[v] - q[v]) * (p[v] - q[v]);
            power += p[v] * p[v];
        }
    }
    printf("%2u rows a step: KL %.3g, same top token %.2f %%, squared error %.3g\n", rows, kl,
           100.0 * (double)same / (double)positions, error / power);
    return kl <= b->most_kl && (double)same >= b->least_top * (double)positions;
}

static int run(bench *b)
{
    static const uint32_t rows[] = {1, 4, 16};
    uint64_t bytes = (b->count - b->prompt) * b->vocabulary * sizeof(float),
             hash = 14695981039346656037u;
    int good = 1;
    if (read_prompt(b, b->count, b->expected) != STRATA_OK)
        return fail("prompt");
    for (int i = 0; i < 3; i++) {
        uint64_t length;
        memset(b->logits, 0xff, bytes);
        if (strata_session_truncate(b->session, 0, 0, &length) != STRATA_OK ||
            (b->prompt && read_prompt(b, b->prompt, NULL) != STRATA_OK) ||
            decode(b, rows[i]) != STRATA_OK)
            return fail("decode");
        good &= judge(b, rows[i]);
        if (i == 0)
            memcpy(b->first, b->logits, bytes);
        else if (memcmp(b->first, b->logits, bytes) != 0) {
            printf("%u rows a step have other bits than one\n", rows[i]);
            good = 0;
        }
    }
    for (uint64_t i = 0; i < bytes; i++)
        hash = (hash ^ ((const unsigned char *)b->first)[i]) * 1099511628211u;
    printf("hash %016llx\n", (unsigned long long)hash);
    return good ? 0 : 1;
}

/* What the driver has on the device; steps add their graphs. */
static uint64_t runtime_bytes(const strata_session *session)
{
    strata_session_stats stats = {.struct_size = sizeof stats};
    if (strata_session_stats_get(session, &stats) != STRATA_OK)
        return 0;
    return stats.device_runtime_bytes;
}

int main(int argc, char **argv)
{
    strata_plan_options plan;
    strata_session_options options;
    strata_context *context = NULL;
    strata_pack *pack = NULL;
    strata_pack_info info = {.struct_size = sizeof info};
    bench b = {0};
    uint64_t before;
    int code;
    if (argc < 8 || argc > 10)
        return 2;
    if (strata_context_create(NULL, &context) != STRATA_OK ||
        strata_pack_open_path(context, argv[1], &pack) != STRATA_OK ||
        strata_pack_info_get(pack, &info) != STRATA_OK)
        return fail("pack");
    if (!read_tokens(&b, argv[4], info.vocabulary_count))
        return fail("tokens");
    b.prompt = strtoull(argv[5], NULL, 10);
    b.most_kl = strtod(argv[6], NULL);
    b.least_top = strtod(argv[7], NULL);
    strata_plan_options_init(&plan, sizeof plan);
    plan.device_budget_bytes = strtoull(argv[3], NULL, 10);
    plan.context_tokens = b.count;
    plan.path = argc > 8 ? argv[8] : NULL;
    plan.kv_format = argc > 9 ? (uint32_t)strtoul(argv[9], NULL, 10) : STRATA_KV_F16;
    strata_session_options_init(&options, sizeof options);
    options.device = argv[2];
    options.plan_options = &plan;
    if (strata_session_create(pack, &options, &b.session) != STRATA_OK)
        return fail("session");
    b.vocabulary = strata_session_logits_count(b.session);
    b.expected = malloc(b.count * b.vocabulary * sizeof(float));
    b.first = malloc(b.count * b.vocabulary * sizeof(float));
    b.logits = malloc(b.count * b.vocabulary * sizeof(float));
    if (!b.expected || !b.first || !b.logits || b.prompt >= b.count)
        return fail("memory");
    before = runtime_bytes(b.session);
    code = run(&b);
    fprintf(stderr, "the driver's memory: %llu bytes before decoding, %llu behind it\n",
            (unsigned long long)before, (unsigned long long)runtime_bytes(b.session));
    strata_session_destroy(b.session);
    strata_pack_close(pack);
    strata_context_destroy(context);
    free(b.expected);
    free(b.first);
    free(b.logits);
    free(b.tokens);
    return code;
}
