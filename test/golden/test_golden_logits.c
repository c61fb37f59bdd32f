/* SPDX-License-Identifier: MIT */
/*
 * Logits of models against independent forwards:
 *
 *   test-golden-logits FOLDER LEAST TOKENS LOGITS
 *
 * FOLDER holds at least LEAST models NAME.gguf, each with NAME + TOKENS (ids as text) and NAME +
 * LOGITS (little-endian float32, all positions).
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <dirent.h>

#include "support/session_fixture.h"

enum { MAX_TOKENS = 4096, MAX_CASES = 256, MAX_LAYERS = 16 };

static const double NMSE_LIMIT = 1e-9;
static const char *folder, *tokens_suffix, *logits_suffix;
static int least_count;

typedef struct golden {
    char name[64];
    int32_t tokens[MAX_TOKENS];
    uint64_t token_count;
    uint64_t vocabulary;
    float *expected;
    strata_context *context;
    strata_pack *pack;
} golden;

static char *path_of(const char *name, const char *suffix)
{
    static char path[1024];
    snprintf(path, sizeof path, "%.800s/%.100s%.20s", folder, name, suffix);
    return path;
}

static FILE *open_file(const char *name, const char *suffix)
{
    FILE *file = fopen(path_of(name, suffix), "rb");
    if (!file)
        fail_msg("cannot open %s", path_of(name, suffix));
    return file;
}

static void golden_open(golden *g, const char *name)
{
    strata_pack_info info = {.struct_size = sizeof info};
    uint64_t values;
    FILE *file;
    int token;
    memset(g, 0, sizeof *g);
    snprintf(g->name, sizeof g->name, "%.63s", name);
    fixture_ok(strata_context_create(NULL, &g->context));
    fixture_ok(strata_pack_open_path(g->context, path_of(name, ".gguf"), &g->pack));
    fixture_ok(strata_pack_info_get(g->pack, &info));
    if (!info.runnable)
        fail_msg("%s: %s", name, info.runnable_reason);
    g->vocabulary = info.vocabulary_count;
    file = open_file(name, tokens_suffix);
    while (g->token_count < MAX_TOKENS && fscanf(file, "%d", &token) == 1)
        g->tokens[g->token_count++] = token;
    fclose(file);
    assert_true(g->token_count > 0);
    values = g->token_count * g->vocabulary;
    g->expected = calloc(values, sizeof *g->expected);
    assert_non_null(g->expected);
    file = open_file(name, logits_suffix);
    assert_int_equal(fread(g->expected, sizeof *g->expected, values, file), values);
    assert_int_equal(fgetc(file), EOF);
    fclose(file);
}

static void golden_close(golden *g)
{
    strata_pack_close(g->pack);
    strata_context_destroy(g->context);
    free(g->expected);
}

/* Blobs of the pack itself, by way of the callback. */
typedef struct source {
    const uint8_t *data[MAX_LAYERS][3];
    uint64_t stride_bytes[MAX_LAYERS][3];
} source;

static strata_status give_expert(void *user_data, uint32_t layer, uint32_t expert,
                                 strata_expert_blob *out_blob)
{
    const source *s = user_data;
    out_blob->gate = s->data[layer][0] + expert * s->stride_bytes[layer][0];
    out_blob->up = s->data[layer][1] + expert * s->stride_bytes[layer][1];
    out_blob->down = s->data[layer][2] + expert * s->stride_bytes[layer][2];
    return STRATA_OK;
}

