/* SPDX-License-Identifier: MIT */
/*
 * What requests of prompts and of decoding are checked for alike, before anything of them runs.
 * Seen by lib/session alone.
 */
#ifndef STRATA_SESSION_REQUEST_H
#define STRATA_SESSION_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include <strata/session.h>

/* Tokens to be appended to a sequence: a prompt, or a part of a step of decoding. */
typedef struct strata__request_tokens {
    const int32_t *tokens;
    uint64_t count;
    int32_t sequence_id;
    uint32_t part; /* its number in the step */
    bool is_prompt;
} strata__request_tokens;

/* Where logits are to go. */
typedef struct strata__request_logits {
    const char *structure; /* the request's, for texts */
    const float *out;
    uint64_t capacity;  /* values */
    uint32_t mode;      /* STRATA_LOGITS_* */
    uint64_t rows;      /* of the request */
    uint64_t last_rows; /* of those that are the last of their sequence */
} strata__request_logits;

/*
 * STRATA_ERR_INVALID_ARGUMENT: there is no such sequence. `full`: its context has no room for the
 * tokens, whose count is all that is looked at. *out_length is the sequence's.
 */
strata_status strata__request_check_room(const strata_session *session,
                                         const strata__request_tokens *tokens, strata_status full,
                                         uint64_t *out_length);

/* Every token is read: their room must have been checked. STRATA_ERR_INVALID_ARGUMENT */
strata_status strata__request_check_tokens(const strata_session *session,
                                           const strata__request_tokens *tokens);

/* STRATA_ERR_UNSUPPORTED (mode), STRATA_ERR_INVALID_ARGUMENT, STRATA_ERR_BUFFER_TOO_SMALL */
strata_status strata__request_check_logits(const strata_session *session,
                                           const strata__request_logits *logits);

/* Rows that get logits. */
uint64_t strata__request_logit_rows(const strata__request_logits *logits);

#endif
