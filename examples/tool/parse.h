/* SPDX-License-Identifier: MIT */
/* Numbers as people write them. Each answers false unless the whole text is one. */
#ifndef STRATA_TOOL_PARSE_H
#define STRATA_TOOL_PARSE_H

#include <stdbool.h>
#include <stdint.h>

/* Decimal digits only. */
bool parse_u64(const char *text, uint64_t *out);

/* "0.8", "1e-3", "-2"; finite, without white space, hexadecimals or words. */
bool parse_real(const char *text, double *out);

/* Bytes: "4096", "512K", "8G", "12GiB", "1.5GiB" (powers of 1024), "24GB" (powers of 1000). */
bool parse_bytes(const char *text, uint64_t *out);

/* A list of token ids. */
typedef struct token_list {
    int32_t *ids; /* heap */
    uint64_t count;
} token_list;

typedef enum token_source { TOKENS_OK, TOKENS_MALFORMED, TOKENS_NO_MEMORY } token_source;

/*
 * Ids separated by white space or by one comma each; at least one. *out_fault, or NULL: where the
 * text is none of that.
 */
token_source parse_tokens(const char *text, token_list *out, const char **out_fault);

/* Seeded ids below `vocabulary`; the same on every machine. */
token_source random_tokens(uint64_t count, uint64_t seed, uint32_t vocabulary, token_list *out);

#endif
