/* SPDX-License-Identifier: MIT */
/* A session's statistics, and the profile of its experts in a file. */
#ifndef STRATA_TOOL_STATS_H
#define STRATA_TOOL_STATS_H

#include <stdbool.h>
#include <stdio.h>

#include <strata/strata.h>

#include "json.h"
#include "tool.h"

/* The counts of `after` less those of `before`; sizes of memory are those of `after`. */
strata_session_stats stats_between(const strata_session_stats *before,
                                   const strata_session_stats *after);

/* An object "stats". */
void stats_json(json_writer *json, const strata_session_stats *stats);

/* Where the time went, and what was sent. Nothing when no experts were streamed. */
void stats_text(const strata_session_stats *stats, FILE *out);

/* Waits until experts are page-locked as far as they will be. */
strata_status stats_wait_for_locks(const strata_session *session);

/*
 * Bytes of a file for strata_session_options.profile, to be freed; *out NULL when there is no such
 * file. False, and told, when it cannot be read.
 */
bool profile_read(const char *path, bool json, void **out, uint64_t *out_bytes);

/* Writes the session's profile. */
void profile_write(const char *path, strata_session *session, failure *out);

#endif
