/* SPDX-License-Identifier: MIT */
/*
 * A sequence as bytes:
 *
 *   header | for each layer K, then V: the sequence's pages in order | checksum of all before
 *
 * Pages are as kernels have them, rows beyond the length zero, so that the same state gives the
 * same bytes. Numbers are little-endian. Save and restore go through page-locked memory, a batch of
 * pages at a time.
 */
#ifndef STRATA_SESSION_SAVED_H
#define STRATA_SESSION_SAVED_H

#include <stdbool.h>
#include <stdint.h>

#include "session/region.h"
#include "session/state.h"

typedef struct strata__saved_header {
    char magic[8];
    uint32_t version;
    uint32_t header_bytes;
    uint64_t pack;    /* strata__pack_fingerprint(): metadata, table of tensors, sizes of files */
    uint64_t weights; /* of samples of every layer's weights */
    uint64_t tokens;
    uint64_t total_bytes; /* from the header to the checksum at the end */
    uint32_t layers;
    uint32_t kv_format; /* STRATA_KV_* */
    uint32_t page_tokens;
    uint32_t reserved;
    uint64_t checksum; /* of the header before it */
} strata__saved_header;

/* Of a sequence of `tokens` tokens, at most the context. */
void strata__saved_header_make(const strata_session *session, uint64_t tokens,
                               strata__saved_header *out);

/*
 * Whether the session can take what follows. `name` begins the texts. STRATA_ERR_FORMAT (no saved
 * sequence, or damaged), _UNSUPPORTED (version), _INVALID_ARGUMENT (other pack, KV format, page
 * size; longer than the context).
 */
strata_status strata__saved_header_check(const strata_session *session,
                                         const strata__saved_header *header, const char *name);

/* What a header that is sound says, of whatever session. STRATA_ERR_FORMAT, _UNSUPPORTED. */
strata_status strata__saved_header_info(const strata__saved_header *header, const char *name,
                                        strata_state_info *out);

/* A walk over the pages of a sequence in the order above. */
typedef struct strata__saved_walk {
    strata_session *session;
    strata__region staging;
    uint32_t sequence;
    uint32_t pages;
    uint32_t last_rows; /* tokens in the last page */
    uint32_t layer;     /* the next page to be visited */
    uint32_t side;      /* 0: K, 1: V */
    uint32_t page;
} strata__saved_walk;

/* The pages must be reserved. The staging memory is to be freed whatever this answers. */
strata_status strata__saved_walk_begin(strata__saved_walk *walk, strata_session *session,
                                       uint32_t sequence, uint64_t tokens);

/* Bytes of the next batch; 0: all pages have been visited. */
uint64_t strata__saved_batch_bytes(const strata__saved_walk *walk);

/*
 * The next batch, from the device to the staging memory, which holds it when this returns, or the
 * other way round. Either leaves the staging memory free to be used.
 */
strata_status strata__saved_batch_read(strata__saved_walk *walk);
strata_status strata__saved_batch_write(strata__saved_walk *walk);

#endif
