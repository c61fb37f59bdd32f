/* SPDX-License-Identifier: MIT */
#include "support/stream_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/error.h"
#include "session/decode.h"
#include "session/plan_input.h"

void stream_ok(strata_status status)
{
    if (status != STRATA_OK)
        fail_msg("%d: %s", (int)status, strata__error_text());
}

static strata_plan_options plan_options(const stream_pack *p)
{
    strata_plan_options o = {.struct_size = sizeof o};
    o.chunk_tokens = p->chunk_tokens;
    o.context_tokens = STREAM_TOKENS;
    o.kv_format = STRATA_KV_F32;
    o.path = "fp16";
    return o;
}

static strata_session_options session_options(const stream_options *o)
{
    strata_session_options s = {.struct_size = sizeof s};
    if (o && o->session)
        s = *o->session;
    s.thread_count = 1;
    s.blas = 1;
    return s;
}

static void write_file(const stream_pack *p, const char *path)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(p->image, 1, p->image_bytes, file), p->image_bytes);
    assert_int_equal(fclose(file), 0);
}

void stream_pack_open(stream_pack *p, const tiny_spec *spec, uint32_t chunk_tokens,
                      const char *path)
{
    const strata_context_options none = {.struct_size = sizeof none};
    stream_pack_open_in(p, spec, chunk_tokens, path, &none);
}

void stream_pack_open_in(stream_pack *p, const tiny_spec *spec, uint32_t chunk_tokens,
                         const char *path, const strata_context_options *context)
{
    strata_session_options options;
    strata_plan_options plan;
    strata_session *session = NULL;
    strata__device *device = NULL;
    tiny_spec local = *spec;
    uint64_t random = 11;
    memset(p, 0, sizeof *p);
    local.vocabulary = STREAM_VOCABULARY;
    p->chunk_tokens = chunk_tokens;
    p->image = tiny_pack_make(&local, &p->image_bytes);
    stream_ok(strata__context_create(context, &p->context));
    if (path)
        write_file(p, path);
    stream_ok(path ? strata__pack_open_path(p->context, path, &p->pack)
                   : strata__pack_open_memory(p->context, p->image, p->image_bytes, &p->pack));
    stream_ok(strata__pack_model(p->pack, &p->geometry, &p->layers));
    for (uint32_t i = 0; i < STREAM_TOKENS; ++i)
        p->tokens[i] = (int32_t)(tiny_random(&random) % STREAM_VOCABULARY);
    plan = plan_options(p);
    options = session_options(NULL);
    options.plan_options = &plan;
    stream_ok(strata__cpu_device_open(p->context, &device));
    stream_ok(strata__session_create_on(device, p->pack, &options, &session));
    stream_ok(stream_read(p, session, p->expected));
    strata__session_release(session);
}

void stream_pack_close(stream_pack *p)
{
    strata__pack_release(p->pack);
    strata__context_release(p->context);
    free(p->image);
}

