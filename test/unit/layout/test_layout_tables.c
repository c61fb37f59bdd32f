/* SPDX-License-Identifier: MIT */
/* Names, look-ups, sizes of the session's parts, and the placing of buffers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "layout/cost.h"
#include "layout/overlay.h"
#include "layout_fixture.h"

static void every_thing_has_a_name_of_its_own(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < STRATA__BUFFER_COUNT; ++i) {
        assert_non_null(strata__layout_buffer_name(i));
        for (uint32_t j = 0; j < i; ++j)
            assert_string_not_equal(strata__layout_buffer_name(i), strata__layout_buffer_name(j));
    }
    for (uint32_t i = 0; i < STRATA__STAGE_COUNT; ++i)
        assert_non_null(strata__layout_stage_name(i));
    for (uint32_t i = 0; i <= STRATA__LAYOUT_REASON_ROWS; ++i)
        assert_non_null(strata__layout_reason_name(i));
    assert_string_equal(strata__layout_buffer_name(STRATA__BUFFER_COUNT), "?");
    assert_string_equal(strata__layout_stage_name(STRATA__STAGE_COUNT), "?");
    assert_string_equal(strata__layout_reason_name(99), "?");
    assert_string_equal(strata__layout_path_name(STRATA__LAYOUT_MMQ), "mmq");
    assert_string_equal(strata__layout_path_name(STRATA__LAYOUT_PATH_AUTO), "auto");
    assert_string_equal(strata__layout_path_name(STRATA__LAYOUT_PATH_NONE), "none");
    assert_string_equal(strata__layout_path_name(77), "?");
}

static void look_ups_answer_nothing_beyond_the_tables(void **state)
{
    layout_fixture f;
    strata__layout_choice choice = {.chunk_tokens = 100};
    strata__layout *l;
    (void)state;
    fixture_small(&f, 2);
    l = fixture_build(&f, &choice);
    assert_int_equal(strata__layout_band_of(&l->prompt, 0), 3);
    assert_int_equal(strata__layout_band_of(&l->prompt, 1), 0);
    assert_int_equal(strata__layout_band_of(&l->prompt, 16), 0);
    assert_int_equal(strata__layout_band_of(&l->prompt, 17), 1);
    assert_int_equal(strata__layout_band_of(&l->prompt, 100), 2);
    assert_int_equal(strata__layout_band_of(&l->prompt, 101), 3);
    assert_null(strata__layout_find(&l->prompt, l->prompt.config_count, STRATA__BUFFER_QKV));
    assert_null(strata__layout_find(&l->prompt, 0, STRATA__BUFFER_LOGITS));
    assert_non_null(strata__layout_find(&l->prompt, l->prompt.edge_config, STRATA__BUFFER_LOGITS));
    assert_null(strata__layout_find_work(&l->prompt, STRATA__BUFFER_QKV));
    assert_null(strata__layout_find_session(l, STRATA__BUFFER_STATE));
    assert_null(strata__layout_find_host(l, STRATA__BUFFER_HOST_STAGING));
    /* 17 offsets and a flag. */
    assert_true(strata__layout_find_host(l, STRATA__BUFFER_HOST_OFFSETS)->row_bytes >= 18 * 4);
    strata__layout_destroy(l);
    strata__layout_destroy(NULL);
}

/* Page bytes by format, pages by context and sequences, states twice. */
static void session_sizes(void **state)
{
    static const uint64_t page_bytes[] = {2 * 64 * 32 * 2, 2 * 64 * 34, 2 * 64 * 32 * 4};
    (void)state;
    for (uint32_t format = 0; format < 3; ++format) {
        layout_fixture f;
        strata__layout_choice choice = {.chunk_tokens = 10};
        strata__layout *l;
        fixture_small(&f, 3);
        f.input.request.context_tokens = 130;
        f.input.request.sequences = 2;
        f.input.request.kv_format = format;
        f.layers[1].state_bytes = 1000;
        l = fixture_build(&f, &choice);
        assert_int_equal(l->pages_per_sequence, 3);
        assert_int_equal(l->pages_total, 6);
        assert_int_equal(l->layers[2].page_bytes, page_bytes[format]);
        assert_int_equal(strata__layout_find_session(l, STRATA__BUFFER_KV_PAGES)->bytes,
                         6 * 6 * page_bytes[format]);
        assert_int_equal(strata__layout_find_session(l, STRATA__BUFFER_PAGE_TABLE)->row_capacity,
                         2);
        assert_int_equal(strata__layout_find_session(l, STRATA__BUFFER_PAGE_TABLE)->row_bytes, 12);
        assert_int_equal(strata__layout_find_session(l, STRATA__BUFFER_STATE)->bytes, 4096);
        assert_int_equal(strata__layout_find_session(l, STRATA__BUFFER_WEIGHTS)->bytes,
                         100096 + 12544);
        assert_int_equal(l->tensor_offsets[0], 0);
        assert_int_equal(l->tensor_offsets[1], 100096);
        strata__layout_destroy(l);
    }
}

