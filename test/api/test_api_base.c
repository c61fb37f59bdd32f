/* SPDX-License-Identifier: MIT */
/* Version, status texts, the thread's detail text, and the life of a context. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <strata/strata.h>

static void version_agrees_with_headers(void **state)
{
    char text[32];
    (void)state;
    snprintf(text, sizeof text, "%d.%d.%d", STRATA_VERSION_MAJOR, STRATA_VERSION_MINOR,
             STRATA_VERSION_PATCH);
    assert_string_equal(strata_version_string(), text);
    assert_string_equal(strata_version_string(), PROJECT_VERSION);
    assert_int_equal(strata_version_number(), STRATA_VERSION_NUMBER);
}

static void version_check_orders_versions(void **state)
{
    (void)state;
    assert_int_equal(strata_version_check(0, 0, 0), 1);
    assert_int_equal(
        strata_version_check(STRATA_VERSION_MAJOR, STRATA_VERSION_MINOR, STRATA_VERSION_PATCH), 1);
    assert_int_equal(
        strata_version_check(STRATA_VERSION_MAJOR, STRATA_VERSION_MINOR, STRATA_VERSION_PATCH + 1),
        0);
    assert_int_equal(strata_version_check(STRATA_VERSION_MAJOR, STRATA_VERSION_MINOR + 1, 0), 0);
    assert_int_equal(strata_version_check(STRATA_VERSION_MAJOR + 1, 0, 0), 0);
}

static void build_info_ends(void **state)
{
    uint32_t count = 0;
    (void)state;
    while (strata_build_info(count)) {
        assert_non_null(strchr(strata_build_info(count), '='));
        count++;
        assert_true(count < 100);
    }
    assert_true(count >= 2);
    assert_null(strata_build_info(UINT32_MAX));
}

static void every_status_has_name_and_text(void **state)
{
    static const strata_status codes[] = {
        STRATA_OK,
        STRATA_ERR_INVALID_ARGUMENT,
        STRATA_ERR_NO_MEMORY,
        STRATA_ERR_DEVICE_MEMORY,
        STRATA_ERR_ABI_SIZE,
        STRATA_ERR_ABI_FIELD,
        STRATA_ERR_IO,
        STRATA_ERR_FORMAT,
        STRATA_ERR_UNSUPPORTED,
        STRATA_ERR_NO_DEVICE,
        STRATA_ERR_DRIVER,
        STRATA_ERR_DEVICE_LOST,
        STRATA_ERR_PLAN_INFEASIBLE,
        STRATA_ERR_BUFFER_TOO_SMALL,
        STRATA_ERR_MISALIGNED,
        STRATA_ERR_CAPACITY,
        STRATA_ERR_CANCELLED,
        STRATA_ERR_BUSY,
        STRATA_ERR_STATE,
        STRATA_ERR_INTERNAL,
    };
    (void)state;
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        assert_string_not_equal(strata_status_name(codes[i]), "STRATA_ERR_UNKNOWN");
        assert_string_not_equal(strata_status_string(codes[i]), "unknown status");
    }
    assert_string_equal(strata_status_name(STRATA_ERR_FORMAT), "STRATA_ERR_FORMAT");
    assert_string_equal(strata_status_name(12345), "STRATA_ERR_UNKNOWN");
    assert_string_equal(strata_status_string(-12345), "unknown status");
}

/* Makes the thread's text one that is known to name strata_context_create. */
static void fail_once(void)
{
    assert_int_equal(strata_context_create(NULL, NULL), STRATA_ERR_INVALID_ARGUMENT);
}

static void last_error_is_cut_to_fit(void **state)
{
    char whole[256], cut[8];
    uint64_t needed;
    (void)state;
    fail_once();
    needed = strata_last_error(NULL, 0);
    assert_in_range(needed, 10, sizeof whole);
    assert_int_equal(strata_last_error(whole, sizeof whole), needed);
    assert_int_equal(strlen(whole) + 1, needed);
    assert_non_null(strstr(whole, "out is NULL"));

    memset(cut, 'x', sizeof cut);
    assert_int_equal(strata_last_error(cut, sizeof cut - 1), needed);
    assert_memory_equal(cut, whole, sizeof cut - 2);
    assert_int_equal(cut[sizeof cut - 2], '\0');
    assert_int_equal(cut[sizeof cut - 1], 'x');
}

