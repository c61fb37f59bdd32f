/* SPDX-License-Identifier: MIT */
/*
 * Every block format, as experts and as dense weights: a random pack gives the logits of the same
 * model decoded to float32, within the order of float32 sums.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/format.h"
#include "kernels/cpu/decode.h"
#include "session/state.h"
#include "support/ok.h"
#include "support/tiny_pack.h"

enum { COUNT = 33, VOCABULARY = 64, LOGITS = COUNT * VOCABULARY };

static const double NMSE_LIMIT = 1e-10;

static void read_image(const uint8_t *image, uint64_t bytes, uint32_t use_blas, float *logits)
{
    strata_context_options context_options = {.struct_size = sizeof context_options};
    strata_plan_options plan = {.struct_size = sizeof plan, .kv_format = STRATA_KV_F32};
    strata_session_options options = {.struct_size = sizeof options};
    strata_prefill_options prefill_options = {.struct_size = sizeof prefill_options};
    strata_prefill_request request = {.struct_size = sizeof request};
    strata_prefill_result result = {0};
    strata_context *context = NULL;
    strata__pack *pack = NULL;
    strata_session *session = NULL;
    strata_prefill *prefill = NULL;
    int32_t tokens[COUNT];
    uint64_t random = 77;
    for (uint32_t i = 0; i < COUNT; ++i)
        tokens[i] = (int32_t)(tiny_random(&random) % VOCABULARY);
    plan.chunk_tokens = 20;
    options.plan_options = &plan;
    options.thread_count = 1;
    options.blas = !use_blas;
    ok(strata__context_create(&context_options, &context));
    ok(strata__pack_open_memory(context, image, bytes, &pack));
    ok(strata__session_create(pack, &options, &session));
    ok(strata__prefill_create(session, &prefill_options, &prefill));
    request.tokens = tokens;
    request.token_count = COUNT;
    request.logits = logits;
    request.logits_capacity = LOGITS;
    request.logits_mode = STRATA_LOGITS_ALL;
    ok(strata__prefill_run(prefill, &request, &result));
    strata__prefill_destroy(prefill);
    strata__session_release(session);
    strata__pack_release(pack);
    strata__context_release(context);
}

static double nmse(const float *a, const float *b)
{
    double error = 0, power = 0;
    for (uint32_t i = 0; i < LOGITS; ++i) {
        double away = (double)a[i] - (double)b[i];
        error += away * away;
        power += (double)b[i] * (double)b[i];
    }
    return error / power;
}

static tiny_spec spec_of(uint32_t id, uint64_t seed)
{
    tiny_spec spec = tiny_spec_default();
    spec.architecture = seed % 2 ? "qwen2moe" : "qwen3moe";
    spec.width = 256;
    spec.heads = 4;
    spec.head_size = 64;
    spec.expert_width = 256;
    spec.shared_width = seed % 2 ? 256 : 0;
    spec.experts = 6;
    spec.vocabulary = VOCABULARY;
    spec.dense_format = id;
    spec.gate_format = id;
    spec.up_format = seed % 3 ? id : 8;
    spec.down_format = id;
    spec.seed = seed;
    return spec;
}

static void every_format_gives_its_decoded_models_logits(void **state)
{
    uint64_t seed = 100;
    uint32_t formats = 0;
    (void)state;
    for (uint32_t id = 0; id < STRATA__FORMAT_LIMIT; ++id) {
        tiny_spec spec = spec_of(id, ++seed);
        float *packed = calloc(LOGITS, sizeof(float)), *decoded = calloc(LOGITS, sizeof(float));
        if (strata__format_find(id)) {
            uint64_t bytes, decoded_bytes;
            uint8_t *image = tiny_pack_make(&spec, &bytes);
            uint8_t *twin = tiny_pack_make_decoded(&spec, strata__decode_row, &decoded_bytes);
            for (uint32_t blas = 0; blas < 2; ++blas) {
                double error;
                read_image(image, bytes, blas, packed);
                read_image(twin, decoded_bytes, blas, decoded);
                error = nmse(packed, decoded);
                if (!(error <= NMSE_LIMIT))
                    fail_msg("%s: NMSE %g", strata__format_name(id), error);
            }
            free(image);
            free(twin);
            formats++;
        }
        free(packed);
        free(decoded);
    }
    assert_int_equal(formats, 24);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_format_gives_its_decoded_models_logits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
