/* SPDX-License-Identifier: MIT */
/*
 * What would fit, when nothing does: the smallest budget, the longest context, the largest chunk.
 */
#include <assert.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "layout/arena.h"
#include "layout/path.h"
#include "layout/planner.h"

/* The least device bytes with given tiles: with all experts or with the smallest ring. */
static uint64_t spec_bytes(strata__planner *planner, strata__layout_spec *spec)
{
    strata__layout_problem *p = planner->problem;
    uint64_t arena = strata__layout_arena_bytes(p, spec, planner->paths, false);
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < planner->ring_count && i < 2; ++i) {
        uint64_t bytes, experts;
        spec->ring_bytes = planner->rings[i].ring_bytes;
        bytes = strata__planner_bytes(planner, spec, arena);
        experts = p->copies && spec->ring_bytes == 0 ? p->expert_bytes : 0;
        if (bytes <= UINT64_MAX - experts && bytes + experts < least)
            least = bytes + experts;
    }
    return least;
}

/* The least device bytes of a chunk and a scratch: larger tiles may pay with fewer segments. */
static uint64_t scratch_bytes(strata__planner *planner, uint32_t chunk, uint32_t scratch)
{
    strata__planner_tiler *tiler = &planner->tilers[scratch];
    strata__layout_spec whole, spec;
    uint64_t least = UINT64_MAX, segments;
    uint32_t last;
    strata__planner_spec(planner, chunk, scratch, &whole);
    strata__planner_tiler_init(planner, &whole, tiler);
    spec = whole;
    strata__planner_least_tiles(&spec);
    segments = 16ull * strata__layout_segment_capacity(planner->problem, &spec);
    last = strata__planner_arena_level(tiler->least_bytes + segments) + 1;
    for (uint32_t level = strata__planner_arena_level(tiler->least_bytes); level <= last; ++level) {
        uint64_t bytes;
        spec = whole;
        strata__planner_fit_tiles(planner, tiler, strata__planner_level_bytes(tiler, level), &spec);
        bytes = spec_bytes(planner, &spec);
        least = bytes < least ? bytes : least;
    }
    return least;
}

static uint64_t chunk_bytes(strata__planner *planner, uint32_t chunk)
{
    strata__layout_spec spec;
    uint64_t least = UINT64_MAX;
    strata_status status;
    strata__planner_spec(planner, chunk, 0, &spec);
    status = strata__layout_paths_choose(planner->problem, &spec, planner->paths, NULL);
    assert(status == STRATA_OK); /* the search has chosen for larger chunks */
    (void)status;
    for (uint32_t scratch = 0; scratch < STRATA__PLANNER_SCRATCHES; ++scratch) {
        uint64_t bytes = scratch_bytes(planner, chunk, scratch);
        least = bytes < least ? bytes : least;
    }
    return least;
}

/* Of the chunks that may be; the smallest ones take the least. */
static uint64_t least_bytes(strata__planner *planner)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t i = planner->chunk_count > 2 ? planner->chunk_count - 2 : 0;
         i < planner->chunk_count; ++i) {
        uint64_t bytes = chunk_bytes(planner, planner->chunks[i]);
        least = bytes < least ? bytes : least;
    }
    return least;
}

/* The largest value up to `most` that fits, by halving; 0: none. */
static uint64_t largest(strata__planner *planner, uint64_t most,
                        bool (*fits)(strata__planner *, uint64_t))
{
    uint64_t good = 0, bad = most + 1;
    while (bad - good > 1) {
        uint64_t middle = good + (bad - good) / 2;
        if (fits(planner, middle))
            good = middle;
        else
            bad = middle;
    }
    return good;
}

