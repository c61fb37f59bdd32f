/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "plan_view.h"
#include "text.h"

enum { COLUMNS = 72 };

/* Share of the device memory, at least one column where there is any. */
static void write_bar(const plan_view *view, FILE *out)
{
    static const char marks[] = "=#+*%@o~";
    uint64_t total = view->info.device_bytes ? view->info.device_bytes : 1;
    uint32_t shown = 0;
    char bar[COLUMNS + 1], legend[512] = "";
    uint64_t at = 0;
    memset(bar, ' ', COLUMNS);
    bar[COLUMNS] = '\0';
    for (uint32_t i = 0; i <= view->info.persistent_count; i++) {
        const strata_plan_buffer *b = &view->persistent[i];
        bool arena = i == view->info.persistent_count;
        uint64_t bytes = arena ? view->info.arena_bytes : b->bytes;
        char mark = marks[shown];
        uint64_t first = at * COLUMNS / total, last;
        if (!arena && b->region == STRATA_REGION_HOST)
            continue;
        at += bytes;
        last = at * COLUMNS / total;
        if (bytes * COLUMNS < total && !arena)
            continue;
        for (uint64_t c = first; c < last && c < COLUMNS; c++)
            bar[c] = mark;
        snprintf(legend + strlen(legend), sizeof legend - strlen(legend), "  %c %s", mark,
                 arena ? "arena" : b->name);
        if (marks[shown + 1])
            shown++;
    }
    fprintf(out, "\n  %s, %s\n  [%s]\n%s\n", view->is_cpu ? "memory" : "device memory",
            text_of_bytes(total).text, bar, legend);
}

static char letter_of(uint32_t index)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    return index < sizeof letters - 1 ? letters[index] : '?';
}

/* The buffer that has the middle of a column in a stage. */
static char cell(const plan_view *view, const plan_configuration *c, uint32_t stage,
                 uint32_t column)
{
    uint64_t base = UINT64_MAX, at;
    for (uint32_t i = 0; i < c->info.buffer_count; i++)
        if (c->buffers[i].offset_bytes < base)
            base = c->buffers[i].offset_bytes;
    at = base + view->info.arena_bytes / COLUMNS * column + view->info.arena_bytes / COLUMNS / 2;
    for (uint32_t i = 0; i < c->info.buffer_count; i++) {
        const strata_plan_buffer *b = &c->buffers[i];
        if (b->first_stage <= stage && stage <= b->last_stage && b->offset_bytes <= at &&
            at < b->offset_bytes + b->bytes)
            return letter_of(i);
    }
    return '.';
}

void plan_picture(const plan_view *view, const plan_configuration *configuration, FILE *out)
{
    uint32_t first = UINT32_MAX, last = 0;
    write_bar(view, out);
    for (uint32_t i = 0; i < configuration->info.buffer_count; i++) {
        const strata_plan_buffer *b = &configuration->buffers[i];
        first = b->first_stage < first ? b->first_stage : first;
        last = b->last_stage > last ? b->last_stage : last;
    }
    fprintf(out, "\n  arena over the stages of a layer, %s: path %s, %s\n",
            text_of_bytes(view->info.arena_bytes).text, configuration->info.path_name,
            text_of_count(configuration->info.rows, "row").text);
    for (uint32_t stage = first; stage <= last; stage++) {
        fprintf(out, "  %-15s|", strata_plan_stage_name(stage));
        for (uint32_t column = 0; column < COLUMNS; column++)
            fputc(cell(view, configuration, stage, column), out);
        fputs("|\n", out);
    }
    for (uint32_t i = 0; i < configuration->info.buffer_count; i++) {
        const strata_plan_buffer *b = &configuration->buffers[i];
        fprintf(out, "  %c %-20s %11s%s", letter_of(i), b->name, text_of_bytes(b->bytes).text,
                i % 2 ? "\n" : "");
    }
    if (configuration->info.buffer_count % 2)
        fputs("\n", out);
}
