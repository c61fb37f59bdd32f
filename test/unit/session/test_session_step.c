/* SPDX-License-Identifier: MIT */
/* Steps with rows of several sequences: each sequence gets the bits that it gets alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "session/step.h"
#include "support/ok.h"
#include "support/tiny_pack.h"

enum { SEQUENCES = 3, LONGEST = 90, CHUNK = 40, VOCABULARY = 96 };

typedef struct bench {
    uint8_t *image;
    strata_context *context;
    strata__pack *pack;
    strata_session *session;
    strata_prefill *prefill;
    int32_t tokens[SEQUENCES][LONGEST];
    float *alone[SEQUENCES]; /* logits of all positions */
} bench;

static void read_alone(bench *b, uint32_t sequence)
{
    strata_prefill_request request = {.struct_size = sizeof request};
    strata_prefill_result result = {0};
    uint64_t length;
    b->alone[sequence] = calloc(LONGEST * VOCABULARY, sizeof(float));
    request.sequence_id = (int32_t)sequence;
    request.tokens = b->tokens[sequence];
    request.token_count = LONGEST;
    request.logits = b->alone[sequence];
    request.logits_capacity = LONGEST * VOCABULARY;
    request.logits_mode = STRATA_LOGITS_ALL;
    ok(strata__prefill_run(b->prefill, &request, &result));
    ok(strata__session_truncate(b->session, (int32_t)sequence, 0, &length));
}

static void bench_open(bench *b)
{
    strata_context_options context_options = {.struct_size = sizeof context_options};
    strata_plan_options plan = {.struct_size = sizeof plan,
                                .chunk_tokens = CHUNK,
                                .context_tokens = 128,
                                .sequence_count = SEQUENCES};
    strata_session_options options = {
        .struct_size = sizeof options, .plan_options = &plan, .thread_count = 1, .blas = 1};
    strata_prefill_options prefill_options = {.struct_size = sizeof prefill_options};
    tiny_spec spec = tiny_spec_default();
    uint64_t bytes, random = 17;
    memset(b, 0, sizeof *b);
    spec.architecture = "qwen2moe";
    spec.shared_width = 32;
    spec.vocabulary = VOCABULARY;
    b->image = tiny_pack_make(&spec, &bytes);
    ok(strata__context_create(&context_options, &b->context));
    ok(strata__pack_open_memory(b->context, b->image, bytes, &b->pack));
    ok(strata__session_create(b->pack, &options, &b->session));
    ok(strata__prefill_create(b->session, &prefill_options, &b->prefill));
    for (uint32_t s = 0; s < SEQUENCES; ++s) {
        for (uint32_t i = 0; i < LONGEST; ++i)
            b->tokens[s][i] = (int32_t)(tiny_random(&random) % VOCABULARY);
        read_alone(b, s);
    }
}

static void bench_close(bench *b)
{
    strata__prefill_destroy(b->prefill);
    strata__session_release(b->session);
    strata__pack_release(b->pack);
    strata__context_release(b->context);
    free(b->image);
    for (uint32_t s = 0; s < SEQUENCES; ++s)
        free(b->alone[s]);
}

/* `rows` more tokens of each sequence (0: none) in one step; their logits are compared. */
static void run_step(bench *b, const uint32_t *rows, uint64_t *positions, uint64_t index)
{
    strata__step_part parts[SEQUENCES] = {{0}};
    float *logits = calloc(CHUNK * VOCABULARY, sizeof *logits);
    strata__step step = {0};
    uint32_t row = 0;
    step.session = b->session;
    step.work = &b->session->layout->prompt;
    step.base = b->prefill->memory.base;
    strata__step_use(&step, &b->prefill->host);
    step.parts = parts;
    step.chunk = index;
    for (uint32_t s = 0; s < SEQUENCES; ++s) {
        if (!rows[s])
            continue;
        parts[step.part_count++] =
            (strata__step_part){b->tokens[s] + positions[s], s, rows[s], positions[s]};
        step.rows += rows[s];
        ok(strata__kv_reserve(&b->session->kv, s, positions[s] + rows[s]));
    }
    ok(strata__step_begin(&step));
    ok(strata__step_embed(&step));
    for (uint32_t layer = 0; layer < b->session->geometry->layers; ++layer) {
        strata__step_layer(&step, layer);
        ok(strata__step_attention(&step));
        ok(strata__step_ffn(&step));
    }
    ok(strata__step_logits(&step, 0, step.rows, logits));
    for (uint32_t s = 0; s < SEQUENCES; row += rows[s++]) {
        assert_memory_equal(logits + row * VOCABULARY, b->alone[s] + positions[s] * VOCABULARY,
                            rows[s] * VOCABULARY * sizeof *logits);
        positions[s] += rows[s];
        strata__kv_set_length(&b->session->kv, s, positions[s]);
    }
    free(logits);
}

