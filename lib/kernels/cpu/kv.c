/* SPDX-License-Identifier: MIT */
#include "kernels/cpu/kv.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/error.h"

enum { GROUP = 32 }; /* values that share a q8_0 scale */

strata_status strata__kv_check(const char *what, const strata__kv_view *kv)
{
    if (kv->format > STRATA__KV_F32)
        return strata__fail(STRATA_ERR_UNSUPPORTED, "%s: KV format %u", what, kv->format);
    if (kv->page_tokens == 0 || kv->page_tokens % STRATA__KEY_STEP)
        return strata__fail(STRATA_ERR_UNSUPPORTED,
                            "%s: KV pages of %u tokens, not a multiple of %d", what,
                            kv->page_tokens, STRATA__KEY_STEP);
    if (kv->format == STRATA__KV_Q8_0 && kv->head_size % GROUP)
        return strata__fail(STRATA_ERR_UNSUPPORTED,
                            "%s: heads of %u values cannot be kept as q8_0, which has groups of %d",
                            what, kv->head_size, GROUP);
    return STRATA_OK;
}

strata__kv_row strata__kv_row_at(const strata__kv_view *kv, void *base, uint32_t sequence,
                                 uint32_t position, uint32_t head)
{
    static const uint32_t value_bytes[] = {
        [STRATA__KV_F16] = 2, [STRATA__KV_Q8_0] = 1, [STRATA__KV_F32] = 4};
    uint32_t slot = position % kv->page_tokens;
    int32_t page = kv->page_table[(size_t)sequence * kv->table_stride + position / kv->page_tokens];
    size_t row_bytes = (size_t)kv->head_size * value_bytes[kv->format];
    size_t scale_bytes = kv->format == STRATA__KV_Q8_0 ? (size_t)kv->head_size / GROUP * 2 : 0;
    uint8_t *block = (uint8_t *)base + (size_t)page * kv->page_bytes +
                     (size_t)head * kv->page_tokens * (row_bytes + scale_bytes);
    return (strata__kv_row){
        .values = block + slot * row_bytes,
        .scales = block + kv->page_tokens * row_bytes + slot * scale_bytes,
    };
}

static void store_q8_0(const strata__cpu_kernels *cpu, strata__kv_row row, uint32_t n,
                       const float *values)
{
    for (uint32_t g = 0; g < n / GROUP; g++) {
        const float *in = values + g * GROUP;
        float largest = 0, scale;
        uint16_t half;
        for (int i = 0; i < GROUP; i++)
            largest = fmaxf(largest, fabsf(in[i]));
        scale = largest / 127.0f;
        cpu->code->to_half(&scale, 1, &half);
        memcpy(row.scales + 2 * g, &half, sizeof half);
        strata__decode_row_level(cpu->level, STRATA__F16, &half, 1, &scale);
        float inverse = scale > 0 ? 1.0f / scale : 0;
        for (int i = 0; i < GROUP; i++) {
            float code = rintf(in[i] * inverse);
            code = code >= -127 ? (code <= 127 ? code : 127) : -127; /* NaN becomes -127 */
            row.values[g * GROUP + (uint32_t)i] = (uint8_t)(int8_t)code;
        }
    }
}

void strata__kv_store(const strata__cpu_kernels *cpu, const strata__kv_view *kv, strata__kv_row row,
                      const float *values)
{
    if (kv->format == STRATA__KV_F16)
        cpu->code->to_half(values, kv->head_size, (uint16_t *)(void *)row.values);
    else if (kv->format == STRATA__KV_F32)
        memcpy(row.values, values, kv->head_size * sizeof *values);
    else
        store_q8_0(cpu, row, kv->head_size, values);
}

static void load_q8_0(const strata__cpu_kernels *cpu, const uint8_t *codes, const uint8_t *scales,
                      uint32_t n, float *out)
{
    for (uint32_t g = 0; g < n / GROUP; g++) {
        float scale;
        strata__decode_row_level(cpu->level, STRATA__F16, scales + 2 * g, 1, &scale);
        for (uint32_t i = g * GROUP; i < (g + 1) * GROUP; i++)
            out[i] = scale * (float)(int8_t)codes[i];
    }
}

void strata__kv_load(const strata__cpu_kernels *cpu, const strata__kv_view *kv, strata__kv_row row,
                     uint32_t rows, float *out, uint32_t stride)
{
    uint32_t n = kv->head_size;
    for (uint32_t r = 0; r < rows; r++, out += stride) {
        if (kv->format == STRATA__KV_F16)
            strata__decode_row_level(cpu->level, STRATA__F16, row.values + (size_t)r * n * 2, n,
                                     out);
        else if (kv->format == STRATA__KV_F32)
            memcpy(out, row.values + (size_t)r * n * sizeof *out, n * sizeof *out);
        else
            load_q8_0(cpu, row.values + (size_t)r * n, row.scales + (size_t)r * (n / GROUP) * 2, n,
                      out);
    }
}
