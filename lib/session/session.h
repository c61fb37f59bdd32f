/* SPDX-License-Identifier: MIT */
/*
 * Sessions and prefills as lib/api calls them. Options and requests have been checked for their
 * sizes and single fields; whatever depends on the pack, the plan or the session's state is checked
 * here.
 */
#ifndef STRATA_SESSION_SESSION_H
#define STRATA_SESSION_SESSION_H

#include <stdint.h>

#include <strata/prefill.h>
#include <strata/session.h>
#include <strata/state.h>

#include "device/device.h"

strata_status strata__session_create(strata_pack *pack, const strata_session_options *options,
                                     strata_session **out);

/* On a device that is the session's from here on, also when this fails. */
strata_status strata__session_create_on(strata__device *device, strata_pack *pack,
                                        const strata_session_options *options,
                                        strata_session **out);

/* Drops the caller's reference; NULL is legal. A prefill keeps its session alive. */
void strata__session_release(strata_session *session);

/* Drops the reference of a prefill. */
void strata__session_drop(strata_session *session);

/* Any thread. Without a running call it has no effect. */
void strata__session_cancel(strata_session *session);

const strata_plan *strata__session_plan(const strata_session *session);
uint64_t strata__session_logits_count(const strata_session *session);

/* Both may be called while a prompt is read, from its callbacks or other threads. */
strata_status strata__session_length(const strata_session *session, int32_t sequence_id,
                                     uint64_t *out_tokens);
void strata__session_stats(const strata_session *session, strata_session_stats *out);

strata_status strata__session_truncate(strata_session *session, int32_t sequence_id,
                                       uint64_t length_tokens, uint64_t *out_length_tokens);

strata_status strata__session_share(strata_session *session, int32_t from_id, int32_t to_id,
                                    uint64_t length_tokens, uint64_t *out_length_tokens);

/* A sequence as bytes, and back into an empty one: saved.h. Between prompts. */
strata_status strata__session_save_memory(strata_session *session, int32_t sequence_id, void *out,
                                          uint64_t capacity, uint64_t *out_bytes);
strata_status strata__session_save_path(strata_session *session, int32_t sequence_id,
                                        const char *path);
strata_status strata__session_restore_memory(strata_session *session, int32_t sequence_id,
                                             const void *data, uint64_t bytes);
strata_status strata__state_info_memory(const void *data, uint64_t bytes, strata_state_info *out);
strata_status strata__state_info_path(const char *path, strata_state_info *out);
strata_status strata__session_restore_path(strata_session *session, int32_t sequence_id,
                                           const char *path);

/* Between prompts, but for the budget, which a running call leaves to the next prompt. */
strata_status strata__session_profile(strata_session *session, void *out, uint64_t capacity,
                                      uint64_t *out_bytes);
strata_status strata__session_expert_uses(strata_session *session, uint32_t layer,
                                          uint64_t *out_uses, uint64_t capacity);
strata_status strata__session_drop_experts(strata_session *session);
strata_status strata__session_set_budget(strata_session *session, uint64_t bytes);

uint64_t strata__prefill_bytes(const strata_session *session);
strata_status strata__prefill_create(strata_session *session, const strata_prefill_options *options,
                                     strata_prefill **out);
void strata__prefill_destroy(strata_prefill *prefill); /* NULL is legal */
strata_status strata__prefill_run(strata_prefill *prefill, const strata_prefill_request *request,
                                  strata_prefill_result *out);

#endif
