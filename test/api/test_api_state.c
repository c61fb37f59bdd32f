/* SPDX-License-Identifier: MIT */
/* Sharing, saving and restoring sequences as an application sees them, and all that is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/session_fixture.h"

enum { COUNT = 90, HELD = 70, VOCABULARY = 96 };

static int32_t tokens[COUNT];
static float expected[COUNT * VOCABULARY];
static float logits[COUNT * VOCABULARY];

static void open_with(fixture *f, uint64_t seed, uint32_t kv, uint64_t context_tokens)
{
    const fixture_options options = {
        .sequence_count = 2, .kv = kv, .context_tokens = context_tokens};
    tiny_spec spec = tiny_spec_default();
    spec.vocabulary = VOCABULARY;
    spec.seed = seed;
    fixture_open(f, &spec, &options);
}

static void open_usual(fixture *f)
{
    open_with(f, 1, FIXTURE_KV_F32, 100);
    fixture_tokens(3, VOCABULARY, tokens, COUNT);
}

static uint64_t length_of(const fixture *f, int32_t sequence)
{
    uint64_t length;
    fixture_ok(strata_session_length(f->session, sequence, &length));
    return length;
}

static void empty(const fixture *f, int32_t sequence)
{
    uint64_t length;
    fixture_ok(strata_session_truncate(f->session, sequence, 0, &length));
    assert_int_equal(length, 0);
}

static uint8_t *save(const fixture *f, int32_t sequence, uint64_t *out_bytes)
{
    uint8_t *saved;
    fixture_ok(strata_session_save_memory(f->session, sequence, NULL, 0, out_bytes));
    saved = malloc(*out_bytes);
    assert_non_null(saved);
    fixture_ok(strata_session_save_memory(f->session, sequence, saved, *out_bytes, out_bytes));
    return saved;
}

/* Sequence 1 has HELD tokens and goes on as the text that was read at once. */
static void goes_on(const fixture *f)
{
    assert_int_equal(length_of(f, 1), HELD);
    memset(logits, 0, sizeof logits);
    fixture_ok(fixture_read(f, 1, tokens + HELD, COUNT - HELD, logits));
    assert_memory_equal(logits, expected + HELD * VOCABULARY,
                        (COUNT - HELD) * VOCABULARY * sizeof logits[0]);
}

static void a_prompt_reads_what_is_new(void **state)
{
    strata_session_stats stats = {.struct_size = sizeof stats};
    uint64_t reached, before;
    fixture f;
    (void)state;
    open_usual(&f);
    fixture_ok(fixture_read(&f, 0, tokens, COUNT, expected));
    fixture_ok(strata_session_stats_get(f.session, &stats));
    before = stats.prompt_tokens;
    fixture_ok(strata_session_share(f.session, 0, 1, HELD, &reached));
    assert_int_equal(reached, HELD);
    goes_on(&f);
    fixture_ok(strata_session_stats_get(f.session, &stats));
    assert_int_equal(stats.prompt_tokens - before, COUNT - HELD);
    fixture_close(&f);
}

static void saved_in_memory_and_in_a_file(void **state)
{
    char path[] = "test-api-state-XXXXXX";
    uint8_t *saved;
    uint64_t bytes;
    fixture f, other;
    struct stat facts;
    (void)state;
    assert_int_equal(close(mkstemp(path)), 0);
    open_usual(&f);
    fixture_ok(fixture_read(&f, 0, tokens, COUNT, expected));
    empty(&f, 0);
    fixture_ok(fixture_read(&f, 0, tokens, HELD, NULL));
    saved = save(&f, 0, &bytes);
    fixture_ok(strata_session_save_path(f.session, 0, path));
    assert_int_equal(stat(path, &facts), 0);
    assert_int_equal(facts.st_size, bytes);
    open_with(&other, 1, FIXTURE_KV_F32, 2000);
    fixture_ok(strata_session_restore_memory(other.session, 1, saved, bytes));
    goes_on(&other);
    empty(&other, 1);
    fixture_ok(strata_session_restore_path(other.session, 1, path));
    goes_on(&other);
    free(saved);
    fixture_close(&other);
    fixture_close(&f);
    unlink(path);
}

static void refused(const fixture *f, const uint8_t *data, uint64_t bytes, strata_status status,
                    const char *part)
{
    strata_status answer = strata_session_restore_memory(f->session, 1, data, bytes);
    if (answer != status)
        fail_msg("%s, not %s", strata_status_name(answer), strata_status_name(status));
    fixture_text_has(part);
    assert_int_equal(length_of(f, 1), 0);
}

