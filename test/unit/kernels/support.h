/* SPDX-License-Identifier: MIT */
/*
 * What the tests of the CPU kernels share: a stream, random numbers, guarded buffers, comparisons.
 */
#ifndef TEST_KERNELS_SUPPORT_H
#define TEST_KERNELS_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/error.h"
#include "kernels/cpu/cpu.h"

/* A stream that runs a launch at once, on a copy of its arguments that is poisoned afterwards. */
strata__task_queue *test_stream(void);

/* Kernels at an instruction set level, which must be at most the machine's best. */
strata__kernels *test_kernels(int level, uint32_t threads, uint32_t any_order);

/* Numbers that depend on the seed alone. */
typedef struct test_random {
    uint64_t state;
} test_random;
uint64_t test_bits(test_random *random);
float test_uniform(test_random *random, float low, float high);
uint32_t test_below(test_random *random, uint32_t limit);
void test_fill(test_random *random, float *values, uint64_t n, float spread);

/* Memory between guard zones; every byte, also of the memory, starts as a NaN pattern. */
void *test_buffer(uint64_t bytes);
void test_release(void *buffer); /* fails the test if a guard was written */
/* Fails if a float32 value still has the pattern it started with. */
void test_all_written(const float *values, uint64_t n);

/* Random blocks of a format with moderate scales, and their exact values. */
void *test_weight(test_random *random, uint32_t format, uint64_t values, float **decoded);

/* |got - expected| <= tolerance * (1 + |expected|) for every value. */
void test_close(const char *what, const float *got, const double *expected, uint64_t n,
                double tolerance);
void test_same(const char *what, const float *got, const float *expected, uint64_t n);

float test_half_value(uint16_t half);

#endif