static void find_blobs(const golden *g, source *s)
{
    static const char *const parts[] = {"ffn_gate_exps.weight", "ffn_up_exps.weight",
                                        "ffn_down_exps.weight"};
    strata_pack_info info = {.struct_size = sizeof info};
    fixture_ok(strata_pack_info_get(g->pack, &info));
    for (uint64_t i = 0; i < info.tensor_count; ++i) {
        strata_tensor_info tensor = {.struct_size = sizeof tensor};
        unsigned layer;
        int end = 0;
        fixture_ok(strata_pack_tensor_get(g->pack, i, &tensor));
        if (sscanf(tensor.name, "blk.%u.%n", &layer, &end) != 1 || layer >= MAX_LAYERS)
            continue;
        for (int p = 0; p < 3; ++p)
            if (strcmp(tensor.name + end, parts[p]) == 0) {
                s->data[layer][p] = tensor.data;
                s->stride_bytes[layer][p] = tensor.bytes / tensor.shape[2];
            }
        if (strcmp(tensor.name + end, "ffn_gate_up_exps.weight") == 0) {
            /* An expert's gate rows, then its up rows. */
            s->stride_bytes[layer][0] = s->stride_bytes[layer][1] = tensor.bytes / tensor.shape[2];
            s->data[layer][0] = tensor.data;
            s->data[layer][1] = s->data[layer][0] + s->stride_bytes[layer][0] / 2;
        }
    }
}

typedef struct way {
    uint64_t chunk_tokens;
    uint32_t plain_loops;
    const source *experts;
    uint32_t decode_rows; /* 0: a prompt, else steps of as many rows */
} way;

static void decode_all(const golden *g, const way *w, const fixture *f, float *logits)
{
    for (uint64_t at = 0; at < g->token_count; at += w->decode_rows) {
        uint64_t left = g->token_count - at;
        const strata_decode_part part = {0, left < w->decode_rows ? (uint32_t)left : w->decode_rows,
                                         g->tokens + at};
        strata_decode_request request;
        strata_decode_request_init(&request, sizeof request);
        request.parts = &part;
        request.part_count = 1;
        request.logits = logits + at * g->vocabulary;
        request.logits_capacity = left * g->vocabulary;
        request.logits_mode = STRATA_LOGITS_ALL;
        fixture_ok(strata_session_decode(f->session, &request, NULL));
    }
}

/* Logits of all positions, to be freed. */
static float *read_all(const golden *g, const way *w)
{
    fixture f = {.pack = g->pack};
    strata_plan_options plan = {.struct_size = sizeof plan};
    strata_session_options options;
    float *logits = calloc(g->token_count * g->vocabulary, sizeof *logits);
    assert_non_null(logits);
    plan.kv_format = STRATA_KV_F32;
    plan.context_tokens = g->token_count;
    plan.chunk_tokens = w->chunk_tokens;
    strata_session_options_init(&options, sizeof options);
    options.plan_options = &plan;
    options.blas = w->plain_loops;
    options.thread_count = 2;
    options.expert_fn = w->experts ? give_expert : NULL;
    options.expert_user_data = (void *)(uintptr_t)w->experts;
    fixture_ok(strata_session_create(g->pack, &options, &f.session));
    if (w->decode_rows) {
        decode_all(g, w, &f, logits);
    } else {
        fixture_ok(strata_prefill_create(f.session, NULL, &f.prefill));
        fixture_ok(fixture_read(&f, 0, g->tokens, g->token_count, logits));
        strata_prefill_destroy(f.prefill);
    }
    strata_session_destroy(f.session);
    return logits;
}

/* Mean squared error over the variance of what is expected. */
static double nmse(const golden *g, const float *logits)
{
    uint64_t values = g->token_count * g->vocabulary;
    double mean = 0, variance = 0, error = 0;
    for (uint64_t i = 0; i < values; ++i)
        mean += (double)g->expected[i] / (double)values;
    for (uint64_t i = 0; i < values; ++i) {
        double away = (double)g->expected[i] - mean;
        double wrong = (double)logits[i] - (double)g->expected[i];
        variance += away * away;
        error += wrong * wrong;
    }
    return error / variance;
}

static double log_of_sum(const float *logits, uint64_t count)
{
    double most = -INFINITY, sum = 0;
    for (uint64_t i = 0; i < count; ++i)
        most = fmax(most, (double)logits[i]);
    for (uint64_t i = 0; i < count; ++i)
        sum += exp((double)logits[i] - most);
    return most + log(sum);
}

