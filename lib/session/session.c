/* SPDX-License-Identifier: MIT */
/* A session's life: what it is made of, in which order, and who may use it. */
#include "session/session.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "session/plan.h"
#include "session/plan_input.h"
#include "session/sequence.h"
#include "session/state.h"

static strata_status check_model(const strata_session *session)
{
    const strata__geometry *g = session->geometry;
    const char *architecture = strata__pack_architecture(session->pack);
    if (g->residual_streams > 1)
        return strata__fail(STRATA_ERR_UNSUPPORTED, "%s: %u residual streams; one can be run",
                            architecture, g->residual_streams);
    if (g->logit_softcap != 0.0f)
        return strata__fail(STRATA_ERR_UNSUPPORTED, "%s: capped logits cannot be run",
                            architecture);
    for (uint32_t i = 0; i < g->layers; ++i)
        if (session->layers[i].attention != STRATA__ATTENTION_GQA)
            return strata__fail(STRATA_ERR_UNSUPPORTED,
                                "%s: the attention of layer %u cannot be run", architecture, i);
    return STRATA_OK;
}

static strata_status open_kernels(strata_session *session, const strata_session_options *options)
{
    const strata__allocator *allocator = &session->context->allocator;
    if (session->device->facts.kind == STRATA__DEVICE_CUDA) {
        strata__cuda_kernels_options cuda = {0};
        cuda.allocator = allocator;
        cuda.device_ordinal = (int32_t)session->device->facts.ordinal;
        cuda.level = options->kernel_level;
        cuda.plain_launches = options->plain_launches;
        return strata__cuda_kernels_create(&cuda, &session->kernels);
    }
    strata__cpu_kernels_options cpu = {0};
    cpu.allocator = allocator;
    cpu.threads = options->thread_count;
    cpu.any_order = options->blas == 0;
    return strata__cpu_kernels_create(&cpu, &session->kernels);
}

static strata_status make_plan(strata_session *session, const strata__layout_facts *facts,
                               const strata_plan_options *given)
{
    const strata_plan_options none = {0};
    strata__plan_input plan;
    strata_status status = strata__plan_input_init(&plan, &session->context->allocator,
                                                   session->pack, facts, given ? given : &none);
    if (status == STRATA_OK)
        status = strata__plan_create(session->pack, &plan.input, &session->plan);
    strata__plan_input_finish(&plan);
    return status;
}

/* The caller's plan, or one made for this device. */
static strata_status take_plan(strata_session *session, const strata_session_options *options)
{
    const strata_plan_options *given = options->plan_options;
    strata__layout_facts found, facts;
    strata_status status = STRATA_OK;
    strata__plan_facts(&session->device->facts, &session->kernels->facts, NULL, &found);
    strata__plan_facts(&session->device->facts, &session->kernels->facts,
                       given ? given->device : NULL, &facts);
    if (options->plan)
        session->plan = strata__plan_retain((strata_plan *)(uintptr_t)options->plan);
    else
        status = make_plan(session, &facts, options->plan_options);
    /* Also a plan made here: the caller's facts may ask for less alignment than the device does. */
    if (status == STRATA_OK)
        status = strata__plan_check(session->plan, session->pack, &found);
    if (status == STRATA_OK)
        session->layout = session->plan->layout;
    return status;
}

static strata_status make_stream(strata_session *session, void *native)
{
    const strata__device_ops *ops = session->device->ops;
    strata_status status = native ? ops->stream_wrap(session->device, native, &session->stream)
                                  : ops->stream_create(session->device, &session->stream);
    return status == STRATA_OK ? ops->event_create(session->device, false, &session->routed)
                               : status;
}

static strata_status make_memory(strata_session *session, const strata_session_options *options)
{
    const strata__layout *layout = session->layout;
    bool is_apart = strata__cache_is_apart(session, options);
    strata_status status;
    if (options->device_memory)
        status = strata__region_borrow(&session->memory, options->device_memory,
                                       options->device_memory_bytes, layout->session_bytes,
                                       layout->alignment_bytes, "the session");
    else
        status = strata__region_alloc(
            &session->memory, session->device,
            is_apart ? layout->layers[0].cache_offset : layout->session_bytes, "the session");
    if (status != STRATA_OK || !layout->loan_bytes)
        return status;
    if (is_apart)
        return strata__region_alloc(&session->loan_memory, session->device, layout->loan_bytes,
                                    "the loan");
    session->loan_memory = (strata__region){session->memory.base + layout->loan_offset,
                                            layout->loan_bytes, false, false};
    return STRATA_OK;
}

