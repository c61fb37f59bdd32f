/* SPDX-License-Identifier: MIT */
/* Texts that may not be UTF-8. */
#ifndef STRATA_TEXT_ILL_FORMED_H
#define STRATA_TEXT_ILL_FORMED_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Bytes of the character at `text`, or, when it is none, of the longest part that begins a
 * character (at least 1); `count` is not 0.
 */
uint32_t strata__text_character(const uint8_t *text, uint64_t count, bool *out_well_formed);

/* Bytes at the start of a text that are whole characters. */
uint64_t strata__text_well_formed(const uint8_t *text, uint64_t count);

/* U+FFFD for each ill-formed part; returns the bytes needed, `out` NULL: only that. */
uint64_t strata__text_replace(const uint8_t *text, uint64_t count, uint8_t *out);

/* A well-formed text of the same length: each ill-formed byte becomes a symbol. */
void strata__text_shape(const uint8_t *text, uint64_t count, uint8_t *out);

#endif