/* Sequences that share their pages have fewer of them; the table stays as large as it can be. */
static void pages_of_all_sequences_together(void **state)
{
    static const struct {
        uint64_t kv_tokens;
        uint32_t pages;
    } cases[] = {{0, 12}, {130, 3}, {192, 3}, {193, 4}, {700, 11}, {10000, 12}, {UINT64_MAX, 12}};
    (void)state;
    for (uint32_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        layout_fixture f;
        strata__layout_choice choice = {.chunk_tokens = 10};
        strata__layout *l;
        fixture_small(&f, 1);
        f.input.request.context_tokens = 130;
        f.input.request.sequences = 4;
        f.input.request.kv_format = STRATA__LAYOUT_KV_F32;
        f.input.request.kv_tokens = cases[i].kv_tokens;
        l = fixture_build(&f, &choice);
        assert_int_equal(l->pages_per_sequence, 3);
        assert_int_equal(l->pages_total, cases[i].pages);
        assert_int_equal(strata__layout_find_session(l, STRATA__BUFFER_KV_PAGES)->bytes,
                         2 * cases[i].pages * l->layers[0].page_bytes);
        assert_int_equal(strata__layout_find_session(l, STRATA__BUFFER_PAGE_TABLE)->bytes,
                         4 * 3 * 4);
        strata__layout_destroy(l);
    }
}

static void a_device_that_reads_host_memory_gets_no_copies(void **state)
{
    layout_fixture f;
    strata__layout_choice choice = {.chunk_tokens = 10};
    uint32_t resident[1] = {1};
    strata__layout *l;
    (void)state;
    fixture_small(&f, 1);
    f.input.facts.host_addressable = 1;
    l = fixture_build(&f, &choice);
    assert_null(strata__layout_find_session(l, STRATA__BUFFER_WEIGHTS));
    assert_null(strata__layout_find_session(l, STRATA__BUFFER_CACHE));
    assert_null(strata__layout_find_work(&l->prompt, STRATA__BUFFER_RING));
    assert_int_equal(l->pinned_bytes, 0);
    assert_int_equal(l->prediction.link_ns, 0);
    assert_int_equal(l->prediction.copied_bytes, 0);
    assert_int_equal(l->layers[0].group_experts, 0);
    strata__layout_destroy(l);
    choice.resident = resident;
    assert_int_equal(strata__layout_build(strata__allocator_default(), &f.input, &choice, &l),
                     STRATA_ERR_INVALID_ARGUMENT);
    fixture_text_has("layer 0: 1 experts cannot be resident");
}

static void segments_have_room_for_every_tile(void **state)
{
    layout_fixture f;
    strata__layout_choice choice = {.chunk_tokens = 100, .dense_tile = 32, .attention_tile = 10};
    strata__layout *l;
    (void)state;
    fixture_small(&f, 1);
    f.input.request.sequences = 3;
    l = fixture_build(&f, &choice);
    /* 4 dense tiles and, in each, up to 4 of attention; two more sequences cut both. */
    assert_int_equal(l->prompt.segment_capacity, 4 + 16 + 4);
    assert_int_equal(strata__layout_find_work(&l->prompt, STRATA__BUFFER_SEGMENTS)->row_capacity,
                     24);
    strata__layout_destroy(l);
}

