/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/format.h"

static void ids_and_sizes_are_those_of_gguf(void **state)
{
    static const struct {
        uint32_t id, values, bytes;
        const char *name;
    } expected[] = {
        {0, 1, 4, "F32"},         {1, 1, 2, "F16"},         {2, 32, 18, "Q4_0"},
        {3, 32, 20, "Q4_1"},      {6, 32, 22, "Q5_0"},      {7, 32, 24, "Q5_1"},
        {8, 32, 34, "Q8_0"},      {10, 256, 84, "Q2_K"},    {11, 256, 110, "Q3_K"},
        {12, 256, 144, "Q4_K"},   {13, 256, 176, "Q5_K"},   {14, 256, 210, "Q6_K"},
        {16, 256, 66, "IQ2_XXS"}, {17, 256, 74, "IQ2_XS"},  {18, 256, 98, "IQ3_XXS"},
        {19, 256, 50, "IQ1_S"},   {20, 32, 18, "IQ4_NL"},   {21, 256, 110, "IQ3_S"},
        {22, 256, 82, "IQ2_S"},   {23, 256, 136, "IQ4_XS"}, {29, 256, 56, "IQ1_M"},
        {30, 1, 2, "BF16"},       {39, 32, 17, "MXFP4"},    {42, 64, 18, "Q2_0"},
    };
    size_t known = 0;
    (void)state;
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        const strata__format_info *info = strata__format_find(expected[i].id);
        uint32_t id = 0;
        assert_non_null(info);
        assert_int_equal(info->block_values, expected[i].values);
        assert_int_equal(info->block_bytes, expected[i].bytes);
        assert_string_equal(info->name, expected[i].name);
        assert_ptr_equal(strata__format_find_name(expected[i].name, &id), info);
        assert_int_equal(id, expected[i].id);
    }
    for (uint32_t id = 0; id < STRATA__FORMAT_LIMIT; id++)
        known += strata__format_find(id) != NULL;
    assert_int_equal(known, sizeof expected / sizeof expected[0]);
}

static void other_types_have_names_only(void **state)
{
    uint32_t id;
    (void)state;
    assert_string_equal(strata__format_name(34), "TQ1_0");
    assert_string_equal(strata__format_name(17), "IQ2_XS");
    assert_null(strata__format_find(34));
    assert_null(strata__format_name(4));
    assert_null(strata__format_name(31));
    assert_null(strata__format_find(UINT32_MAX));
    assert_null(strata__format_find_name("Q9_9", &id));
}

static void rows_are_whole_blocks(void **state)
{
    uint64_t bytes = 0;
    (void)state;
    assert_true(strata__format_row_bytes(STRATA__IQ2_XS, 2048, &bytes));
    assert_int_equal(bytes, 8 * 74);
    assert_false(strata__format_row_bytes(STRATA__IQ2_XS, 640, &bytes));
    assert_true(strata__format_row_bytes(STRATA__Q2_0, 640, &bytes));
    assert_int_equal(bytes, 180);
    assert_false(strata__format_row_bytes(34, 256, &bytes));
    assert_false(strata__format_row_bytes(STRATA__F32, UINT64_MAX / 2, &bytes));
}

static void exact_int8_forms(void **state)
{
    (void)state;
    assert_int_equal(strata__format_find(STRATA__F16)->int8_group, 0);
    assert_int_equal(strata__format_find(STRATA__IQ2_XS)->int8_group, 16);
    assert_int_equal(strata__format_find(STRATA__IQ2_XXS)->int8_group, 32);
    assert_int_equal(strata__format_find(STRATA__Q2_0)->int8_group, 64);
    assert_int_equal(strata__format_find(STRATA__Q3_K)->int8_group, 32);
    assert_int_equal(strata__format_find(STRATA__Q4_K)->int8_minimum_group, 32);
    assert_int_equal(strata__format_find(STRATA__Q6_K)->int8_minimum_group, 0);
    for (uint32_t id = 0; id < STRATA__FORMAT_LIMIT; id++) {
        const strata__format_info *info = strata__format_find(id);
        uint32_t offset = info ? info->int8_minimum_group : 0;
        if (id == STRATA__Q2_K)
            assert_true(info->int8_group == 32 && offset == 16);
        else
            assert_true(!offset || offset == info->int8_group);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_and_sizes_are_those_of_gguf),
        cmocka_unit_test(other_types_have_names_only),
        cmocka_unit_test(rows_are_whole_blocks),
        cmocka_unit_test(exact_int8_forms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
