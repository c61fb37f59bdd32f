/* SPDX-License-Identifier: MIT */
/* Plans as an application sees them: made without a device, read, saved, loaded, and obeyed. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/session_fixture.h"

static strata_context *context;
static strata_pack *pack;
static uint8_t *image;

static int open_pack(void **state)
{
    tiny_spec spec = tiny_spec_default();
    uint64_t bytes;
    (void)state;
    image = tiny_pack_make(&spec, &bytes);
    return strata_context_create(NULL, &context) ||
           strata_pack_open_memory(context, image, bytes, &pack);
}

static int close_pack(void **state)
{
    (void)state;
    strata_pack_close(pack);
    strata_context_destroy(context);
    free(image);
    return 0;
}

/* An accelerator that nobody has. */
static strata_device_facts accelerator(void)
{
    strata_device_facts facts;
    strata_device_facts_init(&facts, sizeof facts);
    facts.compute_capability = 86;
    facts.memory_bytes = 1u << 30;
    return facts;
}

static strata_plan *make(const strata_plan_options *options)
{
    strata_plan *plan = NULL;
    fixture_ok(strata_plan_create(pack, options, &plan));
    return plan;
}

static strata_plan_info info_of(const strata_plan *plan)
{
    strata_plan_info info = {.struct_size = sizeof info};
    fixture_ok(strata_plan_info_get(plan, &info));
    return info;
}

static void arguments(void **state)
{
    strata_plan *plan = (strata_plan *)&plan, *good = make(NULL);
    strata_plan_info info = {.struct_size = sizeof info};
    strata_plan_buffer buffer = {.struct_size = sizeof buffer};
    strata_plan_band band = {.struct_size = sizeof band};
    strata_plan_layer layer = {.struct_size = sizeof layer};
    strata_plan_configuration configuration = {.struct_size = sizeof configuration};
    strata_plan_shortfall shortfall = {.struct_size = sizeof shortfall};
    const strata_status bad = STRATA_ERR_INVALID_ARGUMENT;
    uint64_t bytes;
    (void)state;
    assert_int_equal(strata_plan_create(NULL, NULL, &plan), bad);
    assert_null(plan);
    assert_int_equal(strata_plan_create(pack, NULL, NULL), bad);
    assert_int_equal(strata_plan_info_get(NULL, &info), bad);
    assert_int_equal(strata_plan_info_get(good, NULL), bad);
    info = info_of(good);
    assert_int_equal(strata_plan_band_get(good, info.band_count, &band), bad);
    fixture_text_has("band");
    assert_int_equal(strata_plan_layer_get(good, info.layer_count, 0, &layer), bad);
    assert_int_equal(strata_plan_layer_get(good, 0, info.band_count, &layer), bad);
    assert_int_equal(
        strata_plan_configuration_get(
            good, info.configuration_count + info.decode_configuration_count, &configuration),
        bad);
    assert_int_equal(strata_plan_persistent_get(
                         good, info.persistent_count + info.decode_persistent_count, &buffer),
                     bad);
    assert_int_equal(
        strata_plan_buffer_get(good, info.configuration_count + info.decode_configuration_count, 0,
                               &buffer),
        bad);
    assert_int_equal(strata_plan_buffer_get(good, 0, 1000, &buffer), bad);
    assert_int_equal(strata_plan_shortfall_get(NULL, NULL, &shortfall), bad);
    assert_int_equal(strata_plan_shortfall_get(pack, NULL, NULL), bad);
    assert_int_equal(strata_plan_save_memory(good, NULL, 1, &bytes), bad);
    assert_int_equal(strata_plan_save_memory(NULL, NULL, 0, &bytes), bad);
    assert_int_equal(strata_plan_save_path(good, NULL), bad);
    assert_int_equal(strata_plan_load_memory(pack, NULL, 0, &plan), bad);
    assert_int_equal(strata_plan_load_memory(NULL, "", 0, &plan), bad);
    assert_int_equal(strata_plan_load_path(pack, NULL, &plan), bad);
    assert_int_equal(strata_plan_load_path(pack, NULL, NULL), bad);
    assert_string_equal(strata_plan_stage_name(0), "attention_norm");
    assert_string_equal(strata_plan_stage_name(99), "?");
    strata_plan_destroy(good);
    strata_plan_destroy(NULL);
}