static void count_memory(strata_session *session)
{
    if (session->memory.owned)
        strata__counter_add(&session->counters.device_bytes, session->memory.bytes);
    if (session->loan_memory.owned)
        strata__counter_add(&session->counters.device_bytes, session->loan_memory.bytes);
}

uint64_t strata__session_free_bytes(const strata_session *session)
{
    uint64_t free_bytes = 0;
    if (session->device->facts.host_addressable ||
        session->device->ops->memory_free_bytes(session->device, &free_bytes) != STRATA_OK)
        return 0;
    return free_bytes;
}

void strata__session_measure(strata_session *session)
{
    const strata__device_facts *facts = &session->device->facts;
    uint64_t own = atomic_load_explicit(&session->counters.device_bytes, memory_order_relaxed);
    uint64_t free_bytes = strata__session_free_bytes(session), taken = 0;
    if (!free_bytes)
        return;
    if (facts->memory_free_bytes > free_bytes)
        taken = facts->memory_free_bytes - free_bytes;
    atomic_store_explicit(&session->counters.device_runtime_bytes,
                          facts->context_bytes + (taken > own ? taken - own : 0),
                          memory_order_relaxed);
}

void strata__session_measure_since(strata_session *session, uint64_t free_bytes)
{
    uint64_t left = strata__session_free_bytes(session);
    uint64_t counted =
        atomic_load_explicit(&session->counters.device_runtime_bytes, memory_order_relaxed);
    if (!free_bytes || !left)
        return;
    counted += free_bytes > left ? free_bytes - left : 0;
    counted -= left > free_bytes ? (left - free_bytes < counted ? left - free_bytes : counted) : 0;
    atomic_store_explicit(&session->counters.device_runtime_bytes, counted, memory_order_relaxed);
}

static strata_status place_weights(strata_session *session)
{
    const strata__allocator *allocator = &session->context->allocator;
    strata__weights_target target;
    if (session->device->facts.host_addressable)
        return strata__weights_init(&session->weights, allocator, session->geometry,
                                    session->layers);
    target.device = session->device;
    target.stream = session->stream;
    target.base = session->memory.base;
    target.offsets = session->layout->tensor_offsets;
    target.count = session->layout->tensor_count;
    return strata__weights_upload(&session->weights, allocator, session->geometry, session->layers,
                                  &target);
}

/* With the device current. */
static strata_status build(strata_session *session, const strata_session_options *options)
{
    const strata__allocator *allocator = &session->context->allocator;
    const strata__layout *layout;
    strata_status status = open_kernels(session, options);
    if (status == STRATA_OK)
        status = take_plan(session, options);
    if (status == STRATA_OK)
        status = make_stream(session, options->stream);
    if (status == STRATA_OK)
        status = make_memory(session, options);
    if (status == STRATA_OK)
        status = place_weights(session);
    if (status == STRATA_OK)
        status = strata__experts_init(session, options);
    if (status != STRATA_OK)
        return status;
    layout = session->layout;
    status = strata__kv_init(&session->kv, allocator, layout->sequences, layout->pages_per_sequence,
                             layout->pages_total, layout->page_tokens);
    session->kv.copy_page = strata__sequence_copy_page;
    session->kv.copy_user_data = session;
    if (status == STRATA_OK)
        status = strata__decode_init(session);
    if (status == STRATA_OK)
        status = session->device->ops->stream_synchronize(session->device, session->stream);
    if (status != STRATA_OK)
        return status;
    count_memory(session);
    strata__session_measure(session);
    strata__log(session->context, STRATA_LOG_INFO,
                "session on %s: %llu bytes, prompts %llu bytes on top, chunks of %u tokens",
                session->device->facts.name, (unsigned long long)layout->session_bytes,
                (unsigned long long)layout->prompt_bytes, layout->prompt.chunk_tokens);
    return STRATA_OK;
}

