/* SPDX-License-Identifier: MIT */
/* Every way in which a header can be wrong: a status and a text, never a crash. */
#include "pack_test.h"

static void empty_and_short_files(void **state)
{
    gguf_builder *builder = gguf_model("qwen3moe");
    uint64_t bytes, header;
    uint8_t *image = gguf_image(builder, &bytes, &header);
    (void)state;
    expect_refused(image, 0, STRATA_ERR_FORMAT, "magic number");
    expect_refused(image, 3, STRATA_ERR_FORMAT, "magic number");
    expect_refused(image, 4, STRATA_ERR_FORMAT, "the version");
    expect_refused(image, 8, STRATA_ERR_FORMAT, "the number of tensors");
    expect_refused(image, 16, STRATA_ERR_FORMAT, "the number of metadata entries");
    /* Every cut of the header is noticed. The copy ends where the file does, for sanitizers. */
    for (uint64_t cut = 0; cut < header; cut += cut < 512 ? 1 : 13) {
        uint8_t *copy = malloc(cut + 1);
        memcpy(copy, image, cut);
        expect_refused(copy, cut, STRATA_ERR_FORMAT, "pack in memory: ");
        free(copy);
    }
    expect_refused(image, header + 100, STRATA_ERR_FORMAT, "beyond the end of the file");
    free(image);
    gguf_free(builder);
    builder = gguf_new(); /* one value short of whole */
    gguf_add(builder, "first", 0, 64, 0, 0);
    gguf_add(builder, "last", 0, 64, 0, 0);
    image = gguf_image(builder, &bytes, &header);
    expect_refused(image, header + 511, STRATA_ERR_FORMAT,
                   "tensor last: 256 bytes at offset 256 of 511 bytes");
    free(image);
    gguf_free(builder);
}

static void wrong_magic_and_versions(void **state)
{
    static const struct {
        uint32_t version;
        const char *text;
    } cases[] = {
        {0, "version 0"},           {1, "version 1;"},          {4, "version 4"},
        {0x03000000, "big-endian"}, {0x02000000, "big-endian"},
    };
    (void)state;
    expect_refused("GGML\3\0\0\0", 8, STRATA_ERR_FORMAT, "not a GGUF file");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gguf_builder *builder = gguf_model("qwen3moe");
        builder->version = cases[i].version;
        expect_file_refused(builder, STRATA_ERR_FORMAT, cases[i].text);
    }
}

static void version_2_is_read(void **state)
{
    gguf_builder *builder = gguf_model("qwen3moe");
    uint8_t *image;
    strata__pack *pack;
    (void)state;
    builder->version = 2;
    pack = open_file(builder, &image);
    strata__pack_release(pack);
    free(image);
}

static void absurd_counts(void **state)
{
    static const uint64_t surplus[] = {1u << 25, UINT64_C(1) << 40, UINT64_C(1) << 63,
                                       UINT64_MAX - 1000};
    (void)state;
    for (size_t i = 0; i < sizeof surplus / sizeof surplus[0]; i++) {
        gguf_builder *builder = gguf_model("qwen3moe");
        builder->entry_surplus = surplus[i];
        expect_file_refused(builder, STRATA_ERR_FORMAT, "metadata entries");
        builder = gguf_model("qwen3moe");
        builder->tensor_surplus = surplus[i];
        expect_file_refused(builder, STRATA_ERR_FORMAT, "tensors");
    }
}

static void claimed_entries_that_are_not_there(void **state)
{
    gguf_builder *builder = gguf_model("qwen3moe");
    (void)state;
    builder->entry_surplus = 1;
    expect_file_refused(builder, STRATA_ERR_FORMAT, "pack in memory: ");
    builder = gguf_model("qwen3moe");
    builder->tensor_surplus = 1 << 20;
    expect_file_refused(builder, STRATA_ERR_FORMAT, "pack in memory: ");
}

