/* SPDX-License-Identifier: MIT */
/*
 * Runs a fuzz target without a fuzzing engine:
 *
 *   DRIVER DIRECTORY             every file of the directory
 *   DRIVER DIRECTORY COUNT SEED  COUNT files made by mutating these, the same ones for a seed
 *
 * Fails when one input takes longer than SLOW_SECONDS. The number of the input is written before a
 * crash ends the program, so that the seed and the number are enough to make it again.
 */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "fuzz_target.h"

enum { MAX_FILES = 4096, MAX_GROWTH = 4096, SLOW_SECONDS = 5 };

typedef struct input {
    char *name;
    uint8_t *data;
    size_t bytes;
} input;

static input inputs[MAX_FILES];
static size_t input_count;
static char current[256];

static void on_crash(int number)
{
    ssize_t written = write(STDERR_FILENO, current, strlen(current));
    (void)written;
    signal(number, SIG_DFL);
    raise(number);
}

static void *must(void *pointer)
{
    if (!pointer) {
        fprintf(stderr, "out of memory\n");
        exit(99);
    }
    return pointer;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const input *)a)->name, ((const input *)b)->name);
}

static void read_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    long bytes;
    input *in = &inputs[input_count];
    if (!file)
        return;
    if (fseek(file, 0, SEEK_END) == 0 && (bytes = ftell(file)) >= 0 && input_count < MAX_FILES) {
        rewind(file);
        in->data = must(malloc((size_t)bytes + 1));
        in->bytes = fread(in->data, 1, (size_t)bytes, file);
        in->name = must(strdup(path));
        input_count++;
    }
    fclose(file);
}

static int read_folder(const char *folder)
{
    DIR *directory = opendir(folder);
    struct dirent *entry;
    if (!directory) {
        fprintf(stderr, "%s: cannot be read\n", folder);
        return 0;
    }
    while ((entry = readdir(directory)) != NULL) {
        char path[1024];
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        read_file(path);
    }
    closedir(directory);
    qsort(inputs, input_count, sizeof inputs[0], compare_names);
    return input_count > 0;
}