/* Everything, also half built. */
static void destroy(strata_session *session)
{
    strata_context *context = session->context;
    strata__device *device = session->device;
    strata__saved_device saved;
    bool entered = device->ops->enter(device, &saved) == STRATA_OK;
    if (session->stream)
        (void)device->ops->stream_synchronize(device, session->stream);
    strata__decode_finish(session);
    strata__experts_finish(session);
    if (session->kernels)
        session->kernels->ops->destroy(session->kernels);
    strata__region_free(&session->loan_memory, device);
    strata__region_free(&session->memory, device);
    if (session->routed)
        device->ops->event_destroy(device, session->routed);
    if (session->stream)
        device->ops->stream_destroy(device, session->stream);
    if (entered)
        device->ops->leave(device, &saved);
    strata__device_release(device);
    strata__kv_finish(&session->kv);
    strata__weights_finish(&session->weights);
    strata__plan_release(session->plan);
    strata__pack_release(session->pack);
    strata__free(&context->allocator, session, sizeof *session);
    strata__context_release(context);
}

strata_status strata__session_create_on(strata__device *device, strata__pack *pack,
                                        const strata_session_options *options, strata_session **out)
{
    strata_context *context = strata__pack_context(pack);
    strata_session *session = strata__calloc(&context->allocator, 1, sizeof *session);
    strata__saved_device saved;
    strata_status status;
    if (!session) {
        strata__device_release(device);
        return strata__fail_memory(sizeof *session, "a session");
    }
    atomic_init(&session->references, 1);
    session->context = strata__context_retain(context);
    session->pack = strata__pack_retain(pack);
    session->device = device;
    status = strata__pack_model(pack, &session->geometry, &session->layers);
    if (status == STRATA_OK)
        status = check_model(session);
    if (status == STRATA_OK)
        status = device->ops->enter(device, &saved);
    if (status == STRATA_OK) {
        status = build(session, options);
        device->ops->leave(device, &saved);
    }
    if (status != STRATA_OK) {
        destroy(session);
        return status;
    }
    *out = session;
    return STRATA_OK;
}

strata_status strata__session_create(strata__pack *pack, const strata_session_options *options,
                                     strata_session **out)
{
    strata__device *device;
    strata_status status =
        strata__device_open(strata__pack_context(pack), options->device, &device);
    return status == STRATA_OK ? strata__session_create_on(device, pack, options, out) : status;
}

strata_session *strata__session_retain(strata_session *session)
{
    atomic_fetch_add_explicit(&session->references, 1, memory_order_relaxed);
    return session;
}

void strata__session_drop(strata_session *session)
{
    if (atomic_fetch_sub_explicit(&session->references, 1, memory_order_acq_rel) == 1)
        destroy(session);
}

/* A prefill is left; the caller's experts are asked for, and read, no longer. */
static void outlive(strata_session *session)
{
    strata__saved_device saved;
    session->is_released = true;
    if (session->experts.source != STRATA__SOURCE_STREAMED || !session->experts.expert_fn ||
        session->device->ops->enter(session->device, &saved) != STRATA_OK)
        return;
    strata__loan_settle(&session->loan);
    (void)strata__decode_settle(session);
    session->device->ops->leave(session->device, &saved);
}

void strata__session_release(strata_session *session)
{
    if (!session)
        return;
    if (session->has_prefill)
        outlive(session);
    strata__session_drop(session);
}

/* Once a wait has failed: nothing of an earlier call writes where this one does. */
static strata_status settle(strata_session *session)
{
    const strata__device_ops *ops = session->device->ops;
    strata_status status = ops->stream_synchronize(session->device, session->stream);
    if (status == STRATA_OK && session->copies)
        status = ops->stream_synchronize(session->device, session->copies);
    session->is_unsettled = status != STRATA_OK;
    session->lost |= status == STRATA_ERR_DEVICE_LOST;
    return status;
}

strata_status strata__session_wait_copies(strata_session *session)
{
    strata_status status =
        session->device->ops->stream_synchronize(session->device, session->copies);
    session->is_unsettled |= status != STRATA_OK;
    return status;
}