static void *text_bytes_of_thread(void *out)
{
    *(uint64_t *)out = strata_last_error(NULL, 0);
    return NULL;
}

static void each_thread_has_its_own_text(void **state)
{
    pthread_t thread;
    uint64_t other = 0;
    (void)state;
    fail_once();
    assert_int_equal(pthread_create(&thread, NULL, text_bytes_of_thread, &other), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(other, 1);
    assert_true(strata_last_error(NULL, 0) > 1);
}

static void context_takes_defaults(void **state)
{
    strata_context_options options;
    strata_context *context = NULL;
    (void)state;
    assert_int_equal(strata_context_create(NULL, &context), STRATA_OK);
    assert_non_null(context);
    strata_context_destroy(context);
    strata_context_destroy(NULL);

    strata_context_options_init(&options, sizeof options);
    assert_int_equal(strata_context_create(&options, &context), STRATA_OK);
    strata_context_destroy(context);
}

static void context_refuses_bad_options(void **state)
{
    strata_context_options options;
    strata_context *context = (strata_context *)1;
    (void)state;
    strata_context_options_init(&options, sizeof options);
    options.log_level = 4;
    assert_int_equal(strata_context_create(&options, &context), STRATA_ERR_INVALID_ARGUMENT);
    assert_null(context);
    options.log_level = -1;
    assert_int_equal(strata_context_create(&options, &context), STRATA_ERR_INVALID_ARGUMENT);

    strata_context_options_init(&options, sizeof options);
    options.free_fn = (strata_free_fn)(void (*)(void))fail_once;
    assert_int_equal(strata_context_create(&options, &context), STRATA_ERR_INVALID_ARGUMENT);
}

struct counter {
    uint64_t live_bytes;
    uint32_t calls;
    uint32_t fail_at;
};

static void *counting_alloc(void *user_data, uint64_t bytes, uint64_t alignment)
{
    struct counter *counter = user_data;
    void *pointer = NULL;
    if (++counter->calls == counter->fail_at)
        return NULL;
    if (posix_memalign(&pointer, alignment < sizeof(void *) ? sizeof(void *) : alignment, bytes))
        return NULL;
    counter->live_bytes += bytes;
    return pointer;
}

static void counting_free(void *user_data, void *pointer, uint64_t bytes)
{
    struct counter *counter = user_data;
    counter->live_bytes -= bytes;
    free(pointer);
}

static void context_uses_the_callers_allocator(void **state)
{
    struct counter counter = {0};
    strata_context_options options;
    strata_context *context = NULL;
    (void)state;
    strata_context_options_init(&options, sizeof options);
    options.alloc_fn = counting_alloc;
    options.free_fn = counting_free;
    options.alloc_user_data = &counter;
    assert_int_equal(strata_context_create(&options, &context), STRATA_OK);
    assert_true(counter.live_bytes > 0);
    strata_context_destroy(context);
    assert_int_equal(counter.live_bytes, 0);

    counter = (struct counter){.fail_at = 1};
    assert_int_equal(strata_context_create(&options, &context), STRATA_ERR_NO_MEMORY);
    assert_null(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(version_agrees_with_headers),
        cmocka_unit_test(version_check_orders_versions),
        cmocka_unit_test(build_info_ends),
        cmocka_unit_test(every_status_has_name_and_text),
        cmocka_unit_test(last_error_is_cut_to_fit),
        cmocka_unit_test(each_thread_has_its_own_text),
        cmocka_unit_test(context_takes_defaults),
        cmocka_unit_test(context_refuses_bad_options),
        cmocka_unit_test(context_uses_the_callers_allocator),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
