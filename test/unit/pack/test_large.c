/* SPDX-License-Identifier: MIT */
/* A pack of more than 36 GiB, of holes: opened with the memory of its header alone. */
#include <unistd.h>

#include "pack_test.h"
#include "support/large_pack.h"

static const uint64_t mebibyte = 1 << 20;

static void memory_of_a_large_pack(void **state)
{
    const char *path = "test-pack-large.gguf";
    const strata__geometry *geometry;
    const strata__layer *layers;
    strata_context *context = test_context();
    strata__pack *pack = NULL;
    uint64_t bytes, before, after;
    uint8_t text[16];
    (void)state;
    if (!large_pack_write(path, &bytes)) {
        unlink(path);
        strata__context_release(context);
        skip(); /* no room for holes here */
    }
    assert_true(bytes > 36 * 1024 * mebibyte);
    before = resident_bytes();
    resident_peak_reset();
    if (strata__pack_open_path(context, path, &pack) != STRATA_OK)
        fail_msg("%s", strata__error_text());
    after = resident_peak_bytes() > resident_bytes() ? resident_peak_bytes() : resident_bytes();
    unlink(path);
    assert_true(before > 0);
    assert_true(after - before < 64 * mebibyte);
    assert_int_equal(strata__pack_file_bytes(pack), bytes);
    assert_int_equal(strata__pack_model(pack, &geometry, &layers), STRATA_OK);
    assert_int_equal(geometry->layers, 60);
    assert_int_equal(strata__pack_token_text(pack, 149999, (char *)text, sizeof text, &bytes),
                     STRATA_OK);
    assert_int_equal(bytes, 11);
    assert_memory_equal(text, "token149999", 11);
    strata__pack_release(pack);
    strata__context_release(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_of_a_large_pack),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
