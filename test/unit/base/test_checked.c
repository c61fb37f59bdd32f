/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/checked.h"

static void add_refuses_overflow(void **state)
{
    uint64_t out = 7;
    (void)state;
    assert_true(strata__add_u64(UINT64_MAX - 1, 1, &out));
    assert_true(out == UINT64_MAX);
    out = 7;
    assert_false(strata__add_u64(UINT64_MAX, 1, &out));
    assert_int_equal(out, 7);
}

static void mul_refuses_overflow(void **state)
{
    uint64_t out = 7;
    (void)state;
    assert_true(strata__mul_u64(UINT64_MAX, 1, &out));
    assert_true(out == UINT64_MAX);
    assert_true(strata__mul_u64(UINT64_MAX, 0, &out));
    assert_int_equal(out, 0);
    assert_true(strata__mul_u64(0xffffffffu, 0x100000001u, &out));
    assert_true(out == UINT64_MAX);
    out = 7;
    assert_false(strata__mul_u64(0x100000000u, 0x100000000u, &out));
    assert_int_equal(out, 7);
}

static void round_up_to_any_multiple(void **state)
{
    uint64_t out = 7;
    (void)state;
    assert_true(strata__round_up_u64(0, 32, &out));
    assert_int_equal(out, 0);
    assert_true(strata__round_up_u64(33, 32, &out));
    assert_int_equal(out, 64);
    assert_true(strata__round_up_u64(64, 24, &out));
    assert_int_equal(out, 72);
    out = 7;
    assert_false(strata__round_up_u64(UINT64_MAX - 3, 32, &out));
    assert_int_equal(out, 7);
}

static void quotients_are_rounded_up(void **state)
{
    (void)state;
    assert_int_equal(strata__divide_up_u64(0, 32), 0);
    assert_int_equal(strata__divide_up_u64(1, 32), 1);
    assert_int_equal(strata__divide_up_u64(32, 32), 1);
    assert_int_equal(strata__divide_up_u64(33, 32), 2);
    assert_true(strata__divide_up_u64(UINT64_MAX, 1) == UINT64_MAX);
    assert_true(strata__divide_up_u64(UINT64_MAX, 2) == (uint64_t)1 << 63);
    assert_int_equal(strata__divide_up_u64(UINT64_MAX - 1, UINT64_MAX), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(add_refuses_overflow),
        cmocka_unit_test(mul_refuses_overflow),
        cmocka_unit_test(round_up_to_any_multiple),
        cmocka_unit_test(quotients_are_rounded_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
