/* SPDX-License-Identifier: MIT */
#include "layout_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"

uint64_t formats(uint32_t first, ...)
{
    uint64_t set = 0;
    va_list args;
    va_start(args, first);
    for (uint32_t id = first; id != UINT32_MAX; id = va_arg(args, uint32_t))
        set |= (uint64_t)1 << id;
    va_end(args);
    return set;
}

strata__layout_facts fixture_accelerator(void)
{
    return (strata__layout_facts){
        .compute_capability = 86,
        .activation_bytes = 2,
        .row_scale_bytes = 4,
        .decode_bytes_per_value = 2,
        .gate_up_paths = 1u << STRATA__LAYOUT_MMQ,
        .shared_memory_bytes = 101376,
        .alignment_bytes = 256,
        .coverage = {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX},
        .attention_scratch_bytes_per_row = 16,
        .group_scratch_bytes_per_expert = 512,
        .group_scratch_bytes_fixed = 4096,
        .link_bytes_per_second = 25e9,
        .link_latency_seconds = 4e-6,
        .staging_bytes_per_second = 8e9,
        .memory_bytes_per_second = 0.9e12,
        .launch_seconds = 4e-6,
        .dense_flops = 5e13,
        .attention_flops = 6e13,
        .path_flops = {4e12, 1.3e14, 7e13, 4.5e13},
        .path_half_rows = {1, 48, 48, 96},
        .round_outputs = 1e6,
    };
}

static uint64_t row_bytes(uint32_t format, uint64_t values)
{
    uint64_t bytes = 0;
    assert_true(strata__format_row_bytes(format, values, &bytes));
    return bytes;
}

static void set_formats(const layout_fixture *f, strata__layout_layer *layer, uint32_t gate,
                        uint32_t up, uint32_t down)
{
    uint64_t width = f->input.geometry.width;
    layer->gate_format = gate;
    layer->up_format = up;
    layer->down_format = down;
    layer->gate_bytes = layer->expert_width * row_bytes(gate, width);
    layer->up_bytes = layer->expert_width * row_bytes(up, width);
    layer->down_bytes = width * row_bytes(down, layer->expert_width);
}

static void start(layout_fixture *f, uint32_t layers)
{
    memset(f, 0, sizeof *f);
    f->input.facts = fixture_accelerator();
    f->input.geometry.layers = f->layers;
    f->input.geometry.tensor_bytes = f->tensors;
    f->input.geometry.layer_count = layers;
    f->input.geometry.residual_streams = 1;
    f->input.request.path = STRATA__LAYOUT_PATH_AUTO;
    f->input.request.expert_source = 1;
}

void fixture_mixed(layout_fixture *f)
{
    start(f, 48);
    f->input.geometry.width = 2560;
    f->input.geometry.vocabulary = 248320;
    f->input.geometry.experts = 512;
    f->input.geometry.top_k = 10;
    f->input.request.context_tokens = 32768;
    for (uint32_t i = 0; i < 48; ++i) {
        strata__layout_layer *l = &f->layers[i];
        uint32_t format = i % 4 == 1 && i < 44 ? STRATA__IQ2_XXS : STRATA__IQ2_S;
        if (i == 8 || i == 13 || i == 37)
            format = STRATA__IQ1_M;
        *l = (strata__layout_layer){.heads = 24,
                                    .kv_heads = 2,
                                    .head_size = 256,
                                    .expert_width = 640,
                                    .dense_bytes = 50u << 20};
        set_formats(f, l, format, format, STRATA__Q2_0);
    }
    /* 13 and 37 took two of the eleven. */
    set_formats(f, &f->layers[2], STRATA__IQ2_XXS, STRATA__IQ2_XXS, STRATA__Q2_0);
    set_formats(f, &f->layers[6], STRATA__IQ2_XXS, STRATA__IQ2_XXS, STRATA__Q2_0);
}

void fixture_small(layout_fixture *f, uint32_t layers)
{
    start(f, layers);
    f->input.geometry.width = 256;
    f->input.geometry.vocabulary = 1024;
    f->input.geometry.experts = 16;
    f->input.geometry.top_k = 4;
    f->input.request.context_tokens = 512;
    f->input.geometry.tensor_count = 2;
    f->tensors[0] = 100000;
    f->tensors[1] = 12345;
    for (uint32_t i = 0; i < layers; ++i) {
        f->layers[i] = (strata__layout_layer){.heads = 4,
                                              .kv_heads = 2,
                                              .head_size = 32,
                                              .expert_width = 256,
                                              .dense_bytes = 1u << 18};
        set_formats(f, &f->layers[i], STRATA__IQ2_XS, STRATA__IQ2_XS, STRATA__IQ2_XS);
    }
}

