/* SPDX-License-Identifier: MIT */
/* A progress bar on stderr while a prompt is read, when stderr is a terminal; and Ctrl-C. */
#ifndef STRATA_TOOL_PROGRESS_H
#define STRATA_TOOL_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include <strata/strata.h>

typedef struct progress_bar {
    bool shown;
    uint64_t start_ns;
    uint64_t drawn_ns;
} progress_bar;

/* Starts a bar and makes an interrupt stop the prompt instead of the process. */
void progress_start(progress_bar *bar);

/* A strata_progress_fn; user_data is the bar. */
int32_t progress_update(void *user_data, const strata_progress *progress);

/* Wipes the bar and gives the interrupt its meaning back. */
void progress_finish(progress_bar *bar);

#endif
