/* SPDX-License-Identifier: MIT */
#include "support.h"

#include <math.h>

enum { GUARD = 256, POISON = 0xff };

static strata_status run_at_once(strata__task_queue *queue, strata__task_fn fn,
                                 const void *arguments, uint64_t bytes)
{
    _Alignas(16) char copy[STRATA__TASK_BYTES];
    (void)queue;
    assert_true(bytes <= sizeof copy);
    memcpy(copy, arguments, bytes);
    fn(copy);
    return STRATA_OK;
}

strata__task_queue *test_stream(void)
{
    static strata__task_queue queue = {run_at_once};
    return &queue;
}

strata__kernels *test_kernels(int level, uint32_t threads, uint32_t any_order)
{
    strata__kernels *kernels = NULL;
    strata__cpu_kernels_options options = {strata__allocator_default(), threads, any_order};
    assert_int_equal(strata__cpu_kernels_create(&options, &kernels), STRATA_OK);
    strata__cpu_of(kernels)->level = (strata__cpu_level)level;
    strata__cpu_of(kernels)->code = strata__cpu_code_of((strata__cpu_level)level);
    return kernels;
}

uint64_t test_bits(test_random *random)
{
    uint64_t z = random->state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

float test_uniform(test_random *random, float low, float high)
{
    return low + (high - low) * (float)(test_bits(random) >> 40) * 0x1p-24f;
}

uint32_t test_below(test_random *random, uint32_t limit)
{
    return (uint32_t)(test_bits(random) >> 32) % limit;
}

void test_fill(test_random *random, float *values, uint64_t n, float spread)
{
    for (uint64_t i = 0; i < n; i++)
        values[i] = test_uniform(random, -spread, spread);
}

void *test_buffer(uint64_t bytes)
{
    uint64_t padded = (bytes + 63) / 64 * 64;
    uint8_t *all = aligned_alloc(64, 2 * GUARD + padded);
    assert_non_null(all);
    memset(all, POISON, 2 * GUARD + padded);
    memcpy(all, &bytes, sizeof bytes);
    return all + GUARD;
}

void test_release(void *buffer)
{
    uint8_t *all = (uint8_t *)buffer - GUARD;
    uint64_t bytes;
    memcpy(&bytes, all, sizeof bytes);
    for (uint64_t i = sizeof bytes; i < GUARD; i++)
        assert_int_equal(all[i], POISON);
    for (uint64_t i = 0; i < GUARD; i++)
        assert_int_equal(all[GUARD + bytes + i], POISON);
    free(all);
}

void test_all_written(const float *values, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, values + i, sizeof bits);
        if (bits == 0xffffffff)
            fail_msg("value %llu was not written", (unsigned long long)i);
    }
}

float test_half_value(uint16_t half)
{
    int exponent = half >> 10 & 31, fraction = half & 1023;
    float magnitude = exponent == 0    ? ldexpf((float)fraction, -24)
                      : exponent == 31 ? (fraction ? NAN : INFINITY)
                                       : ldexpf((float)(fraction + 1024), exponent - 25);
    return half & 0x8000 ? -magnitude : magnitude;
}

/* Scales of about 2^-6: where the halves of a block lie, by format. */
static void set_scales(uint32_t format, uint8_t *block)
{
    static const uint16_t scale = 0x2400; /* 2^-6 */
    switch (format) {
    case STRATA__Q2_K:
        memcpy(block + 80, &scale, 2);
        memcpy(block + 82, &scale, 2);
        break;
    case STRATA__Q3_K:
        memcpy(block + 108, &scale, 2);
        break;
    case STRATA__Q6_K:
        memcpy(block + 208, &scale, 2);
        break;
    case STRATA__IQ1_M:
        for (int i = 0; i < 4; i++)
            block[49 + 2 * i] = (uint8_t)((block[49 + 2 * i] & 15) | (scale >> 4 * i & 15) << 4);
        break;
    case STRATA__MXFP4:
        block[0] = 121;
        break;
    case STRATA__Q4_1:
    case STRATA__Q5_1:
    case STRATA__Q4_K:
    case STRATA__Q5_K:
        memcpy(block + 2, &scale, 2);
        memcpy(block, &scale, 2);
        break;
    default:
        memcpy(block, &scale, 2);
    }
}

/* A plain value of moderate size in F32, F16 or BF16. */
static void set_plain(test_random *random, uint32_t format, uint8_t *block)
{
    float value = test_uniform(random, -1, 1);
    uint32_t bits;
    memcpy(&bits, &value, 4);
    uint16_t half =
        (uint16_t)(format == STRATA__BF16 ? bits >> 16 : 0x3800 | (test_bits(random) & 0x83ff));
    if (format == STRATA__F32)
        memcpy(block, &value, 4);
    else
        memcpy(block, &half, 2);
}

void *test_weight(test_random *random, uint32_t format, uint64_t values, float **decoded)
{
    const strata__format_info *info = strata__format_find(format);
    uint64_t blocks = values / info->block_values;
    uint8_t *data = malloc(blocks * info->block_bytes);
    assert_non_null(data);
    for (uint64_t b = 0; b < blocks; b++) {
        uint8_t *block = data + b * info->block_bytes;
        if (info->block_values == 1) {
            set_plain(random, format, block);
            continue;
        }
        for (uint32_t i = 0; i < info->block_bytes; i++)
            block[i] = (uint8_t)test_bits(random);
        set_scales(format, block);
    }
    *decoded = malloc(values * sizeof **decoded);
    assert_non_null(*decoded);
    strata__decode_row_level(STRATA__CPU_BASE, format, data, values, *decoded);
    return data;
}

void test_close(const char *what, const float *got, const double *expected, uint64_t n,
                double tolerance)
{
    for (uint64_t i = 0; i < n; i++) {
        double error = fabs((double)got[i] - expected[i]);
        if (!(error <= tolerance * (1 + fabs(expected[i]))))
            fail_msg("%s: value %llu is %.9g, expected %.9g", what, (unsigned long long)i,
                     (double)got[i], expected[i]);
    }
}

void test_same(const char *what, const float *got, const float *expected, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        if (memcmp(got + i, expected + i, sizeof *got) != 0)
            fail_msg("%s: value %llu is %a, expected the bits of %a", what, (unsigned long long)i,
                     (double)got[i], (double)expected[i]);
}
