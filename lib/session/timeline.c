/* SPDX-License-Identifier: MIT */
#include "session/timeline.h"

#include <string.h>

#include "base/error.h"

static strata_status create_span(strata__device *device, strata__span *span)
{
    strata_status status = device->ops->event_create(device, true, &span->begin);
    return status == STRATA_OK ? device->ops->event_create(device, true, &span->end) : status;
}

static void destroy_span(strata__device *device, const strata__span *span)
{
    if (span->begin)
        device->ops->event_destroy(device, span->begin);
    if (span->end)
        device->ops->event_destroy(device, span->end);
}

strata_status strata__timeline_init(strata__timeline *timeline, strata__device *device,
                                    strata__stream *stream)
{
    strata_status status;
    memset(timeline, 0, sizeof *timeline);
    timeline->device = device;
    timeline->stream = stream;
    status = create_span(device, &timeline->chunk);
    for (int i = 0; i < STRATA__TIMELINE_SPANS && status == STRATA_OK; ++i)
        status = create_span(device, &timeline->spans[i]);
    return status;
}

void strata__timeline_finish(strata__timeline *timeline)
{
    if (!timeline->device)
        return;
    destroy_span(timeline->device, &timeline->chunk);
    for (int i = 0; i < STRATA__TIMELINE_SPANS; ++i)
        destroy_span(timeline->device, &timeline->spans[i]);
    memset(timeline, 0, sizeof *timeline);
}

static strata_status record(strata__timeline *timeline, strata__event *event)
{
    return timeline->device->ops->event_record(timeline->device, event, timeline->stream);
}

static void add(strata__timeline *timeline, const strata__span *span)
{
    uint64_t ns = 0;
    if (timeline->device->ops->event_elapsed_ns(timeline->device, span->begin, span->end, &ns) ==
        STRATA_OK)
        timeline->ns[span->kind] += ns;
}

/* Reads the oldest span if it is past. */
static strata_status read_oldest(strata__timeline *timeline)
{
    strata__span *span = &timeline->spans[timeline->first];
    bool done = false;
    strata_status status = timeline->device->ops->event_query(timeline->device, span->end, &done);
    if (status != STRATA_OK || !done)
        return status;
    add(timeline, span);
    timeline->first = (timeline->first + 1) % STRATA__TIMELINE_SPANS;
    timeline->count--;
    return STRATA_OK;
}

strata_status strata__timeline_chunk_begin(strata__timeline *timeline)
{
    strata_status status = record(timeline, timeline->chunk.begin);
    timeline->chunk.kind = STRATA__SPAN_CHUNK;
    timeline->has_chunk = false;
    timeline->is_open = false;
    return status;
}

strata_status strata__timeline_chunk_end(strata__timeline *timeline)
{
    strata_status status = record(timeline, timeline->chunk.end);
    timeline->has_chunk = status == STRATA_OK;
    return status;
}

strata_status strata__timeline_begin(strata__timeline *timeline, uint32_t kind)
{
    strata__span *span;
    strata_status status = STRATA_OK;
    if (!timeline)
        return STRATA_OK;
    if (timeline->count == STRATA__TIMELINE_SPANS)
        status = read_oldest(timeline);
    /* A span that cannot be remembered counts as kernels. */
    if (status != STRATA_OK || timeline->count == STRATA__TIMELINE_SPANS)
        return status;
    span = &timeline->spans[(timeline->first + timeline->count) % STRATA__TIMELINE_SPANS];
    span->kind = kind;
    status = record(timeline, span->begin);
    timeline->is_open = status == STRATA_OK;
    return status;
}

strata_status strata__timeline_end(strata__timeline *timeline)
{
    strata__span *span;
    strata_status status;
    if (!timeline || !timeline->is_open)
        return STRATA_OK;
    span = &timeline->spans[(timeline->first + timeline->count) % STRATA__TIMELINE_SPANS];
    timeline->is_open = false;
    status = record(timeline, span->end);
    if (status == STRATA_OK)
        timeline->count++;
    return status;
}

void strata__timeline_read(strata__timeline *timeline)
{
    uint32_t before = timeline->count + 1;
    while (timeline->count && timeline->count < before) {
        before = timeline->count;
        if (read_oldest(timeline) != STRATA_OK)
            break;
    }
    timeline->count = 0;
    if (timeline->has_chunk)
        add(timeline, &timeline->chunk);
    timeline->has_chunk = false;
}
