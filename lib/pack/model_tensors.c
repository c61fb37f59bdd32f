/* SPDX-License-Identifier: MIT */
/*
 * Tensors of an expected shape, in place. A text names the tensor, what it must be and what it is.
 */
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "pack/architecture.h"

enum { NAME_BYTES = 128, FLOAT_ALIGNMENT = 4, BLOCK_ALIGNMENT = 2 };

static const strata__tensor *find(const strata__model *model, int32_t layer, const char *name,
                                  char full_name[NAME_BYTES])
{
    if (layer == STRATA__NO_LAYER)
        snprintf(full_name, NAME_BYTES, "%s", name);
    else
        snprintf(full_name, NAME_BYTES, "blk.%" PRId32 ".%s", layer, name);
    return strata__pack_tensor_find(model->pack, full_name);
}

bool strata__model_has(const strata__model *model, int32_t layer, const char *name)
{
    char full_name[NAME_BYTES];
    return find(model, layer, name, full_name) != NULL;
}

static strata_status check_shape(const strata__tensor *tensor, const uint64_t shape[3])
{
    const uint64_t *found = tensor->shape;
    if (found[0] == shape[0] && found[1] == shape[1] && found[2] == shape[2] && found[3] == 1)
        return STRATA_OK;
    return strata__fail(STRATA_ERR_FORMAT,
                        "tensor %s: expected shape [%" PRIu64 ", %" PRIu64 ", %" PRIu64
                        "], found [%" PRIu64 ", %" PRIu64 ", %" PRIu64 ", %" PRIu64 "]",
                        tensor->name, shape[0], shape[1], shape[2], found[0], found[1], found[2],
                        found[3]);
}

static strata_status check_format(const strata__tensor *tensor)
{
    const char *name = strata__format_name(tensor->format);
    if (strata__format_find(tensor->format))
        return STRATA_OK;
    return strata__fail(STRATA_ERR_UNSUPPORTED, "tensor %s has type %" PRIu32 " (%s), which %s",
                        tensor->name, tensor->format, name ? name : "unknown",
                        name ? "is not decoded" : "no supported format has");
}

/* Counts a tensor's bytes once, however often it is used. */
static void mark_used(strata__model *model, const strata__tensor *tensor)
{
    uint64_t index = (uint64_t)(tensor - strata__pack_tensors(model->pack));
    if (!model->used[index])
        *model->dense_bytes += tensor->bytes;
    model->used[index] = 1;
}

strata_status strata__model_tensor(strata__model *model, int32_t layer, const strata__want *want,
                                   const strata__tensor **out)
{
    char name[NAME_BYTES];
    const strata__tensor *tensor = find(model, layer, want->name, name);
    strata_status status;
    *out = NULL;
    if (want->presence == STRATA__NEVER)
        return STRATA_OK;
    if (!tensor && want->presence == STRATA__OPTIONAL)
        return STRATA_OK;
    if (!tensor)
        return strata__fail(STRATA_ERR_FORMAT, "tensor %s is missing", name);
    status = check_format(tensor);
    if (status == STRATA_OK)
        status = check_shape(tensor, want->shape);
    if (status != STRATA_OK)
        return status;
    mark_used(model, tensor);
    *out = tensor;
    return STRATA_OK;
}

