/* SPDX-License-Identifier: MIT */
/*
 * A session on a device with memory of its own: a CPU device that says it does not address host
 * memory. Weights and experts are copied to their planned places, whoever gives them, and the pack
 * may go.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"
#include "session/plan.h"
#include "session/state.h"
#include "support/expert_source.h"
#include "support/ok.h"
#include "support/tiny_pack.h"

enum { COUNT = 40, VOCABULARY = 96, LOGITS = COUNT * VOCABULARY };

typedef struct bench {
    uint8_t *image;
    uint64_t image_bytes;
    strata_context *context;
    strata__pack *pack;
    strata_plan_options plan;
    strata_session_options options;
} bench;

static void bench_open(bench *b, const char *architecture)
{
    strata_context_options context_options = {.struct_size = sizeof context_options};
    tiny_spec spec = tiny_spec_default();
    memset(b, 0, sizeof *b);
    spec.architecture = architecture;
    spec.vocabulary = VOCABULARY;
    spec.gate_format = 8;
    spec.dense_format = 1;
    if (strcmp(architecture, "qwen3moe") != 0)
        spec.shared_width = 32;
    b->image = tiny_pack_make(&spec, &b->image_bytes);
    ok(strata__context_create(&context_options, &b->context));
    ok(strata__pack_open_memory(b->context, b->image, b->image_bytes, &b->pack));
    b->plan.struct_size = sizeof b->plan;
    b->plan.chunk_tokens = 16;
    b->plan.kv_format = STRATA_KV_F32;
    b->options.struct_size = sizeof b->options;
    b->options.plan_options = &b->plan;
    b->options.thread_count = 1;
    b->options.blas = 1;
}

static void bench_close(bench *b)
{
    strata__pack_release(b->pack);
    strata__context_release(b->context);
    free(b->image);
}

static strata_session *make_session(const bench *b, uint32_t host_addressable)
{
    strata__device *device = NULL;
    strata_session *session = NULL;
    ok(strata__cpu_device_open(b->context, &device));
    device->facts.host_addressable = host_addressable;
    ok(strata__session_create_on(device, b->pack, &b->options, &session));
    return session;
}

/*
 * The tensors of the pack, not its header, are overwritten: nothing may still be read from there.
 */
static void overwrite_pack(const bench *b)
{
    uint64_t count = strata__pack_tensor_count(b->pack);
    for (uint64_t i = 0; i < count; ++i) {
        const strata__tensor *tensor = strata__pack_tensor(b->pack, i);
        uint64_t offset = (uint64_t)((const uint8_t *)tensor->data - b->image);
        memset(b->image + offset, 0xff, tensor->bytes);
    }
}

static void read_prompt(strata_session *session, float *logits)
{
    strata_prefill_options prefill_options = {.struct_size = sizeof prefill_options};
    strata_prefill_request request = {.struct_size = sizeof request};
    strata_prefill_result result = {0};
    strata_prefill *prefill = NULL;
    int32_t tokens[COUNT];
    uint64_t random = 5;
    for (uint32_t i = 0; i < COUNT; ++i)
        tokens[i] = (int32_t)(tiny_random(&random) % VOCABULARY);
    ok(strata__prefill_create(session, &prefill_options, &prefill));
    request.tokens = tokens;
    request.token_count = COUNT;
    request.logits = logits;
    request.logits_capacity = LOGITS;
    request.logits_mode = STRATA_LOGITS_ALL;
    ok(strata__prefill_run(prefill, &request, &result));
    strata__prefill_destroy(prefill);
}

static void copies_give_the_same_bits(void **state)
{
    static const char *const architectures[] = {"qwen3moe", "qwen2moe"};
    (void)state;
    for (int i = 0; i < 2; ++i) {
        float *in_place = calloc(LOGITS, sizeof(float)), *copied = calloc(LOGITS, sizeof(float));
        strata_session *session;
        bench b;
        bench_open(&b, architectures[i]);
        session = make_session(&b, 1);
        read_prompt(session, in_place);
        strata__session_release(session);
        session = make_session(&b, 0);
        assert_int_equal(session->layout->tensor_count,
                         strata__weights_list(session->geometry, session->layers, NULL));
        overwrite_pack(&b);
        read_prompt(session, copied);
        assert_memory_equal(in_place, copied, LOGITS * sizeof *copied);
        strata__session_release(session);
        bench_close(&b);
        free(in_place);
        free(copied);
    }
}

static void the_callback_is_asked_once_for_each(void **state)
{
    float *in_place = calloc(LOGITS, sizeof(float)), *copied = calloc(LOGITS, sizeof(float));
    const strata__geometry *geometry;
    strata__device *device = NULL;
    strata_session *session;
    expert_source s = {0};
    bench b;
    (void)state;
    bench_open(&b, "qwen3moe");
    ok(strata__pack_model(b.pack, &geometry, &s.layers));
    session = make_session(&b, 1);
    read_prompt(session, in_place);
    strata__session_release(session);
    b.options.expert_fn = give_expert;
    b.options.expert_user_data = &s;
    session = make_session(&b, 0);
    assert_int_equal(s.calls, geometry->layers * geometry->experts);
    read_prompt(session, copied);
    assert_int_equal(s.calls, geometry->layers * geometry->experts);
    assert_memory_equal(in_place, copied, LOGITS * sizeof *copied);
    strata__session_release(session);
    s.calls = 0;
    s.fail_at = 5;
    session = NULL;
    ok(strata__cpu_device_open(b.context, &device));
    device->facts.host_addressable = 0;
    assert_int_equal(strata__session_create_on(device, b.pack, &b.options, &session),
                     STRATA_ERR_IO);
    assert_null(session);
    bench_close(&b);
    free(in_place);
    free(copied);
}

static void a_plan_for_something_else_is_refused(void **state)
{
    strata_session *session, *second = NULL;
    strata_session_options options;
    bench b, other;
    strata_plan *plan;
    (void)state;
    bench_open(&b, "qwen3moe");
    bench_open(&other, "qwen2moe");
    session = make_session(&b, 1);
    plan = session->plan;
    options = b.options;
    options.plan_options = NULL;
    options.plan = plan;
    ok(strata__session_create(b.pack, &options, &second));
    assert_ptr_equal(strata__session_plan(second), plan);
    strata__session_release(second);
    second = NULL;
    assert_int_equal(strata__session_create(other.pack, &options, &second),
                     STRATA_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(strata__error_text(), "another pack"));
    plan->layout->facts.activation_bytes = 2;
    assert_int_equal(strata__session_create(b.pack, &options, &second),
                     STRATA_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(strata__error_text(), "activation bytes is 2"));
    plan->layout->facts.activation_bytes = 4;
    plan->layout->facts.alignment_bytes = 32;
    assert_int_equal(strata__session_create(b.pack, &options, &second),
                     STRATA_ERR_INVALID_ARGUMENT);
    assert_null(second);
    strata__session_release(session);
    bench_close(&b);
    bench_close(&other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_give_the_same_bits),
        cmocka_unit_test(the_callback_is_asked_once_for_each),
        cmocka_unit_test(a_plan_for_something_else_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