static void ragged_steps_give_the_bits_of_each_alone(void **state)
{
    static const uint32_t steps[][SEQUENCES] = {{5, 0, 9},  {1, 1, 1}, {0, 12, 20},  {17, 3, 11},
                                                {1, 0, 1},  {0, 1, 0}, {13, 13, 14}, {40, 0, 0},
                                                {1, 38, 1}, {2, 2, 2}};
    uint64_t positions[SEQUENCES] = {0};
    bench b;
    (void)state;
    bench_open(&b);
    for (uint64_t i = 0; i < sizeof steps / sizeof steps[0]; ++i)
        run_step(&b, steps[i], positions, i);
    bench_close(&b);
}

/* The segments of every tile cover its rows once, in order, and know their positions. */
static void segments_cover_the_rows(void **state)
{
    uint64_t random = 3;
    bench b;
    (void)state;
    bench_open(&b);
    for (int turn = 0; turn < 200; ++turn) {
        strata__step_part parts[SEQUENCES] = {{0}};
        strata__step step = {0};
        strata__layout_work work = b.session->layout->prompt;
        uint32_t row_sequence[CHUNK], row_position[CHUNK], tile = 0, first;
        work.dense_tile = 1 + (uint32_t)(tiny_random(&random) % CHUNK);
        work.attention_tile = 1 + (uint32_t)(tiny_random(&random) % work.dense_tile);
        if (work.dense_tile < b.session->layout->prompt.dense_tile / 4 || work.attention_tile < 4)
            continue;
        step.session = b.session;
        step.work = &work;
        step.base = b.prefill->memory.base;
        strata__step_use(&step, &b.prefill->host);
        step.tile_segment = calloc(256, sizeof(uint32_t));
        step.tile_capacity = 255;
        step.parts = parts;
        for (uint32_t s = 0; s < SEQUENCES; ++s) {
            uint32_t rows = 1 + (uint32_t)(tiny_random(&random) % (CHUNK / SEQUENCES));
            uint64_t position = tiny_random(&random) % 50;
            parts[step.part_count++] = (strata__step_part){b.tokens[s], s, rows, position};
            for (uint32_t i = 0; i < rows; ++i) {
                row_sequence[step.rows] = s;
                row_position[step.rows++] = (uint32_t)position + i;
            }
        }
        if (strata__step_begin(&step) == STRATA_OK) {
            for (first = 0; first < step.rows; first += work.dense_tile, ++tile) {
                uint32_t next = first;
                for (uint32_t i = step.tile_segment[tile]; i < step.tile_segment[tile + 1]; ++i) {
                    const strata__segment *s = &step.host_segments[i];
                    assert_int_equal(first + s->first_row, next);
                    assert_int_equal(s->sequence, row_sequence[next]);
                    assert_int_equal(s->position, row_position[next]);
                    next += s->rows;
                    assert_int_equal(row_sequence[next - 1], s->sequence);
                }
                assert_int_equal(next, step.rows < first + work.dense_tile
                                           ? step.rows
                                           : first + work.dense_tile);
            }
            assert_int_equal(tile, step.dense_tiles);
        }
        free(step.tile_segment);
    }
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ragged_steps_give_the_bits_of_each_alone),
        cmocka_unit_test(segments_cover_the_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