static float widen_half(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t exponent = half >> 10 & 0x1fu, fraction = half & 0x3ffu;
    uint32_t bits;
    float value;
    if (exponent == 0) {
        value = (float)fraction * 0x1p-24f;
        return sign ? -value : value;
    }
    bits = sign | (exponent == 31 ? 0xffu : exponent + 112) << 23 | fraction << 13;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static float widen(const strata__tensor *tensor, uint64_t index)
{
    const uint8_t *data = tensor->data;
    uint32_t bits;
    uint16_t half;
    float value;
    if (tensor->format == STRATA__F32) {
        memcpy(&value, data + 4 * index, sizeof value);
        return value;
    }
    memcpy(&half, data + 2 * index, sizeof half);
    if (tensor->format == STRATA__F16)
        return widen_half(half);
    bits = (uint32_t)half << 16;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static strata_status copy_floats(strata__model *model, const strata__tensor *tensor, uint64_t count,
                                 const float **out)
{
    uint64_t bytes = count * sizeof(float); /* at most twice what is in the file */
    float *values = strata__pool_alloc(&model->pack->pool, bytes);
    if (!values)
        return strata__fail_memory(bytes, tensor->name);
    for (uint64_t i = 0; i < count; i++)
        values[i] = widen(tensor, i);
    *out = values;
    return STRATA_OK;
}

strata_status strata__model_floats(strata__model *model, int32_t layer, const strata__want *want,
                                   const float **out)
{
    const strata__tensor *tensor;
    strata_status status = strata__model_tensor(model, layer, want, &tensor);
    *out = NULL;
    if (status != STRATA_OK || !tensor)
        return status;
    if (tensor->format != STRATA__F32 && tensor->format != STRATA__F16 &&
        tensor->format != STRATA__BF16)
        return strata__fail(STRATA_ERR_UNSUPPORTED,
                            "tensor %s: expected F32, F16 or BF16, found %s", tensor->name,
                            strata__format_name(tensor->format));
    if (tensor->format != STRATA__F32 || (uintptr_t)tensor->data % FLOAT_ALIGNMENT)
        return copy_floats(model, tensor, want->shape[0] * want->shape[1] * want->shape[2], out);
    *out = tensor->data;
    return STRATA_OK;
}

/* Kernels read float32 rows and the half scales of blocks in place. */
static strata_status check_alignment(const strata__tensor *tensor)
{
    uint32_t alignment = tensor->format == STRATA__F32 ? FLOAT_ALIGNMENT : BLOCK_ALIGNMENT;
    if ((uintptr_t)tensor->data % alignment == 0)
        return STRATA_OK;
    return strata__fail(STRATA_ERR_MISALIGNED,
                        "tensor %s: its data is not aligned to %" PRIu32 " bytes", tensor->name,
                        alignment);
}

strata_status strata__model_projection(strata__model *model, int32_t layer,
                                       const strata__projection_want *want, strata__projection *out)
{
    char weight[NAME_BYTES], bias[NAME_BYTES];
    uint64_t experts = want->experts ? want->experts : 1;
    strata__want rows = {weight, {want->inputs, want->outputs, experts}, want->presence};
    strata__want offsets = {bias, {want->outputs, experts, 1}, want->bias};
    const strata__tensor *tensor;
    strata_status status;
    memset(out, 0, sizeof *out);
    snprintf(weight, sizeof weight, "%s.weight", want->name);
    snprintf(bias, sizeof bias, "%s.bias", want->name);
    status = strata__model_tensor(model, layer, &rows, &tensor);
    if (status != STRATA_OK || !tensor)
        return status;
    status = check_alignment(tensor);
    if (status == STRATA_OK)
        status = strata__model_floats(model, layer, &offsets, &out->bias);
    if (status != STRATA_OK)
        return status;
    if (want->experts) {
        *model->dense_bytes -= tensor->bytes;
        model->geometry->expert_bytes += tensor->bytes;
    }
    out->data = tensor->data;
    out->bytes = tensor->bytes;
    out->stride_bytes = tensor->bytes / experts;
    out->format = tensor->format;
    out->inputs = want->inputs;
    out->outputs = want->outputs;
    return STRATA_OK;
}

void strata__projection_rows(const strata__projection *whole, uint32_t experts, uint32_t first,
                             uint32_t outputs, strata__projection *out)
{
    uint64_t row_bytes = whole->stride_bytes / whole->outputs;
    *out = *whole;
    out->data = (const uint8_t *)whole->data + first * row_bytes;
    out->bias = whole->bias ? whole->bias + first : NULL;
    out->bytes = outputs * row_bytes * (experts ? experts : 1);
    out->outputs = outputs;
}
