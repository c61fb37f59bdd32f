/* SPDX-License-Identifier: MIT */
/*
 * A file of device facts: lines "name = number", names as in strata_device_facts; # starts a
 * comment.
 */
#ifndef STRATA_TOOL_DEVICE_FACTS_H
#define STRATA_TOOL_DEVICE_FACTS_H

#include <stdbool.h>

#include <strata/strata.h>

/* Sets the facts a file names, reporting a failure on stderr. */
bool device_facts_read(const char *path, bool json, strata_device_facts *facts);

/* A decimal number of at least 0 ("25e9"); false when the text is none. */
bool parse_rate(const char *text, double *out);

#endif