uint64_t fixture_next(uint64_t *seed, uint64_t least, uint64_t most)
{
    uint64_t x = *seed += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return least + (x ^ x >> 31) % (most - least + 1);
}

static void random_layer(layout_fixture *f, strata__layout_layer *l, uint64_t *seed)
{
    static const uint32_t some[] = {STRATA__Q8_0, STRATA__Q4_0, STRATA__IQ4_NL, STRATA__Q5_1,
                                    STRATA__F16};
    *l = (strata__layout_layer){0};
    l->heads = (uint32_t)fixture_next(seed, 1, 6);
    l->kv_heads = (uint32_t)fixture_next(seed, 1, l->heads);
    l->head_size = (uint32_t)fixture_next(seed, 1, 4) * 16;
    l->window = fixture_next(seed, 0, 2) ? 0 : (uint32_t)fixture_next(seed, 1, 100);
    l->state_bytes = fixture_next(seed, 0, 3) ? 0 : fixture_next(seed, 1, 5000);
    l->dense_bytes = fixture_next(seed, 1000, 100000);
    if (fixture_next(seed, 0, 4) == 0) {
        l->ffn_width = (uint32_t)fixture_next(seed, 1, 200);
        return;
    }
    l->expert_width = (uint32_t)fixture_next(seed, 1, 6) * 32;
    l->shared_width = fixture_next(seed, 0, 1) ? (uint32_t)fixture_next(seed, 1, 100) : 0;
    l->shared_gated = l->shared_width && fixture_next(seed, 0, 1);
    set_formats(f, l, some[fixture_next(seed, 0, 4)], some[fixture_next(seed, 0, 4)],
                some[fixture_next(seed, 0, 4)]);
}

static void random_facts(strata__layout_facts *facts, uint64_t *seed)
{
    static const uint32_t sizes[] = {2, 4};
    facts->host_addressable = fixture_next(seed, 0, 3) == 0;
    facts->compute_capability = facts->host_addressable ? 0 : 86;
    facts->activation_bytes = sizes[fixture_next(seed, 0, 1)];
    facts->row_scale_bytes = fixture_next(seed, 0, 1) ? 4 : 0;
    facts->decode_bytes_per_value = sizes[fixture_next(seed, 0, 1)];
    facts->gate_up_paths = (uint32_t)fixture_next(seed, 0, 15);
    facts->alignment_bytes = 1u << fixture_next(seed, 0, 9);
    facts->attention_scratch_bytes_per_row = fixture_next(seed, 0, 2) * 24;
    facts->attention_split_keys = (uint32_t)fixture_next(seed, 0, 2) * 64;
    facts->group_scratch_bytes_fixed = fixture_next(seed, 0, 1) * 1000;
    facts->link_bytes_per_second = 1e7 * (double)fixture_next(seed, 1, 1000);
    facts->dense_flops = 1e9 * (double)fixture_next(seed, 1, 1000);
    facts->attention_flops = 1e9 * (double)fixture_next(seed, 1, 1000);
    for (uint32_t i = 0; i < STRATA__LAYOUT_PATH_COUNT; ++i) {
        facts->path_flops[i] = 1e9 * (double)fixture_next(seed, 1, 1000);
        if (i == STRATA__LAYOUT_FUSED || i == STRATA__LAYOUT_MMQ)
            facts->coverage[i] = fixture_next(seed, 0, UINT64_MAX - 1);
    }
    facts->launch_seconds = 1e-7 * (double)fixture_next(seed, 1, 100);
    facts->link_latency_seconds = 1e-7 * (double)fixture_next(seed, 1, 100);
    facts->round_outputs = 1e3 * (double)fixture_next(seed, 0, 100);
}

