/* SPDX-License-Identifier: MIT */
#include "progress.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "interrupt.h"

enum { CELLS = 30 };
static const uint64_t redraw_ns = 100000000;

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void progress_start(progress_bar *bar)
{
    bar->shown = isatty(STDERR_FILENO);
    bar->start_ns = now_ns();
    bar->drawn_ns = 0;
    interrupt_catch();
}

static void draw(const progress_bar *bar, const strata_progress *progress, uint64_t now)
{
    double layers = progress->layer_count ? progress->layer_count : 1;
    double done =
        (double)progress->done_tokens + (double)progress->chunk_tokens * progress->layer / layers;
    double share = done / (double)(progress->total_tokens ? progress->total_tokens : 1);
    double seconds = (double)(now - bar->start_ns) * 1e-9;
    char cells[CELLS + 1];
    int filled = (int)((share > 1 ? 1 : share) * CELLS);
    memset(cells, '.', CELLS);
    memset(cells, '#', (size_t)filled);
    cells[CELLS] = '\0';
    fprintf(stderr, "\r[%s] %3.0f %%  %.0f of %llu tokens  %.0f tokens/s\033[K", cells, 100 * share,
            done, (unsigned long long)progress->total_tokens, seconds > 0 ? done / seconds : 0);
    fflush(stderr);
}

int32_t progress_update(void *user_data, const strata_progress *progress)
{
    progress_bar *bar = user_data;
    uint64_t now = now_ns();
    if (bar->shown && now - bar->drawn_ns >= redraw_ns) {
        bar->drawn_ns = now;
        draw(bar, progress, now);
    }
    return interrupt_seen();
}

void progress_finish(progress_bar *bar)
{
    if (bar->shown && bar->drawn_ns)
        fputs("\r\033[K", stderr);
    interrupt_release();
}