static bool overlap(const strata_plan_buffer *a, const strata_plan_buffer *b)
{
    return a->offset_bytes < b->offset_bytes + b->bytes &&
           b->offset_bytes < a->offset_bytes + a->bytes;
}

/* Every buffer of an accelerator's plan is read out; those that live together are apart. */
static void every_buffer(void **state)
{
    strata_device_facts facts = accelerator();
    strata_plan_options options;
    strata_plan *plan;
    strata_plan_info info;
    strata_plan_buffer buffers[64];
    uint64_t end[4] = {0};
    (void)state;
    strata_plan_options_init(&options, sizeof options);
    options.device = &facts;
    options.experts = STRATA_EXPERTS_STREAM;
    plan = make(&options);
    info = info_of(plan);
    assert_true(info.ring_bytes > 0);
    assert_int_equal(info.device_bytes, info.session_bytes + info.prefill_bytes);
    for (uint32_t i = 0; i < info.persistent_count; ++i) {
        buffers[i].struct_size = sizeof buffers[i];
        fixture_ok(strata_plan_persistent_get(plan, i, &buffers[i]));
        end[buffers[i].region] = buffers[i].offset_bytes + buffers[i].bytes;
        for (uint32_t j = 0; j < i; ++j)
            assert_true(buffers[i].region != buffers[j].region ||
                        !overlap(&buffers[i], &buffers[j]));
    }
    assert_true(info.decode_persistent_count > 0);
    for (uint32_t i = 0; i < info.decode_persistent_count; ++i) {
        strata_plan_buffer b = {.struct_size = sizeof b};
        fixture_ok(strata_plan_persistent_get(plan, info.persistent_count + i, &b));
        assert_true(b.region == STRATA_REGION_SESSION || b.region == STRATA_REGION_DECODE);
        assert_true(
            b.offset_bytes + b.bytes <=
            (b.region == STRATA_REGION_SESSION ? info.session_bytes : info.decode_host_bytes));
        for (uint32_t j = 0; j < info.persistent_count; ++j)
            assert_true(b.region != buffers[j].region || !overlap(&b, &buffers[j]));
    }
    assert_true(end[STRATA_REGION_SESSION] <= info.session_bytes);
    assert_true(end[STRATA_REGION_HOST] <= info.host_bytes);
    for (uint32_t c = 0; c < info.configuration_count; ++c) {
        strata_plan_configuration configuration = {.struct_size = sizeof configuration};
        fixture_ok(strata_plan_configuration_get(plan, c, &configuration));
        for (uint32_t i = 0; i < configuration.buffer_count; ++i) {
            strata_plan_buffer *b = &buffers[i];
            b->struct_size = sizeof *b;
            fixture_ok(strata_plan_buffer_get(plan, c, i, b));
            assert_int_equal(b->bytes, b->row_capacity * b->row_bytes);
            assert_int_equal(b->offset_bytes % info.alignment_bytes, 0);
            assert_true(b->offset_bytes >= end[STRATA_REGION_PREFILL]);
            assert_true(b->offset_bytes + b->bytes <= info.prefill_bytes);
            for (uint32_t j = 0; j < i; ++j)
                assert_true(b->first_stage > buffers[j].last_stage ||
                            buffers[j].first_stage > b->last_stage || !overlap(b, &buffers[j]));
        }
    }
    for (uint32_t c = 0; c < info.decode_configuration_count; ++c) {
        strata_plan_configuration configuration = {.struct_size = sizeof configuration};
        fixture_ok(
            strata_plan_configuration_get(plan, info.configuration_count + c, &configuration));
        assert_int_equal(configuration.rows, info.decode_rows);
        assert_true(configuration.bytes <= info.decode_arena_bytes);
        for (uint32_t i = 0; i < configuration.buffer_count; ++i) {
            strata_plan_buffer b = {.struct_size = sizeof b};
            fixture_ok(strata_plan_buffer_get(plan, info.configuration_count + c, i, &b));
            assert_int_equal(b.region, STRATA_REGION_SESSION);
            assert_true(b.offset_bytes + b.bytes <= info.session_bytes);
        }
    }
    strata_plan_destroy(plan);
}

