/* SPDX-License-Identifier: MIT */
/* What a session allocates is what its layout says, and no launch goes beyond a buffer's rows. */
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

/* Device and page-locked memory are told from the rest by the device's alignment. */
typedef struct book {
    uint64_t device_bytes;
    uint64_t live_count;
} book;

enum { DEVICE_ALIGNMENT = 64, HEADER_BYTES = 64 };

static void *book_alloc(void *user_data, uint64_t bytes, uint64_t alignment)
{
    book *b = user_data;
    uint8_t *pointer =
        aligned_alloc(HEADER_BYTES, (bytes + 2 * HEADER_BYTES - 1) / HEADER_BYTES * HEADER_BYTES);
    assert_true(alignment <= HEADER_BYTES);
    if (!pointer)
        return NULL;
    memcpy(pointer, &alignment, sizeof alignment);
    b->device_bytes += alignment == DEVICE_ALIGNMENT ? bytes : 0;
    b->live_count++;
    return pointer + HEADER_BYTES;
}

static void book_free(void *user_data, void *pointer, uint64_t bytes)
{
    book *b = user_data;
    uint64_t alignment;
    memcpy(&alignment, (uint8_t *)pointer - HEADER_BYTES, sizeof alignment);
    b->device_bytes -= alignment == DEVICE_ALIGNMENT ? bytes : 0;
    b->live_count--;
    free((uint8_t *)pointer - HEADER_BYTES);
}

static uint32_t pick(uint64_t *random, uint32_t first, uint32_t last)
{
    return first + (uint32_t)(tiny_random(random) % (last - first + 1));
}

static tiny_spec random_spec(uint64_t *random)
{
    static const char *const architectures[] = {"qwen3moe", "qwen2moe", "ernie4_5-moe"};
    static const uint32_t formats[] = {0, 1, 8};
    tiny_spec s = {0};
    s.architecture = architectures[pick(random, 0, 2)];
    s.layers = pick(random, 1, 4);
    s.width = 32 * pick(random, 1, 4);
    s.kv_heads = pick(random, 1, 3);
    s.heads = s.kv_heads * pick(random, 1, 3);
    s.head_size = 32 * pick(random, 1, 2);
    s.experts = pick(random, 2, 16);
    s.top_k = pick(random, 1, s.experts < 5 ? s.experts - 1 : 4);
    s.expert_width = 32 * pick(random, 1, 3);
    s.shared_width = strcmp(s.architecture, "qwen3moe") ? 32 * pick(random, 1, 3) : 0;
    s.dense_layers = strcmp(s.architecture, "ernie4_5-moe") ? 0 : pick(random, 0, s.layers - 1);
    s.dense_width = 32 * pick(random, 1, 5);
    s.vocabulary = pick(random, 20, 200);
    s.context_tokens = 512;
    s.dense_format = formats[pick(random, 0, 2)];
    s.gate_format = formats[pick(random, 0, 2)];
    s.up_format = formats[pick(random, 0, 2)];
    s.down_format = formats[pick(random, 0, 2)];
    s.seed = tiny_random(random);
    return s;
}

typedef struct bench {
    book book;
    uint64_t kernel_bytes; /* working memory of the kernels, aligned like the device's */
    uint8_t *image;
    strata_context *context;
    strata__pack *pack;
    strata_session *session;
    strata_prefill *prefill;
} bench;

static void measure_kernels(bench *b)
{
    strata__cpu_kernels_options options = {
        .allocator = &b->context->allocator, .threads = 1, .any_order = 0};
    strata__kernels *kernels = NULL;
    ok(strata__cpu_kernels_create(&options, &kernels));
    b->kernel_bytes = b->book.device_bytes;
    kernels->ops->destroy(kernels);
    assert_int_equal(b->book.device_bytes, 0);
}

static uint64_t allocated(const bench *b)
{
    return b->book.device_bytes - b->kernel_bytes;
}

static void open_session(bench *b, const tiny_spec *spec, const strata_plan_options *plan)
{
    strata_context_options context_options = {.struct_size = sizeof context_options,
                                              .alloc_fn = book_alloc,
                                              .free_fn = book_free,
                                              .alloc_user_data = &b->book};
    strata_session_options options = {.struct_size = sizeof options};
    strata_prefill_options prefill_options = {.struct_size = sizeof prefill_options};
    uint64_t bytes;
    b->image = tiny_pack_make(spec, &bytes);
    ok(strata__context_create(&context_options, &b->context));
    measure_kernels(b);
    ok(strata__pack_open_memory(b->context, b->image, bytes, &b->pack));
    options.plan_options = plan;
    options.thread_count = 1;
    options.blas = 1;
    ok(strata__session_create(b->pack, &options, &b->session));
    assert_int_equal(allocated(b),
                     b->session->layout->session_bytes + b->session->layout->decode.host_bytes);
    ok(strata__prefill_create(b->session, &prefill_options, &b->prefill));
}

static void close_session(bench *b)
{
    strata__prefill_destroy(b->prefill);
    strata__session_release(b->session);
    strata__pack_release(b->pack);
    strata__context_release(b->context);
    assert_int_equal(b->book.live_count, 0);
    free(b->image);
}

static strata_status read_prompt(const bench *b, uint64_t count, float *logits)
{
    int32_t tokens[256];
    uint64_t random = 99;
    strata_prefill_request request = {.struct_size = sizeof request};
    strata_prefill_result result = {0};
    for (uint64_t i = 0; i < count; ++i)
        tokens[i] = (int32_t)(tiny_random(&random) % b->session->geometry->vocabulary);
    request.tokens = tokens;
    request.token_count = count;
    request.logits = logits;
    request.logits_mode = logits ? STRATA_LOGITS_ALL : STRATA_LOGITS_NONE;
    request.logits_capacity = logits ? count * b->session->geometry->vocabulary : 0;
    return strata__prefill_run(b->prefill, &request, &result);
}

