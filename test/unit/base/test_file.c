/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/error.h"
#include "base/file.h"

static char folder[] = "/tmp/strata-file-XXXXXX";
static char path[64];

static int make_folder(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/state", folder);
    return 0;
}

/* Files in the folder, which are all removed. */
static unsigned empty_folder(void)
{
    DIR *directory = opendir(folder);
    unsigned count = 0;
    for (struct dirent *entry = readdir(directory); entry; entry = readdir(directory)) {
        char name[512];
        if (entry->d_name[0] == '.')
            continue;
        snprintf(name, sizeof name, "%s/%s", folder, entry->d_name);
        assert_int_equal(unlink(name), 0);
        count++;
    }
    closedir(directory);
    return count;
}

static int remove_folder(void **state)
{
    (void)state;
    empty_folder();
    return rmdir(folder);
}

static void put(const char *text)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void assert_content(const char *text)
{
    char found[64] = "";
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fread(found, 1, sizeof found - 1, file), strlen(text));
    fclose(file);
    assert_string_equal(found, text);
}

static void begin(strata__file_writer *writer, const char *name)
{
    assert_int_equal(strata__file_begin(writer, strata__allocator_default(), name, "the text"),
                     STRATA_OK);
}

static void a_committed_file_is_whole(void **state)
{
    strata__file_writer writer;
    (void)state;
    begin(&writer, path);
    assert_int_equal(strata__file_write(&writer, "one ", 4), STRATA_OK);
    assert_int_equal(strata__file_write(&writer, "two", 3), STRATA_OK);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(strata__file_commit(&writer), STRATA_OK);
    strata__file_discard(&writer);
    assert_content("one two");
    assert_int_equal(empty_folder(), 1);
}

static void a_discarded_file_leaves_the_old_one(void **state)
{
    strata__file_writer writer;
    (void)state;
    put("old");
    begin(&writer, path);
    assert_int_equal(strata__file_write(&writer, "new", 3), STRATA_OK);
    strata__file_discard(&writer);
    assert_content("old");
    assert_int_equal(empty_folder(), 1);
}

static void mode_and_links_stay(void **state)
{
    strata__file_writer writer;
    struct stat found;
    char link_path[96];
    (void)state;
    put("old");
    assert_int_equal(chmod(path, 0640), 0);
    snprintf(link_path, sizeof link_path, "%s.link", path);
    assert_int_equal(symlink(path, link_path), 0);
    begin(&writer, link_path);
    assert_int_equal(strata__file_write(&writer, "new", 3), STRATA_OK);
    assert_int_equal(strata__file_commit(&writer), STRATA_OK);
    assert_content("new");
    assert_int_equal(lstat(link_path, &found), 0);
    assert_true(S_ISLNK(found.st_mode));
    assert_int_equal(stat(path, &found), 0);
    assert_int_equal(found.st_mode & 0777, 0640);
    assert_int_equal(empty_folder(), 2);
}

static void a_link_to_nothing_stays_a_link(void **state)
{
    strata__file_writer writer;
    struct stat found;
    char link_path[96];
    (void)state;
    snprintf(link_path, sizeof link_path, "%s.link", path);
    assert_int_equal(symlink(path, link_path), 0);
    begin(&writer, link_path);
    assert_int_equal(strata__file_write(&writer, "new", 3), STRATA_OK);
    assert_int_equal(strata__file_commit(&writer), STRATA_OK);
    assert_content("new");
    assert_int_equal(lstat(link_path, &found), 0);
    assert_true(S_ISLNK(found.st_mode));
    assert_int_equal(empty_folder(), 2);
}

static void a_pipe_is_written_as_it_is(void **state)
{
    strata__file_writer writer;
    char found[8] = "";
    int reader;
    (void)state;
    assert_int_equal(mkfifo(path, 0600), 0);
    reader = open(path, O_RDONLY | O_NONBLOCK);
    begin(&writer, path);
    assert_int_equal(strata__file_write(&writer, "bytes", 5), STRATA_OK);
    assert_int_equal(strata__file_commit(&writer), STRATA_OK);
    assert_int_equal(read(reader, found, sizeof found), 5);
    assert_string_equal(found, "bytes");
    close(reader);
    assert_int_equal(empty_folder(), 1);
}

static void errors_name_the_path(void **state)
{
    strata__file_writer writer;
    (void)state;
    assert_int_equal(
        strata__file_begin(&writer, strata__allocator_default(), "/nowhere/at/all", "the text"),
        STRATA_ERR_IO);
    strata__file_discard(&writer);
    assert_string_equal(strata__error_text(),
                        "/nowhere/at/all: cannot create the text: No such file or directory");
}

static void a_full_disk_leaves_nothing(void **state)
{
    strata__file_writer writer;
    (void)state;
    begin(&writer, "/dev/full");
    assert_int_equal(strata__file_write(&writer, "bytes", 5), STRATA_ERR_IO);
    strata__file_discard(&writer);
    assert_string_equal(strata__error_text(),
                        "/dev/full: cannot write the text: No space left on device");
}

static uint32_t left;

static void *limited_alloc(void *user_data, uint64_t bytes, uint64_t alignment)
{
    const strata__allocator *heap = strata__allocator_default();
    (void)user_data;
    return left-- == 0 ? NULL : heap->alloc_fn(heap->user_data, bytes, alignment);
}

static void allocations_may_fail(void **state)
{
    strata__allocator limited = *strata__allocator_default();
    strata__file_writer writer;
    (void)state;
    limited.alloc_fn = limited_alloc;
    for (uint32_t i = 0; i < 2; i++) {
        left = i;
        assert_int_equal(strata__file_begin(&writer, &limited, path, "the text"),
                         STRATA_ERR_NO_MEMORY);
        strata__file_discard(&writer);
        assert_int_equal(empty_folder(), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_committed_file_is_whole),
        cmocka_unit_test(a_discarded_file_leaves_the_old_one),
        cmocka_unit_test(mode_and_links_stay),
        cmocka_unit_test(a_link_to_nothing_stays_a_link),
        cmocka_unit_test(a_pipe_is_written_as_it_is),
        cmocka_unit_test(errors_name_the_path),
        cmocka_unit_test(a_full_disk_leaves_nothing),
        cmocka_unit_test(allocations_may_fail),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
