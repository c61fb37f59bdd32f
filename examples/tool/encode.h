/* SPDX-License-Identifier: MIT */
/* From text to tokens with the vocabulary of a pack. */
#ifndef STRATA_TOOL_ENCODE_H
#define STRATA_TOOL_ENCODE_H

#include <stdbool.h>
#include <stdint.h>

#include <strata/strata.h>

#include "parse.h"

/* The tokens of a text, reporting a failure; the caller frees them. */
bool encode_text(const strata_pack *pack, const char *text, uint64_t bytes,
                 const strata_encode_options *options, bool json, token_list *out);

/* The same with a tokenizer that is there already. */
bool encode_with(const strata_tokenizer *tokenizer, const char *text, uint64_t bytes,
                 const strata_encode_options *options, bool json, token_list *out);

#endif
