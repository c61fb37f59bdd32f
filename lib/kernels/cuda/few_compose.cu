/* SPDX-License-Identifier: MIT */
/*
 * The composed operations: which of them have kernels for few rows, and what they are given. What
 * does not fit them, by format, shape or number of rows, is done by the operations they replace;
 * the choice follows from the format and the shape, so that a row's bits do not depend on others.
 */
#include "kernels/cuda/few.h"

namespace
{

/* Beyond these outputs a norm of its own costs less than one in every tile. */
constexpr uint32_t NORM_OUTPUTS = 16384;

strata__few_part part_of(const strata__dense_args &from)
{
    strata__few_part part = {};
    part.weights = static_cast<const uint8_t *>(from.weight.data);
    part.bias = from.weight.bias;
    part.row_factor = from.row_factor;
    part.out = from.out_f32;
    part.outputs = from.weight.outputs;
    part.out_stride = from.out_stride;
    part.mode = from.mode;
    part.alpha = from.alpha;
    return part;
}

bool takes_dense(const strata__dense_args &args)
{
    return args.rows <= STRATA__DIRECT_ROWS && args.mode != STRATA__DENSE_STORE_ROWS &&
           strata__few_takes(args.weight.format, args.weight.inputs);
}

/* Parts [first, ...) of one format in a launch; answers the first that is not in it. */
uint32_t gather(const strata__project_args &args, uint32_t first, strata__few_dense_args &few)
{
    uint32_t format = args.parts[first].weight.format, p = first;
    few = {};
    few.in = static_cast<const uint16_t *>(args.parts[first].in.data);
    few.in_scale = args.parts[first].in.scale;
    few.inputs = args.parts[first].weight.inputs;
    few.rows = args.parts[first].rows;
    for (; p < args.part_count && args.parts[p].weight.format == format; p++)
        few.part[few.parts++] = part_of(args.parts[p]);
    return p;
}

bool same_rows(const strata__project_args &args)
{
    for (uint32_t p = 0; p < args.part_count; p++) {
        const strata__dense_args &one = args.parts[p], &zero = args.parts[0];
        if (!takes_dense(one) || one.rows != zero.rows || one.in.data != zero.in.data ||
            one.weight.inputs != zero.weight.inputs)
            return false;
    }
    return args.part_count > 0;
}

bool norm_in_product(const strata__project_args &args)
{
    return args.norm.x && args.norm.width == args.parts[0].weight.inputs &&
           args.parts[0].weight.outputs <= NORM_OUTPUTS;
}

bool takes_route(const strata__route_args &args)
{
    const strata__router_args &router = args.router;
    return args.norm.rows <= STRATA__DIRECT_ROWS && args.norm.out.data && args.norm.inv_rms &&
           args.norm.width % 8 == 0 && router.weight.format == STRATA__F32 && !router.sigmoid &&
           router.x == args.norm.x && router.norm == args.norm.weight &&
           router.weight.inputs == args.norm.width;
}

bool takes_choice(const strata__route_args &args)
{
    return args.select.rows <= STRATA__DIRECT_ROWS && args.select.rows == args.group.rows &&
           args.select.experts <= STRATA__MAX_EXPERTS && args.select.top_k <= STRATA__MAX_TOP_K &&
           args.select.top_k <= args.select.experts && args.select.groups <= 32 &&
           args.select.ids == args.group.ids && args.select.experts == args.group.experts;
}

bool takes_experts(const strata__experts_args &args)
{
    const strata__expert_weight &gate = args.gate_up.gate, &down = args.down.down;
    return args.gate_up.path == STRATA__PATH_DIRECT && args.down.path == STRATA__PATH_DIRECT &&
           args.gate_up.gate_up && gate.format == args.gate_up.up.format &&
           args.combine.tokens <= STRATA__DIRECT_ROWS &&
           args.combine.tokens * args.combine.top_k <= STRATA__FEW_MAX_PAIRS &&
           args.gate_up.range.last_expert < STRATA__MAX_EXPERTS &&
           strata__few_takes(gate.format, gate.inputs) &&
           strata__few_takes(down.format, down.inputs);
}

strata_status range_status(const strata__experts_args &args)
{
    const strata__expert_range &range = args.gate_up.range;
    if (range.first_row == 0 && range.first_expert == 0 &&
        range.rows == args.combine.tokens * args.combine.top_k)
        return STRATA_OK;
    return strata__fail(STRATA_ERR_INTERNAL,
                        "cuda: experts of few rows: rows %u to %u of experts from %u on",
                        range.first_row, range.first_row + range.rows, range.first_expert);
}

} /* namespace */

bool strata__few_takes(uint32_t format, uint32_t inputs)
{
    const strata__format_info *info = strata__format_find(format);
    return info && format != STRATA__F32 && format != STRATA__BF16 && inputs > 0 &&
           inputs % 32 == 0 && inputs % info->block_values == 0;
}

