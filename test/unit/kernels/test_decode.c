/* SPDX-License-Identifier: MIT */
/* Every decoder against what the gguf package says, for every instruction set this machine has. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/cpu/decode.h"

enum { GOLDEN_VALUES = 1024, RANDOM_BLOCKS = 1024, GUARD = 64 };

static const char *folder;

static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* Decodes from an odd address into a guarded buffer that `out` receives. */
static void decode_guarded(int level, uint32_t format, const uint8_t *blocks, uint64_t bytes,
                           uint64_t values, float *out)
{
    uint8_t *moved = malloc(bytes + 1);
    float *guarded = malloc((values + 2 * GUARD) * sizeof *guarded);
    assert_non_null(moved);
    assert_non_null(guarded);
    memcpy(moved + 1, blocks, bytes);
    memset(guarded, 0xa5, (values + 2 * GUARD) * sizeof *guarded);
    strata__decode_row_level((strata__cpu_level)level, format, moved + 1, values, guarded + GUARD);
    for (int i = 0; i < GUARD; i++) {
        uint32_t before, after;
        memcpy(&before, guarded + i, 4);
        memcpy(&after, guarded + GUARD + values + i, 4);
        assert_int_equal(before, 0xa5a5a5a5);
        assert_int_equal(after, 0xa5a5a5a5);
    }
    memcpy(out, guarded + GUARD, values * sizeof *out);
    free(guarded);
    free(moved);
}

static void golden_vectors_are_met_bit_for_bit(void **state)
{
    int formats = 0;
    (void)state;
    for (uint32_t id = 0; id < STRATA__FORMAT_LIMIT; id++) {
        const strata__format_info *info = strata__format_find(id);
        static uint8_t blocks[GOLDEN_VALUES * 4];
        static float expected[GOLDEN_VALUES], got[GOLDEN_VALUES];
        char path[1024];
        if (!info)
            continue;
        formats++;
        uint64_t bytes = (uint64_t)GOLDEN_VALUES / info->block_values * info->block_bytes;
        snprintf(path, sizeof path, "%s/%s.bin", folder, info->name);
        FILE *file = fopen(path, "rb");
        assert_non_null(file);
        assert_int_equal(fread(blocks, 1, bytes, file), bytes);
        assert_int_equal(fread(expected, sizeof(float), GOLDEN_VALUES, file), GOLDEN_VALUES);
        assert_int_equal(fgetc(file), EOF);
        fclose(file);
        for (int level = 0; level <= (int)strata__cpu_best_level(); level++) {
            decode_guarded(level, id, blocks, bytes, GOLDEN_VALUES, got);
            for (int i = 0; i < GOLDEN_VALUES; i++)
                if (memcmp(got + i, expected + i, 4) != 0)
                    fail_msg("%s level %d value %d: %a, expected %a", info->name, level, i,
                             (double)got[i], (double)expected[i]);
        }
        strata__decode_row(id, blocks, GOLDEN_VALUES, got);
        assert_memory_equal(got, expected, sizeof got);
    }
    assert_int_equal(formats, 24);
}

static uint64_t checksum(const float *values, uint64_t count)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, values + i, 4);
        if ((bits & 0x7fffffff) > 0x7f800000)
            bits = 0x7fc00000;
        sum += mix(((i + 1) * 0x9E3779B97F4A7C15u) ^ bits);
    }
    return sum;
}

static void random_blocks_give_the_recorded_checksums(void **state)
{
    char path[1024], name[16];
    unsigned long long expected;
    int formats = 0;
    (void)state;
    snprintf(path, sizeof path, "%s/checksums.txt", folder);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fscanf(file, "%15s %llx", name, &expected) == 2) {
        uint32_t id = 0;
        const strata__format_info *info = strata__format_find_name(name, &id);
        assert_non_null(info);
        uint64_t bytes = (uint64_t)RANDOM_BLOCKS * info->block_bytes;
        uint64_t values = (uint64_t)RANDOM_BLOCKS * info->block_values;
        uint64_t *blocks = malloc((bytes + 7) / 8 * 8);
        float *got = malloc(values * sizeof *got);
        assert_non_null(blocks);
        assert_non_null(got);
        for (uint64_t i = 0; i < (bytes + 7) / 8; i++)
            blocks[i] = mix((i + 1) * 0x9E3779B97F4A7C15u);
        for (int level = 0; level <= (int)strata__cpu_best_level(); level++) {
            decode_guarded(level, id, (const uint8_t *)blocks, bytes, values, got);
            if (checksum(got, values) != expected)
                fail_msg("%s level %d: random blocks decode differently", name, level);
        }
        free(got);
        free(blocks);
        formats++;
    }
    fclose(file);
    assert_int_equal(formats, 24);
}

/* Each format one block at a time: what a block gives does not depend on its neighbours. */
static void blocks_decode_one_by_one(void **state)
{
    (void)state;
    for (uint32_t id = 0; id < STRATA__FORMAT_LIMIT; id++) {
        const strata__format_info *info = strata__format_find(id);
        enum { BLOCKS = 19 };
        static uint8_t blocks[BLOCKS * 256];
        static float whole[BLOCKS * 256], single[BLOCKS * 256];
        if (!info)
            continue;
        for (uint32_t i = 0; i < BLOCKS * info->block_bytes; i++)
            blocks[i] = (uint8_t)mix(i * 77 + id);
        for (int level = 0; level <= (int)strata__cpu_best_level(); level++) {
            uint32_t values = info->block_values;
            decode_guarded(level, id, blocks, (uint64_t)BLOCKS * info->block_bytes,
                           (uint64_t)BLOCKS * values, whole);
            for (uint32_t b = 0; b < BLOCKS; b++)
                decode_guarded(level, id, blocks + b * info->block_bytes, info->block_bytes, values,
                               single + b * values);
            assert_int_equal(checksum(single, (uint64_t)BLOCKS * values),
                             checksum(whole, (uint64_t)BLOCKS * values));
        }
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_vectors_are_met_bit_for_bit),
        cmocka_unit_test(random_blocks_give_the_recorded_checksums),
        cmocka_unit_test(blocks_decode_one_by_one),
    };
    if (argc != 2)
        return 99;
    folder = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
