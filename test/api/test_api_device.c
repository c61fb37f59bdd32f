/* SPDX-License-Identifier: MIT */
/* Accelerators as the application sees them: an answer on every machine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <strata/device.h>

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(count_and_info),
        cmocka_unit_test(null_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
