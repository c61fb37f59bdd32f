/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/struct_size.h"

/* A structure in three releases: the first, this library's, and a later one. */
typedef struct first {
    uint32_t struct_size, a;
} first;
typedef struct present {
    uint32_t struct_size, a;
    uint64_t b;
} present;
typedef struct later {
    uint32_t struct_size, a;
    uint64_t b, c;
} later;

static strata_status in(present *local, const void *caller)
{
    return strata__struct_in(local, sizeof *local, caller, sizeof(first), "options");
}

static void an_old_caller_gets_zeros(void **state)
{
    first caller = {sizeof caller, 5};
    present local;
    (void)state;
    assert_int_equal(in(&local, &caller), STRATA_OK);
    assert_int_equal(local.a, 5);
    assert_int_equal(local.b, 0);
}

static void a_new_caller_may_not_set_what_is_unknown(void **state)
{
    later caller = {sizeof caller, 5, 6, 0};
    present local;
    (void)state;
    assert_int_equal(in(&local, &caller), STRATA_OK);
    assert_int_equal(local.b, 6);
    caller.c = 1;
    assert_int_equal(in(&local, &caller), STRATA_ERR_ABI_FIELD);
}

static void wrong_sizes_are_refused(void **state)
{
    union {
        uint32_t size;
        unsigned char bytes[8192];
    } caller = {0};
    static const uint32_t wrong[] = {0, 4, 7, 12, 17, 4097, 4104, 0xffffffffu};
    present local;
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        caller.size = wrong[i];
        assert_int_equal(in(&local, &caller), STRATA_ERR_ABI_SIZE);
    }
    caller.size = 4096;
    assert_int_equal(in(&local, &caller), STRATA_OK);
    assert_int_equal(in(&local, NULL), STRATA_ERR_INVALID_ARGUMENT);
}

static void outputs_stop_at_the_callers_end(void **state)
{
    const present local = {0, 1, 2};
    struct {
        first caller;
        uint64_t guard;
    } old = {{sizeof(first), 0}, 0x1234};
    later recent = {sizeof recent, 0, 0, 99};
    (void)state;
    assert_int_equal(strata__struct_out(&old.caller, &local, sizeof local, sizeof(first), "info"),
                     STRATA_OK);
    assert_int_equal(old.caller.a, 1);
    assert_int_equal(old.caller.struct_size, sizeof(first));
    assert_int_equal(old.guard, 0x1234);
    assert_int_equal(strata__struct_out(&recent, &local, sizeof local, sizeof(first), "info"),
                     STRATA_OK);
    assert_int_equal(recent.b, 2);
    assert_int_equal(recent.c, 99);
    assert_int_equal(recent.struct_size, sizeof(present));
}

static void an_output_may_be_left_out(void **state)
{
    const present local = {0, 1, 2};
    first caller = {sizeof caller, 0};
    (void)state;
    assert_int_equal(strata__struct_out_optional(NULL, &local, sizeof local, sizeof(first), "info"),
                     STRATA_OK);
    assert_int_equal(
        strata__struct_out_optional(&caller, &local, sizeof local, sizeof(first), "info"),
        STRATA_OK);
    assert_int_equal(caller.a, 1);
    caller.struct_size = 3;
    assert_int_equal(
        strata__struct_out_optional(&caller, &local, sizeof local, sizeof(first), "info"),
        STRATA_ERR_ABI_SIZE);
}

static void init_stays_within_the_caller(void **state)
{
    const present defaults = {0, 3, 4};
    struct {
        first caller;
        uint64_t guard;
    } old = {{0, 0}, 0x1234};
    later recent;
    (void)state;
    strata__struct_init(&old.caller, sizeof old.caller, &defaults, sizeof defaults);
    assert_int_equal(old.caller.struct_size, sizeof(first));
    assert_int_equal(old.caller.a, 3);
    assert_int_equal(old.guard, 0x1234);
    memset(&recent, 0xff, sizeof recent);
    strata__struct_init(&recent, sizeof recent, &defaults, sizeof defaults);
    assert_int_equal(recent.struct_size, sizeof recent);
    assert_int_equal(recent.b, 4);
    assert_int_equal(recent.c, 0);
    strata__struct_init(NULL, 16, &defaults, sizeof defaults);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_old_caller_gets_zeros),
        cmocka_unit_test(a_new_caller_may_not_set_what_is_unknown),
        cmocka_unit_test(wrong_sizes_are_refused),
        cmocka_unit_test(outputs_stop_at_the_callers_end),
        cmocka_unit_test(an_output_may_be_left_out),
        cmocka_unit_test(init_stays_within_the_caller),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