static void bad_keys(void **state)
{
    static const struct {
        const char *key;
        uint64_t bytes;
        const char *text;
    } cases[] = {
        {"", 0, "is empty"},
        {"a\0b", 3, "is no text"},
        {"a\nb", 3, "is no text"},
        {"a\x7f", 2, "is no text"},
        {"\xc3", 1, "is no text"},
        {"\xc0\x80", 2, "is no text"},
        {"\xc1\xa1", 2, "is no text"}, /* an a of two bytes */
        {"\xed\xa0\x80", 3, "is no text"},
        {"\xf5\x80\x80\x80", 4, "is no text"},
        {"general.name", 12, "key general.name appears twice"},
    };
    char *long_key = malloc(65536);
    uint32_t value = 0;
    gguf_builder *builder;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        builder = gguf_model("qwen3moe");
        gguf_add_raw(builder, cases[i].key, cases[i].bytes, 4, &value, sizeof value);
        expect_file_refused(builder, STRATA_ERR_FORMAT, cases[i].text);
    }
    memset(long_key, 'k', 65536);
    builder = gguf_model("qwen3moe");
    gguf_add_raw(builder, long_key, 65536, 4, &value, sizeof value);
    expect_file_refused(builder, STRATA_ERR_FORMAT, "65536 bytes, more than");
    free(long_key);
}

static void value_types_that_do_not_exist(void **state)
{
    static const uint32_t types[] = {13, 14, 255, 0x80000000, 0xffffffff};
    uint8_t payload[16] = {0};
    (void)state;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        gguf_builder *builder = gguf_model("qwen3moe");
        gguf_raw(builder, "some.key", types[i], payload, sizeof payload);
        expect_file_refused(builder, STRATA_ERR_FORMAT, "key some.key has type");
        builder = gguf_model("qwen3moe");
        gguf_array(builder, "some.key", types[i], payload, 1, 8);
        expect_file_refused(builder, STRATA_ERR_FORMAT, "key some.key is an array of type");
    }
}

/* An array or a string whose length is a lie. */
static void lengths_beyond_the_file(void **state)
{
    static const uint64_t lengths[] = {UINT64_C(1) << 20, UINT64_C(1) << 40, UINT64_C(1) << 61,
                                       UINT64_C(1) << 63, UINT64_MAX};
    (void)state;
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        uint8_t payload[12];
        gguf_builder *builder = gguf_model("qwen3moe");
        gguf_raw(builder, "some.key", 8, &lengths[i], sizeof lengths[i]);
        expect_file_refused(builder, STRATA_ERR_FORMAT, "some.key at byte");
        for (uint32_t type = 0; type < 13; type++) {
            if (type == 9)
                continue;
            memcpy(payload, &type, sizeof type);
            memcpy(payload + 4, &lengths[i], sizeof lengths[i]);
            builder = gguf_model("qwen3moe");
            gguf_raw(builder, "some.key", 9, payload, sizeof payload);
            expect_file_refused(builder, STRATA_ERR_FORMAT, "some.key");
        }
    }
}

static void string_in_an_array_beyond_the_file(void **state)
{
    uint64_t payload[2] = {3, UINT64_MAX - 8};
    gguf_builder *builder = gguf_model("qwen3moe");
    (void)state;
    gguf_array(builder, "some.key", 8, payload, 2, sizeof payload[0]);
    expect_file_refused(builder, STRATA_ERR_FORMAT, "some.key");
}

static void arrays_of_arrays(void **state)
{
    uint8_t payload[64] = {0};
    gguf_builder *builder = gguf_model("qwen3moe");
    (void)state;
    gguf_array(builder, "some.key", 9, payload, 4, 12);
    expect_file_refused(builder, STRATA_ERR_FORMAT, "array of arrays");
}

static void alignments(void **state)
{
    static const uint32_t bad[] = {0, 3, 24, 48, 0xffffffff};
    int32_t as_signed = 32;
    uint64_t as_wide = 32;
    uint8_t *image;
    strata__pack *pack;
    gguf_builder *builder;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        builder = gguf_model("qwen3moe");
        gguf_u32(builder, "general.alignment", bad[i]);
        expect_file_refused(builder, STRATA_ERR_FORMAT, "is no power of two");
    }
    builder = gguf_model("qwen3moe");
    gguf_raw(builder, "general.alignment", 5, &as_signed, sizeof as_signed);
    expect_file_refused(builder, STRATA_ERR_FORMAT, "general.alignment: expected u32, found i32");
    builder = gguf_model("qwen3moe");
    gguf_raw(builder, "general.alignment", 10, &as_wide, sizeof as_wide);
    expect_file_refused(builder, STRATA_ERR_FORMAT, "general.alignment: expected u32, found u64");
    /* So large that padding the header would wrap a 32-bit sum. */
    builder = gguf_model("qwen3moe");
    gguf_u32(builder, "general.alignment", 0x80000000);
    expect_file_refused(builder, STRATA_ERR_FORMAT, "ends before the tensor data");
    builder = gguf_model("qwen3moe");
    gguf_u32(builder, "general.alignment", 8);
    builder->alignment = 8;
    pack = open_file(builder, &image);
    strata__pack_release(pack);
    free(image);
}

