/* SPDX-License-Identifier: MIT */
#include "base/format.h"

#include <stddef.h>
#include <string.h>

#include "base/checked.h"

static const strata__format_info decoded[STRATA__FORMAT_LIMIT] = {
    [STRATA__F32] = {"F32", 1, 4, 0, 0},
    [STRATA__F16] = {"F16", 1, 2, 0, 0},
    [STRATA__BF16] = {"BF16", 1, 2, 0, 0},
    [STRATA__Q4_0] = {"Q4_0", 32, 18, 32, 0},
    [STRATA__Q4_1] = {"Q4_1", 32, 20, 32, 32},
    [STRATA__Q5_0] = {"Q5_0", 32, 22, 32, 0},
    [STRATA__Q5_1] = {"Q5_1", 32, 24, 32, 32},
    [STRATA__Q8_0] = {"Q8_0", 32, 34, 32, 0},
    [STRATA__Q2_K] = {"Q2_K", 256, 84, 32, 16},
    [STRATA__Q3_K] = {"Q3_K", 256, 110, 32, 0},
    [STRATA__Q4_K] = {"Q4_K", 256, 144, 32, 32},
    [STRATA__Q5_K] = {"Q5_K", 256, 176, 32, 32},
    [STRATA__Q6_K] = {"Q6_K", 256, 210, 16, 0},
    [STRATA__IQ1_S] = {"IQ1_S", 256, 50, 32, 0},
    [STRATA__IQ1_M] = {"IQ1_M", 256, 56, 16, 0},
    [STRATA__IQ2_XXS] = {"IQ2_XXS", 256, 66, 32, 0},
    [STRATA__IQ2_XS] = {"IQ2_XS", 256, 74, 16, 0},
    [STRATA__IQ2_S] = {"IQ2_S", 256, 82, 16, 0},
    [STRATA__IQ3_XXS] = {"IQ3_XXS", 256, 98, 32, 0},
    [STRATA__IQ3_S] = {"IQ3_S", 256, 110, 32, 0},
    [STRATA__IQ4_NL] = {"IQ4_NL", 32, 18, 32, 0},
    [STRATA__IQ4_XS] = {"IQ4_XS", 256, 136, 32, 0},
    [STRATA__MXFP4] = {"MXFP4", 32, 17, 32, 0},
    [STRATA__Q2_0] = {"Q2_0", 64, 18, 64, 0},
};

/* Types that files may carry and this library does not decode. */
static const struct {
    uint32_t id;
    const char *name;
} named_only[] = {
    {9, "Q8_1"}, {15, "Q8_K"},  {24, "I8"},    {25, "I16"},   {26, "I32"},  {27, "I64"},
    {28, "F64"}, {34, "TQ1_0"}, {35, "TQ2_0"}, {40, "NVFP4"}, {41, "Q1_0"},
};

const strata__format_info *strata__format_find(uint32_t id)
{
    return id < STRATA__FORMAT_LIMIT && decoded[id].name ? &decoded[id] : NULL;
}

const strata__format_info *strata__format_find_name(const char *name, uint32_t *out_id)
{
    for (uint32_t id = 0; id < STRATA__FORMAT_LIMIT; id++)
        if (decoded[id].name && strcmp(decoded[id].name, name) == 0) {
            *out_id = id;
            return &decoded[id];
        }
    return NULL;
}

const char *strata__format_name(uint32_t id)
{
    const strata__format_info *info = strata__format_find(id);
    if (info)
        return info->name;
    for (size_t i = 0; i < sizeof named_only / sizeof named_only[0]; i++)
        if (named_only[i].id == id)
            return named_only[i].name;
    return NULL;
}

bool strata__format_row_bytes(uint32_t id, uint64_t values, uint64_t *out_bytes)
{
    const strata__format_info *info = strata__format_find(id);
    if (!info || values % info->block_values)
        return false;
    return strata__mul_u64(values / info->block_values, info->block_bytes, out_bytes);
}
