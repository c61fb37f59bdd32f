/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/context.h"

typedef struct seen {
    int lines;
    int32_t level;
    char text[600];
} seen;

static void keep(void *user_data, int32_t level, const char *message)
{
    seen *last = user_data;
    last->lines++;
    last->level = level;
    strncpy(last->text, message, sizeof last->text - 1);
}

static void *refuse(void *user_data, uint64_t bytes, uint64_t alignment)
{
    (void)user_data;
    (void)bytes;
    (void)alignment;
    return NULL;
}

static void ignore(void *user_data, void *pointer, uint64_t bytes)
{
    (void)user_data;
    (void)pointer;
    (void)bytes;
}

static void log_obeys_the_level(void **state)
{
    seen last = {0};
    strata_context_options options = {
        .log_level = STRATA_LOG_INFO, .log_fn = keep, .log_user_data = &last};
    strata_context *context;
    (void)state;
    assert_int_equal(strata__context_create(&options, &context), STRATA_OK);
    strata__log(context, STRATA_LOG_DEBUG, "no");
    assert_int_equal(last.lines, 0);
    strata__log(context, STRATA_LOG_WARNING, "layer %d", 3);
    assert_int_equal(last.lines, 1);
    assert_int_equal(last.level, STRATA_LOG_WARNING);
    assert_string_equal(last.text, "layer 3");
    strata__context_release(context);
}

static void references_keep_it_alive(void **state)
{
    strata_context_options options = {0};
    strata_context *context;
    (void)state;
    assert_int_equal(strata__context_create(&options, &context), STRATA_OK);
    assert_ptr_equal(strata__context_retain(context), context);
    strata__context_release(context);
    strata__log(context, STRATA_LOG_WARNING, "still here");
    strata__context_release(context);
    strata__context_release(NULL);
}

static void half_an_allocator_is_refused(void **state)
{
    strata_context_options options = {.alloc_fn = refuse};
    strata_context *context = NULL;
    (void)state;
    assert_int_equal(strata__context_create(&options, &context), STRATA_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(strata__error_text(), "free_fn"));
    options.free_fn = ignore;
    assert_int_equal(strata__context_create(&options, &context), STRATA_ERR_NO_MEMORY);
    assert_null(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(log_obeys_the_level),
        cmocka_unit_test(references_keep_it_alive),
        cmocka_unit_test(half_an_allocator_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
