/* SPDX-License-Identifier: MIT */
/*
 * The tool's own parts: numbers as people write them, token lists, UTF-8, JSON, differences, text
 * that comes in pieces.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "compare.h"
#include "json.h"
#include "parse.h"
#include "text.h"
#include "text_stream.h"
#include "utf8.h"

static void sizes_are_read_in_every_spelling(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {
        {"0", 0},
        {"4096", 4096},
        {"7B", 7},
        {"512K", 512 * 1024},
        {"8G", 8ull << 30},
        {"8g", 8ull << 30},
        {"12GiB", 12ull << 30},
        {"12 GiB", 12ull << 30},
        {"1.5MiB", 3ull << 19},
        {"24GB", 24000000000ull},
        {"2TiB", 2ull << 40},
        {"18446744073709551615", UINT64_MAX},
    };
    static const char *const bad[] = {"",    "G",   "-1",    "1X",     "1Gi", "1GiBs",
                                      "1.5", "1e3", "0x10G", "1.2.3G", " 1",  "9999999T"};
    uint64_t bytes;
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_true(parse_bytes(good[i].text, &bytes));
        assert_int_equal(bytes, good[i].bytes);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (parse_bytes(bad[i], &bytes))
            fail_msg("\"%s\" was read as %llu", bad[i], (unsigned long long)bytes);
}

static void real_numbers_are_finite(void **state)
{
    static const char *const bad[] = {"",      " 1",    "1 ",    "nan", "inf",
                                      "0x1p3", "1e999", "1.2.3", "-",   "e5"};
    double value;
    (void)state;
    assert_true(parse_real("0.8", &value) && value == 0.8);
    assert_true(parse_real("-2", &value) && value == -2);
    assert_true(parse_real("1e-3", &value) && value == 1e-3);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (parse_real(bad[i], &value))
            fail_msg("\"%s\" was read as %g", bad[i], value);
}

static void numbers_are_whole_and_in_range(void **state)
{
    uint64_t value;
    (void)state;
    assert_true(parse_u64("18446744073709551615", &value));
    assert_int_equal(value, UINT64_MAX);
    assert_false(parse_u64("18446744073709551616", &value));
    assert_false(parse_u64("-1", &value));
    assert_false(parse_u64("", &value));
    assert_false(parse_u64("12a", &value));
}

static void token_lists(void **state)
{
    static const struct {
        const char *text;
        int fault; /* where it is */
    } bad[] = {{"", 0},           {" , ", 1},      {"1,x", 2},  {"-1", 0},   {"1;2", 0},
               {"2147483648", 0}, {"1,,-2", 2},    {"0x1", 0},  {"1,,2", 2}, {",1", 0},
               {"1, 2,", 5},      {"1 ,\n, 2", 4}, {"1 2 x", 4}};
    token_list list;
    const char *fault;
    (void)state;
    assert_int_equal(parse_tokens(" 1,2, 3\n4\t5 , 6 ", &list, NULL), TOKENS_OK);
    assert_int_equal(list.count, 6);
    for (int i = 0; i < 6; i++)
        assert_int_equal(list.ids[i], i + 1);
    free(list.ids);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(parse_tokens(bad[i].text, &list, &fault), TOKENS_MALFORMED);
        assert_int_equal(fault - bad[i].text, bad[i].fault);
        assert_null(list.ids);
    }
}

static void counts_and_sizes_have_units(void **state)
{
    (void)state;
    assert_string_equal(text_of_count(1, "token").text, "1 token");
    assert_string_equal(text_of_count(0, "token").text, "0 tokens");
    assert_string_equal(text_of_count(UINT64_MAX, "token").text, "18446744073709551615 tokens");
    assert_string_equal(text_of_bytes(1023).text, "1023 B");
    assert_string_equal(text_of_bytes(3ull << 19).text, "1.5 MiB");
}