void fixture_random(layout_fixture *f, uint64_t *seed)
{
    strata__layout_geometry *g = &f->input.geometry;
    start(f, (uint32_t)fixture_next(seed, 1, 5));
    g->width = (uint32_t)fixture_next(seed, 1, 5) * 32;
    g->vocabulary = (uint32_t)fixture_next(seed, 1, 300);
    g->experts = (uint32_t)fixture_next(seed, 1, 12);
    g->top_k = (uint32_t)fixture_next(seed, 1, g->experts < 5 ? g->experts : 5);
    g->residual_streams = fixture_next(seed, 0, 2) ? 1 : 4;
    g->fused_residual_read = (uint32_t)fixture_next(seed, 0, 1);
    g->tensor_count = (uint32_t)fixture_next(seed, 0, 4);
    for (uint32_t i = 0; i < 4; ++i)
        f->tensors[i] = fixture_next(seed, 0, 10000);
    random_facts(&f->input.facts, seed);
    for (uint32_t i = 0; i < g->layer_count; ++i)
        random_layer(f, &f->layers[i], seed);
    f->input.request.context_tokens = fixture_next(seed, 1, 700);
    f->input.request.sequences = (uint32_t)fixture_next(seed, 1, 3);
    f->input.request.kv_format = (uint32_t)fixture_next(seed, 0, 2);
    f->input.request.borrow = fixture_next(seed, 0, 3) == 0;
    f->input.request.decode_rows = (uint32_t)fixture_next(seed, 0, 1) * 4;
    if (fixture_next(seed, 0, 1))
        f->input.request.path =
            (uint32_t)(fixture_next(seed, 0, 1) ? STRATA__LAYOUT_FP16 : STRATA__LAYOUT_DIRECT);
    if (fixture_next(seed, 0, 2) == 0)
        f->input.request.kv_tokens = f->input.request.context_tokens + fixture_next(seed, 0, 700);
}

void fixture_ok(strata_status status)
{
    if (status != STRATA_OK)
        fail_msg("status %d: %s", status, strata__error_text());
}

void fixture_text_has(const char *part)
{
    if (!strstr(strata__error_text(), part))
        fail_msg("\"%s\" is not in \"%s\"", part, strata__error_text());
}

strata__layout *fixture_build(const layout_fixture *f, const strata__layout_choice *choice)
{
    strata__layout *layout = NULL;
    fixture_ok(strata__layout_build(strata__allocator_default(), &f->input, choice, &layout));
    fixture_check(layout);
    return layout;
}

strata__layout *fixture_plan(const layout_fixture *f)
{
    strata__layout *layout = NULL;
    fixture_ok(strata__layout_plan(strata__allocator_default(), &f->input, &layout, NULL));
    fixture_check(layout);
    assert_true(layout->device_bytes <= layout->budget_bytes);
    return layout;
}

static uint64_t round_up(uint64_t bytes, uint64_t alignment)
{
    return (bytes + alignment - 1) / alignment * alignment;
}

uint64_t fixture_live_bytes(const strata__layout_config *config, uint64_t alignment)
{
    uint64_t most = 0;
    for (uint32_t stage = 0; stage < STRATA__STAGE_COUNT; ++stage) {
        uint64_t live = 0;
        for (uint32_t i = 0; i < config->buffer_count; ++i)
            if (config->buffers[i].first_stage <= stage && stage <= config->buffers[i].last_stage)
                live += round_up(config->buffers[i].bytes, alignment);
        most = live > most ? live : most;
    }
    return most;
}

/* Buffers that live in a common stage are apart; all are aligned, whole and within [begin, end). */
static void check_buffers(const strata__layout_buffer *b, uint32_t count, uint64_t alignment,
                          uint64_t begin, uint64_t end)
{
    for (uint32_t i = 0; i < count; ++i) {
        assert_true(b[i].bytes > 0);
        assert_int_equal(b[i].bytes, b[i].row_capacity * b[i].row_bytes);
        assert_int_equal(b[i].offset % alignment, 0);
        assert_true(b[i].first_stage <= b[i].last_stage);
        assert_true(b[i].offset >= begin && b[i].offset + b[i].bytes <= end);
        for (uint32_t j = 0; j < i; ++j) {
            bool meet = b[i].first_stage <= b[j].last_stage && b[j].first_stage <= b[i].last_stage;
            bool apart =
                b[i].offset >= b[j].offset + b[j].bytes || b[j].offset >= b[i].offset + b[i].bytes;
            assert_true(!meet || apart);
            assert_true(b[i].id != b[j].id);
        }
    }
}

static void check_work(const strata__layout_work *w, uint64_t alignment, uint64_t end)
{
    uint64_t largest = 0, begin = w->persistent[0].offset;
    check_buffers(w->persistent, w->persistent_count, alignment, begin, w->arena_offset);
    for (uint32_t i = 0; i < w->config_count; ++i) {
        const strata__layout_config *c = &w->configs[i];
        check_buffers(c->buffers, c->buffer_count, alignment, w->arena_offset,
                      w->arena_offset + w->arena_bytes);
        assert_true(c->bytes >= fixture_live_bytes(c, alignment));
        largest = c->bytes > largest ? c->bytes : largest;
    }
    assert_int_equal(w->arena_bytes, largest);
    assert_true(w->arena_offset + w->arena_bytes <= end);
    assert_int_equal(w->bands[w->band_count - 1].rows, w->chunk_tokens);
}

