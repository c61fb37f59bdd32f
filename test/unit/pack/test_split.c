/* SPDX-License-Identifier: MIT */
/* Files on disk: split packs, links, and what is no pack. */
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pack_test.h"

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "test-pack-split-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    static const char *const names[] = {"m-00001-of-00003.gguf",
                                        "m-00002-of-00003.gguf",
                                        "m-00003-of-00003.gguf",
                                        "one.gguf",
                                        "blob0",
                                        "blob1",
                                        "blob2",
                                        "pipe",
                                        "empty",
                                        "other.gguf"};
    char path[128];
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    return rmdir(folder);
}

static void in_folder(char path[128], const char *name)
{
    snprintf(path, 128, "%s/%s", folder, name);
}

static void write_bytes(const char *name, const void *data, uint64_t bytes)
{
    char path[128];
    FILE *file;
    in_folder(path, name);
    file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

static void write_file(const char *name, gguf_builder *builder)
{
    uint64_t bytes;
    uint8_t *image = gguf_image(builder, &bytes, NULL);
    write_bytes(name, image, bytes);
    free(image);
    gguf_free(builder);
}

static void split_keys(gguf_builder *builder, uint16_t number, uint16_t count, int32_t tensors)
{
    gguf_raw(builder, "split.no", 2, &number, sizeof number);
    gguf_raw(builder, "split.count", 2, &count, sizeof count);
    gguf_raw(builder, "split.tensors.count", 5, &tensors, sizeof tensors);
}

/*
 * A model in three files: metadata alone, layer 0 with its own alignment, the rest. The gate and up
 * tensors of layer 1 lie in another file than its down tensor.
 */
typedef struct set {
    gguf_builder *files[3];
} set;

static set split_model(void)
{
    gguf_builder *whole = gguf_model("qwen3moe");
    set result = {{gguf_model("qwen3moe"), gguf_new(), gguf_new()}};
    int32_t total = (int32_t)whole->tensor_count;
    while (result.files[0]->tensor_count) {
        char name[64] = {0};
        gguf_tensor *last = &result.files[0]->tensors[result.files[0]->tensor_count - 1];
        memcpy(name, last->name.data, last->name.count);
        gguf_remove_tensor(result.files[0], name);
    }
    gguf_u32(result.files[1], "general.alignment", 64);
    result.files[1]->alignment = 64;
    for (uint64_t i = 0; i < whole->tensor_count; i++) {
        gguf_tensor *tensor = &whole->tensors[i];
        char name[64] = {0};
        memcpy(name, tensor->name.data, tensor->name.count);
        gguf_add(result.files[strstr(name, "blk.0.") || strstr(name, "blk.1.ffn_down") ? 1 : 2],
                 name, 0, tensor->shape[0], tensor->shape[1], tensor->shape[2]);
    }
    gguf_free(whole);
    for (uint16_t i = 0; i < 3; i++)
        split_keys(result.files[i], i, 3, total);
    return result;
}

static void write_set(set files)
{
    write_file("m-00001-of-00003.gguf", files.files[0]);
    write_file("m-00002-of-00003.gguf", files.files[1]);
    write_file("m-00003-of-00003.gguf", files.files[2]);
}

static strata_status open_name(const char *name, strata__pack **out)
{
    strata_context *context = test_context();
    strata_status status;
    char path[128];
    in_folder(path, name);
    status = strata__pack_open_path(context, path, out);
    strata__context_release(context);
    return status;
}

static void refused(const char *name, strata_status status, const char *text)
{
    strata__pack *pack = (strata__pack *)folder;
    strata_status found = open_name(name, &pack);
    if (found != status)
        fail_msg("expected status %d (%s), found %d (%s)", status, text, found,
                 found == STRATA_OK ? "opened" : strata__error_text());
    assert_null(pack);
    assert_text(text);
}

static void check_set(strata__pack *pack)
{
    const strata__geometry *geometry;
    const strata__layer *layers;
    if (strata__pack_model(pack, &geometry, &layers) != STRATA_OK)
        fail_msg("not runnable: %s", strata__error_text());
    assert_int_equal(strata__pack_tensor_find(pack, "blk.1.ffn_up_exps.weight")->shard, 2);
    assert_int_equal(strata__pack_tensor_find(pack, "blk.1.ffn_down_exps.weight")->shard, 1);
    assert_int_equal((uintptr_t)layers[0].attention_norm % 64, 0);
    assert_true(layers[1].ffn_norm[63] == 1);
}

static void three_files(void **state)
{
    strata__pack *pack = NULL;
    (void)state;
    write_set(split_model());
    if (open_name("m-00001-of-00003.gguf", &pack) != STRATA_OK)
        fail_msg("%s", strata__error_text());
    check_set(pack);
    strata__pack_release(pack);
}

/* As caches have them: links whose targets' names tell nothing. */
static void links(void **state)
{
    char path[128], target[16];
    strata__pack *pack = NULL;
    set files = split_model();
    (void)state;
    for (int i = 0; i < 3; i++) {
        snprintf(target, sizeof target, "blob%d", i);
        write_file(target, files.files[i]);
        snprintf(path, sizeof path, "%s/m-%05d-of-00003.gguf", folder, i + 1);
        unlink(path);
        assert_int_equal(symlink(target, path), 0);
    }
    if (open_name("m-00001-of-00003.gguf", &pack) != STRATA_OK)
        fail_msg("%s", strata__error_text());
    check_set(pack);
    strata__pack_release(pack);
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/m-%05d-of-00003.gguf", folder, i + 1);
        assert_int_equal(unlink(path), 0);
    }
}