static void random_tokens_are_seeded(void **state)
{
    token_list a, b;
    (void)state;
    assert_int_equal(random_tokens(1000, 7, 100, &a), TOKENS_OK);
    assert_int_equal(random_tokens(1000, 7, 100, &b), TOKENS_OK);
    assert_memory_equal(a.ids, b.ids, 1000 * sizeof *a.ids);
    for (int i = 0; i < 1000; i++)
        assert_in_range(a.ids[i], 0, 99);
    free(b.ids);
    assert_int_equal(random_tokens(1000, 8, 100, &b), TOKENS_OK);
    assert_memory_not_equal(a.ids, b.ids, 1000 * sizeof *a.ids);
    free(a.ids);
    free(b.ids);
    assert_int_equal(random_tokens(1, 8, 0, &b), TOKENS_MALFORMED);
}

static void utf8_is_checked(void **state)
{
    static const struct {
        const char *bytes;
        uint32_t length;
    } cases[] = {
        {"a", 1},
        {"\xc3\xa9", 2},
        {"\xe2\x82\xac", 3},
        {"\xf0\x9f\x98\x80", 4},
        {"\x80", 0},             /* a continuation alone */
        {"\xc0\xaf", 0},         /* overlong */
        {"\xe0\x80\xaf", 0},     /* overlong */
        {"\xed\xa0\x80", 0},     /* surrogate */
        {"\xf4\x90\x80\x80", 0}, /* beyond the last character */
        {"\xe2\x82", 0},         /* cut */
        {"\xf5\x80\x80\x80", 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(utf8_length(cases[i].bytes, strlen(cases[i].bytes)), cases[i].length);
    assert_int_equal(utf8_length("", 0), 0);
}

static void json_is_escaped_and_nested(void **state)
{
    char *text = NULL;
    size_t bytes = 0;
    json_writer json;
    FILE *out = open_memstream(&text, &bytes);
    (void)state;
    assert_non_null(out);
    json_start(&json, out);
    json_object(&json, NULL);
    json_string(&json, "a\"b", "line\n\\ \x01\x1f\x7f");
    json_bytes(&json, "raw", "\xff\xc3\xa9", 3);
    json_array(&json, "list");
    json_u64(&json, NULL, UINT64_MAX);
    json_i64(&json, NULL, -5);
    json_f64(&json, NULL, 0.5);
    json_f64(&json, NULL, 1.0 / 0.0);
    json_object(&json, NULL);
    json_end(&json);
    json_end(&json);
    json_bool(&json, "yes", true);
    json_null(&json, "none");
    json_end(&json);
    fclose(out);
    assert_string_equal(
        text, "{\"a\\\"b\": \"line\\n\\\\ \\u0001\\u001f\\u007f\", \"raw\": \"\\ufffd\xc3\xa9\", "
              "\"list\": [18446744073709551615, -5, 0.5, null, {}], "
              "\"yes\": true, \"none\": null}\n");
    free(text);
}

static void differences_of_logits(void **state)
{
    /* Two positions of three tokens; e^logit is 1 2 1 against 1 1 2, then 4 1 1 in both. */
    const float a[] = {0, 0.69314718f, 0, 1.38629436f, 0, 0};
    const float b[] = {0, 0, 0.69314718f, 1.38629436f, 0, 0};
    (void)state;
    difference same = compare_logits(a, a, 2, 3);
    assert_true(same.kl_mean == 0 && same.kl_most == 0 && same.logit_most == 0);
    assert_true(same.top_share == 1 && same.same_last_top);
    difference d = compare_logits(a, b, 2, 3);
    /* 1/4 (ln 1 + 2 ln 2 - ln 2) = ln 2 / 4 in the first position, nothing in the second */
    assert_true(fabs(d.kl_most - 0.69314718 / 4) < 1e-6);
    assert_true(fabs(d.kl_mean - 0.69314718 / 8) < 1e-6);
    assert_true(d.top_share == 0.5 && d.same_last_top);
    assert_true(d.logit_most == (double)0.69314718f);
    const float none[] = {0, NAN, 0};
    d = compare_logits(a, none, 1, 3);
    assert_true(isnan(d.kl_mean) && isnan(d.logit_most));
}

/* What was written, with a bar between the pieces. */
typedef struct written {
    char text[256];
    uint64_t bytes;
} written;

static void keep(void *user_data, const char *bytes, uint64_t count)
{
    written *w = user_data;
    assert_true(count > 0);
    memcpy(w->text + w->bytes, bytes, count);
    w->text[w->bytes + count] = '|';
    w->bytes += count + 1;
}

static void check_stream(const char *const *pieces, const char *const *stops, uint64_t stop_count,
                         const char *expected, bool stopped)
{
    text_stream stream;
    written w = {{0}, 0};
    text_stream_start(&stream, stops, stop_count, keep, &w);
    for (; *pieces; pieces++)
        assert_true(text_stream_add(&stream, *pieces, strlen(*pieces)));
    text_stream_end(&stream);
    assert_string_equal(w.text, expected);
    assert_int_equal(stream.stopped, stopped);
}

#define PIECES(...)                                                                                \
    (const char *const[])                                                                          \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }

static void characters_are_written_whole(void **state)
{
    (void)state;
    check_stream(PIECES("ab", "c"), NULL, 0, "ab|c|", false);
    check_stream(PIECES("a\xc3", "\xa4z"), NULL, 0, "a|\xc3\xa4z|", false);
    check_stream(PIECES("\xe2", "\x82", "\xac"), NULL, 0, "\xe2\x82\xac|", false);
    check_stream(PIECES("\xf0\x9f", "\x98", "\x80!"), NULL, 0, "\xf0\x9f\x98\x80!|", false);
    /* What is no character, or never becomes one, is not kept for ever. */
    check_stream(PIECES("\xff", "a"), NULL, 0, "\xff|a|", false);
    check_stream(PIECES("\x80\x80\x80\x80", "a"), NULL, 0, "\x80\x80\x80\x80|a|", false);
    check_stream(PIECES("\xe2\x82", "a"), NULL, 0,
                 "\xe2\x82"
                 "a|",
                 false);
    check_stream(PIECES("a\xe2\x82"), NULL, 0, "a|\xe2\x82|", false);
}

static void texts_to_stop_at_are_not_written(void **state)
{
    static const char *const stops[] = {"END", "\n\n", "NDX"};
    (void)state;
    check_stream(PIECES("one EN", "D two"), stops, 3, "one |", true);
    check_stream(PIECES("E", "N", "D"), stops, 3, "", true);
    check_stream(PIECES("E", "N", "O"), stops, 3, "ENO|", false);
    check_stream(PIECES("ENEN", "D"), stops, 3, "EN|", true);
    check_stream(PIECES("a\n", "b\n", "\nc"), stops, 3, "a|\nb|", true);
    check_stream(PIECES("ENDX"), stops, 3, "", true); /* the first that begins */
    check_stream(PIECES("x\n\nEND"), stops, 3, "x|", true);
    check_stream(PIECES("wait EN"), stops, 3, "wait |EN|", false);
    check_stream(PIECES("END", "more"), stops, 3, "", true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_read_in_every_spelling),
        cmocka_unit_test(real_numbers_are_finite),
        cmocka_unit_test(numbers_are_whole_and_in_range),
        cmocka_unit_test(token_lists),
        cmocka_unit_test(counts_and_sizes_have_units),
        cmocka_unit_test(random_tokens_are_seeded),
        cmocka_unit_test(utf8_is_checked),
        cmocka_unit_test(json_is_escaped_and_nested),
        cmocka_unit_test(differences_of_logits),
        cmocka_unit_test(characters_are_written_whole),
        cmocka_unit_test(texts_to_stop_at_are_not_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