/* Of another version, cut off at any length, with any byte changed, with bytes behind it. */
static void damaged_states_are_refused(void **state)
{
    uint8_t *saved, *longer;
    uint64_t bytes;
    fixture f;
    (void)state;
    open_usual(&f);
    fixture_ok(fixture_read(&f, 0, tokens, HELD, NULL));
    saved = save(&f, 0, &bytes);
    for (uint64_t cut = 0; cut < bytes; cut += cut < 100 ? 1 : 997)
        refused(&f, saved, cut, STRATA_ERR_FORMAT, "the saved sequence");
    for (uint64_t at = 0; at < bytes; at += at < 100 || at > bytes - 20 ? 1 : 997) {
        strata_status status = at >= 8 && at < 12 ? STRATA_ERR_UNSUPPORTED : STRATA_ERR_FORMAT;
        saved[at] ^= 0x10;
        refused(&f, saved, bytes, status, at < 8 ? "no saved sequence" : "saved sequence");
        saved[at] ^= 0x10;
    }
    saved[8] = 2;
    refused(&f, saved, bytes, STRATA_ERR_UNSUPPORTED, "version 2; version 1 is read");
    saved[8] = 1;
    longer = calloc(1, bytes + 1);
    assert_non_null(longer);
    memcpy(longer, saved, bytes);
    refused(&f, longer, bytes + 1, STRATA_ERR_FORMAT, "bytes, not");
    free(longer);
    fixture_ok(strata_session_restore_memory(f.session, 1, saved, bytes));
    free(saved);
    fixture_close(&f);
}

static void a_saved_sequence_tells_what_it_needs(void **state)
{
    strata_state_info info = {.struct_size = sizeof info}, other = info;
    char path[] = "test-api-state-XXXXXX";
    uint8_t *saved;
    uint64_t bytes;
    fixture f;
    (void)state;
    assert_int_equal(close(mkstemp(path)), 0);
    open_usual(&f);
    fixture_ok(fixture_read(&f, 0, tokens, HELD, NULL));
    saved = save(&f, 0, &bytes);
    fixture_ok(strata_session_save_path(f.session, 0, path));
    fixture_ok(strata_state_info_memory(saved, 100, &info)); /* its beginning is enough */
    fixture_ok(strata_state_info_path(path, &other));
    assert_memory_equal(&info, &other, sizeof info);
    assert_int_equal(info.tokens, HELD);
    assert_int_equal(info.kv_format, STRATA_KV_F32);
    assert_int_equal(info.total_bytes, bytes);
    assert_int_equal(info.page_tokens, 64);
    assert_int_equal(info.layer_count, 2);
    assert_int_equal(strata_state_info_memory(saved, 71, &info), STRATA_ERR_FORMAT);
    fixture_text_has("cut off");
    saved[30] ^= 1;
    assert_int_equal(strata_state_info_memory(saved, bytes, &info), STRATA_ERR_FORMAT);
    fixture_text_has("header of the saved sequence is damaged");
    assert_int_equal(strata_state_info_path("no/such/file", &info), STRATA_ERR_IO);
    free(saved);
    fixture_close(&f);
    unlink(path);
}

static void what_does_not_fit_the_session_is_refused(void **state)
{
    uint8_t *saved;
    uint64_t bytes;
    fixture f, other;
    (void)state;
    open_usual(&f);
    fixture_ok(fixture_read(&f, 0, tokens, HELD, NULL));
    saved = save(&f, 0, &bytes);
    open_with(&other, 2, FIXTURE_KV_F32, 100); /* the same shape, otherwise trained */
    refused(&other, saved, bytes, STRATA_ERR_INVALID_ARGUMENT, "another pack");
    fixture_close(&other);
    open_with(&other, 1, FIXTURE_KV_Q8_0, 100);
    refused(&other, saved, bytes, STRATA_ERR_INVALID_ARGUMENT, "in f32, the session in q8_0");
    fixture_close(&other);
    open_with(&other, 1, FIXTURE_KV_F32, HELD - 1);
    refused(&other, saved, bytes, STRATA_ERR_INVALID_ARGUMENT,
            "the saved sequence has 70 tokens; the context is 69");
    fixture_close(&other);
    assert_int_equal(strata_session_restore_memory(f.session, 0, saved, bytes), STRATA_ERR_STATE);
    fixture_text_has("sequence 0 holds 70 tokens");
    assert_int_equal(strata_session_restore_memory(f.session, 2, saved, bytes),
                     STRATA_ERR_INVALID_ARGUMENT);
    assert_int_equal(length_of(&f, 0), HELD);
    free(saved);
    fixture_close(&f);
}

