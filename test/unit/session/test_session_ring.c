/* SPDX-License-Identifier: MIT */
/*
 * The ring alone: where pieces go, the life of a slot, and that bytes which are still to be read
 * are never given to another piece, for rings of any size and pieces that differ by a factor of
 * four.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/task.h"
#include "device/delaying.h"
#include "session/ring.h"
#include "support/ok.h"
#include "support/tiny_pack.h"

enum { RING_BYTES = 4096, SLOTS = 40, PIECES = 200 };

typedef struct bench {
    strata_context *context;
    strata__device *device;
    strata__stream *copies;
    strata__stream *kernels;
    strata__ring ring;
    uint64_t ring_bytes;
    uint8_t *memory;
    uint8_t *host; /* [256] a byte of each value */
    uint8_t *out;  /* [PIECES] what each piece's kernel read */
} bench;

static void bench_open(bench *b, uint32_t policy, uint64_t seed, uint64_t ring_bytes)
{
    const strata_context_options none = {.struct_size = sizeof none};
    const strata__delaying_options options = {.policy = policy, .seed = seed};
    memset(b, 0, sizeof *b);
    b->ring_bytes = ring_bytes;
    ok(strata__context_create(&none, &b->context));
    ok(strata__delaying_device_open(b->context, &options, &b->device));
    ok(b->device->ops->stream_create(b->device, &b->copies));
    ok(b->device->ops->stream_create(b->device, &b->kernels));
    ok(strata__ring_init(&b->ring, b->device, b->copies, b->kernels, ring_bytes, SLOTS));
    ok(b->device->ops->alloc(b->device, ring_bytes, "the ring", (void **)&b->memory));
    ok(b->device->ops->alloc(b->device, PIECES, "results", (void **)&b->out));
    ok(b->device->ops->host_alloc(b->device, 256 * RING_BYTES, "blobs", (void **)&b->host));
    for (uint32_t i = 0; i < 256; ++i)
        memset(b->host + i * RING_BYTES, (int)i, RING_BYTES);
}

static void bench_close(bench *b)
{
    strata__delaying_usage usage;
    ok(b->device->ops->stream_synchronize(b->device, b->kernels));
    ok(b->device->ops->stream_synchronize(b->device, b->copies));
    strata__ring_finish(&b->ring);
    b->device->ops->host_free(b->device, b->host, 256 * RING_BYTES);
    b->device->ops->free(b->device, b->out, PIECES);
    b->device->ops->free(b->device, b->memory, b->ring_bytes);
    b->device->ops->stream_destroy(b->device, b->kernels);
    b->device->ops->stream_destroy(b->device, b->copies);
    strata__delaying_usage_get(b->device, &usage);
    assert_int_equal(usage.events, 0);
    b->device->ops->destroy(b->device);
    strata__context_release(b->context);
}

static void no_piece_straddles_the_end(void **state)
{
    uint64_t random = 3;
    (void)state;
    for (uint32_t round = 0; round < 1000; ++round) {
        uint64_t largest = 1 + tiny_random(&random) % 500;
        uint64_t ring = 2 * largest + tiny_random(&random) % 2000, cursor = 0, end = 0;
        for (uint32_t i = 0; i < 50; ++i) {
            uint64_t bytes = largest / 4 + tiny_random(&random) % (largest - largest / 4) + 1;
            uint64_t offset;
            if (bytes > largest)
                bytes = largest;
            offset = strata__ring_place(ring, bytes, &cursor);
            assert_true(offset + bytes <= ring);
            assert_true(offset == end || (offset == 0 && bytes > ring - end));
            assert_int_equal(cursor, offset + bytes);
            end = cursor;
        }
    }
}

typedef struct reader {
    const uint8_t *from;
    uint64_t bytes;
    uint8_t *to;
} reader;

/* The piece's value if all of its bytes have it, else its complement. */
static void run_reader(const void *arguments)
{
    const reader *r = arguments;
    uint8_t value = r->from[0];
    for (uint64_t i = 1; i < r->bytes; ++i)
        if (r->from[i] != r->from[0])
            value = (uint8_t)~r->from[0];
    *r->to = value;
}

typedef struct piece {
    uint64_t offset;
    uint64_t bytes;
    strata__ring_piece ring;
} piece;

static bool send(bench *b, piece *p, uint32_t number)
{
    ok(strata__ring_claim(&b->ring, p->offset, p->bytes, &p->ring));
    if (!p->ring.tenant)
        return false;
    ok(b->device->ops->copy(b->device, b->copies, b->memory + p->offset,
                            b->host + number % 256 * RING_BYTES, p->bytes));
    ok(strata__ring_copied(&b->ring, &p->ring, p->bytes));
    return true;
}

static void use(bench *b, const piece *p, uint32_t number)
{
    strata__task_queue *queue = b->kernels->native;
    const reader r = {b->memory + p->offset, p->bytes, b->out + number};
    ok(strata__ring_use(&b->ring, &p->ring));
    ok(queue->enqueue(queue, run_reader, &r, sizeof r));
    ok(strata__ring_release(&b->ring, &p->ring));
}

