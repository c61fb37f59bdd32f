/* SPDX-License-Identifier: MIT */
#include "session/request.h"

#include <stdio.h>

#include "base/error.h"
#include "session/session.h"
#include "session/state.h"

enum { NAME_BYTES = 32 };

/* For texts: who has the tokens. */
static const char *name_of(const strata__request_tokens *tokens, char *out)
{
    if (tokens->is_prompt)
        return "the prompt";
    snprintf(out, NAME_BYTES, "part %u", tokens->part);
    return out;
}

strata_status strata__request_check_room(const strata_session *session,
                                         const strata__request_tokens *tokens, strata_status full,
                                         uint64_t *out_length)
{
    uint64_t context = session->layout->context_tokens;
    char name[NAME_BYTES];
    strata_status status = strata__session_length(session, tokens->sequence_id, out_length);
    if (status == STRATA_OK && tokens->count > context - *out_length)
        return strata__fail(full, "sequence %d holds %llu tokens, %s has %llu; the context is %llu",
                            (int)tokens->sequence_id, (unsigned long long)*out_length,
                            name_of(tokens, name), (unsigned long long)tokens->count,
                            (unsigned long long)context);
    return status;
}

strata_status strata__request_check_tokens(const strata_session *session,
                                           const strata__request_tokens *tokens)
{
    uint32_t vocabulary = session->geometry->vocabulary;
    char name[NAME_BYTES];
    if (!tokens->tokens || !tokens->count)
        return strata__fail(STRATA_ERR_INVALID_ARGUMENT, "%s has no tokens", name_of(tokens, name));
    for (uint64_t i = 0; i < tokens->count; ++i)
        if (tokens->tokens[i] < 0 || (uint32_t)tokens->tokens[i] >= vocabulary)
            return strata__fail(
                STRATA_ERR_INVALID_ARGUMENT, "token %llu of %s is %d; the vocabulary has %u",
                (unsigned long long)i, name_of(tokens, name), (int)tokens->tokens[i], vocabulary);
    return STRATA_OK;
}

uint64_t strata__request_logit_rows(const strata__request_logits *logits)
{
    if (logits->mode == STRATA_LOGITS_NONE)
        return 0;
    return logits->mode == STRATA_LOGITS_ALL ? logits->rows : logits->last_rows;
}

strata_status strata__request_check_logits(const strata_session *session,
                                           const strata__request_logits *logits)
{
    uint64_t rows = strata__request_logit_rows(logits), vocabulary = session->geometry->vocabulary;
    if (logits->mode > STRATA_LOGITS_NONE)
        return strata__fail(STRATA_ERR_UNSUPPORTED, "%s: logits_mode %u is unknown",
                            logits->structure, logits->mode);
    if (rows && !logits->out)
        return strata__fail(STRATA_ERR_INVALID_ARGUMENT, "%s: logits is NULL", logits->structure);
    if (logits->capacity / vocabulary < rows)
        return strata__fail(STRATA_ERR_BUFFER_TOO_SMALL,
                            "the logits of %llu rows have %llu values each; there is room for %llu "
                            "values",
                            (unsigned long long)rows, (unsigned long long)vocabulary,
                            (unsigned long long)logits->capacity);
    return STRATA_OK;
}