/* Rows of decoding are what is asked for, 16 by default, or none at all. */
static void decode_rows(void **state)
{
    strata_plan_options options;
    strata_plan_info with, few, none;
    strata_plan *plan;
    (void)state;
    strata_plan_options_init(&options, sizeof options);
    with = info_of(plan = make(&options));
    strata_plan_destroy(plan);
    assert_int_equal(with.decode_rows, STRATA_DECODE_MOST_ROWS);
    options.decode_rows = 2;
    few = info_of(plan = make(&options));
    strata_plan_destroy(plan);
    assert_int_equal(few.decode_rows, 2);
    options.decode_rows = STRATA_DECODE_ROWS_NONE;
    none = info_of(plan = make(&options));
    strata_plan_destroy(plan);
    assert_int_equal(none.decode_rows, 0);
    assert_int_equal(none.decode_host_bytes, 0);
    assert_int_equal(none.decode_configuration_count, 0);
    assert_int_equal(none.decode_persistent_count, 0);
    assert_true(none.session_bytes < few.session_bytes);
    assert_true(few.session_bytes < with.session_bytes);
    assert_true(few.decode_host_bytes < with.decode_host_bytes);
    assert_int_equal(none.prefill_bytes, with.prefill_bytes);
    options.decode_rows = STRATA_DECODE_MOST_ROWS + 1;
    assert_int_equal(strata_plan_create(pack, &options, &plan), STRATA_ERR_INVALID_ARGUMENT);
    fixture_text_has("decode_rows is 17");
    options.decode_rows = 0;
    options.reserved1 = 1;
    assert_int_equal(strata_plan_create(pack, &options, &plan), STRATA_ERR_INVALID_ARGUMENT);
}

