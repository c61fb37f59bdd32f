/* SPDX-License-Identifier: MIT */
/*
 * Speed of encoding: bench-text PACK TEXT [TIMES]. The text is repeated to 16 MiB; processor time
 * and wall time of the best of 5 times.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <strata/strata.h>

enum { LEAST_BYTES = 16 << 20, DEFAULT_TIMES = 5 };

static double seconds(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static char *read_repeated(const char *path, uint64_t *out_bytes)
{
    FILE *file = fopen(path, "rb");
    char *text = malloc(2 * LEAST_BYTES);
    uint64_t bytes = file && text ? fread(text, 1, LEAST_BYTES, file) : 0;
    uint64_t repeated = bytes;
    if (file)
        fclose(file);
    if (bytes == 0)
        return NULL;
    for (; repeated < LEAST_BYTES; repeated += bytes)
        memcpy(text + repeated, text, bytes);
    *out_bytes = repeated;
    return text;
}

static int fail(const char *what)
{
    char text[512];
    strata_last_error(text, sizeof text);
    fprintf(stderr, "%s: %s\n", what, text);
    return 1;
}

static int measure(const strata_tokenizer *tokenizer, const char *text, uint64_t bytes, int times)
{
    int32_t *tokens = malloc((bytes + 2) * sizeof *tokens);
    double best_cpu = 1e30, best_wall = 1e30;
    uint64_t count = 0;
    for (int i = 0; tokens && i < times; i++) {
        double cpu = seconds(CLOCK_PROCESS_CPUTIME_ID), wall = seconds(CLOCK_MONOTONIC);
        if (strata_tokenizer_encode(tokenizer, text, bytes, NULL, tokens, bytes + 2, &count) !=
            STRATA_OK)
            return fail("encode");
        cpu = seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
        wall = seconds(CLOCK_MONOTONIC) - wall;
        best_cpu = cpu < best_cpu ? cpu : best_cpu;
        best_wall = wall < best_wall ? wall : best_wall;
    }
    printf("%llu bytes, %llu tokens: %.1f MB/s of processor time, %.1f MB/s of wall time\n",
           (unsigned long long)bytes, (unsigned long long)count, 1e-6 * (double)bytes / best_cpu,
           1e-6 * (double)bytes / best_wall);
    free(tokens);
    return 0;
}

int main(int argc, char **argv)
{
    strata_context *context = NULL;
    strata_pack *pack = NULL;
    strata_tokenizer *tokenizer = NULL;
    uint64_t bytes;
    char *text;
    int failed;
    if (argc < 3) {
        fprintf(stderr, "usage: %s PACK TEXT [TIMES]\n", argv[0]);
        return 2;
    }
    text = read_repeated(argv[2], &bytes);
    if (!text) {
        fprintf(stderr, "%s: cannot be read\n", argv[2]);
        return 1;
    }
    if (strata_context_create(NULL, &context) != STRATA_OK ||
        strata_pack_open_path(context, argv[1], &pack) != STRATA_OK ||
        strata_tokenizer_create(pack, &tokenizer) != STRATA_OK)
        failed = fail(argv[1]);
    else
        failed = measure(tokenizer, text, bytes, argc > 3 ? atoi(argv[3]) : DEFAULT_TIMES);
    strata_tokenizer_destroy(tokenizer);
    strata_pack_close(pack);
    strata_context_destroy(context);
    free(text);
    return failed;
}
