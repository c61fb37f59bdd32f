/* SPDX-License-Identifier: MIT */
/*
 * A model with one layer on path fp16 among fused ones, whose buffers are too small for it: its
 * launch is refused by name, and its kernels never run.
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
#include "support/ok.h"
#include "support/tiny_pack.h"

enum { COUNT = 24, EXACT_LAYER = 2, POISON = 0xa5 };

static const strata__kernels_ops *real;
static uint32_t calls[STRATA__PATH_COUNT];

static strata_status counted_gate_up(strata__kernels *kernels, void *stream,
                                     const strata__gate_up_args *args)
{
    calls[args->path]++;
    return real->gate_up(kernels, stream, args);
}

static const strata_context_options context_options = {.struct_size = sizeof context_options};

static strata_status read_prompt(strata_session *session, strata_prefill *prefill, float *logits)
{
    int32_t tokens[COUNT];
    strata_prefill_request request = {.struct_size = sizeof request};
    strata_prefill_result result = {0};
    for (int32_t i = 0; i < COUNT; ++i)
        tokens[i] = i * 5 % (int32_t)session->geometry->vocabulary;
    request.tokens = tokens;
    request.token_count = COUNT;
    request.logits = logits;
    request.logits_mode = STRATA_LOGITS_LAST;
    request.logits_capacity = session->geometry->vocabulary;
    return strata__prefill_run(prefill, &request, &result);
}

static strata__layout_config *config_of(strata_session *session, uint32_t layer)
{
    strata__layout_work *work = &session->plan->layout->prompt;
    return &work->configs[strata__layout_config_of(work, layer, COUNT)];
}

/* Rows of a buffer in a configuration; 0 where it has none. */
static uint64_t rows_of(const strata__layout_config *config, uint32_t id)
{
    for (uint32_t i = 0; i < config->buffer_count; ++i)
        if (config->buffers[i].id == id)
            return config->buffers[i].row_capacity;
    return 0;
}

/* What the fp16 layer needs beyond the others, out of its tables; `planned` keeps it. */
static uint32_t take_away(strata_session *session, uint64_t *planned)
{
    strata__layout_config *exact = config_of(session, EXACT_LAYER);
    const strata__layout_config *fused = config_of(session, 0);
    uint32_t taken = 0;
    for (uint32_t i = 0; i < exact->buffer_count; ++i) {
        uint64_t rows = rows_of(fused, exact->buffers[i].id);
        planned[i] = exact->buffers[i].row_capacity;
        taken += rows < planned[i];
        if (rows < planned[i])
            exact->buffers[i].row_capacity = rows;
    }
    return taken;
}

static void give_back(strata_session *session, const uint64_t *planned)
{
    strata__layout_config *exact = config_of(session, EXACT_LAYER);
    for (uint32_t i = 0; i < exact->buffer_count; ++i)
        exact->buffers[i].row_capacity = planned[i];
}

static void a_layer_without_its_buffers_is_refused(void **state)
{
    tiny_spec spec = tiny_spec_default();
    strata_plan_options plan = {
        .struct_size = sizeof plan, .chunk_tokens = COUNT, .path = "fused,2:fp16"};
    strata_session_options options = {.struct_size = sizeof options, .plan_options = &plan};
    strata_prefill_options prefill_options = {.struct_size = sizeof prefill_options};
    strata__kernels_ops counted;
    strata_context *context = NULL;
    strata__pack *pack = NULL;
    strata_session *session = NULL;
    strata_prefill *prefill = NULL;
    uint64_t bytes, length, planned[STRATA__BUFFER_COUNT];
    uint8_t *image;
    float *expected, *logits;
    (void)state;
    spec.layers = 4;
    spec.gate_format = spec.up_format = spec.down_format = STRATA__Q8_0;
    expected = calloc(spec.vocabulary, sizeof *expected);
    logits = calloc(spec.vocabulary, sizeof *logits);
    image = tiny_pack_make(&spec, &bytes);
    options.thread_count = 1;
    options.blas = 1;
    ok(strata__context_create(&context_options, &context));
    ok(strata__pack_open_memory(context, image, bytes, &pack));
    ok(strata__session_create(pack, &options, &session));
    ok(strata__prefill_create(session, &prefill_options, &prefill));
    real = session->kernels->ops;
    counted = *real;
    counted.gate_up = counted_gate_up;
    session->kernels->ops = &counted;
    ok(read_prompt(session, prefill, expected));
    assert_true(calls[STRATA__PATH_FUSED] > 0 && calls[STRATA__PATH_FP16] > 0);
    ok(strata__session_truncate(session, 0, 0, &length));

    assert_true(take_away(session, planned) > 0);
    memset(calls, 0, sizeof calls);
    memset(logits, POISON, spec.vocabulary * sizeof *logits);
    assert_int_equal(read_prompt(session, prefill, logits), STRATA_ERR_CAPACITY);
    assert_non_null(strstr(strata__error_text(), "layer 2"));
    assert_non_null(strstr(strata__error_text(), "fp16"));
    assert_non_null(strstr(strata__error_text(), "chunk"));
    assert_int_equal(calls[STRATA__PATH_FUSED], EXACT_LAYER);
    assert_int_equal(calls[STRATA__PATH_FP16], 0);
    for (uint64_t i = 0; i < spec.vocabulary * sizeof *logits; ++i)
        assert_int_equal(((const uint8_t *)logits)[i], POISON);
    ok(strata__session_length(session, 0, &length));
    assert_int_equal(length, 0);

    give_back(session, planned);
    ok(read_prompt(session, prefill, logits));
    assert_memory_equal(logits, expected, spec.vocabulary * sizeof *logits);
    session->kernels->ops = real;
    strata__prefill_destroy(prefill);
    strata__session_release(session);
    strata__pack_release(pack);
    strata__context_release(context);
    free(image);
    free(expected);
    free(logits);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_layer_without_its_buffers_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
