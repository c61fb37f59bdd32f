/* SPDX-License-Identifier: MIT */
/* A sequence to memory or to a file: see saved.h. */
#include <string.h>

#include "base/checksum.h"
#include "base/error.h"
#include "base/file.h"
#include "session/saved.h"
#include "session/sequence.h"
#include "session/session.h"

/* Where the bytes go: memory that holds them all, or a file. */
typedef struct sink {
    uint8_t *memory; /* or NULL */
    strata__file_writer *file;
    strata__checksum sum;
} sink;

static strata_status put(sink *to, const void *data, uint64_t bytes)
{
    strata__checksum_add(&to->sum, data, bytes);
    if (!to->memory)
        return strata__file_write(to->file, data, bytes);
    memcpy(to->memory, data, bytes);
    to->memory += bytes;
    return STRATA_OK;
}

static strata_status put_pages(strata_session *session, uint32_t sequence, uint64_t tokens,
                               sink *to)
{
    strata__saved_walk walk;
    uint64_t bytes;
    strata_status status = strata__saved_walk_begin(&walk, session, sequence, tokens);
    while (status == STRATA_OK && (bytes = strata__saved_batch_bytes(&walk)) > 0) {
        status = strata__session_check_cancel(session, "saving a sequence");
        if (status == STRATA_OK)
            status = strata__saved_batch_read(&walk);
        if (status == STRATA_OK)
            status = put(to, walk.staging.base, bytes);
    }
    if (status != STRATA_OK)
        strata__session_drain(session, status);
    strata__region_free(&walk.staging, session->device);
    return status;
}

static strata_status save(strata_session *session, uint32_t sequence,
                          const strata__saved_header *header, sink *to)
{
    uint64_t checksum;
    strata_status status;
    strata__checksum_init(&to->sum, 0);
    status = put(to, header, sizeof *header);
    if (status == STRATA_OK)
        status = put_pages(session, sequence, header->tokens, to);
    checksum = strata__checksum_value(&to->sum);
    return status == STRATA_OK ? put(to, &checksum, sizeof checksum) : status;
}

static strata_status save_memory(strata_session *session, uint32_t sequence, void *out,
                                 uint64_t capacity, uint64_t *out_bytes)
{
    strata__saved_header header;
    sink to = {.memory = out};
    strata__saved_header_make(session, strata__kv_length(&session->kv, sequence), &header);
    *out_bytes = header.total_bytes;
    if (!out)
        return STRATA_OK;
    if (capacity < header.total_bytes)
        return strata__fail(STRATA_ERR_BUFFER_TOO_SMALL,
                            "sequence %u takes %llu bytes saved; there is room for %llu", sequence,
                            (unsigned long long)header.total_bytes, (unsigned long long)capacity);
    return save(session, sequence, &header, &to);
}

static strata_status save_path(strata_session *session, uint32_t sequence, const char *path)
{
    strata__file_writer writer;
    strata__saved_header header;
    sink to = {.file = &writer};
    strata_status status =
        strata__file_begin(&writer, &session->context->allocator, path, "the sequence");
    if (status != STRATA_OK)
        return status;
    strata__saved_header_make(session, strata__kv_length(&session->kv, sequence), &header);
    status = save(session, sequence, &header, &to);
    if (status == STRATA_OK)
        status = strata__file_commit(&writer);
    strata__file_discard(&writer);
    return status;
}

strata_status strata__session_save_memory(strata_session *session, int32_t sequence_id, void *out,
                                          uint64_t capacity, uint64_t *out_bytes)
{
    strata__saved_device saved;
    strata_status status = strata__sequence_enter(session, sequence_id, &saved);
    if (status != STRATA_OK)
        return status;
    status = save_memory(session, (uint32_t)sequence_id, out, capacity, out_bytes);
    strata__session_leave(session, &saved);
    return status;
}

strata_status strata__session_save_path(strata_session *session, int32_t sequence_id,
                                        const char *path)
{
    strata__saved_device saved;
    strata_status status = strata__sequence_enter(session, sequence_id, &saved);
    if (status != STRATA_OK)
        return status;
    status = save_path(session, (uint32_t)sequence_id, path);
    strata__session_leave(session, &saved);
    return status;
}
