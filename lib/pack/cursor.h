/* SPDX-License-Identifier: MIT */
/* Bounded reading of little-endian fields: never beyond the file, and every refusal says where. */
#ifndef STRATA_PACK_CURSOR_H
#define STRATA_PACK_CURSOR_H

#include <stdint.h>

#include <strata/base.h>

typedef struct strata__cursor {
    const char *file; /* for texts */
    const uint8_t *data;
    uint64_t bytes;
    uint64_t at; /* never above bytes */
} strata__cursor;

/*
 * Each reads what is at the cursor and moves on; `what` names the field in the text of a refusal.
 */
strata_status strata__cursor_bytes(strata__cursor *cursor, uint64_t count, const char *what,
                                   const uint8_t **out);
strata_status strata__cursor_u32(strata__cursor *cursor, const char *what, uint32_t *out);
strata_status strata__cursor_u64(strata__cursor *cursor, const char *what, uint64_t *out);

/* A length of 8 bytes and that many bytes. */
strata_status strata__cursor_string(strata__cursor *cursor, const char *what, const uint8_t **out,
                                    uint64_t *out_count);

#endif
