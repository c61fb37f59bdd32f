/* SPDX-License-Identifier: MIT */
/* Saved layouts come back the same; anything else is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "layout_fixture.h"

enum { FINGERPRINT = 77 };

static uint8_t *save(const strata__layout *layout, uint64_t *bytes)
{
    uint8_t *data;
    *bytes = strata__layout_save(layout, FINGERPRINT, NULL, 0);
    data = malloc(*bytes);
    assert_int_equal(strata__layout_save(layout, FINGERPRINT, data, *bytes - 1), *bytes);
    assert_int_equal(strata__layout_save(layout, FINGERPRINT, data, *bytes), *bytes);
    return data;
}

static strata_status load(const layout_fixture *f, uint64_t fingerprint, const void *data,
                          uint64_t bytes, strata__layout **out)
{
    return strata__layout_load(strata__allocator_default(), &f->input.geometry, fingerprint, data,
                               bytes, out);
}

/* Rates of all paths for every other layer, or none. */
static void set_rates(layout_fixture *f, uint64_t *seed, bool any)
{
    for (uint32_t i = 0; i < f->input.geometry.layer_count; ++i)
        for (uint32_t path = 0; path < STRATA__LAYOUT_PATH_COUNT; ++path) {
            bool set = any && i % 2;
            uint64_t rate = set ? fixture_next(seed, 1, 1000) : 0;
            f->layers[i].path_flops[path] = 1e10 * (double)rate;
            f->layers[i].path_half_rows[path] = (double)(set ? fixture_next(seed, 0, 200) : 0);
        }
}

static void plans_come_back_the_same(void **state)
{
    uint64_t seed = 21;
    (void)state;
    for (uint32_t i = 0; i < 200; ++i) {
        layout_fixture f;
        strata__layout *layout, *again;
        uint64_t bytes, more;
        uint8_t *data, *second;
        fixture_random(&f, &seed);
        memset(f.layer_paths, STRATA__LAYOUT_PATH_AUTO, sizeof f.layer_paths);
        if (f.layers[0].expert_width)
            f.layer_paths[0] = STRATA__LAYOUT_FP16;
        f.input.request.layer_paths = i % 2 ? f.layer_paths : NULL;
        set_rates(&f, &seed, i % 3 == 0);
        layout = fixture_plan(&f);
        data = save(layout, &bytes);
        set_rates(&f, &seed, false); /* they are in the plan */
        fixture_ok(load(&f, FINGERPRINT, data, bytes, &again));
        fixture_check(again);
        assert_true(fixture_equal(layout, again));
        second = save(again, &more);
        assert_int_equal(bytes, more);
        assert_memory_equal(data, second, bytes);
        free(data);
        free(second);
        strata__layout_destroy(layout);
        strata__layout_destroy(again);
    }
}

/* FNV-1a again: a saved layout that was changed on purpose. */
static void seal(uint8_t *data, uint64_t bytes)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (uint64_t i = 0; i < bytes - 8; ++i)
        hash = (hash ^ data[i]) * 0x100000001b3u;
    for (uint32_t i = 0; i < 8; ++i)
        data[bytes - 8 + i] = (uint8_t)(hash >> 8 * i);
}

static void what_is_no_saved_plan_is_refused(void **state)
{
    layout_fixture f, other;
    strata__layout *layout, *none = NULL;
    uint64_t bytes;
    uint8_t *data, *copy;
    (void)state;
    fixture_small(&f, 3);
    fixture_small(&other, 2);
    f.input.request.device_budget_bytes = 64u << 20;
    layout = fixture_plan(&f);
    data = save(layout, &bytes);
    copy = malloc(bytes + 1);
    for (uint64_t cut = 0; cut < bytes; ++cut) {
        assert_int_not_equal(load(&f, FINGERPRINT, data, cut, &none), STRATA_OK);
        assert_null(none);
    }
    memcpy(copy, data, bytes);
    copy[bytes] = 0;
    assert_int_equal(load(&f, FINGERPRINT, copy, bytes + 1, &none), STRATA_ERR_FORMAT);
    for (uint64_t i = 0; i < bytes; ++i) {
        memcpy(copy, data, bytes);
        copy[i] ^= 0x40;
        assert_int_not_equal(load(&f, FINGERPRINT, copy, bytes, &none), STRATA_OK);
        assert_null(none);
    }
    assert_int_equal(load(&f, FINGERPRINT + 1, data, bytes, &none), STRATA_ERR_INVALID_ARGUMENT);
    fixture_text_has("another pack");
    assert_int_equal(load(&other, FINGERPRINT, data, bytes, &none), STRATA_ERR_INVALID_ARGUMENT);
    memcpy(copy, data, bytes);
    copy[8] = 9;
    seal(copy, bytes);
    assert_int_equal(load(&f, FINGERPRINT, copy, bytes, &none), STRATA_ERR_UNSUPPORTED);
    fixture_text_has("version 9");
    assert_int_equal(load(&f, FINGERPRINT, data, 8, &none), STRATA_ERR_FORMAT);
    fixture_text_has("not a saved plan");
    free(copy);
    free(data);
    strata__layout_destroy(layout);
}

