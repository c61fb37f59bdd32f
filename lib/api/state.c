/* SPDX-License-Identifier: MIT */
#include <strata/state.h>

#include <stddef.h>

#include "base/error.h"
#include "base/struct_size.h"
#include "session/session.h"

/* Size of the structure in the release that brought it. */
enum { FIRST_INFO_BYTES = 32 };

static strata_status fail_null(const char *function, const char *argument)
{
    return strata__fail(STRATA_ERR_INVALID_ARGUMENT, "%s: %s is NULL", function, argument);
}

strata_status strata_session_share(strata_session *session, int32_t from_sequence_id,
                                   int32_t to_sequence_id, uint64_t length_tokens,
                                   uint64_t *out_length_tokens)
{
    if (!session || !out_length_tokens)
        return fail_null("strata_session_share", session ? "out_length_tokens" : "session");
    return strata__session_share(session, from_sequence_id, to_sequence_id, length_tokens,
                                 out_length_tokens);
}

strata_status strata_session_save_memory(strata_session *session, int32_t sequence_id, void *buffer,
                                         uint64_t buffer_bytes, uint64_t *out_bytes)
{
    if (!session || !out_bytes || (!buffer && buffer_bytes))
        return fail_null("strata_session_save_memory",
                         !session ? "session" : (out_bytes ? "buffer" : "out_bytes"));
    return strata__session_save_memory(session, sequence_id, buffer, buffer_bytes, out_bytes);
}

strata_status strata_session_save_path(strata_session *session, int32_t sequence_id,
                                       const char *path)
{
    if (!session || !path)
        return fail_null("strata_session_save_path", session ? "path" : "session");
    return strata__session_save_path(session, sequence_id, path);
}

static strata_status hand_out(strata_status status, const strata_state_info *info,
                              strata_state_info *inout)
{
    return status == STRATA_OK ? strata__struct_out(inout, info, sizeof *info, FIRST_INFO_BYTES,
                                                    "strata_state_info")
                               : status;
}

strata_status strata_state_info_memory(const void *data, uint64_t bytes, strata_state_info *inout)
{
    strata_state_info info = {0};
    if (!data || !inout)
        return fail_null("strata_state_info_memory", data ? "inout" : "data");
    return hand_out(strata__state_info_memory(data, bytes, &info), &info, inout);
}

strata_status strata_state_info_path(const char *path, strata_state_info *inout)
{
    strata_state_info info = {0};
    if (!path || !inout)
        return fail_null("strata_state_info_path", path ? "inout" : "path");
    return hand_out(strata__state_info_path(path, &info), &info, inout);
}

strata_status strata_session_restore_memory(strata_session *session, int32_t sequence_id,
                                            const void *data, uint64_t bytes)
{
    if (!session || !data)
        return fail_null("strata_session_restore_memory", session ? "data" : "session");
    return strata__session_restore_memory(session, sequence_id, data, bytes);
}

strata_status strata_session_restore_path(strata_session *session, int32_t sequence_id,
                                          const char *path)
{
    if (!session || !path)
        return fail_null("strata_session_restore_path", session ? "path" : "session");
    return strata__session_restore_path(session, sequence_id, path);
}
