/* SPDX-License-Identifier: MIT */
/* However small the planned tiles are, a prompt gives the same bits and asks for an expert once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "session/plan.h"
#include "session/plan_input.h"
#include "session/state.h"
#include "support/expert_source.h"
#include "support/ok.h"
#include "support/tiny_pack.h"

enum { COUNT = 75, CHUNK = 40, VOCABULARY = 96, LOGITS = COUNT * VOCABULARY };

typedef struct bench {
    uint8_t *image;
    strata_context *context;
    strata__pack *pack;
    expert_source source;
} bench;

static void bench_open(bench *b, const char *architecture)
{
    strata_context_options context_options = {.struct_size = sizeof context_options};
    tiny_spec spec = tiny_spec_default();
    const strata__geometry *geometry;
    uint64_t bytes;
    spec.architecture = architecture;
    spec.vocabulary = VOCABULARY;
    if (strcmp(architecture, "qwen3moe") != 0)
        spec.shared_width = 64;
    if (strcmp(architecture, "ernie4_5-moe") == 0) {
        spec.dense_layers = 1;
        spec.dense_width = 96;
    }
    b->image = tiny_pack_make(&spec, &bytes);
    ok(strata__context_create(&context_options, &b->context));
    ok(strata__pack_open_memory(b->context, b->image, bytes, &b->pack));
    ok(strata__pack_model(b->pack, &geometry, &b->source.layers));
}

static void bench_close(bench *b)
{
    strata__pack_release(b->pack);
    strata__context_release(b->context);
    free(b->image);
}

/* A plan whose layout is built for a choice, whatever a planner would choose. */
static strata_plan *make_plan(const bench *b, const strata__layout_choice *choice)
{
    strata_plan_options options = {.struct_size = sizeof options,
                                   .context_tokens = 128,
                                   .chunk_tokens = CHUNK,
                                   .kv_format = STRATA_KV_F32};
    strata__layout_facts facts;
    strata__plan_input input;
    strata__layout *layout = NULL;
    strata_plan *plan = NULL;
    strata__plan_facts_given(NULL, &facts);
    ok(strata__plan_input_init(&input, &b->context->allocator, b->pack, &facts, &options));
    ok(strata__plan_create(b->pack, &input.input, &plan));
    ok(strata__layout_build(&b->context->allocator, &input.input, choice, &layout));
    strata__layout_destroy(plan->layout);
    plan->layout = layout;
    strata__plan_input_finish(&input);
    return plan;
}

static float *read_all(bench *b, const strata__layout_choice *choice, bool from_callback)
{
    strata_session_options options = {.struct_size = sizeof options, .thread_count = 1, .blas = 1};
    strata_prefill_options prefill_options = {.struct_size = sizeof prefill_options};
    strata_prefill_request request = {.struct_size = sizeof request};
    strata_prefill_result result = {0};
    strata_plan *plan = make_plan(b, choice);
    strata_session *session = NULL;
    strata_prefill *prefill = NULL;
    float *logits = calloc(LOGITS, sizeof *logits);
    int32_t tokens[COUNT];
    uint64_t random = 23;
    for (uint32_t i = 0; i < COUNT; ++i)
        tokens[i] = (int32_t)(tiny_random(&random) % VOCABULARY);
    options.plan = plan;
    options.expert_fn = from_callback ? give_expert : NULL;
    options.expert_user_data = &b->source;
    b->source.calls = 0;
    ok(strata__session_create(b->pack, &options, &session));
    ok(strata__prefill_create(session, &prefill_options, &prefill));
    request.tokens = tokens;
    request.token_count = COUNT;
    request.logits = logits;
    request.logits_capacity = LOGITS;
    request.logits_mode = STRATA_LOGITS_ALL;
    ok(strata__prefill_run(prefill, &request, &result));
    strata__prefill_destroy(prefill);
    strata__session_release(session);
    strata__plan_release(plan);
    return logits;
}

static void tiles_do_not_change_a_bit(void **state)
{
    static const char *const architectures[] = {"qwen3moe", "qwen2moe", "ernie4_5-moe"};
    /* chunk, dense tile, attention tile, expert tile, logit tile */
    static const uint32_t tiles[][5] = {{CHUNK, 16, 5, 7, 3},  {CHUNK, 1, 1, 1, 1},
                                        {CHUNK, 33, 33, 2, 7}, {CHUNK, 7, 2, 79, 40},
                                        {11, 4, 3, 5, 2},      {1, 1, 1, 2, 1}};
    (void)state;
    for (size_t a = 0; a < sizeof architectures / sizeof architectures[0]; ++a) {
        strata__layout_choice choice = {.chunk_tokens = CHUNK, .scratch_bytes = 1 << 20};
        float *whole;
        uint32_t calls;
        bench b = {0};
        bench_open(&b, architectures[a]);
        whole = read_all(&b, &choice, true);
        calls = b.source.calls;
        assert_true(calls > 0);
        for (size_t t = 0; t < sizeof tiles / sizeof tiles[0]; ++t) {
            float *cut;
            choice.chunk_tokens = tiles[t][0];
            choice.dense_tile = tiles[t][1];
            choice.attention_tile = tiles[t][2];
            choice.expert_tile = tiles[t][3];
            choice.logit_tile = tiles[t][4];
            choice.scratch_bytes = t % 2 ? 1 : 1 << 16;
            cut = read_all(&b, &choice, t % 2 == 0);
            assert_memory_equal(whole, cut, LOGITS * sizeof *cut);
            if (t % 2 == 0 && tiles[t][0] == CHUNK)
                assert_int_equal(b.source.calls, calls);
            free(cut);
        }
        free(whole);
        bench_close(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(tiles_do_not_change_a_bit)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
