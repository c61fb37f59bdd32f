/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "json.h"
#include "plan_view.h"

static const char *region_name(uint32_t region)
{
    static const char *const names[] = {"session", "prefill", "host", "decode host"};
    return names[region];
}

static void write_numbers(const plan_view *view, json_writer *json)
{
    const strata_plan_info *i = &view->info;
    json_u64(json, "device_bytes", i->device_bytes);
    if (i->device_budget_bytes != UINT64_MAX)
        json_u64(json, "device_budget_bytes", i->device_budget_bytes);
    else
        json_null(json, "device_budget_bytes");
    json_u64(json, "session_bytes", i->session_bytes);
    json_u64(json, "prefill_bytes", i->prefill_bytes);
    json_u64(json, "prefill_offset", view->prefill_offset);
    json_u64(json, "host_bytes", i->host_bytes);
    json_u64(json, "pinned_expert_bytes", i->pinned_expert_bytes);
    json_u64(json, "staged_expert_bytes", i->staged_expert_bytes);
    json_u64(json, "alignment_bytes", i->alignment_bytes);
    json_u64(json, "arena_bytes", i->arena_bytes);
    json_u64(json, "chunk_tokens", i->chunk_tokens);
    json_u64(json, "chunk_count", i->chunk_count);
    json_u64(json, "context_tokens", i->context_tokens);
    json_u64(json, "prompt_tokens", i->prompt_tokens);
    json_u64(json, "dense_tile_rows", i->dense_tile_rows);
    json_u64(json, "attention_tile_rows", i->attention_tile_rows);
    json_u64(json, "expert_tile_rows", i->expert_tile_rows);
    json_u64(json, "logit_tile_rows", i->logit_tile_rows);
    json_u64(json, "ring_bytes", i->ring_bytes);
    json_u64(json, "expert_cache_bytes", i->expert_cache_bytes);
    json_u64(json, "predicted_prompt_ns", i->predicted_prompt_ns);
    json_u64(json, "predicted_link_ns", i->predicted_link_ns);
    json_u64(json, "predicted_compute_ns", i->predicted_compute_ns);
    json_u64(json, "predicted_copied_bytes", i->predicted_copied_bytes);
}

static void write_paths(const plan_view *view, uint32_t band, json_writer *json)
{
    json_array(json, "paths");
    for (uint32_t layer = 0; layer < view->info.layer_count; layer++)
        json_string(json, NULL, plan_view_layer(view, layer, band)->path_name);
    json_end(json);
}

static void write_layers(const plan_view *view, json_writer *json)
{
    uint32_t last = view->info.band_count - 1;
    json_array(json, "layers");
    for (uint32_t layer = 0; layer < view->info.layer_count; layer++) {
        const strata_plan_layer *l = plan_view_layer(view, layer, last);
        json_object(json, NULL);
        json_string(json, "path", l->path_name);
        json_string(json, "reason", l->reason);
        json_u64(json, "configuration", l->configuration);
        json_u64(json, "resident_experts", l->resident_count);
        json_u64(json, "group_experts", l->group_expert_count);
        json_u64(json, "slot_bytes", l->slot_bytes);
        json_end(json);
    }
    json_end(json);
}

static void write_buffer(const plan_view *view, const strata_plan_buffer *b, json_writer *json)
{
    json_object(json, NULL);
    json_string(json, "name", b->name);
    json_u64(json, "offset", plan_view_offset(view, b));
    json_u64(json, "bytes", b->bytes);
    json_string(json, "region", region_name(b->region));
    json_u64(json, "first_stage", b->first_stage);
    json_u64(json, "last_stage", b->last_stage);
    json_u64(json, "row_capacity", b->row_capacity);
    json_u64(json, "row_bytes", b->row_bytes);
    json_end(json);
}

static void write_persistent(const plan_view *view, const char *key, bool host, json_writer *json)
{
    json_array(json, key);
    for (uint32_t i = 0; i < view->info.persistent_count; i++)
        if ((view->persistent[i].region == STRATA_REGION_HOST) == host)
            write_buffer(view, &view->persistent[i], json);
    json_end(json);
}

/* What decoding needs, in the session's region and in page-locked memory of its own. */
static void write_decode(const plan_view *view, json_writer *json)
{
    const strata_plan_info *i = &view->info;
    json_object(json, "decode");
    json_u64(json, "rows", i->decode_rows);
    json_u64(json, "arena_bytes", i->decode_arena_bytes);
    json_u64(json, "host_bytes", i->decode_host_bytes);
    json_array(json, "persistent");
    for (uint32_t b = 0; b < i->decode_persistent_count; b++)
        write_buffer(view, &view->persistent[i->persistent_count + b], json);
    json_end(json);
    json_array(json, "configurations");
    for (uint32_t c = 0; c < i->decode_configuration_count; c++) {
        const plan_configuration *configuration = &view->configurations[i->configuration_count + c];
        json_object(json, NULL);
        json_string(json, "path", configuration->info.path_name);
        json_u64(json, "rows", configuration->info.rows);
        json_u64(json, "layer_count", configuration->info.layer_count);
        json_u64(json, "bytes", configuration->info.bytes);
        json_array(json, "buffers");
        for (uint32_t b = 0; b < configuration->info.buffer_count; b++)
            write_buffer(view, &configuration->buffers[b], json);
        json_end(json);
        json_end(json);
    }
    json_end(json);
    json_end(json);
}

static void write_configuration(const plan_view *view, uint32_t index, json_writer *json)
{
    const plan_configuration *c = &view->configurations[index];
    json_object(json, NULL);
    json_string(json, "path", c->info.path_name);
    json_u64(json, "rows", c->info.rows);
    json_u64(json, "bytes", c->info.bytes);
    json_array(json, "layers");
    for (uint32_t i = 0; i < view->info.layer_count * view->info.band_count; i++)
        if (view->layers[i].configuration == index)
            json_u64(json, NULL, i / view->info.band_count);
    json_end(json);
    json_array(json, "buffers");
    for (uint32_t i = 0; i < c->info.buffer_count; i++)
        write_buffer(view, &c->buffers[i], json);
    json_end(json);
    json_end(json);
}

void plan_view_json(const plan_view *view, const failure *unsaved, FILE *out)
{
    json_writer json;
    json_start(&json, out);
    json_object(&json, NULL);
    json_bool(&json, "feasible", true);
    json_string(&json, "pack", view->pack_path);
    write_numbers(view, &json);
    write_paths(view, view->info.band_count - 1, &json);
    json_array(&json, "bands");
    for (uint32_t band = 0; band < view->info.band_count; band++) {
        json_object(&json, NULL);
        json_u64(&json, "rows", view->bands[band].rows);
        json_bool(&json, "fetch", view->bands[band].fetch);
        write_paths(view, band, &json);
        json_end(&json);
    }
    json_end(&json);
    write_layers(view, &json);
    json_array(&json, "stages");
    for (uint32_t i = 0; strcmp(strata_plan_stage_name(i), "?") != 0; i++)
        json_string(&json, NULL, strata_plan_stage_name(i));
    json_end(&json);
    write_persistent(view, "persistent", false, &json);
    write_persistent(view, "host", true, &json);
    json_array(&json, "configurations");
    for (uint32_t i = 0; i < view->info.configuration_count; i++)
        write_configuration(view, i, &json);
    json_end(&json);
    write_decode(view, &json);
    failure_json(&json, unsaved);
    json_end(&json);
}
