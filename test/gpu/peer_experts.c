/* SPDX-License-Identifier: MIT */
/*
 * How fast an installed ggml multiplies rows by the experts that they choose, for the tables of
 * int8 products: peer_experts FORMAT... times the gate and up product (1536 x 2048) and the down
 * product (2048 x 768) of 128 experts at 32, 128, 512 and 2048 rows an expert, on the best device
 * that ggml finds. It prints the median of five in TOPS, the quantising of the rows counted in.
 * Built by test/gpu/run.sh peer against the headers and libraries in GGML.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml.h"

enum { EXPERTS = 128, TOP_K = 8, READINGS = 5, WARM_UPS = 2 };
/* What is random: making all of it so would take longer than what is timed. */
enum { DISTINCT_ROWS = 32, DISTINCT_VALUES = 1 << 20 };

typedef struct {
    struct ggml_context *tensors;
    ggml_backend_buffer_t memory;
    struct ggml_tensor *weights, *rows, *ids, *out;
    struct ggml_cgraph *graph;
} product;

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void must(int holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "peer_experts: %s\n", what);
    exit(1);
}

static enum ggml_type type_of(const char *name)
{
    for (int type = 0; type < GGML_TYPE_COUNT; type++) {
        const char *known = ggml_type_name((enum ggml_type)type);
        if (known && strcasecmp(known, name) == 0 && ggml_blck_size((enum ggml_type)type) > 0)
            return (enum ggml_type)type;
    }
    must(0, "ggml knows no such format");
    return GGML_TYPE_COUNT;
}

/* Random values; a few rows are quantised and stand in for all, at places of their own. */
static void fill_weights(const product *p, int64_t columns, int64_t outputs)
{
    enum ggml_type type = p->weights->type;
    size_t count = (size_t)columns * DISTINCT_ROWS, row = ggml_row_size(type, columns);
    size_t bytes = row * (size_t)outputs;
    float *values = malloc(count * sizeof *values), *weight = malloc((size_t)columns * 4);
    uint8_t *quantised = malloc(bytes);
    must(values && weight && quantised, "out of memory");
    must(outputs % DISTINCT_ROWS == 0, "rows that are no whole number of those that are distinct");
    for (size_t i = 0; i < count; i++)
        values[i] = (float)rand() / RAND_MAX - 0.5f;
    for (int64_t i = 0; i < columns; i++)
        weight[i] = 1;
    ggml_quantize_chunk(type, values, quantised, 0, DISTINCT_ROWS, columns, weight);
    for (size_t at = DISTINCT_ROWS * row; at < bytes; at += DISTINCT_ROWS * row)
        memcpy(quantised + at, quantised, DISTINCT_ROWS * row);
    for (int e = 0; e < EXPERTS; e++)
        ggml_backend_tensor_set(p->weights, quantised, (size_t)e * bytes, bytes);
    free(quantised);
    free(weight);
    free(values);
}

/* Every expert gets the same number of rows, no token one expert twice. */
static void fill_rows(const product *p, int64_t tokens)
{
    size_t count = (size_t)ggml_nelements(p->rows);
    float *values = malloc(count * sizeof *values);
    int32_t *ids = malloc((size_t)(tokens * TOP_K) * sizeof *ids);
    must(values && ids, "out of memory");
    for (size_t i = 0; i < count; i++)
        values[i] =
            i < DISTINCT_VALUES ? (float)rand() / RAND_MAX - 0.5f : values[i - DISTINCT_VALUES];
    for (int64_t i = 0; i < tokens * TOP_K; i++)
        ids[i] = (int32_t)(i % EXPERTS);
    ggml_backend_tensor_set(p->rows, values, 0, count * sizeof *values);
    ggml_backend_tensor_set(p->ids, ids, 0, (size_t)(tokens * TOP_K) * sizeof *ids);
    free(ids);
    free(values);
}

/* Gate and up read one row for all experts of a token, down a row for each. */
static product make_product(ggml_backend_t backend, enum ggml_type type, int64_t columns,
                            int64_t outputs, int64_t tokens, int64_t rows_a_token)
{
    struct ggml_init_params memory = {ggml_tensor_overhead() * 16 + ggml_graph_overhead(), NULL,
                                      true};
    product p = {.tensors = ggml_init(memory)};
    must(p.tensors != NULL, "out of memory");
    p.weights = ggml_new_tensor_3d(p.tensors, type, columns, outputs, EXPERTS);
    p.rows = ggml_new_tensor_3d(p.tensors, GGML_TYPE_F32, columns, rows_a_token, tokens);
    p.ids = ggml_new_tensor_2d(p.tensors, GGML_TYPE_I32, TOP_K, tokens);
    p.out = ggml_mul_mat_id(p.tensors, p.weights, p.rows, p.ids);
    p.graph = ggml_new_graph(p.tensors);
    ggml_build_forward_expand(p.graph, p.out);
    p.memory = ggml_backend_alloc_ctx_tensors(p.tensors, backend);
    must(p.memory != NULL, "no memory on the device");
    must(ggml_backend_supports_op(backend, p.out), "the device does not offer the product");
    fill_weights(&p, columns, outputs);
    fill_rows(&p, tokens);
    return p;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double tops_of(ggml_backend_t backend, enum ggml_type type, int64_t columns, int64_t outputs,
                      int64_t rows_an_expert, int64_t rows_a_token)
{
    int64_t tokens = rows_an_expert * EXPERTS / TOP_K;
    product p = make_product(backend, type, columns, outputs, tokens, rows_a_token);
    double taken[READINGS];
    for (int i = -WARM_UPS; i < READINGS; i++) {
        double started = seconds();
        must(ggml_backend_graph_compute(backend, p.graph) == GGML_STATUS_SUCCESS, "it failed");
        ggml_backend_synchronize(backend);
        if (i >= 0)
            taken[i] = seconds() - started;
    }
    ggml_backend_buffer_free(p.memory);
    ggml_free(p.tensors);
    qsort(taken, READINGS, sizeof *taken, ascending);
    return 2e-12 * (double)(columns * outputs * tokens * TOP_K) / taken[READINGS / 2];
}

int main(int count, char **arguments)
{
    static const int64_t rows[] = {32, 128, 512, 2048};
    ggml_backend_t backend;
    must(count > 1, "which formats?");
    ggml_backend_load_all();
    backend = ggml_backend_init_best();
    must(backend != NULL, "ggml finds no device");
    printf("%s: TOPS of gate and up / down by rows an expert\n", ggml_backend_name(backend));
    for (int i = 1; i < count; i++) {
        enum ggml_type type = type_of(arguments[i]);
        printf("%-8s", ggml_type_name(type));
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
            printf("  %6.1f", tops_of(backend, type, 2048, 1536, rows[r], 1));
            printf(" / %6.1f", tops_of(backend, type, 768, 2048, rows[r], TOP_K));
            fflush(stdout);
        }
        printf("\n");
    }
    ggml_backend_free(backend);
    return 0;
}