static bool chunk_fits(strata__planner *planner, uint64_t chunk)
{
    return chunk_bytes(planner, (uint32_t)chunk) <= planner->problem->budget_bytes;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* With a context of `pages` pages a sequence; what was asked for stays in the problem. */
static bool pages_fit(strata__planner *planner, uint64_t pages)
{
    strata__layout_problem *p = planner->problem;
    const strata__layout_request asked = p->request;
    bool fits;
    strata__layout_set_pages(p, (uint32_t)pages);
    p->request.context_tokens = pages * asked.page_tokens;
    p->request.prompt_tokens = smaller(asked.prompt_tokens, p->request.context_tokens);
    p->request.chunk_tokens = smaller(asked.chunk_tokens, p->request.context_tokens);
    strata__planner_init(planner, p);
    fits = least_bytes(planner) <= p->budget_bytes;
    p->request = asked;
    return fits;
}

typedef struct size_text {
    char text[64];
} size_text;

/* "1.3 MiB", rounded up, so that it is enough. */
static size_text short_text(uint64_t bytes)
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
    size_text out;
    uint64_t unit = 1024, tenths;
    uint32_t index = 0;
    if (bytes < unit) {
        snprintf(out.text, sizeof out.text, "%llu bytes", (unsigned long long)bytes);
        return out;
    }
    for (; index < 3 && bytes / unit >= 1024; ++index)
        unit *= 1024;
    tenths = bytes / unit * 10 + (bytes % unit * 10 + unit - 1) / unit;
    snprintf(out.text, sizeof out.text, "%llu.%llu %s", (unsigned long long)(tenths / 10),
             (unsigned long long)(tenths % 10), units[index]);
    return out;
}

/* "1.3 MiB (1310722 bytes)" */
static size_text text_of(uint64_t bytes)
{
    size_text out = short_text(bytes);
    size_t used = strlen(out.text);
    if (bytes >= 1024)
        snprintf(out.text + used, sizeof out.text - used, " (%llu bytes)",
                 (unsigned long long)bytes);
    return out;
}

/* Page-locked memory of prompts and decoding, which is no matter of the device's budget. */
static strata_status refuse_host(const strata__planner *planner)
{
    const strata__layout_problem *p = planner->problem;
    return strata__fail(STRATA_ERR_PLAN_INFEASIBLE,
                        "%s memory: the budget of %s is less than the %s that prompts and decoding "
                        "need",
                        p->facts.host_addressable ? "host" : "page-locked host",
                        text_of(p->host_budget_bytes).text,
                        text_of(planner->host.bytes + p->decode_host_bytes).text);
}

strata_status strata__planner_refuse(strata__planner *planner, strata__layout_shortfall *shortfall)
{
    strata__layout_problem *p = planner->problem;
    char chunk_text[64] = "", context_text[64] = "";
    uint64_t chunk = p->request.chunk_tokens;
    uint64_t needed = least_bytes(planner);
    if (needed <= p->budget_bytes)
        return refuse_host(planner);
    shortfall->needed_bytes = needed;
    shortfall->missing_bytes = needed - p->budget_bytes;
    if (chunk)
        shortfall->chunk_tokens = largest(planner, chunk, chunk_fits);
    shortfall->context_tokens =
        largest(planner, p->pages_per_sequence, pages_fit) * p->request.page_tokens;
    if (shortfall->chunk_tokens)
        snprintf(chunk_text, sizeof chunk_text, ", or a chunk of %llu tokens",
                 (unsigned long long)shortfall->chunk_tokens);
    if (shortfall->context_tokens)
        snprintf(context_text, sizeof context_text, ", or a context of %llu tokens",
                 (unsigned long long)shortfall->context_tokens);
    if (!shortfall->context_tokens && !shortfall->chunk_tokens)
        snprintf(context_text, sizeof context_text, ", but no shorter context or smaller chunk");
    return strata__fail(
        STRATA_ERR_PLAN_INFEASIBLE,
        "%s: at least %s are needed, %s more than the budget of %s; what would fit: "
        "a budget of %s%s%s",
        p->facts.host_addressable ? "memory" : "device memory", text_of(needed).text,
        text_of(shortfall->missing_bytes).text, text_of(p->budget_bytes).text,
        short_text(needed).text, context_text, chunk_text);
}
