/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <pthread.h>

#include "base/error.h"

static void text_is_kept_and_cut(void **state)
{
    char longer[2000];
    (void)state;
    assert_int_equal(strata__fail(STRATA_ERR_FORMAT, "tensor %s", "blk.0"), STRATA_ERR_FORMAT);
    assert_string_equal(strata__error_text(), "tensor blk.0");
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    assert_int_equal(strata__fail(STRATA_ERR_IO, "%s", longer), STRATA_ERR_IO);
    assert_int_equal(strlen(strata__error_text()), 511);
}

static void text_may_quote_the_present_one(void **state)
{
    (void)state;
    assert_int_equal(strata__fail(STRATA_ERR_IO, "inner"), STRATA_ERR_IO);
    assert_int_equal(strata__fail(STRATA_ERR_IO, "outer: %s", strata__error_text()), STRATA_ERR_IO);
    assert_string_equal(strata__error_text(), "outer: inner");
}

static void memory_names_bytes_and_purpose(void **state)
{
    (void)state;
    assert_int_equal(strata__fail_memory(4096, "the index"), STRATA_ERR_NO_MEMORY);
    assert_non_null(strstr(strata__error_text(), "4096"));
    assert_non_null(strstr(strata__error_text(), "the index"));
}

static void *fail_elsewhere(void *argument)
{
    (void)argument;
    assert_string_equal(strata__error_text(), "");
    strata__fail(STRATA_ERR_IO, "other thread");
    return NULL;
}

static void each_thread_has_its_own(void **state)
{
    pthread_t thread;
    (void)state;
    strata__fail(STRATA_ERR_IO, "this thread");
    assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, NULL), 0);
    pthread_join(thread, NULL);
    assert_string_equal(strata__error_text(), "this thread");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_kept_and_cut),
        cmocka_unit_test(text_may_quote_the_present_one),
        cmocka_unit_test(memory_names_bytes_and_purpose),
        cmocka_unit_test(each_thread_has_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
