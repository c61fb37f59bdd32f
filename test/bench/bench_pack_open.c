/* SPDX-License-Identifier: MIT */
/*
 * Time and memory of opening a pack: bench-pack-open [FILE [TIMES]]. Without a file it makes one of
 * more than 36 GiB of holes with 150,000 tokens and merges.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <strata/pack.h>

#include "support/large_pack.h"

enum { DEFAULT_TIMES = 21, MAX_TIMES = 1000 };

static double milliseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static int measure(strata_context *context, const char *path, int times)
{
    double elapsed[MAX_TIMES];
    uint64_t before = resident_bytes(), opened = 0;
    for (int i = 0; i < times; i++) {
        strata_pack *pack;
        double start = milliseconds();
        if (strata_pack_open_path(context, path, &pack) != STRATA_OK) {
            char text[512];
            strata_last_error(text, sizeof text);
            fprintf(stderr, "%s\n", text);
            return 1;
        }
        elapsed[i] = milliseconds() - start;
        if (i == 0)
            opened = resident_bytes();
        strata_pack_close(pack);
    }
    printf("first %.2f ms, ", elapsed[0]);
    qsort(elapsed, (size_t)times, sizeof elapsed[0], compare);
    printf("median of %d: %.2f ms (%.2f to %.2f), resident %.1f MiB before, %.1f MiB opened\n",
           times, elapsed[times / 2], elapsed[0], elapsed[times - 1], (double)before / (1 << 20),
           (double)opened / (1 << 20));
    return 0;
}

int main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : "bench-pack-open.gguf";
    int times = argc > 2 ? atoi(argv[2]) : DEFAULT_TIMES;
    strata_context *context;
    uint64_t bytes;
    int failed;
    if (times < 1 || times > MAX_TIMES) {
        fprintf(stderr, "1 to %d times\n", MAX_TIMES);
        return 2;
    }
    if (argc < 2 && !large_pack_write(path, &bytes)) {
        fprintf(stderr, "%s: cannot be written\n", path);
        return 1;
    }
    failed = strata_context_create(NULL, &context) != STRATA_OK || measure(context, path, times);
    if (argc < 2)
        unlink(path);
    strata_context_destroy(context);
    return failed;
}
