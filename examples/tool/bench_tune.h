/* SPDX-License-Identifier: MIT */
/* Of strata bench: what paths and formats cost on a device. */
#ifndef STRATA_TOOL_BENCH_TUNE_H
#define STRATA_TOOL_BENCH_TUNE_H

#include <stdbool.h>

/*
 * Writes the costs of a device (NULL: the CPU) to a file, "-" for standard output, where they go
 * too when the file cannot be written. Returns an exit code.
 */
int bench_tune(const char *device, const char *path, bool json);

#endif
