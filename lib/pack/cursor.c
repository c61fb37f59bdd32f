/* SPDX-License-Identifier: MIT */
#include "pack/cursor.h"

#include <inttypes.h>
#include <string.h>

#include "base/error.h"

/* Fields are copied as they are. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "packs are little-endian");

strata_status strata__cursor_bytes(strata__cursor *cursor, uint64_t count, const char *what,
                                   const uint8_t **out)
{
    uint64_t left = cursor->bytes - cursor->at;
    if (count > left)
        return strata__fail(STRATA_ERR_FORMAT,
                            "%s: %s at byte %" PRIu64 " takes %" PRIu64 " bytes, %" PRIu64
                            " are left in the file",
                            cursor->file, what, cursor->at, count, left);
    *out = cursor->data + cursor->at;
    cursor->at += count;
    return STRATA_OK;
}

strata_status strata__cursor_u32(strata__cursor *cursor, const char *what, uint32_t *out)
{
    const uint8_t *bytes = NULL;
    strata_status status = strata__cursor_bytes(cursor, sizeof *out, what, &bytes);
    if (status == STRATA_OK)
        memcpy(out, bytes, sizeof *out);
    return status;
}

strata_status strata__cursor_u64(strata__cursor *cursor, const char *what, uint64_t *out)
{
    const uint8_t *bytes = NULL;
    strata_status status = strata__cursor_bytes(cursor, sizeof *out, what, &bytes);
    if (status == STRATA_OK)
        memcpy(out, bytes, sizeof *out);
    return status;
}

strata_status strata__cursor_string(strata__cursor *cursor, const char *what, const uint8_t **out,
                                    uint64_t *out_count)
{
    uint64_t count = 0;
    strata_status status = strata__cursor_u64(cursor, what, &count);
    if (status == STRATA_OK)
        status = strata__cursor_bytes(cursor, count, what, out);
    if (status == STRATA_OK)
        *out_count = count;
    return status;
}
