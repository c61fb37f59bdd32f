/* SPDX-License-Identifier: MIT */
/*
 * The n-th allocation fails, for every n, while a session and a prefill are made, a prompt is read,
 * a sequence is shared, saved and restored, and tokens are decoded: an error with a text, nothing
 * leaks, and nothing crashes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "oom/book.h"
#include "support/session_fixture.h"

/* A step of two sequences. */
static strata_status decode(const fixture *f, const int32_t *tokens)
{
    const strata_decode_part parts[] = {{0, 2, tokens}, {1, 1, tokens}};
    float logits[2 * 96];
    strata_decode_request request;
    strata_decode_request_init(&request, sizeof request);
    request.parts = parts;
    request.part_count = 2;
    request.logits = logits;
    request.logits_capacity = 2 * 96;
    return strata_session_decode(f->session, &request, NULL);
}

/* Sequence 1 shared with 0, which goes on; then saved, and restored in place of 0. */
static strata_status share_and_save(const fixture *f, const int32_t *tokens)
{
    static const char path[] = "test-oom-session-saved";
    static uint8_t saved[1 << 16];
    uint64_t bytes, length;
    strata_status status = strata_session_share(f->session, 1, 0, 10, &length);
    if (status == STRATA_OK)
        status = fixture_read(f, 0, tokens, 5, NULL);
    if (status == STRATA_OK)
        status = strata_session_save_memory(f->session, 1, saved, sizeof saved, &bytes);
    if (status == STRATA_OK)
        status = strata_session_save_path(f->session, 1, path);
    if (status == STRATA_OK)
        status = strata_session_truncate(f->session, 0, 0, &length);
    if (status == STRATA_OK)
        status = strata_session_restore_memory(f->session, 0, saved, bytes);
    if (status == STRATA_OK)
        status = strata_session_truncate(f->session, 0, 0, &length);
    if (status == STRATA_OK)
        status = strata_session_restore_path(f->session, 0, path);
    unlink(path);
    return status;
}

static strata_status make_and_read(strata_pack *pack, uint32_t *stage)
{
    strata_session_options options;
    strata_plan_options plan = {.struct_size = sizeof plan};
    fixture f = {.pack = pack};
    int32_t tokens[20];
    float logits[20 * 96];
    strata_status status;
    plan.chunk_tokens = 7;
    plan.sequence_count = 2;
    strata_session_options_init(&options, sizeof options);
    options.plan_options = &plan;
    options.blas = 1;
    options.thread_count = 2;
    fixture_tokens(1, 96, tokens, 20);
    *stage = 0;
    status = strata_session_create(pack, &options, &f.session);
    if (status == STRATA_OK) {
        *stage = 1;
        status = strata_prefill_create(f.session, NULL, &f.prefill);
    } else {
        assert_null(f.session);
    }
    if (status == STRATA_OK) {
        *stage = 2;
        status = fixture_read(&f, 1, tokens, 20, logits);
    } else {
        assert_null(f.prefill);
    }
    if (status == STRATA_OK) {
        *stage = 3;
        status = share_and_save(&f, tokens);
    }
    if (status == STRATA_OK) {
        *stage = 4;
        status = decode(&f, tokens);
    }
    strata_prefill_destroy(f.prefill);
    strata_session_destroy(f.session);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    book b = {0};
    strata_context_options context_options;
    tiny_spec spec = tiny_spec_default();
    strata_context *context = NULL;
    strata_pack *pack = NULL;
    uint64_t image_bytes, base_bytes, base_count, first, total, n;
    uint8_t *image;
    uint32_t stage, reached = 0;
    (void)state;
    spec.architecture = "ernie4_5-moe";
    spec.dense_layers = 1;
    spec.dense_width = 32;
    spec.shared_width = 32;
    image = tiny_pack_make(&spec, &image_bytes);
    strata_context_options_init(&context_options, sizeof context_options);
    context_options.alloc_fn = book_alloc;
    context_options.free_fn = book_free;
    context_options.alloc_user_data = &b;
    fixture_ok(strata_context_create(&context_options, &context));
    fixture_ok(strata_pack_open_memory(context, image, image_bytes, &pack));
    base_bytes = b.live_bytes;
    base_count = b.live_count;
    first = b.count;
    fixture_ok(make_and_read(pack, &stage));
    total = b.count - first;
    assert_true(total > 10);
    assert_int_equal(b.live_bytes, base_bytes);
    assert_int_equal(b.live_count, base_count);
    for (n = 1; n <= total; ++n) {
        strata_status status;
        b.fail_at = b.count + n;
        status = make_and_read(pack, &stage);
        b.fail_at = 0;
        if (status != STRATA_ERR_NO_MEMORY && status != STRATA_ERR_DEVICE_MEMORY)
            fail_msg("allocation %d of %d in stage %u: %s", (int)n, (int)total, stage,
                     strata_status_name(status));
        fixture_text_has("bytes for ");
        reached |= 1u << stage;
        assert_int_equal(b.live_bytes, base_bytes);
        assert_int_equal(b.live_count, base_count);
    }
    assert_int_equal(reached & 11, 11);
    fixture_ok(make_and_read(pack, &stage));
    strata_pack_close(pack);
    strata_context_destroy(context);
    assert_int_equal(b.live_count, 0);
    free(image);
}

static void measuring_costs_may_fail(void **state)
{
    static char text[STRATA_COSTS_MOST_BYTES];
    book b = {0};
    strata_context_options context_options;
    strata_context *context = NULL;
    uint64_t base_count, bytes, failures = 0;
    strata_status status = STRATA_ERR_NO_MEMORY;
    (void)state;
    strata_context_options_init(&context_options, sizeof context_options);
    context_options.alloc_fn = book_alloc;
    context_options.free_fn = book_free;
    context_options.alloc_user_data = &b;
    fixture_ok(strata_context_create(&context_options, &context));
    base_count = b.live_count;
    for (uint64_t n = 1; status != STRATA_OK; ++n) {
        b.fail_at = b.count + n;
        status = strata_costs_measure(context, NULL, text, sizeof text, &bytes);
        b.fail_at = 0;
        assert_int_equal(b.live_count, base_count);
        if (status == STRATA_OK)
            break;
        failures++;
        if (status != STRATA_ERR_NO_MEMORY && status != STRATA_ERR_DEVICE_MEMORY)
            fail_msg("allocation %d: %s", (int)n, strata_status_name(status));
        fixture_text_has("bytes for ");
    }
    assert_true(failures > 5);
    strata_context_destroy(context);
    assert_int_equal(b.live_count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_allocation_may_fail),
                                       cmocka_unit_test(measuring_costs_may_fail)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