/* A loan is the last part of the cache, and as large as the prompt's region. */
static void a_loan_is_part_of_the_cache(void **state)
{
    layout_fixture f;
    uint32_t resident[2] = {3, 2};
    strata__layout_choice choice = {.chunk_tokens = 64, .resident = resident};
    strata__layout *own, *lent;
    const strata__layout_buffer *cache;
    (void)state;
    fixture_small(&f, 2);
    own = fixture_build(&f, &choice);
    f.input.request.borrow = 1;
    lent = fixture_build(&f, &choice);
    cache = strata__layout_find_session(lent, STRATA__BUFFER_CACHE);
    assert_int_equal(lent->prompt_bytes, own->prompt_bytes);
    assert_int_equal(lent->device_bytes, own->device_bytes);
    assert_int_equal(lent->loan_offset + lent->loan_bytes, cache->offset + cache->bytes);
    assert_int_equal(lent->cache_bytes, own->cache_bytes + own->prompt_bytes);
    assert_true(lent->prediction.refill_ns > 0);
    assert_int_equal(own->prediction.refill_ns, 0);
    assert_int_equal(lent->prediction.prompt_ns,
                     own->prediction.prompt_ns + lent->prediction.refill_ns);
    strata__layout_destroy(own);
    strata__layout_destroy(lent);
}

/* Scratch of split attention grows with the context; beyond 32 MiB rows go in turns. */
static void rows_of_decoding_go_in_turns(void **state)
{
    static const struct {
        uint64_t context;
        uint32_t rows;
    } cases[] = {{1024, 16}, {8192, 16}, {1u << 17, 12}, {1u << 20, 8}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        strata__layout_choice choice = {.chunk_tokens = 64, .logit_tile = 1};
        const strata__layout_buffer *scratch;
        strata__layout_layer layers[2];
        layout_fixture f;
        strata__layout *l;
        fixture_small(&f, 2);
        for (int k = 0; k < 2; ++k) {
            layers[k] = f.input.geometry.layers[k];
            layers[k].heads = 32;
            layers[k].kv_heads = 4;
            layers[k].head_size = 128;
        }
        f.input.geometry.layers = layers;
        f.input.facts.attention_split_keys = 128;
        f.input.request.context_tokens = cases[i].context;
        f.input.request.prompt_tokens = 64;
        f.input.request.decode_rows = 16;
        l = fixture_build(&f, &choice);
        scratch = strata__layout_find(&l->decode, 0, STRATA__BUFFER_ATTENTION_SCRATCH);
        assert_int_equal(l->decode.attention_tile, cases[i].rows);
        assert_int_equal(scratch->row_capacity, cases[i].rows);
        assert_true(scratch->bytes <= 32u << 20);
        assert_int_equal(l->decode.split_keys, 128);
        assert_int_equal(l->prompt.split_keys, 0);
        strata__layout_destroy(l);
    }
}

static void host_memory_is_pinned_up_to_its_budget(void **state)
{
    layout_fixture f;
    strata__layout_choice choice = {.chunk_tokens = 64, .logit_tile = 1};
    strata__layout *all, *part;
    uint64_t experts;
    (void)state;
    fixture_small(&f, 2);
    all = fixture_build(&f, &choice);
    experts = 2 * 16 * all->layers[0].slot_bytes;
    assert_int_equal(all->pinned_bytes, experts);
    assert_int_equal(all->staged_bytes, 0);
    f.input.request.host_budget_bytes = all->host_bytes + experts;
    part = fixture_build(&f, &choice);
    assert_true(fixture_equal(all, part));
    strata__layout_destroy(part);
    f.input.request.host_budget_bytes--;
    part = fixture_build(&f, &choice);
    assert_non_null(strata__layout_find_host(part, STRATA__BUFFER_HOST_STAGING));
    assert_int_equal(part->pinned_bytes + part->staged_bytes, experts);
    assert_true(part->host_bytes + part->pinned_bytes == f.input.request.host_budget_bytes ||
                part->pinned_bytes == 0);
    assert_true(part->prediction.link_ns > all->prediction.link_ns);
    strata__layout_destroy(part);
    strata__layout_destroy(all);
}

/* A ring that holds a layer lets copies run through the attention before it. */
static void a_larger_ring_is_predicted_to_be_faster(void **state)
{
    layout_fixture f;
    strata__layout_choice choice = {.chunk_tokens = 8192};
    strata__layout *small, *large;
    (void)state;
    fixture_mixed(&f);
    f.input.facts.link_bytes_per_second = 5e9;
    small = fixture_build(&f, &choice);
    choice.ring_bytes = 4ull << 30;
    large = fixture_build(&f, &choice);
    assert_true(large->prediction.prompt_ns < small->prediction.prompt_ns);
    assert_int_equal(large->prediction.link_ns, small->prediction.link_ns);
    strata__layout_destroy(small);
    strata__layout_destroy(large);
}

