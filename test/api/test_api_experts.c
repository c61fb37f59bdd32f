/* SPDX-License-Identifier: MIT */
/* Profiles, uses, budgets and loans, as an application on the CPU device sees them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/session_fixture.h"

enum { COUNT = 40 };

static void open_fixture(fixture *f)
{
    tiny_spec spec = tiny_spec_default();
    fixture_options options = {0};
    fixture_open(f, &spec, &options);
}

static void null_is_answered(void **state)
{
    uint64_t value = 7;
    fixture f;
    (void)state;
    open_fixture(&f);
    assert_int_equal(strata_session_profile(NULL, NULL, 0, &value), STRATA_ERR_INVALID_ARGUMENT);
    assert_int_equal(strata_session_profile(f.session, NULL, 0, NULL), STRATA_ERR_INVALID_ARGUMENT);
    assert_int_equal(strata_session_expert_uses(NULL, 0, &value, 1), STRATA_ERR_INVALID_ARGUMENT);
    assert_int_equal(strata_session_expert_uses(f.session, 0, NULL, 1),
                     STRATA_ERR_INVALID_ARGUMENT);
    assert_int_equal(strata_session_drop_experts(NULL), STRATA_ERR_INVALID_ARGUMENT);
    assert_int_equal(strata_session_set_budget(NULL, 0), STRATA_ERR_INVALID_ARGUMENT);
    assert_int_equal(value, 7);
    fixture_close(&f);
}

/* Where experts are used in place there is nothing to choose, to drop or to shrink. */
static void experts_in_place(void **state)
{
    uint64_t bytes = 0, uses[64], experts;
    strata_pack_info info = {.struct_size = sizeof info};
    uint8_t *profile;
    fixture f;
    (void)state;
    open_fixture(&f);
    fixture_ok(strata_pack_info_get(f.pack, &info));
    experts = info.expert_count;
    fixture_ok(strata_session_profile(f.session, NULL, 0, &bytes));
    assert_true(bytes > 8 * experts * info.layer_count);
    profile = malloc(bytes);
    assert_non_null(profile);
    memset(profile, 0xaa, bytes);
    fixture_ok(strata_session_profile(f.session, profile, bytes - 1, &bytes));
    assert_int_equal(profile[0], 0xaa);
    fixture_ok(strata_session_profile(f.session, profile, bytes, &bytes));
    assert_int_equal(profile[bytes - 1], 0);
    memset(uses, 0xaa, sizeof uses);
    fixture_ok(strata_session_expert_uses(f.session, 0, uses, experts));
    assert_int_equal(uses[experts - 1], 0);
    assert_int_equal(strata_session_expert_uses(f.session, 0, uses, experts - 1),
                     STRATA_ERR_BUFFER_TOO_SMALL);
    assert_int_equal(strata_session_expert_uses(f.session, info.layer_count, uses, experts),
                     STRATA_ERR_INVALID_ARGUMENT);
    fixture_ok(strata_session_drop_experts(f.session));
    assert_int_equal(strata_session_set_budget(f.session, 1 << 20), STRATA_ERR_UNSUPPORTED);
    fixture_text_has("does not stream");
    free(profile);
    fixture_close(&f);
}

/* A session that counts no uses hands on the profile it was given, and takes no other bytes. */
static void profile_of_experts_in_place(void **state)
{
    strata_session_options options;
    strata_session *session = NULL;
    uint64_t bytes = 0, again = 0, uses[64];
    strata_pack_info info = {.struct_size = sizeof info};
    uint8_t *profile, *handed_on;
    fixture f;
    (void)state;
    open_fixture(&f);
    fixture_ok(strata_pack_info_get(f.pack, &info));
    fixture_ok(strata_session_profile(f.session, NULL, 0, &bytes));
    profile = malloc(bytes);
    handed_on = malloc(bytes);
    assert_non_null(profile);
    assert_non_null(handed_on);
    fixture_ok(strata_session_profile(f.session, profile, bytes, &bytes));
    memset(profile + bytes - 8, 1, 8);
    strata_session_options_init(&options, sizeof options);
    options.profile = profile;
    options.profile_bytes = bytes;
    fixture_ok(strata_session_create(f.pack, &options, &session));
    fixture_ok(strata_session_profile(session, handed_on, bytes, &again));
    assert_int_equal(again, bytes);
    assert_memory_equal(handed_on, profile, bytes);
    fixture_ok(strata_session_expert_uses(session, info.layer_count - 1, uses, info.expert_count));
    assert_int_equal(uses[info.expert_count - 1], 0x0101010101010101);
    strata_session_destroy(session);
    options.profile_bytes--;
    assert_int_equal(strata_session_create(f.pack, &options, &session), STRATA_ERR_FORMAT);
    assert_null(session);
    fixture_text_has("profile: ");
    profile[0] ^= 1;
    assert_int_equal(strata_session_create(f.pack, &options, &session), STRATA_ERR_FORMAT);
    free(handed_on);
    free(profile);
    fixture_close(&f);
}

