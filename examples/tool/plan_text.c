/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "plan_view.h"
#include "text.h"

static void write_head(const plan_view *view, FILE *out)
{
    const strata_plan_info *i = &view->info;
    double seconds = (double)i->predicted_prompt_ns / 1e9;
    fprintf(out, "%s\n", view->pack_path);
    fprintf(out, "  %s    %s (%llu bytes)", view->is_cpu ? "memory       " : "device memory",
            text_of_bytes(i->device_bytes).text, (unsigned long long)i->device_bytes);
    if (i->device_budget_bytes != UINT64_MAX)
        fprintf(out, " of %s", text_of_bytes(i->device_budget_bytes).text);
    fprintf(out, "\n    session        %s\n", text_of_bytes(i->session_bytes).text);
    fprintf(out, "    prompts        %s, of which %s arena\n", text_of_bytes(i->prefill_bytes).text,
            text_of_bytes(i->arena_bytes).text);
    fprintf(out, "  %s      %s%s", view->is_cpu ? "in and out " : "host memory",
            text_of_bytes(i->host_bytes).text, view->is_cpu ? "" : " page-locked");
    if (i->pinned_expert_bytes)
        fprintf(out, ", and %s of experts", text_of_bytes(i->pinned_expert_bytes).text);
    if (i->staged_expert_bytes)
        fprintf(out, "; %s of experts are staged", text_of_bytes(i->staged_expert_bytes).text);
    fprintf(out, "\n  prompt           %s in %s of %u; context %llu\n",
            text_of_count(i->prompt_tokens, "token").text,
            text_of_count(i->chunk_count, "chunk").text, i->chunk_tokens,
            (unsigned long long)i->context_tokens);
    fprintf(out, "  tiles            %u rows dense, %u attention, %u sorted rows, %u logits\n",
            i->dense_tile_rows, i->attention_tile_rows, i->expert_tile_rows, i->logit_tile_rows);
    if (i->decode_rows) {
        fprintf(out, "  decoding         %s, %s arena", text_of_count(i->decode_rows, "row").text,
                text_of_bytes(i->decode_arena_bytes).text);
        fprintf(out, ", %s in and out\n", text_of_bytes(i->decode_host_bytes).text);
    }
    if (i->ring_bytes)
        fprintf(out, "  ring             %s\n", text_of_bytes(i->ring_bytes).text);
    fprintf(out, "  predicted        %.3f s, %.0f tokens/s; kernels %.3f s, link %.3f s for %s\n",
            seconds, (double)i->prompt_tokens / seconds, (double)i->predicted_compute_ns / 1e9,
            (double)i->predicted_link_ns / 1e9, text_of_bytes(i->predicted_copied_bytes).text);
}

/* One line for each run of layers that are alike. */
static void write_layers(const plan_view *view, FILE *out)
{
    const strata_plan_info *i = &view->info;
    uint32_t first = 0;
    fputs("\n  layers     path by rows", out);
    for (uint32_t band = 0; band < i->band_count; band++)
        fprintf(out, "%s%u", band ? ", " : " <= ", view->bands[band].rows);
    fputs("\n", out);
    while (first < i->layer_count) {
        uint32_t last = first;
        const strata_plan_layer *l = plan_view_layer(view, first, i->band_count - 1);
        while (last + 1 < i->layer_count) {
            const strata_plan_layer *next = plan_view_layer(view, last + 1, i->band_count - 1);
            bool same = next->resident_count == l->resident_count && next->reason == l->reason;
            for (uint32_t band = 0; band < i->band_count; band++)
                same = same && plan_view_layer(view, last + 1, band)->path ==
                                   plan_view_layer(view, first, band)->path;
            if (!same)
                break;
            last++;
        }
        fprintf(out, "  %3u - %-3u ", first, last);
        for (uint32_t band = 0; band < i->band_count; band++)
            fprintf(out, " %-7s", plan_view_layer(view, first, band)->path_name);
        fprintf(out, " %s", l->reason);
        if (l->resident_count || l->group_expert_count)
            fprintf(out, "; %s on the device", text_of_count(l->resident_count, "expert").text);
        fputs("\n", out);
        first = last + 1;
    }
}

static void write_persistent(const plan_view *view, FILE *out)
{
    static const char *const regions[] = {"session", "prefill", "host"};
    fputs("\n  persistent             region          offset        bytes\n", out);
    for (uint32_t i = 0; i < view->info.persistent_count; i++) {
        const strata_plan_buffer *b = &view->persistent[i];
        fprintf(out, "  %-22s %-8s %13llu %12llu\n", b->name, regions[b->region],
                (unsigned long long)plan_view_offset(view, b), (unsigned long long)b->bytes);
    }
}

static void write_configurations(const plan_view *view, FILE *out)
{
    fputs("\n  configuration      rows  layers  buffers        bytes\n", out);
    for (uint32_t i = 0; i < view->info.configuration_count; i++) {
        const strata_plan_configuration *c = &view->configurations[i].info;
        fprintf(out, "  %-16s %6u  %6u  %7u %12llu\n", c->layer_count ? c->path_name : "logits",
                c->rows, c->layer_count, c->buffer_count, (unsigned long long)c->bytes);
    }
}

void plan_view_text(const plan_view *view, FILE *out)
{
    const plan_configuration *largest = &view->configurations[0];
    write_head(view, out);
    write_layers(view, out);
    write_persistent(view, out);
    write_configurations(view, out);
    for (uint32_t i = 0; i < view->info.configuration_count; i++)
        if (view->configurations[i].info.bytes > largest->info.bytes)
            largest = &view->configurations[i];
    plan_picture(view, largest, out);
}