static void path_texts(void **state)
{
    static const struct {
        const char *path;
        strata_status status;
        const char *text;
    } cases[] = {
        {"auto", STRATA_OK, NULL},
        {"fp16", STRATA_OK, NULL},
        {"fp16,1:direct", STRATA_OK, NULL},
        {"0:fp16,auto", STRATA_OK, NULL},
        {"", STRATA_ERR_INVALID_ARGUMENT, "\"\" is no path"},
        {"fast", STRATA_ERR_INVALID_ARGUMENT, "\"fast\" is no path"},
        {"fp16,", STRATA_ERR_INVALID_ARGUMENT, "is no path"},
        {"fp16,2:fp16", STRATA_ERR_INVALID_ARGUMENT, "\"2\" is no layer of a pack of 2"},
        {"fp16,:fp16", STRATA_ERR_INVALID_ARGUMENT, "\"\" is no layer"},
        {"fp16,x:fp16", STRATA_ERR_INVALID_ARGUMENT, "\"x\" is no layer"},
        {"fp16,99999999999999999999:fp16", STRATA_ERR_INVALID_ARGUMENT, "is no layer"},
        {"1:", STRATA_ERR_INVALID_ARGUMENT, "is no path"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        strata_plan_options options;
        strata_plan *plan;
        strata_plan_options_init(&options, sizeof options);
        options.path = cases[i].path;
        assert_int_equal(strata_plan_create(pack, &options, &plan), cases[i].status);
        if (cases[i].text)
            fixture_text_has(cases[i].text);
        strata_plan_destroy(plan);
    }
}

static void paths_and_reasons(void **state)
{
    strata_plan_options options;
    strata_plan_layer layer = {.struct_size = sizeof layer};
    strata_plan_info info;
    strata_plan *plan;
    (void)state;
    strata_plan_options_init(&options, sizeof options);
    options.path = "fp16,1:direct";
    options.chunk_tokens = 10;
    plan = make(&options);
    info = info_of(plan);
    assert_int_equal(info.band_count, 1);
    assert_int_equal(info.chunk_tokens, 10);
    fixture_ok(strata_plan_layer_get(plan, 0, 0, &layer));
    assert_int_equal(layer.path, STRATA_PATH_FP16);
    assert_string_equal(layer.reason, "asked for");
    layer.struct_size = sizeof layer;
    fixture_ok(strata_plan_layer_get(plan, 1, 0, &layer));
    assert_string_equal(layer.path_name, "direct");
    assert_string_equal(layer.reason, "asked for this layer");
    strata_plan_destroy(plan);
}

/* A plan that no kernel can keep to is refused when it is made. */
static void kv_of_odd_heads(void **state)
{
    static const uint32_t sizes[] = {8, 48, 33, 32, 64};
    (void)state;
    for (uint32_t i = 0; i < 5; i++) {
        tiny_spec spec = tiny_spec_default();
        strata_plan_options options = {.struct_size = sizeof options};
        strata_session_options session = {.struct_size = sizeof session};
        uint64_t bytes;
        uint8_t *file;
        strata_context *own;
        strata_session *made;
        strata_pack *odd;
        strata_plan *plan;
        bool fits = sizes[i] % 32 == 0;
        spec.head_size = sizes[i] + sizes[i] % 2;
        spec.dense_format = 0;
        options.kv_format = STRATA_KV_Q8_0;
        session.plan_options = &options;
        file = tiny_pack_make(&spec, &bytes);
        assert_int_equal(strata_context_create(NULL, &own), STRATA_OK);
        assert_int_equal(strata_pack_open_memory(own, file, bytes, &odd), STRATA_OK);
        assert_int_equal(strata_plan_create(odd, &options, &plan),
                         fits ? STRATA_OK : STRATA_ERR_UNSUPPORTED);
        assert_int_equal(strata_session_create(odd, &session, &made),
                         fits ? STRATA_OK : STRATA_ERR_UNSUPPORTED);
        if (!fits)
            fixture_text_has("layer 0: heads of");
        strata_session_destroy(made);
        strata_plan_destroy(plan);
        options.kv_format = STRATA_KV_F16;
        assert_int_equal(strata_plan_create(odd, &options, &plan), STRATA_OK);
        strata_plan_destroy(plan);
        strata_pack_close(odd);
        strata_context_destroy(own);
        free(file);
    }
}

static void what_would_fit(void **state)
{
    strata_device_facts facts = accelerator();
    strata_plan_shortfall shortfall = {.struct_size = sizeof shortfall};
    strata_plan_options options;
    strata_plan *plan;
    (void)state;
    strata_plan_options_init(&options, sizeof options);
    options.device = &facts;
    options.device_budget_bytes = 100000;
    assert_int_equal(strata_plan_create(pack, &options, &plan), STRATA_ERR_PLAN_INFEASIBLE);
    assert_null(plan);
    fixture_text_has("more than the budget of 97.7 KiB (100000 bytes)");
    fixture_ok(strata_plan_shortfall_get(pack, &options, &shortfall));
    assert_int_equal(shortfall.feasible, 0);
    assert_int_equal(shortfall.needed_bytes, 100000 + shortfall.missing_bytes);
    options.device_budget_bytes = shortfall.needed_bytes;
    plan = make(&options);
    assert_true(info_of(plan).device_bytes <= shortfall.needed_bytes);
    strata_plan_destroy(plan);
    shortfall.struct_size = sizeof shortfall;
    fixture_ok(strata_plan_shortfall_get(pack, &options, &shortfall));
    assert_int_equal(shortfall.feasible, 1);
    assert_int_equal(shortfall.needed_bytes, 0);
}

static uint8_t *saved(const strata_plan *plan, uint64_t *bytes)
{
    uint8_t *data;
    assert_int_equal(strata_plan_save_memory(plan, NULL, 0, bytes), STRATA_ERR_BUFFER_TOO_SMALL);
    data = malloc(*bytes);
    fixture_ok(strata_plan_save_memory(plan, data, *bytes, bytes));
    return data;
}

static void saved_and_loaded(void **state)
{
    char path[] = "/tmp/strata-plan-XXXXXX";
    strata_plan *plan = make(NULL), *loaded;
    strata_plan_info a = info_of(plan), b;
    uint64_t bytes;
    uint8_t *data;
    int file = mkstemp(path);
    (void)state;
    assert_true(file >= 0);
    close(file);
    data = saved(plan, &bytes);
    fixture_ok(strata_plan_load_memory(pack, data, bytes, &loaded));
    b = info_of(loaded);
    assert_memory_equal(&a, &b, sizeof a);
    strata_plan_destroy(loaded);
    fixture_ok(strata_plan_save_path(plan, path));
    fixture_ok(strata_plan_load_path(pack, path, &loaded));
    b = info_of(loaded);
    assert_memory_equal(&a, &b, sizeof a);
    strata_plan_destroy(loaded);
    data[bytes / 2] ^= 1;
    assert_int_equal(strata_plan_load_memory(pack, data, bytes, &loaded), STRATA_ERR_FORMAT);
    assert_null(loaded);
    file = open(path, O_WRONLY | O_TRUNC);
    assert_int_equal(write(file, data, bytes), bytes);
    close(file);
    assert_int_equal(strata_plan_load_path(pack, path, &loaded), STRATA_ERR_FORMAT);
    fixture_text_has(path);
    unlink(path);
    assert_int_equal(strata_plan_load_path(pack, path, &loaded), STRATA_ERR_IO);
    fixture_text_has(path);
    assert_int_equal(strata_plan_save_path(plan, "/nowhere/at/all"), STRATA_ERR_IO);
    fixture_text_has("/nowhere/at/all");
    free(data);
    strata_plan_destroy(plan);
}

/* FNV-1a of what comes before, as the loader has it. */
static void seal(uint8_t *data, uint64_t bytes)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (uint64_t i = 0; i < bytes - 8; ++i)
        hash = (hash ^ data[i]) * UINT64_C(0x100000001b3);
    memcpy(data + bytes - 8, &hash, 8);
}