static void check_places(const strata__layout *layout)
{
    const strata__layout_buffer *kv = strata__layout_find_session(layout, STRATA__BUFFER_KV_PAGES);
    const strata__layout_buffer *cache = strata__layout_find_session(layout, STRATA__BUFFER_CACHE);
    uint64_t next = kv->offset;
    for (uint32_t i = 0; i < layout->layer_count; ++i) {
        const strata__layout_place *p = &layout->layers[i];
        uint64_t bytes = p->page_bytes * layout->pages_total;
        assert_true(p->k_offset >= next && p->v_offset >= p->k_offset + bytes);
        next = p->v_offset + bytes;
        assert_true(next <= kv->offset + kv->bytes);
        if (p->resident_count == 0)
            continue;
        assert_non_null(cache);
        assert_true(p->cache_offset >= cache->offset);
        assert_true(p->cache_offset + p->resident_count * p->slot_bytes <=
                    cache->offset + cache->bytes - layout->loan_bytes);
    }
}

void fixture_check(const strata__layout *layout)
{
    uint64_t alignment = layout->alignment_bytes;
    check_buffers(layout->session_buffers, layout->session_buffer_count, alignment, 0,
                  layout->session_bytes);
    check_buffers(layout->host_buffers, layout->host_buffer_count, alignment, 0,
                  layout->host_bytes);
    check_work(&layout->prompt, alignment, layout->prompt_bytes);
    if (layout->decode.chunk_tokens) {
        check_work(&layout->decode, alignment, layout->session_bytes);
        check_buffers(layout->decode.host, layout->decode.host_count, alignment, 0,
                      layout->decode.host_bytes);
        assert_true(layout->decode.host_count > 0);
    }
    if (layout->request.host_budget_bytes && layout->pinned_bytes)
        assert_true(layout->host_bytes + layout->decode.host_bytes + layout->pinned_bytes <=
                    layout->request.host_budget_bytes);
    check_places(layout);
    assert_int_equal(layout->prompt_bytes % alignment, 0);
    assert_int_equal(layout->session_bytes % alignment, 0);
    if (layout->request.borrow) {
        assert_int_equal(layout->loan_bytes, layout->prompt_bytes);
        assert_int_equal(layout->device_bytes, layout->session_bytes);
        assert_true(layout->loan_offset + layout->loan_bytes <= layout->session_bytes);
    } else {
        assert_int_equal(layout->loan_bytes, 0);
        assert_int_equal(layout->device_bytes, layout->session_bytes + layout->prompt_bytes);
    }
}

static bool same_buffers(const strata__layout_buffer *a, const strata__layout_buffer *b,
                         uint32_t count, uint32_t other)
{
    return count == other && memcmp(a, b, count * sizeof *a) == 0;
}

static bool same_work(const strata__layout_work *a, const strata__layout_work *b)
{
    uint64_t cells = (uint64_t)a->layer_count * a->band_count;
    if (a->chunk_tokens != b->chunk_tokens || a->band_count != b->band_count ||
        a->config_count != b->config_count || a->arena_bytes != b->arena_bytes)
        return false;
    return a->chunk_tokens == 0 ||
           (same_buffers(a->buffers, b->buffers, a->buffer_count, b->buffer_count) &&
            same_buffers(a->host, b->host, a->host_count, b->host_count) &&
            same_buffers(a->persistent, b->persistent, a->persistent_count, b->persistent_count) &&
            memcmp(a->bands, b->bands, a->band_count * sizeof a->bands[0]) == 0 &&
            memcmp(a->config_of, b->config_of, cells * sizeof a->config_of[0]) == 0 &&
            memcmp(a->paths, b->paths, cells) == 0);
}

bool fixture_equal(const strata__layout *a, const strata__layout *b)
{
    return a->layer_count == b->layer_count && a->session_bytes == b->session_bytes &&
           a->prompt_bytes == b->prompt_bytes && a->host_bytes == b->host_bytes &&
           a->loan_offset == b->loan_offset && a->ring_bytes == b->ring_bytes &&
           memcmp(&a->prediction, &b->prediction, sizeof a->prediction) == 0 &&
           memcmp(a->layers, b->layers, a->layer_count * sizeof a->layers[0]) == 0 &&
           same_buffers(a->session_buffers, b->session_buffers, a->session_buffer_count,
                        b->session_buffer_count) &&
           same_buffers(a->host_buffers, b->host_buffers, a->host_buffer_count,
                        b->host_buffer_count) &&
           same_work(&a->prompt, &b->prompt) && same_work(&a->decode, &b->decode);
}