/* Experts are started anew for every launch and for every filling of the scratch. */
static void small_launches_and_scratches_cost_time(void **state)
{
    layout_fixture f;
    strata__layout_problem *p = malloc(sizeof *p);
    strata__layout_spec large = {.chunk = 4096,
                                 .dense_tile = 4096,
                                 .attention_tile = 4096,
                                 .expert_tile = 1u << 20,
                                 .logit_tile = 1,
                                 .scratch_bytes = 1ull << 30};
    strata__layout_spec narrow = large, small = large;
    double least, round;
    (void)state;
    assert_non_null(p);
    fixture_mixed(&f);
    fixture_ok(strata__layout_problem_init(p, strata__allocator_default(), &f.input));
    strata__layout_bands(&large);
    narrow.scratch_bytes = 8u << 20;
    small.expert_tile = 4096;
    for (uint32_t path = STRATA__LAYOUT_FUSED; path <= STRATA__LAYOUT_FP16; ++path) {
        least = strata__layout_expert_seconds(p, &large, &f.layers[0], path, 4096);
        round = strata__layout_launch_seconds(p, &f.layers[0], path);
        assert_true(strata__layout_expert_seconds(p, &narrow, &f.layers[0], path, 4096) >
                    least + round);
        assert_true(strata__layout_expert_seconds(p, &small, &f.layers[0], path, 4096) >
                    least + 8 * round);
    }
    free(p);
}

/* Fetching beats streaming when few rows use few experts. */
static void short_steps_fetch(void **state)
{
    layout_fixture f;
    strata__layout_choice choice = {.chunk_tokens = 4096};
    strata__layout *l;
    (void)state;
    fixture_mixed(&f);
    l = fixture_build(&f, &choice);
    assert_int_equal(l->prompt.bands[0].fetch, 1);
    assert_int_equal(l->prompt.bands[3].fetch, 0);
    strata__layout_destroy(l);
}

/* Where all experts fit, prompts can come to need the ring of decoding, and two groups fit it. */
static void the_ring_of_prompts_that_come_to_lack_experts(void **state)
{
    uint32_t resident[48];
    strata__layout_choice choice = {.chunk_tokens = 4096};
    const strata__layout_buffer *ring;
    layout_fixture f;
    strata__layout *l;
    (void)state;
    fixture_mixed(&f);
    f.input.request.decode_rows = 4;
    l = fixture_build(&f, &choice);
    assert_ptr_equal(strata__layout_find_ring(l),
                     strata__layout_find_work(&l->prompt, STRATA__BUFFER_RING));
    strata__layout_destroy(l);
    for (uint32_t i = 0; i < 48; ++i)
        resident[i] = 512;
    choice.resident = resident;
    for (choice.group_bytes = 0; choice.group_bytes <= 64u << 20; choice.group_bytes += 32u << 20) {
        l = fixture_build(&f, &choice);
        ring = strata__layout_find_ring(l);
        assert_int_equal(l->ring_bytes, 0);
        assert_null(strata__layout_find_work(&l->prompt, STRATA__BUFFER_RING));
        assert_ptr_equal(ring, strata__layout_find_work(&l->decode, STRATA__BUFFER_RING));
        for (uint32_t i = 0; i < 48; ++i) {
            uint64_t experts = l->group_bytes / l->layers[i].slot_bytes;
            assert_true(2 * (experts ? experts : 1) * l->layers[i].slot_bytes <= ring->bytes);
        }
        assert_int_equal(l->prediction.copied_bytes, 0);
        assert_int_equal(l->prompt.bands[0].fetch, 1);
        assert_int_equal(l->prompt.bands[3].fetch, 0);
        strata__layout_destroy(l);
    }
    f.input.request.decode_rows = 0;
    l = fixture_build(&f, &choice);
    assert_null(strata__layout_find_ring(l));
    strata__layout_destroy(l);
    f.input.request.decode_rows = 4;
    f.input.request.experts = STRATA__LAYOUT_EXPERTS_RESIDENT;
    l = fixture_build(&f, &choice);
    assert_null(strata__layout_find_ring(l));
    strata__layout_destroy(l);
}

