/* SPDX-License-Identifier: MIT */
/* How transparent structures cross the ABI: size first, zero tail, copies on both sides. */
#ifndef STRATA_BASE_STRUCT_SIZE_H
#define STRATA_BASE_STRUCT_SIZE_H

#include <strata/base.h>

/*
 * Copies a caller's input structure into `local`, which is zeroed first and is what the call works
 * on. `first_bytes` is the structure's size in the first release, `local_bytes` the size known
 * here. ERR_ABI_SIZE: struct_size is below first_bytes, above 4096 or no multiple of 8.
 * ERR_ABI_FIELD: a byte beyond local_bytes is not zero.
 */
strata_status strata__struct_in(void *local, uint64_t local_bytes, const void *caller,
                                uint64_t first_bytes, const char *name);

/*
 * Copies `local` to a caller's output structure: min(caller, library) bytes, and struct_size
 * becomes the bytes that are valid. The caller's struct_size is checked like an input's.
 */
strata_status strata__struct_out(void *caller, const void *local, uint64_t local_bytes,
                                 uint64_t first_bytes, const char *name);

/* As above, for outputs that a caller may leave out: `caller` may be NULL. */
strata_status strata__struct_out_optional(void *caller, const void *local, uint64_t local_bytes,
                                          uint64_t first_bytes, const char *name);

/*
 * For `_options_init`: copies min(caller_bytes, local_bytes) bytes and sets struct_size to
 * caller_bytes.
 */
void strata__struct_init(void *caller, uint64_t caller_bytes, const void *local,
                         uint64_t local_bytes);

#endif
