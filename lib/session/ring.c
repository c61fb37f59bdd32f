/* SPDX-License-Identifier: MIT */
#include "session/ring.h"

#include <string.h>

#include "base/error.h"

static const uint32_t no_slot = 0xffffffffu;

uint64_t strata__ring_place(uint64_t ring_bytes, uint64_t bytes, uint64_t *cursor)
{
    uint64_t offset = *cursor;
    if (bytes > ring_bytes - offset)
        offset = 0;
    *cursor = offset + bytes;
    return offset;
}

strata_status strata__ring_init(strata__ring *ring, strata__device *device, strata__stream *copies,
                                strata__stream *kernels, uint64_t bytes, uint32_t slot_count)
{
    const strata__device_ops *ops = device->ops;
    strata_status status = STRATA_OK;
    memset(ring, 0, sizeof *ring);
    ring->device = device;
    ring->copies = copies;
    ring->kernels = kernels;
    ring->bytes = bytes;
    ring->slots = strata__calloc(&device->context->allocator, slot_count, sizeof *ring->slots);
    if (!ring->slots)
        return strata__fail_memory(slot_count * sizeof *ring->slots, "the ring's pieces");
    ring->slot_count = slot_count;
    for (uint32_t i = 0; i < slot_count && status == STRATA_OK; ++i) {
        strata__ring_slot *slot = &ring->slots[i];
        status = ops->event_create(device, true, &slot->begun);
        if (status == STRATA_OK)
            status = ops->event_create(device, true, &slot->ready);
        if (status == STRATA_OK)
            status = ops->event_create(device, false, &slot->used);
    }
    return status;
}

void strata__ring_finish(strata__ring *ring)
{
    if (!ring->device)
        return;
    for (uint32_t i = 0; i < ring->slot_count; ++i) {
        strata__event *const events[3] = {ring->slots[i].begun, ring->slots[i].ready,
                                          ring->slots[i].used};
        for (int k = 0; k < 3; ++k)
            if (events[k])
                ring->device->ops->event_destroy(ring->device, events[k]);
    }
    strata__free(&ring->device->context->allocator, ring->slots,
                 ring->slot_count * sizeof *ring->slots);
    memset(ring, 0, sizeof *ring);
}

static bool overlaps(const strata__ring_slot *slot, uint64_t offset, uint64_t bytes)
{
    return slot->offset < offset + bytes && offset < slot->offset + slot->bytes;
}

static bool is_alive(const strata__ring_slot *slot)
{
    return slot->state != STRATA__RING_FREE || slot->kept;
}

/* Whether the bytes are free, and a slot to remember their new tenant in. */
static bool find_room(const strata__ring *ring, uint64_t offset, uint64_t bytes, uint32_t *out)
{
    *out = no_slot;
    for (uint32_t i = 0; i < ring->slot_count; ++i) {
        const strata__ring_slot *slot = &ring->slots[i];
        if (is_alive(slot) && overlaps(slot, offset, bytes)) {
            if (slot->state != STRATA__RING_FREE)
                return false;
            *out = i; /* its event has to be waited for before it is reused */
        } else if (!is_alive(slot) && *out == no_slot) {
            *out = i;
        }
    }
    return *out != no_slot;
}

/* The copy stream waits for the readers of the bytes, whose slots are forgotten. */
static strata_status wait_for_readers(strata__ring *ring, uint64_t offset, uint64_t bytes)
{
    strata_status status = STRATA_OK;
    for (uint32_t i = 0; i < ring->slot_count && status == STRATA_OK; ++i) {
        strata__ring_slot *slot = &ring->slots[i];
        if (!slot->kept || !overlaps(slot, offset, bytes))
            continue;
        if (slot->read)
            status = ring->device->ops->stream_wait(ring->device, ring->copies, slot->used);
        if (!slot->counted)
            ring->outstanding_bytes -= slot->copy_bytes;
        slot->kept = false;
        slot->counted = true;
    }
    return status;
}

strata_status strata__ring_claim(strata__ring *ring, uint64_t offset, uint64_t bytes,
                                 strata__ring_piece *out)
{
    strata__ring_slot *slot;
    strata_status status;
    uint32_t index;
    memset(out, 0, sizeof *out);
    if (offset > ring->bytes || bytes > ring->bytes - offset)
        return strata__fail(
            STRATA_ERR_INTERNAL, "a piece of %llu bytes at %llu is beyond a ring of %llu",
            (unsigned long long)bytes, (unsigned long long)offset, (unsigned long long)ring->bytes);
    if (!find_room(ring, offset, bytes, &index))
        return STRATA_OK;
    slot = &ring->slots[index];
    status = wait_for_readers(ring, offset, bytes);
    if (status == STRATA_OK)
        status = ring->device->ops->event_record(ring->device, slot->begun, ring->copies);
    if (status != STRATA_OK)
        return status;
    slot->tenant = ++ring->tenants;
    slot->state = STRATA__RING_COPYING;
    slot->offset = offset;
    slot->bytes = bytes;
    slot->copy_bytes = 0;
    slot->kept = slot->read = false;
    slot->counted = true; /* nothing is outstanding yet */
    *out = (strata__ring_piece){.tenant = slot->tenant, .slot = index};
    return STRATA_OK;
}

