/* SPDX-License-Identifier: MIT */
/* What a plan says of itself. */
#include <strata/plan.h>

#include <stddef.h>

#include "base/error.h"
#include "base/struct_size.h"
#include "session/plan.h"

/* Sizes of the structures in the release that brought them. */
enum {
    FIRST_INFO_BYTES = 248,
    FIRST_BAND_BYTES = 16,
    FIRST_LAYER_BYTES = 48,
    FIRST_CONFIGURATION_BYTES = 40,
    FIRST_BUFFER_BYTES = 56
};

static strata_status check(const strata_plan *plan, const void *inout, const char *function)
{
    if (plan && inout)
        return STRATA_OK;
    return strata__fail(STRATA_ERR_INVALID_ARGUMENT, "%s: %s is NULL", function,
                        plan ? "inout" : "plan");
}

static strata_status check_index(uint32_t index, uint32_t count, const char *what)
{
    if (index < count)
        return STRATA_OK;
    return strata__fail(STRATA_ERR_INVALID_ARGUMENT, "%s %u of a plan that has %u", what, index,
                        count);
}

static uint32_t persistent_count(const strata__layout *layout)
{
    return layout->session_buffer_count + layout->prompt.persistent_count +
           layout->host_buffer_count;
}

static uint32_t decode_persistent_count(const strata__layout *layout)
{
    return layout->decode.persistent_count + layout->decode.host_count;
}

/* Configuration `*index` of all, which becomes its number in the work that it belongs to. */
static const strata__layout_work *work_of(const strata__layout *layout, uint32_t *index)
{
    if (*index < layout->prompt.config_count)
        return &layout->prompt;
    *index -= layout->prompt.config_count;
    return &layout->decode;
}

static uint32_t configuration_count(const strata__layout *layout)
{
    return layout->prompt.config_count + layout->decode.config_count;
}

static void fill_work(const strata__layout_work *work, strata_plan_info *info)
{
    info->layer_count = work->layer_count;
    info->band_count = work->band_count;
    info->configuration_count = work->config_count;
    info->chunk_tokens = work->chunk_tokens;
    info->dense_tile_rows = work->dense_tile;
    info->attention_tile_rows = work->attention_tile;
    info->expert_tile_rows = work->expert_tile;
    info->logit_tile_rows = work->logit_tile;
    info->arena_bytes = work->arena_bytes;
}

strata_status strata_plan_info_get(const strata_plan *plan, strata_plan_info *inout)
{
    strata_plan_info info = {0};
    const strata__layout *l;
    strata_status status = check(plan, inout, "strata_plan_info_get");
    if (status != STRATA_OK)
        return status;
    l = plan->layout;
    fill_work(&l->prompt, &info);
    info.persistent_count = persistent_count(l);
    info.chunk_count = l->chunk_count;
    info.sequence_count = l->sequences;
    info.page_tokens = l->page_tokens;
    info.kv_format = l->kv_format;
    info.context_tokens = l->context_tokens;
    info.prompt_tokens = l->prompt_tokens;
    info.device_budget_bytes = l->budget_bytes;
    info.device_bytes = l->device_bytes;
    info.session_bytes = l->session_bytes;
    info.prefill_bytes = l->prompt_bytes;
    info.host_bytes = l->host_bytes;
    info.pinned_expert_bytes = l->pinned_bytes;
    info.staged_expert_bytes = l->staged_bytes;
    info.alignment_bytes = l->alignment_bytes;
    info.ring_bytes = l->ring_bytes;
    info.expert_cache_bytes = l->cache_bytes;
    info.loan_offset_bytes = l->loan_offset;
    info.loan_bytes = l->loan_bytes;
    info.predicted_prompt_ns = l->prediction.prompt_ns;
    info.predicted_link_ns = l->prediction.link_ns;
    info.predicted_compute_ns = l->prediction.compute_ns;
    info.predicted_copied_bytes = l->prediction.copied_bytes;
    info.decode_rows = l->decode.chunk_tokens;
    info.decode_configuration_count = l->decode.config_count;
    info.decode_persistent_count = decode_persistent_count(l);
    info.decode_arena_bytes = l->decode.arena_bytes;
    info.decode_host_bytes = l->decode.host_bytes;
    info.kv_tokens = (uint64_t)l->pages_total * l->page_tokens;
    return strata__struct_out(inout, &info, sizeof info, FIRST_INFO_BYTES, "strata_plan_info");
}

strata_status strata_plan_band_get(const strata_plan *plan, uint32_t index, strata_plan_band *inout)
{
    strata_plan_band band = {0};
    strata_status status = check(plan, inout, "strata_plan_band_get");
    if (status == STRATA_OK)
        status = check_index(index, plan->layout->prompt.band_count, "band");
    if (status != STRATA_OK)
        return status;
    band.rows = plan->layout->prompt.bands[index].rows;
    band.fetch = plan->layout->prompt.bands[index].fetch;
    return strata__struct_out(inout, &band, sizeof band, FIRST_BAND_BYTES, "strata_plan_band");
}

