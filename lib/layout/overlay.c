/* SPDX-License-Identifier: MIT */
/*
 * Placing intervals in time so that the top is low: first fit in several fixed orders, then again
 * with the buffer at the top moved to the front of the order, until the lower bound is met or the
 * turns are used up.
 */
#include "layout/overlay.h"

enum { TURNS = 24, ORDERS = 4, MOST = STRATA__BUFFER_COUNT };

static uint64_t round_up(uint64_t bytes, uint64_t alignment)
{
    return (bytes + alignment - 1) & ~(alignment - 1);
}

static bool meet(const strata__layout_buffer *a, const strata__layout_buffer *b)
{
    return a->first_stage <= b->last_stage && b->first_stage <= a->last_stage;
}

uint64_t strata__layout_overlay_bound(const strata__layout_buffer *buffers, uint32_t count,
                                      uint64_t alignment)
{
    uint64_t live[STRATA__STAGE_COUNT] = {0}, most = 0;
    for (uint32_t i = 0; i < count; ++i) {
        uint64_t bytes = round_up(buffers[i].bytes, alignment);
        for (uint32_t stage = buffers[i].first_stage; stage <= buffers[i].last_stage; ++stage) {
            live[stage] += bytes;
            if (live[stage] > most)
                most = live[stage];
        }
    }
    return most;
}

/* What an order sorts by: larger first. */
static uint64_t order_key(const strata__layout_buffer *b, uint32_t order)
{
    uint64_t length = b->last_stage - b->first_stage + 1;
    switch (order) {
    case 0:
        return b->bytes;
    case 1:
        return length;
    case 2:
        return STRATA__STAGE_COUNT - b->first_stage;
    default:
        return b->last_stage;
    }
}

static void sort_order(const strata__layout_buffer *buffers, uint32_t count, uint32_t order,
                       uint8_t *index)
{
    for (uint32_t i = 0; i < count; ++i) {
        uint64_t key = order_key(&buffers[i], order);
        uint32_t at = i;
        while (at > 0) {
            const strata__layout_buffer *before = &buffers[index[at - 1]];
            uint64_t other = order_key(before, order);
            if (other > key || (other == key && before->bytes >= buffers[i].bytes))
                break;
            index[at] = index[at - 1];
            at--;
        }
        index[at] = (uint8_t)i;
    }
}

/* First fit in the order given; returns the top and the buffer there. */
static uint64_t first_fit(const strata__layout_buffer *buffers, uint32_t count, uint64_t alignment,
                          const uint8_t *index, uint64_t *offsets, uint32_t *top_position)
{
    uint8_t placed[MOST]; /* by offset */
    uint64_t top = 0;
    *top_position = 0;
    for (uint32_t i = 0; i < count; ++i) {
        const strata__layout_buffer *b = &buffers[index[i]];
        uint64_t bytes = round_up(b->bytes, alignment), offset = 0;
        uint32_t at = i;
        for (uint32_t j = 0; j < i; ++j) {
            const strata__layout_buffer *other = &buffers[placed[j]];
            if (!meet(b, other))
                continue;
            if (offset + bytes <= offsets[placed[j]])
                break;
            if (offsets[placed[j]] + round_up(other->bytes, alignment) > offset)
                offset = offsets[placed[j]] + round_up(other->bytes, alignment);
        }
        offsets[index[i]] = offset;
        for (; at > 0 && offsets[placed[at - 1]] > offset; --at)
            placed[at] = placed[at - 1];
        placed[at] = index[i];
        if (offset + bytes > top) {
            top = offset + bytes;
            *top_position = i;
        }
    }
    return top;
}

static void move_to_front(uint8_t *index, uint32_t position)
{
    uint8_t moved = index[position];
    for (; position > 0; --position)
        index[position] = index[position - 1];
    index[0] = moved;
}

uint64_t strata__layout_overlay(strata__layout_buffer *buffers, uint32_t count, uint64_t alignment)
{
    uint64_t bound = strata__layout_overlay_bound(buffers, count, alignment);
    uint64_t offsets[MOST], best = UINT64_MAX;
    uint8_t index[MOST] = {0};
    for (uint32_t order = 0; order < ORDERS && best > bound; ++order) {
        sort_order(buffers, count, order, index);
        for (uint32_t turn = 0; turn < TURNS && best > bound; ++turn) {
            uint32_t position;
            uint64_t top = first_fit(buffers, count, alignment, index, offsets, &position);
            if (top < best) {
                best = top;
                for (uint32_t i = 0; i < count; ++i)
                    buffers[i].offset = offsets[i];
            }
            move_to_front(index, position);
        }
    }
    return best;
}
