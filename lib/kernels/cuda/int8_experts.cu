/* SPDX-License-Identifier: MIT */
/* Paths fused and mmq: which kernels run, and in how many passes the scratch allows. */
#include "kernels/cuda/int8.h"
#include "kernels/int8.h"

namespace
{

/* A product before it is cut in passes. */
struct int8_job {
    const strata__cuda_state *state;
    cudaStream_t stream;
    strata__cuda_matrix matrix[2];
    uint32_t matrices;
    strata__int8_product_args product; /* image, slabs and end are set by pass */
    strata__scratch scratch;
};

strata__cuda_matrix matrix_of(const strata__expert_weight &from)
{
    strata__cuda_matrix matrix = {};
    matrix.blobs = from.blobs;
    matrix.bias = from.bias;
    matrix.format = from.format;
    return matrix;
}

/* For rows with a scale per `row_group` values. */
strata__int8_form form_of(uint32_t format, uint32_t row_group)
{
    const strata__format_info *info = strata__format_find(format);
    strata__int8_form form = {};
    form.values = info->int8_group < row_group ? info->int8_group : row_group;
    form.offsets = info->int8_minimum_group;
    if (form.values == 16)
        form.kind = STRATA__INT8_SUM_16;
    else if (form.values == 64)
        form.kind = STRATA__INT8_SUM_64;
    else if (form.offsets == 16)
        form.kind = STRATA__INT8_SUM_32_TWO_OFFSETS;
    else if (form.offsets)
        form.kind = STRATA__INT8_SUM_32_OFFSETS;
    else
        form.kind = format == STRATA__MXFP4 ? STRATA__INT8_SUM_32_WIDE : STRATA__INT8_SUM_32;
    return form;
}

strata__cuda_range range_of(const strata__expert_range &from)
{
    strata__cuda_range range = {};
    range.offsets = from.offsets + from.first_expert;
    range.first_expert = from.first_expert;
    range.experts = from.last_expert - from.first_expert + 1;
    range.first_row = from.first_row;
    range.rows = from.rows;
    return range;
}

strata_status check_weight(const char *what, const strata__expert_weight &weight)
{
    const strata__format_info *info = strata__format_find(weight.format);
    if (!info || !info->int8_group)
        return strata__fail(STRATA_ERR_UNSUPPORTED, "cuda: %s: format %u has no int8 form", what,
                            weight.format);
    if (weight.outputs % 2)
        return strata__fail(STRATA_ERR_UNSUPPORTED, "cuda: %s: %u outputs, an odd number", what,
                            weight.outputs);
    if (!weight.inputs || weight.inputs % info->block_values)
        return strata__fail(STRATA_ERR_UNSUPPORTED, "cuda: %s: rows of %u values in %s", what,
                            weight.inputs, info->name);
    return STRATA_OK;
}

/* Experts [skip, skip + experts) of the job, slabs [first_slab, first_slab + slabs). */
struct pass {
    uint32_t skip, experts, first_slab, slabs;
};

strata_status run_pass(const int8_job &job, const pass &p)
{
    strata__int8_product_args product = job.product;
    strata__int8_decode_args decode = {};
    uint32_t end = (p.first_slab + p.slabs) * (STRATA__SLAB_ROWS / job.matrices);
    product.range.offsets += p.skip;
    product.range.first_expert += p.skip;
    product.range.experts = p.experts;
    product.image = static_cast<const uint8_t *>(job.scratch.data);
    product.first_slab = p.first_slab;
    product.slabs = p.slabs;
    product.end = end < product.outputs ? end : product.outputs;
    for (uint32_t m = 0; m < job.matrices; m++) {
        decode.matrix[m] = job.matrix[m];
        decode.form[m] = product.form[m];
    }
    decode.range = product.range;
    decode.image = static_cast<uint8_t *>(job.scratch.data);
    decode.matrices = job.matrices;
    decode.inputs = product.inputs;
    decode.outputs = product.outputs;
    decode.first_slab = p.first_slab;
    decode.slabs = p.slabs;
    strata_status status = strata__cuda_int8_decode(job.stream, &decode);
    if (status != STRATA_OK)
        return status;
    return strata__cuda_int8_product(job.state, job.stream, job.matrices == 2, &product);
}

/* The product without an image is the faster one wherever it serves the job. */
bool runs_inline(const int8_job &job)
{
    uint32_t format = job.matrix[0].format;
    if (job.state->int8_products == STRATA__INT8_PRODUCTS_IMAGE)
        return false;
    if (job.matrices == 2 && job.matrix[1].format != format)
        return false;
    /* The rows' scales are then those of the format's own sums. */
    return job.product.form[0].values ==
           form_of(format, strata__int8_row_group(format, format)).values;
}

strata_status run_inline(const int8_job &job)
{
    strata__int8_inline_args args = {};
    strata_status status = STRATA_OK;
    args.matrix[0] = job.matrix[0];
    args.matrix[1] = job.matrix[1];
    args.matrices = job.matrices;
    args.product = job.product;
    uint32_t experts = job.product.range.experts, most = STRATA__PASS_EXPERTS;
    for (uint32_t skip = 0; skip < experts && status == STRATA_OK; skip += most) {
        strata__cuda_range &range = args.product.range;
        range = job.product.range;
        range.offsets += skip;
        range.first_expert += skip;
        range.experts = experts - skip < most ? experts - skip : most;
        status = strata__cuda_int8_inline(job.state, job.stream, &args);
    }
    return status;
}

/* Whole experts where the scratch holds one, else pieces of one after the other. */
strata_status run_images(const int8_job &job)
{
    uint64_t k_blocks = (job.product.inputs + STRATA__INT8_K - 1) / STRATA__INT8_K;
    uint64_t slab_bytes = k_blocks * STRATA__INT8_IMAGE_BYTES;
    uint64_t capacity = job.scratch.bytes / slab_bytes;
    uint32_t slab_rows = STRATA__SLAB_ROWS / job.matrices, experts = job.product.range.experts;
    uint32_t slabs = (job.product.outputs + slab_rows - 1) / slab_rows;
    strata_status status = STRATA_OK;
    if (capacity == 0)
        return strata__fail(STRATA_ERR_BUFFER_TOO_SMALL,
                            "cuda: %llu bytes of scratch for decoded weights: at least %llu",
                            (unsigned long long)job.scratch.bytes, (unsigned long long)slab_bytes);
    uint32_t per_slabs = capacity < slabs ? (uint32_t)capacity : slabs;
    uint64_t per_experts = capacity < slabs ? 1 : capacity / slabs;
    if (per_experts > STRATA__PASS_EXPERTS)
        per_experts = STRATA__PASS_EXPERTS;
    for (uint32_t skip = 0; skip < experts; skip += (uint32_t)per_experts)
        for (uint32_t slab = 0; slab < slabs && status == STRATA_OK; slab += per_slabs) {
            uint32_t left = experts - skip, rest = slabs - slab;
            status = run_pass(job, {skip, left < per_experts ? left : (uint32_t)per_experts, slab,
                                    rest < per_slabs ? rest : per_slabs});
        }
    return status;
}

strata_status run(const int8_job &job)
{
    return runs_inline(job) ? run_inline(job) : run_images(job);
}

strata_status quantise_inputs(cudaStream_t stream, const strata__gate_up_args *args, uint32_t group)
{
    strata__int8_rows_args rows = {};
    rows.in = static_cast<const uint16_t *>(args->in.data);
    rows.in_scale = args->in.scale;
    rows.in_row = args->sorted_row + args->range.first_row;
    rows.out = static_cast<uint8_t *>(args->quantised);
    rows.rows = args->range.rows;
    rows.width = args->gate.inputs;
    rows.group = group;
    return strata__cuda_int8_rows(stream, &rows);
}

/* One product after the other into the float buffer, then the activation. */
strata_status run_separate(int8_job job, const strata__gate_up_args *args, uint32_t h_group)
{
    strata__int8_rows_args rows = {};
    job.matrices = 1;
    job.product.out_stride = 2 * args->gate.outputs;
    job.product.out = args->gate_up;
    strata_status status = run(job);
    job.matrix[0] = job.matrix[1];
    job.product.form[0] = job.product.form[1];
    job.product.bias = args->up.bias;
    job.product.out = args->gate_up + args->gate.outputs;
    if (status == STRATA_OK)
        status = run(job);
    if (status != STRATA_OK)
        return status;
    rows.gate_up = args->gate_up;
    rows.out = static_cast<uint8_t *>(args->h.data);
    rows.rows = args->range.rows;
    rows.width = args->gate.outputs;
    rows.group = h_group;
    rows.activation = args->activation;
    return strata__cuda_int8_rows(job.stream, &rows);
}

strata_status check_gate_up(const strata__gate_up_args *args, uint32_t h_group)
{
    strata_status status = check_weight("gate", args->gate);
    if (status == STRATA_OK)
        status = check_weight("up", args->up);
    if (status != STRATA_OK)
        return status;
    if (args->gate.outputs % h_group)
        return strata__fail(STRATA_ERR_UNSUPPORTED,
                            "cuda: %u hidden values are no whole groups of the int8 paths",
                            args->gate.outputs);
    if (!args->quantised || !args->h.data || (args->path == STRATA__PATH_MMQ && !args->gate_up))
        return strata__fail(STRATA_ERR_BUFFER_TOO_SMALL,
                            "cuda: gate_up: a buffer of the int8 paths is missing");
    return STRATA_OK;
}

} /* namespace */