static void tensor_names(void **state)
{
    char name[258];
    gguf_builder *builder = gguf_model("qwen3moe");
    (void)state;
    gguf_add(builder, "twin", 0, 32, 0, 0);
    gguf_add(builder, "twim", 0, 32, 0, 0)->name.data[3] = 'n';
    expect_file_refused(builder, STRATA_ERR_FORMAT, "tensor twin appears twice");
    builder = gguf_model("qwen3moe");
    gguf_add(builder, "x", 0, 32, 0, 0)->name.count = 0;
    expect_file_refused(builder, STRATA_ERR_FORMAT, "is empty");
    builder = gguf_model("qwen3moe");
    gguf_add(builder, "a\xff", 0, 32, 0, 0);
    expect_file_refused(builder, STRATA_ERR_FORMAT, "is no text");
    memset(name, 'n', 256);
    name[256] = '\0';
    builder = gguf_model("qwen3moe");
    gguf_add(builder, name, 0, 32, 0, 0);
    expect_file_refused(builder, STRATA_ERR_FORMAT, "256 bytes, more than 255");
}

static void dimensions(void **state)
{
    static const uint32_t bad[] = {0, 5, 6, 0xffffffff};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        gguf_builder *builder = gguf_model("qwen3moe");
        gguf_add(builder, "odd", 0, 32, 0, 0)->dimensions = bad[i];
        expect_file_refused(builder, STRATA_ERR_FORMAT, "tensor odd has");
    }
    for (uint32_t zero = 0; zero < 3; zero++) {
        gguf_builder *builder = gguf_model("qwen3moe");
        gguf_tensor *tensor = gguf_add(builder, "odd", 0, 32, 2, 2);
        tensor->shape[zero] = 0;
        expect_file_refused(builder, STRATA_ERR_FORMAT, "tensor odd: dimension");
    }
}

static void sizes_that_overflow(void **state)
{
    static const uint64_t shapes[][3] = {
        {UINT64_C(1) << 63, 1, 1},
        {UINT64_C(1) << 32, UINT64_C(1) << 32, 1},
        {UINT64_C(1) << 31, UINT64_C(1) << 31, 4},
        {UINT64_MAX, 1, 1},
        {3, UINT64_C(0x5555555555555556), 1},
        {UINT64_C(1) << 62, 1, 1}, /* values fit, bytes do not */
    };
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        gguf_builder *builder = gguf_model("qwen3moe");
        gguf_tensor *tensor = gguf_add(builder, "vast", 0, 32, 1, 1);
        memcpy(tensor->shape, shapes[i], sizeof shapes[i]);
        expect_file_refused(builder, STRATA_ERR_FORMAT, "overflows");
        if (shapes[i][0] == UINT64_C(1) << 62)
            continue;
        builder = gguf_model("qwen3moe"); /* also when its bytes are not known */
        tensor = gguf_add(builder, "vast", 200, 32, 1, 1);
        memcpy(tensor->shape, shapes[i], sizeof shapes[i]);
        expect_file_refused(builder, STRATA_ERR_FORMAT, "the number of its values overflows");
    }
}

static void rows_that_are_no_whole_blocks(void **state)
{
    static const uint32_t formats[][2] = {{8, 33},   {2, 16},  {12, 128},
                                          {22, 384}, {42, 96}, {39, 31}};
    (void)state;
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        gguf_builder *builder = gguf_model("qwen3moe");
        gguf_add(builder, "ragged", formats[i][0], formats[i][1], 4, 0);
        expect_file_refused(builder, STRATA_ERR_FORMAT, "tensor ragged: rows of");
    }
}

