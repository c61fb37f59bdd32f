/* SPDX-License-Identifier: MIT */
/* Metadata by type: every width, arrays, strings by index, and what is refused. */
#include "pack_test.h"

static int64_t integer(const strata__pack *pack, const char *key, uint64_t element)
{
    strata__value value;
    int64_t result = -99;
    assert_true(strata__pack_value_find(pack, key, &value));
    if (strata__value_int64(&value, element, &result) != STRATA_OK)
        fail_msg("%s", strata__error_text());
    return result;
}

static void integers_of_every_width(void **state)
{
    gguf_builder *builder = gguf_new();
    int64_t wide = INT64_MIN;
    uint64_t positive = INT64_MAX;
    int8_t narrow[3] = {-1, 0, 127};
    uint8_t *image;
    strata__pack *pack;
    (void)state;
    gguf_raw(builder, "u8", 0, "\xff", 1);
    gguf_raw(builder, "i8", 1, "\xff", 1);
    gguf_raw(builder, "u16", 2, "\xfe\xff", 2);
    gguf_raw(builder, "i16", 3, "\xfe\xff", 2);
    gguf_raw(builder, "u32", 4, "\xfd\xff\xff\xff", 4);
    gguf_raw(builder, "i32", 5, "\xfd\xff\xff\xff", 4);
    gguf_raw(builder, "bool", 7, "\x02", 1);
    gguf_raw(builder, "u64", 10, &positive, 8);
    gguf_raw(builder, "i64", 11, &wide, 8);
    gguf_array(builder, "array", 1, narrow, 3, 1);
    pack = open_file(builder, &image);
    assert_int_equal(integer(pack, "u8", 0), 255);
    assert_int_equal(integer(pack, "i8", 0), -1);
    assert_int_equal(integer(pack, "u16", 0), 65534);
    assert_int_equal(integer(pack, "i16", 0), -2);
    assert_int_equal(integer(pack, "u32", 0), 4294967293);
    assert_int_equal(integer(pack, "i32", 0), -3);
    assert_int_equal(integer(pack, "bool", 0), 1);
    assert_true(integer(pack, "u64", 0) == INT64_MAX);
    assert_true(integer(pack, "i64", 0) == INT64_MIN);
    assert_int_equal(integer(pack, "array", 0), -1);
    assert_int_equal(integer(pack, "array", 2), 127);
    strata__pack_release(pack);
    free(image);
}

static void what_is_no_integer(void **state)
{
    gguf_builder *builder = gguf_new();
    uint64_t beyond = UINT64_C(1) << 63;
    strata__value value;
    int64_t result = 5;
    double number = 5;
    const uint8_t *bytes;
    uint64_t count;
    uint8_t *image;
    strata__pack *pack;
    (void)state;
    gguf_raw(builder, "beyond", 10, &beyond, 8);
    gguf_f32(builder, "float", 1.5f);
    gguf_string(builder, "text", "hello");
    gguf_u32(builder, "whole", 7);
    pack = open_file(builder, &image);
    assert_true(strata__pack_value_find(pack, "beyond", &value));
    assert_int_equal(strata__value_int64(&value, 0, &result), STRATA_ERR_INVALID_ARGUMENT);
    assert_text("key beyond: 9223372036854775808 is out of range");
    assert_int_equal(strata__value_int64(&value, 1, &result), STRATA_ERR_INVALID_ARGUMENT);
    assert_text("there is no element 1");
    assert_true(strata__pack_value_find(pack, "float", &value));
    assert_int_equal(strata__value_int64(&value, 0, &result), STRATA_ERR_INVALID_ARGUMENT);
    assert_text("key float: expected an integer, found f32");
    assert_int_equal(strata__value_float64(&value, 0, &number), STRATA_OK);
    assert_true(number == 1.5);
    assert_true(strata__pack_value_find(pack, "text", &value));
    assert_int_equal(value.count, 5);
    assert_int_equal(strata__value_int64(&value, 0, &result), STRATA_ERR_INVALID_ARGUMENT);
    assert_int_equal(strata__value_string(&value, 0, &bytes, &count), STRATA_OK);
    assert_int_equal(count, 5);
    assert_memory_equal(bytes, "hello", 5);
    assert_true(strata__pack_value_find(pack, "whole", &value));
    assert_int_equal(strata__value_float64(&value, 0, &number), STRATA_ERR_INVALID_ARGUMENT);
    assert_text("expected a float, found u32");
    assert_int_equal(strata__value_string(&value, 0, &bytes, &count), STRATA_ERR_INVALID_ARGUMENT);
    assert_int_equal(result, 5);
    assert_false(strata__pack_value_find(pack, "absent", &value));
    assert_int_equal(strata__pack_value(pack, 4, &value), STRATA_ERR_INVALID_ARGUMENT);
    assert_int_equal(strata__pack_value(pack, 3, &value), STRATA_OK);
    assert_string_equal(value.key, "whole");
    strata__pack_release(pack);
    free(image);
}

/* Strings are found through an index with gaps: walk over several of them, both ways. */
static void strings_of_an_array(void **state)
{
    enum { COUNT = 100 };
    static char texts[COUNT][16];
    const char *pointers[COUNT];
    gguf_builder *builder = gguf_new();
    strata__value value;
    uint8_t *image;
    strata__pack *pack;
    (void)state;
    for (int i = 0; i < COUNT; i++) {
        snprintf(texts[i], sizeof texts[i], "%.*s%d", i % 7, "abcdefg", i);
        pointers[i] = texts[i];
    }
    gguf_strings(builder, "texts", pointers, COUNT);
    gguf_strings(builder, "none", pointers, 0);
    pack = open_file(builder, &image);
    assert_true(strata__pack_value_find(pack, "texts", &value));
    assert_int_equal(value.count, COUNT);
    for (int i = COUNT; i-- > 0;) {
        const uint8_t *bytes;
        uint64_t count;
        assert_int_equal(strata__value_string(&value, (uint64_t)i, &bytes, &count), STRATA_OK);
        assert_int_equal(count, strlen(texts[i]));
        assert_memory_equal(bytes, texts[i], count);
    }
    assert_true(strata__pack_value_find(pack, "none", &value));
    assert_int_equal(value.count, 0);
    strata__pack_release(pack);
    free(image);
}

static void many_keys_are_found(void **state)
{
    enum { COUNT = 3000 };
    gguf_builder *builder = gguf_new();
    uint8_t *image;
    strata__pack *pack;
    char key[32];
    (void)state;
    for (uint32_t i = 0; i < COUNT; i++) {
        snprintf(key, sizeof key, "key.%u", i * 7919 % COUNT);
        gguf_add_raw(builder, key, strlen(key), 4, &i, sizeof i);
    }
    pack = open_file(builder, &image);
    assert_int_equal(strata__pack_value_count(pack), COUNT);
    for (uint32_t i = 0; i < COUNT; i++) {
        snprintf(key, sizeof key, "key.%u", i * 7919 % COUNT);
        assert_int_equal(integer(pack, key, 0), i);
    }
    strata__pack_release(pack);
    free(image);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers_of_every_width),
        cmocka_unit_test(what_is_no_integer),
        cmocka_unit_test(strings_of_an_array),
        cmocka_unit_test(many_keys_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