/* Mean over the positions. */
static double divergence(const golden *g, const float *expected, const float *logits)
{
    double total = 0;
    for (uint64_t t = 0; t < g->token_count; ++t) {
        const float *p = expected + t * g->vocabulary, *q = logits + t * g->vocabulary;
        double p_sum = log_of_sum(p, g->vocabulary), q_sum = log_of_sum(q, g->vocabulary);
        for (uint64_t i = 0; i < g->vocabulary; ++i) {
            double log_p = (double)p[i] - p_sum;
            total += exp(log_p) * (log_p - ((double)q[i] - q_sum));
        }
    }
    return total / (double)g->token_count;
}

/*
 * Steps of any number of rows give the same bits, whoever gives the experts: with plain loops the
 * prompt's, else what differs from them by rounding.
 */
static void check_decoding(const golden *g, const float *plain, const source *experts)
{
    static const uint32_t rows[] = {1, 5, 16};
    const uint64_t bytes = g->token_count * g->vocabulary * sizeof *plain;
    float *fast = NULL;
    for (size_t i = 0; i < 2 * sizeof rows / sizeof rows[0]; ++i) {
        way w = {g->token_count, i % 2 == 0, i / 2 == 1 ? experts : NULL, rows[i / 2]};
        float *logits = read_all(g, &w);
        if (w.plain_loops && memcmp(logits, plain, bytes) != 0)
            fail_msg("%s: %u rows a step: other bits than the prompt", g->name, w.decode_rows);
        if (!w.plain_loops && fast && memcmp(logits, fast, bytes) != 0)
            fail_msg("%s: %u rows a step: other bits than one", g->name, w.decode_rows);
        if (!w.plain_loops && !fast) {
            double kl = divergence(g, plain, logits);
            if (!(kl <= 1e-8))
                fail_msg("%s: decoding has a divergence of %g from the prompt", g->name, kl);
            fast = logits;
            continue;
        }
        free(logits);
    }
    free(fast);
}

static double check_case(const golden *g)
{
    const uint64_t chunks[] = {g->token_count, 1, 7, 64};
    source experts = {{{0}}, {{0}}};
    way first = {g->token_count, 1, NULL, 0};
    float *plain = read_all(g, &first);
    uint64_t bytes = g->token_count * g->vocabulary * sizeof *plain;
    double worst = nmse(g, plain);
    find_blobs(g, &experts);
    check_decoding(g, plain, &experts);
    for (size_t c = 0; c < sizeof chunks / sizeof chunks[0]; ++c) {
        for (uint32_t given = 0; given < 2; ++given) {
            way w = {chunks[c], 1, given ? &experts : NULL, 0};
            float *logits = read_all(g, &w);
            if (memcmp(logits, plain, bytes) != 0)
                fail_msg("%s: chunks of %d, callback %u: other bits than the whole", g->name,
                         (int)chunks[c], given);
            free(logits);
        }
        {
            way w = {chunks[c], 0, NULL, 0};
            float *logits = read_all(g, &w);
            double now = nmse(g, logits);
            worst = now > worst ? now : worst;
            free(logits);
        }
    }
    free(plain);
    return worst;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

static void every_case_matches(void **state)
{
    static char names[MAX_CASES][64];
    uint32_t count = 0, wrong = 0;
    DIR *directory = opendir(folder);
    (void)state;
    assert_non_null(directory);
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        size_t length = strlen(entry->d_name);
        if (length < 6 || length > 60 || strcmp(entry->d_name + length - 5, ".gguf") != 0)
            continue;
        assert_true(count < MAX_CASES);
        memcpy(names[count], entry->d_name, length - 5);
        names[count++][length - 5] = '\0';
    }
    closedir(directory);
    qsort(names, count, sizeof names[0], by_name);
    assert_true(count > 0 && (int)count >= least_count);
    for (uint32_t i = 0; i < count; ++i) {
        golden g;
        double error;
        golden_open(&g, names[i]);
        error = check_case(&g);
        print_message("%-24s NMSE %.2e\n", names[i], error);
        wrong += !(error <= NMSE_LIMIT);
        golden_close(&g);
    }
    assert_int_equal(wrong, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_case_matches)};
    if (argc != 5)
        return 2;
    folder = argv[1];
    least_count = atoi(argv[2]);
    tokens_suffix = argv[3];
    logits_suffix = argv[4];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