static void write_file(const char *path, const void *data, uint64_t bytes)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

static void files_are_named(void **state)
{
    char path[] = "test-api-state-XXXXXX";
    uint8_t *saved;
    uint64_t bytes;
    fixture f;
    (void)state;
    assert_int_equal(close(mkstemp(path)), 0);
    open_usual(&f);
    fixture_ok(fixture_read(&f, 0, tokens, HELD, NULL));
    saved = save(&f, 0, &bytes);
    assert_int_equal(strata_session_restore_path(f.session, 1, "no/such/file"), STRATA_ERR_IO);
    fixture_text_has("no/such/file: cannot open the sequence");
    assert_int_equal(strata_session_restore_path(f.session, 1, "."), STRATA_ERR_IO);
    fixture_text_has(".: cannot read the sequence");
    assert_int_equal(strata_session_save_path(f.session, 0, "no/such/file"), STRATA_ERR_IO);
    fixture_text_has("no/such/file: cannot create the sequence");
    write_file(path, saved, bytes - 1);
    assert_int_equal(strata_session_restore_path(f.session, 1, path), STRATA_ERR_FORMAT);
    fixture_text_has(path);
    fixture_text_has("cut off");
    saved = realloc(saved, bytes + 1);
    assert_non_null(saved);
    saved[bytes] = 0;
    write_file(path, saved, bytes + 1);
    assert_int_equal(strata_session_restore_path(f.session, 1, path), STRATA_ERR_FORMAT);
    fixture_text_has("bytes follow the saved sequence");
    assert_int_equal(length_of(&f, 1), 0);
    write_file(path, saved, bytes);
    fixture_ok(strata_session_restore_path(f.session, 1, path));
    assert_int_equal(length_of(&f, 1), HELD);
    free(saved);
    fixture_close(&f);
    unlink(path);
}

static void room_is_asked_for(void **state)
{
    uint64_t bytes = 0, again = 0;
    uint8_t few[8];
    fixture f;
    (void)state;
    open_usual(&f);
    fixture_ok(strata_session_save_memory(f.session, 0, NULL, 0, &bytes));
    assert_true(bytes > 0); /* of an empty sequence too */
    memset(few, 7, sizeof few);
    assert_int_equal(strata_session_save_memory(f.session, 0, few, sizeof few, &again),
                     STRATA_ERR_BUFFER_TOO_SMALL);
    assert_int_equal(again, bytes);
    for (int i = 0; i < 8; i++)
        assert_int_equal(few[i], 7);
    fixture_close(&f);
}

static uint64_t kv_tokens_of(const strata_session *session)
{
    strata_plan_info info = {.struct_size = sizeof info};
    fixture_ok(strata_plan_info_get(strata_session_plan(session), &info));
    return info.kv_tokens;
}

/* Four sequences of up to 100 tokens in three pages: a shared beginning counts once. */
static void sequences_share_a_budget_of_pages(void **state)
{
    strata_plan_options plan = {
        .struct_size = sizeof plan, .context_tokens = 100, .sequence_count = 4, .kv_tokens = 192};
    strata_session_options options = {.struct_size = sizeof options, .plan_options = &plan};
    strata_decode_request request;
    const strata_decode_part part = {.sequence_id = 1, .token_count = 1, .tokens = tokens};
    uint64_t reached;
    fixture f, g;
    (void)state;
    open_usual(&f);
    assert_int_equal(kv_tokens_of(f.session), 2 * 128);
    g = f;
    fixture_ok(strata_session_create(f.pack, &options, &g.session));
    fixture_ok(strata_prefill_create(g.session, NULL, &g.prefill));
    assert_int_equal(kv_tokens_of(g.session), 192);
    fixture_ok(fixture_read(&g, 0, tokens, HELD, NULL)); /* two pages, the second partly filled */
    for (int32_t to = 1; to < 4; to++)
        fixture_ok(strata_session_share(g.session, 0, to, UINT64_MAX, &reached));
    fixture_ok(fixture_read(&g, 2, tokens, 10, NULL)); /* gets the third */
    assert_int_equal(fixture_read(&g, 1, tokens, 10, NULL), STRATA_ERR_CAPACITY);
    fixture_text_has(
        "sequence 1 needs 1 more KV pages of 64 tokens for 80 tokens; 0 of 3 are free");
    strata_decode_request_init(&request, sizeof request);
    request.parts = &part;
    request.part_count = 1;
    request.logits_mode = STRATA_LOGITS_NONE;
    assert_int_equal(strata_session_decode(g.session, &request, NULL), STRATA_ERR_CAPACITY);
    fixture_text_has("sequence 1 needs 1 more KV pages");
    assert_int_equal(length_of(&g, 1), HELD);
    empty(&g, 2);
    fixture_ok(strata_session_decode(g.session, &request, NULL));
    assert_int_equal(length_of(&g, 1), HELD + 1);
    strata_prefill_destroy(g.prefill);
    strata_session_destroy(g.session);
    plan.kv_tokens = 99;
    assert_int_equal(strata_session_create(f.pack, &options, &g.session),
                     STRATA_ERR_INVALID_ARGUMENT);
    fixture_text_has("kv tokens is 99");
    fixture_close(&f);
}