/* Pieces are sent as far ahead as they fit and read in order: each kernel finds its own bytes. */
static void run_pieces(uint32_t policy, uint64_t seed)
{
    uint64_t random = seed + 1, cursor = 0, largest = 64 + tiny_random(&random) % 1000;
    uint64_t ring_bytes = 2 * largest + tiny_random(&random) % 1500;
    piece *pieces = calloc(PIECES, sizeof *pieces);
    bool used[PIECES];
    uint32_t sent = 0;
    bench b;
    assert_non_null(pieces);
    bench_open(&b, policy, seed, ring_bytes);
    for (uint32_t i = 0; i < PIECES; ++i) {
        pieces[i].bytes = largest - tiny_random(&random) % (largest - largest / 4);
        pieces[i].offset = strata__ring_place(ring_bytes, pieces[i].bytes, &cursor);
    }
    for (uint32_t i = 0; i < PIECES; ++i) {
        while (sent < PIECES && tiny_random(&random) % 4 && send(&b, &pieces[sent], sent))
            ++sent;
        if (sent == i) {
            assert_true(send(&b, &pieces[sent], sent));
            ++sent;
        }
        if (tiny_random(&random) % 2)
            ok(strata__ring_poll(&b.ring));
        used[i] = tiny_random(&random) % 8 != 0;
        if (used[i])
            use(&b, &pieces[i], i);
        else
            ok(strata__ring_release(&b.ring, &pieces[i].ring)); /* in vain */
    }
    ok(b.device->ops->stream_synchronize(b.device, b.kernels));
    for (uint32_t i = 0; i < PIECES; ++i)
        assert_int_equal(b.out[i], used[i] ? i : 0xff);
    ok(b.device->ops->stream_synchronize(b.device, b.copies));
    ok(strata__ring_poll(&b.ring));
    assert_int_equal(b.ring.outstanding_bytes, 0);
    bench_close(&b);
    free(pieces);
}

static void kernels_find_their_own_bytes(void **state)
{
    (void)state;
    for (uint32_t policy = 0; policy < STRATA__DELAYING_POLICY_COUNT; ++policy)
        for (uint64_t seed = 0; seed < 40; ++seed)
            run_pieces(policy, seed);
}

static uint32_t state_of(const bench *b, const strata__ring_piece *p)
{
    return b->ring.slots[p->slot].state;
}

static void the_life_of_a_piece(void **state)
{
    piece first = {.offset = 0, .bytes = 100}, second = {.offset = 50, .bytes = 100};
    bench b;
    (void)state;
    bench_open(&b, STRATA__DELAYING_COPIES_LATE, 1, RING_BYTES);
    assert_true(send(&b, &first, 1));
    assert_int_equal(state_of(&b, &first.ring), STRATA__RING_COPYING);
    assert_int_equal(b.ring.outstanding_bytes, 100);
    /* Its bytes are not to be had before its last reader is recorded. */
    assert_false(send(&b, &second, 2));
    ok(b.device->ops->stream_synchronize(b.device, b.copies));
    ok(strata__ring_poll(&b.ring));
    assert_int_equal(state_of(&b, &first.ring), STRATA__RING_READY);
    assert_int_equal(b.ring.outstanding_bytes, 0);
    assert_true(strata__ring_is_ready(&b.ring, &first.ring));
    assert_false(send(&b, &second, 2));
    ok(strata__ring_use(&b.ring, &first.ring));
    assert_int_equal(state_of(&b, &first.ring), STRATA__RING_IN_USE);
    assert_false(send(&b, &second, 2));
    ok(strata__ring_release(&b.ring, &first.ring));
    assert_int_equal(state_of(&b, &first.ring), STRATA__RING_FREE);
    assert_true(send(&b, &second, 2));
    use(&b, &second, 2);
    ok(b.device->ops->stream_synchronize(b.device, b.kernels));
    assert_int_equal(b.out[2], 2);
    bench_close(&b);
}

/* Pieces without bytes of the ring take slots until their copies are known to be done. */
static void pieces_of_the_cache(void **state)
{
    piece pieces[SLOTS + 1];
    bench b;
    (void)state;
    bench_open(&b, STRATA__DELAYING_COPIES_LATE, 1, RING_BYTES);
    for (uint32_t i = 0; i < SLOTS; ++i) {
        pieces[i] = (piece){0, 0, {0}};
        ok(strata__ring_claim(&b.ring, 0, 0, &pieces[i].ring));
        assert_true(pieces[i].ring.tenant);
        ok(strata__ring_copied(&b.ring, &pieces[i].ring, 10));
    }
    ok(strata__ring_claim(&b.ring, 0, 0, &pieces[SLOTS].ring));
    assert_false(pieces[SLOTS].ring.tenant);
    assert_int_equal(b.ring.outstanding_bytes, 10 * SLOTS);
    ok(strata__ring_make_room(&b.ring));
    ok(strata__ring_claim(&b.ring, 0, 0, &pieces[SLOTS].ring));
    assert_true(pieces[SLOTS].ring.tenant);
    /* A piece whose slot has another tenant is done: nothing to wait for. */
    assert_true(strata__ring_is_ready(&b.ring, &pieces[0].ring));
    ok(strata__ring_use(&b.ring, &pieces[0].ring));
    ok(strata__ring_release(&b.ring, &pieces[0].ring));
    strata__ring_reset(&b.ring);
    assert_int_equal(b.ring.outstanding_bytes, 0);
    bench_close(&b);
}

static void pieces_beyond_the_ring_are_refused(void **state)
{
    strata__ring_piece p;
    bench b;
    (void)state;
    bench_open(&b, STRATA__DELAYING_RANDOM, 1, RING_BYTES);
    assert_int_equal(strata__ring_claim(&b.ring, 1, RING_BYTES, &p), STRATA_ERR_INTERNAL);
    assert_int_equal(strata__ring_claim(&b.ring, RING_BYTES + 1, 0, &p), STRATA_ERR_INTERNAL);
    assert_int_equal(strata__ring_claim(&b.ring, 0, RING_BYTES, &p), STRATA_OK);
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_piece_straddles_the_end),
        cmocka_unit_test(kernels_find_their_own_bytes),
        cmocka_unit_test(the_life_of_a_piece),
        cmocka_unit_test(pieces_of_the_cache),
        cmocka_unit_test(pieces_beyond_the_ring_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