strata_status strata__few_load_kernels(const strata__cuda_state *state, const void *const *kernels,
                                       uint32_t count)
{
    cudaError_t code = cudaSuccess;
    for (uint32_t i = 0; i < count && code == cudaSuccess; i++) {
        cudaFuncAttributes attributes;
        code = cudaFuncGetAttributes(&attributes, kernels[i]);
        if (code == cudaSuccess)
            code = cudaFuncSetAttribute(
                kernels[i], cudaFuncAttributeMaxDynamicSharedMemorySize,
                (int)(state->shared_memory_bytes - attributes.sharedSizeBytes));
    }
    return strata__cuda_status(code, "loading the kernels for few rows");
}

strata_status strata__few_load(const strata__cuda_state *state)
{
    strata_status status = strata__few_dense_load(state);
    if (status == STRATA_OK)
        status = strata__few_gate_up_load(state);
    if (status == STRATA_OK)
        status = strata__few_down_load(state);
    return status == STRATA_OK ? strata__few_route_load() : status;
}

bool strata__few_takes_dense(const strata__dense_args *args)
{
    return takes_dense(*args);
}

strata_status strata__cuda_few_dense(const strata__cuda_state *state, cudaStream_t stream,
                                     const strata__dense_args *args)
{
    strata__project_args one = {};
    strata__few_dense_args few;
    one.parts[0] = *args;
    one.part_count = 1;
    gather(one, 0, few);
    return strata__few_dense(state, stream, args->weight.format, &few);
}

strata_status strata__cuda_project(strata__kernels *kernels, const strata__cuda_state *state,
                                   cudaStream_t stream, const strata__project_args *args)
{
    bool norm = args->norm.x != nullptr;
    strata_status status = STRATA_OK;
    if (!same_rows(*args))
        return strata__compose_project(kernels, stream, args);
    if (args->parts[0].rows == 0)
        return STRATA_OK;
    if (norm && !norm_in_product(*args)) {
        status = kernels->ops->norm(kernels, stream, &args->norm);
        norm = false;
    }
    for (uint32_t p = 0; p < args->part_count && status == STRATA_OK;) {
        strata__few_dense_args few;
        uint32_t format = args->parts[p].weight.format;
        p = gather(*args, p, few);
        if (norm) {
            few.in = nullptr;
            few.x = args->norm.x;
            few.gain = args->norm.weight;
            few.eps = args->norm.eps;
        }
        status = strata__few_dense(state, stream, format, &few);
    }
    return status;
}

strata_status strata__cuda_route(strata__kernels *kernels, const strata__cuda_state *state,
                                 cudaStream_t stream, const strata__route_args *args)
{
    strata_status status = STRATA_OK;
    if (args->norm.rows == 0)
        return STRATA_OK;
    if (takes_route(*args)) {
        status = strata__few_router(state, stream, args);
    } else {
        status = kernels->ops->norm(kernels, stream, &args->norm);
        if (status == STRATA_OK)
            status = kernels->ops->router(kernels, stream, &args->router);
    }
    if (status != STRATA_OK)
        return status;
    if (takes_choice(*args))
        return strata__few_choose(state, stream, &args->select, &args->group);
    status = kernels->ops->select(kernels, stream, &args->select);
    return status == STRATA_OK ? kernels->ops->group(kernels, stream, &args->group) : status;
}

strata_status strata__cuda_experts(strata__kernels *kernels, const strata__cuda_state *state,
                                   cudaStream_t stream, const strata__experts_args *args)
{
    strata__few_gate_up_args up = {};
    strata__few_down_args down = {};
    strata_status status = range_status(*args);
    if (status != STRATA_OK)
        return status;
    if (!takes_experts(*args))
        return strata__compose_experts(kernels, stream, args);
    if (args->combine.tokens == 0)
        return STRATA_OK;
    up.blobs[0] = args->gate_up.gate.blobs;
    up.blobs[1] = args->gate_up.up.blobs;
    up.bias[0] = args->gate_up.gate.bias;
    up.bias[1] = args->gate_up.up.bias;
    up.offsets = down.offsets = args->gate_up.range.offsets;
    up.sorted_row = args->gate_up.sorted_row;
    up.in = static_cast<const uint16_t *>(args->gate_up.in.data);
    up.in_scale = args->gate_up.in.scale;
    up.experts = down.experts = args->gate_up.range.last_expert + 1;
    up.rows = args->combine.tokens;
    up.inputs = args->gate_up.gate.inputs;
    up.outputs = args->gate_up.gate.outputs;
    up.activation = args->gate_up.activation;
    up.h = args->gate_up.gate_up;
    down.h = args->gate_up.gate_up;
    down.blobs = args->down.down.blobs;
    down.bias = args->down.down.bias;
    down.expert_scale = args->down.expert_scale;
    down.sorted_index = args->combine.sorted_index;
    down.weights = args->combine.weights;
    down.x = args->combine.x;
    down.rows = args->combine.tokens;
    down.top_k = args->combine.top_k;
    down.inputs = args->down.down.inputs;
    down.outputs = args->down.down.outputs;
    down.alpha = args->combine.alpha;
    status = strata__few_gate_up(state, stream, args->gate_up.gate.format, args->gate_up.range.rows,
                                 &up);
    return status == STRATA_OK ? strata__few_down(state, stream, args->down.down.format, &down)
                               : status;
}