strata_status strata__session_enter(strata_session *session, strata__saved_device *saved)
{
    strata_status status;
    if (atomic_exchange_explicit(&session->busy, true, memory_order_acquire))
        return strata__fail(STRATA_ERR_BUSY, "another call is using the session");
    atomic_store_explicit(&session->cancel, false, memory_order_relaxed);
    status = session->lost ? strata__fail(STRATA_ERR_DEVICE_LOST, "%s was lost in an earlier call",
                                          session->device->facts.name)
                           : session->device->ops->enter(session->device, saved);
    if (status == STRATA_OK && session->is_unsettled) {
        status = settle(session);
        if (status != STRATA_OK)
            session->device->ops->leave(session->device, saved);
    }
    if (status != STRATA_OK)
        atomic_store_explicit(&session->busy, false, memory_order_release);
    return status;
}

void strata__session_leave(strata_session *session, const strata__saved_device *saved)
{
    session->device->ops->leave(session->device, saved);
    atomic_store_explicit(&session->busy, false, memory_order_release);
}

void strata__session_drain(strata_session *session, strata_status status)
{
    char text[512];
    snprintf(text, sizeof text, "%s", strata__error_text());
    if (session->device->ops->stream_synchronize(session->device, session->stream) != STRATA_OK) {
        session->is_unsettled = true;
        (void)strata__fail(status, "%s", text);
    }
    if (status == STRATA_ERR_DEVICE_LOST)
        session->lost = true;
}

void strata__session_cancel(strata_session *session)
{
    atomic_store_explicit(&session->cancel, true, memory_order_relaxed);
}

strata_status strata__session_check_cancel(const strata_session *session, const char *what)
{
    if (atomic_load_explicit(&session->cancel, memory_order_relaxed))
        return strata__fail(STRATA_ERR_CANCELLED, "%s was cancelled", what);
    return STRATA_OK;
}

const strata_plan *strata__session_plan(const strata_session *session)
{
    return session->plan;
}

uint64_t strata__session_logits_count(const strata_session *session)
{
    return session->geometry->vocabulary;
}

static uint64_t load(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

void strata__session_stats(const strata_session *session, strata_session_stats *out)
{
    const strata__counters *c = &session->counters;
    const strata__host_tier *tier = session->tier;
    memset(out, 0, sizeof *out);
    out->prompt_tokens = load(&c->prompt_tokens);
    out->prompt_chunks = load(&c->prompt_chunks);
    out->prompt_ns = load(&c->prompt_ns);
    out->expert_rows = load(&c->expert_rows);
    out->expert_launches = load(&c->expert_launches);
    out->device_bytes = load(&c->device_bytes);
    out->host_bytes = load(&c->host_bytes);
    out->device_runtime_bytes = load(&c->device_runtime_bytes);
    out->kernel_ns = load(&c->kernel_ns);
    out->blob_wait_ns = load(&c->blob_wait_ns);
    out->host_gap_ns = load(&c->host_gap_ns);
    out->blob_sent_bytes = load(&c->blob_sent_bytes);
    out->blob_slow_bytes = load(&c->blob_slow_bytes);
    out->blob_hit_bytes = load(&c->blob_hit_bytes);
    out->blob_dropped_bytes = load(&c->blob_dropped_bytes);
    out->blob_vain_bytes = load(&c->blob_vain_bytes);
    out->blob_filled_bytes = load(&c->blob_filled_bytes);
    out->refill_bytes = load(&c->refill_bytes);
    out->link_bytes = load(&c->link_bytes);
    out->link_ns = load(&c->link_ns);
    out->decode_tokens = load(&c->decode_tokens);
    out->decode_steps = load(&c->decode_steps);
    out->decode_ns = load(&c->decode_ns);
    out->decode_hit_bytes = load(&c->decode_hit_bytes);
    out->decode_place_bytes = load(&c->decode_place_bytes);
    out->decode_fetch_bytes = load(&c->decode_fetch_bytes);
    out->decode_admit_bytes = load(&c->decode_admit_bytes);
    if (tier) {
        out->lock_wanted_bytes = load(&tier->wanted_bytes);
        out->lock_bytes = load(&tier->pinned_bytes);
        out->lock_refused_bytes = load(&tier->refused_bytes);
    }
}