/* A session has room for as many rows as can be planned: a plan of more must not reach it. */
static void saved_with_more_rows_of_decoding(void **state)
{
    strata_plan_options options = {.struct_size = sizeof options, .decode_rows = 15};
    uint64_t bytes, at = 0;
    uint8_t *data, *other;
    strata_plan *plan;
    (void)state;
    plan = make(&options);
    other = saved(plan, &bytes);
    strata_plan_destroy(plan);
    options.decode_rows = STRATA_DECODE_MOST_ROWS;
    plan = make(&options);
    data = saved(plan, &bytes);
    strata_plan_destroy(plan);
    while (data[at] == other[at])
        at++;
    assert_int_equal(other[at], 15);
    assert_int_equal(data[at], STRATA_DECODE_MOST_ROWS);
    seal(data, bytes);
    fixture_ok(strata_plan_load_memory(pack, data, bytes, &plan));
    strata_plan_destroy(plan);
    data[at] = STRATA_DECODE_MOST_ROWS + 1;
    seal(data, bytes);
    assert_int_equal(strata_plan_load_memory(pack, data, bytes, &plan),
                     STRATA_ERR_INVALID_ARGUMENT);
    assert_null(plan);
    fixture_text_has("decode rows is 17, not 0 to 16");
    free(data);
    free(other);
}

