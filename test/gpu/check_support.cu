/* SPDX-License-Identifier: MIT */
/* Random weights and activations. */
#include "check.h"

const uint32_t all_formats[24] = {0,  1,  2,  3,  6,  7,  8,  10, 11, 12, 13, 14,
                                  16, 17, 18, 19, 20, 21, 22, 23, 29, 30, 39, 42};

static void put_half(uint8_t *at, float value)
{
    uint16_t bits = half_bits(value);
    memcpy(at, &bits, 2);
}

static float random_scale(random_source &random, bool wild)
{
    float scale = (float)(0.002 + 0.02 * random.uniform());
    if (!wild)
        return scale;
    scale = ldexpf(scale, (int)random.below(24) - 16);
    return random.below(2) ? scale : -scale;
}

/* Byte offsets of a block's half scale, and of its minimum; -1: none. */
static void scale_places(uint32_t format, int *scale, int *minimum)
{
    *scale = format == STRATA__Q2_K ? 80 : format == STRATA__Q3_K ? 108 : 0;
    *scale = format == STRATA__Q6_K ? 208 : *scale;
    *minimum = format == STRATA__Q2_K ? 82 : -1;
    if (format == STRATA__Q4_K || format == STRATA__Q5_K || format == STRATA__Q4_1 ||
        format == STRATA__Q5_1)
        *minimum = 2;
}

static void set_scales(random_source &random, uint32_t format, uint8_t *block, bool wild)
{
    float scale = random_scale(random, wild);
    int scale_at, minimum_at;
    scale_places(format, &scale_at, &minimum_at);
    if (format == STRATA__MXFP4) {
        block[0] = (uint8_t)(wild ? random.below(140) : 118 + random.below(4));
    } else if (format == STRATA__IQ1_M) {
        uint16_t bits = half_bits(scale);
        for (int i = 0; i < 4; i++)
            block[49 + 2 * i] = (uint8_t)((block[49 + 2 * i] & 15) | (bits >> 4 * i & 15) << 4);
    } else {
        put_half(block + scale_at, scale);
        if (minimum_at >= 0)
            put_half(block + minimum_at, random_scale(random, wild));
    }
}

static void fill_plain(random_source &random, uint32_t format, std::vector<uint8_t> &blocks,
                       size_t values)
{
    for (size_t i = 0; i < values; i++) {
        float value = random.normal() * 0.05f;
        uint32_t bits;
        memcpy(&bits, &value, 4);
        if (format == STRATA__F32)
            memcpy(&blocks[4 * i], &value, 4);
        else if (format == STRATA__F16)
            put_half(&blocks[2 * i], value);
        else
            memcpy(&blocks[2 * i], reinterpret_cast<uint8_t *>(&bits) + 2, 2);
    }
}

weight_rows make_weights(random_source &random, uint32_t format, uint32_t inputs, uint32_t rows,
                         bool wild)
{
    const strata__format_info *info = strata__format_find(format);
    weight_rows w = {format, inputs, rows, {}, {}, {}};
    size_t values = (size_t)inputs * rows;
    w.blocks.resize(w.row_bytes() * rows);
    for (size_t i = 0; i + 8 <= w.blocks.size(); i += 8) {
        uint64_t bits = random.bits();
        memcpy(&w.blocks[i], &bits, 8);
    }
    if (info->block_values == 1)
        fill_plain(random, format, w.blocks, values);
    else
        for (size_t b = 0; b < w.blocks.size() / info->block_bytes; b++)
            set_scales(random, format, &w.blocks[b * info->block_bytes], wild);
    w.values.resize(values);
    strata__decode_row(format, w.blocks.data(), values, w.values.data());
    w.halves.resize(values);
    for (size_t i = 0; i < values; i++)
        w.halves[i] = (float)half_value(half_bits(w.values[i]));
    return w;
}

activation_rows make_rows(random_source &random, uint32_t rows, uint32_t width, bool scaled,
                          float spread)
{
    activation_rows a = {{}, {}, width};
    a.data.resize((size_t)rows * width);
    a.scale.resize(rows);
    for (uint16_t &bits : a.data)
        bits = half_bits(random.normal() * spread);
    for (float &scale : a.scale)
        scale = scaled && random.below(3) == 0 ? ldexpf(1.0f, (int)random.below(5)) : 1.0f;
    return a;
}