/* splitmix64 (Steele et al., 2014) */
static uint64_t random_next(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* Mostly in the first bytes, where headers are. */
static size_t random_place(uint64_t *state, size_t bytes)
{
    size_t window = bytes;
    uint64_t kind = random_next(state) % 8;
    if (kind < 3 && window > 512)
        window = 512;
    else if (kind < 7 && window > 8192)
        window = 8192;
    return window ? random_next(state) % window : 0;
}

static uint64_t interesting(uint64_t *state)
{
    /* clang-format off */
    static const uint64_t values[] = {
        0, 1, 2, 3, 4, 8, 9, 16, 31, 32, 64, 127, 255, 256, 512, 513, 1024, 65535, 65536,
        0x7fffffff, 0x80000000, 0xffffffff, UINT64_C(1) << 32, UINT64_C(1) << 40,
        UINT64_C(1) << 61, UINT64_C(1) << 62, INT64_MAX, UINT64_C(1) << 63, UINT64_MAX - 31,
        UINT64_MAX,
    };
    /* clang-format on */
    return values[random_next(state) % (sizeof values / sizeof values[0])];
}

static void write_value(uint8_t *data, size_t bytes, size_t at, uint64_t value, size_t width)
{
    if (width > bytes - at)
        width = bytes - at;
    memcpy(data + at, &value, width);
}

static size_t remove_range(uint64_t *state, uint8_t *data, size_t bytes, size_t at)
{
    size_t count = random_next(state) % 64 + 1;
    if (count > bytes - at)
        count = bytes - at;
    memmove(data + at, data + at + count, bytes - at - count);
    return bytes - count;
}

static size_t insert_range(uint64_t *state, uint8_t *data, size_t bytes, size_t at)
{
    const input *other = &inputs[random_next(state) % input_count];
    size_t from = random_place(state, other->bytes), count = random_next(state) % 256 + 1;
    if (count > other->bytes - from)
        count = other->bytes - from;
    memmove(data + at + count, data + at, bytes - at);
    memcpy(data + at, other->data + from, count);
    return bytes + count;
}

/* One change; the buffer has MAX_GROWTH bytes to spare. Returns the new size. */
static size_t mutate_once(uint64_t *state, uint8_t *data, size_t bytes)
{
    size_t at = random_place(state, bytes);
    uint64_t old = 0;
    if (bytes == 0)
        return bytes;
    switch (random_next(state) % 10) {
    case 0:
        data[at] ^= (uint8_t)(1u << random_next(state) % 8);
        return bytes;
    case 1:
        data[at] = (uint8_t)random_next(state);
        return bytes;
    case 2:
    case 3:
        write_value(data, bytes, at, interesting(state), 4);
        return bytes;
    case 4:
    case 5:
        write_value(data, bytes, at, interesting(state), 8);
        return bytes;
    case 6: /* a little more or less */
        memcpy(&old, data + at, bytes - at < 4 ? bytes - at : 4);
        write_value(data, bytes, at, old + random_next(state) % 9 - 4, 4);
        return bytes;
    case 7:
        return remove_range(state, data, bytes, at);
    case 8:
        return insert_range(state, data, bytes, at);
    default:
        return random_next(state) % 4 ? bytes : at; /* cut short */
    }
}

/* Runs a copy that ends where the input does, so that sanitizers see a read beyond. */
static int run(const uint8_t *data, size_t bytes)
{
    uint8_t *copy = must(malloc(bytes ? bytes : 1));
    struct timespec start, end;
    double seconds;
    memcpy(copy, data, bytes);
    clock_gettime(CLOCK_MONOTONIC, &start);
    LLVMFuzzerTestOneInput(copy, bytes);
    clock_gettime(CLOCK_MONOTONIC, &end);
    free(copy);
    seconds = (double)(end.tv_sec - start.tv_sec) + 1e-9 * (double)(end.tv_nsec - start.tv_nsec);
    if (seconds > SLOW_SECONDS)
        fprintf(stderr, "%stakes %.1f s\n", current, seconds);
    return seconds <= SLOW_SECONDS;
}

static int run_corpus(void)
{
    int passed = 1;
    for (size_t i = 0; i < input_count; i++) {
        snprintf(current, sizeof current, "input %.200s\n", inputs[i].name);
        passed &= run(inputs[i].data, inputs[i].bytes);
    }
    printf("%zu files\n", input_count);
    return passed;
}

static int run_mutated(uint64_t count, uint64_t seed)
{
    int passed = 1;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t state = seed * UINT64_C(1000003) + i;
        const input *in = &inputs[random_next(&state) % input_count];
        uint64_t changes = random_next(&state) % 4 + 1;
        size_t bytes = in->bytes;
        uint8_t *data = must(malloc(bytes + MAX_GROWTH));
        memcpy(data, in->data, bytes);
        for (uint64_t j = 0; j < changes; j++)
            bytes = mutate_once(&state, data, bytes);
        snprintf(current, sizeof current, "seed %llu, input %llu, from %.160s\n",
                 (unsigned long long)seed, (unsigned long long)i, in->name);
        passed &= run(data, bytes);
        free(data);
    }
    printf("%llu mutated files, seed %llu\n", (unsigned long long)count, (unsigned long long)seed);
    return passed;
}

int main(int argc, char **argv)
{
    int passed;
    if (argc != 2 && argc != 4) {
        fprintf(stderr, "usage: %s DIRECTORY [COUNT SEED]\n", argv[0]);
        return 2;
    }
    if (!read_folder(argv[1]))
        return 99;
    signal(SIGSEGV, on_crash);
    signal(SIGABRT, on_crash);
    signal(SIGFPE, on_crash);
    signal(SIGBUS, on_crash);
    passed = argc == 2 ? run_corpus()
                       : run_mutated(strtoull(argv[2], NULL, 10), strtoull(argv[3], NULL, 10));
    for (size_t i = 0; i < input_count; i++) {
        free(inputs[i].name);
        free(inputs[i].data);
    }
    return !passed;
}
