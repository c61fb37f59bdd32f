/* SPDX-License-Identifier: MIT */
#include "session/sequence.h"

#include "base/error.h"
#include "session/session.h"

strata_status strata__sequence_check(const strata_session *session, int32_t sequence_id)
{
    if (sequence_id < 0 || (uint32_t)sequence_id >= session->kv.sequence_count)
        return strata__fail(STRATA_ERR_INVALID_ARGUMENT,
                            "sequence %d does not exist; the plan has %u", (int)sequence_id,
                            session->kv.sequence_count);
    return STRATA_OK;
}

strata_status strata__sequence_enter(strata_session *session, int32_t sequence_id,
                                     strata__saved_device *saved)
{
    strata_status status = strata__sequence_check(session, sequence_id);
    return status == STRATA_OK ? strata__session_enter(session, saved) : status;
}

strata_status strata__sequence_check_empty(const strata_session *session, int32_t sequence_id)
{
    uint64_t tokens;
    strata_status status = strata__session_length(session, sequence_id, &tokens);
    if (status == STRATA_OK && tokens)
        return strata__fail(STRATA_ERR_STATE,
                            "sequence %d holds %llu tokens; it must be empty: truncate it to 0",
                            (int)sequence_id, (unsigned long long)tokens);
    return status;
}

strata_status strata__sequence_copy_page(void *session, uint32_t from, uint32_t to)
{
    const strata_session *s = session;
    strata_status status = STRATA_OK;
    for (uint32_t i = 0; i < s->geometry->layers && status == STRATA_OK; ++i) {
        const strata__layout_place *place = &s->layout->layers[i];
        uint8_t *k = s->memory.base + place->k_offset, *v = s->memory.base + place->v_offset;
        status = s->device->ops->copy(s->device, s->stream, k + to * place->page_bytes,
                                      k + from * place->page_bytes, place->page_bytes);
        if (status == STRATA_OK)
            status = s->device->ops->copy(s->device, s->stream, v + to * place->page_bytes,
                                          v + from * place->page_bytes, place->page_bytes);
    }
    return status;
}

strata_status strata__session_length(const strata_session *session, int32_t sequence_id,
                                     uint64_t *out_tokens)
{
    strata_status status = strata__sequence_check(session, sequence_id);
    if (status == STRATA_OK)
        *out_tokens = strata__kv_length(&session->kv, (uint32_t)sequence_id);
    return status;
}

strata_status strata__session_truncate(strata_session *session, int32_t sequence_id,
                                       uint64_t length_tokens, uint64_t *out_length_tokens)
{
    strata__saved_device saved;
    uint64_t length;
    strata_status status = strata__sequence_enter(session, sequence_id, &saved);
    if (status != STRATA_OK)
        return status;
    length = strata__kv_length(&session->kv, (uint32_t)sequence_id);
    if (length_tokens < length)
        length = length_tokens;
    strata__kv_set_length(&session->kv, (uint32_t)sequence_id, length);
    strata__session_leave(session, &saved);
    *out_length_tokens = length;
    return STRATA_OK;
}

strata_status strata__session_share(strata_session *session, int32_t from_id, int32_t to_id,
                                    uint64_t length_tokens, uint64_t *out_length_tokens)
{
    strata__saved_device saved;
    uint64_t length = 0;
    strata_status status = strata__sequence_check(session, from_id);
    if (status == STRATA_OK)
        status = strata__sequence_check(session, to_id);
    if (status == STRATA_OK && from_id == to_id)
        status = strata__fail(STRATA_ERR_INVALID_ARGUMENT,
                              "sequence %d cannot share its pages with itself", (int)from_id);
    if (status == STRATA_OK)
        status = strata__session_enter(session, &saved);
    if (status != STRATA_OK)
        return status;
    status = strata__sequence_check_empty(session, to_id);
    if (status == STRATA_OK) {
        length = strata__kv_length(&session->kv, (uint32_t)from_id);
        if (length_tokens < length)
            length = length_tokens;
        strata__kv_share(&session->kv, (uint32_t)from_id, (uint32_t)to_id, length);
    }
    strata__session_leave(session, &saved);
    if (status == STRATA_OK)
        *out_length_tokens = length;
    return status;
}
