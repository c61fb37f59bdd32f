/* SPDX-License-Identifier: MIT */
/**
 * @file
 * What a session knows of its sequences: shared between them, saved, and restored.
 *
 * A sequence's state is its KV cache, in pages of strata_plan_info.page_tokens tokens that all
 * sequences of the session draw from. Sequences that share a beginning share its pages; a page is
 * copied when one of them appends to it. A sequence that was shared, truncated, saved or restored
 * goes on with the same bits as one that was read from the start.
 *
 * Every model that strata_session_create() takes can be shared and saved at any length.
 *
 * Thread-safety: the session's.
 */
#ifndef STRATA_STATE_H
#define STRATA_STATE_H

#include <strata/base.h>
#include <strata/session.h>

STRATA_BEGIN_DECLS

/**
 * Gives an empty sequence the beginning of another, so that a prompt that shares it reads only what
 * follows. Nothing is copied, and no page is taken.
 *
 * @param from_sequence_id  stays as it is
 * @param to_sequence_id    must hold no tokens; strata_session_truncate() to 0 empties it
 * @param length_tokens     at most as many are shared; UINT64_MAX: all
 * @param out_length_tokens the length reached, which is that of `from` when it is shorter
 * @return STRATA_OK, STRATA_ERR_INVALID_ARGUMENT (no such sequence, or twice the same),
 *         STRATA_ERR_STATE (`to` holds tokens), STRATA_ERR_BUSY
 */
STRATA_API STRATA_NODISCARD strata_status strata_session_share(strata_session *session,
                                                               int32_t from_sequence_id,
                                                               int32_t to_sequence_id,
                                                               uint64_t length_tokens,
                                                               uint64_t *out_length_tokens);

/**
 * Writes a sequence as bytes: for a session of the same pack with the same kind of KV cache, on
 * whatever device and with whatever budget. The same state gives the same bytes.
 *
 * @param buffer       destination; NULL with 0 bytes asks for the size
 * @param buffer_bytes its size
 * @param out_bytes    bytes needed
 * @return STRATA_OK, STRATA_ERR_BUFFER_TOO_SMALL (out_bytes is set, nothing is written),
 *         STRATA_ERR_INVALID_ARGUMENT, STRATA_ERR_BUSY, STRATA_ERR_CANCELLED, STRATA_ERR_NO_MEMORY
 *         (page-locked memory for a megabyte or a page), STRATA_ERR_DRIVER, STRATA_ERR_DEVICE_LOST.
 *         After a failure the buffer's content is undefined.
 */
STRATA_API STRATA_NODISCARD strata_status strata_session_save_memory(strata_session *session,
                                                                     int32_t sequence_id,
                                                                     void *buffer,
                                                                     uint64_t buffer_bytes,
                                                                     uint64_t *out_bytes);

/**
 * As strata_session_save_memory() into a file, which is replaced as a whole or stays as it was;
 * also STRATA_ERR_IO.
 */
STRATA_API STRATA_NODISCARD strata_status strata_session_save_path(strata_session *session,
                                                                   int32_t sequence_id,
                                                                   const char *path);

/** What a saved sequence says of itself. */
typedef struct strata_state_info {
    uint32_t struct_size; /**< sizeof this structure */
    uint32_t kv_format;   /**< STRATA_KV_* that the session's plan must have */
    uint64_t tokens;      /**< its length: the least context of the session's plan */
    uint64_t total_bytes; /**< of the saved sequence */
    uint32_t page_tokens; /**< strata_plan_info.page_tokens that the session must have */
    uint32_t layer_count; /**< of its pack */
} strata_state_info;

/**
 * Tells what a saved sequence needs, before a session is made. Only its header is read and checked.
 *
 * @param data  its bytes, from the beginning on
 * @param inout its struct_size is set by the caller
 * @return STRATA_OK, STRATA_ERR_FORMAT, STRATA_ERR_UNSUPPORTED (a version that is not read),
 *         STRATA_ERR_INVALID_ARGUMENT, STRATA_ERR_ABI_SIZE. Any thread.
 */
STRATA_API STRATA_NODISCARD strata_status strata_state_info_memory(const void *data, uint64_t bytes,
                                                                   strata_state_info *inout);

/** As strata_state_info_memory() of a file; also STRATA_ERR_IO. */
STRATA_API STRATA_NODISCARD strata_status strata_state_info_path(const char *path,
                                                                 strata_state_info *inout);

/**
 * Reads a saved sequence into an empty one. Whatever this refuses, the session stays as it was.
 * Damage is found by a checksum; a forged file can at most give keys and values of its own.
 *
 * @param sequence_id must hold no tokens; strata_session_truncate() to 0 empties it
 * @param data        need live only for the call
 * @return STRATA_OK, STRATA_ERR_FORMAT (no saved sequence, cut off, or damaged),
 *         STRATA_ERR_UNSUPPORTED (a version that is not read), STRATA_ERR_INVALID_ARGUMENT (of
 *         another pack, another KV cache, or longer than the context), STRATA_ERR_STATE (the
 *         sequence holds tokens), STRATA_ERR_CAPACITY (too few pages are free), STRATA_ERR_BUSY,
 *         STRATA_ERR_CANCELLED, STRATA_ERR_NO_MEMORY, STRATA_ERR_DRIVER, STRATA_ERR_DEVICE_LOST
 */
STRATA_API STRATA_NODISCARD strata_status strata_session_restore_memory(strata_session *session,
                                                                        int32_t sequence_id,
                                                                        const void *data,
                                                                        uint64_t bytes);

/** As strata_session_restore_memory() from a file; also STRATA_ERR_IO. */
STRATA_API STRATA_NODISCARD strata_status strata_session_restore_path(strata_session *session,
                                                                      int32_t sequence_id,
                                                                      const char *path);

STRATA_END_DECLS

#endif