static void offsets(void **state)
{
    gguf_builder *builder = gguf_model("qwen3moe");
    (void)state;
    gguf_add(builder, "odd", 0, 32, 0, 0)->offset += 4;
    expect_file_refused(builder, STRATA_ERR_FORMAT, "no multiple of the alignment 32");
    builder = gguf_model("qwen3moe");
    gguf_add(builder, "far", 0, 32, 0, 0)->offset = UINT64_C(1) << 40;
    expect_file_refused(builder, STRATA_ERR_FORMAT, "tensor far: 128 bytes at offset");
    builder = gguf_model("qwen3moe");
    gguf_add(builder, "wrap", 0, 32, 0, 0)->offset = UINT64_MAX - 31;
    expect_file_refused(builder, STRATA_ERR_FORMAT, "beyond the end of the file");
    builder = gguf_model("qwen3moe"); /* its size is not known, its place is */
    gguf_add(builder, "strange", 200, 32, 0, 0)->offset = UINT64_C(1) << 40;
    expect_file_refused(builder, STRATA_ERR_FORMAT, "tensor strange: 0 bytes at offset");
    builder = gguf_model("qwen3moe"); /* the sum of all padded sizes would wrap */
    gguf_add(builder, "a", 0, 32, 0, 0)->shape[0] = UINT64_C(1) << 60;
    gguf_add(builder, "b", 0, 32, 0, 0)->shape[0] = UINT64_C(1) << 60;
    expect_file_refused(builder, STRATA_ERR_FORMAT, "tensor a: 4611686018427387904 bytes");
}

static void overlaps(void **state)
{
    gguf_builder *builder = gguf_model("qwen3moe");
    (void)state;
    gguf_add(builder, "first", 0, 64, 0, 0);
    gguf_add(builder, "second", 0, 64, 0, 0)->offset -= 32;
    expect_file_refused(builder, STRATA_ERR_FORMAT, "tensors first and second overlap");
    builder = gguf_model("qwen3moe");
    gguf_add(builder, "same", 0, 64, 0, 0)->offset = 0;
    expect_file_refused(builder, STRATA_ERR_FORMAT, "overlap at offset 0");
    builder = gguf_model("qwen3moe");
    gguf_add(builder, "strange", 200, 64, 0, 0)->offset = 32;
    expect_file_refused(builder, STRATA_ERR_FORMAT, "token_embd.weight and strange overlap");
}

static void gaps_and_order_are_free(void **state)
{
    gguf_builder *builder = gguf_model("qwen3moe");
    gguf_tensor *first, *second;
    const strata__geometry *geometry;
    const strata__layer *layers;
    uint64_t offset;
    uint8_t *image;
    strata__pack *pack;
    (void)state;
    first = gguf_find(builder, "token_embd.weight");
    second = gguf_find(builder, "output.weight");
    offset = first->offset;
    first->offset = second->offset;
    second->offset = offset;
    gguf_add(builder, "blk.0.attn_q.weight", 0, 64, 64, 0)->offset += 1 << 16;
    pack = open_file(builder, &image);
    assert_int_equal(strata__pack_model(pack, &geometry, &layers), STRATA_OK);
    strata__pack_release(pack);
    free(image);
}

/* Ids that were removed, never given, or belong to forks: listed, and refused when needed. */
static void unknown_types(void **state)
{
    static const uint32_t types[] = {4, 5, 31, 36, 64, 133, 200, 223, 0xffffffff};
    (void)state;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        const strata__tensor *tensor;
        gguf_builder *builder = gguf_model("qwen3moe");
        uint8_t *image;
        strata__pack *pack;
        char text[64];
        gguf_add(builder, "unused", types[i], 32, 0, 0);
        pack = open_file(builder, &image);
        tensor = strata__pack_tensor_find(pack, "unused");
        assert_non_null(tensor);
        assert_int_equal(tensor->format, types[i]);
        assert_int_equal(tensor->bytes, 0);
        strata__pack_release(pack);
        free(image);
        builder = gguf_model("qwen3moe");
        gguf_add(builder, "blk.1.ffn_up_exps.weight", types[i], 64, 32, 4);
        snprintf(text, sizeof text, "tensor blk.1.ffn_up_exps.weight has type %u", types[i]);
        expect_model_refused(builder, STRATA_ERR_UNSUPPORTED, text);
    }
}