/* With a good checksum every field is checked like a caller's, or the totals do not come out. */
static void changed_fields_load_only_as_what_they_say(void **state)
{
    uint64_t seed = 22;
    layout_fixture f;
    strata__layout *layout;
    uint64_t bytes, refused = 0;
    uint8_t *data, *copy;
    enum { RUNS = 5000 };
    (void)state;
    fixture_small(&f, 3);
    f.input.request.device_budget_bytes = 64u << 20;
    layout = fixture_plan(&f);
    data = save(layout, &bytes);
    copy = malloc(bytes);
    for (uint32_t run = 0; run < RUNS; ++run) {
        uint32_t changes = (uint32_t)fixture_next(&seed, 1, 4);
        strata__layout *loaded = NULL;
        memcpy(copy, data, bytes);
        for (uint32_t i = 0; i < changes; ++i)
            copy[fixture_next(&seed, 16, bytes - 9)] = (uint8_t)fixture_next(&seed, 0, 255);
        seal(copy, bytes);
        if (load(&f, FINGERPRINT, copy, bytes, &loaded) != STRATA_OK) {
            assert_null(loaded);
            refused++;
            continue;
        }
        fixture_check(loaded);
        assert_true(loaded->device_bytes <= loaded->budget_bytes);
        strata__layout_destroy(loaded);
    }
    assert_true(refused > RUNS / 2);
    free(copy);
    free(data);
    strata__layout_destroy(layout);
}

/* Fields whose change the random ones may miss. */
static void sealed_lies_are_refused(void **state)
{
    layout_fixture f;
    strata__layout *layout, *none = NULL;
    uint64_t bytes, budget = 64u << 20;
    uint8_t *data;
    (void)state;
    fixture_small(&f, 3);
    f.input.request.device_budget_bytes = budget;
    layout = fixture_plan(&f);
    data = save(layout, &bytes);
    /* Behind the frame: fingerprint, layers, bands, then the budget. */
    assert_memory_equal(data + 32, &budget, 8);
    data[28] = 2; /* bands */
    seal(data, bytes);
    assert_int_equal(load(&f, FINGERPRINT, data, bytes, &none), STRATA_ERR_FORMAT);
    fixture_text_has("2 bands");
    free(data);
    data = save(layout, &bytes);
    memset(data + 32, 0, 8);
    data[33] = 1;
    seal(data, bytes);
    assert_int_equal(load(&f, FINGERPRINT, data, bytes, &none), STRATA_ERR_FORMAT);
    fixture_text_has("for 256");
    free(data);
    data = save(layout, &bytes);
    for (uint64_t at = 32; at + 8 < bytes; ++at)
        if (memcmp(data + at, &layout->prompt_bytes, 8) == 0)
            data[at + 1] ^= 1;
    seal(data, bytes);
    assert_int_equal(load(&f, FINGERPRINT, data, bytes, &none), STRATA_ERR_FORMAT);
    fixture_text_has(" host bytes comes to");
    free(data);
    data = save(layout, &bytes);
    data[bytes - 9] = STRATA__LAYOUT_PATH_NONE;
    seal(data, bytes);
    assert_int_equal(load(&f, FINGERPRINT, data, bytes, &none), STRATA_ERR_UNSUPPORTED);
    free(data);
    strata__layout_destroy(layout);
}

static void a_layout_knows_its_device(void **state)
{
    layout_fixture f;
    strata__layout *layout;
    strata__layout_facts facts;
    (void)state;
    fixture_small(&f, 1);
    f.input.request.path = STRATA__LAYOUT_FUSED;
    layout = fixture_plan(&f);
    fixture_ok(strata__layout_fits_device(layout, &f.input.facts));
    facts = f.input.facts;
    facts.alignment_bytes = 64; /* less than planned for */
    facts.link_bytes_per_second = 1;
    facts.coverage[STRATA__LAYOUT_MMQ] = 0; /* not used */
    fixture_ok(strata__layout_fits_device(layout, &facts));
    facts.alignment_bytes = 512;
    assert_int_equal(strata__layout_fits_device(layout, &facts), STRATA_ERR_INVALID_ARGUMENT);
    fixture_text_has("alignment");
    facts = f.input.facts;
    facts.row_scale_bytes = 0;
    assert_int_equal(strata__layout_fits_device(layout, &facts), STRATA_ERR_INVALID_ARGUMENT);
    fixture_text_has("row scale bytes is 4 there, 0 here");
    facts = f.input.facts;
    facts.coverage[STRATA__LAYOUT_FUSED] = 0;
    assert_int_equal(strata__layout_fits_device(layout, &facts), STRATA_ERR_INVALID_ARGUMENT);
    fixture_text_has("path fused");
    strata__layout_destroy(layout);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_come_back_the_same),
        cmocka_unit_test(what_is_no_saved_plan_is_refused),
        cmocka_unit_test(changed_fields_load_only_as_what_they_say),
        cmocka_unit_test(sealed_lies_are_refused),
        cmocka_unit_test(a_layout_knows_its_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