/* From a callback, while a prompt is read. */
static int32_t is_busy(void *user_data, const strata_progress *progress)
{
    const fixture *f = user_data;
    uint64_t value;
    uint8_t byte = 0;
    (void)progress;
    assert_int_equal(strata_session_share(f->session, 0, 1, 1, &value), STRATA_ERR_BUSY);
    assert_int_equal(strata_session_save_memory(f->session, 0, NULL, 0, &value), STRATA_ERR_BUSY);
    assert_int_equal(strata_session_save_path(f->session, 0, "unwritten"), STRATA_ERR_BUSY);
    assert_int_equal(strata_session_restore_memory(f->session, 1, &byte, 1), STRATA_ERR_BUSY);
    return 0;
}

static void not_while_a_prompt_is_read(void **state)
{
    strata_prefill_request request;
    fixture f;
    (void)state;
    open_usual(&f);
    strata_prefill_request_init(&request, sizeof request);
    request.tokens = tokens;
    request.token_count = 10;
    request.logits_mode = STRATA_LOGITS_NONE;
    request.progress_fn = is_busy;
    request.progress_user_data = &f;
    fixture_ok(strata_prefill_run(f.prefill, &request, NULL));
    assert_int_not_equal(access("unwritten", F_OK), 0);
    fixture_close(&f);
}

static void nothing_is_null(void **state)
{
    strata_session *none = NULL;
    uint64_t value;
    uint8_t byte = 0;
    fixture f;
    (void)state;
    open_usual(&f);
#define REFUSED(call, part)                                                                        \
    assert_int_equal(call, STRATA_ERR_INVALID_ARGUMENT);                                           \
    fixture_text_has(part)
    REFUSED(strata_session_share(none, 0, 1, 1, &value), "session is NULL");
    REFUSED(strata_session_share(f.session, 0, 1, 1, NULL), "out_length_tokens is NULL");
    REFUSED(strata_session_save_memory(none, 0, &byte, 1, &value), "session is NULL");
    REFUSED(strata_session_save_memory(f.session, 0, &byte, 1, NULL), "out_bytes is NULL");
    REFUSED(strata_session_save_memory(f.session, 0, NULL, 1, &value), "buffer is NULL");
    REFUSED(strata_session_save_path(none, 0, "x"), "session is NULL");
    REFUSED(strata_session_save_path(f.session, 0, NULL), "path is NULL");
    REFUSED(strata_session_restore_memory(none, 0, &byte, 1), "session is NULL");
    REFUSED(strata_session_restore_memory(f.session, 0, NULL, 1), "data is NULL");
    REFUSED(strata_state_info_memory(NULL, 1, NULL), "data is NULL");
    REFUSED(strata_state_info_memory(&byte, 1, NULL), "inout is NULL");
    REFUSED(strata_state_info_path(NULL, NULL), "path is NULL");
    REFUSED(strata_state_info_path("x", NULL), "inout is NULL");
    REFUSED(strata_session_restore_path(none, 0, "x"), "session is NULL");
    REFUSED(strata_session_restore_path(f.session, 0, NULL), "path is NULL");
#undef REFUSED
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_prompt_reads_what_is_new),
        cmocka_unit_test(saved_in_memory_and_in_a_file),
        cmocka_unit_test(damaged_states_are_refused),
        cmocka_unit_test(a_saved_sequence_tells_what_it_needs),
        cmocka_unit_test(what_does_not_fit_the_session_is_refused),
        cmocka_unit_test(files_are_named),
        cmocka_unit_test(room_is_asked_for),
        cmocka_unit_test(sequences_share_a_budget_of_pages),
        cmocka_unit_test(not_while_a_prompt_is_read),
        cmocka_unit_test(nothing_is_null),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