static void faults_of_the_set(void **state)
{
    char path[128];
    set files;
    (void)state;
    write_set(split_model());
    refused("m-00002-of-00003.gguf", STRATA_ERR_FORMAT,
            "file 2 of 3 of a split pack; open the first, whose name ends in -00001-of-00003.gguf");
    in_folder(path, "m-00003-of-00003.gguf");
    unlink(path);
    refused("m-00001-of-00003.gguf", STRATA_ERR_IO, "m-00003-of-00003.gguf: cannot open");
    files = split_model();
    split_keys(files.files[2], 1, 3, 0);
    write_set(files);
    refused("m-00001-of-00003.gguf", STRATA_ERR_FORMAT,
            "m-00003-of-00003.gguf: expected split.no 2 of 3, found 1 of 3");
    files = split_model();
    gguf_add(files.files[2], "blk.0.attn_q.weight", 0, 64, 64, 0);
    for (uint16_t i = 0; i < 3; i++)
        split_keys(files.files[i], i, 3, 28);
    write_set(files);
    refused("m-00001-of-00003.gguf", STRATA_ERR_FORMAT, "tensor blk.0.attn_q.weight appears twice");
    files = split_model();
    for (uint16_t i = 0; i < 3; i++)
        split_keys(files.files[i], i, 3, 5);
    write_set(files);
    refused("m-00001-of-00003.gguf", STRATA_ERR_FORMAT, "split.tensors.count is 5, the files hold");
    files = split_model();
    split_keys(files.files[2], 2, 3, 5);
    write_set(files);
    refused("m-00001-of-00003.gguf", STRATA_ERR_FORMAT,
            "m-00003-of-00003.gguf: split.tensors.count is 5, in the files before");
    files = split_model();
    gguf_string(files.files[0], "split.count", "3");
    write_set(files);
    refused("m-00001-of-00003.gguf", STRATA_ERR_FORMAT, "key split.count is no integer");
    files = split_model();
    gguf_u32(files.files[0], "split.count", 100000);
    write_set(files);
    refused("m-00001-of-00003.gguf", STRATA_ERR_FORMAT, "expected 0 to 99999, found 100000");
    write_set(split_model());
    files = split_model();
    write_file("other.gguf", files.files[0]);
    gguf_free(files.files[1]);
    gguf_free(files.files[2]);
    refused("other.gguf", STRATA_ERR_FORMAT, "whose name must end in -00001-of-00003.gguf");
}

static void a_part_in_memory(void **state)
{
    set files = split_model();
    (void)state;
    expect_file_refused(files.files[0], STRATA_ERR_UNSUPPORTED, "one of 3 files of a split pack");
    gguf_free(files.files[1]);
    gguf_free(files.files[2]);
}

static void one_file(void **state)
{
    gguf_builder *builder = gguf_model("qwen3moe");
    strata__pack *pack = NULL, *again = NULL;
    const strata__geometry *geometry;
    const strata__layer *layers;
    uint64_t fingerprint;
    (void)state;
    split_keys(builder, 0, 1, 23); /* a set of one is no set */
    write_file("one.gguf", builder);
    assert_int_equal(open_name("one.gguf", &pack), STRATA_OK);
    assert_int_equal(strata__pack_model(pack, &geometry, &layers), STRATA_OK);
    assert_non_null(strstr(strata__pack_path(pack), "one.gguf"));
    assert_string_equal(strata__pack_name(pack), "small");
    assert_true(strata__pack_file_bytes(pack) > geometry->dense_bytes);
    fingerprint = strata__pack_fingerprint(pack);
    assert_int_equal(open_name("one.gguf", &again), STRATA_OK);
    assert_true(strata__pack_fingerprint(again) == fingerprint);
    strata__pack_release(again);
    write_file("other.gguf", gguf_model("olmoe"));
    assert_int_equal(open_name("other.gguf", &again), STRATA_OK);
    assert_true(strata__pack_fingerprint(again) != fingerprint);
    strata__pack_release(again);
    strata__pack_release(strata__pack_retain(pack));
    assert_true(layers[0].attention_norm[0] == 1);
    strata__pack_release(pack);
}

static void no_packs(void **state)
{
    char path[128];
    (void)state;
    refused("absent.gguf", STRATA_ERR_IO, "absent.gguf: cannot open: No such file");
    refused("", STRATA_ERR_IO, "not a regular file");
    write_bytes("empty", "", 0);
    refused("empty", STRATA_ERR_FORMAT, "empty: the file is empty");
    write_bytes("empty", "GGUF", 4);
    refused("empty", STRATA_ERR_FORMAT, "empty: the version at byte 4");
    in_folder(path, "pipe"); /* opening it must not wait for a writer */
    assert_int_equal(mkfifo(path, 0600), 0);
    refused("pipe", STRATA_ERR_IO, "pipe: not a regular file");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(three_files),       cmocka_unit_test(links),
        cmocka_unit_test(faults_of_the_set), cmocka_unit_test(a_part_in_memory),
        cmocka_unit_test(one_file),          cmocka_unit_test(no_packs),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
