/* SPDX-License-Identifier: MIT */
/* Metadata entries of a header. */
#ifndef STRATA_PACK_METADATA_H
#define STRATA_PACK_METADATA_H

#include "pack/cursor.h"
#include "pack/internal.h"

/* Reads one key and value; whatever its type, all of it lies in the file afterwards. */
strata_status strata__metadata_read(strata__pool *pool, strata__cursor *cursor, strata__value *out);

#endif
