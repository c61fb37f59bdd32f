/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/status.h"

static void values_are_pinned(void **state)
{
    (void)state;
    assert_int_equal(STRATA_OK, 0);
    assert_int_equal(STRATA_ERR_INVALID_ARGUMENT, -10);
    assert_int_equal(STRATA_ERR_NO_MEMORY, -20);
    assert_int_equal(STRATA_ERR_DEVICE_MEMORY, -21);
    assert_int_equal(STRATA_ERR_ABI_SIZE, -30);
    assert_int_equal(STRATA_ERR_ABI_FIELD, -31);
    assert_int_equal(STRATA_ERR_IO, -40);
    assert_int_equal(STRATA_ERR_FORMAT, -41);
    assert_int_equal(STRATA_ERR_UNSUPPORTED, -50);
    assert_int_equal(STRATA_ERR_NO_DEVICE, -60);
    assert_int_equal(STRATA_ERR_DRIVER, -61);
    assert_int_equal(STRATA_ERR_DEVICE_LOST, -62);
    assert_int_equal(STRATA_ERR_PLAN_INFEASIBLE, -70);
    assert_int_equal(STRATA_ERR_BUFFER_TOO_SMALL, -71);
    assert_int_equal(STRATA_ERR_MISALIGNED, -72);
    assert_int_equal(STRATA_ERR_CAPACITY, -73);
    assert_int_equal(STRATA_ERR_CANCELLED, -80);
    assert_int_equal(STRATA_ERR_BUSY, -81);
    assert_int_equal(STRATA_ERR_STATE, -82);
    assert_int_equal(STRATA_ERR_INTERNAL, -90);
}

static void every_status_has_a_name_and_a_text(void **state)
{
    int named = 0;
    (void)state;
    for (int status = 0; status >= -128; status--) {
        assert_non_null(strata__status_name(status));
        assert_non_null(strata__status_string(status));
        named += strcmp(strata__status_name(status), "STRATA_ERR_UNKNOWN") != 0;
    }
    assert_int_equal(named, 20);
    assert_string_equal(strata__status_name(STRATA_ERR_CAPACITY), "STRATA_ERR_CAPACITY");
    assert_string_equal(strata__status_string(1), "unknown status");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_pinned),
        cmocka_unit_test(every_status_has_a_name_and_a_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