static void refused_options(void **state)
{
    strata_session_options options;
    strata_prefill_options prefill_options;
    strata_plan_options plan_options;
    strata_session *session = NULL;
    strata_prefill *prefill = NULL;
    strata_plan *plan = NULL;
    fixture f;
    (void)state;
    open_fixture(&f);
    strata_session_options_init(&options, sizeof options);
    options.profile_bytes = 8;
    assert_int_equal(strata_session_create(f.pack, &options, &session),
                     STRATA_ERR_INVALID_ARGUMENT);
    strata_session_options_init(&options, sizeof options);
    options.expert_memory = 2;
    assert_int_equal(strata_session_create(f.pack, &options, &session),
                     STRATA_ERR_INVALID_ARGUMENT);
    strata_plan_options_init(&plan_options, sizeof plan_options);
    plan_options.lend_cache = 2;
    assert_int_equal(strata_plan_create(f.pack, &plan_options, &plan), STRATA_ERR_INVALID_ARGUMENT);
    strata_prefill_destroy(f.prefill);
    f.prefill = NULL;
    strata_prefill_options_init(&prefill_options, sizeof prefill_options);
    prefill_options.memory_kind = STRATA_MEMORY_LOAN;
    assert_int_equal(strata_prefill_create(f.session, &prefill_options, &prefill),
                     STRATA_ERR_STATE);
    fixture_text_has("no loan");
    prefill_options.keep_loan = 2;
    assert_int_equal(strata_prefill_create(f.session, &prefill_options, &prefill),
                     STRATA_ERR_INVALID_ARGUMENT);
    assert_null(prefill);
    fixture_close(&f);
}

static void read_logits(const fixture *f, strata_session *session, strata_prefill *prefill,
                        float *logits)
{
    strata_prefill_request request;
    int32_t tokens[COUNT];
    uint64_t values = strata_session_logits_count(session);
    fixture_tokens(3, (uint32_t)values, tokens, COUNT);
    strata_prefill_request_init(&request, sizeof request);
    request.tokens = tokens;
    request.token_count = COUNT;
    request.logits = logits;
    request.logits_capacity = values;
    fixture_ok(strata_prefill_run(prefill, &request, NULL));
    (void)f;
}

/* The prompt's memory is part of the session's, and nothing is allocated for it. */
static void prompts_in_lent_memory(void **state)
{
    strata_session_options options;
    strata_plan_options plan;
    strata_prefill_options lent;
    float *logits[2];
    strata_session_stats stats = {.struct_size = sizeof stats};
    uint64_t session_bytes = 0;
    fixture f;
    (void)state;
    open_fixture(&f);
    for (uint32_t i = 0; i < 2; ++i) {
        strata_session *session = NULL;
        strata_prefill *prefill = NULL;
        strata_plan_options_init(&plan, sizeof plan);
        plan.lend_cache = i;
        plan.context_tokens = 2 * COUNT;
        strata_session_options_init(&options, sizeof options);
        options.plan_options = &plan;
        options.blas = 1;
        fixture_ok(strata_session_create(f.pack, &options, &session));
        fixture_ok(strata_session_stats_get(session, &stats));
        session_bytes = stats.device_bytes;
        strata_prefill_options_init(&lent, sizeof lent);
        lent.memory_kind = i ? STRATA_MEMORY_LOAN : STRATA_MEMORY_OWN;
        fixture_ok(strata_prefill_create(session, &lent, &prefill));
        fixture_ok(strata_session_stats_get(session, &stats));
        assert_int_equal(stats.device_bytes - session_bytes, i ? 0 : strata_prefill_bytes(session));
        logits[i] = calloc(strata_session_logits_count(session), sizeof(float));
        read_logits(&f, session, prefill, logits[i]);
        strata_prefill_destroy(prefill);
        if (i)
            assert_memory_equal(logits[0], logits[1],
                                strata_session_logits_count(session) * sizeof(float));
        strata_session_destroy(session);
    }
    free(logits[0]);
    free(logits[1]);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(null_is_answered),
        cmocka_unit_test(experts_in_place),
        cmocka_unit_test(profile_of_experts_in_place),
        cmocka_unit_test(refused_options),
        cmocka_unit_test(prompts_in_lent_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
