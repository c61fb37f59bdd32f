/* SPDX-License-Identifier: MIT */
/* Accelerators as the application sees them: an answer on every machine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <strata/device.h>
#include <strata/plan.h>

static void count_and_info(void **state)
{
    strata_context *context = NULL;
    strata_device_info info = {.struct_size = sizeof info};
    uint32_t count = 99;
    char text[256];
    (void)state;
    assert_int_equal(strata_context_create(NULL, &context), STRATA_OK);
    assert_int_equal(strata_device_count(context, &count), STRATA_OK);
    for (uint32_t i = 0; i < count; ++i) {
        assert_int_equal(strata_device_info_get(context, i, &info), STRATA_OK);
        assert_true(info.memory_total_bytes >= info.memory_free_bytes);
        assert_true(info.compute_capability > 0);
        assert_true(memchr(info.name, 0, sizeof info.name) != NULL);
    }
    assert_int_equal(strata_device_info_get(context, count, &info), STRATA_ERR_NO_DEVICE);
    strata_last_error(text, sizeof text);
    assert_non_null(strstr(text, "no accelerator"));
    strata_context_destroy(context);
}

static void null_arguments(void **state)
{
    strata_context *context = NULL;
    strata_device_info info = {.struct_size = sizeof info};
    uint32_t count;
    (void)state;
    assert_int_equal(strata_context_create(NULL, &context), STRATA_OK);
    assert_int_equal(strata_device_count(NULL, &count), STRATA_ERR_INVALID_ARGUMENT);
    assert_int_equal(strata_device_count(context, NULL), STRATA_ERR_INVALID_ARGUMENT);
    assert_int_equal(strata_device_info_get(NULL, 0, &info), STRATA_ERR_INVALID_ARGUMENT);
    assert_int_equal(strata_device_info_get(context, 0, NULL), STRATA_ERR_INVALID_ARGUMENT);
    strata_context_destroy(context);
}

static void costs_are_measured_and_taken(void **state)
{
    static char text[STRATA_COSTS_MOST_BYTES];
    strata_context *context = NULL;
    uint64_t bytes = 0, again = 0;
    (void)state;
    assert_int_equal(strata_context_create(NULL, &context), STRATA_OK);
    assert_int_equal(strata_costs_measure(context, NULL, text, sizeof text, &bytes), STRATA_OK);
    assert_int_equal(bytes, strlen(text) + 1);
    assert_non_null(strstr(text, "compute_capability 0\n"));
    assert_non_null(strstr(text, "\nmmq IQ4_NL "));
    assert_int_equal(strata_costs_measure(context, "cpu", text, 1, &again),
                     STRATA_ERR_BUFFER_TOO_SMALL);
    assert_true(again > 1);
    assert_int_equal(strata_costs_measure(context, "cuda:99", text, sizeof text, &again),
                     STRATA_ERR_NO_DEVICE);
    assert_int_equal(strata_costs_measure(NULL, NULL, text, sizeof text, &again),
                     STRATA_ERR_INVALID_ARGUMENT);
    assert_int_equal(strata_costs_measure(context, NULL, NULL, 0, &again),
                     STRATA_ERR_INVALID_ARGUMENT);
    assert_int_equal(strata_costs_measure(context, NULL, text, sizeof text, NULL),
                     STRATA_ERR_INVALID_ARGUMENT);
    strata_context_destroy(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(count_and_info),
        cmocka_unit_test(null_arguments),
        cmocka_unit_test(costs_are_measured_and_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
