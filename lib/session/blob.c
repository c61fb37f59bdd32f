/* SPDX-License-Identifier: MIT */
#include "session/blob.h"

#include "session/state.h"

/* Kernels read blocks by instructions of up to this many bytes. */
enum { READ_ALIGNMENT = 16 };

typedef struct parts {
    const strata__projection *from[STRATA__BLOB_PARTS];
    uint64_t bytes[STRATA__BLOB_PARTS];  /* of one expert */
    uint64_t offset[STRATA__BLOB_PARTS]; /* in a slot */
} parts;

static parts parts_of(const strata_session *session, uint32_t layer)
{
    const strata__layer *l = &session->layers[layer];
    const strata__layout_place *place = &session->layout->layers[layer];
    parts p = {{&l->expert_gate, &l->expert_up, &l->expert_down},
               {0},
               {0, place->up_offset, place->down_offset}};
    for (int i = 0; i < STRATA__BLOB_PARTS; ++i)
        p.bytes[i] = p.from[i]->bytes / session->geometry->experts;
    return p;
}

static const uint8_t *part_in_pack(const parts *p, int i, uint32_t expert)
{
    return (const uint8_t *)p->from[i]->data + expert * p->from[i]->stride_bytes;
}

strata_expert_blob strata__blob_in_pack(const strata_session *session, uint32_t layer,
                                        uint32_t expert)
{
    parts p = parts_of(session, layer);
    return (strata_expert_blob){part_in_pack(&p, 0, expert), part_in_pack(&p, 1, expert),
                                part_in_pack(&p, 2, expert)};
}

strata_expert_blob strata__blob_in_slot(const strata_session *session, uint32_t layer,
                                        const uint8_t *slot)
{
    const strata__layout_place *place = &session->layout->layers[layer];
    return (strata_expert_blob){slot, slot + place->up_offset, slot + place->down_offset};
}

uint64_t strata__blob_bytes(const strata_session *session, uint32_t layer)
{
    parts p = parts_of(session, layer);
    return p.bytes[0] + p.bytes[1] + p.bytes[2];
}

/* Page-locked as a whole, in one piece of addresses, that `*at` becomes the first of. */
static bool is_locked(const strata__host_tier *tier, const uint8_t **at, uint64_t bytes)
{
    const uint8_t *source = *at;
    for (uint64_t done = 0; done < bytes;) {
        strata__tier_span span = strata__tier_find(tier, source + done);
        if (span.state != STRATA__TIER_PINNED)
            return false;
        if (done == 0)
            *at = span.at;
        else if (span.at != *at + done)
            return false;
        done += span.bytes;
    }
    return (uintptr_t)*at % READ_ALIGNMENT == 0;
}

bool strata__blob_readable(const strata_session *session, uint32_t layer, uint32_t expert,
                           strata_expert_blob *out)
{
    parts p = parts_of(session, layer);
    const uint8_t *at[STRATA__BLOB_PARTS];
    if (!session->tier || !session->device->facts.reads_locked)
        return false;
    for (int i = 0; i < STRATA__BLOB_PARTS; ++i) {
        at[i] = part_in_pack(&p, i, expert);
        if (!is_locked(session->tier, &at[i], p.bytes[i]))
            return false;
    }
    *out = (strata_expert_blob){at[0], at[1], at[2]};
    return true;
}

static strata_status copy_part(strata_session *session, strata__stream *stream, uint8_t *to,
                               const uint8_t *source, uint64_t bytes, const atomic_bool *cancel)
{
    strata__device *device = session->device;
    strata_status status = STRATA_OK;
    for (uint64_t done = 0; done < bytes && status == STRATA_OK;) {
        strata__tier_span span = {.at = source + done, .bytes = bytes - done};
        if (session->tier) {
            strata__tier_wait(session->tier, source + done, cancel);
            span = strata__tier_find(session->tier, source + done);
        }
        if (span.bytes > bytes - done)
            span.bytes = bytes - done;
        status = device->ops->copy(device, stream, to + done, span.at, span.bytes);
        done += span.bytes;
    }
    return status;
}

strata_status strata__blob_send(strata_session *session, strata__stream *stream, uint32_t layer,
                                uint32_t expert, const strata_expert_blob *given, uint8_t *slot,
                                const atomic_bool *cancel)
{
    const void *sources[STRATA__BLOB_PARTS] = {given->gate, given->up, given->down};
    parts p = parts_of(session, layer);
    strata_status status = STRATA_OK;
    for (int i = 0; i < STRATA__BLOB_PARTS && status == STRATA_OK; ++i)
        status =
            copy_part(session, stream, slot + p.offset[i],
                      sources[i] ? sources[i] : part_in_pack(&p, i, expert), p.bytes[i], cancel);
    return status;
}
