/* SPDX-License-Identifier: MIT */
/*
 * Dots with weights that are decoded in registers: the bits of dots with decoded weights, close to
 * double, for every format, instruction set and odd length, from memory that ends where they end.
 */
#define _GNU_SOURCE 1

#include "support.h"

#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

enum { OUTPUTS = 3 };

/* Memory whose last byte is followed by an address that cannot be read. */
typedef struct edge {
    uint8_t *pages;
    size_t page_bytes, bytes;
    void *data;
} edge;

static edge edge_copy(const void *from, size_t bytes)
{
    edge e = {.page_bytes = (size_t)sysconf(_SC_PAGESIZE)};
    e.bytes = (bytes + e.page_bytes - 1) / e.page_bytes * e.page_bytes;
    e.pages = mmap(NULL, e.bytes + e.page_bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(e.pages != MAP_FAILED);
    assert_int_equal(mprotect(e.pages + e.bytes, e.page_bytes, PROT_NONE), 0);
    e.data = e.pages + e.bytes - bytes;
    memcpy(e.data, from, bytes);
    return e;
}

static void edge_release(edge *e)
{
    munmap(e->pages, e->bytes + e->page_bytes);
}

/* Sums of a decoded row in the order of few rows; a call of dot() in two pieces where it can. */
static float decoded_dot(const strata__cpu_code *code, const float *row, const float *weights,
                         uint32_t k)
{
    float lanes[STRATA__DOT_LANES];
    uint32_t piece = k / 2 / STRATA__DOT_LANES * STRATA__DOT_LANES;
    if (piece)
        code->dot(row, weights, piece, lanes, 1);
    code->dot(row + piece, weights + piece, k - piece, lanes, piece == 0);
    return code->add_lanes(lanes);
}

static double double_dot(const float *row, const float *weights, uint32_t k)
{
    double sum = 0;
    for (uint32_t i = 0; i < k; i++)
        sum += (double)row[i] * (double)weights[i];
    return sum;
}

static void check_length(uint32_t format, uint32_t k)
{
    const strata__format_info *info = strata__format_find(format);
    const size_t row_bytes = k / info->block_values * info->block_bytes;
    test_random random = {format * 1000 + k};
    float *decoded, *values = malloc(k * sizeof *values), got[OUTPUTS];
    void *blocks = test_weight(&random, format, (uint64_t)k * OUTPUTS, &decoded);
    assert_non_null(values);
    test_fill(&random, values, k, 1);
    edge weights = edge_copy(blocks, OUTPUTS * row_bytes);
    edge row = edge_copy(values, k * sizeof *values);
    for (int level = 0; level <= (int)strata__cpu_best_level(); level++) {
        const strata__cpu_code *code = strata__cpu_code_of((strata__cpu_level)level);
        strata__dots_level((strata__cpu_level)level, format, weights.data, row_bytes, k, OUTPUTS,
                           row.data, got);
        for (int n = 0; n < OUTPUTS; n++) {
            float same = decoded_dot(code, values, decoded + (size_t)n * k, k);
            double exact = double_dot(values, decoded + (size_t)n * k, k);
            test_same(info->name, got + n, &same, 1);
            test_close(info->name, got + n, &exact, 1, 1e-4);
        }
    }
    edge_release(&row);
    edge_release(&weights);
    free(blocks);
    free(decoded);
    free(values);
}

static void every_format_and_length(void **state)
{
    static const uint32_t blocks[] = {1, 2, 3, 5, 7, 8, 9, 17, 31};
    static const uint32_t plain[] = {1, 2, 15, 16, 17, 47, 64, 65, 255, 256, 257, 300, 1000, 1037};
    int formats = 0;
    (void)state;
    for (uint32_t id = 0; id < STRATA__FORMAT_LIMIT; id++) {
        const strata__format_info *info = strata__format_find(id);
        if (!info)
            continue;
        formats++;
        for (size_t i = 0; info->block_values == 1 && i < sizeof plain / sizeof *plain; i++)
            check_length(id, plain[i]);
        for (size_t i = 0; info->block_values > 1 && i < sizeof blocks / sizeof *blocks; i++)
            check_length(id, blocks[i] * info->block_values);
    }
    assert_int_equal(formats, 24);
}

/* Weights that are no number make their own sum none, and those beside it what they were. */
static void what_is_no_number_stays_in_its_row(void **state)
{
    enum { K = 96 };
    static const float infinite = INFINITY;
    float weights[OUTPUTS][K], row[K], got[OUTPUTS];
    (void)state;
    for (int n = 0; n < OUTPUTS; n++)
        for (int i = 0; i < K; i++)
            weights[n][i] = n == 1 && i == 70 ? infinite : 1;
    for (int i = 0; i < K; i++)
        row[i] = i == 70 ? 0 : 2;
    for (int level = 0; level <= (int)strata__cpu_best_level(); level++) {
        strata__dots_level((strata__cpu_level)level, STRATA__F32, weights, sizeof weights[0], K,
                           OUTPUTS, row, got);
        assert_true(got[0] == 2 * (K - 1) && got[2] == got[0]);
        assert_true(got[1] != got[1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_format_and_length),
        cmocka_unit_test(what_is_no_number_stays_in_its_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