/* A plan for another device is refused by the session. */
static void a_plan_of_another_device(void **state)
{
    strata_device_facts facts = accelerator();
    strata_plan_options options;
    strata_session_options session_options;
    strata_session *session;
    strata_plan *plan;
    (void)state;
    strata_plan_options_init(&options, sizeof options);
    options.device = &facts;
    plan = make(&options);
    strata_session_options_init(&session_options, sizeof session_options);
    session_options.plan = plan;
    assert_int_equal(strata_session_create(pack, &session_options, &session),
                     STRATA_ERR_INVALID_ARGUMENT);
    fixture_text_has("another device");
    strata_plan_destroy(plan);
}

static void random_spec(tiny_spec *spec, uint64_t *seed)
{
    static const char *const names[] = {"qwen3moe", "qwen2moe", "ernie4_5-moe"};
    *spec = tiny_spec_default();
    spec->architecture = names[tiny_random(seed) % 3];
    spec->layers = 1 + (uint32_t)(tiny_random(seed) % 3);
    spec->kv_heads = 1 + (uint32_t)(tiny_random(seed) % 2);
    spec->heads = spec->kv_heads * (1 + (uint32_t)(tiny_random(seed) % 3));
    spec->experts = 1 + (uint32_t)(tiny_random(seed) % 8);
    spec->top_k = 1 + (uint32_t)(tiny_random(seed) % spec->experts);
    spec->shared_width = strcmp(spec->architecture, "qwen3moe") == 0 ? 0 : 32;
    spec->dense_width = 64;
    spec->seed = tiny_random(seed);
}

static void random_options(strata_plan_options *options, uint64_t *seed)
{
    strata_plan_options_init(options, sizeof *options);
    options->context_tokens = 1 + tiny_random(seed) % 300;
    options->chunk_tokens = tiny_random(seed) % 2 ? 1 + tiny_random(seed) % 100 : 0;
    options->sequence_count = (uint32_t)(tiny_random(seed) % 4);
    options->kv_format = tiny_random(seed) % 2 ? STRATA_KV_F32 : STRATA_KV_F16;
    options->path = tiny_random(seed) % 2 ? "fp16" : NULL;
}

/* Session and prefill allocate on the device what the plan says, and read a prompt with it. */
static void allocations_equal_the_plan(void **state)
{
    uint64_t seed = 31;
    (void)state;
    for (uint32_t run = 0; run < 200; ++run) {
        strata_session_options options;
        strata_session_stats stats = {.struct_size = sizeof stats};
        strata_plan_options plan_options;
        strata_prefill_request request;
        strata_session *session;
        strata_prefill *prefill;
        strata_plan_info info;
        tiny_spec spec;
        strata_plan *plan;
        strata_pack *own;
        uint64_t bytes;
        int32_t tokens[300];
        uint8_t *file;
        random_spec(&spec, &seed);
        random_options(&plan_options, &seed);
        file = tiny_pack_make(&spec, &bytes);
        fixture_ok(strata_pack_open_memory(context, file, bytes, &own));
        fixture_ok(strata_plan_create(own, &plan_options, &plan));
        info = info_of(plan);
        strata_session_options_init(&options, sizeof options);
        options.plan = plan;
        options.thread_count = 1;
        fixture_ok(strata_session_create(own, &options, &session));
        assert_int_equal(strata_prefill_bytes(session), info.prefill_bytes);
        fixture_ok(strata_prefill_create(session, NULL, &prefill));
        fixture_ok(strata_session_stats_get(session, &stats));
        assert_int_equal(stats.device_bytes, info.device_bytes);
        assert_int_equal(stats.host_bytes, info.host_bytes + info.decode_host_bytes);
        fixture_tokens(run, spec.vocabulary, tokens, plan_options.context_tokens);
        strata_prefill_request_init(&request, sizeof request);
        request.tokens = tokens;
        request.token_count = plan_options.context_tokens;
        request.logits_mode = STRATA_LOGITS_NONE;
        fixture_ok(strata_prefill_run(prefill, &request, NULL));
        stats.struct_size = sizeof stats;
        fixture_ok(strata_session_stats_get(session, &stats));
        assert_int_equal(stats.device_bytes, info.device_bytes);
        strata_prefill_destroy(prefill);
        strata_session_destroy(session);
        strata_plan_destroy(plan);
        strata_pack_close(own);
        free(file);
    }
}