strata_status strata_plan_layer_get(const strata_plan *plan, uint32_t layer, uint32_t band,
                                    strata_plan_layer *inout)
{
    strata_plan_layer answer = {0};
    const strata__layout_place *place;
    const strata__layout_work *work;
    uint32_t cell;
    strata_status status = check(plan, inout, "strata_plan_layer_get");
    if (status == STRATA_OK)
        status = check_index(layer, plan->layout->layer_count, "layer");
    if (status == STRATA_OK)
        status = check_index(band, plan->layout->prompt.band_count, "band");
    if (status != STRATA_OK)
        return status;
    work = &plan->layout->prompt;
    place = &plan->layout->layers[layer];
    cell = layer * work->band_count + band;
    answer.path = work->paths[cell];
    answer.configuration = work->config_of[cell];
    answer.resident_count = place->resident_count;
    answer.group_expert_count = place->group_experts;
    answer.slot_bytes = place->slot_bytes;
    answer.path_name = strata__layout_path_name(answer.path);
    answer.reason = strata__layout_reason_name(work->reasons[cell]);
    return strata__struct_out(inout, &answer, sizeof answer, FIRST_LAYER_BYTES,
                              "strata_plan_layer");
}

static uint32_t count_layers(const strata__layout_work *work, uint32_t configuration)
{
    uint32_t count = 0, band = work->configs[configuration].band;
    for (uint32_t layer = 0; layer < work->layer_count; ++layer)
        count += work->config_of[layer * work->band_count + band] == configuration;
    return count;
}

strata_status strata_plan_configuration_get(const strata_plan *plan, uint32_t index,
                                            strata_plan_configuration *inout)
{
    strata_plan_configuration answer = {0};
    const strata__layout_config *config;
    const strata__layout_work *work;
    strata_status status = check(plan, inout, "strata_plan_configuration_get");
    if (status == STRATA_OK)
        status = check_index(index, configuration_count(plan->layout), "configuration");
    if (status != STRATA_OK)
        return status;
    work = work_of(plan->layout, &index);
    config = &work->configs[index];
    answer.path = config->path;
    answer.rows = config->rows;
    answer.layer_count = count_layers(work, index);
    answer.buffer_count = config->buffer_count;
    answer.bytes = config->bytes;
    answer.path_name = strata__layout_path_name(config->path);
    return strata__struct_out(inout, &answer, sizeof answer, FIRST_CONFIGURATION_BYTES,
                              "strata_plan_configuration");
}

static strata_status buffer_out(const strata__layout_buffer *buffer, uint32_t region,
                                strata_plan_buffer *inout)
{
    const strata_plan_buffer answer = {.region = region,
                                       .first_stage = buffer->first_stage,
                                       .last_stage = buffer->last_stage,
                                       .offset_bytes = buffer->offset,
                                       .bytes = buffer->bytes,
                                       .row_capacity = buffer->row_capacity,
                                       .row_bytes = buffer->row_bytes,
                                       .name = strata__layout_buffer_name(buffer->id)};
    return strata__struct_out(inout, &answer, sizeof answer, FIRST_BUFFER_BYTES,
                              "strata_plan_buffer");
}

strata_status strata_plan_persistent_get(const strata_plan *plan, uint32_t index,
                                         strata_plan_buffer *inout)
{
    const strata__layout *l;
    strata_status status = check(plan, inout, "strata_plan_persistent_get");
    if (status == STRATA_OK)
        status = check_index(index,
                             persistent_count(plan->layout) + decode_persistent_count(plan->layout),
                             "persistent buffer");
    if (status != STRATA_OK)
        return status;
    l = plan->layout;
    if (index < l->session_buffer_count)
        return buffer_out(&l->session_buffers[index], STRATA_REGION_SESSION, inout);
    index -= l->session_buffer_count;
    if (index < l->prompt.persistent_count)
        return buffer_out(&l->prompt.persistent[index], STRATA_REGION_PREFILL, inout);
    index -= l->prompt.persistent_count;
    if (index < l->host_buffer_count)
        return buffer_out(&l->host_buffers[index], STRATA_REGION_HOST, inout);
    index -= l->host_buffer_count;
    if (index < l->decode.persistent_count)
        return buffer_out(&l->decode.persistent[index], STRATA_REGION_SESSION, inout);
    index -= l->decode.persistent_count;
    return buffer_out(&l->decode.host[index], STRATA_REGION_DECODE, inout);
}

strata_status strata_plan_buffer_get(const strata_plan *plan, uint32_t configuration,
                                     uint32_t index, strata_plan_buffer *inout)
{
    const strata__layout_config *config;
    const strata__layout_work *work;
    uint32_t region;
    strata_status status = check(plan, inout, "strata_plan_buffer_get");
    if (status == STRATA_OK)
        status = check_index(configuration, configuration_count(plan->layout), "configuration");
    if (status != STRATA_OK)
        return status;
    work = work_of(plan->layout, &configuration);
    region = work == &plan->layout->prompt ? STRATA_REGION_PREFILL : STRATA_REGION_SESSION;
    config = &work->configs[configuration];
    status = check_index(index, config->buffer_count, "buffer");
    if (status != STRATA_OK)
        return status;
    return buffer_out(&config->buffers[index], region, inout);
}

const char *strata_plan_stage_name(uint32_t stage)
{
    return strata__layout_stage_name(stage);
}
