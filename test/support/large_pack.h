/* SPDX-License-Identifier: MIT */
/* A pack as large as real ones, whose data are holes: a header, and a file that takes no room. */
#ifndef TEST_SUPPORT_LARGE_PACK_H
#define TEST_SUPPORT_LARGE_PACK_H

#include <stdint.h>

/*
 * A qwen3moe of 60 layers with 128 experts each, 150,000 tokens and as many merges, of more than
 * 36 GiB. False when the file system does not take it.
 */
int large_pack_write(const char *path, uint64_t *out_bytes);

/* Resident memory of this process in bytes, now and at most; 0 when it cannot be told. */
uint64_t resident_bytes(void);
uint64_t resident_peak_bytes(void);
/* Makes the present resident memory the peak; false when the system does not allow it. */
int resident_peak_reset(void);

#endif
