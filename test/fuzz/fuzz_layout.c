/* SPDX-License-Identifier: MIT */
/*
 * Loads any bytes as a saved layout. Size and checksum are made right, so that what is behind them
 * is reached. What must hold: no crash, every refusal has a text, and what loads has tables that
 * add up and is saved as the same layout.
 */
#include <string.h>

#define FUZZ_MODULES
#include "fuzz_target.h"
#include "layout_model.h"
#include "must.h"

enum { MOST_BYTES = 1 << 16, SIZE_AT = 12 };

static void seal(uint8_t *data, uint64_t bytes)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (uint32_t i = 0; i < 4; ++i)
        data[SIZE_AT + i] = (uint8_t)(bytes >> 8 * i);
    for (uint64_t i = 0; i < bytes - 8; ++i)
        hash = (hash ^ data[i]) * 0x100000001b3u;
    for (uint32_t i = 0; i < 8; ++i)
        data[bytes - 8 + i] = (uint8_t)(hash >> 8 * i);
}

static void look_at_tables(const strata__layout *layout)
{
    const strata__layout_work *w = &layout->prompt;
    must(layout->device_bytes <= layout->budget_bytes, "a layout within its budget");
    for (uint32_t i = 0; i < w->config_count; ++i)
        for (uint32_t j = 0; j < w->configs[i].buffer_count; ++j) {
            const strata__layout_buffer *b = &w->configs[i].buffers[j];
            must(b->offset >= w->arena_offset && b->offset + b->bytes <= layout->prompt_bytes,
                 "a buffer within its region");
        }
    for (uint32_t layer = 0; layer < w->layer_count; ++layer)
        must(strata__layout_config_of(w, layer, w->chunk_tokens) < w->config_count,
             "a configuration for the chunk");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static uint8_t copy[MOST_BYTES], again[MOST_BYTES];
    strata__layout *layout = NULL;
    strata_status status;
    if (bytes < 32 || bytes > MOST_BYTES)
        return 0;
    memcpy(copy, data, bytes);
    seal(copy, bytes);
    status = strata__layout_load(strata__allocator_default(), &fuzz_geometry,
                                 FUZZ_LAYOUT_FINGERPRINT, copy, bytes, &layout);
    must((status == STRATA_OK) == (layout != NULL), "a layout or a refusal");
    if (!layout) {
        must_have_text(status);
        return 0;
    }
    look_at_tables(layout);
    must(strata__layout_save(layout, FUZZ_LAYOUT_FINGERPRINT, again, sizeof again) <= sizeof again,
         "a layout that can be saved");
    strata__layout_destroy(layout);
    return 0;
}