/* One byte less than planned is refused; exactly enough, between poisoned bytes, is enough. */
static void regions_to_the_byte(void **state)
{
    enum { GUARD = 0xc7, GUARD_BYTES = 4096 };
    strata_plan *plan = make(NULL);
    strata_plan_info info = info_of(plan);
    uint64_t bytes[2] = {info.session_bytes, info.prefill_bytes};
    uint8_t *memory[2], *region[2];
    strata_session_options options;
    strata_prefill_options prefill_options;
    strata_prefill_request request;
    strata_session *session;
    strata_prefill *prefill;
    int32_t tokens[500];
    (void)state;
    for (uint32_t i = 0; i < 2; ++i) {
        memory[i] = aligned_alloc(4096, (bytes[i] + 3 * GUARD_BYTES) / 4096 * 4096);
        region[i] = memory[i] + GUARD_BYTES;
        memset(memory[i], GUARD, bytes[i] + 2 * GUARD_BYTES);
    }
    strata_session_options_init(&options, sizeof options);
    options.plan = plan;
    options.device_memory = region[0];
    options.device_memory_bytes = bytes[0] - 1;
    assert_int_equal(strata_session_create(pack, &options, &session), STRATA_ERR_BUFFER_TOO_SMALL);
    options.device_memory_bytes = bytes[0];
    fixture_ok(strata_session_create(pack, &options, &session));
    strata_prefill_options_init(&prefill_options, sizeof prefill_options);
    prefill_options.memory_kind = STRATA_MEMORY_CALLER;
    prefill_options.memory = region[1];
    prefill_options.memory_bytes = bytes[1] - 1;
    assert_int_equal(strata_prefill_create(session, &prefill_options, &prefill),
                     STRATA_ERR_BUFFER_TOO_SMALL);
    prefill_options.memory_bytes = bytes[1];
    fixture_ok(strata_prefill_create(session, &prefill_options, &prefill));
    fixture_tokens(1, 96, tokens, 500);
    strata_prefill_request_init(&request, sizeof request);
    request.tokens = tokens;
    request.token_count = 500;
    request.logits_mode = STRATA_LOGITS_NONE;
    fixture_ok(strata_prefill_run(prefill, &request, NULL));
    for (uint32_t i = 0; i < 2; ++i)
        for (uint64_t b = 0; b < GUARD_BYTES; ++b) {
            assert_int_equal(memory[i][b], GUARD);
            assert_int_equal(region[i][bytes[i] + b], GUARD);
        }
    strata_prefill_destroy(prefill);
    strata_session_destroy(session);
    strata_plan_destroy(plan);
    free(memory[0]);
    free(memory[1]);
}

static void kernels_need_a_capability(void **state)
{
    strata_device_facts facts = accelerator();
    strata_plan_options options;
    strata_plan *plan = NULL;
    (void)state;
    strata_plan_options_init(&options, sizeof options);
    options.device = &facts;
    facts.compute_capability = 79;
    assert_int_equal(strata_plan_create(pack, &options, &plan), STRATA_ERR_UNSUPPORTED);
    facts.compute_capability = 80;
    strata_plan_destroy(make(&options));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_need_a_capability),
        cmocka_unit_test(arguments),
        cmocka_unit_test(every_buffer),
        cmocka_unit_test(decode_rows),
        cmocka_unit_test(path_texts),
        cmocka_unit_test(paths_and_reasons),
        cmocka_unit_test(kv_of_odd_heads),
        cmocka_unit_test(what_would_fit),
        cmocka_unit_test(saved_and_loaded),
        cmocka_unit_test(saved_with_more_rows_of_decoding),
        cmocka_unit_test(a_plan_of_another_device),
        cmocka_unit_test(allocations_equal_the_plan),
        cmocka_unit_test(regions_to_the_byte),
    };
    return cmocka_run_group_tests(tests, open_pack, close_pack);
}