/* NULL: the piece is done with, and its slot is another's or nobody's. */
static strata__ring_slot *slot_of(const strata__ring *ring, const strata__ring_piece *piece)
{
    strata__ring_slot *slot = &ring->slots[piece->slot];
    return piece->tenant && slot->tenant == piece->tenant ? slot : NULL;
}

strata_status strata__ring_copied(strata__ring *ring, const strata__ring_piece *piece,
                                  uint64_t copy_bytes)
{
    strata__ring_slot *slot = slot_of(ring, piece);
    if (!slot)
        return strata__fail(STRATA_ERR_INTERNAL, "a piece of the ring was copied after its end");
    slot->copy_bytes = copy_bytes;
    slot->counted = false;
    ring->outstanding_bytes += copy_bytes;
    return ring->device->ops->event_record(ring->device, slot->ready, ring->copies);
}

strata_status strata__ring_use(strata__ring *ring, const strata__ring_piece *piece)
{
    strata__ring_slot *slot = slot_of(ring, piece);
    strata_status status = STRATA_OK;
    if (!slot)
        return STRATA_OK;
    if (slot->state == STRATA__RING_COPYING)
        status = ring->device->ops->stream_wait(ring->device, ring->kernels, slot->ready);
    if (status == STRATA_OK)
        slot->state = STRATA__RING_IN_USE;
    return status;
}

strata_status strata__ring_release(strata__ring *ring, const strata__ring_piece *piece)
{
    strata__ring_slot *slot = slot_of(ring, piece);
    strata_status status = STRATA_OK;
    if (!slot)
        return STRATA_OK;
    if (slot->state == STRATA__RING_IN_USE) {
        status = ring->device->ops->event_record(ring->device, slot->used, ring->kernels);
        slot->read = true;
    }
    if (status == STRATA_OK) {
        slot->state = STRATA__RING_FREE;
        slot->kept = slot->bytes > 0 || !slot->counted;
    }
    return status;
}

/* The tenant's copies are done. */
static void count(strata__ring *ring, strata__ring_slot *slot)
{
    uint64_t ns;
    slot->counted = true;
    ring->outstanding_bytes -= slot->copy_bytes;
    if (slot->state == STRATA__RING_COPYING)
        slot->state = STRATA__RING_READY;
    if (slot->bytes == 0) {
        slot->state = STRATA__RING_FREE;
        slot->kept = false;
        slot->tenant = 0;
    }
    if (slot->copy_bytes && ring->device->ops->event_elapsed_ns(ring->device, slot->begun,
                                                                slot->ready, &ns) == STRATA_OK) {
        ring->measured_bytes += slot->copy_bytes;
        ring->measured_ns += ns;
    }
}

/* Copies come true in the order they were enqueued: the piece to ask for next. */
static strata__ring_slot *oldest_uncounted(const strata__ring *ring)
{
    strata__ring_slot *oldest = NULL;
    for (uint32_t i = 0; i < ring->slot_count; ++i) {
        strata__ring_slot *slot = &ring->slots[i];
        if (is_alive(slot) && !slot->counted && (!oldest || slot->tenant < oldest->tenant))
            oldest = slot;
    }
    return oldest;
}

strata_status strata__ring_poll(strata__ring *ring)
{
    strata__ring_slot *slot;
    while ((slot = oldest_uncounted(ring)) != NULL) {
        bool done;
        strata_status status = ring->device->ops->event_query(ring->device, slot->ready, &done);
        if (status != STRATA_OK || !done)
            return status;
        count(ring, slot);
    }
    return STRATA_OK;
}

bool strata__ring_is_ready(const strata__ring *ring, const strata__ring_piece *piece)
{
    const strata__ring_slot *slot = slot_of(ring, piece);
    return !slot || slot->counted;
}

strata_status strata__ring_make_room(strata__ring *ring)
{
    for (uint32_t i = 0; i < ring->slot_count; ++i) {
        strata__ring_slot *slot = &ring->slots[i];
        strata_status status;
        if (!is_alive(slot) || slot->counted || slot->bytes)
            continue;
        status = ring->device->ops->event_synchronize(ring->device, slot->ready);
        if (status == STRATA_OK)
            count(ring, slot);
        return status;
    }
    return STRATA_OK;
}

void strata__ring_reset(strata__ring *ring)
{
    for (uint32_t i = 0; i < ring->slot_count; ++i) {
        ring->slots[i].state = STRATA__RING_FREE;
        ring->slots[i].kept = ring->slots[i].read = false;
        ring->slots[i].counted = true;
        ring->slots[i].tenant = 0;
    }
    ring->outstanding_bytes = 0;
}
