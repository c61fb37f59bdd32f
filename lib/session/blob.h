/* SPDX-License-Identifier: MIT */
/* One expert of one layer: where its three projections are in host memory, and copies of them. */
#ifndef STRATA_SESSION_BLOB_H
#define STRATA_SESSION_BLOB_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <strata/session.h>

#include "device/device.h"

enum { STRATA__BLOB_PARTS = 3 }; /* gate, up, down */

/* In the pack's memory. */
strata_expert_blob strata__blob_in_pack(const strata_session *session, uint32_t layer,
                                        uint32_t expert);

/* In a slot of the device: a place of the expert cache, or of a ring. */
strata_expert_blob strata__blob_in_slot(const strata_session *session, uint32_t layer,
                                        const uint8_t *slot);

/* Bytes of an expert's three parts together. */
uint64_t strata__blob_bytes(const strata_session *session, uint32_t layer);

/* Whether kernels can read an expert of the pack where it is, and then where that is. */
bool strata__blob_readable(const strata_session *session, uint32_t layer, uint32_t expert,
                           strata_expert_blob *out);

/*
 * Enqueues the copies of an expert to a slot: of `given` (the caller's), or where that is zeros of
 * the pack's, whose memory is waited for as long as it is being page-locked, or until `cancel`.
 */
strata_status strata__blob_send(strata_session *session, strata__stream *stream, uint32_t layer,
                                uint32_t expert, const strata_expert_blob *given, uint8_t *slot,
                                const atomic_bool *cancel);

#endif
