/* SPDX-License-Identifier: MIT */
/* XXH64 against published values, and in pieces against the whole. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/checksum.h"

static uint64_t of_text(const char *text, uint64_t seed)
{
    return strata__checksum_of(text, strlen(text), seed);
}

static void published_values(void **state)
{
    (void)state;
    assert_true(of_text("", 0) == UINT64_C(0xef46db3751d8e999));
    assert_true(of_text("a", 0) == UINT64_C(0xd24ec4f1a98c6e5b));
    assert_true(of_text("abc", 0) == UINT64_C(0x44bc2cf5ad770999));
    assert_true(of_text("Nobody inspects the spammish repetition", 0) ==
                UINT64_C(0xfbcea83c8a378bf1));
}

static void pieces_are_the_whole(void **state)
{
    uint8_t data[200];
    (void)state;
    for (uint32_t i = 0; i < sizeof data; ++i)
        data[i] = (uint8_t)(i * 37 + 11);
    for (uint64_t bytes = 0; bytes <= sizeof data; ++bytes) {
        for (uint64_t piece = 1; piece <= 70; ++piece) {
            strata__checksum sum;
            strata__checksum_init(&sum, 5);
            for (uint64_t at = 0; at < bytes; at += piece)
                strata__checksum_add(&sum, data + at, bytes - at < piece ? bytes - at : piece);
            assert_true(strata__checksum_value(&sum) == strata__checksum_of(data, bytes, 5));
        }
    }
}

static void every_bit_counts(void **state)
{
    uint8_t data[100] = {0};
    uint64_t whole = strata__checksum_of(data, sizeof data, 0);
    (void)state;
    for (uint32_t bit = 0; bit < 8 * sizeof data; ++bit) {
        data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_true(strata__checksum_of(data, sizeof data, 0) != whole);
        data[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    assert_true(strata__checksum_of(data, sizeof data - 1, 0) != whole);
    assert_true(strata__checksum_of(data, sizeof data, 1) != whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_values),
        cmocka_unit_test(pieces_are_the_whole),
        cmocka_unit_test(every_bit_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