strata_status strata__cuda_int8_gate_up(const strata__cuda_state *state, cudaStream_t stream,
                                        const strata__gate_up_args *args)
{
    uint32_t group = strata__int8_row_group(args->gate.format, args->up.format);
    uint32_t h_group = strata__int8_row_group(args->down_format, args->down_format);
    int8_job job = {};
    strata_status status = check_gate_up(args, h_group);
    if (status != STRATA_OK || args->range.rows == 0)
        return status;
    job.state = state;
    job.stream = stream;
    job.matrix[0] = matrix_of(args->gate);
    job.matrix[1] = matrix_of(args->up);
    job.matrices = 2;
    job.scratch = args->scratch;
    job.product.range = range_of(args->range);
    job.product.form[0] = form_of(args->gate.format, group);
    job.product.form[1] = form_of(args->up.format, group);
    job.product.rows = static_cast<const uint8_t *>(args->quantised);
    job.product.bias = args->gate.bias;
    job.product.up_bias = args->up.bias;
    job.product.h = static_cast<uint8_t *>(args->h.data);
    job.product.inputs = args->gate.inputs;
    job.product.outputs = args->gate.outputs;
    job.product.h_group = h_group;
    job.product.activation = args->activation;
    status = quantise_inputs(stream, args, group);
    if (status != STRATA_OK)
        return status;
    return args->path == STRATA__PATH_FUSED ? run(job) : run_separate(job, args, h_group);
}

strata_status strata__cuda_int8_down(const strata__cuda_state *state, cudaStream_t stream,
                                     const strata__down_args *args)
{
    int8_job job = {};
    strata_status status = check_weight("down", args->down);
    if (status != STRATA_OK || args->range.rows == 0)
        return status;
    job.state = state;
    job.stream = stream;
    job.matrix[0] = matrix_of(args->down);
    job.matrices = 1;
    job.scratch = args->scratch;
    job.product.range = range_of(args->range);
    job.product.form[0] =
        form_of(args->down.format, strata__int8_row_group(args->down.format, args->down.format));
    job.product.rows = static_cast<const uint8_t *>(args->h.data);
    job.product.bias = args->down.bias;
    job.product.expert_scale = args->expert_scale;
    job.product.out = args->y;
    job.product.out_stride = args->down.outputs;
    job.product.inputs = args->down.inputs;
    job.product.outputs = args->down.outputs;
    return run(job);
}
