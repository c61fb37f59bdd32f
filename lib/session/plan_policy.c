/* SPDX-License-Identifier: MIT */
/* The text of a path policy: "fused,8:fp16,13:fp16". */
#include <string.h>

#include "base/error.h"
#include "session/plan_input.h"

static bool same(const char *text, uint64_t length, const char *name)
{
    return strlen(name) == length && memcmp(text, name, length) == 0;
}

static strata_status read_path(const char *text, uint64_t length, uint32_t *out)
{
    for (uint32_t path = 0; path < STRATA__LAYOUT_PATH_COUNT; ++path) {
        *out = path;
        if (same(text, length, strata__layout_path_name(path)))
            return STRATA_OK;
    }
    *out = STRATA__LAYOUT_PATH_AUTO;
    if (same(text, length, "auto"))
        return STRATA_OK;
    return strata__fail(STRATA_ERR_INVALID_ARGUMENT,
                        "\"%.*s\" is no path: auto, direct, fused, mmq or fp16",
                        (int)(length < 64 ? length : 64), text);
}

/* A layer number of `length` digits. */
static strata_status read_layer(const char *text, uint64_t length, uint32_t layers, uint32_t *out)
{
    uint32_t value = 0;
    bool good = length > 0;
    for (uint64_t i = 0; i < length && good; ++i) {
        good = text[i] >= '0' && text[i] <= '9';
        if (good)
            value = value * 10 + (uint32_t)(text[i] - '0');
        good = good && value < layers;
    }
    *out = value;
    if (good)
        return STRATA_OK;
    return strata__fail(STRATA_ERR_INVALID_ARGUMENT,
                        "path policy: \"%.*s\" is no layer of a pack of %u",
                        (int)(length < 64 ? length : 64), text, layers);
}

static strata_status read_item(const char *text, uint64_t length, uint32_t layers,
                               uint32_t *inout_path, uint8_t *layer_paths)
{
    const char *colon = memchr(text, ':', length);
    uint32_t layer, path;
    uint64_t digits;
    strata_status status;
    if (!colon)
        return read_path(text, length, inout_path);
    digits = (uint64_t)(colon - text);
    status = read_layer(text, digits, layers, &layer);
    if (status == STRATA_OK)
        status = read_path(colon + 1, length - digits - 1, &path);
    if (status == STRATA_OK)
        layer_paths[layer] = (uint8_t)path;
    return status;
}

strata_status strata__plan_policy_parse(const char *text, uint32_t layers, uint32_t *out_path,
                                        uint8_t *layer_paths)
{
    *out_path = STRATA__LAYOUT_PATH_AUTO;
    memset(layer_paths, STRATA__LAYOUT_PATH_AUTO, layers);
    for (;;) {
        const char *comma = strchr(text, ',');
        uint64_t length = comma ? (uint64_t)(comma - text) : strlen(text);
        strata_status status = read_item(text, length, layers, out_path, layer_paths);
        if (status != STRATA_OK || !comma)
            return status;
        text = comma + 1;
    }
}
