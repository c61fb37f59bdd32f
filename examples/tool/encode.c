/* SPDX-License-Identifier: MIT */
#include "encode.h"

#include <stdlib.h>

#include "tool.h"

static strata_status encode(const strata_tokenizer *tokenizer, const char *text, uint64_t bytes,
                            const strata_encode_options *options, token_list *out)
{
    strata_status status =
        strata_tokenizer_encode(tokenizer, text, bytes, options, NULL, 0, &out->count);
    if (status != STRATA_OK)
        return status;
    out->ids = malloc((out->count + 1) * sizeof *out->ids);
    if (!out->ids)
        return tool_own(STRATA_ERR_NO_MEMORY);
    return strata_tokenizer_encode(tokenizer, text, bytes, options, out->ids, out->count,
                                   &out->count);
}

static bool told(strata_status status, bool json, token_list *out)
{
    if (status == STRATA_OK)
        return true;
    tool_fail("cannot tokenize the text", status, json);
    free(out->ids);
    out->ids = NULL;
    out->count = 0;
    return false;
}

bool encode_with(const strata_tokenizer *tokenizer, const char *text, uint64_t bytes,
                 const strata_encode_options *options, bool json, token_list *out)
{
    out->ids = NULL;
    out->count = 0;
    return told(encode(tokenizer, text, bytes, options, out), json, out);
}

bool encode_text(const strata_pack *pack, const char *text, uint64_t bytes,
                 const strata_encode_options *options, bool json, token_list *out)
{
    strata_tokenizer *tokenizer;
    strata_status status = strata_tokenizer_create(pack, &tokenizer);
    out->ids = NULL;
    out->count = 0;
    if (status == STRATA_OK)
        status = encode(tokenizer, text, bytes, options, out);
    strata_tokenizer_destroy(tokenizer);
    return told(status, json, out);
}