static void allocations_equal_the_plan(void **state)
{
    uint64_t random = 2024;
    (void)state;
    for (int i = 0; i < 200; ++i) {
        tiny_spec spec = random_spec(&random);
        strata_plan_options plan = {.struct_size = sizeof plan};
        strata_session_stats stats;
        const strata__layout *layout;
        uint64_t count = pick(&random, 1, 80);
        float *logits = calloc(count * spec.vocabulary, sizeof *logits);
        uint64_t host_bytes;
        bench b = {0};
        plan.chunk_tokens = pick(&random, 0, 60);
        plan.context_tokens = pick(&random, 100, 300);
        plan.sequence_count = pick(&random, 1, 3);
        plan.kv_format = pick(&random, 0, 2);
        open_session(&b, &spec, &plan);
        layout = b.session->layout;
        host_bytes = layout->host_bytes + layout->decode.host_bytes;
        assert_int_equal(allocated(&b), layout->session_bytes + layout->prompt_bytes + host_bytes);
        strata__session_stats(b.session, &stats);
        assert_int_equal(stats.device_bytes, layout->device_bytes);
        assert_int_equal(stats.host_bytes, host_bytes);
        assert_int_equal(strata__prefill_bytes(b.session), layout->prompt_bytes);
        ok(read_prompt(&b, count, logits));
        assert_int_equal(allocated(&b), layout->session_bytes + layout->prompt_bytes + host_bytes);
        close_session(&b);
        free(logits);
    }
}

/* Buffers that are no rows of a launch: decoded weights, and scratch of the grouping. */
static bool is_scratch(uint32_t id)
{
    return id == STRATA__BUFFER_QKV_SCRATCH || id == STRATA__BUFFER_OUT_SCRATCH ||
           id == STRATA__BUFFER_ROUTER_SCRATCH || id == STRATA__BUFFER_DENSE_SCRATCH ||
           id == STRATA__BUFFER_EXPERT_SCRATCH || id == STRATA__BUFFER_LOGIT_SCRATCH ||
           id == STRATA__BUFFER_GROUP_SCRATCH || id == STRATA__BUFFER_POINTERS;
}

/*
 * With fewer rows than a launch needs: refused, by name; with its rows again, the prompt is read.
 */
static void expect_refusal(bench *b, strata__layout_buffer *buffer, uint64_t rows, uint64_t count,
                           float *logits)
{
    const char *name = strata__layout_buffer_name(buffer->id);
    uint64_t length, planned = buffer->row_capacity;
    buffer->row_capacity = rows;
    if (read_prompt(b, count, logits) != STRATA_ERR_CAPACITY)
        fail_msg("%s with %d rows was not refused", name, (int)rows);
    if (!strstr(strata__error_text(), name))
        fail_msg("%s is not in \"%s\"", name, strata__error_text());
    buffer->row_capacity = planned;
    ok(strata__session_length(b->session, 0, &length));
    assert_int_equal(length, 0);
    assert_int_equal(b->session->kv.free_count, b->session->kv.page_count);
    ok(read_prompt(b, count, logits));
    ok(strata__session_truncate(b->session, 0, 0, &length));
}

/* No rows, and where every planned row is used, one row less than planned. */
static void expect_refusals(bench *b, strata__layout_buffer *buffer, uint64_t count, float *logits)
{
    expect_refusal(b, buffer, 0, count, logits);
    if (buffer->row_capacity <= count)
        expect_refusal(b, buffer, buffer->row_capacity - 1, count, logits);
}

static void every_buffer_is_asked_for(void **state)
{
    enum { COUNT = 24 };
    tiny_spec spec = tiny_spec_default();
    strata_plan_options plan = {.struct_size = sizeof plan, .chunk_tokens = COUNT};
    float *logits;
    uint32_t refused = 0, segments;
    strata__layout_work *work;
    bench b = {0};
    (void)state;
    spec.architecture = "ernie4_5-moe";
    spec.dense_layers = 1;
    spec.dense_width = 96;
    spec.shared_width = 64;
    logits = calloc((uint64_t)COUNT * spec.vocabulary, sizeof *logits);
    open_session(&b, &spec, &plan);
    work = &b.session->plan->layout->prompt;
    ok(read_prompt(&b, COUNT, logits));
    ok(strata__session_truncate(b.session, 0, 0, &(uint64_t){0}));
    for (uint32_t c = 0; c < work->config_count; ++c) {
        const strata__layout_config *config = &work->configs[c];
        bool used = c == work->edge_config;
        for (uint32_t l = 0; l < spec.layers; ++l)
            used = used || strata__layout_config_of(work, l, COUNT) == c;
        for (uint32_t i = 0; used && i < config->buffer_count; ++i) {
            if (is_scratch(config->buffers[i].id))
                continue;
            expect_refusals(&b, &config->buffers[i], COUNT, logits);
            refused++;
        }
    }
    for (uint32_t i = 0; i < work->persistent_count; ++i) {
        if (is_scratch(work->persistent[i].id) || work->persistent[i].id == STRATA__BUFFER_SEGMENTS)
            continue;
        expect_refusals(&b, &work->persistent[i], COUNT, logits);
        refused++;
    }
    assert_true(refused > 20);
    segments = work->segment_capacity;
    work->segment_capacity = 1;
    assert_int_equal(read_prompt(&b, COUNT, logits), STRATA_ERR_CAPACITY);
    work->segment_capacity = segments;
    ok(read_prompt(&b, COUNT, logits));
    close_session(&b);
    free(logits);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(allocations_equal_the_plan),
        cmocka_unit_test(every_buffer_is_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
