/* SPDX-License-Identifier: MIT */
/* What a fuzz target defines: libFuzzer and the driver beside this file call it. */
#ifndef TEST_FUZZ_TARGET_H
#define TEST_FUZZ_TARGET_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

#endif
