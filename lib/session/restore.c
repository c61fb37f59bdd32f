/* SPDX-License-Identifier: MIT */
/*
 * A sequence from memory or from a file: see saved.h. The pages are the sequence's only when
 * everything has been read and the checksum is right.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/checksum.h"
#include "base/error.h"
#include "base/file.h"
#include "session/saved.h"
#include "session/sequence.h"
#include "session/session.h"

enum { MOST_READ_BYTES = 1 << 30 /* of one call to the system */ };

/* Where the bytes come from: memory, or a file. */
typedef struct source {
    const char *name; /* for texts */
    const uint8_t *memory;
    uint64_t left; /* of the memory */
    int descriptor;
    strata__checksum sum;
} source;

/* At most `bytes`; fewer only at the end. */
static strata_status get_some(source *from, void *out, uint64_t bytes, uint64_t *out_bytes)
{
    uint8_t *next = out;
    *out_bytes = 0;
    if (from->memory) {
        *out_bytes = bytes < from->left ? bytes : from->left;
        memcpy(out, from->memory, *out_bytes);
        from->memory += *out_bytes;
        from->left -= *out_bytes;
        return STRATA_OK;
    }
    while (bytes > 0) {
        size_t most = bytes < MOST_READ_BYTES ? (size_t)bytes : MOST_READ_BYTES;
        ssize_t done = read(from->descriptor, next, most);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return strata__file_fail(from->name, "read", "the sequence");
        if (done == 0)
            break;
        next += done;
        bytes -= (uint64_t)done;
        *out_bytes += (uint64_t)done;
    }
    return STRATA_OK;
}

static strata_status get(source *from, void *out, uint64_t bytes)
{
    uint64_t done;
    strata_status status = get_some(from, out, bytes, &done);
    if (status == STRATA_OK && done < bytes)
        return strata__fail(STRATA_ERR_FORMAT, "%s: the saved sequence is cut off", from->name);
    strata__checksum_add(&from->sum, out, done);
    return status;
}

static strata_status get_header(const strata_session *session, source *from,
                                strata__saved_header *out)
{
    uint64_t held = from->left;
    strata_status status = get(from, out, sizeof *out);
    if (status == STRATA_OK)
        status = strata__saved_header_check(session, out, from->name);
    if (status == STRATA_OK && from->memory && held != out->total_bytes)
        return strata__fail(STRATA_ERR_FORMAT, "%s: the saved sequence has %llu bytes, not %llu",
                            from->name, (unsigned long long)held,
                            (unsigned long long)out->total_bytes);
    return status;
}

static strata_status get_end(source *from)
{
    uint64_t expected = strata__checksum_value(&from->sum), checksum, more;
    uint8_t byte;
    strata_status status = get(from, &checksum, sizeof checksum);
    if (status == STRATA_OK && checksum != expected)
        return strata__fail(STRATA_ERR_FORMAT, "%s: the saved sequence is damaged", from->name);
    if (status == STRATA_OK)
        status = get_some(from, &byte, 1, &more);
    if (status == STRATA_OK && more)
        return strata__fail(STRATA_ERR_FORMAT, "%s: bytes follow the saved sequence", from->name);
    return status;
}

static strata_status get_pages(strata_session *session, uint32_t sequence, uint64_t tokens,
                               source *from)
{
    strata__saved_walk walk;
    uint64_t bytes;
    strata_status status = strata__saved_walk_begin(&walk, session, sequence, tokens);
    while (status == STRATA_OK && (bytes = strata__saved_batch_bytes(&walk)) > 0) {
        status = strata__session_check_cancel(session, "restoring a sequence");
        if (status == STRATA_OK)
            status = get(from, walk.staging.base, bytes);
        if (status == STRATA_OK)
            status = strata__saved_batch_write(&walk);
    }
    if (status != STRATA_OK)
        strata__session_drain(session, status);
    strata__region_free(&walk.staging, session->device);
    return status;
}

static strata_status restore(strata_session *session, int32_t sequence_id, source *from)
{
    uint32_t sequence = (uint32_t)sequence_id;
    strata__saved_header header;
    strata_status status = strata__sequence_check_empty(session, sequence_id);
    strata__checksum_init(&from->sum, 0);
    if (status == STRATA_OK)
        status = get_header(session, from, &header);
    if (status == STRATA_OK)
        status = strata__kv_reserve(&session->kv, sequence, header.tokens);
    if (status != STRATA_OK)
        return status;
    status = get_pages(session, sequence, header.tokens, from);
    if (status == STRATA_OK)
        status = get_end(from);
    strata__kv_set_length(&session->kv, sequence, status == STRATA_OK ? header.tokens : 0);
    return status;
}

static strata_status enter_and_restore(strata_session *session, int32_t sequence_id, source *from)
{
    strata__saved_device saved;
    strata_status status = strata__sequence_enter(session, sequence_id, &saved);
    if (status != STRATA_OK)
        return status;
    status = restore(session, sequence_id, from);
    strata__session_leave(session, &saved);
    return status;
}

strata_status strata__session_restore_memory(strata_session *session, int32_t sequence_id,
                                             const void *data, uint64_t bytes)
{
    source from = {.name = "memory", .memory = data, .left = bytes, .descriptor = -1};
    return enter_and_restore(session, sequence_id, &from);
}

static strata_status open_file(source *from, const char *path)
{
    *from = (source){.name = path};
    from->descriptor = open(path, O_RDONLY | O_CLOEXEC);
    return from->descriptor < 0 ? strata__file_fail(path, "open", "the sequence") : STRATA_OK;
}

strata_status strata__session_restore_path(strata_session *session, int32_t sequence_id,
                                           const char *path)
{
    source from;
    strata_status status = open_file(&from, path);
    if (status != STRATA_OK)
        return status;
    status = enter_and_restore(session, sequence_id, &from);
    close(from.descriptor);
    return status;
}

static strata_status info(source *from, strata_state_info *out)
{
    strata__saved_header header;
    strata_status status;
    strata__checksum_init(&from->sum, 0);
    status = get(from, &header, sizeof header);
    return status == STRATA_OK ? strata__saved_header_info(&header, from->name, out) : status;
}

strata_status strata__state_info_memory(const void *data, uint64_t bytes, strata_state_info *out)
{
    source from = {.name = "memory", .memory = data, .left = bytes, .descriptor = -1};
    return info(&from, out);
}

strata_status strata__state_info_path(const char *path, strata_state_info *out)
{
    source from;
    strata_status status = open_file(&from, path);
    if (status != STRATA_OK)
        return status;
    status = info(&from, out);
    close(from.descriptor);
    return status;
}
