/* SPDX-License-Identifier: MIT */
#include "plan_view.h"

#include <stdlib.h>
#include <string.h>

#include "tool.h"

static void *array(uint64_t count, uint64_t size)
{
    return calloc(count ? count : 1, size);
}

static strata_status read_layers(const strata_plan *plan, plan_view *view)
{
    uint32_t bands = view->info.band_count;
    for (uint32_t band = 0; band < bands; band++) {
        strata_status status;
        view->bands[band].struct_size = sizeof view->bands[band];
        status = strata_plan_band_get(plan, band, &view->bands[band]);
        if (status != STRATA_OK)
            return status;
    }
    for (uint32_t i = 0; i < view->info.layer_count * bands; i++) {
        strata_status status;
        view->layers[i].struct_size = sizeof view->layers[i];
        status = strata_plan_layer_get(plan, i / bands, i % bands, &view->layers[i]);
        if (status != STRATA_OK)
            return status;
    }
    return STRATA_OK;
}

static uint32_t persistent_count(const plan_view *view)
{
    return view->info.persistent_count + view->info.decode_persistent_count;
}

static uint32_t configuration_count(const plan_view *view)
{
    return view->info.configuration_count + view->info.decode_configuration_count;
}

static strata_status read_persistent(const strata_plan *plan, plan_view *view)
{
    for (uint32_t i = 0; i < persistent_count(view); i++) {
        strata_status status;
        view->persistent[i].struct_size = sizeof view->persistent[i];
        status = strata_plan_persistent_get(plan, i, &view->persistent[i]);
        if (status != STRATA_OK)
            return status;
    }
    return STRATA_OK;
}

static strata_status read_configuration(const strata_plan *plan, uint32_t index,
                                        plan_configuration *out)
{
    strata_status status;
    out->info.struct_size = sizeof out->info;
    status = strata_plan_configuration_get(plan, index, &out->info);
    if (status != STRATA_OK)
        return status;
    out->buffers = array(out->info.buffer_count, sizeof *out->buffers);
    if (!out->buffers)
        return tool_own(STRATA_ERR_NO_MEMORY);
    for (uint32_t i = 0; i < out->info.buffer_count && status == STRATA_OK; i++) {
        out->buffers[i].struct_size = sizeof out->buffers[i];
        status = strata_plan_buffer_get(plan, index, i, &out->buffers[i]);
    }
    return status;
}

strata_status plan_view_read(const strata_plan *plan, const char *pack_path, plan_view *view)
{
    strata_status status;
    memset(view, 0, sizeof *view);
    view->pack_path = pack_path;
    view->info.struct_size = sizeof view->info;
    status = strata_plan_info_get(plan, &view->info);
    if (status != STRATA_OK)
        return status;
    view->bands = array(view->info.band_count, sizeof *view->bands);
    view->layers =
        array((uint64_t)view->info.layer_count * view->info.band_count, sizeof *view->layers);
    view->persistent = array(persistent_count(view), sizeof *view->persistent);
    view->configurations = array(configuration_count(view), sizeof *view->configurations);
    if (!view->bands || !view->layers || !view->persistent || !view->configurations)
        return tool_own(STRATA_ERR_NO_MEMORY);
    view->prefill_offset =
        view->info.loan_bytes ? view->info.loan_offset_bytes : view->info.session_bytes;
    status = read_layers(plan, view);
    if (status == STRATA_OK)
        status = read_persistent(plan, view);
    for (uint32_t i = 0; i < configuration_count(view) && status == STRATA_OK; i++)
        status = read_configuration(plan, i, &view->configurations[i]);
    return status;
}

void plan_view_free(plan_view *view)
{
    for (uint32_t i = 0; view->configurations && i < configuration_count(view); i++)
        free(view->configurations[i].buffers);
    free(view->configurations);
    free(view->persistent);
    free(view->layers);
    free(view->bands);
    memset(view, 0, sizeof *view);
}

const strata_plan_layer *plan_view_layer(const plan_view *view, uint32_t layer, uint32_t band)
{
    return &view->layers[layer * view->info.band_count + band];
}

uint64_t plan_view_offset(const plan_view *view, const strata_plan_buffer *buffer)
{
    return buffer->offset_bytes +
           (buffer->region == STRATA_REGION_PREFILL ? view->prefill_offset : 0);
}
