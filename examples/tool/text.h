/* SPDX-License-Identifier: MIT */
/* Human text: sizes, quoted bytes, and the text that tokens stand for. */
#ifndef STRATA_TOOL_TEXT_H
#define STRATA_TOOL_TEXT_H

#include <stdint.h>
#include <stdio.h>

#include <strata/strata.h>

typedef struct size_text {
    char text[48];
} size_text;

/* "512 B", "1.5 KiB", "12.0 GiB" */
size_text text_of_bytes(uint64_t bytes);

/* "1 token", "2 tokens" */
size_text text_of_count(uint64_t count, const char *thing);

/* In double quotes on one line: controls and bytes that are no UTF-8 are escaped. */
void text_quote(FILE *out, const char *bytes, uint64_t count);

/* On one line, without quotes: a file's text cannot steer the terminal. */
void text_show(FILE *out, const char *text);

/* As it is, lines too, but for controls and bytes that are no UTF-8, which are escaped. */
void text_show_lines(FILE *out, const char *bytes, uint64_t count);

/* "ARCHITECTURE, NAME", or the architecture alone. */
void text_model(FILE *out, const strata_pack_info *info);

/*
 * The text of tokens in a vocabulary, one after another; heap memory, or NULL when there is none.
 */
char *text_of_tokens(const strata_pack *pack, const int32_t *tokens, uint64_t count,
                     uint64_t *out_bytes);

#endif
