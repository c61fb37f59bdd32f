/* SPDX-License-Identifier: MIT */
#include "layout/layout.h"

#include <stddef.h>

#include "base/error.h"

uint32_t strata__layout_band_of(const strata__layout_work *work, uint64_t rows)
{
    uint32_t band = 0;
    while (band < work->band_count && rows > work->bands[band].rows)
        band++;
    return rows ? band : work->band_count;
}

uint32_t strata__layout_config_of(const strata__layout_work *work, uint32_t layer, uint64_t rows)
{
    uint32_t band = strata__layout_band_of(work, rows);
    if (layer >= work->layer_count || band == work->band_count)
        return work->config_count;
    return work->config_of[layer * work->band_count + band];
}

static const strata__layout_buffer *find(const strata__layout_buffer *buffers, uint32_t count,
                                         uint32_t id)
{
    for (uint32_t i = 0; i < count; ++i)
        if (buffers[i].id == id)
            return &buffers[i];
    return NULL;
}

const strata__layout_buffer *strata__layout_find(const strata__layout_work *work, uint32_t config,
                                                 uint32_t id)
{
    if (config >= work->config_count)
        return NULL;
    return find(work->configs[config].buffers, work->configs[config].buffer_count, id);
}

const strata__layout_buffer *strata__layout_find_work(const strata__layout_work *work, uint32_t id)
{
    return find(work->persistent, work->persistent_count, id);
}

const strata__layout_buffer *strata__layout_find_work_host(const strata__layout_work *work,
                                                           uint32_t id)
{
    return find(work->host, work->host_count, id);
}

const strata__layout_buffer *strata__layout_find_ring(const strata__layout *layout)
{
    const strata__layout_work *work = layout->ring_bytes ? &layout->prompt : &layout->decode;
    return strata__layout_find_work(work, STRATA__BUFFER_RING);
}

const strata__layout_buffer *strata__layout_find_session(const strata__layout *layout, uint32_t id)
{
    return find(layout->session_buffers, layout->session_buffer_count, id);
}

const strata__layout_buffer *strata__layout_find_host(const strata__layout *layout, uint32_t id)
{
    return find(layout->host_buffers, layout->host_buffer_count, id);
}

strata_status strata__layout_check(const strata__layout_work *work,
                                   const strata__layout_launch *launch, uint32_t id, uint64_t rows)
{
    const strata__layout_buffer *b = strata__layout_find(work, launch->config, id);
    uint32_t path = STRATA__LAYOUT_PATH_NONE;
    uint64_t capacity = 0;
    if (!b)
        b = strata__layout_find_work(work, id);
    if (b)
        capacity = b->row_capacity;
    if (rows <= capacity)
        return STRATA_OK;
    if (launch->config < work->config_count)
        path = work->configs[launch->config].path;
    return strata__fail(STRATA_ERR_CAPACITY,
                        "layer %u, path %s, chunk %llu: %llu rows for buffer %s, planned for %llu",
                        launch->layer, strata__layout_path_name(path),
                        (unsigned long long)launch->chunk, (unsigned long long)rows,
                        strata__layout_buffer_name(id), (unsigned long long)capacity);
}
