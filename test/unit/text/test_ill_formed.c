/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "text/ill_formed.h"

#define REPLACED "\xef\xbf\xbd"

static const struct {
    const char *text;
    uint64_t well_formed; /* bytes at the start */
    const char *replaced;
    const char *shape;
} cases[] = {
    {"", 0, "", ""},
    {"plain text of more than eight bytes", 35, "plain text of more than eight bytes",
     "plain text of more than eight bytes"},
    {"\xc3\xa9\xe4\xb8\x80\xf0\x9f\x98\x80", 9, "\xc3\xa9\xe4\xb8\x80\xf0\x9f\x98\x80",
     "\xc3\xa9\xe4\xb8\x80\xf0\x9f\x98\x80"},
    {"a\xff z", 1, "a" REPLACED " z", "a$ z"},
    {"\x80\x80", 0, REPLACED REPLACED, "$$"},
    {"12345678\xc3", 8, "12345678" REPLACED, "12345678$"},
    /* The longest beginning of a character is one part. */
    {"\xe2\x82x", 0, REPLACED "x", "$$x"},
    {"\xf0\x9f\x98", 0, REPLACED, "$$$"},
    {"\xf0\x9f\x98\xc3\xa9", 0, REPLACED "\xc3\xa9", "$$$\xc3\xa9"},
    /* Surrogates, overlong forms and what lies beyond U+10FFFF begin nothing. */
    {"\xed\xa0\x80", 0, REPLACED REPLACED REPLACED, "$$$"},
    {"\xe0\x9f\xbf", 0, REPLACED REPLACED REPLACED, "$$$"},
    {"\xf0\x8f\xbf\xbf", 0, REPLACED REPLACED REPLACED REPLACED, "$$$$"},
    {"\xf4\x90\x80\x80", 0, REPLACED REPLACED REPLACED REPLACED, "$$$$"},
    {"\xf4\x8f\xbf\xbf", 4, "\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf"},
    {"\xc0\xaf\xc1\xf5", 0, REPLACED REPLACED REPLACED REPLACED, "$$$$"},
};

static void every_case(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const uint8_t *text = (const uint8_t *)cases[i].text;
        uint64_t count = strlen(cases[i].text), needed;
        uint8_t out[64] = {0};
        assert_int_equal(strata__text_well_formed(text, count), cases[i].well_formed);
        needed = strata__text_replace(text, count, NULL);
        assert_int_equal(needed, strlen(cases[i].replaced));
        assert_int_equal(strata__text_replace(text, count, out), needed);
        assert_string_equal((char *)out, cases[i].replaced);
        memset(out, 0, sizeof out);
        strata__text_shape(text, count, out);
        assert_string_equal((char *)out, cases[i].shape);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_case),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