static void names_of_the_file(void **state)
{
    gguf_builder *builder = gguf_model("qwen3moe");
    (void)state;
    gguf_u32(builder, "general.architecture", 3);
    expect_file_refused(builder, STRATA_ERR_FORMAT, "general.architecture: expected a string");
    builder = gguf_model("qwen3moe");
    gguf_string(builder, "general.architecture", "a\nb");
    expect_file_refused(builder, STRATA_ERR_FORMAT, "general.architecture is no text");
    builder = gguf_model("qwen3moe");
    gguf_raw(builder, "general.name", 8, "\3\0\0\0\0\0\0\0a\0b", 11);
    expect_file_refused(builder, STRATA_ERR_FORMAT, "general.name is no text");
    builder = gguf_model("qwen3moe");
    gguf_remove(builder, "general.architecture");
    expect_model_refused(builder, STRATA_ERR_UNSUPPORTED, "general.architecture is missing");
    builder = gguf_model("qwen3moe");
    gguf_string(builder, "general.architecture", "rwkv");
    expect_model_refused(builder, STRATA_ERR_UNSUPPORTED, "architecture \"rwkv\" is not known");
}

typedef struct largest {
    uint64_t bytes;
} largest;

static void *note_alloc(void *user_data, uint64_t bytes, uint64_t alignment)
{
    largest *most = user_data;
    most->bytes = bytes > most->bytes ? bytes : most->bytes;
    return aligned_alloc(alignment, (bytes + alignment) / alignment * alignment);
}

static void note_free(void *user_data, void *pointer, uint64_t bytes)
{
    (void)user_data;
    (void)bytes;
    free(pointer);
}

/* Files that claim much and hold little get little memory. */
static void memory_in_proportion(void **state)
{
    static const uint64_t claims[] = {1 << 20, 1 << 24, 1 << 30, INT64_MAX};
    (void)state;
    for (size_t i = 0; i < 3 * (sizeof claims / sizeof claims[0]); i++) {
        uint64_t claim = claims[i / 3], bytes;
        gguf_builder *builder = gguf_new();
        largest most = {0};
        strata_context_options options = {.struct_size = sizeof options,
                                          .alloc_fn = note_alloc,
                                          .free_fn = note_free,
                                          .alloc_user_data = &most};
        strata_context *context = NULL;
        strata__pack *pack = NULL;
        uint8_t payload[12] = {8};
        uint8_t *image;
        memcpy(payload + 4, &claim, sizeof claim);
        if (i % 3 == 0)
            gguf_raw(builder, "many", 9, payload, sizeof payload);
        builder->entry_surplus = i % 3 == 1 ? claim : 0;
        builder->tensor_surplus = i % 3 == 2 ? claim : 0;
        image = gguf_image(builder, &bytes, NULL);
        assert_int_equal(strata__context_create(&options, &context), STRATA_OK);
        assert_int_equal(strata__pack_open_memory(context, image, bytes, &pack), STRATA_ERR_FORMAT);
        assert_true(most.bytes <= 32768);
        strata__context_release(context);
        free(image);
        gguf_free(builder);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty_and_short_files),
        cmocka_unit_test(wrong_magic_and_versions),
        cmocka_unit_test(version_2_is_read),
        cmocka_unit_test(absurd_counts),
        cmocka_unit_test(claimed_entries_that_are_not_there),
        cmocka_unit_test(bad_keys),
        cmocka_unit_test(value_types_that_do_not_exist),
        cmocka_unit_test(lengths_beyond_the_file),
        cmocka_unit_test(string_in_an_array_beyond_the_file),
        cmocka_unit_test(arrays_of_arrays),
        cmocka_unit_test(alignments),
        cmocka_unit_test(tensor_names),
        cmocka_unit_test(dimensions),
        cmocka_unit_test(sizes_that_overflow),
        cmocka_unit_test(rows_that_are_no_whole_blocks),
        cmocka_unit_test(offsets),
        cmocka_unit_test(overlaps),
        cmocka_unit_test(gaps_and_order_are_free),
        cmocka_unit_test(unknown_types),
        cmocka_unit_test(names_of_the_file),
        cmocka_unit_test(memory_in_proportion),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