/*
 * The least top of any placement, by trying all orders of first fit, which reach every tight one.
 */
static uint64_t first_fit_top(const strata__layout_buffer *b, const uint32_t *order, uint32_t count)
{
    uint64_t offsets[8], top = 0;
    for (uint32_t i = 0; i < count; ++i) {
        const strata__layout_buffer *one = &b[order[i]];
        uint64_t at = 0;
        bool moved = true;
        while (moved) {
            moved = false;
            for (uint32_t j = 0; j < i; ++j) {
                const strata__layout_buffer *other = &b[order[j]];
                bool meet =
                    one->first_stage <= other->last_stage && other->first_stage <= one->last_stage;
                if (meet && at < offsets[j] + other->bytes && offsets[j] < at + one->bytes) {
                    at = offsets[j] + other->bytes;
                    moved = true;
                }
            }
        }
        offsets[i] = at;
        top = at + one->bytes > top ? at + one->bytes : top;
    }
    return top;
}

static uint64_t least_top(const strata__layout_buffer *b, uint32_t *order, uint32_t fixed,
                          uint32_t count)
{
    uint64_t least = UINT64_MAX;
    if (fixed == count)
        return first_fit_top(b, order, count);
    for (uint32_t i = fixed; i < count; ++i) {
        uint64_t top;
        uint32_t swap = order[i];
        order[i] = order[fixed];
        order[fixed] = swap;
        top = least_top(b, order, fixed + 1, count);
        least = top < least ? top : least;
        order[fixed] = order[i];
        order[i] = swap;
    }
    return least;
}

static void placing_is_close_to_the_best(void **state)
{
    uint64_t seed = 3, sum = 0, best_sum = 0;
    uint32_t exact = 0;
    enum { RUNS = 500 };
    (void)state;
    for (uint32_t run = 0; run < RUNS; ++run) {
        strata__layout_buffer b[6], again[6];
        uint32_t order[6], count = (uint32_t)fixture_next(&seed, 1, 6);
        uint64_t bytes, best;
        for (uint32_t i = 0; i < count; ++i) {
            uint32_t x = (uint32_t)fixture_next(&seed, 0, 5);
            uint32_t y = (uint32_t)fixture_next(&seed, 0, 5);
            b[i] = (strata__layout_buffer){.id = i,
                                           .first_stage = x < y ? x : y,
                                           .last_stage = x < y ? y : x,
                                           .bytes = 8 * fixture_next(&seed, 1, 20)};
            order[i] = i;
        }
        memcpy(again, b, sizeof b);
        bytes = strata__layout_overlay(b, count, 8);
        assert_int_equal(bytes, strata__layout_overlay(again, count, 8));
        assert_memory_equal(b, again, count * sizeof b[0]);
        assert_true(bytes >= strata__layout_overlay_bound(b, count, 8));
        best = least_top(b, order, 0, count);
        assert_true(bytes >= best);
        assert_true(bytes * 10 <= best * 12);
        exact += bytes == best;
        sum += bytes;
        best_sum += best;
    }
    assert_true(exact * 100 >= RUNS * 95);
    assert_true(sum * 1000 <= best_sum * 1005);
    assert_int_equal(strata__layout_overlay(NULL, 0, 8), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_thing_has_a_name_of_its_own),
        cmocka_unit_test(look_ups_answer_nothing_beyond_the_tables),
        cmocka_unit_test(session_sizes),
        cmocka_unit_test(pages_of_all_sequences_together),
        cmocka_unit_test(a_device_that_reads_host_memory_gets_no_copies),
        cmocka_unit_test(segments_have_room_for_every_tile),
        cmocka_unit_test(a_loan_is_part_of_the_cache),
        cmocka_unit_test(rows_of_decoding_go_in_turns),
        cmocka_unit_test(host_memory_is_pinned_up_to_its_budget),
        cmocka_unit_test(a_larger_ring_is_predicted_to_be_faster),
        cmocka_unit_test(small_launches_and_scratches_cost_time),
        cmocka_unit_test(short_steps_fetch),
        cmocka_unit_test(the_ring_of_prompts_that_come_to_lack_experts),
        cmocka_unit_test(placing_is_close_to_the_best),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
