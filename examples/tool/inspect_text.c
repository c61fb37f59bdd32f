/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <string.h>

#include "inspect.h"
#include "text.h"

enum { SHOWN_ELEMENTS = 4, SHOWN_BYTES = 60 };

static void write_head(const inspection *all, FILE *out)
{
    const strata_pack_info *info = &all->info;
    fprintf(out, "%s\n", all->path);
    fputs("  architecture  ", out);
    text_model(out, info);
    fprintf(out, "\n  runnable      %s", info->runnable ? "yes" : "no: ");
    text_show(out, info->runnable_reason);
    fprintf(out, "\n  file          %s, %s, %" PRIu64 " metadata entr%s\n",
            text_of_bytes(info->file_bytes).text, text_of_count(info->tensor_count, "tensor").text,
            info->metadata_count, info->metadata_count == 1 ? "y" : "ies");
    if (info->token_count)
        fprintf(out, "  vocabulary    %s\n", text_of_count(info->token_count, "token").text);
    if (!info->runnable)
        return;
    fprintf(out, "  model         %s of width %u, context %u\n",
            text_of_count(info->layer_count, "layer").text, info->width, info->context_tokens);
    fprintf(out, "  experts       %u a layer, %u for a token: %s\n", info->expert_count,
            info->experts_per_token, text_of_bytes(info->expert_bytes).text);
    fprintf(out, "  other         %s\n", text_of_bytes(info->dense_bytes).text);
}

static void write_layer(const inspection *all, uint32_t first, uint32_t last, FILE *out)
{
    const strata_layer_info *layer = &all->layers[first];
    char range[24], heads[32], window[24];
    uint64_t blob = layer->gate_blob_bytes + layer->up_blob_bytes + layer->down_blob_bytes;
    snprintf(range, sizeof range, first == last ? "%u" : "%u-%u", first, last);
    snprintf(heads, sizeof heads, "%u/%u x %u", layer->heads, layer->kv_heads, layer->head_size);
    snprintf(window, sizeof window, layer->window_tokens ? "%u" : "full", layer->window_tokens);
    fprintf(out, "  %-9s %-13s %-7s", range, heads, window);
    if (layer->expert_count)
        fprintf(out, " %5u x %-6u %-8s %-8s %-8s %10s", layer->expert_count, layer->expert_width,
                inspection_format(all, layer->gate_format),
                inspection_format(all, layer->up_format),
                inspection_format(all, layer->down_format), text_of_bytes(blob).text);
    else
        fprintf(out, " dense %u", layer->ffn_width);
    if (layer->shared_width)
        fprintf(out, "  + shared %u", layer->shared_width);
    fputc('\n', out);
}

/* Layers that are alike are one line. */
static void write_layers(const inspection *all, FILE *out)
{
    uint32_t first = 0;
    if (!all->info.layer_count)
        return;
    fprintf(out, "\n  %-9s %-13s %-7s %-14s %-8s %-8s %-8s %10s\n", "layers", "heads", "window",
            "experts", "gate", "up", "down", "blob");
    for (uint32_t i = 1; i <= all->info.layer_count; i++) {
        if (i < all->info.layer_count &&
            memcmp(&all->layers[i], &all->layers[first], sizeof all->layers[i]) == 0)
            continue;
        write_layer(all, first, i - 1, out);
        first = i;
    }
}

static strata_status write_tensors(const inspection *all, FILE *out)
{
    fputc('\n', out);
    for (uint64_t i = 0; i < all->info.tensor_count; i++) {
        strata_tensor_info tensor = {.struct_size = sizeof tensor};
        strata_status status = strata_pack_tensor_get(all->pack, i, &tensor);
        if (status != STRATA_OK)
            return status;
        fprintf(out, "  %-44s %-8s", tensor.name, tensor.format_name);
        for (uint32_t d = 0; d < tensor.dimension_count; d++)
            fprintf(out, "%s%" PRIu64, d ? " x " : " ", tensor.shape[d]);
        fprintf(out, "  %s\n", text_of_bytes(tensor.bytes).text);
    }
    return STRATA_OK;
}

static strata_status write_entry(const inspection *all, const strata_metadata_info *entry,
                                 FILE *out)
{
    bool array = entry->type == STRATA_VALUE_ARRAY;
    uint64_t shown = entry->count < SHOWN_ELEMENTS ? entry->count : SHOWN_ELEMENTS;
    fprintf(out, "  %s =", entry->key);
    if (array && entry->element_type == STRATA_VALUE_ARRAY)
        shown = 0;
    for (uint64_t i = 0; i < shown; i++) {
        metadata_text text;
        strata_status status = inspection_metadata_text(all, entry, i, &text);
        if (status != STRATA_OK)
            return status;
        fputc(' ', out);
        if (text.is_string)
            text_quote(out, text.bytes, text.count < SHOWN_BYTES ? text.count : SHOWN_BYTES);
        else
            fputs(text.bytes, out);
    }
    if (array)
        fprintf(out, "%s (%s)", shown < entry->count ? " ..." : "",
                text_of_count(entry->count, "element").text);
    fputc('\n', out);
    return STRATA_OK;
}

static strata_status write_metadata(const inspection *all, FILE *out)
{
    fputc('\n', out);
    for (uint64_t i = 0; i < all->info.metadata_count; i++) {
        strata_metadata_info entry = {.struct_size = sizeof entry};
        strata_status status = strata_pack_metadata_get(all->pack, i, &entry);
        if (status == STRATA_OK)
            status = write_entry(all, &entry, out);
        if (status != STRATA_OK)
            return status;
    }
    return STRATA_OK;
}

strata_status inspection_write_text(const inspection *all, FILE *out)
{
    strata_status status = STRATA_OK;
    write_head(all, out);
    write_layers(all, out);
    if (all->with_metadata)
        status = write_metadata(all, out);
    if (all->with_tensors && status == STRATA_OK)
        status = write_tensors(all, out);
    return status;
}