static uint64_t round_up(uint64_t bytes, uint64_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

/* Bytes of the largest expert's slot. */
static uint64_t slot_bytes(const stream_pack *p, uint64_t alignment)
{
    uint64_t most = 0;
    for (uint32_t l = 0; l < p->geometry->layers; ++l) {
        const strata__layer *layer = &p->layers[l];
        uint32_t experts = p->geometry->experts;
        uint64_t bytes = round_up(layer->expert_gate.bytes / experts, alignment) +
                         round_up(layer->expert_up.bytes / experts, alignment) +
                         round_up(layer->expert_down.bytes / experts, alignment);
        most = bytes > most ? bytes : most;
    }
    return most;
}

static void choose(const stream_pack *p, const stream_options *o, uint64_t alignment,
                   strata__layout_choice *choice, uint32_t *resident)
{
    uint64_t slot = slot_bytes(p, alignment);
    uint32_t group = o->group_experts ? o->group_experts : 1;
    memset(choice, 0, sizeof *choice);
    for (uint32_t l = 0; l < p->geometry->layers; ++l) {
        uint32_t less = l * o->resident_step;
        resident[l] = 0;
        if (p->layers[l].ffn == STRATA__FFN_EXPERTS && o->resident > less)
            resident[l] = o->resident - less;
    }
    choice->chunk_tokens = p->chunk_tokens;
    choice->expert_tile = o->expert_tile;
    choice->dense_tile = o->dense_tile;
    choice->group_bytes = group * slot;
    choice->ring_bytes = (o->ring_pieces ? o->ring_pieces : 2 * group) * slot;
    choice->resident = resident;
}

strata_plan *stream_plan(const stream_pack *p, const stream_options *o)
{
    const strata__allocator *allocator = &p->context->allocator;
    uint32_t resident[STRATA__MAX_LAYERS];
    strata_plan_options options = plan_options(p);
    strata__kernels_facts kernels;
    strata__device *device = NULL;
    strata__layout_choice choice;
    strata__layout_facts facts;
    strata__plan_input input;
    strata_plan *plan = strata__calloc(allocator, 1, sizeof *plan);
    assert_non_null(plan);
    options.host_budget_bytes = o->host_budget_bytes;
    options.experts = o->experts;
    options.decode_rows = o->decode_rows;
    stream_ok(strata__delaying_device_open(p->context, &o->device, &device));
    strata__kernels_facts_of(0, &kernels);
    strata__plan_facts(&device->facts, &kernels, NULL, &facts);
    stream_ok(strata__plan_input_init(&input, allocator, p->pack, &facts, &options));
    input.input.request.borrow = o->borrow;
    choose(p, o, facts.alignment_bytes, &choice, resident);
    atomic_init(&plan->references, 1);
    plan->context = strata__context_retain(p->context);
    plan->pack_fingerprint = strata__pack_fingerprint(p->pack);
    stream_ok(strata__layout_build(allocator, &input.input, &choice, &plan->layout));
    strata__plan_input_finish(&input);
    device->ops->destroy(device);
    for (uint32_t i = 0; i < plan->layout->prompt.band_count && o->fetch; ++i)
        plan->layout->prompt.bands[i].fetch = o->fetch == 1;
    return plan;
}

strata_status stream_session(const stream_pack *p, const stream_options *o, strata_session **out)
{
    strata_session_options options = session_options(o);
    strata_plan *plan = stream_plan(p, o);
    strata__device *device = NULL;
    strata_status status;
    *out = NULL;
    options.plan = plan;
    stream_ok(strata__delaying_device_open(p->context, &o->device, &device));
    if (o->register_fails)
        strata__delaying_fail(device, STRATA__FAULT_REGISTER, 1, 1);
    if (o->faults)
        strata__delaying_fail(device, o->faults, o->fault_countdown, 0);
    if (o->out_device)
        *o->out_device = device;
    status = strata__session_create_on(device, p->pack, &options, out);
    strata__plan_release(plan);
    return status;
}

strata_status stream_run(const stream_pack *p, strata_prefill *prefill, float *logits,
                         strata_progress_fn progress_fn, void *user_data)
{
    strata_prefill_request request = {.struct_size = sizeof request};
    strata_prefill_result result = {0};
    uint64_t length;
    strata_status status = strata__session_truncate(prefill->session, 0, 0, &length);
    request.tokens = p->tokens;
    request.token_count = STREAM_TOKENS;
    request.logits = logits;
    request.logits_capacity = STREAM_LOGITS;
    request.logits_mode = logits ? STRATA_LOGITS_ALL : STRATA_LOGITS_NONE;
    request.progress_fn = progress_fn;
    request.progress_user_data = user_data;
    return status == STRATA_OK ? strata__prefill_run(prefill, &request, &result) : status;
}

strata_status stream_read(const stream_pack *p, strata_session *session, float *logits)
{
    strata_prefill_options options = {.struct_size = sizeof options};
    strata_prefill *prefill = NULL;
    strata_status status = strata__prefill_create(session, &options, &prefill);
    if (status == STRATA_OK)
        status = stream_run(p, prefill, logits, NULL, NULL);
    strata__prefill_destroy(prefill);
    return status;
}

strata_status stream_decode(const stream_pack *p, strata_session *session, uint64_t at,
                            uint32_t rows, float *logits)
{
    strata_decode_part part = {0, rows, p->tokens + at};
    strata_decode_request request = {.struct_size = sizeof request,
                                     .part_count = 1,
                                     .parts = &part,
                                     .logits_mode = STRATA_LOGITS_ALL};
    strata_decode_result result = {0};
    request.logits = logits + at * STREAM_VOCABULARY;
    request.logits_capacity = STREAM_LOGITS - at * STREAM_VOCABULARY;
    return strata__session_decode(session, &request, &result);
}

void stream_decode_all(const stream_pack *p, strata_session *session, uint64_t from, uint64_t end,
                       uint32_t rows, float *logits)
{
    const uint64_t first = from * STREAM_VOCABULARY, count = (end - from) * STREAM_VOCABULARY;
    memset(logits + first, 0, count * sizeof *logits);
    for (uint64_t at = from; at < end; at += rows)
        stream_ok(
            stream_decode(p, session, at, end - at < rows ? (uint32_t)(end - at) : rows, logits));
    assert_memory_equal(logits + first, p->expected + first, count * sizeof *logits);
}

void stream_check(const stream_pack *p, const stream_options *o, uint32_t times)
{
    strata_prefill_options options = {.struct_size = sizeof options};
    float *logits = calloc(STREAM_LOGITS, sizeof *logits);
    strata_prefill *prefill = NULL;
    strata_session *session = NULL;
    assert_non_null(logits);
    stream_ok(stream_session(p, o, &session));
    stream_ok(strata__prefill_create(session, &options, &prefill));
    for (uint32_t i = 0; i < times; ++i) {
        memset(logits, 0, STREAM_LOGITS * sizeof *logits);
        stream_ok(stream_run(p, prefill, logits, NULL, NULL));
        assert_memory_equal(logits, p->expected, sizeof p->expected);
    }
    strata__prefill_destroy(prefill);
    strata__session_release(session);
    free(logits);
}

static void check_blob(const stream_pack *p, const strata_session *session, uint64_t index)
{
    const strata__cache *cache = &session->cache;
    uint32_t experts = p->geometry->experts;
    uint32_t layer = (uint32_t)(index / experts), expert = (uint32_t)(index % experts);
    const strata__layer *l = &p->layers[layer];
    const strata__layout_place *place = &session->layout->layers[layer];
    const strata__projection *from[3] = {&l->expert_gate, &l->expert_up, &l->expert_down};
    const uint64_t offset[3] = {0, place->up_offset, place->down_offset};
    assert_int_equal(cache->states[index], STRATA__BLOB_PRESENT);
    assert_non_null(cache->places[index]);
    for (int k = 0; k < 3; ++k)
        assert_memory_equal(cache->places[index] + offset[k],
                            (const uint8_t *)from[k]->data + expert * from[k]->stride_bytes,
                            from[k]->bytes / experts);
}

uint32_t stream_present(const stream_pack *p, const strata_session *session)
{
    const strata__cache *cache = &session->cache;
    uint32_t present = 0;
    for (uint64_t i = 0; i < cache->count; ++i) {
        for (uint64_t j = 0; j < i && cache->places[i]; ++j)
            assert_ptr_not_equal(cache->places[i], cache->places[j]);
        if (cache->states[i] == STRATA__BLOB_ABSENT)
            continue;
        check_blob(p, session, i);
        present++;
    }
    return present;
}

uint32_t stream_present_in_loan(const strata_session *session)
{
    const strata__region *range = &session->loan_memory;
    const strata__cache *cache = &session->cache;
    uint32_t count = 0;
    for (uint64_t i = 0; i < cache->count; ++i)
        count += cache->states[i] == STRATA__BLOB_PRESENT && cache->places[i] >= range->base &&
                 cache->places[i] < range->base + range->bytes;
    return count;
}

void stream_wait_for_refill(const strata_session *session)
{
    const struct timespec pause = {.tv_nsec = 100000};
    const strata__loan *loan = &session->loan;
    for (int i = 0; i < 100000 && atomic_load(&loan->copied) < loan->count; ++i)
        nanosleep(&pause, NULL);
    assert_int_equal(atomic_load(&loan->copied), loan->count);
}
